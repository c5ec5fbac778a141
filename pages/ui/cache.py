"""What was measured for a list of variants: asks the engine, waits a moment, and says what is still on its way.

The results themselves are kept by the engine's store and its bounded cache of traces; nothing is kept here but which
expensive experiments this visit has agreed to run.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import streamlit as st

from core import service
from core.cost import Cost, cost
from core.experiment import Experiment
from core.service import Look, RunView, StoreError
from core.settings import probe_workers
from core.trace import Snapshot, Trace
from pages.ui import wanted
from pages.ui.link import Variant

AGREED, ASKED, VISIT, PAGE = "cache.agreed", "cache.asked", "cache.visit", "cache.page"
ASKED_KEPT = 256
LOOK_AT = "@"
PATIENCE_S = 3.0
"""A script waits this long before it shows what there is and hands over to a fragment that watches the rest."""

AUTOMATIC_S = 1.5
"""Runs estimated to take longer than this start only when the visitor says so."""


@dataclass(frozen=True)
class Measured:
    """One variant, its run, and its trace once there is one; `closer`: what a look at one of its heads shows."""

    variant: Variant
    run: RunView
    trace: Trace | None
    closer: Snapshot | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """What the visitor reads as the variant's name."""
        return self.variant.name

    @property
    def experiment(self) -> Experiment:
        """What was run."""
        return self.variant.experiment


def estimate(experiments: Sequence[Experiment]) -> Cost:
    """Return the cost of all experiments together; memory is that of the largest."""
    costs = [cost(experiment) for experiment in experiments]
    return Cost(max(one.parameters for one in costs), sum(one.flops for one in costs),
                max(one.peak_bytes for one in costs), sum(one.stored_bytes for one in costs),
                sum(one.seconds for one in costs))


def must_ask(experiments: Sequence[Experiment], look: Look | None = None) -> bool:
    """Return whether the visitor has to agree first: it would take long, and the results do not stand ready.

    `look`: what is wanted is a look at a head. Errors: ExperimentError for what no word could allow: it is over the
    server's limits.
    """
    known = st.session_state.setdefault(AGREED, set()) | _asked().keys()
    new = [one for one in experiments if known.isdisjoint((_key(one, look), _agreed(one, look)))]
    if not new:
        return False
    service.check_size(new)
    unknown = service.missing(new, look)
    return bool(unknown) and estimate(unknown).seconds / min(len(unknown), probe_workers()) > AUTOMATIC_S


def agree(experiments: Sequence[Experiment], look: Look | None = None) -> None:
    """Remember that this visit wants these experiments, or looks at their heads, whatever they cost."""
    st.session_state.setdefault(AGREED, set()).update(_agreed(experiment, look) for experiment in experiments)


def arrive(page: str) -> None:
    """Note which page the visit is on; what it waited for on another one leaves the queue."""
    if st.session_state.get(PAGE) != page:
        st.session_state[PAGE] = page
        _unqueue(wanted.leaves(_visit()))


def measure(variants: Sequence[Variant], place: str = "", look: Look | None = None) -> list[Measured]:
    """Ask for every variant and return what there is after at most PATIENCE_S.

    `place`: where on the page they are wanted: what was wanted there before no longer is; `look`: the head whose
    weights the runs keep. A run that this visit asked for before is not asked for again when it
    was cancelled or failed: that takes `again`.
    Errors: ExperimentError when the engine refuses the request, for instance for its size; StoreError.
    """
    experiments = [one.experiment for one in variants]
    try:
        runs = service.wait(_run_ids(experiments, place, look), PATIENCE_S)
    except StoreError:  # a run was pruned meanwhile
        again(experiments)
        runs = service.wait(_run_ids(experiments, place, look), PATIENCE_S)
    return [Measured(variant, run, service.trace(run.id) if run.status == "done" else None)
            for variant, run in zip(variants, runs, strict=True)]


def kept(measured: Sequence[Measured]) -> list[Measured]:
    """Return what was measured before, with its traces; empty when the store no longer has them all."""
    try:
        return [replace(one, trace=service.trace(one.run.id)) for one in measured]
    except StoreError:
        return []


def again(experiments: Sequence[Experiment]) -> None:
    """Forget that this visit asked for these experiments, and looks at them, so that they are asked for anew."""
    agree(experiments)
    for known in list(_asked()):
        if known.partition(LOOK_AT)[0] in {_key(experiment) for experiment in experiments}:
            del _asked()[known]


def _asked() -> dict[str, str]:
    """Return which run this visit was given for each experiment."""
    asked: dict[str, str] = st.session_state.setdefault(ASKED, {})
    return asked


def _key(experiment: Experiment, look: Look | None = None) -> str:
    """Return what an experiment, or a look at it, is known by in this visit."""
    return experiment.canonical_json() + ("" if look is None else LOOK_AT + look.code)


def _agreed(experiment: Experiment, look: Look | None) -> str:
    """Return what is agreed to: an experiment, or looks at it, at whichever head."""
    return _key(experiment) + ("" if look is None else LOOK_AT)


def _run_ids(experiments: Sequence[Experiment], place: str, look: Look | None) -> list[str]:
    """Return the run of each experiment; those that this visit has not asked for yet are asked for."""
    asked, by_key = _asked(), {_key(one, look): one for one in experiments}
    new = [key for key in by_key if key not in asked]
    if new:
        asked |= dict(zip(new, service.ensure([by_key[key] for key in new], look), strict=True))
    for key in list(asked)[: max(0, len(asked) - ASKED_KEPT)]:
        if key not in by_key:
            del asked[key]
    there = place if look is None else place + LOOK_AT
    _unqueue(wanted.moves_to(_visit(), there, [asked[key] for key in by_key]))
    return [asked[_key(one, look)] for one in experiments]


def _visit() -> str:
    """Return what this visit is known by."""
    found: str = st.session_state.setdefault(VISIT, secrets.token_hex(8))
    return found


def _unqueue(left: Collection[str]) -> None:
    """Take runs out of the queue that this visit asked for, and nobody wants any more."""
    waiting = {run for run, status in service.statuses(sorted(left)).items() if status == "queued"}
    if waiting:
        service.cancel(sorted(waiting))
    for key in [key for key, run in _asked().items() if run in waiting]:
        del _asked()[key]
