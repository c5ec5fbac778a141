"""The runs of a sweep: which stand for its cells, how they are started, followed and stopped, and what each came to.

Runs belong to the store: whoever opens the same sweep sees the same cells filled, and goes on with those that are
missing. It knows Streamlit, runs and buttons; the picture is made by `pages.ui.views.sweep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import streamlit as st

from core import service
from core.experiment import Experiment
from core.fields import ExperimentError
from core.outcomes import OUTCOMES, of_heads, statistic
from core.settings import probe_workers
from core.sweep import Cell
from pages.ui import cache, explain, progress
from pages.ui.text import Words
from pages.ui.views.sweep import State

WATCH_S = 1.0
REFUSED = "sweep.refused"
"""Why the engine refused to start, if it did."""

ASKED = "sweep.asked"
"""The runs that this visit asked for, by their experiments' canonical JSON: one that failed is known here alone."""

STATUS = {"queued": "waiting", "running": "running", "done": "done", "stopped": "done", "failed": "failed",
          "cancelled": "absent"}
"""Status of a run → that of its cell."""

def states(cells: Sequence[Cell], shown: Mapping[str, str]) -> list[State]:
    """Return what became of each cell so far."""
    there = [cell.experiment for cell in cells if cell.experiment is not None]
    mine: dict[str, str] = st.session_state.setdefault(ASKED, {})
    asked_for, standing = [mine.get(one.canonical_json(), "") for one in there], service.standing(there)
    statuses = service.statuses([run for run in {*asked_for, *standing} if run])
    runs = [run or (own if statuses.get(own) == "failed" else "") for own, run in zip(asked_for, standing, strict=True)]
    errors = {one.id: one.error or "" for one in service.view([run for run in runs if statuses.get(run) == "failed"])}
    asked = [shown[name] for name in ("outcome", "site", "stat", "of", "measure")]
    left = iter(runs)
    return [State(cell, "refused") if cell.experiment is None else _state(cell, next(left), statuses, errors, asked)
            for cell in cells]


def _state(cell: Cell, run: str, statuses: Mapping[str, str], errors: Mapping[str, str], asked: Sequence[str]) -> State:
    status = STATUS.get(statuses.get(run, ""), "absent")
    return State(cell, status, run, _value(run, *asked) if status == "done" else None, errors.get(run, ""))


@lru_cache(maxsize=16_384)
def _value(run: str, outcome: str, site: str, stat: str, of: str, measure: str) -> float:
    """Return what a finished run came to: it never changes."""
    trace = service.trace(run)
    if outcome == "site":
        return statistic(trace, site, stat, of == "gradient")
    return of_heads(trace, measure) if outcome == "head" else OUTCOMES[outcome].read(trace)


def panel(found: Sequence[State], t: Words, said: str = "sweep", place: str = "sweep") -> None:
    """Draw how far the sweep is, with the buttons that start and stop it.

    `said`: the section of its words; `place`: where on a page it stands.
    """
    count = Counter(one.status for one in found)
    active = [one.run for one in found if one.status in ("waiting", "running")]
    missing = [one.cell.experiment for one in found
               if one.status in ("absent", "failed") and one.cell.experiment is not None]
    if refused := st.session_state.pop(REFUSED, None):
        st.error(explain.refused(refused, t), icon=":material/block:")
    if not service.ready_to_ask():
        progress.engine(t)
    elif active:
        st.fragment(_follow, run_every=WATCH_S)([one.run for one in found if one.run], len(active), t, said, place)
    elif missing:
        _offer(missing, len(found) - count["refused"], t, said, place)
    for status in ("failed", "refused"):
        if count[status]:
            st.warning(t(f"{said}.some_{status}", count=count[status]), icon=":material/block:")


def _offer(missing: Sequence[Experiment], whole: int, t: Words, said: str, place: str) -> None:
    begun = len(missing) < whole
    workers = 1 if missing[0].protocol.steps else probe_workers()
    seconds = cache.estimate(missing).seconds / workers
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(t(f"{said}.{'go_on' if begun else 'start'}"), type="primary", icon=":material/play_arrow:",
                  on_click=_start, args=(list(missing),), key=f"start.{place}")
        st.caption(t(f"{said}.estimate", count=len(missing), whole=whole,
                     seconds=f"{max(1.0, seconds):,.0f}"))


def _start(missing: list[Experiment]) -> None:
    """Ask for the cells that nobody has computed."""
    try:
        runs = service.ensure(missing, apart=True)
        st.session_state[ASKED] |= dict(zip((one.canonical_json() for one in missing), runs, strict=True))
    except ExperimentError as error:
        st.session_state[REFUSED] = error


def _follow(runs: list[str], active: int, t: Words, said: str, place: str) -> None:
    """Watch the cells that are under way; draw the page anew whenever one has ended."""
    statuses = service.statuses(runs)
    left = [run for run in runs if statuses.get(run) in service.UNFINISHED]
    if len(left) < active:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        over = len(runs) - len(left)
        st.progress(over / max(1, len(runs)), t(f"{said}.progress", done=over, count=len(runs)))
        st.button(t(f"{said}.stop"), icon=":material/stop:", on_click=service.cancel, args=(left,),
                  key=f"stop.{place}")
