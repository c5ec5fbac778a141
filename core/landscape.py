"""The landscape: one statistic at every site and layer of a step at once, and the one place in it to look at first.

Torch-free and wordless. It knows what a trace holds and tells the kinds of nothing apart; it does not know how a map is
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.drift import THRESHOLDS, Verdict, drift, rms_over_depth
from core.trace import F64, Snapshot, Trace
from core.vocabulary import EMBED, SITES, STATISTICS

STATES = ("absent", "not_taken", "not_observed", "undefined", "measured")
"""What a cell of the map is: the configuration has no such site there; this detail does not take the statistic; the
site or its gradient was not seen; there is no finite value; there is one."""


@dataclass(frozen=True, eq=False)
class Landscape:
    """One statistic over sites and layers.

    `sites`: those that the configuration has and that have the statistic, in the order of computation; `layers`: −1
    (embedding) … L (after the stack). `values` (sites, layers): NaN unless measured, or Inf where the statistic is;
    `states` (sites, layers): names in STATES; `non_finite` (sites, layers): how many entries are NaN or Inf, over whose
    finite rest the value is then.
    """

    statistic: str
    gradient: bool
    sites: tuple[str, ...]
    layers: tuple[int, ...]
    values: F64
    states: NDArray[np.str_]
    non_finite: F64

    def state(self, site: str, layer: int) -> str:
        """Return the name of a cell's state."""
        return str(self.states[self.sites.index(site), self.layers.index(layer)])


def landscape(trace: Trace, statistic: str, gradient: bool = False, step: int = -1) -> Landscape:
    """Return the map of `statistic` (a key of STATISTICS) at the `step`-th recorded step."""
    snapshot, only = trace.snapshots[step], STATISTICS[statistic].sites
    present = {name for _, name in snapshot.layout.sites}
    sites = tuple(name for name in SITES if name in present and (only is None or name in only))
    layers = tuple(range(EMBED, snapshot.layout.n_layers + 1))
    values, bad = np.full((len(sites), len(layers)), np.nan), np.zeros((len(sites), len(layers)))
    states = np.full(values.shape, "absent", f"<U{max(map(len, STATES))}")
    group, not_finite = snapshot.measured(gradient), snapshot.not_finite(gradient)
    for row, (layer, name) in enumerate(snapshot.layout.sites):
        if name in sites:
            cell = sites.index(name), layer - EMBED
            values[cell] = group[statistic][row] if statistic in group else math.nan
            count = group["n"][row] if "n" in group else math.nan
            bad[cell], states[cell] = not_finite[row], _state(values[cell], count, not group or statistic in group)
    return Landscape(statistic, gradient, sites, layers, values, states, bad)


def _state(value: float, count: float, taken: bool) -> str:
    if not taken:
        return "not_taken"
    if math.isnan(count):
        return "not_observed"
    return "undefined" if math.isnan(value) else "measured"


@dataclass(frozen=True)
class Change:
    """The largest change of a site's RMS between two of its layers.

    `first`, `last`: the two layers in the direction of flow; `factor`: rms(last)/rms(first), Inf or 0 where one is 0.
    """

    site: str
    first: int
    last: int
    factor: float

    @property
    def size(self) -> float:
        """|ln factor|."""
        return abs(math.log(self.factor)) if 0 < self.factor < math.inf else math.inf


def changes(trace: Trace, gradient: bool = False, step: int = -1) -> tuple[Change, ...]:
    """Return the largest change over depth of every site with two or more measured layers, in the sites' order.

    A gradient's is without the embedding (``resid_pre`` of layer 0), whose size measures 1/std of the embedding.
    """
    found = []
    for site in dict.fromkeys(trace.layout.answering(name) for name in SITES):
        layers, rms = rms_over_depth(trace, site, gradient, step)
        kept = [(layer, value) for layer, value in zip(layers, rms.tolist(), strict=True) if not math.isnan(value)]
        if len(kept) > 1:
            least, most = min(kept, key=lambda pair: pair[1]), max(kept, key=lambda pair: pair[1])
            first, last = sorted((least, most), key=lambda pair: pair[0], reverse=gradient)
            factor = 1.0 if most[1] == 0 else last[1] / first[1] if first[1] else math.inf
            found.append(Change(site, first[0], last[0], factor))
    return tuple(found)


def where_to_look(trace: Trace, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the one place to look at first.

    look_nan, look_inf: the first non-finite value in the order of computation was made there, or on the way from the
    site before; in the gradient's view that may lie in the forward pass, which comes first. look_zero: the first site
    where all is 0; of gradients, of the stream. Else the site of LOOKED_AT whose RMS changes by the largest factor over
    depth: look_change is an alarm; look_power (the law of a growing sum) and look_slow (less per block than what
    explodes) are large changes that are none; look_calm is a small one, look_constant none at all. look_not_observed,
    look_undefined: nothing to compare. Codes of the gradient start with ``gradient_``.
    """
    snapshot = trace.snapshots[step]
    found = _first_bad(snapshot, gradient) or (_zero_gradient if gradient else _first_zero)(snapshot)
    if found is None:
        found = _largest_change(trace, gradient, step)
        return replace(found, code=f"gradient_{found.code}") if gradient else found
    return found


def _first_bad(snapshot: Snapshot, gradient: bool) -> Verdict | None:
    made = snapshot.non_finite
    if made is None or (made.direction == "gradient" and not gradient):
        return None
    prefix = "gradient_" if made.direction == "gradient" else ""
    return Verdict(f"{prefix}look_{made.kind}", True, {"layer": float(made.layer)}, {}, site=made.site)


def _first_zero(snapshot: Snapshot) -> Verdict | None:
    """Return the first site of NEVER_ZERO whose entries are all 0."""
    for (layer, site), rms in zip(snapshot.layout.sites, snapshot.activations.get("rms", ()), strict=False):
        if rms == 0 and site in NEVER_ZERO:
            return Verdict("look_zero", True, {"layer": float(layer)}, {}, site=site)
    return None


def _zero_gradient(snapshot: Snapshot) -> Verdict | None:
    """Return the first site of the stream, in the direction of flow, whose gradient is all 0: nothing comes further."""
    for (layer, site), rms in reversed(list(zip(snapshot.layout.sites, snapshot.gradients.get("rms", ()),
                                                strict=False))):
        if rms == 0 and SITES[site].stream:
            return Verdict("gradient_look_zero", True, {"layer": float(layer)}, {}, site=site)
    return None


def _largest_change(trace: Trace, gradient: bool, step: int) -> Verdict:
    found = [change for change in changes(trace, gradient, step) if change.site in LOOKED_AT]
    if not trace.snapshots[step].measured(gradient):
        return Verdict("look_not_observed", False, {}, {})
    if not found:
        return Verdict("look_undefined", False, {}, {})
    most = max(found, key=lambda change: change.size)
    law = drift(trace, most.site, gradient, step).law
    code = next(name for name, holds in _LOOKS.items() if holds(most, law))
    numbers = {"factor": most.factor, "first_layer": float(most.first), "last_layer": float(most.last)}
    used = {name: THRESHOLDS[name] for name in ("alarm_growth", "exploding_slope")}
    return Verdict(code, code == "look_change", numbers, used, law=law, site=most.site)


CONSTANT = 1e-5
"""A change of ln RMS that is rounding and nothing else."""

BRANCH_OUTPUTS = ("attn_out", "mlp_out")
LOOKED_AT = frozenset({*(name for name, site in SITES.items() if site.stream), *BRANCH_OUTPUTS})
"""The stream and what is written to it. Inside a branch no size is meant to hold: scores go with the square of their
input, and gradients with how much tokens differ; what explodes there shows at the branch's output as well."""

NEVER_ZERO = frozenset(name for name, site in SITES.items() if site.cosine) - frozenset(BRANCH_OUTPUTS)
"""The stream and the norms. Inside a branch, and at its output, zeros may be meant: an init or a scale of 0."""

_LOOKS: dict[str, Callable[[Change, str], bool]] = {
    "look_constant": lambda change, _: change.size < CONSTANT,
    "look_calm": lambda change, _: change.size < math.log(THRESHOLDS["alarm_growth"]),
    "look_power": lambda change, law: law == "power" and 1 < change.factor < math.inf,
    "look_slow": lambda change, _: change.size / abs(change.last - change.first) < THRESHOLDS["exploding_slope"],
    "look_change": lambda _change, _law: True,
}
"""Code → whether it holds for a change and the law of its site; the first that holds is the verdict."""
