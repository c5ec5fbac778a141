"""How a server is, drawn: its engine, workers, queue, store, versions and limits.

It knows `core.service.Health` and runs in words (`pages.ui.stored`); what is measured it does not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from core import service, settings
from core.crew import Worker
from core.service import LANES, Entry, Health
from pages.ui import run_card, shelf, stored
from pages.ui.stored import LOOKS, Stored
from pages.ui.text import Words, escaped
from pages.ui.training import spoken_time

BANNERS: Mapping[str, tuple[Callable[..., object], str]] = {
    "ready": (st.success, ":material/check_circle:"), "starting": (st.info, ":material/hourglass:"),
    "failed": (st.error, ":material/error:"), "stopped": (st.warning, ":material/power_off:")}
"""Status of the engine → what says it, and the icon."""

DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}

PACKAGES = {"streamlit": "Streamlit", "plotly": "Plotly", "distributed": "Dask distributed", "sqlalchemy": "SQLAlchemy"}
"""Package → its name, where there is no word for it."""

VALUES: Mapping[str, Callable[[float, Words], str]] = {
    **dict.fromkeys(("STORE_LIMIT", "WORKER_MEMORY", "LIMIT_PEAK_BYTES", "LIMIT_STORED_BYTES"),
                    lambda value, _: stored.size(value)),
    **dict.fromkeys(("LIMIT_FLOPS", "LIMIT_TRAINING_FLOPS"), lambda value, _: f"{value / 1e9:,.0f} GFLOP"),
    **dict.fromkeys(("PROBE_WORKERS", "WORKER_THREADS", "LIMIT_PARAMETERS"), lambda value, _: f"{value:,.0f}"),
    "CHECKPOINT_SECONDS": lambda value, t: t("live.seconds", count=f"{value:g}"),
}
"""Name of a setting that is a number, without its prefix → how its value is said."""

PREFIX = "DRIFTSCOPE_"
OF_WORKERS = ("engine", "torch", "numpy", "python", "device", "device_name", "threads")


def engine(health: Health, t: Words) -> None:
    """Say whether runs are computed, and the numbers that tell most."""
    banner, icon = BANNERS[health.state.status]
    banner(t(f"status.{health.state.status}", reason=escaped(health.state.reason)).strip(), icon=icon)
    count = {status: sum(health.runs.get((lane, status), 0) for lane in LANES) for status in service.UNFINISHED}
    numbers: dict[str, int | str] = {
        "waiting": count["queued"], "running": count["running"], "deaths": health.deaths,
        "uptime": spoken_time(time.time() - health.started, t), "memory": stored.size(health.resident)}
    with st.container(horizontal=True):
        for name, value in numbers.items():
            about = f"status.{name}_help"
            st.metric(t(f"status.{name}"), value, border=True, height="stretch", help=t(about) if about in t else None)


def workers(health: Health, runs: Sequence[Stored], t: Words) -> None:
    """Draw every worker: what it is for, where it is, how large, and what it does."""
    st.header(t("status.workers"))
    if not health.workers:
        st.info(t("status.no_workers"), icon=":material/hourglass:")
        return
    playing = {run.view.job: run for run in runs if run.view.status == "running"}
    st.table({
        t("status.computes"): [" · ".join(_kind(lane, t) for lane in one.lanes) for one in health.workers],
        t("status.process"): [str(one.pid or t("status.unknown")) for one in health.workers],
        t("status.host"): [escaped(one.host) for one in health.workers],
        t("status.holds"): [_memory(one, t) for one in health.workers],
        t("status.now"): [_now(one, playing, t) for one in health.workers],
    }, border="horizontal", hide_index=True)
    for lane in LANES:
        if not health.crew(lane):
            st.warning(t("status.no_worker_of", kind=_kind(lane, t)), icon=":material/warning:")


def _kind(lane: str, t: Words) -> str:
    return t(f"runs.kinds_{stored.LANES[lane]}")


def _memory(one: Worker, t: Words) -> str:
    used = stored.size(one.memory_bytes)
    return t("status.of", used=used, limit=stored.size(one.memory_limit)) if one.memory_limit else used


def _now(one: Worker, playing: Mapping[str, Stored], t: Words) -> str:
    """Say what a worker plays; a run may end between two looks."""
    said = [t("status.busy", run=escaped(run.title(t)), done=run.view.steps_done, total=run.view.steps_total)
            for job in one.jobs if (run := playing.get(job))]
    return "; ".join(said) or t("status.idle")


def queue(health: Health, runs: Sequence[Stored], t: Words) -> None:
    """Draw what is computed and what waits, in the order in which it was asked for."""
    st.header(t("status.queue"))
    if not runs:
        st.markdown(t("status.empty"))
        return
    st.table({
        t("status.before"): ["" if run.view.status == "running" else str(run.view.queue_position) for run in runs],
        t("runs.run"): [escaped(run.title(t)) for run in runs],
        t("runs.kind"): [t(f"runs.kind_{run.kind}") for run in runs],
        t("runs.status"): [f"{LOOKS[run.view.status][0]} {t(f'runs.status_{run.view.status}')}" for run in runs],
        t("status.age"): [spoken_time(time.time() - run.view.created, t) for run in runs],
    }, border="horizontal", hide_index=True)
    total = sum(health.runs.get((lane, status), 0) for lane in LANES for status in service.UNFINISHED)
    if total > len(runs):
        st.caption(t("status.more", limit=len(runs), total=total))


def store(health: Health, t: Words) -> None:
    """Say how full the store is, and what it is."""
    st.header(t("status.store"))
    shelf.usage(t)
    st.markdown(t("status.database", kind=DATABASES[health.backend]))


def versions(health: Health, t: Words) -> None:
    """Draw what the server is made of, and what the workers say of themselves."""
    st.header(t("status.versions"))
    left, right = st.columns(2)
    with left:
        st.markdown(f"**{t('status.server')}**")
        run_card.facts({PACKAGES.get(name) or t(f"runs.fact_{name}"): escaped(said)
                        for name, said in health.versions.items() if name != "torch"})  # which the server never loads
    with right:
        st.markdown(f"**{t('status.workers')}**")
        run_card.facts({t(f"runs.fact_{name}"): _said(health.workers, name, t) for name in OF_WORKERS})


def _said(crew: Sequence[Worker], fact: str, t: Words) -> str:
    """Return what the workers say of themselves, each answer once."""
    return escaped(" · ".join(sorted({one.facts[fact] for one in crew if fact in one.facts}))) or t("status.unknown")


def limits(t: Words) -> None:
    """Draw the settings that the server goes by."""
    st.header(t("status.limits"))
    values = {name.removeprefix(PREFIX): value for name, value in settings.in_force().items()}
    st.table({
        t("status.meaning"): [t(f"status.{name.lower()}") for name in values],
        t("status.value"): [_value(name, value, t) for name, value in values.items()],
        t("status.setting"): [f"`{PREFIX}{name}`" for name in values],
    }, border="horizontal", hide_index=True)


def _value(name: str, value: float | str | None, t: Words) -> str:
    if isinstance(value, int | float):
        return VALUES[name](value, t)
    return escaped(value) if value else t("status.own")


def told(entries: Sequence[Entry]) -> list[Stored]:
    """Return runs as the panels want them."""
    return [Stored(entry, None, service.device() or "cpu") for entry in entries]
