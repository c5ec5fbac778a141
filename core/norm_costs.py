"""What norms cost: time and memory traffic, fused and written out, forward and backward, side by side in one go.

Times are wall-clock and belong to the machine; their ratios, taken in turn in one process, are what can be compared.
Traffic is counted at the borders of kernels: every tensor that a kernel reads or writes, once. The file knows norms and
torch; it does not know who asks, nor what is better.

Shapes: B sequences, T positions, D features, N norms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.corpus import Batch
from core.experiment import Experiment
from core.look import DIRECTIONS, MEASURED, WAYS
from core.looking import Taker
from core.model import DTYPES
from core.norms import NormSettings
from core.tables import NORMS, load

QUARTILES = (0.25, 0.5, 0.75)

ROUND_S, BUDGET_S, FEWEST, MOST, REPEATS = 1e-3, 1.5, 5, 60, 32
"""Least time of one measurement; time for all; fewest and most rounds; most repeats in a measurement."""


class Costs(Taker):
    """Measures all norms on N(0, 1) tokens in the shape, dtype and settings of the experiment.

    `found`: ``seconds`` (N, 2, 2, 3), quartiles over rounds of one call; ``bytes``, ``kernels`` (N, 2, 2): traffic and
    number of kernels of one call. Axes: MEASURED, WAYS, DIRECTIONS of `core.look`, and QUARTILES. NaN where the norm
    refuses the shape.
    """

    def before(self, data: Batch, _step: int) -> None:
        """Measure; the step has no part in it."""
        self.found = measure(self.stack.experiment, data.inputs.device)


def measure(experiment: Experiment, device: torch.device) -> dict[str, np.ndarray]:
    """Return what `Costs` keeps."""
    there = {(row, column): call for row, name in enumerate(MEASURED) for column, way in enumerate(WAYS)
             if (call := _call(name, way, experiment, device)) is not None}
    shape = len(MEASURED), len(WAYS), len(DIRECTIONS)
    traffic, kernels = np.full(shape, np.nan), np.full(shape, np.nan)
    for place, call in there.items():
        for direction, counted in enumerate(call.traffic()):
            traffic[(*place, direction)], kernels[(*place, direction)] = counted
    seconds = np.full((*shape, len(QUARTILES)), np.nan)
    for place, times in _timed(there).items():
        seconds[place] = np.quantile(times, QUARTILES, axis=0).T
    return {"seconds": seconds, "bytes": traffic, "kernels": kernels}


def _timed(calls: Mapping[tuple[int, int], Call]) -> dict[tuple[int, int], np.ndarray]:
    """Return seconds a call, (rounds, 2) each: all of them in turn, round after round."""
    repeats = {place: call.repeats() for place, call in calls.items()}
    rounds: list[dict[tuple[int, int], tuple[float, float]]] = []
    begun = time.perf_counter()
    while len(rounds) < FEWEST or (len(rounds) < MOST and time.perf_counter() - begun < BUDGET_S):
        rounds.append({place: call.seconds(repeats[place]) for place, call in calls.items()})
    return {place: np.array([one[place] for one in rounds]) for place in calls}


@dataclass
class Call:
    """One norm on one tensor. `x` (B, T, D) requires a gradient, `above` is the one that comes back."""

    norm: torch.nn.Module
    x: Tensor
    above: Tensor

    def forward(self) -> Tensor:
        """Return the normalized x."""
        y: Tensor = self.norm(self.x)
        return y

    def backward(self, y: Tensor) -> Sequence[Tensor | None]:
        """Return the gradients of x and of the parameters."""
        return torch.autograd.grad(y, [self.x, *self.norm.parameters()], self.above, allow_unused=True)

    def traffic(self) -> list[tuple[float, float]]:
        """Return bytes and number of kernels, forward and backward."""
        with Traffic() as forward:
            y = self.forward()
        with Traffic() as backward:
            self.backward(y)
        return [(forward.bytes, forward.kernels), (backward.bytes, backward.kernels)]

    def repeats(self) -> int:
        """Return how many calls make a measurement long enough."""
        self.seconds(1)
        return int(np.clip(ROUND_S / max(self.seconds(1)[0], 1e-9), 1, REPEATS))

    def seconds(self, repeats: int) -> tuple[float, float]:
        """Return seconds of a forward and of a backward call, the mean over `repeats`."""
        forward, made = _clocked(self.forward, repeats, self.x.device)
        left = iter(made)
        backward, _ = _clocked(lambda: self.backward(next(left)), repeats, self.x.device)
        return forward, backward


def _clocked(call: Callable[[], Any], repeats: int, device: torch.device) -> tuple[float, list[Any]]:
    """Return seconds a call, and what the calls returned."""
    _wait(device)
    begun = time.perf_counter()
    made = [call() for _ in range(repeats)]
    _wait(device)
    return (time.perf_counter() - begun) / repeats, made


def _wait(device: torch.device) -> None:
    """Wait until the device has done all it was given; a CPU always has."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def _call(name: str, way: str, experiment: Experiment, device: torch.device) -> Call | None:
    """Return a norm ready to be called, or None where it refuses the shape."""
    model, source, dtype = experiment.model, experiment.input, DTYPES[experiment.protocol.dtype]
    settings = replace(NormSettings.of(model, torch.promote_types(dtype, torch.float32)), naive=way == "written")
    random = torch.Generator().manual_seed(experiment.protocol.seed)
    x, above = (torch.randn(source.batch, source.seq_len, model.d_model, generator=random).to(device, dtype)
                for _ in range(2))
    try:
        call = Call(load(NORMS, name)(model.d_model, settings).to(device), x.requires_grad_(), above)
        call.forward()
    except ValueError:
        return None
    return call


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what kernels read and write while its ``with`` block runs: `bytes`, and how many `kernels` there were.

    Views move nothing; an entry that a broadcast repeats counts once.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let the kernel run, and count it."""
        made = func(*args, **(kwargs or {}))
        if not any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns):
            self.kernels += 1
            self.bytes += sum(map(_bytes, _tensors((args, kwargs, made))))
        return made


def _tensors(given: Any) -> Iterable[Tensor]:
    return (one for one in tree_leaves(given) if isinstance(one, Tensor))


def _bytes(x: Tensor) -> int:
    entries = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        entries *= size if stride else 1
    return entries * x.element_size()
