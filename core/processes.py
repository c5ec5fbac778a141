"""What a scheduler and a worker are as processes: their command, their environment and their options.

A server starts its own so (`core.cluster`); on other machines ``python -m core scheduler`` and ``worker`` become one.
The file knows Dask's names; it starts nothing but by becoming it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from core import settings
from core.settings import SettingError, store_url, worker_memory

ROOT = Path(__file__).resolve().parent.parent

CONFIGURATION = {
    "DASK_LOGGING__DISTRIBUTED": "warning",
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}
"""Dask's own, by environment: warnings only, nothing served over HTTP, and of its answers to a full memory only the
last one, which ends the worker: a worker that pauses would leave its lane waiting without a word. Its profiler, which
stops the training a hundred times a second, and its measuring of its own loop show nothing here. And what glibc does
with freed memory: Dask would have it given back at once, and every activation paged in anew, at half the speed."""


def environment(store: str) -> dict[str, str]:
    """Return the environment of a process; `store`: URL of the store that workers write to."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**CONFIGURATION, **os.environ, "DRIFTSCOPE_STORE": store, "PYTHONPATH": path}


def command(cls: str, options: dict[str, Any], *address: str) -> list[str]:
    """Return the command of a process. `address`: of the scheduler, for a worker."""
    return [sys.executable, "-m", "dask", "spec", *address, "--spec", json.dumps({"cls": cls, "opts": options})]


def scheduler(host: str | None, port: int) -> dict[str, Any]:
    """Return the options of a scheduler. `host`: the address that it listens at, None for all.

    Dask itself never tries a job twice (allowed failures 0): when a worker dies it would blame every job that waits at
    that worker as well. The store counts, run by run.
    """
    return {**_common(host), "port": port, "allowed_failures": 0}


def worker(lane: str, host: str | None) -> dict[str, Any]:
    """Return the options of a worker of a lane, which a nanny starts and starts again."""
    return {**_common(host), "nthreads": 1, "memory_limit": worker_memory(), "preload": ["core.worker"],
            "resources": {lane: 1}}


def become_scheduler(host: str | None, port: int) -> NoReturn:
    """Turn this process into a scheduler."""
    _become(command("distributed.Scheduler", scheduler(host, port)))


def become_worker(lane: str, host: str | None) -> NoReturn:
    """Turn this process into a worker of a lane, for the scheduler that the environment names.

    Errors: SettingError when it names none.
    """
    address = settings.scheduler()
    if address is None:
        raise SettingError("DRIFTSCOPE_SCHEDULER is not set; allowed: the address of a scheduler, such as "
                           "tcp://HOST:8786")
    _become(command("distributed.Nanny", worker(lane, host), address))


def _become(words: list[str]) -> NoReturn:
    os.execvpe(words[0], words, environment(store_url()))


def _common(host: str | None) -> dict[str, Any]:
    shown = host or "0.0.0.0"
    return {"host": host, "dashboard": False, "dashboard_address": f"{shown}:0"}
