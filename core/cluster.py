"""The Dask side: a scheduler and one worker process a lane on this machine, or an existing scheduler.

It knows how processes are started, watched and ended; it does not know runs (jobs are names), pages or torch. Nothing
here creates a Python child with ``multiprocessing`` from the web server: such a child would run the page again. Every
process is started as ``python -m dask spec``, and what is submitted imports the worker inside itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Client, KilledWorker
from distributed.core import Status
from distributed.deploy.spec import SpecCluster
from distributed.deploy.subprocess import SubprocessScheduler, SubprocessWorker

from core import crew, processes
from core.crew import Worker
from core.lifeline import PARENT
from core.settings import probe_workers, scheduler
from core.store import LANES

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 2.0
REAP_TIMEOUT_S = 0.3
_CLIENT: Any = Client
_SPEC_CLUSTER: Any = SpecCluster


class ClusterError(RuntimeError):
    """The cluster did not come up; the message is one sentence."""


def play_job(job: str) -> None:
    """Play a job: what Dask runs in a worker process. The server never gets beyond this line's name."""
    from core.worker import play

    play(job)


async def _launch(environment: dict[str, str], address: tuple[str, ...], cls: str, options: dict[str, Any]) -> Any:
    """Start one Dask process. It has a session of its own, so that Ctrl-C in a terminal reaches the server alone."""
    return await asyncio.create_subprocess_exec(
        *processes.command(cls, options, *address), env=environment, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL)


class _Scheduler(SubprocessScheduler):
    """Dask's own, but with an environment, and without its pipe for errors that nobody empties."""

    def __init__(self, environment: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self._environment = environment

    async def _start(self) -> None:
        self.process = await _launch(self._environment, (), "distributed.Scheduler", self.scheduler_kwargs)
        written = Path(self.scheduler_kwargs["scheduler_file"])
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.process.returncode is None and time.monotonic() < deadline:
            with suppress(OSError, ValueError):
                self.address = json.loads(written.read_text())["address"]
                return
            await asyncio.sleep(0.02)
        raise ClusterError(f"the scheduler did not start (exit status {self.process.returncode})")


class _Worker(SubprocessWorker):
    """Dask's own, but with an environment."""

    def __init__(self, address: str, environment: dict[str, str], **options: Any) -> None:
        super().__init__(address, **options)
        self._environment = environment

    async def _start(self) -> None:
        self.process = await _launch(self._environment, (self.scheduler,), self.worker_class, self.worker_kwargs)


class _Cluster(_SPEC_CLUSTER):  # type: ignore[misc]
    """Dask's own, but its workers are not all alike: a larger `scale` starts the next of `waiting`."""

    def __init__(self, waiting: list[dict[str, Any]], **specification: Any) -> None:
        self._waiting = iter(waiting)
        super().__init__(**specification)

    def new_worker_spec(self) -> dict[int, dict[str, Any]]:
        """Return the next worker by its number."""
        return {max(self.worker_spec) + 1: next(self._waiting)}


class Cluster:
    """A running cluster; `store_url` is what its own workers write to."""

    def __init__(self, store_url: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="driftscope-", ignore_cleanup_errors=True)
        self._own: Any = None
        self._client: Any = None
        self._closed = False
        self._count = 0
        self._store_url = store_url

    def start(self) -> None:
        """Bring the scheduler and the lane of the probes up; return when it has a worker. The other lane follows.

        Errors: ClusterError.
        """
        try:
            address = scheduler()
            if address is None:
                self._own = _Cluster(**_specification(self._folder.name, self._store_url), name="driftscope")
                address = self._own.scheduler_address
            self._client = _CLIENT(address, timeout=START_TIMEOUT_S, set_as_default=False, name="driftscope")
            self._wait_for("probe", address)
            if self._own is not None:
                self._own.scale(len(_lanes()))
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"the workers did not start: {' '.join(str(error).split())}") from error

    def submit(self, job: str, lane: str, number: int) -> Any:
        """Have a worker of `lane` play `job`; return Dask's future, which says only that it was played or died.

        Of jobs that wait together the one with the least `number` is first, in whatever order they were handed over.
        """
        self._count += 1
        return self._client.submit(play_job, job, key=crew.key_of(job, self._count), resources={lane: 1},
                                   pure=False, retries=0, priority=-number)

    def is_whole(self) -> bool:
        """Whether every process that this server started still runs, and the scheduler is within reach."""
        if self._client.status != "running":
            return False
        return all(process.returncode is None for process in self._processes())

    def workers(self) -> tuple[Worker, ...]:
        """Return the workers as the scheduler knows them now. Errors: TimeoutError, OSError when it does not answer."""
        scheduler = self._client.scheduler
        return crew.read(self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=ANSWER_TIMEOUT_S))

    def kill(self) -> None:
        """End every process that this server started, at once, whatever it does."""
        self._closed = True
        _kill(self._processes())

    def close(self) -> None:
        """End everything; a foreign cluster only loses a client."""
        with suppress(Exception):  # what is gone already cannot be told to go
            self._client.close(timeout=0.3)
        _kill(self._processes()[1:])  # a busy worker would not listen; the scheduler does
        if self._own is not None:
            self._close_own()
        self.kill()
        self._folder.cleanup()

    def _close_own(self) -> None:
        """Let Dask end its side; of a dead scheduler it must not ask anything, or it waits for half a minute."""
        if self._own.scheduler.process.returncode is not None:
            self._own.scheduler.status = Status.closed
            self._own.shutdown_scheduler = False
        with suppress(Exception):
            self._own.close(timeout=0.7)

    def _processes(self) -> list[Any]:
        """Return what runs for this server: the scheduler first, then the nannies."""
        parts = [self._own.scheduler, *self._own.workers.values()] if self._own else []
        return [part.process for part in parts if part is not None and part.process is not None]

    def _wait_for(self, lane: str, address: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._closed or not self.is_whole():
                raise ClusterError("a process ended at its start, and the server's log says why")
            if any(lane in one.lanes for one in self.workers()):
                return
            time.sleep(0.02)
        raise ClusterError(f"no worker at {address} offers the resource {lane}")


def trouble(future: Any) -> tuple[bool, str | None]:
    """Return whether the worker died while it played, and else why it could not play, if it could not."""
    error = future.exception(timeout=1) if future.status == "error" else None
    if error is None or isinstance(error, KilledWorker):
        return error is not None, None
    return False, f"no worker could play the job: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _kill(processes: list[Any]) -> None:
    """Kill each process and what it started: it leads a session, to which a nanny's worker belongs."""
    for process in processes:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + REAP_TIMEOUT_S
    while any(process.returncode is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.005)  # asyncio has to see each end; one that it misses makes it complain later


def _specification(folder: str, store_url: str) -> dict[str, Any]:
    """Return the arguments of a `_Cluster` with the workers of `_lanes`; only the first is started with it.

    Two workers that import torch at once would each take twice as long.
    """
    environment = {**processes.environment(store_url), PARENT: str(os.getpid())}
    first, *waiting = (
        {"cls": _Worker, "options": {"environment": environment, "worker_kwargs": {
            **processes.worker(lane, HOST), "name": f"{lane} worker {number}", "local_directory": folder,
            "preload_nanny": ["core.lifeline"]}}}
        for number, lane in enumerate(_lanes()))
    scheduler_options = {"environment": environment, "scheduler_kwargs": {
        **processes.scheduler(HOST, 0), "scheduler_file": f"{folder}/scheduler.json", "preload": ["core.lifeline"]}}
    return {"waiting": waiting, "scheduler": {"cls": _Scheduler, "options": scheduler_options}, "workers": {0: first}}


def _lanes() -> list[str]:
    """Return the lane of each worker: several for probes, so that the variants of a comparison share the cores."""
    return ["probe"] * probe_workers() + [lane for lane in LANES if lane != "probe"]
