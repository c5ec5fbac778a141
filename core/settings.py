"""What the environment says about a server: where its store is, and how large things may grow.

Every variable is one entry of SETTINGS. The file knows the names, their form and their defaults; it does not know what
a store or a worker is. A value that cannot be read is refused with one sentence.
"""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

SETTINGS: dict[str, str] = {
    "DRIFTSCOPE_STORE": "URL of the store's database, sqlite or postgresql; default: a SQLite file in the user's data "
                        "folder",
    "DRIFTSCOPE_STORE_LIMIT": "size beyond which the oldest unpinned finished runs are removed; default: 2GiB",
    "DRIFTSCOPE_SCHEDULER": "address of an existing Dask scheduler; default: a cluster of this server's own",
    "DRIFTSCOPE_WORKER_MEMORY": "memory of one worker; default: a quarter of the machine's",
    "DRIFTSCOPE_PROBE_WORKERS": "workers of the lane of probes; default: 2, or 1 on a single core",
    "DRIFTSCOPE_WORKER_THREADS": "torch threads of one worker; default: all cores but one, shared by the probe workers",
    "DRIFTSCOPE_CHECKPOINT_SECONDS": "how often a training leaves a checkpoint; default: 30",
    "DRIFTSCOPE_LOG": "form of the lines on standard error, plain or json: one object a line; default: plain",
    "DRIFTSCOPE_LIMIT_PARAMETERS": "largest model that is accepted, in parameters; default: 1e9",
    "DRIFTSCOPE_LIMIT_FLOPS": "largest estimate of operations of one request for probes; default: 2e13",
    "DRIFTSCOPE_LIMIT_TRAINING_FLOPS": "the same of one training with its variants; default: 2e14",
    "DRIFTSCOPE_LIMIT_PEAK_BYTES": "largest estimate of memory of one run; default: a worker's memory less 1GiB, but "
                                   "at least half of it",
    "DRIFTSCOPE_LIMIT_STORED_BYTES": "largest estimate of what one request stores; default: 256MiB",
}
"""Every environment variable that the engine reads, and what it means."""

GIB = 2**30
LOG_FORMS = ("plain", "json")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": GIB, "TIB": 2**40}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*")


class SettingError(ValueError):
    """An environment variable cannot be read; the message names it, its value and what is allowed."""


def store_url() -> str:
    """Return the store's URL."""
    return os.environ.get("DRIFTSCOPE_STORE") or f"sqlite:///{data_folder() / 'driftscope.db'}"


def data_folder() -> Path:
    """Return the folder that belongs to this program in the user's data folder (XDG base directories)."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "driftscope"


def store_limit() -> int:
    """Return the size in bytes beyond which old runs are removed."""
    return int(_number("DRIFTSCOPE_STORE_LIMIT", 2 * GIB))


def scheduler() -> str | None:
    """Return the address of an existing Dask scheduler, or None for a cluster of one's own."""
    return os.environ.get("DRIFTSCOPE_SCHEDULER") or None


def worker_memory() -> int:
    """Return the memory of one worker in bytes; control groups count as the machine."""
    from distributed.system import MEMORY_LIMIT

    return int(_number("DRIFTSCOPE_WORKER_MEMORY", 0.25 * MEMORY_LIMIT))


def probe_workers() -> int:
    """Return how many probes are computed at a time."""
    from dask.system import CPU_COUNT

    return max(1, int(_number("DRIFTSCOPE_PROBE_WORKERS", min(CPU_COUNT, 2))))


def worker_threads() -> int:
    """Return the torch threads of one worker: one core is left to the web server, the rest is shared."""
    from dask.system import CPU_COUNT

    return max(1, int(_number("DRIFTSCOPE_WORKER_THREADS", (CPU_COUNT - 1) // probe_workers())))


def checkpoint_seconds() -> float:
    """Return after how many seconds a training leaves its next checkpoint."""
    return _number("DRIFTSCOPE_CHECKPOINT_SECONDS", 30.0)


def log_form() -> str:
    """Return the form of what is logged: plain or json."""
    form = os.environ.get("DRIFTSCOPE_LOG") or LOG_FORMS[0]
    if form not in LOG_FORMS:
        raise SettingError(f'DRIFTSCOPE_LOG is "{form}"; allowed: {", ".join(LOG_FORMS)}')
    return form


def limits(training: bool = False) -> dict[str, float]:
    """Return the largest accepted value of each field of an estimate (`core.cost.Cost`), of probes or of trainings."""
    memory = worker_memory()
    flops = (("DRIFTSCOPE_LIMIT_TRAINING_FLOPS", 2e14) if training else ("DRIFTSCOPE_LIMIT_FLOPS", 2e13))
    return {
        "parameters": _number("DRIFTSCOPE_LIMIT_PARAMETERS", 1e9),
        "flops": _number(*flops),
        "peak_bytes": _number("DRIFTSCOPE_LIMIT_PEAK_BYTES", max(memory - GIB, memory / 2)),
        "stored_bytes": _number("DRIFTSCOPE_LIMIT_STORED_BYTES", 256 * 2**20),
    }


def check() -> None:
    """Read every variable once.

    Errors: SettingError when one cannot be read.
    """
    in_force()


def in_force() -> dict[str, float | str | None]:
    """Return what every variable comes to, by its name; nothing of it is secret.

    Where the store is, is left out: its address may hold a password.
    Errors: SettingError when a variable cannot be read.
    """
    found = {
        "DRIFTSCOPE_STORE_LIMIT": store_limit(), "DRIFTSCOPE_SCHEDULER": scheduler(),
        "DRIFTSCOPE_WORKER_MEMORY": worker_memory(), "DRIFTSCOPE_PROBE_WORKERS": probe_workers(),
        "DRIFTSCOPE_WORKER_THREADS": worker_threads(), "DRIFTSCOPE_CHECKPOINT_SECONDS": checkpoint_seconds(),
        "DRIFTSCOPE_LOG": log_form(),
        **{f"DRIFTSCOPE_LIMIT_{name.upper()}": value for name, value in limits().items()},
        "DRIFTSCOPE_LIMIT_TRAINING_FLOPS": limits(training=True)["flops"],
    }
    return {name: found[name] for name in SETTINGS if name in found}


def surroundings() -> str:
    """Return, in words, what decides which device the workers find, as far as it can be seen without torch."""
    graphics = sorted(path.name for pattern in ("nvidia[0-9]*", "dxg", "kfd") for path in Path("/dev").glob(pattern))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    return (f"{platform.system()} {platform.machine()}, torch {version('torch')}, devices "
            f"{' '.join(graphics) or 'none'}, visible {visible}")


def _number(name: str, default: float) -> float:
    """Return the number, with an optional unit of bytes, that the variable `name` holds."""
    text = os.environ.get(name)
    if not text:
        return default
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].upper() not in _UNITS:
        raise SettingError(f'{name} is "{text}"; allowed: a number, with or without a unit such as MB or GiB')
    return float(match[1]) * _UNITS[match[2].upper()]
