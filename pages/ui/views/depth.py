"""Lines over depth: one statistic at one site, stream beside branch input, forward beside backward, the cosines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core.branch_input import INPUTS, BranchInput, branch_input
from core.trace import F64, Trace
from core.vocabulary import FLOAT16_MAX, STATISTICS, STREAM, STREAMS
from pages.ui import charts, theme
from pages.ui.cache import Measured
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words, escaped

Shown = Mapping[str, str]

OF_SCALE = frozenset({"rms", "absmax", "max", "token_rms_p05", "token_rms_p50", "token_rms_p95"})
"""Statistics that are compared with the largest float16."""

SIZES = OF_SCALE - {"max"} | {"std", "norm", "kurtosis", "branch_ratio"}
"""Statistics that are 0 only where something is wrong."""

UNBOUNDED = frozenset({"score_std", "score_absmax", "q_rms", "k_rms"})
"""Measures of heads that may grow without bound."""

SMALL_PX, LARGE_PX = 390, 520
LEGEND_PX, LETTER_PX, SAMPLE_PX, LEGEND_WIDTH_PX = 34, 9, 66, 700
"""Height of a row of the legend, widths of a letter and of a line's sample in it, and of a row."""


@dataclass(frozen=True)
class Number:
    """One number over depth: a statistic at a site, forward or of gradients."""

    statistic: str
    site: str
    gradient: bool = False

    @property
    def name(self) -> str:
        """The statistic's name as tables and exports have it."""
        return ("grad_" if self.gradient else "") + self.statistic


def profile(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """One statistic at one site over depth, all variants in one chart."""
    number = Number(shown["stat"], shown["site"], shown["of"] == "gradient")
    return [lines(measured, number, shown["scale"], t, "profile", LARGE_PX)]


def twins(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The same statistic at the same site, of the activation and of its gradient, one above the other."""
    return [lines(measured, Number(shown["stat"], shown["site"], gradient), shown["scale"], t, key, SMALL_PX)
            for key, gradient in (("forward", False), ("gradient", True))]


def streams(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The residual stream, and what the branches read: two answers, both true, one above the other."""
    number = Number(shown["stat"], stream_of(measured), shown["of"] == "gradient")
    stream = lines(measured, number, shown["scale"], t, "stream", SMALL_PX)
    return [stream, *(inputs(measured, sublayer, number, shown["scale"], t) for sublayer in INPUTS)]


def inputs(measured: Sequence[Measured], sublayer: str, number: Number, scale: str, t: Words) -> Picture:
    """Return the chart of what feeds one sublayer, a line a variant that has it."""
    fed = {one.name: branch_input(one.trace, sublayer, number.statistic, number.gradient)
           for one in measured if one.trace is not None}
    found = dressed({one.name: _input_series(one, fed[one.name], number) for one in measured if one.name in fed},
                    measured)
    sites = tuple(dict.fromkeys(site for one in fed.values() for site in one.sites))
    title = titled(number, t(f"streams.{sublayer}", sites=t("allowed.and").join(sites)), t)
    remarks = said_once({one.name: _no_input(one, fed[one.name], number, t) for one in measured if one.name in fed}, t)
    return _picture(found, replace(number, site=sites[0] if sites else ""), scale, t,
                    Place(f"input.{sublayer}", title, sites, SMALL_PX, remarks))


def _input_series(one: Measured, fed: BranchInput, number: Number) -> charts.Series | None:
    """Return the line of what feeds a sublayer; None where no layer has it or nothing was observed."""
    taken = {site for site in fed.sites if not why_absent(one, replace(number, site=site))}
    seen = fed.observed & np.array([site in taken for site in fed.sites], bool)
    if one.trace is None or not seen.any():
        return None
    counts = left_out(fed.non_finite, number.statistic)
    return charts.Series(one.name, np.array(fed.layers)[seen], fed.values[seen], theme.NEUTRAL,
                         " / ".join(dict.fromkeys(fed.sites)), one.variant.key, counts[seen])


def _no_input(one: Measured, fed: BranchInput, number: Number, t: Words) -> str:
    """Say why a sublayer's input has no such number in any layer; nothing where it has one."""
    reasons = {site: why_absent(one, replace(number, site=site)) for site in dict.fromkeys(fed.sites)}
    if not all(reasons.values()):
        return ""
    return next((t(reason, site=site) for site, reason in reasons.items()), t("streams.none"))


def cosines(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """How alike the tokens are, how far a block turns the stream, how much its branches write into it."""
    stream = stream_of(measured)
    numbers = (Number("token_cosine", stream), Number("layer_cosine", stream),
               Number("branch_ratio", "attn_out"), Number("branch_ratio", "mlp_out"))
    return [lines(measured, one, "log" if one.statistic == "branch_ratio" else "linear", t,
                  f"{one.statistic}.{one.site}", SMALL_PX) for one in numbers]


def stream_of(measured: Sequence[Measured]) -> str:
    """Return the site of the stream: that which all of these have in its place, where it is the same."""
    found = {one.trace.layout.answering(STREAM) for one in measured if one.trace is not None}
    return found.pop() if len(found) == 1 else STREAM


def lines(measured: Sequence[Measured], number: Number, scale: str, t: Words, key: str, height: int) -> Picture:
    """Return the chart of one number over depth, a line a variant that has it."""
    found = dressed({one.name: series_of(one, number) for one in measured}, measured)
    title = titled(number, at(number.site, t), t)
    return _picture(found, number, scale, t, Place(key, title, (number.site,), height, missing(measured, number, t)))


def titled(number: Number, where: str, t: Words, what: str = "") -> str:
    """Return a chart's title: of the gradient or not, what (by default which statistic), where."""
    gradient = [t("drift.of_gradient")] if number.gradient else []
    return " · ".join([*gradient, what or t(f"statistic.{number.statistic}"), where])


def at(site: str, t: Words) -> str:
    """Name a site in words and by its code."""
    return f"{t('site.' + site)} ({site})"


@dataclass(frozen=True)
class Place:
    """Where a chart of lines stands: its key, its title, the sites it is about, its height, what is missing in it."""

    key: str
    title: str
    sites: tuple[str, ...]
    height: int
    remarks: tuple[str, ...]


def _picture(found: Mapping[str, charts.Series | None], number: Number, scale: str, t: Words, place: Place) -> Picture:
    """Return lines as a picture; what all variants lack has no figure."""
    series = [line for line in found.values() if line is not None]
    statistic, unit = t(f"statistic.{number.statistic}"), STATISTICS[number.statistic].unit
    float16 = number.statistic in OF_SCALE and not number.gradient
    frame = charts.Frame(
        title=place.title, statistic=number.name, y_title=statistic, x_title=t("drift.depth"),
        y_scale=fitting([one.values for one in series], scale, number.statistic),
        unit=unit_said(unit, t),
        references={t("drift.float16_max"): FLOAT16_MAX} if float16 else {})
    figure = charts.profile(series, frame, t) if series or not place.remarks else None
    subject = Subject((number.statistic,), place.sites, number.gradient)
    height = place.height + LEGEND_PX * (legend_rows([one.name for one in series]) - 1)
    return Picture(place.key, figure, place.title, subject, partial(table, found, t), height, place.remarks)


def unit_said(unit: str, t: Words) -> str:
    """Say the unit of a statistic; nothing where it has that of the tensor."""
    return t(f"axis.{unit}") if unit else ""


def legend_rows(names: Sequence[str]) -> int:
    """Return about how many rows a legend of these names takes beside a sidebar at 1280 pixels."""
    return max(1, -(-sum(LETTER_PX * len(name) + SAMPLE_PX for name in names) // LEGEND_WIDTH_PX))


def fitting(values: Sequence[NDArray[np.floating]], wanted: str, statistic: str) -> str:
    """Return the wanted scale, but another one where a logarithmic axis would leave out what is no fault.

    A count of 0 is good news, and a mean has a sign: symlog, or linear where nothing is above 0. A size of 0 is a fault
    and stays marked beside the others.
    """
    together = np.concatenate([*values, np.empty(0)])
    finite = together[np.isfinite(together)]
    if wanted != "log" or (finite > 0).all():
        return wanted
    if not (finite > 0).any() or STATISTICS[statistic].unit == "cosine":
        return "linear"
    return wanted if statistic in SIZES else "symlog"


def positive(values: Sequence[NDArray[np.floating]], wanted: str) -> str:
    """Return the wanted scale of sizes, linear where a logarithmic one would have nothing to show."""
    together = np.concatenate([*values, np.empty(0)])
    shown = bool((together[np.isfinite(together)] > 0).any())
    return wanted if shown or wanted != "log" else "linear"


def table(series: Mapping[str, charts.Series | None], t: Words) -> Columns:
    """Return the numbers of lines as a table: a row a layer, a column a variant."""
    known = {name: {} if one is None else dict(zip(one.layers.tolist(), one.values.tolist(), strict=True))
             for name, one in series.items()}
    layers = sorted({layer for column in known.values() for layer in column})
    return {t("chart.layer"): layers} | {name: [column.get(layer) for layer in layers]
                                         for name, column in known.items()}


def missing(measured: Sequence[Measured], number: Number, t: Words) -> tuple[str, ...]:
    """Say which variants have no line and why, and whose is of another site; once for all where it is the same reason.
    """
    reasons = {one.name: why_absent(one, number) or _of_another(one, number) for one in measured}
    return said_once({name: t(reason, site=number.site) if reason else "" for name, reason in reasons.items()}, t)


def _of_another(one: Measured, number: Number) -> str:
    """Return the text key that says that another site answers for the one that was asked for; empty where none does."""
    answers = one.trace is None or one.trace.layout.answering(number.site) == number.site
    return "" if answers else "drift.own_stream"


def said_once(reasons: Mapping[str, str], t: Words) -> tuple[str, ...]:
    """Return what is missing by variant (empty: nothing) as one remark; without names where all lack it alike."""
    wanting = {name: reason for name, reason in reasons.items() if reason}
    if wanting and len(wanting) == len(reasons) and len(set(wanting.values())) == 1:
        return (next(iter(wanting.values())),)
    said = "  \n".join(f"{escaped(name)}{t('drift.colon')}{reason}" for name, reason in wanting.items())
    return (said,) if said else ()


def why_absent(one: Measured, number: Number) -> str:
    """Return the text key that says why a variant has no such number; empty when it has one."""
    if one.trace is None:
        return ""
    statistic = STATISTICS[number.statistic]
    passes, site = statistic.gradient if number.gradient else statistic.forward, one.trace.layout.answering(number.site)
    if not passes or (statistic.sites is not None and site not in statistic.sites):
        return "drift.not_taken"
    layers, counted = one.trace.profile(number.site, "n", number.gradient)
    if not layers:
        return "drift.absent"
    if np.isnan(counted).all():
        return "drift.no_gradient" if number.gradient else "drift.not_observed"
    return "" if number.statistic in one.trace.snapshots[-1].measured(number.gradient) else unrecorded(number.statistic)


def unrecorded(statistic: str) -> str:
    """Return the text key that says why a statistic was not recorded where it could be."""
    return "drift.no_stream" if statistic == "branch_ratio" else "drift.not_full"


def left_out(not_finite: F64, statistic: str) -> F64:
    """Return how many of the entries that are not finite a statistic leaves out: all, but a count is of them too."""
    return not_finite * (STATISTICS[statistic].unit != "count")


def series_of(one: Measured, number: Number) -> charts.Series | None:
    """Return a variant's line, or None where it has no trace or no such number."""
    if one.trace is None or why_absent(one, number):
        return None
    layers, values, counts, seen = (np.concatenate(parts) for parts in zip(*(
        _at(one.trace, site, number) for site in sites_of(number)), strict=True))
    site = one.trace.layout.answering(number.site)
    return charts.Series(name=one.name, layers=layers[seen], values=values[seen], site=site,
                         key=one.variant.key, non_finite=counts[seen])


def sites_of(number: Number) -> tuple[str, ...]:
    """Return the sites that a line over depth is drawn through: the stream begins with the embedding, where it can."""
    taken = STATISTICS[number.statistic].sites
    begins = number.site in STREAMS and (taken is None or "embed" in taken)
    return ("embed", number.site) if begins else (number.site,)


def _at(trace: Trace, site: str, number: Number) -> tuple[NDArray[np.generic], ...]:
    """Return layers, values, entries that are not finite, and which were observed, of one site."""
    layers, values = trace.profile(site, number.statistic, number.gradient)
    observed = ~np.isnan(trace.profile(site, "n", number.gradient)[1])
    not_finite = trace.snapshots[-1].not_finite(number.gradient)[trace.layout.rows(site)[1]]
    counts = left_out(not_finite, number.statistic)
    return np.asarray(layers, np.int64), values, counts, observed | (site == "embed")


def looks(measured: Sequence[Measured]) -> dict[str, theme.Style]:
    """Return how each variant, by its name, looks in every chart of these variants."""
    models = [one.experiment.model for one in measured]
    found = theme.distinct([theme.style(model.norm, model.placement, model.init) for model in models])
    return dict(zip([one.name for one in measured], found, strict=True))


def dressed(series: Mapping[str, charts.Series | None],
            measured: Sequence[Measured]) -> dict[str, charts.Series | None]:
    """Return the lines, by the variant's name, in the looks of these variants."""
    styles = looks(measured)
    return {name: None if one is None else replace(one, style=styles[name]) for name, one in series.items()}
