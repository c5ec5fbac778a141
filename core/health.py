"""How a server and its store are at one moment: the numbers of the metrics and of the status page, in a few queries.

It knows the store, the keeper and this process; it does not know who asks, nor what a run has measured.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import psutil
from sqlalchemy import func, select

from core.crew import Worker
from core.database import RUNS
from core.experiment import engine_version
from core.keeper import Keeper, State
from core.pruning import used_bytes
from core.settings import store_limit
from core.store import UNFINISHED, Store

PACKAGES = ("torch", "numpy", "streamlit", "plotly", "distributed", "SQLAlchemy")


@dataclass(frozen=True)
class Health:
    """How a server is. Times are in seconds, sizes in bytes.

    `started`: since 1970; `deaths`: workers that ended since then; `runs`: how many by (lane, status), looks too;
    `oldest`: lane → how long its oldest waiting run has waited, since it was asked for or last worked on; `used` and
    `limit`: of the store, whose kind of database is `backend`; `resident` and `cpu`: of this process; `versions`: of
    what is installed for it.
    """

    state: State
    started: float
    workers: tuple[Worker, ...]
    deaths: int
    runs: Mapping[tuple[str, str], int]
    oldest: Mapping[str, float]
    used: int
    limit: int
    backend: str
    resident: int
    cpu: float
    versions: Mapping[str, str]

    def crew(self, lane: str) -> list[Worker]:
        """Return the workers of a lane."""
        return [one for one in self.workers if lane in one.lanes]


def health(store: Store, keeper: Keeper | None) -> Health:
    """Return how all is now; `keeper`: None in a process that is no server. Errors: StoreError."""
    with store.database.reading() as connection:
        grouped = select(RUNS.c.lane, RUNS.c.status, func.count()).group_by(RUNS.c.lane, RUNS.c.status)
        runs = {(lane, status): count for lane, status, count in connection.execute(grouped)}
        since = func.min(func.coalesce(RUNS.c.heartbeat, RUNS.c.created))
        waiting = select(RUNS.c.lane, since).where(RUNS.c.status == "queued").group_by(RUNS.c.lane)
        oldest = {lane: max(0.0, time.time() - begun) for lane, begun in connection.execute(waiting)}
        used = used_bytes(connection)
    process = psutil.Process()
    return Health(keeper.state if keeper else State("stopped"), keeper.started if keeper else process.create_time(),
                  keeper.workers if keeper else (), keeper.deaths if keeper else 0, runs, oldest, used, store_limit(),
                  store.database.backend, process.memory_info().rss, time.process_time(), versions())


def queue(store: Store, most: int) -> list[str]:
    """Return the runs that are not over, at most so many, in the order in which they were asked for."""
    rows = select(RUNS.c.id).where(RUNS.c.status.in_(UNFINISHED)).order_by(RUNS.c.number).limit(most)
    with store.database.reading() as connection:
        return list(connection.scalars(rows))


@cache
def versions() -> dict[str, str]:
    """Return the versions of the engine, of Python and of the packages in use, as installed with this process."""
    return {"engine": engine_version(), "python": platform.python_version(),
            **{name.lower(): version(name) for name in PACKAGES}}
