"""Fused attention whose gradients hold at any scale: torch's kernel forward, an exact softmax in pieces backward.

torch's own CPU backward (2.13.0) rebuilds p = exp(score − logsumexp) from a float32 logsumexp. Where scores are huge,
in a stack that explodes, its rounding error is exponentiated: gradients come out wrong by orders of magnitude, then
Inf and NaN, though the true ones are finite. Here each piece of queries takes its softmax anew, below its own maximum.
The file knows queries, keys and values; it does not know the block.

Shapes: B batch, H heads, T positions, K head dimension; Q queries of a piece, N keys they may see.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 1 << 20
"""Scores held at a time in the backward pass, as long as one query's fit: no T×T tensor for long T."""


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Return softmax(scale·q·kᵀ)·v, (B, H, T, K), of q, k, v (B, H, T, K).

    `visible`: true where a query may see a key, broadcasting to (B, H, T, T); `causal`: hides later keys, without
    `visible`.
    """
    mixed: Tensor = _Attention.apply(q, k, v, visible, causal, scale)  # type: ignore[no-untyped-call]
    return mixed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        q, k, v, visible, causal, scale = given
        ctx.save_for_backward(q, k, v, visible)
        ctx.causal, ctx.scale = causal, scale
        return F.scaled_dot_product_attention(q, k, v, visible, 0.0, causal, scale=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, visible = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        q_, k_, v_, grad = (x.to(wide) for x in (q, k, v, above[0]))
        dq, dk, dv = torch.empty_like(q_), torch.zeros_like(k_), torch.zeros_like(v_)
        length = q.shape[-2]
        step = max(1, min(length, PIECE // max(1, q.shape[0] * q.shape[1] * length)))
        for start in range(0, length, step):
            queries = slice(start, min(start + step, length))
            keys = slice(0, queries.stop if ctx.causal else length)
            scaled, g = q_[:, :, queries] * ctx.scale, grad[:, :, queries]
            k_seen, v_seen = k_[:, :, keys], v_[:, :, keys]
            scores = scaled @ k_seen.transpose(-2, -1)  # (B, H, Q, N)
            hidden = _hidden(visible, ctx.causal, queries, keys, scores)
            p = (scores if hidden is None else scores.masked_fill_(hidden, -torch.inf)).softmax(-1)
            dv[:, :, keys] += p.transpose(-2, -1) @ g
            dp = g @ v_seen.transpose(-2, -1)
            ds = p * (dp - (dp * p).sum(-1, keepdim=True))
            dq[:, :, queries] = ds @ k_seen * ctx.scale
            dk[:, :, keys] += ds.transpose(-2, -1) @ scaled
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _hidden(visible: Tensor | None, causal: bool, queries: slice, keys: slice, like: Tensor) -> Tensor | None:
    """Return which pairs of a piece are hidden, broadcasting to (B, H, Q, N), or None where none is."""
    if visible is not None:
        return ~(visible[..., queries, keys] if visible.shape[-2] > 1 else visible[..., keys])
    if not causal:
        return None
    places = torch.arange(keys.stop, device=like.device)
    return places > places[queries, None]
