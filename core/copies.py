"""A copy of a copy: how large x, W₁x, W₂W₁x, … are, with a fresh Gaussian matrix for every copy and nothing else.

With W of N(0, g²/n) one copy multiplies the RMS by g, up to chance: (RMS of Wx / RMS of x)² is g²·χ²ₙ/n whatever x is,
and independent from copy to copy. After d copies ln RMS is d·ln g, plus about −d/(2n) ± √(d/(2n)) for a finite width n.
Numbers only.

Source: Hanin, Nica 2018 (arXiv:1812.05994) for products of random matrices of finite width.

Shapes: G gains, D copies, n width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Copies:
    """`rms`: of the original, which is 1, and of every copy after it, (G, D + 1); ±Inf and NaN beyond float64."""

    gains: tuple[float, ...]
    width: int
    rms: F64

    @property
    def depth(self) -> int:
        """How many copies there are."""
        return int(self.rms.shape[1]) - 1

    def expected(self, gain: float) -> F64:
        """Return gain^k for k = 0 … D, (D + 1,)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.float64(gain) ** np.arange(self.depth + 1))

    def growth(self, gain: float) -> float:
        """Return the RMS of the last copy over that of the original."""
        return float(self.rms[self.gains.index(gain), -1])

    @property
    def chance(self) -> tuple[float, float]:
        """Between which factors growth / gain^D lies: exp(−D/(2n) ∓ √(D/(2n))), one standard deviation of its ln."""
        mean = self.depth / (2 * self.width)
        return math.exp(-mean - math.sqrt(mean)), math.exp(-mean + math.sqrt(mean))


def doubling(gain: float) -> float:
    """Return ln 2 / |ln gain|: after so many copies the RMS has doubled, or halved below 1; Inf for a gain of 1."""
    return math.log(2) / abs(math.log(gain)) if gain != 1 else math.inf


@lru_cache(maxsize=32)
def copies(gains: tuple[float, ...], depth: int, width: int, draw: int = 0) -> Copies:
    """Return how large the copies are with every gain, all of the same original and the same draws.

    Errors: ValueError for no gain or one that is not above 0, no copy, or a width below 1.
    """
    if not gains or min(gains) <= 0 or depth < 1 or width < 1:
        raise ValueError(f"gains are {gains}, depth {depth} and width {width}; allowed: gains above 0, depth and width "
                         "from 1 on")
    generator = np.random.default_rng(draw)
    original = generator.standard_normal(width)
    x = np.repeat((original / _rms(original[:, None]))[:, None], len(gains), axis=1)  # (n, G)
    sizes = [_rms(x)]
    for _ in range(depth):
        unit = generator.standard_normal((width, width)) / math.sqrt(width)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            x = np.array(gains) * (unit @ x)
        sizes.append(_rms(x))
    return Copies(gains, width, np.stack(sizes, axis=1))


def _rms(x: F64) -> F64:
    """Return √(Σx²/n) of every column, (G,), brought to the scale of the largest, so that no square overflows."""
    largest = np.abs(x).max(axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(np.square(x / scale).mean(axis=0)) * scale)
