"""The stack: embedding, layers, final norm and head, built from an experiment, with a site wherever a number is read.

    embed → [resid_pre → attention sublayer → resid_mid → MLP sublayer → resid_post] × L → final_norm → logits
    embed → [gates → cell → hidden, one time step after another] × L → final_norm → logits

The file puts parts together; it does not know how a norm, an attention or an init computes, nor what is recorded.

Shapes: B batch, T positions, D = d_model, V = vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attentions import View, visible_keys
from core.experiment import Experiment
from core.inits import initialize
from core.norms import NoNorm, NormSettings
from core.positions import NoPositions, PositionSettings
from core.sites import Site
from core.tables import FAMILIES, NORMS, POSITIONS, VECTOR_SOURCES, load

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Output(NamedTuple):
    """What a stack returns: `x` (B, T, D), after the final norm where there is one; `logits` (B, T, V) or None."""

    x: Tensor
    logits: Tensor | None


def build(experiment: Experiment) -> Stack:
    """Return the stack that `experiment` describes, initialized, on the CPU, in training mode."""
    stack = Stack(experiment.resolved())
    initialize(stack, stack.experiment)
    return stack


class Stack(nn.Module):
    """The whole model of a canonical experiment.

    `dtype`: what it computes in; parameters are float32, or float64 for float64, and cast at use.
    """

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        model, self.experiment = experiment.model, experiment
        self.dtype = DTYPES[experiment.protocol.dtype]
        norms = NormSettings.of(model, torch.promote_types(self.dtype, torch.float32))
        self.embed = _embedding(experiment, norms, self.dtype)
        layer = load(FAMILIES, model.family)
        self.layers = nn.ModuleList(layer(number, experiment, norms) for number in range(model.n_layers))
        self.final_norm = load(NORMS, model.norm)(model.d_model, norms) if model.final_norm else None
        self.head = _head(experiment, norms.dtype)
        present = {"embed": True, "final_norm": model.final_norm, "logits": self.head is not None}
        self.sites = nn.ModuleDict({name: Site() for name, is_present in present.items() if is_present})

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Output:
        """Return the stack's output for token numbers (B, T) or vectors (B, T, D).

        `mask`: (B, T), true at real tokens, which come first in each sequence; None where all are real.
        """
        protocol, model = self.experiment.protocol, self.experiment.model
        x = self.sites["embed"](self.embed(inputs, mask))
        visible = visible_keys(x, mask, model.causal, protocol.attention != "explicit")
        view = View(mask, visible, self.embed.position.turn)
        for block in self.layers:
            x = block(x, view)
        if self.final_norm is not None:
            x = self.sites["final_norm"](self.final_norm(x, mask))
        return Output(x, self._logits(x))

    def _logits(self, x: Tensor) -> Tensor | None:
        if self.head is None:
            return None
        logits, cap = self.head(x, self.embed), self.experiment.model.final_softcap
        shown: Tensor = self.sites["logits"](logits if cap is None else cap * torch.tanh(logits / cap))
        return shown


class Table(nn.Module):
    """A learned row of D numbers for each token, (V, D)."""

    def __init__(self, vocab: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab, width, dtype=dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the rows of `tokens` (B, T), as (B, T, D)."""
        return F.embedding(tokens, self.weight)


class TokenEmbedding(nn.Module):
    """n(scale·row + position): a row for each token, times ``embed_scale``; the norm only with ``embed_norm``."""

    def __init__(self, experiment: Experiment, norms: NormSettings, position: NoPositions, dtype: torch.dtype) -> None:
        super().__init__()
        model = experiment.model
        self.dtype, self.scale = dtype, 1.0 if model.embed_scale is None else model.embed_scale
        self.token = Table(experiment.input.vocab or 0, model.d_model, norms.dtype)
        self.position = position
        self.norm = load(NORMS, model.norm)(model.d_model, norms) if model.embed_norm else NoNorm(0, norms)

    def forward(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Return what enters layer 0, (B, T, D), in the compute dtype."""
        x = self.token(tokens).to(self.dtype)
        embedded: Tensor = self.norm(self.position(x if self.scale == 1.0 else x * self.scale), mask)
        return embedded


class VectorEmbedding(nn.Module):
    """The given vectors, straight into layer 0; a leaf of autograd, so that their gradient is seen.

    `position` is kept only where it turns queries and keys: nothing is added to vectors.
    """

    def __init__(self, position: NoPositions, dtype: torch.dtype) -> None:
        super().__init__()
        self.position, self.dtype = position, dtype

    def forward(self, vectors: Tensor, _mask: Tensor | None) -> Tensor:
        """Return `vectors` (B, T, D) in the compute dtype."""
        x = vectors.to(self.dtype)
        return x if x.requires_grad else x.detach().requires_grad_(torch.is_grad_enabled())


class UntiedHead(nn.Module):
    """x·Wᵀ with a W (V, D) of its own, no bias."""

    def __init__(self, vocab: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab, width, dtype=dtype))

    def forward(self, x: Tensor, _embedding: TokenEmbedding) -> Tensor:
        """Return the logits of `x` (B, T, D), (B, T, V)."""
        return F.linear(x, self.weight.to(x.dtype))


class TiedHead(nn.Module):
    """x·Eᵀ with the embedding's E (V, D)."""

    def forward(self, x: Tensor, embedding: TokenEmbedding) -> Tensor:
        """Return the logits of `x` (B, T, D), (B, T, V)."""
        return F.linear(x, embedding.token.weight.to(x.dtype))


def _embedding(experiment: Experiment, norms: NormSettings, dtype: torch.dtype) -> TokenEmbedding | VectorEmbedding:
    model = experiment.model
    settings = PositionSettings(experiment.input.seq_len, model.d_model, model.head_dim or 0, model.rope_theta,
                                norms.dtype)
    kind: type[NoPositions] = load(POSITIONS, model.positions)
    if experiment.input.source in VECTOR_SOURCES:
        return VectorEmbedding(kind(settings) if kind.turns else NoPositions(settings), dtype)
    return TokenEmbedding(experiment, norms, kind(settings), dtype)


def _head(experiment: Experiment, dtype: torch.dtype) -> UntiedHead | TiedHead | None:
    if experiment.input.source in VECTOR_SOURCES:
        return None
    if experiment.model.tie_embeddings:
        return TiedHead()
    return UntiedHead(experiment.input.vocab or 0, experiment.model.d_model, dtype)
