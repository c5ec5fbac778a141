"""Attention: fused by torch, or written out with scores and pattern in the open; and the patterns it can have.

Both protocols give the same numbers. The file knows queries, keys and values, and what each query may see; it does not
know the block around it, nor what is recorded.

Shapes: B batch, T positions, D = d_model, H heads, K = head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core import fused as exact
from core.experiment import Experiment, Model
from core.layers import Linear
from core.norms import NormSettings
from core.sites import Heads
from core.tables import PATTERNS, QK_NORMS, load

Pattern = Callable[[Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class View:
    """What all blocks share in one forward pass.

    `mask`: (B, T), true at real tokens, or None; `visible`: true where a query may see a key, broadcasting to
    (B, H, T, T), or None where all are seen; causality is not in it when fused. `turn`: puts positions into queries and
    keys.
    """

    mask: Tensor | None
    visible: Tensor | None
    turn: Callable[[Tensor], Tensor]


def visible_keys(like: Tensor, mask: Tensor | None, causal: bool, fused: bool) -> Tensor | None:
    """Return what each query may see, or None where no tensor is needed to say it.

    `like`: (B, T, D), for its length and device; `fused`: causality is left to the attention, which needs no T×T tensor
    for it. Real tokens come first in a sequence, so every query sees a key.
    """
    keys = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, T)
    if not causal or fused:
        return keys
    length = like.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()  # (T, T)
    return earlier if keys is None else earlier & keys


class Attention(nn.Module):
    """o(pattern(q·k·scale) v) with q, k, v from separate matrices (Vaswani et al. 2017, arXiv:1706.03762)."""

    def __init__(self, experiment: Experiment, norms: NormSettings, sites: Mapping[str, nn.Module],
                 heads: Heads) -> None:
        super().__init__()
        model = experiment.model
        self.n_heads, self.head_dim, self.n_kv_heads = model.n_heads, model.head_dim or 0, model.n_kv_heads or 0
        queries, keys = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.q = Linear(model.d_model, queries, model.bias, norms.dtype)
        self.k = Linear(model.d_model, keys, model.bias, norms.dtype)
        self.v = Linear(model.d_model, keys, model.bias, norms.dtype)
        self.q_norm, self.k_norm = _qk_norm(model, norms, self.n_heads), _qk_norm(model, norms, self.n_kv_heads)
        self.o = Linear(queries, model.d_model, model.bias, norms.dtype)
        self.scale, self.softcap, self.causal = float(model.attention_scale or 0.0), model.attn_softcap, model.causal
        self.dropout = model.dropout
        self.scope = SCOPES[model.qk_norm_scope]
        self.mix = PROTOCOLS[experiment.protocol.attention or ""]
        self.pattern: Pattern = load(PATTERNS, model.pattern)
        self.see = {name: sites[name] for name in ("q", "k", "v", "attn_scores", "attn_pattern")}
        self.heads = (heads,)  # in a tuple: the block owns it, and its path is the block's

    def forward(self, x: Tensor, view: View) -> Tensor:
        """Return the attention of `x` (B, T, D) over what `view` lets each query see."""
        q = self.see["q"](view.turn(self._by_head(self.q(x), self.q_norm)))  # (B, H, T, K)
        k = self.see["k"](self._repeated(view.turn(self._by_head(self.k(x), self.k_norm))))
        v = self.see["v"](self._repeated(self._by_head(self.v(x))))
        self.heads[0](q, k, view.mask)
        mixed = self.mix(self, q, k, v, view)  # (B, H, T, K)
        result: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return result

    def dropped(self) -> float:
        """Return the dropout of the pattern in the present mode."""
        return self.dropout if self.training else 0.0

    def _by_head(self, x: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Return `x` (B, T, H·K), normalized over the scope of `norm`, and split into heads, (B, H, T, K)."""
        if norm is not None:
            x = norm(x.view(*x.shape[:2], -1, self.scope(x.shape[-1], self.head_dim)))
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def _repeated(self, x: Tensor) -> Tensor:
        """Return keys or values repeated over the query heads that share them."""
        return x if self.n_kv_heads == self.n_heads else x.repeat_interleave(self.n_heads // self.n_kv_heads, 1)


def fused(attention: Attention, q: Tensor, k: Tensor, v: Tensor, view: View) -> Tensor:
    """Return pattern·v, (B, H, T, K), by torch's fused kernel; no T×T tensor, scores and pattern are not observed.

    With dropout on the pattern the gradients are torch's own too, which huge scores spoil (core.fused), and torch's CPU
    writes the pattern out. A scale of 0 or below goes into q: torch's causal kernel multiplies its own −Inf with it and
    gives NaN (2.13.0).
    """
    causal, visible, scale = attention.causal, view.visible, attention.scale
    if scale <= 0:
        q, scale = q * scale, 1.0
    if not attention.dropped():
        return exact.attention(q, k, v, visible, causal, scale)
    if causal and visible is not None:  # of which torch takes one
        every = slice(0, q.shape[2])
        causal, visible = False, exact.seen(visible, causal, every, every, q)
    return F.scaled_dot_product_attention(q, k, v, visible, attention.dropped(), causal, scale=scale)


def explicit(attention: Attention, q: Tensor, k: Tensor, v: Tensor, view: View) -> Tensor:
    """Return pattern·v, (B, H, T, K), step by step: scores, soft cap c·tanh(s/c), pattern, dropout.

    The site attn_scores shows every pair; those a query may not see are for the reader to leave out.
    """
    scores = attention.see["attn_scores"]((q * attention.scale) @ k.transpose(-2, -1))  # (B, H, T, T)
    if attention.softcap is not None:
        scores = attention.softcap * torch.tanh(scores / attention.softcap)
    pattern = attention.see["attn_pattern"](attention.pattern(scores, view.visible))
    if attention.dropped():
        pattern = F.dropout(pattern, attention.dropped())
    mixed: Tensor = pattern @ v
    return mixed


PROTOCOLS: dict[str, Callable[[Attention, Tensor, Tensor, Tensor, View], Tensor]] = {
    "fused": fused, "explicit": explicit,
}

SCOPES: dict[str, Callable[[int, int], int]] = {
    "head": lambda _, head_dim: head_dim,
    "full": lambda width, _: width,
}
"""How many features QK-norm normalizes over, of all heads' features and one head's."""


def softmax_pattern(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Return the softmax of `scores` (B, H, T, T) over the visible keys."""
    seen = scores if visible is None else torch.where(visible, scores, -torch.inf)
    return seen.softmax(-1)


def uniform_pattern(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Return 1/n for each of a query's n visible keys, (B, H, T, T), whatever the scores."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    seen = torch.ones(scores.shape[-2:], dtype=wide, device=scores.device) if visible is None else visible.to(wide)
    return _constant(seen / seen.sum(-1, keepdim=True), scores)


def identity_pattern(scores: Tensor, visible: Tensor | None) -> Tensor:  # noqa: ARG001
    """Return the pattern of a query that attends to itself alone, (B, H, T, T), whatever the scores."""
    return _constant(torch.eye(scores.shape[-1], device=scores.device), scores)


def _constant(pattern: Tensor, scores: Tensor) -> Tensor:
    """Return `pattern` in the shape and dtype of `scores`; a leaf, so that its gradient is seen all the same."""
    return pattern.to(scores.dtype).expand(scores.shape).requires_grad_(torch.is_grad_enabled())


def _qk_norm(model: Model, norms: NormSettings, n_heads: int) -> nn.Module:
    """Return the norm of queries or keys."""
    width = SCOPES[model.qk_norm_scope](n_heads * (model.head_dim or 0), model.head_dim or 0)
    norm: nn.Module = load(QK_NORMS, model.qk_norm)(width, norms)
    return norm
