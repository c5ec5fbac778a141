"""The pattern of attention that is expected of tokens whose products are known, and what it mixes.

Tokens are products G_ij = E x_i·x_j / width, (T, T), as in `core.theory`; scores are Gaussian given them. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.experiment import Model
from core.gaussian_softmax import gaussian_softmax
from core.products import cosines

F64 = NDArray[np.float64]
Counts = NDArray[np.int64]

NODES = np.unique(np.concatenate((np.arange(1, 17), np.geomspace(16, 2**15, 56).round()))).astype(np.int64)
"""Numbers of keys for which a softmax is integrated; between them it is interpolated over ln n, to a thousandth."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is expected of the rows of a head's pattern.

    `n`: (T,) visible keys; `std`: (T,) of a row's scores; `entropy`, `squares` = Σp²: (T,); `overlap`: (T, T),
    Σ_k p_ik·p_jk, its diagonal Σp²; `alone`: each token attends to itself; else every key is met alike.
    """

    n: Counts
    std: F64
    entropy: F64
    overlap: F64
    alone: bool = False

    @property
    def squares(self) -> F64:
        """Σp² of each row."""
        return np.diag(self.overlap)


def _softmax(q: F64, k: F64, model: Model) -> Pattern:
    """Return the pattern of Gaussian scores: those of a row spread as its keys differ."""
    n = _visible(len(q), model)
    between = _mean_of_pairs(k, n)
    spread = np.maximum(_running(np.diag(k), n) - between, 0.0)
    std = abs(float(model.attention_scale or 0)) * math.sqrt(model.head_dim or 0) * np.sqrt(np.diag(q) * spread)
    entropy, squares = _rows(std, n)
    sharp = n * squares  # 1 when uniform
    overlap = np.minimum(_common(n) * np.sqrt(np.multiply.outer(sharp, sharp)) ** cosines(q), 1.0)
    np.fill_diagonal(overlap, squares)
    return Pattern(n, std, entropy, overlap)


def _uniform(q: F64, _k: F64, model: Model) -> Pattern:
    n = _visible(len(q), model)
    return Pattern(n, np.full(len(q), math.nan), np.log(n), _common(n))


def _identity(q: F64, _k: F64, model: Model) -> Pattern:
    return Pattern(_visible(len(q), model), np.full(len(q), math.nan), np.zeros(len(q)), np.eye(len(q)), alone=True)


PATTERNS: dict[str, Callable[[F64, F64, Model], Pattern]] = {
    "softmax": _softmax, "uniform": _uniform, "identity": _identity,
}


def mixed(v: F64, pattern: Pattern) -> F64:
    """Return Σ_kl p_ik·p_jl·V_kl: what two rows have in common meets V_kk, the rest the pairs that both see.

    Equal weights on the visible pairs k ≠ l, as every key is met alike on average.
    """
    if pattern.alone:
        return v
    n = pattern.n
    first = np.minimum.outer(n, n)
    own = _running(np.diag(v), n)
    total = v.cumsum(0).cumsum(1)[np.ix_(n - 1, n - 1)]  # Σ over k < n_i, l < n_j
    diagonal = np.diag(v).cumsum()[first - 1]
    pairs = np.multiply.outer(n, n) - first
    between = np.divide(total - diagonal, pairs, out=np.zeros_like(total), where=pairs > 0)
    found = pattern.overlap * own[first - 1] + (1 - pattern.overlap) * between
    size = np.sqrt(np.diag(found))
    most = np.multiply.outer(size, size)
    return np.asarray(np.clip(found, -most, most))


def _rows(std: F64, n: Counts) -> tuple[F64, F64]:
    """Return entropy and Σp² of rows of n Gaussian scores with these stds."""
    below = np.searchsorted(NODES, n, side="right") - 1
    found = np.zeros((2, len(n)))
    for node in np.unique(below):
        rows = below == node
        low, high = int(NODES[node]), int(NODES[node + 1])
        weight = np.log(n[rows] / low) / math.log(high / low)
        ends = [gaussian_softmax(std[rows], count) for count in (low, high)]
        first, second = (np.stack((end.entropy, end.squares)) for end in ends)
        found[:, rows] = first * (1 - weight) + second * weight
    return found[0], found[1]


def _common(n: Counts) -> F64:
    """Return Σ_k p_ik·p_jk of uniform weights: the keys that both rows see over the product of their numbers."""
    return np.asarray(np.minimum.outer(n, n) / np.multiply.outer(n, n))


def _visible(length: int, model: Model) -> Counts:
    return np.arange(1, length + 1) if model.causal else np.full(length, length)


def _running(values: F64, n: Counts) -> F64:
    """Return the mean over the first n of `values`, for each n."""
    return np.asarray(values.cumsum()[n - 1] / n)


def _mean_of_pairs(products: F64, n: Counts) -> F64:
    """Return the mean over pairs of different tokens among the first n, for each n; 0 without a pair."""
    total = np.diag(products.cumsum(0).cumsum(1))[n - 1]
    others, pairs = total - np.diag(products).cumsum()[n - 1], n * (n - 1)
    return np.asarray(np.divide(others, pairs, out=np.zeros(len(n)), where=pairs > 0))
