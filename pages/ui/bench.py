"""The norm bench on the page: its axes as controls, the probes and trainings of its candidates, the costs of norms.

It knows Streamlit, widgets and runs; the pictures are made by `pages.ui.views.bench`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core import service
from core.bench import AXES, Candidate, candidates, chosen, idle, trained
from core.experiment import Experiment
from core.fields import ExperimentError
from core.look import NormCosts
from core.norm_bill import setting
from pages.ui import cache, explain, progress, stage, sweeping
from pages.ui.cache import Measured
from pages.ui.link import Variant
from pages.ui.text import Words, escaped
from pages.ui.views.bench import Bench, spoken
from pages.ui.views.sweep import State

LOSS = {"outcome": "loss", "site": "", "stat": "", "of": "", "measure": ""}
"""What is read off a training."""


ROWS = (("norms", "placements"), ("inits", "scalings"))
"""Which axes stand side by side."""


def choose(t: Words) -> None:
    """Draw the axes, every name of each in sight; the chosen ones stand in the session as a link says them.

    What has no effect on the chosen family is not offered.
    """
    resting = idle(st.session_state["model.family"])
    for row in ROWS:
        offered = [axis for axis in row if axis not in resting]
        for column, axis in zip(st.columns([3, 2]), offered, strict=False):
            st.session_state[_widget(axis)] = list(chosen(str(st.session_state[axis]), axis))
            column.pills(t(f"bench.{axis}"), list(AXES[axis]), selection_mode="multi", key=_widget(axis),
                         on_change=_take, args=(axis,), format_func=partial(_spoken, axis, t),
                         help=t(f"bench.{axis}_help"), wrap=True)


def _spoken(axis: str, t: Words, name: str) -> str:
    return spoken(axis, name, t)


def _widget(axis: str) -> str:
    return f"bench.{axis}"


def _take(axis: str) -> None:
    """Keep what is chosen; an axis that would have no name keeps its own."""
    names = st.session_state[_widget(axis)]
    if names:
        st.session_state[axis] = ",".join(name for name in AXES[axis] if name in names)


def asked(base: Experiment, shown: Mapping[str, str]) -> list[Candidate]:
    """Return the candidates that the page asks for. Errors: ExperimentError, as `candidates`."""
    return candidates(base, {axis: chosen(shown[axis], axis) for axis in AXES})


def found(wanted: Sequence[Candidate], shown: Mapping[str, str], t: Words, place: str) -> Bench:
    """Measure the candidates, and train them where that was asked for; say what stands in the way.

    `place`: where on a page they stand.
    """
    found = named(wanted, t)
    for name, one in found.items():
        if one.cell.refused is not None:
            st.warning(t("link.variant", value=escaped(name), reason=explain.refused(one.cell.refused, t)),
                       icon=":material/block:")
    there = {name: one for name, one in found.items() if one.cell.experiment is not None}
    variants = [Variant(one.cell.values, one.cell.experiment, name) for name, one in there.items()
                if one.cell.experiment is not None]
    if not variants:
        return Bench({}, ())
    measured = stage.measured(variants, t, place).finished
    after = int(shown["after"])
    states = _trainings(there, after, t, place) if after else {}
    losses = {name: one.value for name, one in states.items() if one.value is not None}
    if after and shown["when"] == "end":
        measured = tuple(_at_end(one, states[one.name]) for one in measured if one.name in losses)
    return Bench(there, measured, losses, after=after)


def named(wanted: Sequence[Candidate], t: Words) -> dict[str, Candidate]:
    """Return the candidates by their names on the axes where not all are alike; a stack of no norm has no placement.
    """
    differing = [axis for axis in AXES if len({one.names[axis] for one in wanted}) > 1] or ["norms"]
    return {" · ".join(spoken(axis, one.names[axis], t) for axis in differing
                       if axis != "placements" or one.placed or differing == ["placements"]): one for one in wanted}


def _trainings(wanted: Mapping[str, Candidate], steps: int, t: Words, place: str) -> dict[str, State]:
    """Return what became of each candidate's training, and draw how far they are."""
    cells = {name: trained(one, steps) for name, one in wanted.items()}
    kept = {name: cell for name, cell in cells.items() if cell.experiment is not None}
    states = dict(zip(kept, sweeping.states(list(kept.values()), LOSS), strict=True))
    sweeping.panel(list(states.values()), t, "bench", place)
    return states


def _at_end(one: Measured, state: State) -> Measured:
    """Return the candidate with the trace of its training."""
    return replace(one, run=service.view([state.run])[0], trace=service.trace(state.run))


def with_costs(bench: Bench, base: Experiment, t: Words, place: str) -> Bench:
    """Return the bench with the costs of norms on tokens such as the base's, once they are measured.

    `place`: where on a page it stands.
    """
    there = f"{place}.costs"
    try:
        wanted, look = setting(base), NormCosts()
        if not service.ready_to_ask():
            return bench
        if cache.must_ask([wanted], look):
            progress.offer([wanted], t, there, look)
            return bench
        (costed,) = cache.measure([Variant({}, wanted, t("bench.costs_name"))], there, look)
        progress.watch([costed], t, there)
    except ExperimentError as error:
        st.error(explain.refused(error, t), icon=":material/block:")
        return bench
    return replace(bench, costs=costed.trace.snapshots[-1].looks, costed=costed) if costed.trace else bench
