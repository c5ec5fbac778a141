"""The landing view: every site of one variant at every layer at once, and below it the chosen site for all variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from core.landscape import Landscape, landscape
from core.vocabulary import EMBED, STATISTICS
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.depth import Number, Shown
from pages.ui.views.tokens import focus

ROW_PX, AROUND_PX = 25, 180


def overview(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The map of one variant; a click on it chooses the site that the profile of all variants below shows."""
    number = Number(shown["stat"], shown["site"], shown["of"] == "gradient")
    return [every_site(measured, shown, t), depth.lines(measured, number, shown["scale"], t, "profile", depth.SMALL_PX)]


def every_site(measured: Sequence[Measured], shown: Shown, t: Words) -> Picture:
    """Return the map of one statistic at every site and layer of the variant that is looked at."""
    one, _ = focus(measured, shown)
    number = Number(shown["stat"], "", shown["of"] == "gradient")
    assert one.trace is not None
    found = landscape(one.trace, number.statistic, number.gradient)
    statistic = t(f"statistic.{number.statistic}")
    title = depth.titled(number, t("overview.all_sites", variant=one.name), t)
    frame = charts.Frame(title=title, statistic=statistic, y_title="", x_title=t("drift.depth"),
                         y_scale=depth.fitting([found.values.ravel()], shown["scale"], number.statistic))
    missing, drawn = remarks(found, t), replace(cells(found, shown["site"], t), name=one.name)
    return Picture("map", None if missing else charts.grid(drawn, frame, t), title,
                   Subject((number.statistic,), found.sites, number.gradient), partial(table, found, t),
                   AROUND_PX + ROW_PX * max(len(found.sites), 4), missing, picks=True, variant=one.name)


def cells(found: Landscape, chosen: str, t: Words) -> charts.Grid:
    """Return a map as cells; the chosen row has a frame."""
    counts = depth.left_out(found.non_finite, found.statistic) if found.statistic in STATISTICS else found.non_finite
    return charts.Grid([column(layer, found.layers[-1], t) for layer in found.layers], found.sites, found.values,
                       found.states != "absent", ~np.isin(found.states, ("absent", "not_taken", "not_observed")),
                       non_finite=counts, chosen=chosen)


def remarks(found: Landscape, t: Words) -> tuple[str, ...]:
    """Say why there is no cell at all."""
    taken = STATISTICS[found.statistic]
    if not (taken.gradient if found.gradient else taken.forward):
        return (t("overview.of_activations" if found.gradient else "overview.of_gradients"),)
    if not found.sites:
        return (t("overview.no_site"),)
    if np.isin(found.states, ("absent", "not_observed")).all():
        return (t("overview.no_gradient" if found.gradient else "overview.not_observed"),)
    return (t(depth.unrecorded(found.statistic)),) if np.isin(found.states, ("absent", "not_taken")).all() else ()


def table(found: Landscape, t: Words) -> Columns:
    """Return a row a site and layer that exists, in tables' own terms."""
    state = found.states
    cells = [cell for cell in np.ndindex(state.shape) if state[cell] != "absent"]
    return {
        t("drift.site"): [found.sites[row] for row, _ in cells],
        t("chart.layer"): [found.layers[column] for _, column in cells],
        Number(found.statistic, "", found.gradient).name: [
            float(found.values[cell]) if state[cell] in ("measured", "undefined") else None for cell in cells],
        t("overview.state"): [t(f"state.{state[cell]}") for cell in cells],
    }


def column(layer: int, last: int, t: Words) -> str:
    """Name a column of a map: the embedding, the layers by number, and what stands after the stack."""
    return t("chart.embed_short") if layer == EMBED else t("chart.head_short") if layer == last else str(layer)
