"""The plan of a layer: which parts, norms, factors and sites it has, before any of them is built.

A block is built from it, and so is the wiring diagram: neither reads the experiment again for what stands here, so the
two cannot disagree. The file knows names and numbers; it does not know what a part computes. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from core import rules
from core.experiment import Experiment, Model
from core.init_scales import deepnorm_constants
from core.placements import SLOTS, Placement
from core.tables import NORMS, PLACEMENTS

X = TypeVar("X")
V = TypeVar("V")


@dataclass(frozen=True)
class Part:
    """One sublayer's branch: its name and number in a block, and the sites inside it and behind it."""

    name: str
    number: int
    inside: tuple[str, ...]
    behind: tuple[str, ...]

    def named(self, pattern: str) -> str:
        """Return a module's or site's name from its pattern."""
        return pattern.format(n=self.number, part=self.name)


PARTS: dict[str, Part] = {
    "attn": Part("attn", 1, ("q", "k", "v", "attn_scores", "attn_pattern"), ("attn_out", "resid_mid")),
    "mlp": Part("mlp", 2, ("mlp_pre", "mlp_act"), ("mlp_out",)),
}

SUBLAYERS: dict[str, tuple[str, ...]] = {"both": ("attn", "mlp"), "attention": ("attn",), "mlp": ("mlp",)}


@dataclass(frozen=True)
class Scale:
    """The factor of a branch: `value` at first; `width` numbers are learned, 0 if it is a constant."""

    value: float
    width: int = 0


@dataclass(frozen=True)
class Plan:
    """One layer, counted from 0, of a canonical experiment.

    `norm`: its norm's name; `has_norm`: whether that is a norm at all; `parts`: the sublayers it has; `sites`: the
    names of those it has; `divisor`: of what the norm before a branch gives; `alpha`: of the stream, None without a
    residual.
    """

    layer: int
    norm: str
    has_norm: bool
    placement: Placement
    parts: tuple[str, ...]
    sites: frozenset[str]
    divisor: float
    alpha: float | None
    scale: Scale
    dropout: float

    def sees(self, part: Part) -> dict[str, str]:
        """Return the sites that `part`'s sublayer shows, by what is shown: a slot, or ``out``."""
        return {**{slot: part.named(names.site) for slot, names in SLOTS.items()}, "out": f"{part.name}_out"}


def plan(experiment: Experiment, layer: int) -> Plan:
    """Return the plan of one layer of a canonical experiment."""
    model = experiment.model
    norm, placement = rules.layer_norms(experiment)[layer], PLACEMENTS[model.placement]
    has_norm, parts = not NORMS[norm].absent, SUBLAYERS[model.sublayers]
    divisor = _DIVISORS[model.depth_scaling](layer) if has_norm else 1.0
    return Plan(layer, norm, has_norm, placement, parts, _sites(model, placement, has_norm), divisor, _alpha(model),
                _scale(model), model.dropout)


def play(x: X, view: V, sublayers: Mapping[str, Callable[[X, V], X]], see: Mapping[str, Callable[[X], X]]) -> X:
    """Return the stream after a block: two sublayers by part (one that is left out is the identity), and its sites."""
    x = see["resid_mid"](sublayers["attn"](see["resid_pre"](x), view))
    return see["resid_post"](sublayers["mlp"](x, view))


def _sites(model: Model, placement: Placement, has_norm: bool) -> frozenset[str]:
    """Return the names of the sites that a layer has."""
    parts = [PARTS[name] for name in SUBLAYERS[model.sublayers]]
    slots = placement.slots if has_norm else ()
    found = {part.named(SLOTS[slot].site) for part in parts for slot in slots if model.residual or slot != "after"}
    return frozenset({"resid_pre", "resid_post", *found, *(site for part in parts for site in part.inside),
                      *(site for part in parts for site in part.behind)})


_DIVISORS: dict[str, Callable[[int], float]] = {
    "none": lambda _: 1.0,
    "inv_sqrt_layer": lambda layer: math.sqrt(layer + 1),  # Sun et al. 2025, arXiv:2502.05795
}

_SCALES: dict[str, Callable[[Model], Scale]] = {
    "inv_sqrt_2L": lambda model: Scale(1 / math.sqrt(2 * model.n_layers)),
    "rezero": lambda _: Scale(0.0, 1),  # Bachlechner et al. 2020, arXiv:2003.04887
    "layerscale": lambda model: Scale(model.layerscale_init, model.d_model),  # arXiv:2103.17239
}


def _scale(model: Model) -> Scale:
    """Return what a branch is multiplied with before it is added to the stream."""
    return _SCALES[model.branch_scale](model) if isinstance(model.branch_scale, str) else Scale(model.branch_scale)


def _alpha(model: Model) -> float | None:
    """Return the stream's factor, None without a residual."""
    if not model.residual:
        return None
    return deepnorm_constants(model.n_layers)[0] if isinstance(model.residual_alpha, str) else model.residual_alpha
