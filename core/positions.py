"""Positions: what tells a token where it stands, added to the embedding or turned into queries and keys.

Each is a module: called, it returns the embedding with positions (B, T, D); `turn` returns queries or keys (B, H, T, K)
with positions. Of the two, those that a kind does not use return the tensor that came. Vectors that go straight into
layer 0 are never added to; the file does not know where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class PositionSettings:
    """Sizes T, D and K, the base of the rotary angles, and the dtype of parameters and tables."""

    seq_len: int
    d_model: int
    head_dim: int
    theta: float
    dtype: torch.dtype


class NoPositions(nn.Module):
    """No positions at all; the ground the others stand on. `turns`: the kind acts on queries and keys."""

    turns: ClassVar[bool] = False

    def __init__(self, _settings: PositionSettings) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding `x` (B, T, D) with positions added, here itself."""
        return x

    def turn(self, x: Tensor) -> Tensor:
        """Return queries or keys `x` (B, H, T, K) with positions in them, here itself."""
        return x


class Learned(NoPositions):
    """x + P with a learned table P (T, D)."""

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.weight = nn.Parameter(torch.zeros(settings.seq_len, settings.d_model, dtype=settings.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return x + P."""
        return x + self.weight[: x.shape[1]].to(x.dtype)


class Sinusoidal(NoPositions):
    """x + P with P[t, 2i] = sin(t/10000^(2i/D)), P[t, 2i+1] = cos of the same.

    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """

    base: ClassVar[float] = 10000.0
    table: Tensor

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        angles = _angles(settings.seq_len, settings.d_model, self.base)  # (T, ⌈D/2⌉)
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, : settings.d_model]
        self.register_buffer("table", table.to(settings.dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + P."""
        return x + self.table[: x.shape[1]].to(x.dtype)


class Rotary(NoPositions):
    """Each pair (x_i, x_{i+K/2}) of a query or key turned by t·θ^(−2i/K) (Su et al. 2021, arXiv:2104.09864).

    The turned q·k depends on the difference of their positions only. Computed in float32 at least.
    """

    turns: ClassVar[bool] = True
    cosine: Tensor
    sine: Tensor

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        angles = _angles(settings.seq_len, settings.head_dim, settings.theta)  # (T, K/2)
        self.register_buffer("cosine", angles.cos().to(settings.dtype), persistent=False)
        self.register_buffer("sine", angles.sin().to(settings.dtype), persistent=False)

    def turn(self, x: Tensor) -> Tensor:
        """Return `x` (B, H, T, K), every token turned by the angles of its position."""
        cosine, sine = self.cosine[: x.shape[2]], self.sine[: x.shape[2]]
        first, second = x.to(cosine.dtype).chunk(2, -1)  # (B, H, T, K/2)
        turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
        return turned.to(x.dtype)


def _angles(length: int, width: int, base: float) -> Tensor:
    """Return t·base^(−2i/width), (length, ⌈width/2⌉), in float64."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    frequencies = torch.as_tensor(base, dtype=torch.float64) ** -exponents
    return torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
