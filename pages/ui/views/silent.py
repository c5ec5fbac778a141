"""Norms that fail in silence: outputs that are not what norms promise, and what computing them otherwise moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from core import silent as promise
from core.drift import Verdict
from core.experiment import Experiment
from core.format_gap import gap
from core.silent import READS, Finding
from core.trace import Trace
from pages.ui import charts, explain
from pages.ui.cache import Measured
from pages.ui.charts import Series
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth, overview
from pages.ui.views.depth import Shown

ROW_PX, AROUND_PX = 40, 200
DASHES = {"compute": "solid", "float32": "12px,6px"}
"""How a norm is computed → its line: naive ones are whole, early casts are dashed."""

Pairs = Mapping[str, tuple[Measured, Measured]]
"""What is compared in words → the run that is different, and the one with its norm in float32, cast after γ."""


def silent(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """Whether the norms of every variant kept their promise; below it how far naive norms and early casts lie off."""
    return [_promises(measured, t), _apart(measured, t)]


def judge(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """Whether a norm fails in silence."""
    return [promise.judge(trace, experiment)]


def report(measured: Sequence[Measured], t: Words) -> None:
    """Say the largest difference that computing the norm otherwise makes at any norm's output."""
    for said, (one, other) in pairs(measured, t).items():
        _, values = over_layers(one, other)
        seen = values[np.isfinite(values)]
        most = t("precision.apart_none") if not seen.size else t("precision.apart_most", most=number(
            100 * float(seen.max())))
        st.markdown(f"**{said}**{t('drift.colon')}{most}")


def pairs(measured: Sequence[Measured], t: Words) -> Pairs:
    """Return the runs that differ in nothing but how their norms are computed."""
    found: dict[str, tuple[Measured, Measured]] = {}
    plain = {one.experiment.protocol.dtype: one for one in measured if _computed(one) == ("float32", "after")}
    for one in measured:
        name, how = one.experiment.protocol.dtype, _computed(one)
        if how != ("float32", "after") and name in plain:
            found[t(f"precision.pair_{'naive' if how[0] == 'compute' else 'cast'}", format=name)] = one, plain[name]
    return found


def _computed(one: Measured) -> tuple[str, str]:
    return one.experiment.model.norm_dtype, one.experiment.model.norm_cast


def over_layers(one: Measured, other: Measured) -> tuple[list[int], np.ndarray]:
    """Return layers, and the largest relative difference of the RMS at the norms' outputs of each; NaN where none is.
    """
    assert one.trace is not None and other.trace is not None
    found = gap(one.trace, other.trace, "rms")
    outputs = {place for place in ((one.site, one.layer) for one in promise.findings(
        other.trace, other.experiment))}
    rows = [[found.values[found.sites.index(site), found.layers.index(layer)]
             for site in found.sites if (site, layer) in outputs] for layer in found.layers]
    layers = [layer for layer, row in zip(found.layers, rows, strict=True) if row]
    values = [max(row, key=lambda value: (np.isnan(value), value)) for row in rows if row]
    return layers, np.array(values, np.float64)


def _apart(measured: Sequence[Measured], t: Words) -> Picture:
    """Return the differences over depth, a line a pair."""
    looks, found = depth.looks(measured), dict[str, Series | None]()
    for said, (one, other) in pairs(measured, t).items():
        layers, values = over_layers(one, other)
        look = replace(looks[one.name], dash=DASHES[_computed(one)[0]])
        found[said] = Series(said, np.array(layers, np.int64), values, look, key=one.variant.key)
    series = [line for line in found.values() if line is not None]
    title = t("precision.apart_title")
    scale = depth.fitting([one.values for one in series], "log", "zero_frac")  # 0 is no fault
    frame = charts.Frame(title, "rms", t("precision.relative"), scale, x_title=t("drift.depth"))
    rows = depth.legend_rows([one.name for one in series])
    drawn = any(one.values.size for one in series)
    return Picture("apart", charts.profile(series, frame, t) if drawn else None, title,
                   Subject(("rms",), extra=("format_gap",)), partial(depth.table, found, t),
                   depth.SMALL_PX + depth.LEGEND_PX * rows, () if drawn else (t("precision.no_pair"),))


def _promises(measured: Sequence[Measured], t: Words) -> Picture:
    """Return a cell a layer: the state of the norm in it that is worst off; variants over layers."""
    found = {one.name: promise.findings(one.trace, one.experiment) for one in measured if one.trace is not None}
    layers = sorted({norm.layer for norms in found.values() for norm in norms})
    last = max((one.experiment.model.n_layers for one in measured), default=0)
    cells = [[[norm for norm in norms if norm.layer == layer] for layer in layers] for norms in found.values()]
    names = [[_worst(cell) for cell in row] for row in cells]
    says = [["<br>".join(_says(norm, t) for norm in cell) for cell in row] for row in cells]
    title = t("precision.promises_title")
    frame = charts.Frame(title, "rms", "", "linear", x_title=t("drift.depth"))
    table = charts.Norms([overview.column(layer, last, t) for layer in layers], list(found), names, says)
    sites = tuple(dict.fromkeys(norm.site for norms in found.values() for norm in norms))
    return Picture("promises", charts.promises(table, frame, t) if layers else None, title,
                   Subject(("rms", "zero_frac"), sites, extra=("norm_promise",)), partial(_table, found, t),
                   AROUND_PX + ROW_PX * len(found), () if layers else (t("precision.no_norm"),))


WORST = ("zero", "part", "off", "not_finite", "kept", "unjudged")
"""States of a norm, the one that is shown of several first."""


def _worst(norms: Sequence[Finding]) -> str:
    return min((norm.state for norm in norms), key=WORST.index, default="")


def _says(found: Finding, t: Words) -> str:
    return t("precision.promise_said", state=t(f"promise.{found.state}"),
             place=explain.named(found.site, found.layer, t), rms=number(found.rms),
             promised=number(found.promised), read=t(f"site.{found.read}"), read_rms=number(found.read_rms),
             zeros=number(100 * found.zeros))


def _table(found: Mapping[str, Sequence[Finding]], t: Words) -> Columns:
    rows = [(name, one) for name, norms in found.items() for one in norms]
    return {t("drift.variant"): [name for name, _ in rows], t("chart.layer"): [one.layer for _, one in rows],
            t("drift.site"): [one.site for _, one in rows], t("overview.state"): [
                t(f"promise.{one.state}") for _, one in rows],
            "rms": [one.rms for _, one in rows], "promised": [one.promised for _, one in rows],
            "zero_frac": [one.zeros for _, one in rows], "read": [READS[one.site] for _, one in rows],
            "read_rms": [one.read_rms for _, one in rows]}
