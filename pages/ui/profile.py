"""One statistic over depth for several variants: the chart, its numbers, the badge and the verdicts.

Pages give it variants and what to show; it asks the engine through `cache` and draws through `charts` and `component`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from core import service
from core.comparison import pairing
from core.drift import verdicts
from core.fields import ExperimentError
from core.vocabulary import STATISTICS
from pages.ui import cache, charts, component, explain, progress, theme
from pages.ui.cache import Measured
from pages.ui.link import Variant
from pages.ui.text import Words, escaped

DRAWN = "profile.drawn."
"""What was drawn last at a place, without its traces; it stays on screen while nothing newer is finished."""


def compare(variants: Sequence[Variant], shown: Mapping[str, str], t: Words) -> None:
    """Measure the variants, draw them, and say everything about them."""
    finished = figure(variants, shown, t, key="drift.profile")
    if finished:
        say(finished, shown, t)
        numbers(finished, shown, t)


def figure(variants: Sequence[Variant], shown: Mapping[str, str], t: Words, key: str,
           height: int = 520) -> list[Measured]:
    """Measure the variants and draw their profile; return those that are finished.

    What stands in the way is said in its place: the engine starts, the run is long, the request is refused.
    """
    experiments = [one.experiment for one in variants]
    try:
        if not service.ready_to_ask():
            progress.engine(t)
        elif cache.must_ask(experiments):
            progress.offer(experiments, t)
            _earlier(shown, t, key, height)
        else:
            return _drawn(cache.measure(variants), shown, t, key, height)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
    return []


def _drawn(measured: Sequence[Measured], shown: Mapping[str, str], t: Words, key: str, height: int) -> list[Measured]:
    """Draw what is finished, or once more what was drawn last while nothing is; return what is finished."""
    progress.watch(measured, t)
    finished = [one for one in measured if one.trace]
    if finished:
        st.session_state[DRAWN + key] = [replace(one, trace=None) for one in finished]
        draw(finished, shown, t, key, height)
    else:
        _earlier(shown, t, key, height)
    return finished


def _earlier(shown: Mapping[str, str], t: Words, key: str, height: int) -> None:
    """Draw once more what was drawn last at this place, and say so."""
    if earlier := cache.kept(st.session_state.get(DRAWN + key, [])):
        draw(earlier, shown, t, key, height)
        st.caption(t("drift.previous"))


def draw(measured: Sequence[Measured], shown: Mapping[str, str], t: Words, key: str, height: int) -> None:
    """Draw the profile of every variant that has one."""
    gradient = shown["of"] == "gradient"
    lines = [line for one in measured if (line := _series(one, shown, gradient)) is not None]
    _say_absent(measured, shown, gradient, t)
    looks = theme.distinct([one.style for one in lines])
    series = [replace(one, style=look) for one, look in zip(lines, looks, strict=True)]
    statistic = t(f"statistic.{shown['stat']}")
    unit = STATISTICS[shown["stat"]].unit
    site = f"{t('site.' + shown['site'])} ({shown['site']})"
    title = " · ".join([*([t("drift.of_gradient")] if gradient else []), statistic, site])
    frame = charts.Frame(
        title=title, statistic=explain.prefixed(shown), y_title=statistic, y_scale=_scale(lines, shown["scale"]),
        unit=t(f"axis.{unit}") if unit else "", x_title=t("drift.depth"),
        references={t("drift.float16_max"): charts.FLOAT16_MAX} if shown["stat"] in _OF_SCALE and not gradient else {})
    component.draw(charts.profile(series, frame, t), key, label=title, height=height)


def say(measured: Sequence[Measured], shown: Mapping[str, str], t: Words) -> None:
    """Say how the variants are paired and measured, what the number is, and what the traces tell."""
    with st.container(horizontal=True, vertical_alignment="center"):
        explain.what(shown, measured[0].trace, t)
        if len(measured) > 1:
            prints = [one.run.provenance["pairing"] for one in measured]
            explain.pairing_badge(pairing([one.experiment for one in measured], prints), t)
        st.caption(explain.protocol(measured[0].experiment, measured[0].run.provenance, t))
    st.subheader(t("drift.verdicts"))
    columns = st.columns(min(len(measured), 3))
    for index, one in enumerate(measured):
        assert one.trace is not None
        with columns[index % len(columns)].container(border=True):
            explain.judgement(one.name, verdicts(one.trace, one.experiment), t)


def numbers(measured: Sequence[Measured], shown: Mapping[str, str], t: Words) -> None:
    """Draw the chart's numbers as a table, which can be downloaded; folded, it costs nothing."""
    fold = st.expander(t("drift.numbers"), icon=":material/table:", key="numbers", on_change="rerun")
    if not fold.open:
        return
    columns = {}
    for one in measured:
        line = _series(one, shown, shown["of"] == "gradient")
        columns[one.name] = {} if line is None else dict(zip(line.layers.tolist(), line.values.tolist(), strict=True))
    layers = sorted({layer for column in columns.values() for layer in column})
    table: dict[str, list[object]] = {t("chart.layer"): list(layers)}
    table |= {name: [column.get(layer) for layer in layers] for name, column in columns.items()}
    fold.dataframe(table, hide_index=True)
    fold.download_button(t("drift.download"), _csv(table), f"driftscope-{explain.prefixed(shown)}-{shown['site']}.csv",
                         "text/csv", icon=":material/download:")


def _csv(table: Mapping[str, Sequence[object]]) -> str:
    """Return a table as CSV; non-finite numbers by their names, what is absent empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return stream.getvalue()


def _scale(lines: Sequence[charts.Series], wanted: str) -> str:
    """Return the wanted scale, but linear where a logarithmic axis would have nothing to show: counts of 0 are news."""
    values = np.concatenate([one.values for one in lines] or [np.empty(0)])
    return wanted if (values > 0).any() or not np.isfinite(values).any() else "linear"


def _say_absent(measured: Sequence[Measured], shown: Mapping[str, str], gradient: bool, t: Words) -> None:
    """Say which variants have no line and why; once for all where it is the same reason."""
    reasons = {one.name: _why_absent(one, shown, gradient) for one in measured}
    missing = {name: reason for name, reason in reasons.items() if reason}
    if missing and len(missing) == len(measured) and len(set(missing.values())) == 1:
        st.info(t(next(iter(missing.values())), site=shown["site"]), icon=":material/visibility_off:")
    elif missing:
        st.caption("  \n".join(f"{escaped(name)}: {t(reason, site=shown['site'])}" for name, reason in missing.items()))


def _why_absent(one: Measured, shown: Mapping[str, str], gradient: bool) -> str:
    """Return the text key that says why a variant has no line; empty when it has one."""
    if one.trace is None:
        return ""
    site, statistic = shown["site"], STATISTICS[shown["stat"]]
    passes = statistic.gradient if gradient else statistic.forward
    if not passes or (statistic.sites is not None and site not in statistic.sites):
        return "drift.not_taken"
    layers, counted = one.trace.profile(site, "n", gradient)
    if not layers:
        return "drift.absent"
    unseen = "drift.no_gradient" if gradient else "drift.not_observed"
    return unseen if np.isnan(counted).all() else ""


_OF_SCALE = frozenset({"rms", "absmax", "max", "token_rms_p05", "token_rms_p50", "token_rms_p95"})
"""Statistics that are compared with the largest float16."""


def _series(one: Measured, shown: Mapping[str, str], gradient: bool) -> charts.Series | None:
    """Return a variant's line, or None where it has no trace or no such site."""
    if one.trace is None or _why_absent(one, shown, gradient):
        return None
    site, statistic = shown["site"], shown["stat"]
    layers, values = one.trace.profile(site, statistic, gradient)
    observed = ~np.isnan(one.trace.profile(site, "n", gradient)[1])
    taken = STATISTICS[statistic].sites
    if site == "resid_post" and (taken is None or "embed" in taken):
        start, first = one.trace.profile("embed", statistic, gradient)
        layers, values = [*start, *layers], np.concatenate([first, values])
        observed = np.concatenate([np.ones(len(start), bool), observed])
    model = one.experiment.model
    return charts.Series(
        name=one.name, layers=np.asarray(layers)[observed], values=values[observed],
        style=theme.style(model.norm, model.placement, model.init), site=site, key=one.variant.key)
