"""The bill of norms: how often a stack calls which norm, and what that costs by what was measured of one call.

Torch-free: it reads the plan of a stack and the arrays of a look at norms' costs (`core.look.NormCosts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.cost import BYTES
from core.experiment import Experiment
from core.look import DIRECTIONS, MEASURED, WAYS
from core.plan import plan
from core.rules import is_recurrent, layer_norms
from core.tables import NORMS

Costs = Mapping[str, NDArray[np.floating]]
"""What a look at norms' costs found: ``seconds``, ``bytes`` and ``kernels`` by norm, way and direction."""

TOKEN_FIELDS = frozenset({
    "model.d_model", "model.norm_eps", "model.norm_affine", "model.norm_cast", "model.norm_groups", "model.bn_momentum",
    "input.batch", "input.seq_len", "protocol.dtype", "protocol.device", "protocol.seed",
})
"""The fields that a norm's costs depend on."""


@dataclass(frozen=True)
class Bill:
    """What the norms of a stack cost in one step: forward and backward seconds and bytes, and the number of calls."""

    calls: int
    seconds: tuple[float, float]
    bytes: tuple[float, float]


def setting(experiment: Experiment) -> Experiment:
    """Return a small experiment whose tokens are those of `experiment`: the one that norms are measured in."""
    paths = experiment.paths()
    small = {"model.n_layers": 1, "model.n_heads": 1, "model.d_ff": 8, "model.positions": "none",
             "input.source": "gaussian"}
    return Experiment().with_values({**{path: paths[path] for path in TOKEN_FIELDS}, **small})


def calls(experiment: Experiment) -> Counter[str]:
    """Return how often a step of a canonical experiment calls each norm, in its layers, before and after them.

    Nothing of a recurrent stack: its norms are called time step by time step, on other shapes than are measured.
    """
    model = experiment.model
    if is_recurrent(experiment):
        return Counter()
    found: Counter[str] = Counter()
    for layer, norm in enumerate(layer_norms(experiment)):
        planned = plan(experiment, layer)
        found[norm] += len(planned.placement.slots) * len(planned.parts)
    found[model.norm] += bool(model.final_norm) + bool(model.embed_norm)
    return Counter({norm: count for norm, count in found.items() if count and not NORMS[norm].absent})


def bill(experiment: Experiment, costs: Costs) -> Bill:
    """Return what the norms of an experiment cost by the measured `costs`; NaN where one of them was not measured."""
    resolved = experiment.resolved()
    counted, way = calls(resolved), WAYS.index("written" if resolved.model.norm_dtype == "compute" else "fused")
    seconds, moved = np.zeros(2), np.zeros(2)
    for norm, count in counted.items():
        row = MEASURED.index(norm)
        seconds += count * costs["seconds"][row, way, :, 1]
        moved += count * costs["bytes"][row, way]
    return Bill(counted.total(), (float(seconds[0]), float(seconds[1])), (float(moved[0]), float(moved[1])))


def passes(costed: Experiment, costs: Costs) -> NDArray[np.floating]:
    """Return the traffic of one call in passes over the tokens, (N, 2, 2): read or written once whole is 1.

    `costed`: the experiment that the costs were measured in.
    """
    entries = costed.input.batch * costed.input.seq_len * costed.model.d_model
    found: NDArray[np.floating] = costs["bytes"] / (entries * BYTES[costed.protocol.dtype])
    return found


def ratios(costs: Costs, norm: str, to: str) -> dict[str, float]:
    """Return time and traffic of one norm over those of another, forward and backward together, by way."""
    row, base = MEASURED.index(norm), MEASURED.index(to)
    numbers = {"time": costs["seconds"][..., 1].sum(-1), "traffic": costs["bytes"].sum(-1)}  # (N, 2) each
    return {f"{what}_{way}": float(values[row, place] / values[base, place])
            for what, values in numbers.items() for place, way in enumerate(WAYS)}


def microseconds(costs: Costs, norm: str) -> dict[str, float]:
    """Return the median time of one call, by way and direction."""
    return {f"{way}_{direction}": 1e6 * float(costs["seconds"][MEASURED.index(norm), place, course, 1])
            for place, way in enumerate(WAYS) for course, direction in enumerate(DIRECTIONS)}


def is_fused(costs: Costs, norm: str) -> bool:
    """Return whether the device has a kernel for a norm: fewer of them are called than when it is written out."""
    fused, written = costs["kernels"][MEASURED.index(norm), :, 0]
    return bool(fused < written)
