"""Runs as visitors keep them: listed, named, pinned, gone on with, computed again, deleted.

It knows the store's columns; it does not know what a run has measured, nor who computes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import and_, delete, func, null, or_, select, update

from core.database import CHECKPOINTS, JOBS, RUNS, SNAPSHOTS, StoreError
from core.store import FINISHED, UNFINISHED, Ask, RunView, Store, as_view, new_job, view_columns

NAME_LETTERS = 80
"""A longer name is cut."""

RESUMABLE = ("cancelled", "failed")


@dataclass(frozen=True)
class Entry:
    """A stored run: what it looks like now, its experiment as canonical JSON, and the bytes of its snapshots."""

    view: RunView
    experiment: str
    bytes: int


def entries(store: Store, limit: int, named: Sequence[str] = ()) -> list[Entry]:
    """Return the youngest runs and those that are `named`, youngest first, without their provenance, which is long."""
    columns = view_columns(null()).add_columns(RUNS.c.experiment, RUNS.c.stored_bytes)
    youngest = select(RUNS.c.number).where(RUNS.c.look.is_(None)).order_by(RUNS.c.number.desc()).limit(limit)
    chosen = or_(RUNS.c.number.in_(youngest), RUNS.c.id.in_(named))
    with store.database.reading() as connection:
        rows = [dict(row) for row in connection.execute(
            columns.where(chosen).order_by(RUNS.c.number.desc())).mappings()]
    return [Entry(experiment=str(row.pop("experiment")), bytes=int(row.pop("stored_bytes")), view=as_view(row))
            for row in rows]


def last_losses(store: Store, runs: Sequence[str]) -> dict[str, float]:
    """Return the loss at the last recorded step of each run that has recorded one; it may be NaN or infinite.

    What an older version recorded has no such number.
    """
    found: dict[str, float] = {}
    with store.database.reading() as connection:
        for start in range(0, len(runs), 500):
            last = select(SNAPSHOTS.c.run, func.max(SNAPSHOTS.c.step).label("step")).where(
                SNAPSHOTS.c.run.in_(runs[start:start + 500])).group_by(SNAPSHOTS.c.run).subquery()
            rows = select(SNAPSHOTS.c.run, SNAPSHOTS.c.loss).join(
                last, and_(SNAPSHOTS.c.run == last.c.run, SNAPSHOTS.c.step == last.c.step)).where(
                SNAPSHOTS.c.written.is_not(None))
            found |= {run: math.nan if loss is None else loss for run, loss in connection.execute(rows)}
    return found


def ahead(store: Store, lane: str) -> int:
    """Return how many runs of a lane are not over: what one that is asked for now would wait for."""
    where = and_(RUNS.c.lane == lane, RUNS.c.status.in_(UNFINISHED))
    with store.database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(RUNS).where(where)) or 0


def rename(store: Store, run: str, name: str) -> None:
    """Give a run a name, cut to NAME_LETTERS; an empty one takes it away."""
    kept = " ".join(name.split())[:NAME_LETTERS] or None
    with store.database.writing() as connection:
        connection.execute(update(RUNS).where(RUNS.c.id == run).values(name=kept))


def pin(store: Store, run: str, pinned: bool = True) -> None:
    """Keep a run, whatever the store's size, or let it go again."""
    with store.database.writing() as connection:
        connection.execute(update(RUNS).where(RUNS.c.id == run).values(pinned=pinned))


def remove(store: Store, runs: Sequence[str]) -> int:
    """Delete those of the runs that are over, with all they have recorded; return how many."""
    with store.database.writing() as connection:
        gone = connection.execute(delete(RUNS).where(RUNS.c.id.in_(runs), RUNS.c.status.in_(FINISHED))).rowcount
        connection.execute(delete(JOBS).where(JOBS.c.id.not_in(select(RUNS.c.job))))
    store.database.shrink()
    return int(gone)


def resume(store: Store, runs: Sequence[str]) -> int:
    """Queue those of the runs again that were cancelled or failed; return how many.

    Each goes on from its last checkpoint, from its first step where it has none. It stands for its key again, unless
    another run does by now.
    """
    with store.database.writing(alone=True) as connection:
        rows = connection.execute(select(RUNS.c.id, RUNS.c.key).where(
            RUNS.c.id.in_(runs), RUNS.c.status.in_(RESUMABLE)).order_by(RUNS.c.number)).all()
        for run, key in rows:
            taken = connection.scalar(select(RUNS.c.id).where(RUNS.c.claim == key))
            connection.execute(update(RUNS).where(RUNS.c.id == run).values(
                status="queued", cancel=False, error=None, finished=None, deaths=0, heartbeat=time.time(),
                claim=None if taken else key))
    return len(rows)


def checkpoints(store: Store, runs: Sequence[str]) -> dict[str, int]:
    """Return the step at which each run would go on, where it has a checkpoint."""
    chosen = select(CHECKPOINTS.c.run, CHECKPOINTS.c.step).where(CHECKPOINTS.c.run.in_(runs))
    with store.database.reading() as connection:
        return {run: int(step) for run, step in connection.execute(chosen)}


def repeat(store: Store, run: str, server: str) -> str:
    """Queue the experiment of a run once more, as a run beside it that stands for no key; return its id.

    Errors: StoreError when the store has no such run.
    """
    columns = (RUNS.c.key, RUNS.c.experiment, RUNS.c.steps_total, RUNS.c.text, RUNS.c.look, RUNS.c.lane)
    with store.database.writing(alone=True) as connection:
        found = connection.execute(select(*columns).where(RUNS.c.id == run)).first()
        if found is None:
            raise StoreError(f"the store has no run {run}")
        *asked, lane = found
        (again,) = new_job(connection, [Ask(*asked)], lane, server, stands=False).values()
    return again
