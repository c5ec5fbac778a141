"""The workers as the scheduler knows them: each says what it is when it joins, and what it plays as long as it lives.

It knows Dask's words for a worker; it knows no torch, and of jobs only their names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.store import LANES

FACTS, JOBS = "driftscope_facts", "driftscope_jobs"
"""Under these names a worker tells the scheduler what it is, and what it plays now."""


@dataclass(frozen=True)
class Worker:
    """One worker process. `memory_limit`: where it is ended, 0 for nowhere, like `memory_bytes` in bytes.

    `pid`: None where it has not said it; `facts`: its versions and device (`core.devices.machine`).
    """

    address: str
    name: str
    host: str
    lanes: tuple[str, ...]
    memory_bytes: int
    memory_limit: int
    pid: int | None = None
    jobs: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def introduce(worker: Any, facts: Mapping[str, Any]) -> None:
    """Have Dask's `worker`, which is about to join, tell what it is, and then again and again what it plays."""
    said = {"pid": os.getpid(), **{name: str(value) for name, value in facts.items()}}
    worker.startup_information[FACTS] = lambda _: said
    worker.metrics[JOBS] = lambda one: [job_of(task.key) for task in one.state.executing]


def key_of(job: str, count: int) -> str:
    """Return what a job is called in Dask the `count`-th time that one is handed over."""
    return f"{job}-{count}"


def job_of(key: str) -> str:
    """Return the job of a key of `key_of`."""
    return key.rpartition("-")[0]


def read(identity: Mapping[str, Any]) -> tuple[Worker, ...]:
    """Return the workers of what a scheduler says of itself, in the order of the lanes; those of other uses are left
    out.
    """
    found = [_worker(address, said) for address, said in identity["workers"].items()]
    return tuple(sorted((one for one in found if one.lanes), key=lambda one: (LANES.index(one.lanes[0]), one.name)))


def _worker(address: str, said: Mapping[str, Any]) -> Worker:
    facts, metrics = dict(said.get(FACTS, {})), said["metrics"]
    pid, lanes = facts.pop("pid", None), tuple(lane for lane in LANES if lane in said["resources"])
    return Worker(address, str(said["name"]), said["host"], lanes, int(metrics.get("memory", 0)),
                  int(said["memory_limit"] or 0), pid, tuple(metrics.get(JOBS, ())), facts)
