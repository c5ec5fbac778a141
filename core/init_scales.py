"""How large initial weights are: the standard deviation of a matrix's entries by init, and the gains on top of it.

An init is an expression of a matrix's `Fan`, so its entry in `core.tables.INITS` is the expression itself: drawing
scales unit normals with it, theory computes with it. It knows roles and sizes; no tensors and no torch.

Shapes: a matrix is (out, in), as in torch's linear layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an experiment reads the table that holds these inits
    from core.experiment import Model


@dataclass(frozen=True)
class Fan:
    """What an init may know of a matrix: its role (a key of GAINS) and sizes, and the stack's depth."""

    role: str
    inputs: int
    outputs: int
    n_layers: int
    init_std: float


@dataclass(frozen=True)
class Init:
    """One init. `std`: of a matrix's entries; `shape`: import path of what shapes the draws, empty for none.

    What shapes them gives a matrix of that std whose entries are no longer independent. `of_branches`: it scales the
    matrices of a stack's branches, and has no meaning without them.
    """

    std: Callable[[Fan], float]
    shape: str = ""
    of_branches: bool = False


def xavier(fan: Fan) -> float:
    """Return √(2/(in + out)) (Glorot, Bengio 2010)."""
    return math.sqrt(2 / (fan.inputs + fan.outputs))


def normal(fan: Fan) -> float:
    """Return ``init_std``."""
    return fan.init_std


def lecun(fan: Fan) -> float:
    """Return √(1/in) (LeCun et al. 1998)."""
    return math.sqrt(1 / fan.inputs)


def kaiming(fan: Fan) -> float:
    """Return √(2/in) (He et al. 2015, arXiv:1502.01852)."""
    return math.sqrt(2 / fan.inputs)


def torch_default(fan: Fan) -> float:
    """Return √(1/(3·in)), the variance of torch's nn.Linear."""
    return math.sqrt(1 / (3 * fan.inputs))


def orthogonal(fan: Fan) -> float:
    """Return √(1/max(in, out)): rows or columns of length 1 (Saxe et al. 2013, arXiv:1312.6120)."""
    return math.sqrt(1 / max(fan.inputs, fan.outputs))


def gpt2(fan: Fan) -> float:
    """Return 0.02, the last matrix of each branch / √(2L) (Radford et al. 2019)."""
    return 0.02 * (math.sqrt(1 / (2 * fan.n_layers)) if fan.role in _LAST else 1.0)


def deepnorm(fan: Fan) -> float:
    """Return that of xavier, W_v, W_o, W_in and W_out times (8L)^−¼ (Wang et al. 2022, arXiv:2203.00555)."""
    return xavier(fan) * (deepnorm_constants(fan.n_layers)[1] if fan.role in _DEEPNORM_SCALED else 1.0)


def deepnorm_constants(n_layers: int) -> tuple[float, float]:
    """Return DeepNorm's (α, β) = ((2L)^¼, (8L)^−¼): the stream's factor and the init's (arXiv:2203.00555)."""
    return math.pow(2 * n_layers, 0.25), math.pow(8 * n_layers, -0.25)


_LAST = frozenset({"o", "out"})
_DEEPNORM_SCALED = frozenset({"v", "o", "in", "out"})

GAINS: dict[str, str] = {
    "q": "qk_gain", "k": "qk_gain", "v": "value_gain", "o": "output_gain", "in": "", "gate": "", "out": "output_gain",
    "x": "", "h": "",
}
"""A layer's matrix by role → the model's field that is a gain of its own; ``init_gain`` multiplies all of them."""


def gain(model: Model, role: str) -> float:
    """Return what the block matrix of a role is multiplied with, whatever the init."""
    own: float = getattr(model, GAINS[role]) if GAINS[role] else 1.0
    return model.init_gain * own
