"""Number formats: where each begins and ends, how finely it divides, and a number rounded to it exactly.

Numbers only: it knows no tensor and no torch. Rounding is to the nearest number of the format, ties to the even one
(IEEE 754). The two float8 formats are those of Micikevicius et al. 2022 (arXiv:2209.05433); e4m3 has no infinity: what
lies beyond its largest number becomes NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """One binary format. `digits`: of the significand, the hidden one included; `low`, `high`: exponents ⌊log₂|x|⌋ of
    the smallest and the largest normal number; `missing`: how many numbers at the top end are no numbers.

    `infinite`: whether it has ±Inf.
    """

    digits: int
    low: int
    high: int
    missing: int = 0
    infinite: bool = True

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number, 2^(1 − digits)."""
        return 2.0 ** (1 - self.digits)

    @property
    def unit(self) -> float:
        """The unit roundoff u = epsilon/2: rounding changes a normal number by at most this share of it."""
        return self.epsilon / 2

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float((2 - (1 + self.missing) * self.epsilon) * 2.0**self.high)

    @property
    def least_normal(self) -> float:
        """The smallest normal number; below it digits are lost."""
        return float(2.0**self.low)

    @property
    def least(self) -> float:
        """The smallest subnormal number; what is at most half of it becomes 0."""
        return float(2.0 ** (self.low + 1 - self.digits))


FORMATS: dict[str, Format] = {
    "float64": Format(53, -1022, 1023),
    "float32": Format(24, -126, 127),
    "bfloat16": Format(8, -126, 127),
    "float16": Format(11, -14, 15),
    "float8_e5m2": Format(3, -14, 15),
    "float8_e4m3": Format(4, -6, 8, missing=1, infinite=False),
}
"""Name of a format → it, the finest first."""


def rounded(values: ArrayLike, name: str) -> F64:
    """Return float64 numbers rounded to the format called `name`; ±Inf (or NaN, where it has none) beyond its end."""
    x, one = np.asarray(values, np.float64), FORMATS[name]
    if one.digits == 53:
        return x
    _, exponent = np.frexp(x)  # |x| = m·2^exponent with 1/2 ≤ m < 1
    step = np.ldexp(1.0, np.maximum(exponent - 1, one.low) + 1 - one.digits)
    with np.errstate(over="ignore"):
        near: F64 = np.rint(x / step) * step  # exact but for the rounding: the step is a power of two
    beyond = np.copysign(np.inf, x) if one.infinite else np.nan
    return np.where(np.abs(near) > one.largest, beyond, near)


def square(value: float, name: str) -> float:
    """Return x² rounded to the format called `name`, of x rounded to it: in float16 infinite from 256 on."""
    with np.errstate(over="ignore"):
        return float(rounded(np.square(rounded(value, name)), name))


def fates(value: float) -> Mapping[str, str]:
    """Return what becomes of a number in each format: exact, rounded, subnormal (with fewer digits), zero or over."""
    return {name: _fate(value, float(rounded(value, name)), one) for name, one in FORMATS.items()}


def _fate(value: float, near: float, one: Format) -> str:
    if not np.isfinite(near):
        return "over"
    if near == value:
        return "exact"
    return "zero" if near == 0 else "subnormal" if abs(value) < one.least_normal else "rounded"
