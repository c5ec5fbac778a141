"""What a softmax over n independent Gaussian scores is on average: entropy, Σp², the Jacobian's size, for every n.

With 1/Z^k = ∫ t^(k−1) e^(−tZ) dt / Γ(k), a mean over n independent scores becomes one integral over t, whose factors
are the same functions for every n: φ(t) = E exp(−t·e^s), m_k(t) = E (t·e^s)^k·exp(−t·e^s) and
μ(t) = E s·t·e^s·exp(−t·e^s). With dt = t·d ln t

    E Σ p^k = n/Γ(k) · ∫ m_k·φ^(n−1) d ln t,    E Σ_{i≠j} p_i²·p_j² = n·(n−1)/Γ(4) · ∫ m_2²·φ^(n−2) d ln t,
    E ln Z = ∫ e^(−t) − φ^n d ln t,             E Σ p·s = n · ∫ μ·φ^(n−1) d ln t,

and the entropy is E ln Z − E Σ p·s. ln n − σ²/2 is only its beginning, wrong by half a nat at σ = 2. Numbers only: it
knows no attention and no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

LARGEST = 32.0
"""Beyond this σ a row is one-hot but for ties, which are as rare as σ is large: what is left is a/σ + b/σ²."""

STEP = 0.25
"""Of the trapezoidal rule over ln t and s, or σ/4; the integrands are smooth and fall off, so it converges fast."""

TAIL = 8.0
"""Standard deviations of s that are summed over."""

BELOW, ABOVE = 30.0, 6.0
"""How far ln t goes beyond these: e^BELOW scores at most are summed, and exp(−e^ABOVE) is 0."""

SIGMAS = np.concatenate((np.linspace(0.0, 4.0, 81), np.geomspace(4.0, LARGEST, 50)[1:]))
"""Where the integrals are taken."""

FINE = np.concatenate((np.linspace(0.0, 4.0, 2001), np.geomspace(4.0, LARGEST, 2001)[1:]))
"""Where the results are kept: between SIGMAS by cubics, between these by straight lines."""


@dataclass(frozen=True, eq=False)
class Softmax:
    """Means over rows of n scores N(0, σ²), each of σ's shape.

    `entropy` in nats; `squares`: Σp²; `jacobian`: ‖diag(p) − ppᵀ‖², its squared Frobenius norm, Σp² − 2Σp³ + (Σp²)².
    """

    entropy: F64
    squares: F64
    jacobian: F64

    @property
    def gain(self) -> F64:
        """1 − Σp², the trace of the Jacobian: softmax_gain."""
        return 1 - self.squares


def gaussian_softmax(std: float | F64, n: int) -> Softmax:
    """Return the means over rows of `n` independent scores N(0, `std`²); `std` any shape, ∞ for a one-hot row.

    Errors: ValueError for n < 1, or a std that is negative or NaN.
    """
    sigma = np.asarray(std, np.float64)
    if n < 1 or not (sigma >= 0).all():
        raise ValueError(f"n is {n} and std {std}; allowed: n from 1, std from 0")
    entropy, gain, jacobian = (_at(sigma, values) for values in _table(n))
    return Softmax(entropy, 1 - gain, jacobian)


def beginning(std: float | F64, n: int) -> F64:
    """Return ln n − σ²/2, with which the entropy begins for a small `std` and a large `n`; it falls below 0."""
    return math.log(n) - np.asarray(std, np.float64) ** 2 / 2


def _at(sigma: F64, values: F64) -> F64:
    """Return values on FINE at σ; beyond it a/σ + b/σ², through LARGEST and its half."""
    half, last = (np.interp(place, FINE, values) * place for place in (LARGEST / 2, LARGEST))
    near = LARGEST / np.maximum(sigma, LARGEST)  # 1 up to LARGEST
    limit = 2 * last - half
    return np.where(sigma <= LARGEST, np.interp(sigma, FINE, values), (limit + (last - limit) * near) * near / LARGEST)


@lru_cache(maxsize=4096)
def _table(n: int) -> tuple[F64, F64, F64]:
    """Return entropy, 1 − Σp² and the Jacobian's squared norm on FINE."""
    rows = np.array([_integrals(n, place) for place in range(len(SIGMAS))])
    entropy, gain, jacobian = (_between(values) for values in rows.T)
    return entropy, gain, jacobian


def _between(values: F64) -> F64:
    """Return values at SIGMAS on FINE, by Lagrange's cubics through four neighbours."""
    place = np.clip(np.searchsorted(SIGMAS, FINE, side="right") - 2, 0, len(SIGMAS) - 4)[:, None] + np.arange(4)
    nodes = SIGMAS[place]
    weights = np.ones_like(nodes)
    for one, other in ((i, j) for i in range(4) for j in range(4) if i != j):
        weights[:, one] *= (FINE - nodes[:, other]) / (nodes[:, one] - nodes[:, other])
    return np.asarray((weights * values[place]).sum(1))


def _integrals(n: int, place: int) -> tuple[float, float, float]:
    """Return the entropy, 1 − E Σp² and E‖J‖² at SIGMAS[place]."""
    if place == 0 or n == 1:
        return math.log(n), 1 - 1 / n, 1 / n - 1 / n**2
    step, log_phi, (alone, mean, second, third, fourth) = _factors(place)
    whole, but_one, but_two = (np.exp((n - others) * log_phi) for others in range(3))
    squares, cubes, fourths = (n / math.gamma(k) * step * (moment * but_one).sum()
                               for k, moment in ((2, second), (3, third), (4, fourth)))
    pairs = n * (n - 1) / math.gamma(4) * step * (second**2 * but_two).sum()
    entropy = step * ((alone - whole).sum() - n * (mean * but_one).sum())
    return float(entropy), float(1 - squares), float(squares - 2 * cubes + fourths + pairs)


@cache
def _factors(place: int) -> tuple[float, F64, tuple[F64, ...]]:
    """Return the step of ln t, ln φ, and e^(−t), μ, m_2, m_3, m_4, at SIGMAS[place]: convolutions over s."""
    sigma = float(SIGMAS[place])
    step = min(STEP, sigma / 4)
    reach = math.ceil(TAIL * sigma / step)
    s = np.arange(-reach, reach + 1) * step
    density = np.exp(-0.5 * (s / sigma) ** 2)
    density /= density.sum()
    level = np.arange(-2 * TAIL * sigma - BELOW, 2 * TAIL * sigma + ABOVE, step)  # ln(t·e^s)
    size = np.exp(np.minimum(level, 30.0))
    falls = np.exp(-size)
    phi, *moments = (np.convolve(size**k * falls, density, "valid") for k in (0, 2, 3, 4))
    mean = np.convolve(size * falls, (s * density)[::-1], "valid")
    return step, np.log(np.maximum(phi, 1e-300)), (falls[reach:-reach], mean, *moments)
