"""The measures of attention heads on the CPU in float32: the fast way of the softmax without a soft cap.

One pass over queries and keys (`core.scan_heads`) gives all of it; padding is taken out beforehand, so every query sees
the first of the keys that are left. What that pass cannot measure is left to the general way, in
`core.attention_measures`, whose definitions these are.

Shapes: B batch, H heads, T queries and keys, K head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core import query_quantiles
from core.scan_heads import SUMS, add_heads
from core.sites import Heads
from core.vocabulary import HEADS_STANDARD

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def measures(q: Tensor, k: Tensor, mask: Tensor | None, rule: Heads, saturated: float,
             full: bool = False) -> Tensor | None:
    """Return HEADS_STANDARD of each head, in detail `full` HEAD_MEASURES, (M, H), or None where the general way is
    needed.

    `q`, `k`: (B, H, T, K); `saturated`: the largest p of a saturated query is above.
    """
    plain = rule.pattern == "softmax" and rule.softcap is None and rule.scores_in in (None, torch.float32)
    if not plain or q.device.type != "cpu" or q.dtype != torch.float32:
        return None
    sums, queries, choices = np.zeros((q.shape[1], len(SUMS))), 0, 0
    shares = list[F32]()
    for real_q, real_k in _real_parts(q.transpose(1, 2), k.transpose(1, 2), mask):
        batch, length = real_q.shape[:2]
        by_token = real_q.contiguous().numpy(), real_k.contiguous().numpy()
        shares.append(np.full((q.shape[1], batch, length * full), query_quantiles.LEFT_OUT, np.float32))
        if add_heads(*by_token, rule.causal, (rule.scale, saturated), sums, shares[-1]):
            return None
        queries += batch * length
        choices += batch * (length - 1 if rule.causal else length * (length > 1))
    means = _named(sums, queries, choices, q.shape[3])
    return torch.cat((means, _quantiles(shares, q.shape[1]))) if full else means


def _real_parts(q: Tensor, k: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield queries and keys (b, T, H, K) without padding: all of them, or each sequence that has a token."""
    if mask is None or bool(mask.all()):
        yield q, k
        return
    for sequence, real in enumerate(mask):
        if real.any():
            yield q[sequence, None, real], k[sequence, None, real]


def _named(sums: F64, queries: int, choices: int, width: int) -> Tensor:
    """Return the measures in the order of HEADS_STANDARD; `choices`: the queries that see two keys or more."""
    sums = sums.T
    counts = {"entropy": queries, "max_prob": queries, "q_rms": queries * width, "k_rms": queries * width,
              "qk_cosine": sums[-1]}
    found = np.empty((len(HEADS_STANDARD), sums.shape[1]))
    with np.errstate(all="ignore"):
        for place, name in enumerate(HEADS_STANDARD):
            found[place] = sums[_PLACES[name]] / counts.get(name, choices)
    found[_SIZES] = np.sqrt(found[_SIZES])
    found[_ABSMAX] = sums[_PLACES["score_absmax"]] if choices else math.nan
    return torch.from_numpy(found)


def _quantiles(shares: list[F32], heads: int) -> Tensor:
    """Return ENTROPY_QUANTILES, (5, H), of every query's share in parts (H, b, T)."""
    together = [np.empty((heads, 0), np.float32), *(part.reshape(heads, -1) for part in shares)]
    return query_quantiles.of_shares(torch.from_numpy(np.concatenate(together, 1)))


_PLACES = {name: SUMS.index(name) for name in HEADS_STANDARD}
_ABSMAX, *_SIZES = (HEADS_STANDARD.index(name) for name in ("score_absmax", "q_rms", "k_rms"))
