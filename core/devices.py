"""Where a run takes place: the devices that are to be had here, and the surroundings that a result depends on.

It knows torch's devices and the machine; it does not know what is run there.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.corpus import lengths
from core.experiment import Experiment, engine_version
from core.fields import ExperimentError, refusal


def available_devices() -> tuple[str, ...]:
    """Return the devices that are to be had here, the one that ``auto`` takes first."""
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return (*cuda, *mps, "cpu")


def pick_device(name: str) -> torch.device:
    """Return the device of this name: auto = cuda, else mps, else cpu.

    Errors: ExperimentError when it is not to be had here, with those that are.
    """
    here = available_devices()
    found = here[0] if name == "auto" else "cuda:0" if name == "cuda" else name
    if found not in here:
        raise refusal("protocol.device", name, f"what is available here: auto, {', '.join(reversed(here))}")
    return torch.device(found)


def check_precision(experiment: Experiment, device: torch.device) -> None:
    """Refuse a precision that the device does not have. Errors: ExperimentError."""
    if device.type == "mps" and experiment.protocol.dtype == "float64":
        raise ExperimentError('protocol.dtype is "float64"; mps has none; allowed there: float32, bfloat16, float16')


def surroundings(experiment: Experiment, device: torch.device) -> dict[str, Any]:
    """Return what a result depends on beside the experiment, and what a reader wants to know of the run."""
    protocol = experiment.protocol
    facts = {**machine(device), "dtype": protocol.dtype, "seed": protocol.seed}
    real = lengths(experiment)
    return facts if real is None else {**facts, "lengths": list(real)}


def machine(device: torch.device) -> dict[str, Any]:
    """Return what of the surroundings is the same for every run in this process on the device."""
    return {
        "engine": engine_version(), "torch": str(torch.__version__), "numpy": np.__version__,
        "python": platform.python_version(), "device": str(device), "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
