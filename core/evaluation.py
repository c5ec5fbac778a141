"""The gap between training and evaluation: the same weights and batch, with batch statistics and with running ones.

Without batchnorm and dropout there is none. The file takes the two passes; it does not know what a gap means.

Shapes: B sequences, T positions, D features, L layers.
"""

from __future__ import annotations

import math
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from core.corpus import Batch
from core.looking import Taker, moved, streams, twin
from core.model import Stack
from core.norms import BatchNorm
from core.passes import LOSSES


class Gap(Taker):
    """Plays each recorded batch in evaluation and in training, on a twin that nobody watches.

    `found`: ``gap`` (L,): RMS over real tokens of evaluation − training of the stream after each layer, over the RMS of
    training's; ``loss`` (2,): in training and in evaluation, in nats; ``mean_error`` (L,): RMS over the features of the
    layer's batchnorms of (running mean − batch mean)/batch σ; ``variance_ratio`` (L,): median over them of running
    variance/batch variance, the batch's with N − 1 as the running one. Both NaN in layers without batchnorm. Running
    statistics are those before this batch has moved them.
    """

    def before(self, data: Batch, step: int) -> None:
        """Play the batch both ways."""
        stack, real = twin(self.stack), data.mask
        evaluated, loss_evaluated = _played(stack.eval(), data, step)
        with Moments(stack.train()) as moments:
            trained, loss_trained = _played(stack, data, step)
        layers = range(len(trained))
        self.found = {
            "gap": np.array([moved(e, t, real) for e, t in zip(evaluated, trained, strict=True)]),
            "loss": np.array([loss_trained, loss_evaluated]),
            "mean_error": np.array([moments.mean_error(layer) for layer in layers]),
            "variance_ratio": np.array([moments.variance_ratio(layer) for layer in layers]),
        }


class Moments:
    """Reads what the batchnorms of each layer see in a pass, beside their running statistics, while its block runs."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._handles: list[RemovableHandle] = []
        self._errors: dict[int, list[Tensor]] = {}
        self._ratios: dict[int, list[Tensor]] = {}

    def __enter__(self) -> Self:
        """Begin to read."""
        self._handles = [module.register_forward_pre_hook(partial(self._read, layer))
                         for layer, block in enumerate(self._stack.layers)
                         for module in block.modules() if isinstance(module, BatchNorm)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Read no longer."""
        for handle in self._handles:
            handle.remove()

    def mean_error(self, layer: int) -> float:
        """Return the RMS over features of (running mean − batch mean)/batch σ; NaN without batchnorm."""
        found = self._errors.get(layer)
        return float(torch.cat(found).square().mean().sqrt()) if found else math.nan

    def variance_ratio(self, layer: int) -> float:
        """Return the median over features of running variance/batch variance; NaN without batchnorm."""
        found = self._ratios.get(layer)
        return float(torch.cat(found).median()) if found else math.nan

    def _read(self, layer: int, norm: nn.Module, given: Any) -> None:
        assert isinstance(norm, BatchNorm)
        variance, mean = torch.var_mean(counted(norm, *given).double(), 0)
        self._errors.setdefault(layer, []).append((norm.running_mean - mean) / variance.sqrt())
        self._ratios.setdefault(layer, []).append(norm.running_var / variance)


def counted(norm: BatchNorm, x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the tokens of x (B, T, D) that the norm takes its statistics over, (N, D)."""
    return x.flatten(0, -2) if mask is None or norm.settings.pooled else x[mask]


def _played(stack: Stack, data: Batch, step: int) -> tuple[list[Tensor], float]:
    """Return the stream after each layer, and the loss."""
    found, output = streams(stack, data, step)
    with torch.no_grad():
        loss = LOSSES[stack.experiment.protocol.loss or ""](output, data, stack.experiment)
    return found, float(loss)
