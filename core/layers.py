"""The plain parts of a block: a linear map, the MLP, and the scale of a branch.

Parameters stay in the dtype they were made with (float32, or float64 for a float64 run) and are cast to the dtype of
what comes in at use. The file does not know where in the stack a part stands; it is handed the sites that show it.

Shapes: B batch, T positions, D = d_model, F = d_ff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.experiment import Model
from core.plan import Scale
from core.tables import ACTIVATIONS, GATED_ACTIVATIONS, load


class Linear(nn.Module):
    """x·Wᵀ + b with W (out, in); W and b start at zero, `core.inits` draws W."""

    def __init__(self, inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return x·Wᵀ + b in the dtype of `x` (…, in)."""
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Mlp(nn.Module):
    """out(a(in(x))), or out(a(gate(x)) · in(x)) with a gated activation (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, model: Model, dtype: torch.dtype, sites: Mapping[str, nn.Module]) -> None:
        super().__init__()
        width, hidden = model.d_model, model.d_ff or 0
        self.add_module("in", Linear(width, hidden, model.bias, dtype))
        self.gate = Linear(width, hidden, model.bias, dtype) if model.activation in GATED_ACTIVATIONS else None
        self.out = Linear(hidden, width, model.bias, dtype)
        self.activation: Callable[[Tensor], Tensor] = load(ACTIVATIONS, model.activation)
        self.see = {name: sites[name] for name in ("mlp_pre", "mlp_act")}

    def forward(self, x: Tensor, _view: object) -> Tensor:
        """Return the MLP of `x` (B, T, D); it looks at no other token, so the view is not used."""
        hidden: Tensor = self._modules["in"](x)  # type: ignore[misc]  # (B, T, F)
        if self.gate is None:
            active = self.activation(self.see["mlp_pre"](hidden))
        else:
            active = self.activation(self.see["mlp_pre"](self.gate(x))) * hidden
        result: Tensor = self.out(self.see["mlp_act"](active))
        return result


class Fixed(nn.Module):
    """A constant factor; 1 returns the very tensor that came."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return factor·x."""
        return x if self.factor == 1.0 else x * self.factor


class Learned(nn.Module):
    """A learned factor, one for all features or one each."""

    def __init__(self, width: int, value: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), value, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return weight·x."""
        return x * self.weight.to(x.dtype)


def branch_scale(scale: Scale, dtype: torch.dtype) -> nn.Module:
    """Return the module that scales a branch before it is added to the stream."""
    return Learned(scale.width, scale.value, dtype) if scale.width else Fixed(scale.value)
