"""The recurrent layers, LSTM and GRU, written out time step by time step, with a site at every gate and state.

    x ─ W_x ─ norm ─ + b ─┬─ step 0 ─┬─ step 1 ─┬─ …   what hangs on the input alone is computed for all at once
    h ── W_h ── norm ─────┘          h          h

A layer is a block of the stack (`core.model`): it maps (B, T, D) to (B, T, D) and starts each sequence at a state of
zeros. Real tokens come first in a sequence, so padding can reach none of them. The file does not know what stands
around a layer, nor what is recorded.

Shapes: B batch, T time steps, D = d_model, G gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core import families, rules
from core.experiment import Experiment
from core.families import Family
from core.layers import Linear
from core.norms import NormSettings
from core.sites import Site
from core.tables import NORMS, load

State = tuple[Tensor, ...]
"""What one time step shows, (B, D) each: its gates, then the states, the layer's output last."""


class Gate(nn.Module):
    """The parameters of one gate: W_x and W_h, (D, D) each, and a bias (D,) that is added after any norm.

    `inner`: W_h has a bias of its own.
    """

    def __init__(self, width: int, bias: bool, inner: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.x = Linear(width, width, False, dtype)
        self.h = Linear(width, width, bias and inner, dtype)
        self.bias = nn.Parameter(torch.zeros(width, dtype=dtype)) if bias else None


class Recurrent(nn.Module):
    """What both kinds of layer share: gates, norms, sites, and the walk over time.

    A subclass says what a time step makes of what drives it and of the states before. `inner`: the gates whose product
    with h has a bias of its own.
    """

    family: ClassVar[Family]
    inner: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, layer: int, experiment: Experiment, norms: NormSettings) -> None:
        super().__init__()
        model = experiment.model
        norm = load(NORMS, rules.layer_norms(experiment)[layer])
        self.sites = nn.ModuleDict({name: Site() for name in self.family.steps})
        self.gates = [Gate(model.d_model, model.bias, name in self.inner, norms.dtype) for name in self.family.gates]
        self.norms = {name: norm(times * model.d_model, norms) for name, times in self.family.norms.items()}
        self.dropout = nn.Dropout(model.dropout) if layer and model.dropout else nn.Identity()
        for name, module in {**dict(zip(self.family.gates, self.gates, strict=True)), **self.norms}.items():
            self.add_module(name, module)

    def forward(self, x: Tensor, _view: object) -> Tensor:
        """Return the hidden states of all time steps (B, T, D), of `x` (B, T, D).

        Dropout, as in torch, is of what a layer above the first reads.
        """
        weight = _joined([gate.h.weight for gate in self.gates], x)  # (G·D, D)
        nothing = x.new_zeros(x.shape[0], x.shape[-1])
        state: State = (nothing,) * len(self.family.steps)
        shown = []
        for driven in self.drive(self.dropout(x)).unbind(1):  # (B, G·D)
            state = self.step(driven, F.linear(state[-1], weight), state)
            shown.append(state)
        for site, steps in zip(self.sites.values(), zip(*shown, strict=True), strict=True):
            site(steps)
        return torch.stack([state[-1] for state in shown], 1)

    def drive(self, x: Tensor) -> Tensor:
        """Return what drives the gates at every time step, (B, T, G·D): n(W_x x) + b."""
        driven = self.normed_input(F.linear(x, _joined([gate.x.weight for gate in self.gates], x)))
        biases = [gate.bias for gate in self.gates if gate.bias is not None]
        return driven + _joined(biases, x) if biases else driven

    def normed_input(self, products: Tensor) -> Tensor:
        """Return the norm of the products of W_x, (B, T, G·D)."""
        raise NotImplementedError

    def step(self, driven: Tensor, product: Tensor, before: State) -> State:
        """Return what one time step shows: `driven` and the product W_h h (B, G·D), and the step `before`."""
        raise NotImplementedError


class Lstm(Recurrent):
    """i, f, o = σ(a), g = tanh(a), a = n(W_h h) + n(W_x x) + b; c = f ⊙ c + i ⊙ g; h = o ⊙ tanh(n(c)).

    One norm n acts on all four products together. Source: Ba, Kiros, Hinton 2016 (arXiv:1607.06450), appendix; without
    a norm it is torch's LSTM, whose two biases are one here.
    """

    family = families.lstm

    def normed_input(self, products: Tensor) -> Tensor:
        """Return n(W_x x)."""
        normed: Tensor = self.norms["norm_x"](products)
        return normed

    def step(self, driven: Tensor, product: Tensor, before: State) -> State:
        """Return i, f, g, o, the cell's state c and the output h, (B, D) each."""
        i, f, g, o = (driven + self.norms["norm_h"](product)).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        cell = f * before[-2] + i * g
        return i, f, g, o, cell, o * self.norms["norm_cell"](cell).tanh()


class Gru(Recurrent):
    """r, z = σ(n(W_h h) + n(W_x x) + b); n = tanh(n(W_x x) + b + r ⊙ (n(W_h h) + b_h)); h = (1 − z) ⊙ n + z ⊙ h.

    The gates share a norm of each product, the candidate has its own. Source: Ba, Kiros, Hinton 2016
    (arXiv:1607.06450), appendix, with z as torch has it (1 keeps the state); without a norm it is torch's GRU, whose
    two biases of a gate are one here.
    """

    family = families.gru
    inner = frozenset({"gate_n"})

    def normed_input(self, products: Tensor) -> Tensor:
        """Return n(W_x x), of the gates together and of the candidate."""
        gates, candidate = _split(products)
        return torch.cat((self.norms["norm_x"](gates), self.norms["norm_x_candidate"](candidate)), -1)

    def step(self, driven: Tensor, product: Tensor, before: State) -> State:
        """Return r, z, the candidate n and the output h, (B, D) each."""
        (gates, candidate), (gates_h, candidate_h) = _split(driven), _split(product)
        r, z = (gates + self.norms["norm_h"](gates_h)).sigmoid().chunk(2, -1)
        recalled = self.norms["norm_h_candidate"](candidate_h)
        bias = self.gates[-1].h.bias
        recalled = recalled if bias is None else recalled + bias.to(recalled.dtype)
        new = (candidate + r * recalled).tanh()
        return r, z, new, (1 - z) * new + z * before[-1]


def _joined(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return the gates' tensors one below the other, in the dtype of `like`."""
    return torch.cat(list(tensors)).to(like.dtype)


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of r and z, (…, 2·D), and that of the candidate, (…, D)."""
    both = 2 * x.shape[-1] // 3
    return x[..., :both], x[..., both:]
