"""Initial weights: unit normals drawn by name, then scaled; and which gains apply to which matrix.

Every tensor is drawn on the CPU in float32 from its own generator, seeded from (seed, tensor name): a norm, a bigger
depth or an extra module never shifts another tensor, and another init rescales the same draws. The file knows tensors'
names and shapes; it does not know the modules that hold them.

Shapes: a matrix is (out, in), as in torch's linear layers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.experiment import Experiment, Model
from core.plan import deepnorm_constants
from core.tables import INITS, load


def generator(seed: int, name: str) -> torch.Generator:
    """Return the random generator that belongs to `name` under `seed`, on the CPU, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def unit_normals(seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the unit normals of the tensor `name`, float32 on the CPU."""
    return torch.randn(shape, generator=generator(seed, name), dtype=torch.float32)


@dataclass(frozen=True)
class Fan:
    """What an init may know of a matrix: its role (q, k, v, o, in, gate, out) and sizes, and the stack's depth."""

    role: str
    inputs: int
    outputs: int
    n_layers: int
    init_std: float


def xavier(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std √(2/(in + out)) (Glorot, Bengio 2010)."""
    return draws * math.sqrt(2 / (fan.inputs + fan.outputs))


def normal(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std ``init_std``."""
    return draws * fan.init_std


def lecun(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std √(1/in) (LeCun et al. 1998)."""
    return draws * math.sqrt(1 / fan.inputs)


def kaiming(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std √(2/in) (He et al. 2015, arXiv:1502.01852)."""
    return draws * math.sqrt(2 / fan.inputs)


def torch_default(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std √(1/(3·in)), the variance of torch's nn.Linear."""
    return draws * math.sqrt(1 / (3 * fan.inputs))


def orthogonal(draws: Tensor, fan: Fan) -> Tensor:
    """Return the Q of the draws' QR, R's diagonal positive: rows orthonormal, or columns where out > in.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """
    tall = draws if fan.outputs >= fan.inputs else draws.T
    q, r = torch.linalg.qr(tall)
    positive: Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return positive if fan.outputs >= fan.inputs else positive.T


def gpt2(draws: Tensor, fan: Fan) -> Tensor:
    """Return draws with std 0.02, the last matrix of each branch / √(2L) (Radford et al. 2019)."""
    return draws * (0.02 * (math.sqrt(1 / (2 * fan.n_layers)) if fan.role in _LAST else 1.0))


def deepnorm(draws: Tensor, fan: Fan) -> Tensor:
    """Return xavier draws, W_v, W_o, W_in and W_out times (8L)^−¼ (Wang et al. 2022, arXiv:2203.00555)."""
    beta = deepnorm_constants(fan.n_layers)[1]
    return xavier(draws, fan) * (beta if fan.role in _DEEPNORM_SCALED else 1.0)


_LAST = frozenset({"o", "out"})
_DEEPNORM_SCALED = frozenset({"v", "o", "in", "out"})

_GAINS: dict[str, Callable[[Model], float]] = {
    "q": lambda model: model.qk_gain,
    "k": lambda model: model.qk_gain,
    "v": lambda model: model.value_gain,
    "o": lambda model: model.output_gain,
    "in": lambda _: 1.0,
    "gate": lambda _: 1.0,
    "out": lambda model: model.output_gain,
}
"""A block's matrix by role → the gain of its own; ``init_gain`` multiplies all of them."""

_OUTSIDE: dict[str, Callable[[Model], float]] = {
    "embed.token.weight": lambda model: model.embed_std,
    "embed.position.weight": lambda model: model.pos_std,
    "head.weight": lambda model: math.sqrt(1 / model.d_model),
}
"""A drawn tensor outside the blocks → its std, whatever the init."""


def is_drawn(name: str) -> bool:
    """Say whether the parameter `name` is drawn; the others start constant."""
    return name in _OUTSIDE or _role(name) is not None


def drawn(experiment: Experiment, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return the initial value of the drawn parameter `name`, on the CPU in `dtype`."""
    model = experiment.model
    draws = unit_normals(experiment.protocol.seed, name, shape).to(dtype)
    role = _role(name)
    if role is None:
        return draws * _OUTSIDE[name](model)
    fan = Fan(role, shape[1], shape[0], model.n_layers, model.init_std)
    weight: Tensor = load(INITS, model.init)(draws, fan)
    return weight * (model.init_gain * _GAINS[role](model))


@torch.no_grad()
def initialize(stack: nn.Module, experiment: Experiment) -> None:
    """Draw every drawn parameter of `stack`, in place; the others keep the constants they were made with."""
    for name, parameter in stack.named_parameters():
        if is_drawn(name):
            parameter.copy_(drawn(experiment, name, tuple(parameter.shape), parameter.dtype))


def _role(name: str) -> str | None:
    """Return the role of the block matrix `name`, such as ``layers.3.attn.q.weight``, else None."""
    parts = name.split(".")
    inside = len(parts) == 5 and parts[0] == "layers" and parts[2] in ("attn", "mlp") and parts[4] == "weight"
    return parts[3] if inside and parts[3] in _GAINS else None
