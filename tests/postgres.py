"""A PostgreSQL server of the tests' own, from the system's packages, with a password, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ports import free_port

USER, PASSWORD = "driftscope", "not:for/others"
QUOTED = "not%3Afor%2Fothers"
"""The password, and as a URL has it."""

SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
"""Nothing in the folder outlives the tests."""


class Postgres:
    """A server that can be stopped and started. `url`: of a database by its name."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder, self._count = folder, 0
        self._tools = _tools()
        (folder / "password").write_text(PASSWORD)
        self._call("initdb", "-D", folder / "data", "-U", USER, f"--pwfile={folder / 'password'}", "-A",
                   "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        self.start()

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://{USER}:{QUOTED}@127.0.0.1:{self.port}/{name}"

    def database(self) -> str:
        """Create a database; return its URL."""
        self._count += 1
        name = f"test{self._count}"
        self._call("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", USER, name)
        return self.url(name)

    def start(self) -> None:
        options = " ".join(f"-c {one}" for one in (*SETTINGS, "listen_addresses=127.0.0.1", f"port={self.port}",
                                                   f"unix_socket_directories={self._folder}"))
        self._call("pg_ctl", "-D", self._folder / "data", "-l", self._folder / "log", "-w", "-o", options, "start")

    def stop(self) -> None:
        """End it; who is connected loses the connection."""
        self._call("pg_ctl", "-D", self._folder / "data", "-m", "fast", "-w", "stop")

    def _call(self, tool: str, *arguments: Any) -> None:
        environment = {"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"}
        subprocess.run([self._tools / tool, *map(str, arguments)], check=True, cwd=self._folder, env=environment,
                       stdout=subprocess.DEVNULL, timeout=60, **_somebody())


def _tools() -> Path:
    """Return the folder of the newest server that is installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not folders:
        raise RuntimeError("no PostgreSQL server: install the package postgresql")
    return folders[-1].parent


def _somebody() -> dict[str, Any]:
    """PostgreSQL refuses to be root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server."""
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server = Postgres(folder)
        try:
            yield server
        finally:
            server.stop()
