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

import torch
from torch import Tensor, nn

from core.experiment import Experiment, Model
from core.init_scales import GAINS, Fan, gain
from core.tables import FAMILIES, INITS, fetch


def generator(seed: int, name: str) -> torch.Generator:
    """Return the random generator that belongs to `name` under `seed`, on the CPU, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def unit_normals(seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the unit normals of the tensor `name`, float32 on the CPU."""
    return torch.randn(shape, generator=generator(seed, name), dtype=torch.float32)


def orthogonal(draws: Tensor) -> Tensor:
    """Return the Q of the draws' QR, R's diagonal positive: rows orthonormal, or columns where out > in.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """
    tall = draws if draws.shape[0] >= draws.shape[1] else draws.T
    q, r = torch.linalg.qr(tall)
    positive: Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return positive if draws.shape[0] >= draws.shape[1] else positive.T


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
    init, fan = INITS[model.init], Fan(role, shape[1], shape[0], model.n_layers, model.init_std)
    weight: Tensor = fetch(init.shape)(draws) if init.shape else draws * init.std(fan)
    return weight * gain(model, role)


@torch.no_grad()
def initialize(stack: nn.Module, experiment: Experiment) -> None:
    """Draw every drawn parameter of `stack`, in place; the others keep the constants they were made with."""
    for name, parameter in stack.named_parameters():
        if is_drawn(name):
            parameter.copy_(drawn(experiment, name, tuple(parameter.shape), parameter.dtype))


_DRAWN_MODULES = frozenset({"attn", "mlp", *(gate for family in FAMILIES.values() for gate in family.gates)})
"""The modules of a layer that hold matrices."""


def _role(name: str) -> str | None:
    """Return the role of the layer's matrix `name`, such as ``layers.3.attn.q.weight``, else None."""
    parts = name.split(".")
    inside = len(parts) == 5 and parts[0] == "layers" and parts[2] in _DRAWN_MODULES and parts[4] == "weight"
    return parts[3] if inside and parts[3] in GAINS else None
