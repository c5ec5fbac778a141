"""One forward and backward pass of a stack: the losses, and dropout's draws, which belong to seed and step.

It leaves gradients behind and does not know what becomes of them.

Shapes: B batch, T positions, D = d_model, V = vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from core.corpus import Batch
from core.experiment import Experiment
from core.inits import generator, unit_normals
from core.model import Output, Stack


def step(stack: Stack, data: Batch, number: int, scale: float = 1.0) -> Tensor:
    """Play one forward and backward pass; return the loss, a scalar, and leave gradients times `scale`.

    Dropout draws from a generator of its own, seeded from (seed, "dropout", step); the caller's is left as it was.
    """
    experiment = stack.experiment
    with dropout_draws(experiment, data.inputs.device, number):
        loss = LOSSES[experiment.protocol.loss or ""](stack(data.inputs, data.mask), data, experiment)
        (loss * scale).backward()  # type: ignore[no-untyped-call]
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

_OWN_GENERATORS: dict[str, Callable[[torch.device], tuple[torch.Generator, ...]]] = {
    "cpu": lambda _: (),
    "cuda": lambda device: (torch.cuda.default_generators[device.index or 0],),
    "mps": lambda _: (torch.mps._get_default_mps_generator(),),
}
"""Device kind → the generators that dropout there draws from, beside the CPU's."""


@contextmanager
def dropout_draws(experiment: Experiment, device: torch.device, number: int) -> Iterator[None]:
    """Let the dropout of what runs inside draw from (seed, "dropout", `number`); put the generators back afterwards."""
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


def _wide(x: Tensor) -> Tensor:
    """Return `x` in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
