"""The door: submit experiments, watch their runs, read their traces, cancel them. The only one that pages need.

It knows the store and that somebody works; it never runs a model and imports no torch. `start` and `stop` belong to a
web server; everything else works in any process that sees the same store, and what is asked for there is computed by
whichever server runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core import health as condition
from core import runs, settings
from core.cost import check_limits
from core.database import StoreError
from core.door import DOOR, check, start, state, stop, wake, worker_pids
from core.experiment import Experiment
from core.fields import ExperimentError
from core.films import Film
from core.health import Health
from core.keeper import State
from core.logs import note
from core.look import Look
from core.pruning import used_bytes
from core.runs import RESUMABLE, Entry
from core.settings import SettingError
from core.store import FINISHED, LANES, UNFINISHED, Ask, RunView, lane_of
from core.trace import Snapshot, Trace

LOG = logging.getLogger("driftscope.service")

POLL_S, SLOWEST_POLL_S = 0.02, 0.1
DEVICE_TIMEOUT_S = 60.0


def ensure(experiments: Sequence[Experiment], look: Look | None = None, apart: bool = False) -> list[str]:
    """Return the id of a run for each experiment, in order; the trainings that nobody computed yet become one job.

    Runs are shared: everybody who asks for the same experiment gets the same run. Probes and trainings are not asked
    for together: the first says which they are. `look`: the head whose weights the runs keep; such runs are others.
    `apart`: each training is a job of its own, as a sweep wants it.
    Errors: ExperimentError when the request is over the limits, names a text that is not kept or a head that is not
    there, or asks for a device nobody knows yet.
    """
    lane = lane_of(experiments[0])
    with _refusals(lane):
        check_limits(list(experiments), settings.limits(lane == "train"))
        asks = [_ask(experiment, look) for experiment in experiments]
    keeper = DOOR.keeper
    run_ids = DOOR.store.ask(asks, lane, keeper.server if keeper else "", apart)
    wake()
    return run_ids


def check_size(experiments: Sequence[Experiment], training: bool = False) -> None:
    """Find out whether the server's limits allow the request. Errors: ExperimentError when they do not."""
    with _refusals("train" if training else "probe"):
        check_limits(list(experiments), settings.limits(training))


def device() -> str | None:
    """Return the kind of device that ``auto`` stands for, None while no worker has said it. Never waits."""
    return DOOR.store.fact("device")


def ready_to_ask() -> bool:
    """Return whether the workers' device is known, so that `ensure` answers at once. Never waits."""
    return device() is not None


def existing(run_ids: Sequence[str]) -> set[str]:
    """Return those of the runs that are in the store."""
    return DOOR.store.existing(run_ids)


def missing(experiments: Sequence[Experiment], look: Look | None = None) -> list[Experiment]:
    """Return those that `ensure` would have to compute: nobody has, and nobody is about to. Never waits."""
    return [one for one, run in zip(experiments, standing(experiments, look), strict=True) if run is None]


def standing(experiments: Sequence[Experiment], look: Look | None = None) -> list[str | None]:
    """Return the run that stands for each experiment, computed or about to be, or None. Never waits."""
    known = DOOR.store.fact("device")
    keys = [_key(experiment, known, look) for experiment in experiments]
    found = DOOR.store.standing([key for key in keys if key])
    return [found.get(key or "") for key in keys]


def wait(run_ids: Sequence[str], timeout: float) -> list[RunView]:
    """Return the runs as soon as all are over, or as they are after `timeout` seconds."""
    begun = time.monotonic()
    while DOOR.store.unfinished(run_ids) and (elapsed := time.monotonic() - begun) < timeout:
        pause = min(SLOWEST_POLL_S, POLL_S + elapsed / 50)
        time.sleep(min(pause, timeout - elapsed))
    return view(run_ids)


def view(run_ids: Sequence[str]) -> list[RunView]:
    """Return the runs as they are now, in the order asked.

    Errors: StoreError when one is not in the store.
    """
    return DOOR.store.views(run_ids)


def statuses(run_ids: Sequence[str]) -> dict[str, str]:
    """Return the status of each of the runs that is in the store: cheap, also of hundreds."""
    return DOOR.store.statuses(run_ids)


def recent(limit: int = 50) -> list[RunView]:
    """Return the youngest runs, youngest first, without their provenance."""
    return DOOR.store.recent(limit)


def experiment(run_id: str) -> str:
    """Return the canonical JSON of the experiment that a run computes."""
    return DOOR.store.experiment(run_id)


def snapshots(run_id: str, after: int = -1) -> list[Snapshot]:
    """Return the snapshots of a run beyond step `after`, oldest first: what a live page has not drawn yet."""
    return [Snapshot.from_bytes(content) for _, content in DOOR.store.snapshots(run_id, after)]


def trace(run_id: str) -> Trace:
    """Return all that a run has recorded so far.

    Errors: StoreError when it has recorded nothing or is not in the store.
    """
    if (kept := DOOR.traces.get(run_id)) is not None:
        return kept
    run = view([run_id])[0]
    found = Trace(tuple(snapshots(run_id)))
    if not found.snapshots:
        raise StoreError(f"run {run_id} has recorded nothing (status {run.status})")
    if run.status in ("done", "stopped"):  # the others can be gone on with
        DOOR.traces.put(run_id, found)
    return found


def films(run_ids: Sequence[str]) -> list[Film]:
    """Return what a live page draws of runs: every loss, and as many snapshots as a picture can show.

    Errors: StoreError when one is not in the store.
    """
    return DOOR.films.look(DOOR.store, run_ids)


def cancel(run_ids: Sequence[str]) -> None:
    """Ask runs to end, for everybody who watches them; a training ends after the step that it plays."""
    DOOR.store.cancel(run_ids)


def resume(run_ids: Sequence[str]) -> int:
    """Go on with runs that were cancelled or failed, each from its last checkpoint; return how many do."""
    count = runs.resume(DOOR.store, run_ids)
    wake()
    return count


def ahead(experiment: Experiment) -> int:
    """Return how many runs of its lane are not over: what the experiment would wait for, were it asked for now."""
    return runs.ahead(DOOR.store, lane_of(experiment))


def checkpoints(run_ids: Sequence[str]) -> dict[str, int]:
    """Return the step at which each run would go on, where it has a checkpoint."""
    return runs.checkpoints(DOOR.store, run_ids)


def repeat(run_id: str) -> str:
    """Compute a run once more beside it, to compare; return the new run's id.

    Errors: StoreError when the run is not in the store.
    """
    again = runs.repeat(DOOR.store, run_id, DOOR.keeper.server if DOOR.keeper else "")
    wake()
    return again


def entries(limit: int = 1000, named: Sequence[str] = ()) -> list[Entry]:
    """Return the youngest runs and those that are `named`, with their experiments, youngest first."""
    return runs.entries(DOOR.store, limit, named)


def last_losses(run_ids: Sequence[str]) -> dict[str, float]:
    """Return the loss at the last recorded step of each run that has recorded one; it may be NaN or infinite."""
    return runs.last_losses(DOOR.store, run_ids)


def usage() -> int:
    """Return how many bytes all runs hold, of those that the store's limit allows."""
    with DOOR.store.database.reading() as connection:
        return used_bytes(connection)


def health() -> Health:
    """Return how this server and the store are now: the numbers of the status page and of metrics. Waits for nobody."""
    return condition.health(DOOR.store, DOOR.keeper)


def queue(most: int = 100) -> list[Entry]:
    """Return the runs that are not over, at most so many, in the order in which they were asked for."""
    return runs.entries(DOOR.store, 0, condition.queue(DOOR.store, most))[::-1]


def rename(run_id: str, name: str) -> None:
    """Give a run a visitor's name; an empty one takes it away."""
    runs.rename(DOOR.store, run_id, name)


def pin(run_id: str, pinned: bool = True) -> None:
    """Keep a run, whatever the store's size, or let it go again."""
    runs.pin(DOOR.store, run_id, pinned)


def remove(run_ids: Sequence[str]) -> int:
    """Delete runs that are over, with all they recorded; return how many."""
    return runs.remove(DOOR.store, run_ids)


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
    return DOOR.store.keep_text(content)


@contextmanager
def _refusals(lane: str) -> Iterator[None]:
    """Log what is refused meanwhile, and why."""
    try:
        yield
    except ExperimentError as error:
        note(LOG, "request refused", logging.WARNING, lane=lane, reason=str(error))
        raise


def _ask(experiment: Experiment, look: Look | None) -> Ask:
    """Turn an experiment into what the store is asked; its own text is kept there first."""
    if look is not None:
        look.check(experiment)
    device, content = _device(experiment), experiment.input.text
    content_hash = None if content is None else put_text(content)
    if content_hash is not None and DOOR.store.text(content_hash) is None:
        raise ExperimentError(f"input.text is {content_hash}, which this store does not hold; allowed: the text itself")
    key = str(_key(experiment, device, look))
    return Ask(key, experiment.canonical_json(device), experiment.protocol.steps + 1, content_hash,
               None if look is None else look.code)


def _key(experiment: Experiment, known: str | None, look: Look | None) -> str | None:
    """Return the key of experiment and look, or None while nobody knows the device that ``auto`` stands for."""
    named = experiment.protocol.device
    device = known if named == "auto" else named
    if not device:
        return None
    key = experiment.key(device)
    return key if look is None else look.key(key)


def _device(experiment: Experiment) -> str:
    """Return the device kind that ``auto`` stands for; at the first start it is known only after some seconds."""
    named = experiment.protocol.device
    if named != "auto":
        return named
    deadline = time.monotonic() + DEVICE_TIMEOUT_S
    while (known := DOOR.store.fact("device")) is None and state().status in ("starting", "ready"):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if known is None:
        reason = state().reason or "no worker has started with this store yet"
        raise ExperimentError(f'protocol.device is "auto", but {reason}; allowed: cpu, cuda, cuda:N, mps, or auto once '
                              "a server has been ready")
    return known


__all__ = [
    "FINISHED", "LANES", "RESUMABLE", "UNFINISHED", "Entry", "Film", "Health", "Look", "RunView", "SettingError",
    "State", "StoreError", "ahead", "cancel", "check", "check_size", "checkpoints", "device", "ensure", "entries",
    "existing", "experiment", "films", "health", "last_losses", "missing", "pin", "put_text", "queue",
    "ready_to_ask", "recent", "remove", "rename", "repeat", "resolve", "resume", "snapshots", "standing", "start",
    "state", "statuses", "stop", "trace", "usage", "view", "wait", "worker_pids",
]
