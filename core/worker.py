"""The worker: plays the runs of a job, one step of each in turn, and appends their snapshots to the store.

It runs in a Dask worker process of its own and nowhere else; what it knows of Dask is that `dask_setup` is called once
when such a process starts. It never talks to a page: the store is the only channel. A thread beside it keeps the
runs' heartbeats and ends the process when a run that was cancelled does not listen.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from core.claims import Cancelled, Claim, LostClaim, claim, waiting_runs
from core.database import StoreError
from core.experiment import parse
from core.fields import ExperimentError
from core.settings import worker_threads
from core.store import Store
from core.train import available_devices, train

LOG = logging.getLogger("driftscope.worker")

BEAT_S = 1.0
LOOK_S = 0.2
GRACE_S = 0.6
"""A cancelled run that has not ended after this long is deaf: a single step takes longer. The process ends."""

DEAF_EXIT = 17

TINY = {"model": {"n_layers": 1, "d_model": 8, "n_heads": 1}, "input": {"seq_len": 8, "batch": 1}}

NO_MEMORY = "the run needs more memory than the worker has; a smaller model, batch or sequence needs less"
_MEMORY_WORDS = ("can't allocate memory", "out of memory")


def dask_setup(_worker: object) -> None:
    """Make a fresh worker process ready: torch's threads, the device kind into the store, one tiny run to warm up.

    The recorder's loops are compiled by then: importing them does it, or finds what an earlier process compiled.
    """
    torch.set_num_threads(worker_threads())
    _store().put_fact("device", device_kind())
    for _ in train(parse(TINY)):
        pass


def device_kind() -> str:
    """Return the kind of device that ``auto`` stands for in this process."""
    return available_devices()[0].partition(":")[0]


def play(job: str, store: Store | None = None, leave: Callable[[int], None] = os._exit) -> None:
    """Play every waiting run of `job`, one recorded step of each in turn; what ends a run is written to the store.

    `leave` ends the process when a cancelled run does not listen.
    """
    store = store or _store()
    with Watch(leave) as watch:
        playing = deque(Playing(store, run, watch) for run in waiting_runs(store, job))
        while playing:
            current = playing.popleft()
            if current.step():
                playing.append(current)


class Playing:
    """One run of a job; it is claimed when its first step is due."""

    def __init__(self, store: Store, run: str, watch: Watch) -> None:
        self._store, self._run, self._watch = store, run, watch
        self._claim: Claim | None = None
        self._snapshots: Any = None
        self._last: Any = None

    def step(self) -> bool:
        """Play up to the next recorded step; return whether there is more to come. Whatever happens is written."""
        if self._claim is None and not self._begin():
            return False
        assert self._claim is not None
        try:
            if self._advance(self._claim):
                return True
            self._end(self._claim, "stopped" if self._stopped_early(self._claim) else "done")
        except LostClaim:
            self._watch.forget(self._claim)
        except Cancelled:
            self._end(self._claim, "cancelled")
        except Exception as error:
            self._end(self._claim, "failed", words(error))
            if not isinstance(error, ExperimentError):
                LOG.exception("run %s failed", self._run)
        self._snapshots = self._last = None
        return False

    def _begin(self) -> bool:
        self._claim = claim(self._store, self._run)
        if self._claim is not None:
            self._watch.follow(self._claim)
        return self._claim is not None

    def _advance(self, mine: Claim) -> bool:
        """Play one recorded step and append it; return whether there is more to come."""
        if self._snapshots is None:
            self._snapshots = train(parse(mine.experiment), self._store.text)
        else:
            mine.check()
        snapshot = next(self._snapshots, None)
        if snapshot is None:
            return False
        first, self._last = self._last is None, snapshot
        mine.append(snapshot.step, snapshot.to_bytes())
        if first:
            mine.note(self._snapshots.provenance)
        return bool(snapshot.step + 1 < mine.steps_total)

    def _stopped_early(self, mine: Claim) -> bool:
        """Whether a non-finite value ended a training; a probe is always whole."""
        return bool(self._last is not None and self._last.step + 1 < mine.steps_total and self._last.non_finite)

    def _end(self, mine: Claim, status: str, error: str | None = None) -> None:
        self._watch.forget(mine)
        mine.finish(status, error)


def words(error: Exception) -> str:
    """Return one sentence for what ended a run."""
    if isinstance(error, ExperimentError | StoreError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, MemoryError) or any(word in text.lower() for word in _MEMORY_WORDS):
        return NO_MEMORY
    return f"{type(error).__name__}: {text[:300]}"


class Watch:
    """A thread that keeps the heartbeats of the claims it follows, and ends the process for a deaf cancelled one."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._claims: dict[str, Claim] = {}
        self._cancelled: dict[str, float] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="driftscope-watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def follow(self, mine: Claim) -> None:
        """Keep the heartbeat of a claim."""
        with self._lock:
            self._claims[mine.run] = mine

    def forget(self, mine: Claim) -> None:
        """Let go of a claim that is about to end."""
        with self._lock:
            self._claims.pop(mine.run, None)

    def _run(self) -> None:
        beaten = time.monotonic()
        while not self._over.wait(LOOK_S):
            due = time.monotonic() - beaten >= BEAT_S
            beaten = time.monotonic() if due else beaten
            try:
                self._look(due)
            except Exception:  # a store that is busy for long: the next look tries again
                LOG.exception("heartbeat failed")

    def _look(self, beat: bool) -> None:
        with self._lock:
            claims = list(self._claims.values())
        for mine in claims:
            if beat:
                mine.beat()
            try:
                mine.check()
            except (LostClaim, Cancelled):
                self._cancelled.setdefault(mine.run, time.monotonic())
        deaf = [mine for mine in claims if self._is_deaf(mine)]
        if deaf:
            self._end_process(deaf)

    def _is_deaf(self, mine: Claim) -> bool:
        return time.monotonic() - self._cancelled.get(mine.run, time.monotonic()) > GRACE_S

    def _end_process(self, deaf: list[Claim]) -> None:
        """Write what becomes of the claims and leave; the nanny starts a fresh process."""
        with self._lock:
            claims = [mine for mine in self._claims.values() if mine not in deaf]
            deaf = [mine for mine in deaf if mine.run in self._claims]
        if not deaf:
            return
        for mine in deaf:
            mine.finish("cancelled")
        for mine in claims:
            mine.surrender()
        LOG.warning("a cancelled run did not listen for %.1f s: the worker starts anew", GRACE_S)
        self._leave(DEAF_EXIT)


@cache
def _store() -> Store:
    """Open the store once a process."""
    return Store()
