"""The views of the live page, each one entry in `LIVE_VIEWS`: which controls it has, and which pictures it makes.

A new view is a function from watched runs to pictures, an entry here, its name in `pages.ui.places`, and its words
(``live_view.*``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pages.ui import autopsy_card
from pages.ui.picture import Picture
from pages.ui.text import Words
from pages.ui.views.training import autopsy, curves, maps
from pages.ui.watching import Watched

Make = Callable[[Sequence[Watched], Mapping[str, str], Words], list[Picture]]
Report = Callable[[Sequence[Watched], Mapping[str, str], Words], None]


@dataclass(frozen=True)
class LiveView:
    """One view. `make`: its pictures; `asks`: the controls that change them; `player`: they follow the replay.

    `report`: draws what stands above the pictures and is none.
    """

    make: Make
    asks: tuple[str, ...] = ()
    player: bool = True
    report: Report | None = None


LIVE_VIEWS: dict[str, LiveView] = {
    "overview": LiveView(maps.overview, ("stat", "site", "of", "scale")),
    "layers": LiveView(curves.layers, ("at", "stat", "site", "of", "scale")),
    "updates": LiveView(maps.updates, ("weight", "role")),
    "entropy": LiveView(maps.entropy, ("measure", "who", "at")),
    "autopsy": LiveView(autopsy.autopsy, ("who",), player=False, report=autopsy_card.report),
}
