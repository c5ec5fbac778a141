"""How far the run in each narrow format lies from the one in float32: over depth, site by site, and as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from core import drift, format_gap, verdicts
from core.drift import Verdict
from core.experiment import Experiment
from core.formats import FORMATS
from core.landscape import Landscape
from core.trace import Trace
from core.vocabulary import EMBED
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.charts import Series
from pages.ui.explain import number
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth, overview
from pages.ui.views.depth import Number, Shown

DASHES = {"float16": "solid", "bfloat16": "12px,6px"}
"""Format → its line."""


def difference(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The relative difference at one site over depth; below it every site, a map a format; a click chooses."""
    asked = Number(shown["stat"], shown["site"], shown["of"] == "gradient")
    if len(measured) < 2 or measured[0].experiment.protocol.dtype != "float32":
        return [Picture("gap", None, "", Subject(), dict, remarks=(t("precision.no_reference"),))]
    return [_lines(measured, asked, t), *(_map(one, measured[0], asked, t) for one in measured[1:])]


def judge(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The stream of this format, and its range."""
    return [drift.verdict(trace, experiment), verdicts.float16_range(trace, experiment, shown["of"] == "gradient")]


def report(measured: Sequence[Measured], t: Words) -> None:
    """Say loss and gradient norm of every format, and how far they lie from float32's."""
    base, *others = measured
    if base.experiment.protocol.dtype != "float32":
        return  # it is still on its way
    assert base.trace is not None
    rows: dict[str, list[str]] = {t("drift.variant"): [base.name, *(one.name for one in others)]}
    for name in ("loss", "grad_total_norm"):
        known = [format_gap.whole(one.trace, base.trace)[name] for one in measured if one.trace is not None]
        rows[t(f"extra.{name}")] = [_number(known[0].value), *(
            t("precision.percent_off", value=_number(one.value), percent=number(100 * one.relative))
            for one in known[1:])]
    st.table(rows, border="horizontal", hide_index=True)


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else number(value)


def _lines(measured: Sequence[Measured], asked: Number, t: Words) -> Picture:
    """Return a line a narrow format, with the unit roundoff of each as dotted lines."""
    base, *others = measured
    assert base.trace is not None
    runs = {one.name: one.experiment.protocol.dtype for one in others}
    found: dict[str, Series | None] = {}
    for one in others:
        assert one.trace is not None
        cells = format_gap.gap(one.trace, base.trace, asked.statistic, asked.gradient)
        found[one.name] = _series(one, cells, asked)
    dressed = {name: None if line is None else replace(line, style=replace(line.style, dash=DASHES[runs[name]]))
               for name, line in depth.dressed(found, measured).items()}
    series = [line for line in dressed.values() if line is not None]
    title = depth.titled(asked, t("precision.from_float32", where=depth.at(asked.site, t)), t)
    units = {t("precision.unit", format=name): FORMATS[name].unit for name in runs.values()}
    scale = depth.positive([one.values for one in series], "log")
    frame = charts.Frame(title, asked.name, t("precision.relative"), scale, x_title=t("drift.depth"), references=units)
    remarks = depth.missing(others, asked, t)
    return Picture("gap", charts.profile(series, frame, t) if series else None, title,
                   Subject((asked.statistic,), (asked.site,), asked.gradient, ("format_gap",)),
                   partial(depth.table, dressed, t), depth.SMALL_PX,
                   remarks or (() if series else (t("overview.not_observed"),)))


def _series(one: Measured, cells: Landscape, asked: Number) -> Series | None:
    """Return a format's line; None where it has no such number."""
    if depth.why_absent(one, asked):
        return None
    sites = [site for site in depth.sites_of(asked) if site in cells.sites]
    places = [(layer, cells.sites.index(site), layer - EMBED) for site in sites for layer in cells.layers
              if cells.state(site, layer) in ("measured", "undefined")]
    values = np.array([cells.values[row, column] for _, row, column in places])
    return Series(one.name, np.array([layer for layer, _, _ in places], np.int64), values, site=asked.site,
                  key=one.variant.key)


def _map(one: Measured, base: Measured, asked: Number, t: Words) -> Picture:
    """Return every site of one format in every layer."""
    assert one.trace is not None and base.trace is not None
    found = format_gap.gap(one.trace, base.trace, asked.statistic, asked.gradient)
    named = replace(found, statistic="format_gap")
    title = depth.titled(asked, t("precision.gap_map", variant=one.name), t)
    frame = charts.Frame(title, t("precision.relative"), "", depth.positive([found.values.ravel()], "log"),
                         x_title=t("drift.depth"))
    drawn = replace(overview.cells(named, asked.site, t), name=one.name)
    remarks = overview.remarks(found, t)
    return Picture(f"gap_map.{one.experiment.protocol.dtype}", None if remarks else charts.grid(drawn, frame, t), title,
                   Subject((asked.statistic,), found.sites, asked.gradient, ("format_gap",)),
                   partial(overview.table, named, t),
                   overview.AROUND_PX + overview.ROW_PX * max(len(found.sites), 4), remarks, picks=True,
                   variant=one.name)
