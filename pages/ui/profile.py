"""One statistic over depth for several variants: progress while they run, then the chart, the badge and the verdicts.

Pages give it variants and what to show; it asks the engine through `cache` and draws through `charts` and `component`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from core import service
from core.comparison import pairing
from core.drift import verdicts
from core.experiment import Experiment
from core.vocabulary import STATISTICS
from pages.ui import cache, charts, component, explain, theme
from pages.ui.cache import Measured
from pages.ui.link import Variant
from pages.ui.text import Words

WATCH_S = 0.5

DRAWN = "profile.drawn"
"""What was drawn last; it stays on screen while nothing newer is finished."""


def compare(variants: Sequence[Variant], shown: Mapping[str, str], t: Words) -> None:
    """Measure the variants and draw everything about them.

    Errors: ExperimentError when the engine refuses the request.
    """
    experiments = [one.experiment for one in variants]
    if cache.must_ask(experiments):
        _offer(experiments, t)
        return
    measured = cache.measure(variants)
    watch(measured, t)
    finished = [one for one in measured if one.trace]
    drawn = finished or st.session_state.get(DRAWN, [])
    if drawn:
        draw(drawn, shown, t, key="drift.profile")
    if finished:
        st.session_state[DRAWN] = finished
        say(finished, shown, t)
    elif drawn:
        st.caption(t("drift.previous"))


def watch(measured: Sequence[Measured], t: Words) -> None:
    """Show what is still under way, and say which variants came to nothing, and why."""
    if not all(one.run.over for one in measured):
        _progress([one.run.id for one in measured], [one.name for one in measured], t)
    _troubles(measured, t)


def draw(measured: Sequence[Measured], shown: Mapping[str, str], t: Words, key: str, height: int = 520) -> None:
    """Draw the profile of every variant that has one."""
    gradient = shown["of"] == "gradient"
    lines = [one for one in (_series(each, shown, gradient) for each in measured) if one is not None]
    looks = theme.distinct([one.style for one in lines])
    series = [replace(one, style=look) for one, look in zip(lines, looks, strict=True)]
    statistic = t(f"statistic.{shown['stat']}")
    unit = STATISTICS[shown["stat"]].unit
    site = f"{t('site.' + shown['site'])} ({shown['site']})"
    title = " · ".join([*([t("drift.of_gradient")] if gradient else []), statistic, site])
    frame = charts.Frame(
        title=title, statistic=explain.prefixed(shown), y_title=statistic, y_scale=shown["scale"],
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


_OF_SCALE = frozenset({"rms", "absmax", "max", "token_rms_p05", "token_rms_p50", "token_rms_p95"})
"""Statistics that are compared with the largest float16."""


def _series(one: Measured, shown: Mapping[str, str], gradient: bool) -> charts.Series | None:
    """Return a variant's line, or None where it has no trace or no such site."""
    if one.trace is None:
        return None
    site, statistic = shown["site"], shown["stat"]
    layers, values = one.trace.profile(site, statistic, gradient)
    observed = ~np.isnan(one.trace.profile(site, "n", gradient)[1]) if layers else np.zeros(0, bool)
    if not observed.any():
        return None
    if site == "resid_post":
        start, first = one.trace.profile("embed", statistic, gradient)
        layers, values = [*start, *layers], np.concatenate([first, values])
        observed = np.concatenate([np.ones(len(start), bool), observed])
    model = one.experiment.model
    return charts.Series(
        name=one.name, layers=np.asarray(layers)[observed], values=values[observed],
        style=theme.style(model.norm, model.placement, model.init), site=site, key=one.variant.key)


def _offer(experiments: Sequence[Experiment], t: Words) -> None:
    """Say what a long run would cost and wait for the visitor's word."""
    total = cache.estimate(experiments)
    st.info(t("drift.run_needed", seconds=f"{total.seconds:.0f}", gflop=f"{total.flops / 1e9:,.0f}",
              mib=f"{total.peak_bytes / 2**20:,.0f}"), icon=":material/timer:")
    if st.button(t("drift.run"), type="primary", icon=":material/play_arrow:"):
        cache.agree(experiments)
        st.rerun()


@st.fragment(run_every=WATCH_S)
def _progress(run_ids: list[str], names: list[str], t: Words) -> None:
    """Watch runs that are under way; draw the page anew when all are over."""
    runs = service.view(run_ids)
    if all(run.over for run in runs):
        st.rerun()
    with st.container(border=True):
        for name, run in zip(names, runs, strict=True):
            if not run.over:
                words = {"queued": t("drift.queued", position=run.queue_position), "running": t("drift.running")}
                st.caption(f":material/hourglass: {name}: {words[run.status]}")
        if st.button(t("drift.cancel"), icon=":material/stop:"):
            service.cancel([run.id for run in runs if not run.over])


def _troubles(measured: Sequence[Measured], t: Words) -> None:
    """Say which variants have nothing to draw, and why."""
    for one in measured:
        if one.run.status == "failed":
            st.error(f"{one.name}: {t('drift.failed', reason=one.run.error)}", icon=":material/error:")
        elif one.run.status == "cancelled":
            st.warning(f"{one.name}: {t('drift.cancelled')}", icon=":material/cancel:")
