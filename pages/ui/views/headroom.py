"""How much room the numbers of a run have below the largest of a format, site by site, and what passes it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from core import headroom as room
from core.drift import Verdict
from core.experiment import Experiment
from core.formats import FORMATS
from core.landscape import Landscape
from core.trace import Trace
from core.vocabulary import SITES
from pages.ui import charts, explain
from pages.ui.cache import Measured
from pages.ui.explain import number
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views import overview
from pages.ui.views.depth import Shown
from pages.ui.views.tokens import focus

ROW_PX, AROUND_PX = 30, 190


def headroom(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The least room of every site as bars; below it the room of every site in every layer."""
    one, _ = focus(measured, shown)
    assert one.trace is not None
    found = room.headroom(one.trace, shown["format"])
    return [_bars(found, one, shown, t), _map(found, one, shown, t)]


def judge(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The room in the chosen format, and in the run's own where that is another."""
    names = dict.fromkeys((shown["format"], experiment.protocol.dtype))
    return [room.judge(trace, name) for name in names if name in FORMATS]


def report(measured: Sequence[Measured], t: Words) -> None:
    """Say what the float32 run foretells of float16, and what the run in float16 met."""
    runs = {one.experiment.protocol.dtype: one for one in measured}
    if not {"float32", "float16"} <= runs.keys():
        return
    wide, narrow = (runs[name].trace for name in ("float32", "float16"))
    assert wide is not None and narrow is not None
    foretold = room.passed(wide, "float16")
    met = narrow.snapshots[-1].non_finite
    said = t("precision.foretold_none") if not foretold else t(
        "precision.foretold", place=explain.named(foretold[0].site, foretold[0].layer, t), count=len(foretold),
        value=number(foretold[0].absmax))
    actual = t("precision.met_none") if met is None else t(
        "precision.met", place=explain.named(met.site, met.layer, t), kind={"nan": "NaN", "inf": "Inf"}[met.kind],
        direction=t(f"precision.in_{met.direction}"))
    st.markdown(f"{explain.sign(bool(foretold) or met is not None)} {said} {actual}")


def _title(one: Measured, shown: Shown, key: str, t: Words) -> str:
    return t(f"precision.{key}", format=shown["format"], largest=number(FORMATS[shown["format"]].largest),
             variant=one.name)


def _bars(found: Landscape, one: Measured, shown: Shown, t: Words) -> Picture:
    """Return a bar a site: the room of the layer that has the least."""
    rows = [row for row in range(len(found.sites)) if (found.states[row] == "measured").any()]
    seen = np.where(found.states == "measured", found.values, np.inf)
    least = seen[rows].min(1) if rows else np.empty(0)
    layers = [found.layers[place] for place in seen[rows].argmin(1)] if rows else []
    said = [_said(value, layer, found.sites[row], t) for value, layer, row in zip(least, layers, rows, strict=True)]
    sites = [found.sites[row] for row in rows]
    hovers = [f"{t(f'site.{site}')} ({site})<br><b>{words}</b>" for site, words in zip(sites, said, strict=True)]
    title = _title(one, shown, "headroom_title", t)
    frame = charts.Frame(title, "headroom", "", "linear", x_title=t("precision.decades"))
    bars = charts.Levels(sites, [charts.Part(t("precision.headroom"), least)], said, hovers, chosen=shown["site"])
    return Picture("headroom", charts.levels(bars, frame, t) if rows else None, title,
                   Subject(("absmax",), tuple(sites), extra=("headroom",)),
                   lambda: {t("drift.site"): sites, t("chart.layer"): layers, "headroom": least.tolist(),
                            "factor": (10.0**np.minimum(least, 300)).tolist()},
                   AROUND_PX + ROW_PX * max(len(rows), 4), () if rows else (t("overview.not_observed"),),
                   variant=one.name)


def _said(decades: float, layer: int, site: str, t: Words) -> str:
    """Say how much room is left, and in which layer."""
    where = f" · {t('chart.layer')} {layer}" if SITES[site].where == "block" else ""
    if np.isinf(decades):
        return t("precision.infinite" if decades < 0 else "precision.all_zero") + where
    factor = 10.0 ** abs(decades)
    return t("precision.times_over" if decades < 0 else "precision.times_left", factor=number(factor)) + where


def _map(found: Landscape, one: Measured, shown: Shown, t: Words) -> Picture:
    """Return the room in every cell; what is beyond has the other colour."""
    title = _title(one, shown, "headroom_map", t)
    frame = charts.Frame(title, t("precision.headroom"), "", "linear", x_title=t("drift.depth"))
    cells = replace(overview.cells(found, shown["site"], t), name=one.name, signed=True, crossed=found.values < 0,
                    crossing="precision.crossed")
    return Picture("headroom_map", charts.grid(cells, frame, t) if found.sites else None, title,
                   Subject(("absmax",), found.sites, extra=("headroom",)), partial(overview.table, found, t),
                   overview.AROUND_PX + overview.ROW_PX * max(len(found.sites), 4),
                   () if found.sites else (t("overview.no_site"),), picks=True, variant=one.name)
