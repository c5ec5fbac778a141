"""The store: runs, their snapshots, visitors' texts and facts about the workers; the truth of every run.

It knows what a run is and how it is asked for, read, cancelled and forgotten; who computes it and how it gets along
is in `core.claims`. It never computes anything and imports no torch. Everything a method returns is a copy.

A run: queued → running → done, stopped (a training that met a non-finite value), failed or cancelled. While a run
stands for its experiment's key nobody computes that key a second time; after it failed or was cancelled it may be
asked for again, which makes a new run.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, null, select, update

from core.database import FACTS, JOBS, RUNS, SNAPSHOTS, TEXTS, Database, StoreError
from core.experiment import Experiment, parse
from core.rules import text_hash
from core.settings import store_url

LANES = ("probe", "train")
UNFINISHED = ("queued", "running")
FINISHED = ("done", "stopped", "failed", "cancelled")
STATUSES = (*UNFINISHED, *FINISHED)

GRACE_S = 1200.0
"""A text that no run needs is kept this long in a store that is over its limit: time enough to ask for a run of it."""


@dataclass(frozen=True)
class Ask:
    """One experiment that is wanted: its key, canonical JSON, number of steps, and the hash of its own text if any.

    `look`: the head whose weights the run keeps (`core.look`); the key is then that of both.
    """

    key: str
    experiment: str
    steps: int = 1
    text: str | None = None
    look: str | None = None


@dataclass(frozen=True)
class RunView:
    """What a run looks like at one moment. `queue_position`: how many unfinished runs of its lane stand before it.

    `name`: a visitor's own; `deaths`: how many workers have died over it since it last got on; `pace`: seconds that a
    step takes now, None where nobody computes it.
    """

    id: str
    key: str
    lane: str
    status: str
    error: str | None
    steps_done: int
    steps_total: int
    queue_position: int
    created: float
    started: float | None
    finished: float | None
    job: str = ""
    name: str | None = None
    pinned: bool = False
    deaths: int = 0
    pace: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in FINISHED


class Store:
    """An opened store; `url` None: the one the environment names. Threads may share it."""

    def __init__(self, url: str | None = None) -> None:
        self.database = Database(url or store_url())
        self.url = self.database.url

    def close(self) -> None:
        """Close every connection."""
        self.database.close()

    def keep_text(self, text: str) -> str:
        """Keep a visitor's own text and return the content hash that stands for it; a hash stays what it is.

        A text that is kept already counts as new again, so that pruning leaves time to ask for a run of it.
        Errors: ExperimentError when an experiment may not hold the text, for instance for its length.
        """
        content_hash = _checked_hash(text)
        chosen = TEXTS.c.hash == content_hash
        with self.database.reading() as connection:  # pages ask at every change: most need not wait for a writer
            created = connection.scalar(select(TEXTS.c.created).where(chosen))
        if created is None or created < time.time() - GRACE_S / 2:
            with self.database.writing(alone=True) as connection:
                kept = connection.execute(update(TEXTS).where(chosen).values(created=time.time())).rowcount
                if not kept and text != content_hash:
                    connection.execute(insert(TEXTS).values(hash=content_hash, content=text, created=time.time()))
        return content_hash

    def text(self, content_hash: str) -> str | None:
        """Return the text that `content_hash` stands for, or None where it is not kept here."""
        with self.database.reading() as connection:
            return connection.scalar(select(TEXTS.c.content).where(TEXTS.c.hash == content_hash))

    def put_fact(self, name: str, value: str) -> None:
        """Keep one fact about this installation, in place of an older value."""
        with self.database.writing(alone=True) as connection:
            if not connection.execute(update(FACTS).where(FACTS.c.name == name).values(value=value)).rowcount:
                connection.execute(insert(FACTS).values(name=name, value=value))

    def fact(self, name: str) -> str | None:
        """Return the fact `name`, or None while nobody has written it."""
        with self.database.reading() as connection:
            return connection.scalar(select(FACTS.c.value).where(FACTS.c.name == name))

    def forget_fact(self, name: str) -> None:
        """Forget the fact `name`, if it is known."""
        with self.database.writing() as connection:
            connection.execute(delete(FACTS).where(FACTS.c.name == name))

    def ask(self, asks: Sequence[Ask], lane: str, server: str, apart: bool = False) -> list[str]:
        """Return the run of each ask, in order; new jobs take those that nobody has computed or is computing.

        The runs of a training are one job, whose variants step side by side, unless they are wanted `apart`; a probe is
        a job of its own, so that several workers share a comparison.

        However many threads, processes and servers ask for the same key at once, one run comes of it.
        """
        if lane not in LANES:
            raise ValueError(f'lane is "{lane}"; allowed: {", ".join(LANES)}')
        wanted = {ask.key: ask for ask in asks}
        standing = self.standing(list(wanted))
        if len(standing) < len(wanted):
            with self.database.writing(alone=True) as connection:
                standing = _standing(connection, list(wanted))
                missing = [ask for key, ask in wanted.items() if key not in standing]
                alone = apart or lane == "probe"
                for job in [[ask] for ask in missing] if alone else [missing] if missing else []:
                    standing |= new_job(connection, job, lane, server)
        return [standing[ask.key] for ask in asks]

    def standing(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the run that stands for each key, where somebody has computed it or is about to."""
        with self.database.reading() as connection:
            return _standing(connection, keys)

    def existing(self, run_ids: Sequence[str]) -> set[str]:
        """Return those of the runs that are in the store."""
        with self.database.reading() as connection:
            return set(connection.scalars(select(RUNS.c.id).where(RUNS.c.id.in_(run_ids))))

    def views(self, run_ids: Sequence[str]) -> list[RunView]:
        """Return the runs as they are now, in the order asked.

        Errors: StoreError when one is not in the store.
        """
        with self.database.reading() as connection:
            rows = connection.execute(view_columns().where(RUNS.c.id.in_(run_ids))).mappings()
            found = {row["id"]: as_view(row) for row in rows}
        missing = [run_id for run_id in run_ids if run_id not in found]
        if missing:
            raise StoreError(f"the store has no run {missing[0]}")
        return [found[run_id] for run_id in run_ids]

    def recent(self, limit: int = 50) -> list[RunView]:
        """Return the youngest runs that are listed, youngest first, without their provenance, which is long."""
        with self.database.reading() as connection:
            listed = view_columns(null()).where(RUNS.c.look.is_(None)).order_by(RUNS.c.number.desc()).limit(limit)
            return [as_view(row) for row in connection.execute(listed).mappings()]

    def statuses(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the status of each run that is in the store: cheap, also of hundreds."""
        found: dict[str, str] = {}
        with self.database.reading() as connection:
            for start in range(0, len(run_ids), 500):
                rows = select(RUNS.c.id, RUNS.c.status).where(RUNS.c.id.in_(run_ids[start:start + 500]))
                found |= {run: status for run, status in connection.execute(rows)}
        return found

    def unfinished(self, run_ids: Sequence[str]) -> int:
        """Return how many of the runs are not over yet; the cheapest question a waiting page can ask."""
        where = and_(RUNS.c.id.in_(run_ids), RUNS.c.status.in_(UNFINISHED))
        with self.database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(RUNS).where(where)) or 0

    def experiment(self, run_id: str) -> str:
        """Return the canonical JSON of a run's experiment.

        Errors: StoreError when it is not in the store.
        """
        with self.database.reading() as connection:
            found = connection.scalar(select(RUNS.c.experiment).where(RUNS.c.id == run_id))
        if found is None:
            raise StoreError(f"the store has no run {run_id}")
        return str(found)

    def snapshots(self, run_id: str, after: int = -1) -> list[tuple[int, bytes]]:
        """Return (step, content) of every snapshot of a run beyond step `after`, oldest first."""
        rows = select(SNAPSHOTS.c.step, SNAPSHOTS.c.content).where(SNAPSHOTS.c.run == run_id, SNAPSHOTS.c.step > after)
        with self.database.reading() as connection:
            return [(step, content) for step, content in connection.execute(rows.order_by(SNAPSHOTS.c.step))]

    def steps(self, run_id: str, after: int = -1) -> list[tuple[int, float, str | None]]:
        """Return (step, loss, event) of every snapshot of a run beyond step `after`, oldest first: cheap.

        The event is that of `core.stops.event`.
        """
        rows = select(SNAPSHOTS.c.step, SNAPSHOTS.c.loss, SNAPSHOTS.c.event).where(
            SNAPSHOTS.c.run == run_id, SNAPSHOTS.c.step > after)
        with self.database.reading() as connection:
            return [(step, math.nan if loss is None else loss, event)
                    for step, loss, event in connection.execute(rows.order_by(SNAPSHOTS.c.step))]

    def snapshots_at(self, run_id: str, steps: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return (step, content) of the snapshots of a run at these steps, oldest first."""
        found: list[tuple[int, bytes]] = []
        with self.database.reading() as connection:
            for start in range(0, len(steps), 500):
                rows = select(SNAPSHOTS.c.step, SNAPSHOTS.c.content).where(
                    SNAPSHOTS.c.run == run_id, SNAPSHOTS.c.step.in_(steps[start:start + 500]))
                found += [(step, content) for step, content in connection.execute(rows.order_by(SNAPSHOTS.c.step))]
        return found

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Ask the runs to end: a waiting one is cancelled at once, a running one is told so at its next step."""
        chosen = RUNS.c.id.in_(run_ids)
        with self.database.writing() as connection:
            connection.execute(update(RUNS).where(chosen, RUNS.c.status == "queued").values(
                status="cancelled", cancel=True, claim=None, finished=time.time()))
            connection.execute(update(RUNS).where(chosen, RUNS.c.status == "running").values(cancel=True, claim=None))


def lane_of(experiment: Experiment) -> str:
    """Return the lane in which an experiment is computed: a training must not make a probe wait."""
    return "train" if experiment.protocol.steps else "probe"


def _checked_hash(text: str) -> str:
    """Return the hash that stands for `text`, which is one that an experiment may hold."""
    experiment = parse({"input": {"text": text}})
    return str(text_hash(experiment.input.text))


def _standing(connection: Connection, keys: Sequence[str]) -> dict[str, str]:
    """Return the run that stands for each key, where there is one."""
    rows = connection.execute(select(RUNS.c.claim, RUNS.c.id).where(RUNS.c.claim.in_(keys)))
    return {key: run_id for key, run_id in rows}


def new_job(connection: Connection, asks: Iterable[Ask], lane: str, server: str, stands: bool = True) -> dict[str, str]:
    """Write one job with a run for each ask; return the runs by key. `stands`: each run stands for its key."""
    now, job = time.time(), secrets.token_hex(12)  # begins with no "-": the command line takes ids
    connection.execute(insert(JOBS).values(id=job, lane=lane, server=server, heartbeat=now, created=now))
    made = {}
    for ask in asks:
        made[ask.key] = secrets.token_hex(12)
        connection.execute(insert(RUNS).values(
            id=made[ask.key], key=ask.key, claim=ask.key if stands else None, job=job, lane=lane,
            experiment=ask.experiment, text=ask.text, look=ask.look, status="queued", created=now,
            steps_total=ask.steps))
    return made


def view_columns(provenance: ColumnElement[Any] = RUNS.c.provenance) -> Select[Any]:
    """Select what a RunView holds."""
    other = RUNS.alias("other")
    before = select(func.count()).select_from(other).where(
        other.c.status.in_(UNFINISHED), other.c.lane == RUNS.c.lane, other.c.number < RUNS.c.number,
        RUNS.c.status == "queued").scalar_subquery()
    names = ("id", "key", "lane", "status", "error", "steps_done", "steps_total", "created", "started", "finished",
             "job", "name", "pinned", "deaths", "pace")
    columns = [RUNS.c[name] for name in names]
    return select(*columns, before.label("queue_position"), provenance.label("provenance"))


def as_view(row: Mapping[Any, Any]) -> RunView:
    """Return a row of `view_columns` as a RunView."""
    return RunView(**{**row, "provenance": json.loads(row["provenance"] or "{}")})
