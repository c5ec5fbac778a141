"""The shelf of stored runs: the filter, the table to choose from, and how full the store is.

It knows Streamlit's session and query, and runs in words (`pages.ui.stored`); what is shown of chosen runs is drawn by
`pages.ui.run_card` and `pages.ui.side_by_side`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import streamlit as st

from core import service
from core.settings import store_limit
from pages.ui import explain, language, stored
from pages.ui import query as address
from pages.ui.link import RUNS, Notice, run_ids
from pages.ui.stored import ANY, CHOICES, FIND_LETTERS, KINDS, LOOKS, MOST_NAMED, PARAMETERS, Sought, Stored
from pages.ui.text import Words, escaped

MOST = 1000
"""So many runs are listed, the newest."""

SOUGHT, QUERY, LISTED, TABLE, GONE = "runs.sought", "runs.query", "runs.listed", "runs.table", "runs.gone"
LIVE_PAGE = str(Path(__file__).resolve().parents[1] / "live.py")


def settle() -> list[Notice]:
    """Take the filter and the chosen runs from the link when it is a new one, else from this visit."""
    query = address.read(PARAMETERS)
    notices = list[Notice]()
    if address.is_another(query, st.session_state.get(QUERY)):
        existing = service.existing(run_ids(query.get(RUNS, ""), MOST_NAMED) or ())
        st.session_state[SOUGHT], notices = stored.read(query, existing)
        st.session_state[QUERY] = query
        _fill(force=True)
    _fill(force=language.is_new())
    return notices


def sought() -> Sought:
    """Return what this visit looks for."""
    found: Sought = st.session_state[SOUGHT]
    return found


def gone(t: Words) -> None:
    """Say which of the chosen runs were deleted elsewhere, until others are chosen."""
    if run_ids := st.session_state.get(GONE):
        st.warning(t("runs.gone", runs=", ".join(f"`{run}`" for run in run_ids)), icon=":material/delete:")


def choose(run_ids: Sequence[str]) -> None:
    """Choose these runs, and no others."""
    st.session_state[SOUGHT] = replace(sought(), chosen=tuple(run_ids))


def _fill(force: bool) -> None:
    """Give the filter's widgets what is sought; without `force` only those that hold nothing."""
    for name in ("kind", "status", "find"):
        if force or f"runs.{name}" not in st.session_state:
            st.session_state[f"runs.{name}"] = getattr(sought(), name)


def mirror() -> None:
    """Write what is sought into the URL."""
    st.session_state[QUERY] = query = sought().write()
    address.write(query, PARAMETERS)


def load() -> list[Stored]:
    """Return the newest runs and the chosen ones, newest first; chosen runs that are gone are forgotten."""
    entries = service.entries(MOST, sought().chosen)
    losses = service.last_losses([entry.view.id for entry in entries if entry.view.steps_done])
    device = service.device() or "cpu"
    there = {entry.view.id for entry in entries}
    if gone := [run for run in sought().chosen if run not in there]:
        st.session_state[GONE] = tuple(gone)
        choose([run for run in sought().chosen if run in there])
    return [Stored(entry, losses.get(entry.view.id), device) for entry in entries]


def empty(t: Words) -> None:
    """Say that nothing has been computed yet, and where it is."""
    with st.container(border=True):
        st.markdown(t("runs.empty"))
        st.page_link(LIVE_PAGE, label=t("runs.open_live"), icon=":material/arrow_forward:",
                     query_params={language.PARAMETER: t.lang})


def filters(runs: Sequence[Stored], t: Words) -> None:
    """Draw the filter: kind, status, words."""
    kinds = Counter(run.kind for run in runs) | Counter({"all": len(runs)})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(t("runs.kind"), KINDS, key="runs.kind", required=True, on_change=_take,
                             format_func=lambda kind: f"{t(f'runs.kinds_{kind}')} · {kinds[kind]}")
        st.selectbox(t("runs.status"), CHOICES["status"], key="runs.status", on_change=_take, width=190,
                     format_func=lambda status: _status(status, t))
        st.text_input(t("runs.find"), key="runs.find", on_change=_take, max_chars=FIND_LETTERS, type="search",
                      placeholder=t("runs.find_placeholder"))


def _status(status: str, t: Words) -> str:
    return t(f"runs.status_{status}") if status == ANY else f"{LOOKS[status][0]} {t(f'runs.status_{status}')}"


def _take() -> None:
    """Look for what the filter's widgets say."""
    state = st.session_state
    state[SOUGHT] = replace(sought(), **{name: state[f"runs.{name}"] for name in ("kind", "status", "find")})


def table(runs: Sequence[Stored], t: Words) -> None:
    """Draw the runs as a table whose rows can be chosen; what they share is said above it, not in every row."""
    if not runs:
        st.info(t("runs.none_found"), icon=":material/filter_alt:")
        return
    shared = stored.common(runs)
    if common := stored.spoken(shared, t):
        st.caption(t("runs.common", settings=escaped(common)))
    ids = [run.view.id for run in runs]
    chosen = [place for place, run in enumerate(ids) if run in sought().chosen]
    held = st.session_state.get(TABLE)
    if sorted(held["selection"]["rows"] if held else ()) != chosen:  # the rows of the chosen runs have moved
        st.session_state[TABLE] = {"selection": {"rows": chosen, "columns": [], "cells": []}}
    st.session_state[LISTED] = ids
    st.dataframe(columns(runs, shared, t), hide_index=True, key=TABLE, on_select=_select, selection_mode="multi-row",
                 column_config=_looks(t), alt=t("runs.title"), placeholder="")


def _select() -> None:
    """Choose the runs of the ticked rows; those that were chosen before stay in front."""
    ticked = [st.session_state[LISTED][row] for row in st.session_state[TABLE]["selection"]["rows"]]
    st.session_state.pop(GONE, None)
    before = [run for run in sought().chosen if run in ticked]
    choose([*before, *(run for run in ticked if run not in before)])


def columns(runs: Sequence[Stored], shared: Collection[str], t: Words) -> dict[str, list[Any]]:
    """Return the table's columns, name → values; `shared`: fields that all runs have alike, which no row says."""
    views, zone = [run.view for run in runs], local_zone()
    found: dict[str, list[Any]] = {
        "run": ["★ " * run.view.pinned + run.title(t, shared) for run in runs],
        "status": [_status(view.status, t) for view in views],
        "updates": [_updates(run) for run in runs],
        "loss": [run.loss_said() for run in runs],
        "created": [datetime.fromtimestamp(view.created, UTC).astimezone(zone) for view in views],
        "size": [round(run.entry.bytes / 2**20, 2) for run in runs],
    }
    kinds = [t(f"runs.kind_{run.kind}") for run in runs]
    return found | ({"kind": kinds} if len(set(kinds)) > 1 else {})


def _updates(run: Stored) -> str:
    """Say how far a training is; padded, so that its column is sorted by number."""
    return f"{max(run.view.steps_done - 1, 0):>6} / {run.view.steps_total - 1}" if run.kind == "training" else ""


def _looks(t: Words) -> dict[str, Any]:
    text = st.column_config.TextColumn
    return {
        "run": text(t("runs.run"), width=272, help=t("runs.run_help")), "status": text(t("runs.status"), width=120),
        "updates": text(t("runs.done"), width=88, alignment="right"),
        "loss": text(t("runs.loss"), width=75, alignment="right", help=t("runs.loss_help")),
        "created": st.column_config.DatetimeColumn(t("runs.created"), width=105, format="MM-DD HH:mm"),
        "size": st.column_config.NumberColumn(t("runs.size"), width=92, format="%.2f MiB"),
        "kind": text(t("runs.kind"), width=75),
    }


def local_zone() -> tzinfo:
    """Return the visitor's time zone; UTC where the browser says none that is known."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ValueError, OSError, KeyError):
        return UTC


def local(seconds: float) -> str:
    """Say a time in the visitor's time zone."""
    return datetime.fromtimestamp(seconds, local_zone()).strftime("%Y-%m-%d %H:%M:%S")


def usage(t: Words) -> None:
    """Say how full the store is, and what happens when it is over its limit."""
    used, limit = service.usage(), store_limit()
    st.progress(min(used / limit, 1.0) if limit else 1.0,
                text=t("runs.usage", used=stored.size(used), limit=stored.size(limit)))


def bounds(runs: Sequence[Stored], listed: Sequence[Stored], t: Words) -> None:
    """Say how many of the runs are listed, and that older ones are not."""
    if listed:
        st.caption(t("runs.listed", count=len(listed), total=len(runs)))
    if len(runs) >= MOST:
        st.caption(t("runs.only_newest", limit=MOST))


def say(notices: Sequence[Notice], t: Words) -> None:
    """Say what of a link was refused."""
    for notice in notices:
        st.warning(explain.notice(notice, t), icon=":material/link_off:")
