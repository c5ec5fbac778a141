"""Training: an experiment played step by step, each recorded step a Snapshot; step 0 is the initialization.

It puts model, data, loss and recorder together and says in which surroundings they ran. It does not know where
snapshots go, nor who reads them.

Shapes: B batch, T positions, D = d_model, V = vocabulary.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.corpus import Batch, Texts, batch, lengths
from core.experiment import Experiment, engine_version
from core.fields import ExperimentError, refusal
from core.inits import generator, unit_normals
from core.model import Output, Stack, build
from core.pairing import fingerprint
from core.recorder import Recorder
from core.trace import Snapshot

DYNAMIC_LOSS_SCALE = 65536.0
"""Where a dynamic loss scale starts."""


class Training(Iterator[Snapshot]):
    """The snapshots of a run, oldest first. `provenance`: the surroundings as JSON-able facts, there from the start."""

    def __init__(self, experiment: Experiment, texts: Texts | None = None) -> None:
        device = pick_device(experiment.protocol.device)
        self.experiment = experiment.resolved(device.type)
        _check_precision(self.experiment, device)
        first = batch(experiment, 0, texts)
        stack = build(self.experiment)
        self.provenance = {**surroundings(self.experiment, device), "pairing": fingerprint(stack, first)}
        stack.to(device).train(self.experiment.protocol.mode == "train")
        self._snapshots = self._play(stack, first.to(device))

    def __next__(self) -> Snapshot:
        """Play up to the next recorded step."""
        return next(self._snapshots)

    def _play(self, stack: Stack, first: Batch) -> Iterator[Snapshot]:
        detail, residual = self.experiment.protocol.detail or "full", self.experiment.model.residual
        with Recorder(stack, detail=detail, residual=residual) as recorder:
            tokens = None if first.targets is None else first.inputs
            recorder.begin(first.mask, loss_scale(self.experiment), tokens=tokens)
            loss = step(stack, first, 0)
            yield recorder.snapshot(0, float(loss))


def train(experiment: Experiment, texts: Texts | None = None) -> Training:
    """Return the run of `experiment`, an iterator of its snapshots.

    `texts`: gives the visitor's own text that ``input.text`` names by its hash. Errors: ExperimentError when that text
    is missing, or the device or precision is not to be had here.
    """
    return Training(experiment, texts)


def step(stack: Stack, data: Batch, number: int) -> Tensor:
    """Play one forward and backward pass; return the loss, a scalar, and leave gradients times the loss scale.

    Dropout draws from a generator of its own, seeded from (seed, "dropout", step); the caller's is left as it was.
    """
    experiment = stack.experiment
    with _dropout_draws(experiment, data.inputs.device, number):
        loss = LOSSES[experiment.protocol.loss or ""](stack(data.inputs, data.mask), data, experiment)
        (loss * loss_scale(experiment)).backward()  # type: ignore[no-untyped-call]
    detached: Tensor = loss.detach()
    return detached


def next_token(output: Output, data: Batch, _experiment: Experiment) -> Tensor:
    """Return the mean cross entropy of the next token over real tokens, in nats, in float32 at least."""
    assert output.logits is not None and data.targets is not None
    targets = data.targets if data.mask is None else data.targets.masked_fill(~data.mask, _IGNORED)
    return F.cross_entropy(_wide(output.logits).flatten(0, 1), targets.flatten(), ignore_index=_IGNORED)


def projection(output: Output, data: Batch, experiment: Experiment) -> Tensor:
    """Return Σ⟨x_out, r⟩/√(B·T·D) over real tokens, r ~ N(0, 1) per entry: a gradient of known size at the top."""
    x = _wide(output.x)  # (B, T, D)
    direction = unit_normals(experiment.protocol.seed, "projection", tuple(x.shape)).to(x.device)
    if data.mask is not None:
        direction = direction * data.mask.unsqueeze(-1)
    return (x * direction).sum() / math.sqrt(x.numel())


LOSSES: dict[str, Callable[[Output, Batch, Experiment], Tensor]] = {"next_token": next_token, "projection": projection}

_IGNORED = -100


def loss_scale(experiment: Experiment) -> float:
    """Return what the loss is multiplied with before the backward pass."""
    scale = experiment.protocol.loss_scale
    return DYNAMIC_LOSS_SCALE if isinstance(scale, str) else scale or 1.0


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


def surroundings(experiment: Experiment, device: torch.device) -> dict[str, Any]:
    """Return what a result depends on beside the experiment, and what a reader wants to know of the run."""
    protocol = experiment.protocol
    facts = {
        "engine": engine_version(), "torch": str(torch.__version__), "numpy": np.__version__,
        "python": platform.python_version(), "device": str(device), "device_name": _device_name(device),
        "dtype": protocol.dtype, "threads": torch.get_num_threads(), "seed": protocol.seed,
    }
    real = lengths(experiment)
    return facts if real is None else {**facts, "lengths": list(real)}


_OWN_GENERATORS: dict[str, Callable[[torch.device], tuple[torch.Generator, ...]]] = {
    "cpu": lambda _: (),
    "cuda": lambda device: (torch.cuda.default_generators[device.index or 0],),
    "mps": lambda _: (torch.mps._get_default_mps_generator(),),
}
"""Device kind → the generators that dropout there draws from, beside the CPU's."""


@contextmanager
def _dropout_draws(experiment: Experiment, device: torch.device, number: int) -> Iterator[None]:
    """Let what runs inside draw from (seed, "dropout", `number`), and put the generators back afterwards."""
    if not experiment.model.dropout:
        yield
        return
    seed = generator(experiment.protocol.seed, f"dropout.{number}").initial_seed()
    generators = (torch.default_generator, *_OWN_GENERATORS[device.type](device))
    states = [one.get_state() for one in generators]
    try:
        for one in generators:
            one.manual_seed(seed)
        yield
    finally:
        for one, state in zip(generators, states, strict=True):
            one.set_state(state)


def _check_precision(experiment: Experiment, device: torch.device) -> None:
    if device.type == "mps" and experiment.protocol.dtype == "float64":
        raise ExperimentError('protocol.dtype is "float64"; mps has none; allowed there: float32, bfloat16, float16')


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _wide(x: Tensor) -> Tensor:
    """Return `x` in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
