"""What stands between a question and its picture: the engine starts, a run is long, under way, failed or cancelled.

It knows runs and the visitor's buttons; it does not know what is drawn when all is well. Several questions may stand on
one page: each has a place.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core import service
from core.experiment import Experiment
from core.service import Look
from pages.ui import cache
from pages.ui.cache import Measured
from pages.ui.text import Words, escaped

WATCH_S = 0.5


@st.fragment(run_every=WATCH_S)
def engine(t: Words) -> None:
    """Say that the engine starts, or why it does not; draw the page when it is there."""
    if service.ready_to_ask():
        st.rerun()
    if not trouble(t):
        st.info(t("drift.starting"), icon=":material/hourglass:")


def trouble(t: Words) -> bool:
    """Say why the engine cannot work now, if so; return whether."""
    state = service.state()
    if state.reason:
        st.error(t("drift.engine_failed", reason=escaped(state.reason)), icon=":material/error:")
    return bool(state.reason)


def offer(experiments: Sequence[Experiment], t: Words, place: str, look: Look | None = None) -> None:
    """Say what a long run would cost and wait for the visitor's word. `look`: what is wanted is a look at a head."""
    total = cache.estimate(experiments)
    st.info(t("drift.run_needed", seconds=f"{total.seconds:.0f}", gflop=f"{total.flops / 1e9:,.0f}",
              mib=f"{total.peak_bytes / 2**20:,.0f}"), icon=":material/timer:")
    if st.button(t("drift.run"), type="primary", icon=":material/play_arrow:", key=f"run.{place}"):
        cache.agree(experiments, look)
        st.rerun()


def watch(measured: Sequence[Measured], t: Words, place: str) -> None:
    """Show what is still under way, and say which variants came to nothing, and why."""
    if not all(one.run.over for one in measured):
        _progress([one.run.id for one in measured], [escaped(one.name) for one in measured], t, place)
    _troubles(measured, t, place)


@st.fragment(run_every=WATCH_S)
def _progress(run_ids: list[str], names: list[str], t: Words, place: str) -> None:
    """Watch runs that are under way; draw the page anew when all are over."""
    runs = service.view(run_ids)
    if all(run.over for run in runs):
        st.rerun()
    trouble(t)
    with st.container(border=True):
        for name, run in zip(names, runs, strict=True):
            if not run.over:
                words = {"queued": t("drift.queued", position=run.queue_position), "running": t("drift.running")}
                st.caption(f":material/hourglass: {name}: {words[run.status]}")
        if st.button(t("drift.cancel"), icon=":material/stop:", key=f"cancel.{place}"):
            service.cancel([run.id for run in runs if not run.over])


def _troubles(measured: Sequence[Measured], t: Words, place: str) -> None:
    """Say which variants have nothing to draw, and why; they are tried again when the visitor says so."""
    failed = [one for one in measured if one.run.status in ("failed", "cancelled")]
    for one in failed:
        name = escaped(one.name)
        if one.run.status == "failed":
            reason = escaped(one.run.error or "")
            st.error(f"{name}: {t('drift.failed', reason=reason)}", icon=":material/error:")
        else:
            st.warning(f"{name}: {t('drift.cancelled')}", icon=":material/cancel:")
    if failed:
        st.button(t("drift.again"), icon=":material/refresh:", key=f"again.{place}", on_click=cache.again,
                  args=([one.experiment for one in failed],))
