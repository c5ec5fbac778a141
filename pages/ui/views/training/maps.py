"""Depth over training: maps of layers, or of heads of layers, over steps, and the profile that a replay moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from core.trace import Trace
from core.vocabulary import EMBED, STATISTICS
from pages.ui import charts
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.depth import Number
from pages.ui.views.tokens import chosen
from pages.ui.views.training import curves
from pages.ui.watching import Matrix, Watched, of_heads, of_parameter, of_site

PROFILE_PX = 400
ROW_PX, LEAST_PX, AROUND_PX, MOST_PX = 9, 190, 150, 620
"""Height of a row of a map, of a facet at least, of what stands around it, and of the whole at most."""


def overview(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> list[Picture]:
    """The loss; one statistic at one site over depth and steps, a map a variant; and the same at one step."""
    number = Number(shown["stat"], shown["site"], shown["of"] == "gradient")
    take = partial(of_site, sites=depth.sites_of(number), statistic=number.statistic, gradient=number.gradient)
    found = _found([one for one in watched if not depth.why_absent(one, number)], take)
    profile = [_profile(watched, found, number, shown["scale"], t)] if found else []
    return [curves.loss(watched, t), _site_map(watched, found, number, shown["scale"], t), *profile]


def updates(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> list[Picture]:
    """The whole gradient and the rate over steps, and one statistic of one parameter of every layer as maps."""
    statistic, role = shown["weight"], shown["role"]
    title = t("live.weights_title", statistic=t(f"weight.{statistic}"), role=role)
    found = _found(watched, partial(of_parameter, role=role, statistic=statistic))
    made = _map(watched, found, _Asked("weights", title, statistic, "log", Subject(extra=(statistic,))), t)
    return [curves.totals(watched, "grad_total_norm", t), curves.totals(watched, "lr", t, "linear"), made]


def entropy(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> list[Picture]:
    """One attention measure of every head of every layer over steps, a map a variant; and the heads of some layers."""
    measure = shown["measure"]
    title = t("live.measure_title", measure=t(f"head.{measure}"))
    scale = "log" if measure in depth.UNBOUNDED else "linear"
    found = _found(watched, partial(of_heads, measure=measure))
    if found and not any(matrix.rows for matrix in found.values()):
        missing = depth.said_once({name: t("entropy.no_head", variant=name) for name in found}, t)
        return [Picture("measure", None, title, Subject(extra=(measure,)), dict, remarks=missing)]
    if found and not any(matrix.observed.any() or not matrix.rows for matrix in found.values()):
        return [Picture("measure", None, title, Subject(extra=(measure,)), dict, remarks=(t("drift.not_full"),))]
    made = _map(watched, found, _Asked("measure", title, measure, scale, Subject(extra=(measure,))), t)
    return [made, curves.heads(watched, chosen(watched, shown), shown, t)]


def _found(watched: Sequence[Watched], take: Callable[[Trace], Matrix]) -> dict[str, Matrix]:
    """Return the matrix of each variant that has a trace, by its name."""
    return {one.name: take(one.trace) for one in watched if one.trace is not None}


def _site_map(watched: Sequence[Watched], found: Mapping[str, Matrix], number: Number, scale: str, t: Words) -> Picture:
    title = depth.titled(number, depth.at(number.site, t), t)
    subject = Subject((number.statistic,), (number.site,), number.gradient)
    remarks = depth.missing(watched, number, t)
    return _map(watched, found, _Asked("map", title, number.name, scale, subject, remarks), t)


@dataclass(frozen=True)
class _Asked:
    """What a map is of. `statistic`: its name in tables; `scale`: the wanted one."""

    key: str
    title: str
    statistic: str
    scale: str
    subject: Subject
    remarks: tuple[str, ...] = ()


def _map(watched: Sequence[Watched], found: Mapping[str, Matrix], asked: _Asked, t: Words) -> Picture:
    scale, subject = asked.scale, asked.subject
    keys = {one.name: one.variant.key for one in watched}
    strips = [charts.Strip(name, matrix.steps, _rows(matrix, t), matrix.values, matrix.observed, matrix.non_finite,
                           key=keys[name]) for name, matrix in found.items()]
    values = [matrix.values[matrix.observed] for matrix in found.values()]
    known = subject.statistics[0] if subject.statistics else ""
    frame = charts.Frame(title=asked.title, statistic=asked.statistic, y_title=t("chart.layer"),
                         x_title=t("chart.step"),
                         y_scale=depth.fitting(values, scale, known) if known else depth.positive(values, scale))
    rows = max((len(matrix.rows) for matrix in found.values()), default=0)
    high = 2 if len(found) > 3 else 1
    height = min(AROUND_PX + high * max(LEAST_PX, ROW_PX * rows), MOST_PX)
    return Picture(asked.key, charts.strips(strips, frame, t, cursor=True) if found else None, asked.title, subject,
                   partial(_table, found, asked.statistic, t), height, asked.remarks)


def _rows(matrix: Matrix, t: Words) -> list[str]:
    return [t("chart.embed_short") if layer == EMBED else name
            for name, (layer, _) in zip(matrix.names, matrix.rows, strict=True)]


def _profile(watched: Sequence[Watched], found: Mapping[str, Matrix], number: Number, scale: str, t: Words) -> Picture:
    """Return the lines over depth at the newest step, with those of every other step for the replay."""
    styles = depth.looks(watched)
    steps = sorted({step for matrix in found.values() for step in matrix.steps.tolist()})
    series, values, counts = [], [], []
    for one in [one for one in watched if one.name in found]:
        matrix = found[one.name]
        at = np.searchsorted(matrix.steps, steps, side="right") - 1  # the step itself, else the one before
        layers = np.array([layer for layer, _ in matrix.rows], np.int64)
        series.append(charts.Series(one.name, layers, matrix.values[-1], styles[one.name], number.site,
                                    one.variant.key, matrix.non_finite[-1]))
        values.append(matrix.values[at])
        counts.append(matrix.non_finite[at])
    title = t("live.profile_title", what=depth.titled(number, depth.at(number.site, t), t))
    frame = charts.Frame(
        title=title, statistic=number.name, y_title=t(f"statistic.{number.statistic}"), x_title=t("drift.depth"),
        y_scale=depth.fitting([one.ravel() for one in values], scale, number.statistic),
        unit=depth.unit_said(STATISTICS[number.statistic].unit, t))
    figure = charts.profile(series, frame, t, charts.Film(steps, values, counts))
    lines: dict[str, charts.Series | None] = {one.name: one for one in series}
    return Picture("profile", figure, title, Subject((number.statistic,), (number.site,), number.gradient),
                   partial(depth.table, lines, t), PROFILE_PX)


def _table(found: Mapping[str, Matrix], statistic: str, t: Words) -> Columns:
    """Return a row a variant, step and row of a map."""
    cells = [(name, int(step), row, float(matrix.values[place, index]) if matrix.observed[place, index] else None)
             for name, matrix in found.items() for place, step in enumerate(matrix.steps)
             for index, row in enumerate(matrix.names)]
    names, steps, rows, values = (list(column) for column in zip(*cells, strict=True)) if cells else ([], [], [], [])
    return {t("drift.variant"): names, t("chart.step"): steps, t("chart.layer"): rows, statistic: values}
