"""One row of scores through a softmax: its weights, how much choice they leave, and what a change of the scores moves.

With z = (s − max s)/T, Z = Σ e^z and p = e^z/Z everything is taken of differences, so that nothing overflows however
large the scores are, and what is left beside a key that has nearly all of the weight is kept exact: 1 − p is the sum of
the others. A score of −∞ is a masked key: its weight is exactly 0, and it counts nowhere. Numbers only: it knows no
attention and no torch.

Shapes: n keys, S scales of the same row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.drift import THRESHOLDS
from core.vocabulary import SATURATED

F64 = NDArray[np.float64]

UNIFORM = THRESHOLDS["uniform_entropy"]
"""A row whose entropy_norm is at least this is called uniform, as a head is."""

SCALES = np.geomspace(1e-2, 1e2, 801)
"""What a row is multiplied with to see its Jacobian grow and shrink."""

LEVEL = 1e-9
"""Norms that differ by less than this share are as large as each other."""


@dataclass(frozen=True, eq=False)
class Row:
    """The softmax of `scores` (n,) at `temperature`. Made by `softmax_row`, which checks them."""

    scores: F64
    temperature: float

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Which keys are not masked, (n,)."""
        return ~np.isneginf(self.scores)

    @property
    def n(self) -> int:
        """How many keys are visible."""
        return int(self.visible.sum())

    @property
    def spread(self) -> float:
        """Standard deviation of the visible scores over the temperature: what the softmax sees."""
        seen = self.scores[self.visible]
        size = float(np.abs(seen).max()) or 1.0
        return float(np.std(seen / size)) * size / self.temperature

    @cached_property
    def _shares(self) -> _Shares:
        return _shares(self.scores, np.array([1.0 / self.temperature]))

    @property
    def p(self) -> F64:
        """The weights, (n,); they sum to 1."""
        return np.asarray(self._shares.p[0])

    @property
    def top(self) -> int:
        """Which key has the largest weight, the first of several."""
        return self._shares.top

    @property
    def max_prob(self) -> float:
        """The largest weight."""
        return float(self.p[self.top])

    @property
    def entropy(self) -> float:
        """−Σ p ln p, in nats: 0 when one key has everything, ln n when all have the same."""
        return float(self._shares.entropy[0])

    @property
    def entropy_norm(self) -> float:
        """Entropy over ln n; NaN for a single visible key, which leaves no choice."""
        return self.entropy / math.log(self.n) if self.n > 1 else math.nan

    @property
    def gain(self) -> float:
        """1 − Σp², the trace of the Jacobian at temperature 1: softmax_gain."""
        return float((self._shares.p * self._shares.rest).sum())

    @property
    def jacobian(self) -> F64:
        """∂p/∂s = (diag(p) − ppᵀ)/T, (n, n), symmetric; rows and columns sum to 0."""
        made = -np.outer(self.p, self.p)
        np.fill_diagonal(made, self.p * self._shares.rest[0])
        return made / self.temperature

    @property
    def jacobian_norm(self) -> float:
        """The Frobenius norm of the Jacobian, at most 1/(2T): where two keys share everything."""
        return float(self._shares.norm[0]) / self.temperature

    def gradient(self, upstream: F64) -> F64:
        """Return what reaches the scores of a gradient at the weights, (n,): Jᵀg = p∘(g − Σ p·g)/T, which sums to 0."""
        relative = upstream - upstream[self.top]
        return np.asarray(self.p * (relative - (self.p * relative).sum()) / self.temperature)

    @property
    def kind(self) -> str:
        """What the row is: single (one visible key), saturated, uniform or between."""
        kinds = (("single", self.n == 1), ("saturated", self.max_prob > SATURATED),
                 ("uniform", self.entropy_norm >= UNIFORM))
        return next((name for name, found in kinds if found), "between")

    @cached_property
    def sweep(self) -> Sweep:
        """The same row at other scales."""
        shares = _shares(self.scores, SCALES / self.temperature)
        return Sweep(SCALES, shares.entropy, shares.norm / self.temperature)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A row times each of `scales`, the temperature as it is: entropy and the Jacobian's norm, each (S,)."""

    scales: F64
    entropy: F64
    norm: F64

    @property
    def top(self) -> int:
        """Where among the scales the norm is largest."""
        return int(self.norm.argmax())

    @property
    def shape(self) -> str:
        """Where the norm is largest: between, at the smallest or largest scale (start, end), or nowhere (flat)."""
        low = self.norm.max() * (1 - LEVEL)
        shapes = (("flat", self.norm.min() >= low), ("start", self.norm[0] >= low), ("end", self.norm[-1] >= low))
        return next((name for name, found in shapes if found), "between")


def softmax_row(scores: F64, temperature: float = 1.0) -> Row:
    """Return the softmax of a row of scores (n,).

    Errors: ValueError for another shape, NaN or +∞ among the scores, no visible key, or a temperature not above 0.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 1:
        raise ValueError(f"a row of scores has one axis, these have {scores.ndim}")
    broken = np.flatnonzero(np.isnan(scores) | np.isposinf(scores))
    if broken.size:
        where = int(broken[0])
        raise ValueError(f"score {where} is {scores[where]}; allowed: finite numbers, and −inf for a masked key")
    if not np.isfinite(scores).any():
        raise ValueError("no key is visible; a row needs at least one finite score")
    if not 0 < temperature < math.inf:
        raise ValueError(f"the temperature is {temperature}; allowed: finite numbers above 0")
    return Row(scores, float(temperature))


def gaussian_scores(n: int, std: float, seed: int) -> F64:
    """Return `n` independent scores N(0, `std`²); another std rescales the same draws."""
    return np.random.default_rng(seed).standard_normal(n) * std


def upstream_normal(n: int, seed: int) -> F64:
    """Return a gradient of independent unit normals, other draws than the scores of that seed."""
    return np.random.default_rng([seed, 1]).standard_normal(n)


def upstream_key(n: int, key: int) -> F64:
    """Return the gradient of one key's weight: 1 there, 0 elsewhere."""
    return np.asarray(np.eye(1, n, key)[0])


@dataclass(frozen=True, eq=False)
class Drawn:
    """Means over drawn rows at each spread, and their standard errors."""

    entropy: F64
    entropy_error: F64
    gain: F64
    gain_error: F64


def drawn_rows(n: int, stds: F64, rows: int, seed: int) -> Drawn:
    """Return means over `rows` rows of `n` scores N(0, std²) for each of `stds`, all drawn independently."""
    random = np.random.default_rng([seed, 2])
    found = []
    for std in stds.tolist():
        scores = random.standard_normal((rows, n)) * std
        below = scores - scores.max(1, keepdims=True)
        e = np.exp(below)
        total = e.sum(1)
        p = e / total[:, None]
        found.append([np.log(total) - (p * below).sum(1), 1 - (p**2).sum(1)])
    values = np.array(found)  # (stds, 2, rows)
    means, errors = values.mean(2), values.std(2, ddof=1) / math.sqrt(rows)
    return Drawn(means[:, 0], errors[:, 0], means[:, 1], errors[:, 1])


@dataclass(frozen=True, eq=False)
class _Shares:
    """Weights of a row at S scales, `p` and `rest` = 1 − p (S, n); `entropy` and `norm` of diag(p) − ppᵀ (S,)."""

    top: int
    p: F64
    rest: F64
    entropy: F64
    norm: F64


def _shares(scores: F64, scales: F64) -> _Shares:
    """Return softmax(scores·scale) for each scale, without ever forming scores·scale."""
    top = int(scores.argmax())
    with np.errstate(over="ignore", under="ignore"):  # a score that is farther below than a float can say has e^z = 0
        z = np.multiply.outer(scales, scores - scores[top])
        e = np.exp(z)
        others = np.delete(e, top, axis=1).sum(1)
        p = e / (1 + others)[:, None]
        rest = 1 - p
        rest[:, top] = others / (1 + others)
        entropy = np.log1p(others) - (p * np.where(p > 0, z, 0)).sum(1)
        most, squares = p[:, top] ** 2, np.delete(p, top, axis=1) ** 2
        pairs = squares.sum(1) ** 2 - (squares**2).sum(1)
        norm = np.sqrt(((p * rest) ** 2).sum(1) + 2 * most * squares.sum(1) + np.maximum(pairs, 0))
    return _Shares(top, p, rest, entropy, norm)
