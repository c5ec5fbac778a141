"""How far evaluation is from training while a training goes on: over depth, over steps, in the loss and its causes.

It knows what a look found at the recorded steps; it draws no judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from core.batch_verdicts import over_steps
from core.trace import F64
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.picture import Picture, Subject
from pages.ui.shown import layers_of
from pages.ui.text import Words
from pages.ui.views import courses, depth, zero
from pages.ui.views.depth import LEGEND_PX, Shown, legend_rows

SMALL_PX, LARGE_PX = 380, 430
START_DASH = "4px,4px"

RUNNING = ("mean_error", "variance_ratio")
"""What is said of the running statistics, as `core.evaluation.Gap` names it."""

MODES = (("train", "solid"), ("eval", "12px,6px"), ("both", "solid"))
"""Modes of a loss, and how its line is drawn; the last where the two are the same at every step."""


def gap(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The gap over depth at both ends and over steps, the losses, and the running statistics over steps."""
    return [_over_depth(measured, t), _over_steps(measured, "gap", shown, t), _losses(measured, t),
            *(_over_steps(measured, name, shown, t) for name in RUNNING)]


def _over_depth(measured: Sequence[Measured], t: Words) -> Picture:
    """Draw the gap over depth at the first and the last recorded step, the first dotted."""
    styles, lines = depth.looks(measured), {}
    for one in measured:
        assert one.trace is not None
        gaps, steps = over_steps(one.trace, "gap"), one.trace.steps
        for place in (-1,) if none(gaps) else (0, -1)[:len(steps)]:
            name = t("batchnorm.at_step", variant=one.name, step=steps[place]) if not none(gaps) else t(
                "batchnorm.every_step", variant=one.name)
            style = styles[one.name] if place else replace(styles[one.name], dash=START_DASH)
            lines[name] = charts.Series(name, np.arange(gaps.shape[1]), gaps[place], style, "resid_post",
                                        f"{one.variant.key}{place}")
    title = t("batchnorm.gap_depth_title")
    frame = charts.Frame(title=title, statistic=t("batchnorm.gap_short"), y_title=t("batchnorm.gap_axis"),
                         x_title=t("drift.depth"))
    drawn = list(lines.values())
    return Picture("gap_depth", zero.drawn(partial(charts.profile, drawn), [line.values for line in drawn], frame, t),
                   title, Subject(extra=("gap",)), partial(depth.table, lines, t),
                   LARGE_PX + LEGEND_PX * (legend_rows([line.name for line in drawn]) - 1))


def none(gaps: F64) -> bool:
    """Return whether there is no gap at all: one line then says it of every step and layer."""
    return not (gaps != 0).any()


def _over_steps(measured: Sequence[Measured], name: str, shown: Shown, t: Words) -> Picture:
    """Draw a number of the chosen layers over the recorded steps."""
    styles, found, remarks = depth.looks(measured), [], {}
    for one in measured:
        assert one.trace is not None
        values = over_steps(one.trace, name)
        remarks[one.name] = t("batchnorm.no_batchnorm") if np.isnan(values).all() else ""
        layers = {"": 0} if none(values) else {str(layer): layer for layer in layers_of(shown["at"], values.shape[1])}
        found += [charts.Course(one.name, np.array(one.trace.steps), values[:, layer], styles[one.name], called,
                                key=one.variant.key) for called, layer in layers.items() if not remarks[one.name]]
    title = t(f"batchnorm.{name}_steps_title")
    frame = charts.Frame(title=title, statistic=t(f"batchnorm.{name}_short"), y_title=t(f"batchnorm.{name}_axis"),
                         y_scale="linear", x_title=t("chart.step"))
    draw = partial(charts.steps, found)
    if name == "gap":
        draw = partial(zero.drawn, draw, [one.values for one in found])
    figure = draw(frame, t) if found else None
    said = depth.said_once(remarks, t) if name != RUNNING[-1] or figure is None else ()  # said at the picture above
    return Picture(f"{name}_steps", figure, title, Subject(extra=(name,)), partial(courses.table, found, t), SMALL_PX,
                   said)


def _losses(measured: Sequence[Measured], t: Words) -> Picture:
    """Draw the loss both ways, evaluation dashed; where the two are the same, one line."""
    styles, found = depth.looks(measured), []
    for one in measured:
        assert one.trace is not None
        both = over_steps(one.trace, "loss")
        alike = np.array_equal(both[:, 0], both[:, 1])
        for column, (mode, dash) in enumerate(MODES[-1:] if alike else MODES[:-1]):
            name = t(f"batchnorm.loss_{mode}", variant=one.name)
            found.append(charts.Course(name, np.array(one.trace.steps), both[:, column],
                                       replace(styles[one.name], dash=dash), key=f"{one.variant.key}{mode}"))
    title = t("batchnorm.loss_title")
    frame = charts.Frame(title=title, statistic="loss", y_title=t("extra.loss"), x_title=t("chart.step"),
                         y_scale=courses.loss_scale(found), unit=t("axis.nats"))
    rows = legend_rows([one.name for one in found])
    return Picture("gap_loss", charts.steps(found, frame, t), title, Subject(extra=("loss",)),
                   partial(courses.table, found, t), SMALL_PX + LEGEND_PX * (rows - 1))
