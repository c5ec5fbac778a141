"""Who works on what: a worker's claim on a run, a server's care for its jobs, and what happens when either dies.

A run is claimed by exactly one worker; its heartbeat says that the worker lives, its attempt number that the claim is
still the latest. A job belongs to one server, whose heartbeat keeps other servers from adopting it. Nothing here
computes anything, and nothing knows Dask: the store alone decides what is tried again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, delete, func, insert, or_, select, update

from core.database import CHECKPOINTS, JOBS, RUNS, SNAPSHOTS
from core.store import UNFINISHED, Store

MAX_DEATHS = 2
"""A run whose worker died is tried once more; the second death fails it, unless a checkpoint lies between them."""

WORKER_LEASE_S = 15.0
"""A claimed run without a heartbeat for this long has lost its worker."""

SERVER_LEASE_S = 5.0
"""A job whose server gave no heartbeat for this long is adopted by another one."""

LOST = (f"the worker died {MAX_DEATHS} times while computing this run; most often the run needs more memory than "
        "DRIFTSCOPE_WORKER_MEMORY allows")


class LostClaim(RuntimeError):
    """The run is no longer this worker's: it was given to another one or removed."""


class Cancelled(RuntimeError):
    """Somebody asked for the run to end."""


@dataclass(frozen=True)
class Claim:
    """One worker's right to compute one run, from `claim`.

    `engine`: the version that an earlier attempt began with; `recorded`: the last step that it wrote, −1 for none;
    `look`: the head whose weights the run keeps.
    """

    store: Store
    run: str
    attempt: int
    experiment: str
    steps_total: int
    engine: str | None = None
    recorded: int = -1
    look: str | None = None

    def append(self, step: int, content: bytes, loss: float = math.nan, event: str | None = None) -> None:
        """Write one snapshot, in a transaction of its own; one that an earlier attempt has written stays what it is.

        `event`: what happened at the step, from `core.stops.event`.
        Errors: LostClaim; then nothing was written.
        """
        if step <= self.recorded:
            return
        with self.store.database.writing() as connection:
            counted = {"steps_done": step + 1, "stored_bytes": RUNS.c.stored_bytes + len(content)}
            found = connection.execute(update(RUNS).where(self._mine()).values(heartbeat=time.time(), **counted))
            if found.rowcount:
                connection.execute(insert(SNAPSHOTS).values(
                    run=self.run, step=step, content=content, written=time.time(), event=event,
                    loss=None if math.isnan(loss) else loss))
        if not found.rowcount:
            raise LostClaim(self.run)

    def checkpoint(self) -> bytes | None:
        """Return where an earlier attempt can be gone on from, if there is such a place."""
        with self.store.database.reading() as connection:
            return connection.scalar(select(CHECKPOINTS.c.content).where(CHECKPOINTS.c.run == self.run))

    def save(self, step: int, content: bytes) -> None:
        """Keep a checkpoint in place of an older one. A worker that got so far may die again before the run fails."""
        with self.store.database.writing() as connection:
            if connection.execute(update(RUNS).where(self._mine()).values(heartbeat=time.time(), deaths=0)).rowcount:
                connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.run == self.run))
                connection.execute(insert(CHECKPOINTS).values(
                    run=self.run, step=step, bytes=len(content), content=content))

    def check(self) -> None:
        """Look at the cancel flag.

        Errors: Cancelled, LostClaim.
        """
        with self.store.database.reading() as connection:
            cancel = connection.scalar(select(RUNS.c.cancel).where(self._mine()))
        if cancel is None:
            raise LostClaim(self.run)
        if cancel:
            raise Cancelled(self.run)

    def beat(self, step: int = -1, pace: float | None = None) -> None:
        """Say that the worker lives, which step it has played, and how many seconds one takes."""
        done = case((RUNS.c.steps_done < step + 1, step + 1), else_=RUNS.c.steps_done)
        with self.store.database.writing() as connection:
            connection.execute(update(RUNS).where(self._mine()).values(
                heartbeat=time.time(), steps_done=done, pace=pace))

    def note(self, provenance: Mapping[str, Any]) -> None:
        """Keep where and how the run is computed."""
        with self.store.database.writing() as connection:
            connection.execute(update(RUNS).where(self._mine()).values(
                provenance=json.dumps(dict(provenance), default=str)))

    def finish(self, status: str, error: str | None = None) -> None:
        """Write how the run ended; a claim that was lost meanwhile changes nothing."""
        complete = status in ("done", "stopped")
        keeps_key: dict[str, Any] = {} if complete else {"claim": None}
        with self.store.database.writing() as connection:
            ended = connection.execute(update(RUNS).where(self._mine()).values(
                status=status, error=error, finished=time.time(), pace=None, **keeps_key))
            if complete and ended.rowcount:
                connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.run == self.run))

    def surrender(self) -> None:
        """Give the run back to the queue: this worker ends for a reason that is not the run's."""
        with self.store.database.writing() as connection:
            connection.execute(update(RUNS).where(self._mine()).values(status="queued"))

    def _mine(self) -> ColumnElement[bool]:
        return and_(RUNS.c.id == self.run, RUNS.c.status == "running", RUNS.c.attempts == self.attempt)


def claim(store: Store, run: str) -> Claim | None:
    """Claim a waiting run for this worker, or return None where another one was faster or it was cancelled.

    What earlier attempts have recorded stays.
    """
    now = time.time()
    with store.database.writing() as connection:
        taken = connection.execute(update(RUNS).where(RUNS.c.id == run, RUNS.c.status == "queued").values(
            status="running", started=now, heartbeat=now, attempts=RUNS.c.attempts + 1))
        if not taken.rowcount:
            return None
        row = connection.execute(select(
            RUNS.c.attempts, RUNS.c.experiment, RUNS.c.steps_total, RUNS.c.look,
            RUNS.c.provenance).where(RUNS.c.id == run)).one()
        recorded = connection.scalar(select(func.max(SNAPSHOTS.c.step)).where(SNAPSHOTS.c.run == run))
    return Claim(store, run, row.attempts, row.experiment, row.steps_total, look=row.look,
                 engine=json.loads(row.provenance or "{}").get("engine"), recorded=-1 if recorded is None else recorded)


def waiting_runs(store: Store, job: str) -> list[str]:
    """Return the runs of `job` that wait for a worker, in the order asked."""
    rows = select(RUNS.c.id).where(RUNS.c.job == job, RUNS.c.status == "queued").order_by(RUNS.c.number)
    with store.database.reading() as connection:
        return list(connection.scalars(rows))


def waiting_jobs(store: Store, server: str) -> list[tuple[str, str, int]]:
    """Return (job, lane, number of its first waiting run) of the server's jobs that have waiting runs, oldest first."""
    first = func.min(RUNS.c.number)
    rows = (select(RUNS.c.job, RUNS.c.lane, first).join(JOBS, JOBS.c.id == RUNS.c.job)
            .where(JOBS.c.server == server, RUNS.c.status == "queued").group_by(RUNS.c.job, RUNS.c.lane)
            .order_by(first))
    with store.database.reading() as connection:
        return [(job, lane, number) for job, lane, number in connection.execute(rows)]


def keep_jobs(store: Store, server: str) -> int:
    """Renew the server's hold on its unfinished jobs and adopt those of servers that died; return how many it has."""
    now = time.time()
    open_jobs = select(RUNS.c.job).where(RUNS.c.status.in_(UNFINISHED))
    hold = and_(JOBS.c.id.in_(open_jobs), or_(JOBS.c.server == server, JOBS.c.heartbeat < now - SERVER_LEASE_S))
    with store.database.reading() as connection:
        if connection.scalar(select(JOBS.c.id).where(hold).limit(1)) is None:
            return 0
    with store.database.writing() as connection:
        return int(connection.execute(update(JOBS).where(hold).values(server=server, heartbeat=now)).rowcount)


def release_jobs(store: Store, server: str, workers_ended: bool) -> None:
    """Let other servers, or the next start of this one, adopt its jobs at once.

    `workers_ended`: its runs have no worker any more and go back to the queue.
    """
    mine = select(JOBS.c.id).where(JOBS.c.server == server)
    with store.database.writing() as connection:
        connection.execute(update(JOBS).where(JOBS.c.server == server).values(heartbeat=0.0))
        if workers_ended:
            connection.execute(update(RUNS).where(RUNS.c.status == "running", RUNS.c.job.in_(mine)).values(
                status="queued"))


def give_back(store: Store, server: str, job: str | None = None) -> set[str]:
    """Give the runs whose worker died back to the queue, or fail them when it was not the first one.

    `job`: the job whose worker is known to be dead; None: every run of the server without a heartbeat for
    WORKER_LEASE_S. Return the jobs of these runs.
    """
    dead = RUNS.c.job == job if job else and_(
        RUNS.c.job.in_(select(JOBS.c.id).where(JOBS.c.server == server)),
        RUNS.c.heartbeat < time.time() - WORKER_LEASE_S)
    lost = and_(RUNS.c.status == "running", dead)
    ends = {"claim": None, "finished": time.time(), "deaths": RUNS.c.deaths + 1}
    with store.database.reading() as connection:
        jobs = set(connection.scalars(select(RUNS.c.job).where(lost)))
    if jobs:
        with store.database.writing() as connection:
            connection.execute(update(RUNS).where(lost, RUNS.c.cancel.is_(True)).values(status="cancelled", **ends))
            connection.execute(update(RUNS).where(lost, RUNS.c.deaths + 1 >= MAX_DEATHS).values(
                status="failed", error=LOST, **ends))
            connection.execute(update(RUNS).where(lost).values(status="queued", deaths=RUNS.c.deaths + 1))
    return jobs


def fail_job(store: Store, job: str, error: str) -> None:
    """Fail whatever of `job` is not over: no worker could even begin to play it."""
    with store.database.writing() as connection:
        connection.execute(update(RUNS).where(RUNS.c.job == job, RUNS.c.status.in_(UNFINISHED)).values(
            status="failed", error=error, claim=None, finished=time.time()))
