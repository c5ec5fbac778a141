"""The store's tables and how its database is opened: SQLite in a file, or PostgreSQL, by URL.

It knows columns, pragmas and transactions; it does not know what a run goes through (`core.store`, `core.claims`).
Times are seconds since 1970. A transaction that writes takes SQLite's write lock at its start, so that two processes
wait for each other instead of failing half-way; one that reads never waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    cast,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

SCHEMA_VERSION = "3"
BACKENDS = ("sqlite", "postgresql")
BUSY_TIMEOUT_S = 30
ALONE = text("SELECT pg_advisory_xact_lock(20170612)")
"""PostgreSQL's counterpart of SQLite's one writer: held to the end of the transaction. The number is arbitrary."""

METADATA = MetaData()

JOBS = Table(
    "jobs", METADATA,
    Column("id", String(32), primary_key=True),
    Column("lane", String(16), nullable=False),
    Column("server", String(64), nullable=False),  # who sees to it
    Column("heartbeat", Double, nullable=False),   # of that server
    Column("created", Double, nullable=False),
)
"""What was asked for together; its runs in order are those with this job, by number."""

RUNS = Table(
    "runs", METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("key", String(64), nullable=False, index=True),
    Column("claim", String(64), unique=True),  # the key while this run stands for it; null once it failed
    Column("job", String(32), ForeignKey("jobs.id"), nullable=False, index=True),
    Column("lane", String(16), nullable=False),
    Column("experiment", Text, nullable=False),  # canonical JSON
    Column("text", String(80), index=True),      # content hash of the visitor's own text
    Column("look", String(24)),                  # the head whose weights it keeps (core.look); such a run is not listed
    Column("name", Text),                        # a visitor's own
    Column("status", String(16), nullable=False),
    Column("error", Text),
    Column("provenance", Text),  # JSON
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    Column("heartbeat", Double),
    Column("attempts", Integer, nullable=False, default=0),  # how often it was claimed
    Column("deaths", Integer, nullable=False, default=0),    # how many workers died over it
    Column("cancel", Boolean, nullable=False, default=False),
    Column("pinned", Boolean, nullable=False, default=False),
    Column("steps_done", Integer, nullable=False, default=0),
    Column("steps_total", Integer, nullable=False),
    Column("pace", Double),  # seconds a step takes now
    Column("stored_bytes", BigInteger, nullable=False, default=0),
    Index("runs_by_status", "status", "lane"),
)

SNAPSHOTS = Table(
    "snapshots", METADATA,
    Column("run", String(32), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("loss", Double),     # null: NaN, which SQLite cannot hold
    Column("written", Double),  # null in what an older version wrote
    Column("event", String(16)),  # from core.stops.event
    Column("content", LargeBinary, nullable=False),
)

CHECKPOINTS = Table(
    "checkpoints", METADATA,
    Column("run", String(32), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, nullable=False),  # the next one that is played
    Column("bytes", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
"""Where an unfinished training can go on from: the last one of each run."""

TEXTS = Table(
    "texts", METADATA,
    Column("hash", String(80), primary_key=True),
    Column("content", Text, nullable=False),
    Column("created", Double, nullable=False),
)

FACTS = Table(
    "facts", METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)


MIGRATIONS: dict[str, tuple[str, ...]] = {
    "1": ("ALTER TABLE runs ADD COLUMN name TEXT", "ALTER TABLE runs ADD COLUMN pace DOUBLE PRECISION",
          "ALTER TABLE snapshots ADD COLUMN loss DOUBLE PRECISION",
          "ALTER TABLE snapshots ADD COLUMN written DOUBLE PRECISION",
          "ALTER TABLE snapshots ADD COLUMN event VARCHAR(16)"),
    "2": ("ALTER TABLE runs ADD COLUMN look VARCHAR(24)",),
}
"""Schema of an older version → what makes it the next one; a number up each time. Missing tables are made anyway."""


class StoreError(RuntimeError):
    """The store cannot be opened or used, or does not hold what was asked for; the message is one sentence."""


class Database:
    """An opened database. `reading` and `writing` are its two kinds of transaction.

    `shown_url`: its address without what may be secret; `backend`: one of BACKENDS.
    """

    def __init__(self, url: str) -> None:
        parsed = _checked(url)
        self.url = parsed.render_as_string(hide_password=False)
        self.shown_url = _shown(parsed)
        self.backend = parsed.get_backend_name()
        try:
            self._engine = _engine(parsed)
            _create_tables(self._engine, parsed)
        except (SQLAlchemyError, OSError, ImportError) as error:
            raise StoreError(f"the store {self.shown_url} cannot be opened: {_reason(error)}; "
                             "DRIFTSCOPE_STORE names another") from error
        self._reader = self._engine.execution_options(only_reads=True)
        self._is_sqlite = self.backend == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one consistent state and never waits for a writer.

        Errors: StoreError when the database fails.
        """
        with self._one_sentence(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, alone: bool = False) -> Iterator[Connection]:
        """Open a transaction that is committed at the end; `alone`: no other such transaction runs meanwhile.

        Errors: StoreError when the database fails: it is locked for long, the disk is full…
        """
        with self._one_sentence(), self._engine.begin() as connection:
            if alone and not self._is_sqlite:
                connection.execute(ALONE)
            yield connection

    def shrink(self) -> None:
        """Give free pages back to the file system, where the database does not do so by itself."""
        if self._is_sqlite:
            with self._one_sentence(), self._engine.connect() as connection:
                cursor = connection.connection.cursor()
                cursor.executescript("PRAGMA incremental_vacuum")  # `execute` would give one page back and stop
                cursor.close()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Turn what the database complains of into a StoreError, so that everybody catches one type."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StoreError(f"the store {self.shown_url} cannot be used now: {_reason(error)}") from error


def text_bytes(connection: Connection) -> ColumnElement[int]:
    """Return the size in bytes of a kept text, as this database counts it."""
    if connection.dialect.name == "sqlite":
        return func.length(cast(TEXTS.c.content, LargeBinary))
    return func.octet_length(TEXTS.c.content)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError("DRIFTSCOPE_STORE is not a database URL; allowed: sqlite:///FILE, "
                         "postgresql+psycopg://USER@HOST/NAME") from None
    backend = parsed.get_backend_name()
    if backend not in BACKENDS:
        raise StoreError(f"DRIFTSCOPE_STORE names a {backend} database; allowed: {', '.join(BACKENDS)}")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError("DRIFTSCOPE_STORE names a SQLite database in memory, which workers cannot see; allowed: "
                         "sqlite:///FILE")
    return parsed


def _shown(url: URL) -> str:
    """Return the address without its password, and without what follows a ``?``, which may be one too."""
    return url.set(query={}).render_as_string()


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    Path(url.database or "").resolve().parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, pool_size=10, max_overflow=40)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """Set a new SQLite connection up; transactions are begun by `_begin`, not by the driver."""
    connection.isolation_level = None
    for pragma in ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("only_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _create_tables(engine: Engine, url: URL) -> None:
    """Create what is missing and bring an older schema up to date; two processes may do so at once."""
    with engine.begin() as connection:
        if connection.dialect.name != "sqlite":
            connection.execute(ALONE)
        METADATA.create_all(connection)
        found = connection.scalar(select(FACTS.c.value).where(FACTS.c.name == "schema"))
        if found is None:
            connection.execute(insert(FACTS).values(name="schema", value=SCHEMA_VERSION))
        while found in MIGRATIONS:
            for statement in MIGRATIONS[found]:
                connection.execute(text(statement))
            found = str(int(found) + 1)
            connection.execute(update(FACTS).where(FACTS.c.name == "schema").values(value=found))
    if found not in (None, SCHEMA_VERSION):
        engine.dispose()
        raise StoreError(f"the store {_shown(url)} has schema {found}, this program needs {SCHEMA_VERSION}; "
                         "DRIFTSCOPE_STORE names another")
