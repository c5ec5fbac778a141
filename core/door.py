"""What this process has opened of the engine: its store, the keeper where it is a server, what was read lately.

`core.service` is what pages use; this file is behind it. It knows how a server begins and ends, not what it is asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict

from core import health, settings
from core.films import Films, bytes_of
from core.keeper import Keeper, State
from core.logs import note
from core.store import Store
from core.trace import Trace

LOG = logging.getLogger("driftscope.server")

TRACES_BYTES = 128 * 2**20


class Traces:
    """Traces read lately, at most TRACES_BYTES of arrays; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Trace, int]] = OrderedDict()
        self._bytes = 0

    def get(self, run_id: str) -> Trace | None:
        """Return the trace of a run, if it was read lately."""
        with self._lock:
            if run_id not in self._kept:
                return None
            self._kept.move_to_end(run_id)
            return self._kept[run_id][0]

    def put(self, run_id: str, trace: Trace) -> None:
        """Keep a trace, and let the oldest go."""
        size = bytes_of(trace.snapshots)
        with self._lock:
            self._bytes += size - self._kept.pop(run_id, (trace, 0))[1]
            self._kept[run_id] = (trace, size)
            while self._bytes > TRACES_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget every trace."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


class Door:
    """What this process has opened: the store, the keeper when it is a server, traces and films read lately."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.keeper: Keeper | None = None
        self.traces = Traces()
        self.films = Films()
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store, opened at its first use."""
        with self.lock:
            if self._store is None:
                self._store = Store()
            return self._store

    def close(self) -> None:
        """Close the store and forget what was read."""
        with self.lock:
            if self._store is not None:
                self._store.close()
            self._store = None
            self.traces.clear()
            self.films.clear()


DOOR = Door()


def start() -> None:
    """Bring the workers up in the background; returns at once and does nothing when they are already coming up.

    Errors: as `check`.
    """
    with DOOR.lock:
        if DOOR.keeper is None:
            check()
            _forget_another_machine(DOOR.store)
            DOOR.keeper = Keeper(DOOR.store)
            note(LOG, "server started", store=DOOR.store.database.shown_url, versions=health.versions(),
                 settings=settings.in_force())
            DOOR.keeper.start()


def check() -> None:
    """Find out whether `start` can succeed.

    Errors: SettingError when an environment variable cannot be read; StoreError when the store cannot be opened.
    """
    settings.check()
    DOOR.store.fact("device")


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
    with DOOR.lock:
        keeper, DOOR.keeper = DOOR.keeper, None
    if keeper is not None:
        keeper.stop()
        note(LOG, "server stopped", seconds=round(time.time() - keeper.started, 1))
    DOOR.close()


def state() -> State:
    """Return whether work can be done here: starting, ready, failed with a reason, or stopped."""
    keeper = DOOR.keeper
    return keeper.state if keeper else State("stopped")


def wake() -> None:
    """Have the keeper look for work now."""
    if keeper := DOOR.keeper:
        keeper.wake()


def worker_pids() -> dict[str, list[int]]:
    """Return the process ids of this server's workers, by lane; empty while it has none."""
    keeper = DOOR.keeper
    return keeper.worker_pids() if keeper else {}
