"""The block: one layer of the stack, built from its plan: an attention sublayer, an MLP sublayer, and its sites.

The file makes the modules and puts them into the sublayers; it does not know in which order a sublayer uses them, nor
what they compute.

Shapes: B batch, T positions, D = d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from core.attentions import Attention, View
from core.experiment import Experiment
from core.layers import Mlp, branch_scale
from core.norms import NormSettings
from core.placements import SLOTS, Sublayer
from core.plan import PARTS, Part, Plan, plan, play
from core.sites import Heads, Site
from core.tables import NORMS, load
from core.vocabulary import SITES

Step = Callable[[Tensor, View], Tensor]


class Block(nn.Module):
    """One layer of a canonical experiment, counted from 0.

    Its parts are ``norm1``, ``attn``, ``norm1_out``, ``scale1`` and ``norm2``, ``mlp``, ``norm2_out``, ``scale2``,
    those that the placement has.
    """

    def __init__(self, layer: int, experiment: Experiment, norms: NormSettings) -> None:
        super().__init__()
        model, planned = experiment.model, plan(experiment, layer)
        self.sites = nn.ModuleDict({name: Site() for name in SITES if name in planned.sites})
        self.see = {name: self.sites[name] if name in planned.sites else nn.Identity() for name in SITES}
        if "attn" in planned.parts:
            written_out = experiment.protocol.attention == "explicit"
            self.heads = Heads(float(model.attention_scale or 0.0), model.attn_softcap, model.pattern, model.causal,
                               getattr(torch, experiment.protocol.dtype) if written_out else None)
        self.sublayers: Mapping[str, Step] = {
            name: self._sublayer(part, planned, experiment, norms) if name in planned.parts else _skip
            for name, part in PARTS.items()
        }

    def forward(self, x: Tensor, view: View) -> Tensor:
        """Return the stream `x` (B, T, D) after this layer."""
        return play(x, view, self.sublayers, self.see)

    def _sublayer(self, part: Part, planned: Plan, experiment: Experiment, norms: NormSettings) -> Step:
        """Return one sublayer, its modules registered under the block's names in the order in which they act."""
        width, slots = experiment.model.d_model, planned.placement.slots
        made: dict[str, nn.Module] = {slot: load(NORMS, planned.norm)(width, norms) for slot in slots}
        branch, scale = BRANCHES[part.name](self, experiment, norms), branch_scale(planned.scale, norms.dtype)
        dropout = nn.Dropout(planned.dropout) if planned.dropout else nn.Identity()
        steps = [(SLOTS["before"].module, made.get("before")), (part.name, branch),
                 (SLOTS["inside"].module, made.get("inside")), ("scale{n}", scale), ("dropout{n}", dropout),
                 (SLOTS["after"].module, made.get("after"))]
        for name, module in steps:
            if module is not None:
                self.add_module(part.named(name), module)
        see = {shown: self.see[site] for shown, site in planned.sees(part).items()}
        return Sublayer(planned.placement, branch, {slot: partial(_masked, norm) for slot, norm in made.items()},
                        partial(_divided, planned.divisor), dropout, scale, partial(_joined, planned.alpha), see)


BRANCHES: dict[str, Callable[[Block, Experiment, NormSettings], nn.Module]] = {
    "attn": lambda block, experiment, norms: Attention(experiment, norms, block.see, block.heads),
    "mlp": lambda block, experiment, norms: Mlp(experiment.model, norms.dtype, block.see),
}
"""What makes each part's branch."""


def _skip(x: Tensor, _view: View) -> Tensor:
    """Return `x` itself: the sublayer that is left out."""
    return x


def _masked(norm: nn.Module, x: Tensor, view: View) -> Tensor:
    """Return the norm of `x` over the real tokens."""
    y: Tensor = norm(x, view.mask)
    return y


def _divided(divisor: float, x: Tensor) -> Tensor:
    """Return x/divisor, the very tensor that came where that is 1."""
    return x if divisor == 1.0 else x / divisor


def _joined(alpha: float | None, x: Tensor, y: Tensor) -> Tensor:
    """Return α·x + y, y itself without an α."""
    return y if alpha is None else torch.add(y, x, alpha=alpha)
