"""Two laws fitted to a size over depth, and which of them fits better: exponential, or a square that grows linearly.

Knows numbers only: not what they were measured of, nor what follows from a law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.trace import F64


@dataclass(frozen=True)
class Fit:
    """A law fitted to sizes over depth: its root mean square error in ln size, its slope, and where it reaches a value.
    """

    error: float
    slope: float
    reaches: Callable[[float], float]


NO_FIT = Fit(math.nan, math.nan, lambda _: math.inf)


def exponential(depth: F64, size: F64) -> Fit:
    """Return ln size = a + b·depth fitted by least squares; NO_FIT for fewer than two. `size` > 0."""
    if len(depth) < 2:
        return NO_FIT
    logs = np.log(size)
    centre = depth.mean()
    slope = float(((depth - centre) * (logs - logs.mean())).sum() / ((depth - centre) ** 2).sum())
    offset = float(logs.mean() - slope * centre)
    error = _rms_error(logs, offset + slope * depth)
    return Fit(error, slope, lambda value: (math.log(value) - offset) / slope if slope > 0 else math.inf)


def power(depth: F64, size: F64) -> Fit:
    """Return size² = a + c·depth fitted so that relative errors count alike everywhere; NO_FIT for fewer than two."""
    if len(depth) < 2:
        return NO_FIT
    scale = float(size.max())
    squares = (size / scale) ** 2
    weights = 1 / np.maximum(squares, _LEAST)
    columns = np.stack([np.ones_like(depth), depth], axis=1) * weights[:, None]
    (offset, slope), *_ = np.linalg.lstsq(columns, squares * weights, rcond=None)
    fitted = offset + slope * depth
    logs = np.log(size) - math.log(scale)
    error = _rms_error(logs, np.log(fitted) / 2) if (fitted > 0).all() else math.inf

    def reaches(value: float) -> float:
        relative = value / scale
        return float((relative * relative - offset) / slope) if slope > 0 else math.inf

    return Fit(error, float(slope) * scale * scale, reaches)  # products become ∞ where powers would raise


_LEAST = 1e-140
"""Of squares relative to the largest: weights from it still have squares of their own."""


def law(size: F64, of_exponential: Fit, of_power: Fit, flat: float) -> str:
    """Return the name of the law that `size` follows: flat within the factor `flat`, else the one that fits better.

    undetermined for fewer than three, where neither is better (CLOSE), and where the better one explains too little
    (UNEXPLAINED): a single jump is no law.
    """
    if len(size) < 3:
        return "undetermined"
    if size.max() / size.min() <= flat:
        return "flat"
    better, other = sorted((of_power.error, of_exponential.error))
    if better > CLOSE * other or better > UNEXPLAINED * float(np.log(size).std()):
        return "undetermined"
    return "power" if of_power.error < of_exponential.error else "exponential"


CLOSE = 0.9
"""A fit whose error is above this share of the other's is no better than it."""

UNEXPLAINED = 0.5
"""The error that a law may leave, as a share of the std of ln size (0.5: a quarter of the variance)."""


def _rms_error(values: F64, fitted: F64) -> float:
    return float(np.sqrt(np.mean((values - fitted) ** 2)))
