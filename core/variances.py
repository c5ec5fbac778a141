"""The variance of data far from 0, by four methods in five arithmetics: which of them loses its digits, and where.

With data x = μ + σz of n entries, E[x²] − E[x]² is a small difference of large numbers: every rounding of a square is
as large as u·μ², so that the relative error of σ² is about u·(μ/σ)². The other methods square small numbers only.
Every operation is rounded to the format it is done in, entry by entry, as a loop on a chip would. Numbers only.

Sources: Welford 1962 (Technometrics 4:419); Chan, Golub, LeVeque 1983 (The American Statistician 37:242).

Shapes: n entries, M ratios μ/σ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.formats import F64, FORMATS, rounded

Array = NDArray[Any]
Keep = Callable[[Array], Array]
"""Rounds the result of one operation to the format that it is done in."""


@dataclass(frozen=True)
class Arithmetic:
    """`entries`: the format that the data are stored in; `works`: the one that every operation is rounded to."""

    entries: str
    works: str

    @property
    def unit(self) -> float:
        """The unit roundoff of an operation."""
        return FORMATS[self.works].unit


ARITHMETICS: dict[str, Arithmetic] = {
    "float16": Arithmetic("float16", "float16"),
    "float16_in_float32": Arithmetic("float16", "float32"),
    "bfloat16": Arithmetic("bfloat16", "bfloat16"),
    "float32": Arithmetic("float32", "float32"),
    "float64": Arithmetic("float64", "float64"),
}
"""Name → arithmetic. ``float16_in_float32`` stores float16 and computes in float32, as norms do."""


def naive(x: Array, keep: Keep) -> Array:
    """E[x²] − E[x]²: one pass, and a difference of large numbers."""
    mean = keep(_sum(x, keep) / len(x))
    return keep(keep(_sum(keep(x * x), keep) / len(x)) - keep(mean * mean))


def shifted(x: Array, keep: Keep) -> Array:
    """The naive one of x − x₀: the variance does not change when the first entry is taken from all of them."""
    return naive(keep(x - x[0]), keep)


def two_pass(x: Array, keep: Keep) -> Array:
    """The mean first, then E[(x − mean)²]."""
    centred = keep(x - keep(_sum(x, keep) / len(x)))
    return keep(_sum(keep(centred * centred), keep) / len(x))


def welford(x: Array, keep: Keep) -> Array:
    """One pass: mean ← mean + (x − mean)/k, and the squares grow by (x − old mean)·(x − new mean)."""
    mean, squares = x[0], np.zeros_like(x[0])
    for count, row in enumerate(x[1:], 2):
        away = keep(row - mean)
        mean = keep(mean + keep(away / count))
        squares = keep(squares + keep(away * keep(row - mean)))
    return keep(squares / len(x))


METHODS: dict[str, Callable[[Array, Keep], Array]] = {
    "naive": naive, "shifted": shifted, "two_pass": two_pass, "welford": welford}
"""Name → the method: data (n, M) and how an operation is rounded → variances (M,)."""

STORED = "stored"
"""Stands for the exact variance of the entries as the format stores them: what no method can undo."""


@dataclass(frozen=True, eq=False)
class Variances:
    """`found`: method, or STORED → variances over `ratios`, (M,); `truth`: that of the data before any rounding."""

    ratios: F64
    truth: float
    unit: float
    found: Mapping[str, F64]

    def errors(self, method: str) -> F64:
        """Return |variance − truth|/truth, (M,): NaN or Inf where the variance is, below 0 where it is negative."""
        found = self.found[method]
        with np.errstate(invalid="ignore"):
            return np.abs(found - self.truth) / self.truth * np.where(found < 0, -1.0, 1.0)

    @property
    def theory(self) -> F64:
        """u·(μ/σ)², (M,): about the relative error of the naive method."""
        return self.unit * self.ratios**2

    def fate(self, method: str, place: int) -> str:
        """Return what became of one variance: broken (NaN, Inf), negative, lost (as wrong as it is large) or digits."""
        value, error = float(self.found[method][place]), abs(float(self.errors(method)[place]))
        kinds = (("broken", not np.isfinite(value)), ("negative", value < 0), ("lost", error >= 1))
        return next((kind for kind, holds in kinds if holds), "digits")

    def lost_from(self, method: str) -> float:
        """Return the least ratio from which on no variance has a right digit; Inf where the last one still has."""
        good = [self.ratios[place] for place in range(len(self.ratios)) if self.fate(method, place) == "digits"]
        beyond = self.ratios[self.ratios > max(good, default=-1.0)]
        return float(beyond.min(initial=np.inf))


def data(n: int, draw: int) -> F64:
    """Return n unit normals, the same for every ratio."""
    return np.random.default_rng(draw).standard_normal(n)


@lru_cache(maxsize=64)
def variances(arithmetic: str, ratios: tuple[float, ...], n: int, sigma: float, draw: int = 0) -> Variances:
    """Return the variances of μ + σz by every method, μ = ratio·σ. `arithmetic`: a key of ARITHMETICS.

    Errors: ValueError for fewer than 2 entries or a spread that is not above 0.
    """
    if n < 2 or not sigma > 0:
        raise ValueError(f"n is {n} and sigma {sigma:g}; allowed: n from 2 on, sigma above 0")
    one, z = ARITHMETICS[arithmetic], sigma * data(n, draw)
    stored = rounded(z[:, None] + sigma * np.array(ratios), one.entries)
    with np.errstate(over="ignore", invalid="ignore"):
        found: dict[str, F64] = {name: method(*_working(stored, one.works)).astype(np.float64)
                                 for name, method in METHODS.items()}
        found[STORED] = np.var(stored - stored[:1], axis=0)
    return Variances(np.array(ratios), float(np.var(z)), one.unit, found)


def _working(x: F64, works: str) -> tuple[Array, Keep]:
    """Return the data in the type that operations are done in, and how their results are rounded.

    numpy has no bfloat16: its operations are those of float32, rounded once more. Both roundings together are one, as
    float32 has more than twice the digits (Figueroa 1995).
    """
    if works != "bfloat16":
        return x.astype(works), lambda y: y
    return x.astype(np.float32), lambda y: np.asarray(rounded(y, works).astype(np.float32))


def _sum(x: Array, keep: Keep) -> Array:
    total: Array = np.zeros_like(x[0])
    for row in x:
        total = keep(total + row)
    return total
