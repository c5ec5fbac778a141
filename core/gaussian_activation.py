"""What a nonlinearity makes of Gaussian input on average: the products of what two tokens become.

For h, h' jointly Gaussian with variances v, v' and correlation ρ, E φ(h)·φ(h') = Σ_k a_k(v)·a_k(v')·ρ^k with
a_k(v) = E φ(√v·z)·He_k(z)/√k! (Mehler 1866; Daniely, Frostig, Singer 2016, arXiv:1602.05897). TERMS of them are summed
and what is left of E φ² is put at k = 2·TERMS, about the middle of a kink's tail, so that ρ = 1 is exact. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from core.products import cosines

F64 = NDArray[np.float64]

TERMS = 24
REACH, POINTS = 10.0, 2001
"""Standard deviations that are integrated over, and at how many points: a kink costs 1e-5."""

STEP, SMALLEST = 1e-3, 1e-300
"""Of a difference that stands for a slope, in standard deviations; where that is 0, this."""

_GRID = np.linspace(-REACH, REACH, 4 * POINTS)
_BELOW = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in _GRID])


def _gelu(x: F64) -> F64:
    return np.asarray(x * np.interp(x, _GRID, _BELOW, left=0.0, right=1.0))


def _gelu_tanh(x: F64) -> F64:
    near = np.clip(x, -REACH, REACH)
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (near + 0.044715 * near**3))))


def _silu(x: F64) -> F64:
    return np.asarray(x / (1 + np.exp(-np.clip(x, -700, None))))


FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": lambda x: np.maximum(x, 0.0), "silu": _silu, "tanh": np.tanh,
    "identity": lambda x: x, "swiglu": _silu, "geglu": _gelu, "reglu": lambda x: np.maximum(x, 0.0),
}
"""Activation → its function (of the gate) for NumPy; that it is `core.activations`' own is a test."""


def gram(products: F64, activation: str) -> F64:
    """Return E φ(h_i)·φ(h_j), (T, T), of Gaussian h with E h_i·h_j = `products`, (T, T); φ the named function."""
    return _gram(products, FUNCTIONS[activation])


def slope_gram(products: F64, activation: str) -> F64:
    """Return E φ'(h_i)·φ'(h_j), (T, T), of the same h: with what gradients come back through φ."""
    return _gram(products, partial(_slope, FUNCTIONS[activation]))


def _slope(function: Callable[[F64], F64], x: F64) -> F64:
    """Return φ'(x) for rows x, (U, P), by a difference over STEP of a row's standard deviation."""
    step = np.maximum(STEP * np.abs(x).max(1, keepdims=True) / REACH, SMALLEST)
    return np.asarray((function(x + step) - function(x - step)) / (2 * step))


def _gram(products: F64, function: Callable[[F64], F64]) -> F64:
    rho = cosines(products)
    factors = _factors(np.sqrt(np.diag(products)), function)  # (TERMS + 1, T)
    found, power = np.zeros_like(products), np.ones_like(products)
    for factor in factors[:-1]:
        found += np.outer(factor, factor) * power
        power *= rho
    return np.asarray(found + np.outer(factors[-1], factors[-1]) * power**2)


def _factors(std: F64, function: Callable[[F64], F64]) -> F64:
    """Return a_k for each std, and what is left of E φ² as one more; equal stds are integrated once."""
    known, place = np.unique(std, return_inverse=True)
    z, weight, hermite = _nodes()
    values = function(known[:, None] * z)  # (U, P)
    factors = (values * weight) @ hermite.T  # (U, TERMS)
    rest = np.maximum((values**2) @ weight - (factors**2).sum(1), 0.0)
    return np.concatenate((factors, np.sqrt(rest)[:, None]), 1)[place].T


@cache
def _nodes() -> tuple[F64, F64, F64]:
    """Return points z, their Gaussian weights, and He_k(z)/√k! for k < TERMS, (TERMS, P)."""
    z = np.linspace(-REACH, REACH, POINTS)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    rows = [np.ones_like(z), z]
    for k in range(2, TERMS):
        rows.append((z * rows[-1] - math.sqrt(k - 1) * rows[-2]) / math.sqrt(k))
    return z, weight, np.stack(rows)
