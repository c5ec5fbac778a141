"""The block: one layer of the stack, an attention sublayer and an MLP sublayer, and the sites that it has.

The file knows which parts stand in a block and under which names; it does not know what they compute.

Shapes: B batch, T positions, D = d_model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.attentions import Attention, View
from core.experiment import Experiment, Model
from core.inits import deepnorm_constants
from core.layers import Mlp, branch_scale
from core.norms import NoNorm, NormSettings
from core.placements import Placement, Sublayer
from core.sites import Heads, Site
from core.tables import NORMS, PLACEMENTS, load
from core.vocabulary import SITES


class Block(nn.Module):
    """One layer, counted from 0; `norm` names the norm it has.

    Its parts are ``norm1``, ``attn``, ``norm1_out``, ``scale1`` and ``norm2``, ``mlp``, ``norm2_out``, ``scale2``,
    those that the placement has.
    """

    def __init__(self, layer: int, norm: str, experiment: Experiment, norms: NormSettings) -> None:
        super().__init__()
        model = experiment.model
        placement: Placement = load(PLACEMENTS, model.placement)
        present = block_sites(model, placement, norm)
        self.sites = nn.ModuleDict({name: Site() for name in SITES if name in present})
        self.see = {name: self.sites[name] if name in present else nn.Identity() for name in SITES}
        if "attn" in SUBLAYERS[model.sublayers]:
            written_out = experiment.protocol.attention == "explicit"
            self.heads = Heads(float(model.attention_scale or 0.0), model.attn_softcap, model.pattern, model.causal,
                               getattr(torch, experiment.protocol.dtype) if written_out else None)
        self.attention_sublayer, self.mlp_sublayer = (
            self._sublayer(part, layer, norm, experiment, norms) if name in SUBLAYERS[model.sublayers] else skip
            for name, part in PARTS.items()
        )

    def forward(self, x: Tensor, view: View) -> Tensor:
        """Return the stream `x` (B, T, D) after this layer."""
        x = self.see["resid_mid"](self.attention_sublayer(self.see["resid_pre"](x), view))
        x = self.see["resid_post"](self.mlp_sublayer(x, view))
        return x

    def _sublayer(self, part: Part, layer: int, norm: str, experiment: Experiment, norms: NormSettings) -> Sublayer:
        """Return one sublayer, its modules registered under the block's names in the order in which they act."""
        model = experiment.model
        placement: Placement = load(PLACEMENTS, model.placement)
        made = {slot: load(NORMS, norm)(model.d_model, norms) for slot in placement.slots}
        branch, scale = part.make(self, experiment, norms), branch_scale(model, norms.dtype)
        dropout = nn.Dropout(model.dropout) if model.dropout else nn.Identity()
        steps = [(SLOTS["before"].module, made.get("before")), (part.name, branch),
                 (SLOTS["inside"].module, made.get("inside")), ("scale{n}", scale), ("dropout{n}", dropout),
                 (SLOTS["after"].module, made.get("after"))]
        for name, module in steps:
            if module is not None:
                self.add_module(name.format(n=part.number), module)
        see = {slot: self.see[part.site(names.site)] for slot, names in SLOTS.items()}
        divisor = 1.0 if norm_is_absent(norm) else _DIVISORS[model.depth_scaling](layer)
        return Sublayer(placement, branch, made, divisor, dropout, scale, _alpha(model),
                        {**see, "out": self.see[f"{part.name}_out"]})


def skip(x: Tensor, _view: View) -> Tensor:
    """Return `x` itself: the sublayer that is left out."""
    return x


@dataclass(frozen=True)
class Part:
    """One sublayer's branch: its name and number in a block, the sites inside it, and what makes it."""

    name: str
    number: int
    sites: tuple[str, ...]
    make: Callable[[Block, Experiment, NormSettings], nn.Module]

    def site(self, pattern: str) -> str:
        """Return a site's name from its pattern."""
        return pattern.format(n=self.number, part=self.name)


@dataclass(frozen=True)
class Slot:
    """One place of a norm: the pattern of its module's name, and of the site that shows it."""

    module: str
    site: str


PARTS: dict[str, Part] = {
    "attn": Part("attn", 1, ("q", "k", "v", "attn_scores", "attn_pattern", "attn_out", "resid_mid"),
                 lambda block, experiment, norms: Attention(experiment, norms, block.see, block.heads)),
    "mlp": Part("mlp", 2, ("mlp_pre", "mlp_act", "mlp_out"),
                lambda block, experiment, norms: Mlp(experiment.model, norms.dtype, block.see)),
}

SUBLAYERS: dict[str, tuple[str, ...]] = {"both": ("attn", "mlp"), "attention": ("attn",), "mlp": ("mlp",)}

SLOTS: dict[str, Slot] = {
    "before": Slot("norm{n}", "norm{n}"),
    "inside": Slot("norm{n}_out", "norm{n}_out"),
    "after": Slot("norm{n}", "{part}_sum"),
}
"""Where a placement may put a norm: on the branch's input, on its output, after the sum (its site shows the sum)."""

_DIVISORS: dict[str, Callable[[int], float]] = {
    "none": lambda _: 1.0,
    "inv_sqrt_layer": lambda layer: math.sqrt(layer + 1),  # Sun et al. 2025, arXiv:2502.05795
}


def block_sites(model: Model, placement: Placement, norm: str) -> frozenset[str]:
    """Return the names of the sites that a layer with this norm has."""
    parts = [PARTS[name] for name in SUBLAYERS[model.sublayers]]
    slots = () if norm_is_absent(norm) else placement.slots
    found = {part.site(SLOTS[slot].site) for part in parts for slot in slots if model.residual or slot != "after"}
    return frozenset({"resid_pre", "resid_post", *found, *(site for part in parts for site in part.sites)})


def norm_is_absent(norm: str) -> bool:
    """Say whether the norm of this name is no norm at all."""
    return load(NORMS, norm) is NoNorm


def _alpha(model: Model) -> float | None:
    """Return the stream's factor, None without a residual."""
    if not model.residual:
        return None
    return deepnorm_constants(model.n_layers)[0] if isinstance(model.residual_alpha, str) else model.residual_alpha
