"""The door: submit experiments, watch their runs, read their traces, cancel them. The only one that pages need.

It knows the store and that somebody works; it never runs a model and imports no torch. `start` and `stop` belong to a
web server; everything else works in any process that sees the same store, and what is asked for there is computed by
whichever server runs.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from core import settings
from core.cost import check_limits
from core.database import StoreError
from core.experiment import Experiment
from core.fields import ExperimentError
from core.keeper import Keeper, State
from core.settings import SettingError
from core.store import FINISHED, LANES, UNFINISHED, Ask, RunView, Store
from core.trace import Snapshot, Trace

POLL_S, SLOWEST_POLL_S = 0.02, 0.1
DEVICE_TIMEOUT_S = 60.0
TRACES_BYTES = 128 * 2**20


class _Traces:
    """Traces read lately, at most TRACES_BYTES of arrays; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Trace, int]] = OrderedDict()
        self._bytes = 0

    def get(self, run_id: str) -> Trace | None:
        with self._lock:
            if run_id not in self._kept:
                return None
            self._kept.move_to_end(run_id)
            return self._kept[run_id][0]

    def put(self, run_id: str, trace: Trace) -> None:
        size = sum(_bytes(snapshot) for snapshot in trace.snapshots)
        with self._lock:
            self._bytes += size - self._kept.pop(run_id, (trace, 0))[1]
            self._kept[run_id] = (trace, size)
            while self._bytes > TRACES_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0


def _bytes(snapshot: Snapshot) -> int:
    """Return the size of a snapshot's arrays."""
    groups = (snapshot.activations, snapshot.gradients, snapshot.heads, snapshot.parameters, snapshot.histograms)
    return sum(array.nbytes for group in groups for array in group.values())


class _Door:
    """What this process has opened: the store, the keeper when it is a server, traces read lately."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.keeper: Keeper | None = None
        self.traces = _Traces()
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        with self.lock:
            if self._store is None:
                self._store = Store()
            return self._store

    def close(self) -> None:
        with self.lock:
            if self._store is not None:
                self._store.close()
            self._store = None
            self.traces.clear()


_DOOR = _Door()


def start() -> None:
    """Bring the workers up in the background; returns at once and does nothing when they are already coming up.

    Errors: as `check`.
    """
    with _DOOR.lock:
        if _DOOR.keeper is None:
            check()
            _forget_another_machine(_DOOR.store)
            _DOOR.keeper = Keeper(_DOOR.store)
            _DOOR.keeper.start()


def check() -> None:
    """Find out whether `start` can succeed.

    Errors: SettingError when an environment variable cannot be read; StoreError when the store cannot be opened.
    """
    settings.check()
    _DOOR.store.fact("device")


def _forget_another_machine(store: Store) -> None:
    """Forget the workers' device when the store was last served in other surroundings, say with a GPU.

    Our own workers write it anew after some seconds, for which `ensure` then waits; after a restart in the same
    surroundings nobody waits. Of the machines behind a foreign scheduler nothing is known here: they write it anew too.
    """
    if settings.scheduler() is None and store.fact("surroundings") != (now := settings.surroundings()):
        store.forget_fact("device")
        store.put_fact("surroundings", now)


def stop() -> None:
    """End the workers and close the store, within two seconds; does nothing when nothing was started."""
    with _DOOR.lock:
        keeper, _DOOR.keeper = _DOOR.keeper, None
    if keeper is not None:
        keeper.stop()
    _DOOR.close()


def state() -> State:
    """Return whether work can be done here: starting, ready, failed with a reason, or stopped."""
    keeper = _DOOR.keeper
    return keeper.state if keeper else State("stopped")


def ensure(experiments: Sequence[Experiment], lane: str = "probe") -> list[str]:
    """Return the id of a run for each experiment, in order; what nobody computed yet becomes one job.

    Runs are shared: everybody who asks for the same experiment gets the same run.
    Errors: ExperimentError when the request is over the limits, names a text that is not kept, or asks for a device
    nobody knows yet.
    """
    check_limits(list(experiments), limits())
    asks = [_ask(experiment) for experiment in experiments]
    keeper = _DOOR.keeper
    run_ids = _DOOR.store.ask(asks, lane, keeper.server if keeper else "")
    if keeper:
        keeper.wake()
    return run_ids


def ready_to_ask() -> bool:
    """Return whether the workers' device is known, so that `ensure` answers at once. Never waits."""
    return _DOOR.store.fact("device") is not None


def missing(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return those that `ensure` would have to compute: nobody has, and nobody is about to. Never waits."""
    known = _DOOR.store.fact("device")
    keys = [_key(experiment, known) for experiment in experiments]
    standing = _DOOR.store.standing([key for key in keys if key])
    return [experiment for experiment, key in zip(experiments, keys, strict=True) if key not in standing]


def wait(run_ids: Sequence[str], timeout: float) -> list[RunView]:
    """Return the runs as soon as all are over, or as they are after `timeout` seconds."""
    begun = time.monotonic()
    while _DOOR.store.unfinished(run_ids) and (elapsed := time.monotonic() - begun) < timeout:
        pause = min(SLOWEST_POLL_S, POLL_S + elapsed / 50)
        time.sleep(min(pause, timeout - elapsed))
    return view(run_ids)


def view(run_ids: Sequence[str]) -> list[RunView]:
    """Return the runs as they are now, in the order asked.

    Errors: StoreError when one is not in the store.
    """
    return _DOOR.store.views(run_ids)


def recent(limit: int = 50) -> list[RunView]:
    """Return the youngest runs, youngest first, without their provenance."""
    return _DOOR.store.recent(limit)


def experiment(run_id: str) -> str:
    """Return the canonical JSON of the experiment that a run computes."""
    return _DOOR.store.experiment(run_id)


def snapshots(run_id: str, after: int = -1) -> list[Snapshot]:
    """Return the snapshots of a run beyond step `after`, oldest first: what a live page has not drawn yet."""
    return [Snapshot.from_bytes(content) for _, content in _DOOR.store.snapshots(run_id, after)]


def trace(run_id: str) -> Trace:
    """Return all that a run has recorded so far.

    Errors: StoreError when it has recorded nothing or is not in the store.
    """
    if (kept := _DOOR.traces.get(run_id)) is not None:
        return kept
    run = view([run_id])[0]
    found = Trace(tuple(snapshots(run_id)))
    if not found.snapshots:
        raise StoreError(f"run {run_id} has recorded nothing (status {run.status})")
    if run.over:
        _DOOR.traces.put(run_id, found)
    return found


def cancel(run_ids: Sequence[str]) -> None:
    """Ask runs to end, for everybody who watches them; they are over within a second or so."""
    _DOOR.store.cancel(run_ids)


def resolve(experiment: Experiment) -> Experiment:
    """Return the canonical form, with the workers' device in place of ``auto``.

    Errors: ExperimentError when no worker has said yet which device it has.
    """
    return experiment.resolved(_device(experiment))


def put_text(content: str) -> str:
    """Keep a visitor's own text in the store; return the content hash that an experiment may carry in its place.

    A hash stays what it is. Errors: ExperimentError when an experiment may not hold the text, for instance for its
    length.
    """
    return _DOOR.store.keep_text(content)


def limits() -> dict[str, float]:
    """Return the largest accepted value of each field of an estimate (`core.cost.Cost`), from the environment."""
    return settings.limits()


def worker_pids() -> dict[str, list[int]]:
    """Return the process ids of this server's workers, by lane; empty while it has none."""
    keeper = _DOOR.keeper
    return keeper.worker_pids() if keeper else {}


def _ask(experiment: Experiment) -> Ask:
    """Turn an experiment into what the store is asked; its own text is kept there first."""
    device, content = _device(experiment), experiment.input.text
    content_hash = None if content is None else put_text(content)
    if content_hash is not None and _DOOR.store.text(content_hash) is None:
        raise ExperimentError(f"input.text is {content_hash}, which this store does not hold; allowed: the text itself")
    return Ask(experiment.key(device), experiment.canonical_json(device), experiment.protocol.steps + 1, content_hash)


def _key(experiment: Experiment, known: str | None) -> str | None:
    """Return the experiment's key, or None while nobody knows the device that ``auto`` stands for."""
    named = experiment.protocol.device
    device = known if named == "auto" else named
    return experiment.key(device) if device else None


def _device(experiment: Experiment) -> str:
    """Return the device kind that ``auto`` stands for; at the first start it is known only after some seconds."""
    named = experiment.protocol.device
    if named != "auto":
        return named
    deadline = time.monotonic() + DEVICE_TIMEOUT_S
    while (known := _DOOR.store.fact("device")) is None and state().status in ("starting", "ready"):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if known is None:
        reason = state().reason or "no worker has started with this store yet"
        raise ExperimentError(f'protocol.device is "auto", but {reason}; allowed: cpu, cuda, cuda:N, mps, or auto once '
                              "a server has been ready")
    return known


__all__ = [
    "FINISHED", "LANES", "UNFINISHED", "RunView", "SettingError", "State", "StoreError", "cancel", "check", "ensure",
    "experiment", "limits", "missing", "put_text", "ready_to_ask", "recent", "resolve", "snapshots", "start", "state",
    "stop", "trace", "view", "wait", "worker_pids",
]
