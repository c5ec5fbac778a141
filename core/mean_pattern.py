"""The pattern of attention that is expected of tokens whose products are known, what it mixes, and what comes back.

Tokens are products G_ij = E x_i·x_j / width, (T, T), gradients Γ_ij = E g_i·g_j / width, as in `core.tape`; scores are
Gaussian given them. Every key is met alike on average, so of any keys' products V only two means count: over one key
with itself, and over pairs of two. `_met` takes them, and `_met_back` is its transpose. No torch.

Shapes: T positions, K head dimension.
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
    Σ_k p_ik·p_jk, its diagonal Σp²; `jacobian`: (T, T), tr J_i·J_j with J = diag(p) − ppᵀ, 0 where no score is read;
    `score`: K·scale², the variance of q·k·scale for unit normals; `alone`: each token attends to itself; else every key
    is met alike.
    """

    n: Counts
    std: F64
    entropy: F64
    overlap: F64
    jacobian: F64
    score: float = 0.0
    alone: bool = False

    @property
    def squares(self) -> F64:
        """Σp² of each row."""
        return np.diag(self.overlap)


def _softmax(q: F64, k: F64, model: Model) -> Pattern:
    """Return the pattern of Gaussian scores: those of a row spread as its keys differ."""
    n = _visible(len(q), model)
    score = float(model.attention_scale or 0) ** 2 * (model.head_dim or 0)
    std = np.sqrt(score * np.diag(q) * np.diag(_difference(k, n)))
    entropy, squares, jacobian = _rows(std, n)
    alike = cosines(q)
    overlap = np.minimum(_between(_common(n), n * squares, alike), 1.0)
    np.fill_diagonal(overlap, squares)
    choice = np.maximum(n - 1, 1)
    gain = (1 - squares) * n / choice  # of a row, 1 when uniform
    apart = _common(n) * np.multiply.outer(gain, gain) * (1 - 1 / np.minimum.outer(n, n))
    both = _between(apart, np.divide(jacobian, np.diag(apart), out=np.ones_like(std), where=n > 1), alike)
    np.fill_diagonal(both, jacobian)
    return Pattern(n, std, entropy, overlap, both, score)


def _uniform(q: F64, _k: F64, model: Model) -> Pattern:
    n = _visible(len(q), model)
    return Pattern(n, np.full(len(q), math.nan), np.log(n), _common(n), np.zeros_like(q))


def _identity(q: F64, _k: F64, model: Model) -> Pattern:
    return Pattern(_visible(len(q), model), np.full(len(q), math.nan), np.zeros(len(q)), np.eye(len(q)),
                   np.zeros_like(q), alone=True)


PATTERNS: dict[str, Callable[[F64, F64, Model], Pattern]] = {
    "softmax": _softmax, "uniform": _uniform, "identity": _identity,
}


def mixed(v: F64, pattern: Pattern) -> F64:
    """Return Σ_kl p_ik·p_jl·V_kl: what two rows have in common meets V_kk, the rest the pairs that both see."""
    if pattern.alone:
        return v
    own, pairs = _met(v, pattern.n)
    found = pattern.overlap * own + (1 - pattern.overlap) * pairs
    size = np.sqrt(np.diag(found))
    most = np.multiply.outer(size, size)
    return np.asarray(np.clip(found, -most, most))


def values_pull(pattern: Pattern, gradient: F64) -> F64:
    """Return Σ_ij p_ik·p_jl·Γ_ij, what comes back to values: `mixed`, transposed."""
    if pattern.alone:
        return gradient
    return _met_back(pattern.overlap * gradient, (1 - pattern.overlap) * gradient, pattern.n)


Three = tuple[F64, F64, F64]
"""The products of queries, keys and values."""


def queries_pull(pattern: Pattern, three: Three, gradient: F64) -> F64:
    """Return what comes back to queries through the scores: score·Γ_ij·tr(J_i·J_j)·ΔV·ΔK, Δ how much keys differ.

    ∂loss/∂s_i = J_i·(g_i·v_k)_k and J_i·1 = 0, so of values and of keys only what differs counts.
    """
    _, k, v = three
    differ = _difference(k, pattern.n) * _difference(v, pattern.n)
    return np.asarray(pattern.score * gradient * pattern.jacobian * differ)


def keys_pull(pattern: Pattern, three: Three, gradient: F64) -> F64:
    """Return what comes back to keys through the scores: score·Σ_ij Γ_ij·Q_ij·ΔV·(J_i·J_j)_kl."""
    q, _, v = three
    back = pattern.score * gradient * pattern.jacobian * q * _difference(v, pattern.n)
    return _met_back(back, -back, pattern.n)


def _difference(keys: F64, n: Counts) -> F64:
    """Return by how much a key's mean square is above its product with another, over the keys that two rows see."""
    own, pairs = _met(keys, n)
    return np.maximum(own - pairs, 0.0)


def _met(keys: F64, n: Counts) -> tuple[F64, F64]:
    """Return the means over what rows i and j see, (T, T): of V_kk over k < min(n_i, n_j), of V_kl, k ≠ l."""
    first, pairs = _numbers(n)
    total = keys.cumsum(0).cumsum(1)[np.ix_(n - 1, n - 1)]  # Σ over k < n_i, l < n_j
    diagonal = np.diag(keys).cumsum()[first - 1]
    between = np.divide(total - diagonal, pairs, out=np.zeros_like(total), where=pairs > 0)
    return diagonal / first, between


def _met_back(own: F64, between: F64, n: Counts) -> F64:
    """Return Σ_ij own_ij·∂own_ij/∂V + between_ij·∂between_ij/∂V of what `_met` returns: its transpose."""
    first, pairs = _numbers(n)
    each = np.divide(between, pairs, out=np.zeros_like(between), where=pairs > 0)
    found = np.zeros_like(each)
    np.add.at(found, np.ix_(n - 1, n - 1), each)
    found = found[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1]
    diagonal = np.bincount((first - 1).ravel(), (own / first - each).ravel(), len(n))
    return np.asarray(found + np.diag(diagonal[::-1].cumsum()[::-1]))


def _numbers(n: Counts) -> tuple[Counts, Counts]:
    """Return how many keys rows i and j both see, and how many pairs of two different ones."""
    first = np.minimum.outer(n, n)
    return first, np.multiply.outer(n, n) - first


def _between(apart: F64, sharp: F64, alike: F64) -> F64:
    """Return a sum over two rows by their likeness: `apart` for rows without any, times `sharp`, (T,), for the same."""
    return np.asarray(apart * np.sqrt(np.multiply.outer(sharp, sharp)) ** alike)


def _rows(std: F64, n: Counts) -> F64:
    """Return entropy, Σp² and ‖J‖² of rows of n Gaussian scores with these stds, (3, T)."""
    below = np.searchsorted(NODES, n, side="right") - 1
    found = np.zeros((3, len(n)))
    for node in np.unique(below):
        rows = below == node
        low, high = int(NODES[node]), int(NODES[node + 1])
        weight = np.log(n[rows] / low) / math.log(high / low)
        ends = [gaussian_softmax(std[rows], count) for count in (low, high)]
        first, second = (np.stack((end.entropy, end.squares, end.jacobian)) for end in ends)
        found[:, rows] = first * (1 - weight) + second * weight
    return found


def _common(n: Counts) -> F64:
    """Return Σ_k p_ik·p_jk of uniform weights: the keys that both rows see over the product of their numbers."""
    return np.asarray(np.minimum.outer(n, n) / np.multiply.outer(n, n))


def _visible(length: int, model: Model) -> Counts:
    return np.arange(1, length + 1) if model.causal else np.full(length, length)
