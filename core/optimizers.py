"""Optimizers, and what stands between a gradient and an update: loss scale, clipping, the size of the update.

A new optimizer is a factory here, an entry in `core.tables.OPTIMIZERS` and its words. Weight decay acts on every
parameter: with adamw apart from the gradient (Loshchilov, Hutter 2019, arXiv:1711.05101), with sgd and adam as a part
of it. All are torch's fused ones: of many small parameters they take a quarter of the time of foreach on the CPU. The
file does not know the model, nor how gradients came about.

Shapes: P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from core.experiment import Protocol
from core.parameters import norms
from core.tables import OPTIMIZERS, load

F64 = NDArray[np.float64]

START, LEAST, GROWS_AFTER = 65536.0, 2.0**-24, 2000
"""A dynamic loss scale starts here, is halved at each overflow down to the least, and doubled after so many steps
without one (Micikevicius et al. 2018, arXiv:1710.03740)."""


def sgd(parameters: Sequence[Tensor], protocol: Protocol) -> Optimizer:
    """Return stochastic gradient descent: v ← momentum·v + g, w ← w − lr·v."""
    return SGD(parameters, lr=protocol.lr, momentum=protocol.momentum, weight_decay=protocol.weight_decay, fused=True)


def adam(parameters: Sequence[Tensor], protocol: Protocol) -> Optimizer:
    """Return Adam (Kingma, Ba 2015, arXiv:1412.6980), ε = 1e-8."""
    return Adam(parameters, lr=protocol.lr, betas=protocol.betas, weight_decay=protocol.weight_decay, fused=True)


def adamw(parameters: Sequence[Tensor], protocol: Protocol) -> Optimizer:
    """Return AdamW, ε = 1e-8."""
    return AdamW(parameters, lr=protocol.lr, betas=protocol.betas, weight_decay=protocol.weight_decay, fused=True)


@dataclass
class LossScale:
    """What the loss is multiplied with before the backward pass; `clean`: steps since it last changed."""

    value: float
    dynamic: bool
    clean: int = 0
    overflows: int = 0

    @classmethod
    def of(cls, protocol: Protocol) -> LossScale:
        """Return the scale that a training begins with, 1 without one."""
        dynamic = isinstance(protocol.loss_scale, str)
        return cls(START if isinstance(protocol.loss_scale, str) else protocol.loss_scale or 1.0, dynamic)

    def after(self, overflowed: bool) -> None:
        """Take note of a step; a dynamic scale follows."""
        self.overflows += overflowed
        self.clean = 0 if overflowed else self.clean + 1
        if self.dynamic and overflowed:
            self.value = max(self.value / 2, LEAST)
        elif self.dynamic and self.clean == GROWS_AFTER:
            self.value, self.clean = self.value * 2, 0


class Updates:
    """The updates of one training. `ratio`: ‖Δw‖/‖w‖ of the last one where it was asked for, (P,), else None.

    w is the weight before the update; the ratio is NaN where ‖w‖ = 0.
    """

    def __init__(self, parameters: Sequence[Tensor], protocol: Protocol) -> None:
        self.parameters, self._clip = parameters, protocol.grad_clip
        self.optimizer: Optimizer = load(OPTIMIZERS, protocol.optimizer)(parameters, protocol)
        self.ratio: F64 | None = None
        self._before: list[Tensor] | None = None

    def clip_factor(self, total_norm: float) -> float:
        """Return min(1, grad_clip/‖g‖), by which all gradients are multiplied; 1 without clipping."""
        if self._clip is None or total_norm <= self._clip:
            return 1.0
        return self._clip / total_norm if not math.isnan(total_norm) else math.nan

    @torch.no_grad()
    def make(self, rate: float, scale: float, total_norm: float, measured: bool) -> None:
        """Update the parameters with their gradients, which are times `scale`; `measured`: take the ratio."""
        before = self._copies() if measured else None
        self._step(rate, self.clip_factor(total_norm) / scale)
        self.ratio = None if before is None else self._ratio(before)

    def skip(self, measured: bool) -> None:
        """Leave the parameters as they are: the step overflowed."""
        self.ratio = np.where(norms([p.detach() for p in self.parameters]) > 0, 0.0, np.nan) if measured else None

    def _copies(self) -> list[Tensor]:
        """Return the parameters as they are, in memory that is used again."""
        values = [parameter.detach() for parameter in self.parameters]
        if self._before is None:
            self._before = [value.clone() for value in values]
        else:
            torch._foreach_copy_(self._before, values)
        return self._before

    def _step(self, rate: float, factor: float) -> None:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if factor != 1.0 and gradients:
            torch._foreach_mul_(gradients, factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    def _ratio(self, before: list[Tensor]) -> F64:
        changes = torch._foreach_sub([parameter.detach() for parameter in self.parameters], before)
        sizes = norms(before)
        with np.errstate(all="ignore"):
            found: F64 = np.where(sizes > 0, norms(list(changes)) / sizes, np.nan)
        return found
