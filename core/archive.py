"""What the command line does with runs: play one here and now, keep it in the store, read it back.

No cluster: the run takes place in this process. It knows the store; the tables and files made of a run are in `table`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.claims import Cancelled, LostClaim, claim
from core.database import StoreError
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.keeping import Keeping
from core.rules import TEXT_HASH
from core.runs import entries
from core.stops import stop
from core.store import Ask, RunView, Store, lane_of
from core.trace import WEIGHTS, NonFinite, Snapshot, Trace
from core.watch import Watch

if TYPE_CHECKING:
    from core.train import Training

SERVER = "command line"


@dataclass(frozen=True, eq=False)
class Played:
    """A run that took place here. `stopped`: one sentence when it met a non-finite value that ends a run."""

    run: str
    trace: Trace
    stopped: str | None


class Interrupted(Exception):
    """A run was stopped: from this terminal, or `elsewhere` in the store.

    `run`: its id where the store keeps it, None elsewhere; `snapshots`: what was recorded up to there.
    """

    def __init__(self, run: str | None, snapshots: Sequence[Snapshot], elsewhere: bool) -> None:
        by = "stopped by somebody who watches the store" if elsewhere else "interrupted"
        kept = f"run {run} is kept as cancelled" if run else "the run is not kept"
        super().__init__(f"{by}; {kept}, recorded steps: {len(snapshots)}")
        self.run, self.snapshots = run, tuple(snapshots)


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


def play(experiment: Experiment, keep: bool, store: Store | None = None,
         tell: Callable[[Snapshot], None] = lambda _: None) -> Played:
    """Play `experiment` in this process; `keep`: write it to the store step by step, unless it stands there already.

    `store`: from `opened`; None: one is opened here; `tell` is given every snapshot. A server can go on with a training
    that is interrupted here. Errors: ExperimentError when it is refused here, for instance for want of the device;
    Interrupted by Ctrl-C, or when somebody stops it in the store; StoreError.
    """
    from core.train import train

    with opened([experiment], keep, store) as found:
        training = train(experiment, _texts(experiment, found))
        key = experiment.key(_kind(training.provenance))
        kept = _Kept(found, experiment, key, training) if keep and found else None
        snapshots: list[Snapshot] = []
        try:
            with kept or nullcontext():
                while not training.over:
                    snapshot = training.play()
                    if snapshot is not None:
                        snapshots.append(snapshot)
                        tell(snapshot)
                    if kept:
                        kept.follow(snapshot)
        except (KeyboardInterrupt, Cancelled) as error:
            held = kept.run if kept and kept.held else None
            raise Interrupted(held, snapshots, isinstance(error, Cancelled)) from error
    return Played(kept.run if kept else key[:16], Trace(tuple(snapshots)), _stopped(experiment, snapshots[-1]))


def found(experiment: Experiment, store: Store) -> Played | None:
    """Return the run that stands in `store` for `experiment`, where one is over; None elsewhere.

    Errors: ExperimentError when its device is not to be had here; StoreError.
    """
    from core.devices import pick_device

    key = experiment.key(pick_device(experiment.protocol.device).type)
    run = store.standing([key]).get(key, "")
    if not run or store.views([run])[0].status not in ("done", "stopped"):
        return None
    trace = _trace(store, run)
    return Played(run, trace, _stopped(experiment, trace.snapshots[-1]))


def _trace(store: Store, run: str) -> Trace:
    return Trace(tuple(Snapshot.from_bytes(content) for _, content in store.snapshots(run)))


def listing(limit: int = 1000) -> list[dict[str, Any]]:
    """Return the stored runs, newest first, as plain objects.

    A run of another version may hold an experiment that this one refuses: `experiment` is None then, `error` says why.
    """
    store = Store()
    try:
        return [_entry(entry.view, entry.experiment) for entry in entries(store, limit)]
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
        experiment, trace = parse(store.experiment(run)), _trace(store, run)
    except StoreError as error:
        raise ExperimentError(f"{error}; allowed: a run that python -m core runs lists") from None
    finally:
        store.close()
    if not trace.snapshots:
        raise ExperimentError(f"run {run} has recorded nothing yet; allowed: a run that has")
    return experiment, trace


class _Kept:
    """A run of this process in the store, held by a heartbeat while its ``with`` block plays it.

    What stands in the store already, or was given to somebody else meanwhile, is left alone.
    """

    def __init__(self, store: Store, experiment: Experiment, key: str, training: Training) -> None:
        text = store.keep_text(experiment.input.text) if experiment.input.text else None
        canonical = experiment.canonical_json(_kind(training.provenance))
        lane, steps = lane_of(experiment), experiment.protocol.steps + 1
        self.run = store.ask([Ask(key, canonical, steps, text)], lane, SERVER)[0]
        self._training, self._watch = training, Watch(lambda _status: None)
        self._claim = claim(store, self.run)
        if self._claim:
            self._keeping = Keeping(self._claim, training)
            self._claim.note(json.loads(json.dumps(training.provenance, default=str)))

    @property
    def held(self) -> bool:
        """Whether it is this process that writes the run."""
        return self._claim is not None

    def __enter__(self) -> _Kept:
        self._watch.__enter__()
        if self._claim:
            self._watch.follow(self._claim, lambda: (self._training.step - 1, None))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Write how the run ended; an interrupted one counts as cancelled, and can be gone on with."""
        self._watch.__exit__(kind, error, trace)
        if self._claim is None:
            return
        if error is None:
            self._claim.finish("stopped" if self._training.stopped else "done")
        elif isinstance(error, KeyboardInterrupt | Cancelled):
            self._claim.finish("cancelled")
        else:
            self._claim.finish("failed", " ".join(str(error).split())[:300])

    def follow(self, snapshot: Snapshot | None) -> None:
        """Write what a step recorded, and now and then a checkpoint.

        Errors: Cancelled, when somebody stopped the run in the store.
        """
        if self._claim is None:
            return
        try:
            self._keeping.keep(snapshot)
            if not self._training.over:
                self._claim.check()
        except LostClaim:
            self._watch.forget(self._claim)
            self._claim = None
        except Cancelled:
            self._keeping.save()
            raise


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


def _stopped(experiment: Experiment, last: Snapshot) -> str | None:
    """Say where a non-finite value began, if it is of a kind that stops this experiment's run."""
    first = stop(experiment, last)
    return None if first is None else _where(first, last.layout.n_layers)


def _where(first: NonFinite, n_layers: int) -> str:
    place = {-1: "the embedding", n_layers: "what follows the stack"}.get(first.layer, f"layer {first.layer}")
    when = "weights before" if first.direction == WEIGHTS else f"{first.direction} pass of"
    return (f"stopped at a non-finite value: {first.kind} in the {when} step {first.step}, "
            f"first at {first.site} of {place}")
