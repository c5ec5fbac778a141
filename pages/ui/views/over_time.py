"""The view over time: what gates and states of recurrent layers, or their gradients, do from time step to time step.

It knows which variants are recurrent, to say why the others have no line; the engine took the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from core.rules import is_recurrent
from core.vocabulary import TIME_KEPT
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.charts import Course
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views import courses, depth
from pages.ui.views.depth import Number, Shown
from pages.ui.views.tokens import focus, layer_of

MOST_LAYERS = 12
"""So many layers are drawn at most: of more, as many that lie evenly between the first and the last."""

CHART_PX = 470


def over_time(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """One statistic of one site over time steps: of one layer, a line a variant; and of one variant, a line a layer."""
    number = Number(shown["moment"], shown["gate"], shown["of"] == "gradient")
    return [_variants(measured, number, shown, t), _layers(measured, number, shown, t)]


def backward(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The same of gradients."""
    return over_time(measured, {**shown, "of": "gradient"}, t)


def layer_at(one: Measured, shown: Shown) -> int:
    """Return the layer that is looked at: the last one for a layer that this stack lacks."""
    return layer_of({"layer": shown["depth"]}, one.experiment.model.n_layers)


def _variants(measured: Sequence[Measured], number: Number, shown: Shown, t: Words) -> Picture:
    found = [course for one in measured if not _why_absent(one, number)
             and (course := _course(one, layer_at(one, shown), number, measured))]
    layers = sorted({layer_at(one, shown) for one in measured})
    where = t("time.at", layer=t("allowed.and").join(map(str, layers)), where=depth.at(number.site, t))
    reasons = {one.name: t(reason, site=number.site) if (reason := _why_absent(one, number)) else ""
               for one in measured}
    titled = _Titled("time.variants", depth.titled(number, where, t))
    remarks = (*depth.said_once(reasons, t), *_thinned(measured, t))
    return replace(_picture(measured, found, number, shown["scale"], titled, t), remarks=remarks)


def _layers(measured: Sequence[Measured], number: Number, shown: Shown, t: Words) -> Picture:
    one, _ = focus(measured, shown)
    depths = np.unique(np.linspace(0, one.experiment.model.n_layers - 1, MOST_LAYERS).round().astype(int)).tolist()
    reason = _why_absent(one, number)
    found = [] if reason else [course for layer in depths
                               if (course := _course(one, layer, number, measured, str(layer)))]
    title = depth.titled(number, t("time.layers", variant=one.name, where=depth.at(number.site, t)), t)
    few = one.experiment.model.n_layers > len(depths) and not reason
    remarks = (t(reason, site=number.site),) if reason else (t("time.some_layers", count=len(depths)),) if few else ()
    titled = _Titled("time.layers", title, one.name)
    return replace(_picture([one], found, number, shown["scale"], titled, t), remarks=remarks)


@dataclass(frozen=True)
class _Titled:
    """The key and the title of a chart, and the name of the only variant it is about, empty for all."""

    key: str
    title: str
    variant: str = ""


def _picture(measured: Sequence[Measured], found: Sequence[Course], number: Number, scale: str, titled: _Titled,
             t: Words) -> Picture:
    frame = charts.Frame(title=titled.title, statistic=number.name, y_title=t(f"statistic.{number.statistic}"),
                         x_title=t("time.step"),
                         y_scale=depth.fitting([one.values for one in found], scale, number.statistic))
    counts = {entries(one) for one in measured if not _why_absent(one, number)}
    subject = Subject((number.statistic,), (number.site,), number.gradient, ("over_time",), axes="B D",
                      entries=counts.pop() if len(counts) == 1 else 0)
    return Picture(titled.key, charts.steps(found, frame, t) if found else None, titled.title, subject,
                   partial(courses.table, found, t, t("time.step")), CHART_PX, variant=titled.variant)


def entries(one: Measured) -> int:
    """Return how many entries a point stands for; 0 where sequences end at different time steps."""
    source = one.experiment.input
    return 0 if source.lengths else source.batch * one.experiment.model.d_model


def _course(one: Measured, layer: int, number: Number, measured: Sequence[Measured], name: str = "") -> Course | None:
    """Return the line of one layer; None where it has no such number."""
    assert one.trace is not None
    snapshot = one.trace.snapshots[-1]
    if (layer, number.site) not in snapshot.layout.over_time:
        return None
    values = snapshot.over_steps(layer, number.site, number.statistic, number.gradient)
    return Course(one.name, snapshot.time_steps, values, depth.looks(measured)[one.name], name, number.site,
                  one.variant.key) if values.size else None


def _why_absent(one: Measured, number: Number) -> str:
    """Return the text key that says why a variant has nothing over time; empty where it has."""
    if one.trace is None:
        return ""
    snapshot = one.trace.snapshots[-1]
    if not is_recurrent(one.experiment):
        return "time.not_recurrent"
    if not one.trace.layout.rows(number.site)[0]:
        return "drift.absent"
    if not snapshot.over_time.size:
        return "time.not_full"
    return "drift.no_gradient" if number.gradient and not snapshot.gradients else ""


def _thinned(measured: Sequence[Measured], t: Words) -> tuple[str, ...]:
    """Say that a long sequence has not all of its time steps here."""
    long = any(is_recurrent(one.experiment) and one.experiment.input.seq_len > TIME_KEPT for one in measured)
    return (t("time.thinned", kept=TIME_KEPT),) if long else ()
