"""The measures of attention per head: from queries and keys in pieces, or from scores that are given.

On the CPU most heads take the fast way (`core.fast_heads`); the general way here says what it must give. No T×T tensor
is ever held for long T: scores are made and reduced PIECE at a time, whatever B, H and T. p is a query's pattern over
its n visible keys. A query that is padding, or sees nothing (n = 0), is left out; one that sees a single
key (n = 1) carries no choice and counts for entropy and max_prob only. A head with a score that is not finite has NaN.
score_absmax and qk_cosine are over the visible pairs of the queries that have a choice, q_rms and k_rms over real
tokens. The file does not know models or hooks.

Shapes: B batch, H heads, T queries, N keys, K head dimension; G×Q×N one piece of scores, G = batch slice × H.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from core import fast_heads, query_quantiles
from core.moments import directions, working_dtype
from core.sites import Heads
from core.vocabulary import HEAD_MEASURES, SATURATED

PIECE = 1 << 17
"""Scores held at a time; on a GPU PIECE_GPU, where larger pieces keep it busy."""

PIECE_GPU = 1 << 22


@dataclass(frozen=True)
class Seen:
    """What each query of a piece sees, everything with leading axes that broadcast to (b, H).

    `keep`: (…, Q, N), 1 at visible keys and 0 at hidden ones, and `bias`, 0 there and hugely negative here; both None
    where all are visible. `n`: (…, Q) visible keys. `chosen`: (6, …, Q), which queries count for each of MEANS.
    """

    keep: Tensor | None
    bias: Tensor | None
    n: Tensor
    chosen: Tensor

    @classmethod
    def of(cls, visible: Tensor, real: Tensor | None, dtype: torch.dtype) -> Seen:
        """Return what `visible` (…, Q, N) says; `real`: (b, 1, Q), false at queries to leave out, or None."""
        keep = visible.to(dtype)
        n = visible.sum(-1, dtype=working_dtype(keep))
        n = n.reshape((1,) * (3 - n.ndim) + tuple(n.shape))
        counted = n if real is None else n * real
        chosen = torch.stack([counted >= least for least in MEANS.values()])
        return cls(keep, (keep - 1) * (torch.finfo(dtype).max / 2), n, chosen)


MEANS: dict[str, int] = {"entropy": 1, "max_prob": 1, "entropy_norm": 2, "saturated_frac": 2, "softmax_gain": 2,
                         "score_std": 2}
"""The measures that are means over queries → the least number of visible keys of a query that counts."""

CHOICE, SHARE = list(MEANS).index("score_std"), list(MEANS).index("entropy_norm")
"""Which of MEANS takes the queries that have a choice, and which is a quantile's too."""


@dataclass(frozen=True)
class Rows:
    """What is taken of every row of scores, each (b, H, Q): the pattern's facts and the scores' own."""

    entropy: Tensor
    max_prob: Tensor
    gain: Tensor
    std: Tensor
    absmax: Tensor


Pattern = Callable[[Tensor, Seen], tuple[Tensor, Tensor, Tensor]]
"""From scores below their row's top (b, H, Q, N), left as they are: entropy, max_prob and gain, (b, H, Q)."""


def head_measures(q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads, full: bool = False) -> Tensor:
    """Return HEADS_STANDARD of each head, in detail `full` HEAD_MEASURES, (M, H), on the device of q, unfetched.

    `q`, `k`: (B, H, T, K), k repeated over the heads; `mask`: (B, T), true at real tokens; `rule`: scale, soft cap,
    pattern and causality. Computed in float32 or wider, without autograd.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.detach().to(wide), k.detach().to(wide)
    quick = fast_heads.measures(q, k, mask, rule, SATURATED, full)
    return general(q, k, mask, rule, full) if quick is None else quick


def general(q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads, full: bool = False) -> Tensor:
    """Return the same in the general way: any pattern, on any device; `q`, `k` float32 or float64."""
    wide, q, k = q.dtype, _real_only(q, mask), _real_only(k, mask)
    sums = _Sums(q, full)
    for batch, queries, keys in pieces(tuple(q.shape[:3]), PIECE if q.device.type == "cpu" else PIECE_GPU, rule.causal):
        scores = (q[batch, :, queries] * rule.scale) @ k[batch, :, keys].transpose(-2, -1)  # (b, H, Q, N)
        if rule.scores_in is not None:
            scores = scores.to(rule.scores_in).to(wide)
        real = None if mask is None else (mask[batch, None, queries], mask[batch, None, None, keys])
        seen = _seen((queries.start, queries.stop, keys.stop), real, rule.causal, scores)
        sums.add(_rows(scores, seen, rule.softcap, PATTERNS[rule.pattern]), seen)
    return torch.cat((sums.measures(), _alignment(q, k, mask, rule.causal), *sums.quantiles()))


def measures_of_scores(scores: Tensor, visible: Tensor | None = None,
                       softcap: float | None = None) -> dict[str, Tensor]:
    """Return the measures that need scores only, name → (H,), of given scaled scores before the soft cap.

    `scores`: (B, H, Q, N), (H, Q, N) or (Q, N), one head in the last case; `visible`: true where a query sees a key,
    broadcasting to them, or None for everywhere. Queries that see nothing are left out.
    """
    wide = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    wide = wide.reshape((1,) * (4 - wide.ndim) + tuple(wide.shape))
    seen = None if visible is None else visible.expand(scores.shape).reshape(wide.shape)
    wide = wide.clone() if seen is None else torch.where(seen, wide, 0)
    everywhere = torch.ones((), dtype=torch.bool, device=wide.device).expand(wide.shape[-2:])
    sums, rows_see = _Sums(wide), Seen.of(everywhere if seen is None else seen, None, wide.dtype)
    sums.add(_rows(wide, rows_see, softcap, _softmax), rows_see)
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
    """Running sums over queries of MEANS, how many queries they have, and the largest |score|.

    In detail `full` the normalized entropy of every query too, one number each.
    """

    def __init__(self, like: Tensor, full: bool = False) -> None:
        self.dtype = working_dtype(like)
        self.sums, self.queries = torch.zeros(2, len(MEANS), like.shape[1], dtype=self.dtype, device=like.device)
        self.absmax = torch.zeros(like.shape[1], dtype=self.dtype, device=like.device)  # (H,)
        self.full, self.shares = full, list[Tensor]()

    def add(self, rows: Rows, seen: Seen) -> None:
        """Add a piece."""
        saturated = (rows.max_prob > SATURATED) + 0 * rows.max_prob  # NaN stays NaN
        values = torch.stack((rows.entropy, rows.max_prob, rows.entropy / seen.n.log(), saturated, rows.gain, rows.std))
        self.sums += torch.where(seen.chosen, values, 0).sum((1, 3))  # values: (6, b, H, Q)
        self.queries += seen.chosen.sum((1, 3)) * (values.shape[1] // seen.chosen.shape[1])
        largest = torch.where(seen.chosen[CHOICE], rows.absmax, 0).amax((0, 2))
        self.absmax = torch.maximum(self.absmax, largest)
        if self.full:
            shares = torch.where(seen.chosen[SHARE], values[SHARE], query_quantiles.LEFT_OUT)  # (b, H, Q)
            self.shares.append(shares.transpose(0, 1).flatten(1))

    def measures(self) -> Tensor:
        """Return entropy … softmax_gain in the order of HEAD_MEASURES, (7, H)."""
        found = dict(zip(MEANS, self.sums / self.queries, strict=True))
        found["score_absmax"] = torch.where((self.queries[CHOICE] > 0) & self.absmax.isfinite(), self.absmax, math.nan)
        return torch.stack([found[name] for name in HEAD_MEASURES if name in found])

    def quantiles(self) -> list[Tensor]:
        """Return ENTROPY_QUANTILES, (5, H), in a list; nothing but in detail full."""
        return [query_quantiles.of_shares(torch.cat(self.shares, 1))] if self.full else []


def _seen(piece: tuple[int, int, int], real: tuple[Tensor, Tensor] | None, causal: bool, scores: Tensor) -> Seen:
    """Return what the queries of a piece (first, stop; stop of keys) see; `real`: its queries and keys, (b, 1, …)."""
    if real is None:
        return _all_real(piece, causal, scores.dtype, scores.device)
    queries, keys = real
    return Seen.of(keys & _earlier(piece, scores.device) if causal else keys.expand(-1, -1, scores.shape[-2], -1),
                   queries, scores.dtype)


@lru_cache(maxsize=16)
def _all_real(piece: tuple[int, int, int], causal: bool, dtype: torch.dtype, device: torch.device) -> Seen:
    """Return what queries see where nothing is padding; the same in every layer and step, so it is kept."""
    first, stop, keys = piece
    if causal:
        return Seen.of(_earlier(piece, device), None, dtype)
    wide = working_dtype(torch.empty(0, dtype=dtype, device=device))
    n = torch.full((1, 1, stop - first), keys, dtype=wide, device=device)
    return Seen(None, None, n, torch.stack([n >= least for least in MEANS.values()]))


def _earlier(piece: tuple[int, int, int], device: torch.device) -> Tensor:
    """Return which keys a causal query may see, (Q, N)."""
    first, stop, keys = piece
    return torch.arange(keys, device=device) <= torch.arange(first, stop, device=device)[:, None]


def _rows(scores: Tensor, seen: Seen, softcap: float | None, pattern: Pattern) -> Rows:
    """Return what is taken of each row of a piece; `scores` (b, H, Q, N) are used up."""
    capped = None if softcap is None else softcap * torch.tanh(scores / softcap)
    top, below = _below_top(scores, seen)
    lowest = below.amin(-1, keepdim=True)
    facts = pattern(below if capped is None else _below_top(capped, seen)[1], seen)
    whole = (top.isfinite() & lowest.isfinite()).squeeze(-1)
    absmax = torch.maximum(top.abs(), (top + lowest).abs()).squeeze(-1).to(facts[0].dtype)
    return Rows(*facts, *(torch.where(whole, value, math.nan) for value in (_std(below, lowest, seen), absmax)))


def _below_top(scores: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
    """Return each row's largest visible score (b, H, Q, 1), and in place how far visible ones are below it, hidden 0.

    Arithmetic with what is kept is many times faster than a masked fill. A hidden score that is not finite spoils its
    row, but then so it does its own query's, which sees it, and with it the head.
    """
    if seen.keep is None or seen.bias is None:
        top = scores.amax(-1, keepdim=True)
        return top, scores.sub_(top)
    top = scores.add_(seen.bias).amax(-1, keepdim=True)
    return top, scores.sub_(top).mul_(seen.keep)


def _std(below: Tensor, lowest: Tensor, seen: Seen) -> Tensor:
    """Return the population std of the visible scores of each row, scaled by their range so that nothing overflows.

    `below` is used up.
    """
    span = torch.where(lowest < 0, -lowest, 1)
    scaled = below.div_(span)
    scaled -= (scaled.sum(-1, keepdim=True) / seen.n.unsqueeze(-1)).to(scaled.dtype)
    if seen.keep is not None:
        scaled *= seen.keep
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1)
    return length * span.squeeze(-1) / seen.n.sqrt()


def _softmax(below: Tensor, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """Return entropy ln Z − Σ e^t t / Z, max_prob 1/Z and gain 1 − Σ p² for t = score − top, Z = Σ e^t; (b, H, Q)."""
    weight = below.exp()
    if seen.keep is not None:
        weight *= seen.keep
    wide = working_dtype(below)
    total = weight.sum(-1).to(wide)
    squares = torch.linalg.vector_norm(weight, dim=-1).to(wide)
    moment = weight.mul_(below).sum(-1).to(wide)
    total = torch.where(moment.isfinite(), total, math.nan)  # a score of −Inf: its weight 0 hides it in Z alone
    return total.log() - moment / total, 1 / total, 1 - (squares / total) ** 2


def _uniform(below: Tensor, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """Return ln n, 1/n and 1 − 1/n: equal weights on what is visible."""
    count = seen.n.expand(below.shape[:-1])
    return count.log(), 1 / count, 1 - 1 / count


def _identity(below: Tensor, _seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """Return 0, 1 and 0: all weight on the token itself."""
    zeros = torch.zeros(below.shape[:-1], dtype=working_dtype(below), device=below.device)
    return zeros, zeros + 1, zeros


PATTERNS: dict[str, Pattern] = {
    "softmax": _softmax, "uniform": _uniform, "identity": _identity,
}
"""Pattern → entropy, max_prob and softmax_gain of every row."""


def _real_only(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, H, T, K) with 0 at padding, whatever stood there."""
    return x if mask is None else torch.where(mask[:, None, :, None], x, 0)


def _alignment(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return q_rms, k_rms and qk_cosine of each head, (3, H); q and k are 0 at padding."""
    (u, q_norms, queries), (w, k_norms, keys) = directions(q), directions(k)  # (B, H, T, K), (B, H, T), (B, H, T)
    norms = torch.stack((q_norms, k_norms)).transpose(1, 2).flatten(2)  # (2, H, B·T)
    scale = norms.amax(2, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)
    tokens = norms.new_full((), norms.shape[2]) if mask is None else mask.sum().to(norms.dtype)
    rms = torch.linalg.vector_norm(norms / scale, dim=2) * scale.squeeze(2) / (tokens * q.shape[-1]).sqrt()
    queries = queries * _has_choice(q, mask, causal)
    return torch.cat((rms, _pair_cosine(u, queries, w, keys, causal).to(rms.dtype)[None]))


def _has_choice(q: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return which tokens see two keys or more, (B, 1, T)."""
    real = q.new_ones(q.shape[0], q.shape[2], dtype=torch.int64) if mask is None else mask.long()
    n = real.cumsum(1) if causal else real.sum(1, keepdim=True).expand_as(real)
    return (n >= 2)[:, None]


def _pair_cosine(u: Tensor, queries: Tensor, w: Tensor, keys: Tensor, causal: bool) -> Tensor:
    """Return the mean cos(q, k) of each head over visible pairs, (H,): Σ_i u_i · Σ_{j visible} w_j, in O(T·K).

    `u`, `w`: unit vectors of q and k (B, H, T, K), 0 where there is no direction, which `queries` and `keys` (B, H, T)
    say; those are left out, padding among them. NaN without a pair.
    """
    count = keys.to(w.dtype)
    w = w.cumsum(2) if causal else w.sum(2, keepdim=True)
    count = count.cumsum(2) if causal else count.sum(2, keepdim=True)
    return ((u * w).sum(3) * queries).sum((0, 2)) / (count * queries).sum((0, 2))
