"""A picture: one figure with what a visitor is owed beside it: what its number is, and the numbers themselves.

Made by the views from what was measured, drawn by `pages.ui.panels`. The file knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

Columns = Mapping[str, Sequence[object]]
"""A table, column by column: name → values of equal number; None where a row has none."""

FORMATS: Mapping[str, tuple[str, str]] = {
    ".csv": ("CSV", "text/csv"), ".parquet": ("Parquet", "application/vnd.apache.parquet"),
}
"""A download's ending → its name and its media type."""


@dataclass(frozen=True)
class Subject:
    """What the numbers of a picture are: names of statistics, names of sites, and whether they are of gradients.

    `extra`: keys of texts on what is not a statistic of the vocabulary. `axes`, `entries`: over what and over how many
    entries a number is taken, where that is not all of a site's.
    """

    statistics: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    gradient: bool = False
    extra: tuple[str, ...] = ()
    axes: str = ""
    entries: int = 0


@dataclass(frozen=True)
class Picture:
    """One chart of a view.

    `key`: constant for its place, also the name of its downloads; `label`: what a screen reader says; `columns`: makes
    the table of its numbers; `height`: pixels; `remarks`: sentences on what is missing in it; `picks`: a click on it
    chooses a site, a parameter or a head; `width`: pixels that it needs at least, below which it scrolls; `variant`:
    the name of the only variant it is about, empty for all. A picture without a figure is its remarks, and its table
    where it has one.
    """

    key: str
    figure: go.Figure | None
    label: str
    subject: Subject
    columns: Callable[[], Columns]
    height: int = 460
    remarks: tuple[str, ...] = ()
    picks: bool = False
    width: int = 0
    variant: str = ""

    def shows(self, variant: str) -> bool:
        """Say whether it is about a variant."""
        return self.variant in ("", variant)


@dataclass(frozen=True)
class Told:
    """A picture and the sentences above it.

    `alarm`: whether they say that something is wrong; None where they judge nothing.
    """

    picture: Picture
    said: str
    alarm: bool | None = None
