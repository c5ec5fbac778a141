"""Numbers over the steps of a training: the loss, chosen layers, the whole model's gradient and rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from core.stops import NON_FINITE, OVERFLOW
from core.trace import F64
from core.vocabulary import HEAD_MEASURES, STATISTICS
from pages.ui import charts
from pages.ui.picture import Picture, Subject
from pages.ui.shown import layers_of
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.courses import loss_scale, table
from pages.ui.views.depth import Number
from pages.ui.watching import Matrix, Watched, of_heads, of_site

SMALL_PX, LARGE_PX = 340, 470

MOST_POINTS = 2000
"""So many points of a loss curve are drawn: every so-many-th, the newest, and those that are not finite."""


def loss(watched: Sequence[Watched], t: Words, height: int = SMALL_PX) -> Picture:
    """Return the loss over all recorded steps, a line a variant."""
    styles, found = depth.looks(watched), []
    for one in watched:
        kept = _kept(one.film.losses)
        found.append(charts.Course(one.name, one.film.steps[kept], one.film.losses[kept], styles[one.name],
                                   key=one.variant.key, events=_events(one)))
    title = t("live.loss_title")
    frame = charts.Frame(title=title, statistic="loss", y_title=t("extra.loss"), y_scale=loss_scale(found),
                         x_title=t("chart.step"), unit=t("axis.nats") if _predict(watched) else "")
    return Picture("loss", charts.steps(found, frame, t, cursor=True), title, Subject(extra=("loss",)),
                   partial(table, found, t), height)


MOST_EVENTS = 500


def _kept(losses: F64) -> list[int]:
    """Return which points of a curve are drawn."""
    every = max(1, -(-len(losses) // MOST_POINTS))
    lost = np.flatnonzero(~np.isfinite(losses))[:MOST_POINTS // 10].tolist()
    return sorted({*range(0, len(losses), every), *lost, *range(len(losses))[-1:]})


def _predict(watched: Sequence[Watched]) -> bool:
    return all(one.experiment.resolved().protocol.loss == "next_token" for one in watched)


def _events(one: Watched) -> tuple[charts.Event, ...]:
    """Return the overflows, and the first value that is not finite: the rest follows from it."""
    overflows = [step for step, name in one.film.events if name == OVERFLOW][-MOST_EVENTS:]
    broken = [step for step, name in one.film.events if name == NON_FINITE][:1]
    return tuple(charts.Event(step, name) for name, found in ((OVERFLOW, overflows), (NON_FINITE, broken))
                 for step in found)


def layers(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> list[Picture]:
    """One statistic at one site over steps, a line for each chosen layer of each variant; the loss below it."""
    number = Number(shown["stat"], shown["site"], shown["of"] == "gradient")
    found = [course for one in watched if one.trace and not depth.why_absent(one, number)
             for course in _layers(one, number, shown["at"], watched)]
    title = depth.titled(number, depth.at(number.site, t), t)
    statistic = t(f"statistic.{number.statistic}")
    frame = charts.Frame(
        title=title, statistic=number.name, y_title=statistic, x_title=t("chart.step"),
        y_scale=depth.fitting([one.values for one in found], shown["scale"], number.statistic),
        unit=depth.unit_said(STATISTICS[number.statistic].unit, t))
    remarks = depth.missing(watched, number, t)
    figure = charts.steps(found, frame, t, cursor=True) if found or not remarks else None
    subject = Subject((number.statistic,), (number.site,), number.gradient)
    return [Picture("layers", figure, title, subject, partial(table, found, t), LARGE_PX, remarks), loss(watched, t)]


def _layers(one: Watched, number: Number, at: str, watched: Sequence[Watched]) -> list[charts.Course]:
    assert one.trace is not None
    chosen = layers_of(at, one.experiment.model.n_layers)
    found = of_site(one.trace, depth.sites_of(number), number.statistic, number.gradient)
    return courses(one, found.only(chosen), watched, number.site)


def courses(one: Watched, found: Matrix, watched: Sequence[Watched], site: str = "") -> list[charts.Course]:
    """Return a line for each row of a variant's matrix, through the steps at which it was observed."""
    style = depth.looks(watched)[one.name]
    return [charts.Course(one.name, found.steps[seen], found.values[seen, row], style, name, site, one.variant.key,
                          found.non_finite[seen, row], _events(one))
            for row, (name, seen) in enumerate(zip(found.names, found.observed.T, strict=True)) if seen.any()]


def heads(watched: Sequence[Watched], one: Watched, shown: Mapping[str, str], t: Words) -> Picture:
    """Return a measure of each head of the chosen layers of one variant over steps, a line a head."""
    measure = shown["measure"]
    chosen = layers_of(shown["at"], one.experiment.model.n_layers)
    found = courses(one, of_heads(one.trace, measure).only(chosen), watched)[:MOST_HEADS] if one.trace else []
    title = t("live.heads_title", measure=t(f"head.{measure}"), variant=one.name)
    frame = charts.Frame(title=title, statistic=measure, y_title=t(f"head.{measure}"), y_scale="linear",
                         x_title=t("chart.step"), unit=depth.unit_said(HEAD_MEASURES[measure].unit, t))
    return Picture("heads", charts.steps(found, frame, t, cursor=True), title, Subject(extra=(measure,)),
                   partial(table, found, t), LARGE_PX, variant=one.name)


MOST_HEADS = 24
"""So many lines of heads are drawn at most."""


def totals(watched: Sequence[Watched], name: str, t: Words, scale: str = "log") -> Picture:
    """Return a number of the whole model over steps, a line a variant."""
    styles, found = depth.looks(watched), []
    for one in watched:
        if one.trace is not None:
            values = one.trace.total(name)
            seen = ~np.isnan(values) | (name == "grad_total_norm")
            found.append(charts.Course(one.name, np.array(one.trace.steps)[seen], values[seen], styles[one.name],
                                       key=one.variant.key, events=_events(one)))
    title = t(f"extra.{name}")
    frame = charts.Frame(title=title, statistic=name, y_title=title, y_scale=scale, x_title=t("chart.step"))
    return Picture(name, charts.steps(found, frame, t, cursor=True), title, Subject(extra=(name,)),
                   partial(table, found, t), SMALL_PX)
