"""Fused attention whose gradients hold at any scale: torch's kernel forward, an exact softmax in pieces backward.

torch's own CPU backward (2.13.0) rebuilds p = exp(score − logsumexp) from a float32 logsumexp. Where scores are huge,
in a stack that explodes, its rounding error is exponentiated: gradients come out wrong by orders of magnitude, then
Inf and NaN, though the true ones are finite. Here each piece of queries takes its softmax anew, below its own maximum.
The file knows queries, keys and values; it does not know the block.

Shapes: B batch, H heads, T positions, K head dimension; Q queries of a piece, N keys they may see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 1 << 20
"""Pairs held at a time, as long as one query's fit: no T×T tensor for long T, neither of scores nor of what is seen."""


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Return softmax(scale·q·kᵀ)·v, (B, H, T, K), of q, k, v (B, H, T, K).

    `visible`: true where a query may see a key, broadcasting to (B, H, T, T), or None for everywhere; `causal` hides
    later keys besides. Every query sees a key.
    """
    mixed: Tensor = _Attention.apply(q, k, v, visible, causal, scale)  # type: ignore[no-untyped-call]
    return mixed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        q, k, v, visible, causal, scale = given
        ctx.save_for_backward(q, k, v, visible)
        ctx.causal, ctx.scale = causal, scale
        if visible is None or not causal:  # one rule, which torch's kernel knows by itself
            return F.scaled_dot_product_attention(q, k, v, visible, 0.0, causal, scale=scale)
        mixed = torch.empty_like(q)
        for queries, keys in _pieces(q, causal):
            pairs = seen(visible, causal, queries, keys, q)
            mixed[:, :, queries] = F.scaled_dot_product_attention(q[:, :, queries], k[:, :, keys], v[:, :, keys],
                                                                  pairs, scale=scale)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, visible = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        q_, k_, v_, grad = (x.to(wide) for x in (q, k, v, above[0]))
        dq, dk, dv = torch.empty_like(q_), torch.zeros_like(k_), torch.zeros_like(v_)
        for queries, keys in _pieces(q, ctx.causal):
            scaled, g = q_[:, :, queries] * ctx.scale, grad[:, :, queries]
            k_seen, v_seen = k_[:, :, keys], v_[:, :, keys]
            scores = scaled @ k_seen.transpose(-2, -1)  # (B, H, Q, N)
            pairs = seen(visible, ctx.causal, queries, keys, q)
            p = (scores if pairs is None else scores.masked_fill_(~pairs, -torch.inf)).softmax(-1)
            dv[:, :, keys] += p.transpose(-2, -1) @ g
            dp = g @ v_seen.transpose(-2, -1)
            ds = p * (dp - (dp * p).sum(-1, keepdim=True))
            dq[:, :, queries] = ds @ k_seen * ctx.scale
            dk[:, :, keys] += ds.transpose(-2, -1) @ scaled
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def seen(visible: Tensor | None, causal: bool, queries: slice, keys: slice, like: Tensor) -> Tensor | None:
    """Return which pairs of a piece see each other, broadcasting to (B, H, Q, N), or None where all do.

    `visible`, `causal`: as for `attention`; `like`: on the device that is wanted.
    """
    if visible is not None:
        visible = visible[..., queries if visible.shape[-2] > 1 else slice(None), keys]
    if not causal:
        return visible
    places = torch.arange(keys.stop, device=like.device)
    earlier = places <= places[queries, None]
    return earlier if visible is None else visible & earlier


def _pieces(q: Tensor, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Yield slices of queries and of the keys that they may see, which cover all of `q` (B, H, T, K) once."""
    batch, heads, length = q.shape[:3]
    step = max(1, min(length, PIECE // max(1, batch * heads * length)))
    for start in range(0, length, step):
        stop = min(start + step, length)
        yield slice(start, stop), slice(0, stop if causal else length)
