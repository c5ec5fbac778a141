"""What the command line does with runs: play one here and now, keep it in the store, read it back.

No cluster: the run takes place in this process. It knows the store; the tables and files made of a run are in `table`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from core.claims import claim
from core.database import StoreError
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.rules import TEXT_HASH
from core.store import Ask, RunView, Store
from core.trace import NonFinite, Snapshot, Trace

SERVER = "command line"


@dataclass(frozen=True, eq=False)
class Played:
    """A run that took place here. `stopped`: one sentence when it met a non-finite value that ends a run."""

    run: str
    trace: Trace
    stopped: str | None


@contextmanager
def opened(experiments: Sequence[Experiment], keep: bool, store: Store | None = None) -> Iterator[Store | None]:
    """Open the store that playing `experiments` will need, unless `store` is it: what fails should fail beforehand.

    Yield None when they need none: nothing is kept, and no text is named by its hash.
    Errors: StoreError, SettingError.
    """
    if store is not None or not (keep or any(_named_text(experiment) for experiment in experiments)):
        yield store
        return
    store = Store()
    try:
        yield store
    finally:
        store.close()


def play(experiment: Experiment, keep: bool, store: Store | None = None) -> Played:
    """Play `experiment` in this process; `keep`: write it to the store, unless it stands there already.

    `store`: from `opened`; None: one is opened here. Errors: ExperimentError when it is refused here, for instance for
    want of the device; StoreError.
    """
    from core.train import train

    with opened([experiment], keep, store) as found:
        training = train(experiment, _texts(experiment, found))
        trace = Trace(tuple(training))
        key = experiment.key(_kind(training.provenance))
        run = _kept(found, experiment, key, trace, training.provenance) if keep and found else key[:16]
    return Played(run, trace, _stop(experiment, trace.snapshots[-1]))


def listing(limit: int = 1000) -> list[dict[str, Any]]:
    """Return the stored runs, newest first, as plain objects.

    A run of another version may hold an experiment that this one refuses: `experiment` is None then, `error` says why.
    """
    store = Store()
    try:
        return [_entry(view, experiment) for view, experiment in store.listed(limit)]
    finally:
        store.close()


def _entry(view: RunView, experiment: str) -> dict[str, Any]:
    try:
        differences, refused = parse(experiment).differences(), None
    except ExperimentError as error:
        differences, refused = None, str(error)
    return {"run": view.id, "status": view.status, "error": view.error or refused, "created": view.created,
            "steps_done": view.steps_done, "experiment": differences}


def stored_run(run: str) -> tuple[Experiment, Trace]:
    """Return the experiment and the trace of a stored run.

    Errors: ExperimentError when the store has no such run, or nothing of it was recorded.
    """
    store = Store()
    try:
        experiment, rows = parse(store.experiment(run)), store.snapshots(run)
    except StoreError as error:
        raise ExperimentError(f"{error}; allowed: a run that python -m core runs lists") from None
    finally:
        store.close()
    if not rows:
        raise ExperimentError(f"run {run} has recorded nothing yet; allowed: a run that has")
    return experiment, Trace(tuple(Snapshot.from_bytes(content) for _, content in rows))


def _kept(store: Store, experiment: Experiment, key: str, trace: Trace, provenance: dict[str, Any]) -> str:
    text = store.keep_text(experiment.input.text) if experiment.input.text else None
    canonical = experiment.canonical_json(_kind(provenance))
    run = store.ask([Ask(key, canonical, experiment.protocol.steps + 1, text)], "probe", SERVER)[0]
    mine = claim(store, run)
    if mine is not None:
        for snapshot in trace.snapshots:
            mine.append(snapshot.step, snapshot.to_bytes())
        mine.note(json.loads(json.dumps(provenance, default=str)))
        mine.finish("done")
    return run


def _kind(provenance: dict[str, Any]) -> str:
    """Return the kind of device a run took place on: what ``auto`` stands for here."""
    return str(provenance["device"]).partition(":")[0]


def _named_text(experiment: Experiment) -> str | None:
    """Return the hash by which the experiment names a stored text."""
    text = experiment.input.text
    return text if text is not None and text.startswith(TEXT_HASH) else None


def _texts(experiment: Experiment, store: Store | None) -> dict[str, str] | None:
    """Return the stored text that the experiment names by its hash."""
    text = _named_text(experiment)
    content = store.text(text) if store and text else None
    return {text: content} if text and content is not None else None


def _stop(experiment: Experiment, last: Snapshot) -> str | None:
    """Say where a non-finite value began, if it is of a kind that stops this experiment's run."""
    protocol = experiment.protocol
    forward, gradient = last.non_finite_kinds(), last.non_finite_kinds(gradient=True)
    overflow_step = protocol.loss_scale is not None and not forward
    stops = {kind for kind, wanted in (("nan", protocol.stop_on_nan), ("inf", protocol.stop_on_inf)) if wanted}
    if overflow_step or last.non_finite is None or not stops & (forward | gradient):
        return None
    return _where(last.non_finite, last.layout.n_layers)


def _where(first: NonFinite, n_layers: int) -> str:
    place = {-1: "the embedding", n_layers: "what follows the stack"}.get(first.layer, f"layer {first.layer}")
    return (f"stopped at a non-finite value: {first.kind} in the {first.direction} pass of step {first.step}, "
            f"first at {first.site} of {place}")
