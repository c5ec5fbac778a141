"""The nonlinearities, each one function of a tensor, by name in `core.tables.ACTIVATIONS`.

A gated activation (swiglu, geglu, reglu) uses the same function on its gate; that there is a gate is the model's
business, not this file's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    """Return x·Φ(x), exact, by erf (Hendrycks, Gimpel 2016, arXiv:1606.08415)."""
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the tanh approximation of gelu: x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    return F.gelu(x, approximate="tanh")


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0)."""
    return F.relu(x)


def silu(x: Tensor) -> Tensor:
    """Return x·σ(x) (Elfwing et al. 2017, arXiv:1702.03118)."""
    return F.silu(x)


def tanh(x: Tensor) -> Tensor:
    """Return tanh(x)."""
    return torch.tanh(x)


def identity(x: Tensor) -> Tensor:
    """Return `x` itself: a linear MLP."""
    return x
