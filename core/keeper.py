"""The keeper: one background thread of the web server that brings the cluster up and hands it jobs.

It knows jobs, leases and processes; it does not know experiments, pages or torch. It looks every second and whenever
it is woken; whatever it forgets when it dies is in the store.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.claims import fail_job, give_back, keep_jobs, release_jobs, waiting_jobs
from core.cluster import Cluster, trouble
from core.crew import Worker
from core.logs import note
from core.pruning import prune
from core.settings import scheduler, store_limit
from core.store import LANES, Store

LOG = logging.getLogger("driftscope.keeper")

LOOK_S = 1.0
AGAIN_S = 5.0
PRUNE_S = 600.0
STOP_TIMEOUT_S = 1.5

_EVENTS = {"ready": "engine ready", "starting": "engine lost", "failed": "engine failed"}
"""Status of a state that the keeper comes into → what is logged then."""


@dataclass(frozen=True)
class State:
    """Whether work can be done: starting, ready, failed (`reason` says why; it is tried again) or stopped."""

    status: str
    reason: str = ""


class Keeper:
    """Keeps one cluster running for one store.

    `started`: since when, in seconds since 1970; `workers`: those that there were at its last look; `deaths`: how many
    of them were gone a look later.
    """

    def __init__(self, store: Store) -> None:
        self.server = secrets.token_hex(12)
        self.state = State("starting")
        self.started = time.time()
        self.workers: tuple[Worker, ...] = ()
        self.deaths = 0
        self._store = store
        self._cluster: Cluster | None = None
        self._played: dict[str, Any] = {}
        self._pruned = 0.0
        self._deaf = self._troubled = False
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driftscope-keeper", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread and every process, within two seconds."""
        self._over.set()
        self._wake.set()
        cluster = self._cluster
        if self.state.status != "ready" and cluster is not None:
            cluster.kill()  # it may still be coming up
        self._thread.join(STOP_TIMEOUT_S)
        self.state = State("stopped")

    def worker_pids(self) -> dict[str, list[int]]:
        """Return the process ids of the workers of each lane as they are now; empty while there is no cluster."""
        cluster = self._cluster
        if cluster is None or self.state.status != "ready":
            return {}
        workers = cluster.workers()
        return {lane: [one.pid for one in workers if lane in one.lanes and one.pid] for lane in LANES}

    def _run(self) -> None:
        while not self._over.is_set():
            cluster = None
            try:
                cluster = self._cluster = Cluster(self._store.url)
                begun = time.monotonic()
                cluster.start()
                self._turn(State("ready"), seconds=round(time.monotonic() - begun, 2))
                self._tend(cluster)
                if not self._over.is_set():
                    self._turn(State("starting", "the cluster lost a process and is brought up anew"))
            except Exception as error:
                if not self._over.is_set():
                    self._turn(State("failed", " ".join(str(error).split()) or type(error).__name__), error)
            finally:
                self._close(cluster)
            if self.state.status == "failed":
                self._over.wait(AGAIN_S)

    def _turn(self, state: State, error: Exception | None = None, **fields: object) -> None:
        """Be in another state, and say so: what is ready again has recovered."""
        event = "engine recovered" if state.status == "ready" and self._troubled else _EVENTS[state.status]
        self.state, self._troubled = state, state.status != "ready"
        level = logging.ERROR if self._troubled else logging.INFO
        note(LOG, event, level, error, reason=state.reason or None, **fields)

    def _tend(self, cluster: Cluster) -> None:
        """Look after everything until the server stops or the cluster loses a process."""
        looked, self._deaf = 0.0, False
        while not self._over.is_set() and cluster.is_whole() and not self._deaf:
            self._wake.clear()
            if time.monotonic() - looked >= LOOK_S:
                looked = time.monotonic()
                self._guarded(self._look)
                self._guarded(lambda: self._meet(cluster.workers()))
            self._guarded(lambda: self._submit(cluster))
            self._wake.wait(LOOK_S)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do one round of work; a store that fails for a moment must not end the thread."""
        try:
            work()
        except Exception as error:
            note(LOG, "round failed", logging.ERROR, error)
            self._over.wait(LOOK_S)

    def _look(self) -> None:
        keep_jobs(self._store, self.server)
        if silent := give_back(self._store, self.server) & self._played.keys():
            note(LOG, "worker silent", logging.ERROR, job=" ".join(sorted(silent)))
            self._deaf = True
        if time.monotonic() - self._pruned > PRUNE_S or not self._pruned:
            self._pruned = time.monotonic()
            if removed := prune(self._store, store_limit()):
                note(LOG, "store pruned", runs=removed, limit_bytes=store_limit())

    def _meet(self, workers: tuple[Worker, ...]) -> None:
        """Take note of who there is, and of who is gone."""
        here = {one.address for one in workers}
        for one in self.workers:
            if one.address not in here:
                self.deaths += 1
                note(LOG, "worker died", logging.WARNING, worker=one.name, host=one.host, pid=one.pid,
                     job=" ".join(one.jobs) or None)
        self.workers = workers

    def _submit(self, cluster: Cluster) -> None:
        """Take note of jobs that were played, and hand over those that have waiting runs."""
        for job, future in list(self._played.items()):
            if future.done():
                self._ended(job, future)
                del self._played[job]
        for job, lane, number in waiting_jobs(self._store, self.server):
            if job not in self._played:
                self._played[job] = cluster.submit(job, lane, number)
                self._played[job].add_done_callback(lambda _: self.wake())
                note(LOG, "job submitted", job=job, lane=lane)

    def _ended(self, job: str, future: Any) -> None:
        died, error = trouble(future)
        if died and give_back(self._store, self.server, job):  # else it only waited at that worker
            note(LOG, "job lost its worker", logging.WARNING, job=job)
        elif error:
            fail_job(self._store, job, error)
            note(LOG, "job failed", logging.ERROR, job=job, reason=error)

    def _close(self, cluster: Cluster | None) -> None:
        """End the cluster, if there is one; whatever goes wrong here must not end the thread either."""
        if cluster is not None:
            self._guarded(cluster.close)
        self._cluster, self.workers = None, ()
        self._played.clear()
        self._guarded(lambda: release_jobs(self._store, self.server, workers_ended=scheduler() is None))
