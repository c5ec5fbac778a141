"""What has to leave a store that is over its limit: the oldest finished runs that nobody pinned, and unneeded texts.

It knows sizes and ages; it does not know what a run has measured.
"""

from __future__ import annotations

import time
from collections import Counter

from sqlalchemy import Connection, delete, func, select

from core.database import CHECKPOINTS, JOBS, RUNS, TEXTS, text_bytes
from core.store import FINISHED, GRACE_S, Store

DAY_S = 86_400.0
"""A text that no run needs is kept this long."""


def prune(store: Store, limit_bytes: int) -> int:
    """Remove the oldest unpinned finished runs until at most `limit_bytes` of what runs hold and their texts are left.

    A run holds its snapshots and its checkpoint. Texts that no run needs never drive a run out; they go after a day, or
    earlier when all together are over the limit. Return the number of runs removed.
    """
    with store.database.writing() as connection:
        chosen = _oldest(connection, limit_bytes)
        for start in range(0, len(chosen), 500):
            connection.execute(delete(RUNS).where(RUNS.c.id.in_(chosen[start:start + 500])))
        connection.execute(delete(JOBS).where(JOBS.c.id.not_in(select(RUNS.c.job))))
        needed = select(RUNS.c.text).where(RUNS.c.text.is_not(None))
        age = DAY_S if used_bytes(connection) + sum(_texts(connection).values()) <= limit_bytes else GRACE_S
        connection.execute(delete(TEXTS).where(TEXTS.c.created < time.time() - age, TEXTS.c.hash.not_in(needed)))
    store.database.shrink()
    return len(chosen)


def used_bytes(connection: Connection) -> int:
    """Return the size of all snapshots and checkpoints."""
    snapshots = connection.scalar(select(func.coalesce(func.sum(RUNS.c.stored_bytes), 0)))
    return int(snapshots or 0) + sum(_checkpoints(connection).values())


def _checkpoints(connection: Connection) -> dict[str, int]:
    """Return the size of every checkpoint, by its run."""
    return {run: int(size) for run, size in connection.execute(select(CHECKPOINTS.c.run, CHECKPOINTS.c.bytes))}


def _texts(connection: Connection) -> dict[str, int]:
    """Return the size of every kept text, by its hash."""
    return {name: int(size) for name, size in connection.execute(select(TEXTS.c.hash, text_bytes(connection)))}


def _oldest(connection: Connection, limit_bytes: int) -> list[str]:
    """Return the unpinned finished runs, oldest first, that have to go for the rest to be within `limit_bytes`.

    A text goes with the last of the runs that need it.
    """
    users = Counter(connection.scalars(select(RUNS.c.text).where(RUNS.c.text.is_not(None))))
    texts = {name: size for name, size in _texts(connection).items() if name in users}
    checkpoints = _checkpoints(connection)
    excess = used_bytes(connection) + sum(texts.values()) - limit_bytes
    rows = connection.execute(
        select(RUNS.c.id, RUNS.c.stored_bytes, RUNS.c.text)
        .where(RUNS.c.status.in_(FINISHED), RUNS.c.pinned.is_(False)).order_by(RUNS.c.finished, RUNS.c.number))
    chosen = []
    for run_id, size, text in rows:
        if excess <= 0:
            break
        chosen.append(run_id)
        users[text] -= 1
        excess -= size + checkpoints.get(run_id, 0) + (texts.get(text, 0) if not users[text] else 0)
    return chosen
