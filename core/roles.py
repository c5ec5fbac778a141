"""Parameters by their role: the same measure of one parameter in every layer, and what clipping makes of gradients.

A role is what a parameter is called in its layer, such as ``mlp.out.weight``; one outside the layers has its whole
name. Torch-free and wordless. It knows traces; it does not know which roles a model should have.

Shapes: P parameters, R roles, C layers from −1 (embedding) to L (after the stack).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from core.experiment import Experiment
from core.landscape import Landscape
from core.trace import F64, Snapshot, Trace
from core.vocabulary import EMBED

RATIO = "grad_weight_ratio"
"""‖∂loss/∂w‖₂ / ‖w‖₂: the update ratio of one step of plain SGD, divided by the rate; NaN where ‖w‖ = 0."""


def _recorded(name: str) -> Callable[[Mapping[str, F64]], F64]:
    return lambda parameters: parameters[name]


def _ratio(parameters: Mapping[str, F64]) -> F64:
    gradients, weights = parameters["param_grad_norm"], parameters["weight_norm"]
    with np.errstate(all="ignore"):
        found: F64 = np.where(weights > 0, gradients / weights, np.nan)
    return found


RECORDED = ("param_grad_norm", "weight_norm", "weight_rms")

MEASURES: dict[str, Callable[[Mapping[str, F64]], F64]] = {
    **{name: _recorded(name) for name in RECORDED}, RATIO: _ratio}
"""Measure of one parameter that a single pass has → its values, (P,), from what a snapshot recorded."""


def measured(snapshot: Snapshot, measure: str) -> F64:
    """Return a measure (a key of MEASURES) of every parameter, (P,); all NaN where the snapshot has none of it."""
    if not snapshot.parameters.keys() >= set(RECORDED):
        return np.full(len(snapshot.layout.parameters), np.nan)
    return MEASURES[measure](snapshot.parameters)


def role_of(layer: int, name: str) -> str:
    """Return the role of the parameter `name`, which stands in `layer`."""
    return name.removeprefix(f"layers.{layer}.")


def by_role(trace: Trace, measure: str, step: int = -1) -> Landscape:
    """Return the map of a measure over roles and layers at the `step`-th recorded step; its `sites` are the roles.

    Roles stand in the order in which a forward pass meets them; what no gradient reached is not_observed.
    """
    snapshot = trace.snapshots[step]
    values, seen = measured(snapshot, measure), snapshot.observed_parameters(measure)
    places = [(role_of(layer, name), layer) for layer, name in snapshot.layout.parameters]
    roles = tuple(dict.fromkeys(role for role, _ in places))
    layers = tuple(range(EMBED, snapshot.layout.n_layers + 1))
    found, states = np.full((len(roles), len(layers)), np.nan), np.full((len(roles), len(layers)), "absent", "<U12")
    for row, (role, layer) in enumerate(places):
        cell = roles.index(role), layer - EMBED
        found[cell] = values[row] if seen[row] else math.nan
        states[cell] = ("undefined" if math.isnan(values[row]) else "measured") if seen[row] else "not_observed"
    return Landscape(measure, False, roles, layers, found, states, np.zeros(found.shape))


@dataclass(frozen=True, eq=False)
class RoleDepth:
    """A measure of one role over depth. `layers`: those that have it; `values`, `observed`: (layers,)."""

    layers: tuple[int, ...]
    values: F64
    observed: np.ndarray[tuple[int], np.dtype[np.bool_]]


def over_depth(trace: Trace, role: str, measure: str, step: int = -1) -> RoleDepth:
    """Return a measure of `role` in every layer that has it; empty where none has."""
    whole = by_role(trace, measure, step)
    if role not in whole.sites:
        return RoleDepth((), np.empty(0), np.empty(0, bool))
    row = whole.sites.index(role)
    has = whole.states[row] != "absent"
    layers = tuple(layer for layer, there in zip(whole.layers, has, strict=True) if there)
    return RoleDepth(layers, whole.values[row, has], whole.states[row, has] != "not_observed")


@dataclass(frozen=True)
class Clipping:
    """What clipping does to the gradients of a step, all of them alike.

    `total`: √Σ‖g‖² over all parameters; `limit`: the threshold, None without one; `factor`: min(1, limit / total), 1
    without a threshold.
    """

    total: float
    limit: float | None
    factor: float

    @property
    def clips(self) -> bool:
        """Whether the gradients are changed."""
        return self.factor != 1.0

    def after(self, gradients: F64) -> F64:
        """Return what becomes of gradient norms: ∞ times 0 is NaN, as in the update."""
        with np.errstate(invalid="ignore"):
            found: F64 = gradients * self.factor
        return found


def clipping(trace: Trace, experiment: Experiment, step: int = -1) -> Clipping:
    """Return what the threshold of `experiment` does at the `step`-th recorded step; NaN for what it did not record."""
    totals = trace.snapshots[step].totals
    total, factor = (float(totals.get(name, math.nan)) for name in ("grad_total_norm", "clip_factor"))
    return Clipping(total, experiment.protocol.grad_clip, factor)


def clipped(before: RoleDepth, by: Clipping) -> RoleDepth:
    """Return gradient norms over depth as they are after clipping."""
    return replace(before, values=by.after(before.values))
