"""The whole of the team demo on loopback: PostgreSQL, a scheduler, workers, the application, nginx under a sub-path.

The same programs and the same files as in the containers; nothing here is a stand-in.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from browser import ROOT, server
from ports import free_port
from postgres import Postgres

BASE = "team/driftscope"


class Process:
    """One process of the stack, which can be killed and started again."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._words, self._environment = words, environment
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, cwd=ROOT, env=os.environ | self._environment,
                                        start_new_session=True)

    def kill(self) -> None:
        """End it and what it started, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Stack:
    """A running stack. `address`: of the proxy, with the sub-path; `direct`: of the application itself."""

    def __init__(self, store: str, folder: Path, lanes: tuple[str, ...] = ("probe", "train")) -> None:
        self.port = free_port()
        scheduler = f"tcp://127.0.0.1:{self.port}"
        self.environment = {"DRIFTSCOPE_STORE": store, "DRIFTSCOPE_SCHEDULER": scheduler,
                            "DRIFTSCOPE_WORKER_THREADS": "1", "DRIFTSCOPE_WORKER_MEMORY": "2GiB",
                            "DASK_TEMPORARY_DIRECTORY": str(folder)}
        self.scheduler = Process(*core("scheduler", "--port", str(self.port)), **self.environment)
        self.workers = {lane: self.worker(lane) for lane in lanes}

    def worker(self, lane: str) -> Process:
        """Start a worker of a lane."""
        return Process(*core("worker", "--lane", lane), **self.environment)

    def kill(self) -> None:
        for one in (*self.workers.values(), self.scheduler):
            one.kill()


def core(command: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "core", command, "--host", "127.0.0.1", *options]


@contextmanager
def stack(postgres: Postgres, **environment: str) -> Iterator[tuple[Stack, str]]:
    """Run the stack with a database of its own; yield it and the proxy's address with the sub-path."""
    with tempfile.TemporaryDirectory(prefix="stack-", ignore_cleanup_errors=True) as name:
        parts = Stack(postgres.database(), Path(name))
        try:
            with (server(ROOT / "app.py", base=BASE, **parts.environment, **environment) as direct,
                  nginx(direct) as address):
                yield parts, f"{address}/{BASE}"
        finally:
            parts.kill()


@contextmanager
def nginx(application: str) -> Iterator[str]:
    """Run nginx with the configuration of the containers before an application; yield its address."""
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="nginx-") as name:
        folder = Path(name)
        values = {"LISTEN": f"127.0.0.1:{port}", "APPLICATION": application.removeprefix("http://").partition("/")[0],
                  "BASE": BASE}
        template = (ROOT / "deploy" / "nginx.conf.template").read_text("utf-8")
        (folder / "site.conf").write_text(filled(template, values))
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
        running = Process(binary, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"))
        try:
            answers(f"http://127.0.0.1:{port}/{BASE}/_stcore/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            running.kill()


def filled(template: str, values: Mapping[str, str]) -> str:
    """Put values where the template names them, as the image of nginx does."""
    for name, value in values.items():
        template = template.replace(f"${{{name}}}", value)
    return template


def answers(address: str, limit_s: float = 30) -> None:
    """Wait until an address answers."""
    end = time.monotonic() + limit_s
    while True:
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


MAIN = """
daemon off;
pid {folder}/pid;
events {{ worker_connections 512; }}
http {{
  include /etc/nginx/mime.types;
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  include {folder}/site.conf;
}}
"""
