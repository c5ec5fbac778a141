"""The measures of attention per head: from queries and keys in pieces, or from scores that are given.

No T×T tensor is ever held for long T: scores are made and reduced PIECE at a time, whatever B, H and T. p is a query's
pattern over its n visible keys. A query that is padding, or sees nothing (n = 0), is left out; one that sees a single
key (n = 1) carries no choice and counts for entropy and max_prob only. A head with a score that is not finite has NaN.
score_absmax and qk_cosine are over all visible pairs of real queries, q_rms and k_rms over real tokens. The file does
not know models or hooks.

Shapes: B batch, H heads, T queries, N keys, K head dimension; G×Q×N one piece of scores, G = batch slice × H.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from core.moments import directions, working_dtype
from core.sites import Heads
from core.vocabulary import HEAD_MEASURES

PIECE = 1 << 18
"""Scores held at a time; on a GPU PIECE_GPU, where larger pieces keep it busy."""

PIECE_GPU = 1 << 22

Pattern = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From scores below their row's top (b, H, Q, N), what is kept of them and n: entropy, max_prob, gain, (b, H, Q)."""

SATURATED = 0.99
"""A query whose largest p is above is saturated."""


@dataclass(frozen=True)
class Rows:
    """What is taken of every row of scores, each (b, H, Q): the pattern's facts and the scores' own."""

    entropy: Tensor
    max_prob: Tensor
    gain: Tensor
    std: Tensor
    absmax: Tensor


def head_measures(q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads) -> Tensor:
    """Return HEAD_MEASURES of each head, (M, H), on the device of q, unfetched.

    `q`, `k`: (B, H, T, K), k repeated over the heads; `mask`: (B, T), true at real tokens; `rule`: scale, soft cap,
    pattern and causality. Computed in float32 or wider, without autograd.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = _real_only(q.detach().to(wide), mask), _real_only(k.detach().to(wide), mask)
    sums = _Sums(q)
    for batch, queries, keys in pieces(tuple(q.shape[:3]), PIECE if q.device.type == "cpu" else PIECE_GPU, rule.causal):
        scores = (q[batch, :, queries] * rule.scale) @ k[batch, :, keys].transpose(-2, -1)  # (b, H, Q, N)
        real = None if mask is None else mask[batch, None, queries]  # (b, 1, Q)
        seen = _visible(queries, keys, None if mask is None else mask[batch], rule.causal, q.device)
        n = _visible_count(seen, scores)
        sums.add(_rows(scores, seen, n, rule.softcap, PATTERNS[rule.pattern]), n, real)
    return torch.cat((sums.measures(), _alignment(q, k, mask, rule.causal)))


def measures_of_scores(scores: Tensor, visible: Tensor | None = None,
                       softcap: float | None = None) -> dict[str, Tensor]:
    """Return the measures that need scores only, name → (H,), of given scaled scores before the soft cap.

    `scores`: (B, H, Q, N), (H, Q, N) or (Q, N), one head in the last case; `visible`: true where a query sees a key,
    broadcasting to them, or None for everywhere. Queries that see nothing are left out.
    """
    wide = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    wide = wide.reshape((1,) * (4 - wide.ndim) + tuple(wide.shape))
    seen = None if visible is None else visible.expand(scores.shape).reshape(wide.shape)
    wide = wide if seen is None else torch.where(seen, wide, 0)
    sums, n = _Sums(wide), _visible_count(seen, wide)
    sums.add(_rows(wide, seen, n, softcap, _softmax), n, None)
    return dict(zip(HEAD_MEASURES, sums.measures(), strict=False))


def pieces(shape: tuple[int, ...], size: int, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Yield slices of batch, queries and keys that cover all pairs that may see each other, once.

    `shape`: B, H, T; `size`: the scores of a piece at most, b·H·Q·N, as long as one query's fit.
    """
    batch, heads, length = shape
    queries = max(1, min(length, size // (heads * length)))
    sequences = max(1, min(batch, size // (heads * length * queries)))
    for first in range(0, batch, sequences):
        for start in range(0, length, queries):
            stop = min(start + queries, length)
            yield slice(first, min(first + sequences, batch)), slice(start, stop), slice(0, stop if causal else length)


class _Sums:
    """Running sums over queries: of what counts for n ≥ 1, of what counts for n ≥ 2, and the largest |score|."""

    def __init__(self, like: Tensor) -> None:
        self.dtype = working_dtype(like)
        self.sums = torch.zeros(6, like.shape[1], dtype=self.dtype, device=like.device)  # (6, H)
        self.queries = torch.zeros(2, like.shape[1], dtype=self.dtype, device=like.device)  # (2, H): n ≥ 1, n ≥ 2
        self.absmax = torch.zeros(like.shape[1], dtype=self.dtype, device=like.device)  # (H,)

    def add(self, rows: Rows, n: Tensor, real: Tensor | None) -> None:
        """Add a piece; `n`: (…, Q) visible keys of each query; `real`: (b, 1, Q), or None where every query is."""
        n = n if real is None else n * real
        saturated = (rows.max_prob > SATURATED).to(self.dtype) + 0 * rows.max_prob  # NaN stays NaN
        values = torch.stack((rows.entropy, rows.max_prob, rows.entropy / n.log(), saturated, rows.gain,
                              rows.std.to(self.dtype)))  # (6, b, H, Q)
        chosen = torch.stack((n > 0, n > 1))  # (2, …, Q)
        each = torch.cat((chosen[:1], chosen[:1], chosen[1:].expand(4, *n.shape)))
        self.sums += torch.where(each, values, 0).sum((1, 3))
        self.queries += chosen.expand(2, values.shape[1], -1, -1).sum((1, 3))
        self.absmax = torch.maximum(self.absmax, torch.where(n > 0, rows.absmax, 0).amax((0, 2)).to(self.dtype))

    def measures(self) -> Tensor:
        """Return entropy … softmax_gain in the order of HEAD_MEASURES, (7, H)."""
        some, choices = self.queries  # (H,)
        entropy, max_prob = self.sums[:2] / some
        entropy_norm, saturated, gain, std = self.sums[2:] / choices
        absmax = torch.where((some > 0) & self.absmax.isfinite(), self.absmax, math.nan)
        return torch.stack((entropy, entropy_norm, max_prob, saturated, std, absmax, gain))


def _visible(queries: slice, keys: slice, mask: Tensor | None, causal: bool, device: torch.device) -> Tensor | None:
    """Return what the queries of a piece see, broadcasting to (b, H, Q, N); None: everything."""
    real = None if mask is None else mask[:, None, None, keys]  # (b, 1, 1, N)
    if not causal:
        return real
    rows = torch.arange(queries.start, queries.stop, device=device)
    earlier = torch.arange(keys.stop, device=device) <= rows[:, None]  # (Q, N)
    return earlier if real is None else earlier & real


def _visible_count(seen: Tensor | None, scores: Tensor) -> Tensor:
    """Return n of every query, (b or 1, 1 or H, Q)."""
    if seen is None:
        return torch.full((1, 1, scores.shape[-2]), scores.shape[-1], dtype=working_dtype(scores), device=scores.device)
    n = seen.sum(-1, dtype=working_dtype(scores))
    return n.reshape((1,) * (3 - n.ndim) + tuple(n.shape))


def _rows(scores: Tensor, seen: Tensor | None, n: Tensor, softcap: float | None, pattern: Pattern) -> Rows:
    """Return what is taken of each row of a piece; `n`: (…, Q), the keys it sees."""
    keep = None if seen is None else seen.to(scores.dtype)
    top, below = _below_top(scores, keep)  # (b, H, Q, 1), (b, H, Q, N) ≤ 0
    lowest = below.amin(-1, keepdim=True)
    capped = below if softcap is None else _below_top(softcap * torch.tanh(scores / softcap), keep)[1]
    facts = pattern(capped, keep, n)
    std = _std(below, lowest, keep, n)
    whole = (top.isfinite() & lowest.isfinite()).squeeze(-1)
    absmax = torch.maximum(top.abs(), (top + lowest).abs()).squeeze(-1)
    return Rows(*facts, torch.where(whole, std, math.nan), torch.where(whole, absmax, math.nan))


def _below_top(scores: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return each row's largest visible score and how far every visible one is below it; hidden ones at 0.

    `keep`: 1 at visible keys, 0 at hidden ones. Arithmetic on it is many times faster than a masked fill; a hidden
    score that is not finite spoils its row, but then so it does its own query's, which sees it, and with it the head.
    """
    if keep is None:
        top = scores.amax(-1, keepdim=True)
        return top, scores - top
    top = (scores + keep.log()).amax(-1, keepdim=True)
    return top, (scores - top.clamp(min=torch.finfo(scores.dtype).min)).mul_(keep)


def _std(below: Tensor, lowest: Tensor, keep: Tensor | None, n: Tensor) -> Tensor:
    """Return the population std of the visible scores of each row, scaled by their range so that nothing overflows.

    `below` is used up.
    """
    span = torch.where(lowest < 0, -lowest, 1)
    scaled = below.div_(span)
    scaled -= (scaled.sum(-1, keepdim=True) / n.unsqueeze(-1)).to(scaled.dtype)
    if keep is not None:
        scaled *= keep
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1)
    return length * span.squeeze(-1) / n.sqrt()


def _softmax(below: Tensor, keep: Tensor | None, _n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return entropy ln Z − Σ e^t t / Z, max_prob 1/Z and gain 1 − Σ p² for t = score − top, Z = Σ e^t; (b, H, Q)."""
    weight = below.exp()
    if keep is not None:
        weight *= keep
    wide = working_dtype(below)
    total = weight.sum(-1).to(wide)
    squares = torch.linalg.vector_norm(weight, dim=-1).to(wide)
    moment = weight.mul_(below).sum(-1).to(wide)
    total = torch.where(moment.isfinite(), total, math.nan)  # a score of −Inf: its weight 0 hides it in Z alone
    return total.log() - moment / total, 1 / total, 1 - (squares / total) ** 2


def _uniform(below: Tensor, _keep: Tensor | None, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ln n, 1/n and 1 − 1/n: equal weights on what is visible."""
    count = n.expand(below.shape[:-1])
    return count.log(), 1 / count, 1 - 1 / count


def _identity(below: Tensor, _keep: Tensor | None, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 0, 1 and 0: all weight on the token itself."""
    zeros = torch.zeros(below.shape[:-1], dtype=working_dtype(below), device=n.device)
    return zeros, zeros + 1, zeros


PATTERNS: dict[str, Pattern] = {
    "softmax": _softmax, "uniform": _uniform, "identity": _identity,
}
"""Pattern → entropy, max_prob and softmax_gain of every row."""


def _real_only(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, H, T, K) with 0 at padding, whatever stood there."""
    return x if mask is None else torch.where(mask[:, None, :, None], x, 0)


def _alignment(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return q_rms, k_rms and qk_cosine of each head, (3, H)."""
    (u, q_norms, queries), (w, k_norms, keys) = directions(q), directions(k)  # (B, H, T, K), (B, H, T), (B, H, T)
    real = torch.ones_like(queries) if mask is None else mask[:, None].expand(queries.shape)
    cosine = _pair_cosine(u, queries & real, w, keys & real, causal)
    return torch.stack((_rms(q_norms, real, q.shape[-1]), _rms(k_norms, real, k.shape[-1]), cosine.to(q_norms.dtype)))


def _rms(norms: Tensor, real: Tensor, width: int) -> Tensor:
    """Return √(mean x²) of each head's real tokens from their norms (B, H, T), (H,); NaN where one is not finite."""
    by_head = torch.where(real, norms, 0).transpose(0, 1).flatten(1)  # (H, B·T)
    scale = by_head.amax(1).clamp(min=torch.finfo(norms.dtype).tiny)
    mean = (by_head / scale[:, None]).square().sum(1) / (real.sum((0, 2)) * width)
    return mean.sqrt() * scale


def _pair_cosine(u: Tensor, queries: Tensor, w: Tensor, keys: Tensor, causal: bool) -> Tensor:
    """Return the mean cos(q, k) of each head over visible pairs, (H,): Σ_i u_i · Σ_{j visible} w_j, in O(T·K).

    `u`, `w`: unit vectors of q and k (B, H, T, K); `queries`, `keys`: which of them count, (B, H, T). Tokens of zero or
    non-finite norm are left out; NaN without a pair.
    """
    w, count = torch.where(keys.unsqueeze(-1), w, 0), keys.to(w.dtype)
    w = w.cumsum(2) if causal else w.sum(2, keepdim=True)
    count = count.cumsum(2) if causal else count.sum(2, keepdim=True)
    total = torch.where(queries, (u * w).sum(-1), 0).sum((0, 2))
    return total / torch.where(queries, count, 0).sum((0, 2))
