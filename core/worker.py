"""The worker: plays the runs of a job, one step of each in turn, and appends their snapshots to the store.

It runs in a Dask worker process of its own and nowhere else; what it knows of Dask is that `dask_setup` is called once
when such a process starts. It never talks to a page: the store is the only channel. A thread beside it (`core.watch`)
keeps the runs' heartbeats.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from functools import cache

import torch

from core import logs
from core.claims import Cancelled, Claim, LostClaim, claim, waiting_runs
from core.crew import introduce
from core.database import StoreError
from core.devices import available_devices, machine, pick_device
from core.experiment import engine_version, parse
from core.fields import ExperimentError
from core.keeping import Keeping
from core.logs import note
from core.look import Look
from core.settings import worker_threads
from core.store import Store
from core.train import Training, train
from core.watch import Watch

LOG = logging.getLogger("driftscope.worker")

CHECK_S = 0.05
"""How often the cancel flag is looked at between steps that are not recorded."""

NEWS_S = 1.0
"""How often a job is asked for runs that have joined it: one that was stopped and goes on."""

TINY = {"model": {"n_layers": 1, "d_model": 8, "n_heads": 1}, "input": {"seq_len": 8, "batch": 1}}

NO_MEMORY = "the run needs more memory than the worker has; a smaller model, batch or sequence needs less"
ANOTHER_ENGINE = ("this run was begun by another version of the engine, which may give other numbers; allowed: its "
                  "experiment as a new run")
_MEMORY_WORDS = ("can't allocate memory", "out of memory")


def dask_setup(worker: object) -> None:
    """Make a fresh worker process ready: torch's threads, the device kind into the store, one tiny run to warm up.

    `worker`: Dask's, which tells the scheduler what it is.

    The recorder's loops are compiled by then: importing them does it, or finds what an earlier process compiled.
    """
    logs.begin()
    torch.set_num_threads(worker_threads())
    introduce(worker, machine(pick_device("auto")))
    _store().put_fact("device", device_kind())
    for _ in train(parse(TINY)):
        pass
    note(LOG, "worker started", worker=getattr(worker, "name", None), pid=os.getpid())


def device_kind() -> str:
    """Return the kind of device that ``auto`` stands for in this process."""
    return available_devices()[0].partition(":")[0]


def play(job: str, store: Store | None = None, leave: Callable[[int], None] = os._exit) -> None:
    """Play every waiting run of `job`, one step of each in turn; what ends a run is written to the store.

    `leave` ends the process when a cancelled run does not listen.
    """
    store = store or _store()
    with Watch(leave) as watch:
        playing = deque(Playing(store, job, run, watch) for run in waiting_runs(store, job))
        asked = time.monotonic()
        while playing:
            current = playing.popleft()
            if _more(current):
                playing.append(current)
            if time.monotonic() - asked > NEWS_S:
                asked, here = time.monotonic(), {one.run for one in playing}
                playing.extend(Playing(store, job, run, watch) for run in waiting_runs(store, job) if run not in here)


def _more(current: Playing) -> bool:
    """Play one step of a run; what even it cannot write down must not end the runs beside it."""
    try:
        return current.step()
    except Exception as error:
        note(LOG, "run lost", logging.ERROR, error, run=current.run)
        return False


class Playing:
    """One run of a job; it is claimed when its first step is due."""

    def __init__(self, store: Store, job: str, run: str, watch: Watch) -> None:
        self.run = run
        self._store, self._job, self._watch = store, job, watch
        self._claim: Claim | None = None
        self._training: Training | None = None
        self._keeping: Keeping | None = None
        self._begun = self._checked = self._stepped = time.monotonic()
        self._pace: float | None = None

    def step(self) -> bool:
        """Play one step; return whether there is more to come. Whatever happens is written."""
        if self._claim is None and not self._begin():
            return False
        assert self._claim is not None
        try:
            if self._advance(self._claim):
                return True
            self._end(self._claim, "stopped" if self._training and self._training.stopped else "done")
        except LostClaim:
            self._watch.forget(self._claim)
        except Cancelled:
            self._watch.forget(self._claim)  # it has listened; writing the checkpoint may take a while
            self._leave_checkpoint()
            self._end(self._claim, "cancelled")
        except Exception as error:
            self._end(self._claim, "failed", words(error), None if isinstance(error, ExperimentError) else error)
        if self._training is not None:
            self._training.close()
        self._training = self._keeping = None
        return False

    def _leave_checkpoint(self) -> None:
        """Leave a checkpoint at a stop; where that fails, the one before serves."""
        assert self._keeping is not None
        try:
            self._keeping.save()
        except Exception as error:
            note(LOG, "checkpoint not kept", logging.ERROR, error, run=self.run)

    def _begin(self) -> bool:
        self._claim = claim(self._store, self.run)
        if self._claim is not None:
            self._begun = time.monotonic()
            self._watch.follow(self._claim, self._progress)
            note(LOG, "run started", run=self.run, job=self._job, attempt=self._claim.attempt, pid=os.getpid())
        return self._claim is not None

    def _progress(self) -> tuple[int, float | None]:
        training = self._training  # the watch asks from another thread
        return (training.step - 1 if training else -1), self._pace

    def _advance(self, mine: Claim) -> bool:
        """Play one step and append what it recorded; return whether there is more to come."""
        if self._training is None or self._keeping is None:
            self._training = _begun(mine, self._store)
            self._keeping = Keeping(mine, self._training)
            mine.note(self._training.provenance)
        elif time.monotonic() - self._checked > CHECK_S:
            mine.check()
            self._checked = time.monotonic()
        self._keeping.keep(self._training.play())
        self._take_pace()
        return not self._training.over

    def _take_pace(self) -> None:
        now = time.monotonic()
        taken, self._stepped = now - self._stepped, now
        self._pace = taken if self._pace is None else 0.9 * self._pace + 0.1 * taken

    def _end(self, mine: Claim, status: str, reason: str | None = None, error: Exception | None = None) -> None:
        self._watch.forget(mine)
        mine.finish(status, reason)
        note(LOG, "run ended", logging.ERROR if error else logging.INFO, error, run=self.run, job=self._job,
             status=status, seconds=round(time.monotonic() - self._begun, 3), reason=reason, pid=os.getpid())


def _begun(mine: Claim, store: Store) -> Training:
    """Return the training of a claim, from where an earlier attempt left off."""
    checkpoint = mine.checkpoint()
    if mine.engine not in (None, engine_version()) and (checkpoint or mine.recorded >= 0):
        raise ExperimentError(ANOTHER_ENGINE)
    look = None if mine.look is None else Look.of(mine.look)
    return train(parse(mine.experiment), store.text, checkpoint, look)


def words(error: Exception) -> str:
    """Return one sentence for what ended a run."""
    if isinstance(error, ExperimentError | StoreError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, MemoryError) or any(word in text.lower() for word in _MEMORY_WORDS):
        return NO_MEMORY
    return f"{type(error).__name__}: {text[:300]}"


@cache
def _store() -> Store:
    """Open the store once a process."""
    return Store()
