"""The bench: any norms, placements, inits and residual scalings of one base, all combined. No torch here.

It knows names and experiments; it does not know what is measured of them, nor what is better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from core import rules
from core.experiment import Experiment
from core.fields import ExperimentError
from core.rules import layer_norms
from core.sweep import Cell
from core.tables import INITS, NORMS, PLACEMENTS

Changes = Mapping[str, Any]
"""Dotted path → value."""

MOST = 30
"""More are refused: nobody tells more lines apart."""

SCALINGS: dict[str, Changes] = {
    "plain": {},
    "inv_sqrt_2L": {"model.branch_scale": "inv_sqrt_2L"},
    "inv_sqrt_layer": {"model.depth_scaling": "inv_sqrt_layer"},
    "deepnorm": {"model.residual_alpha": "deepnorm"},
    "rezero": {"model.branch_scale": "rezero"},
    "layerscale": {"model.branch_scale": "layerscale"},
    "no_residual": {"model.residual": False},
}
"""Name of a residual scaling → how it differs from stream + branch."""

_PLAIN: Changes = {"model.residual": True, "model.residual_alpha": 1.0, "model.branch_scale": 1.0,
                   "model.depth_scaling": "none"}

AXES: dict[str, Mapping[str, Changes]] = {
    "norms": {name: {"model.norm": name} for name in NORMS},
    "placements": {name: {"model.placement": name} for name in PLACEMENTS},
    "inits": {name: {"model.init": name} for name in INITS},
    "scalings": {name: {**_PLAIN, **changes} for name, changes in SCALINGS.items()},
}
"""Axis → its names, and what each sets."""

FIELDS = frozenset(path for axis in AXES.values() for changes in axis.values() for path in changes)
"""The fields that the axes set."""


@dataclass(frozen=True)
class Candidate:
    """One combination. `names`: axis → name; `cell`: what it sets, and its experiment or why it is refused."""

    names: Mapping[str, str]
    cell: Cell

    @property
    def placed(self) -> bool:
        """Whether the placement means anything: some layer has a norm, or that is not known, as it is refused."""
        experiment = self.cell.experiment
        return experiment is None or not all(NORMS[name].absent for name in layer_norms(experiment))


def chosen(text: str, axis: str) -> tuple[str, ...]:
    """Return the names of an axis that a text joins by commas, each once, in its order; empty for any other text."""
    named = tuple(dict.fromkeys(re.split(",", text)))
    return named if all(name in AXES[axis] for name in named) else ()


def idle(family: str) -> frozenset[str]:
    """Return the axes that change nothing in a stack of this family."""
    unused = rules.without_effect(family)
    return frozenset(axis for axis, known in AXES.items()
                     if all(changes.keys() <= unused for changes in known.values()))


def candidates(base: Experiment, names: Mapping[str, Sequence[str]]) -> list[Candidate]:
    """Return all combinations of `base`, the last axis changing fastest, each experiment once.

    `names`: axis → the names to combine; of an idle axis only the first. What stands for the same experiment, such as
    every placement of no norm, is one candidate, called by the first of its names.
    Errors: ExperimentError for an axis without a name, and for more than MOST combinations.
    """
    for axis, known in AXES.items():
        if not names[axis]:
            raise ExperimentError(f"{axis} has no name; allowed: {', '.join(known)}", "bench_empty", axis=axis)
    resting = idle(base.model.family)
    combining = [names[axis][:1] if axis in resting else names[axis] for axis in AXES]
    if (count := prod(map(len, combining))) > MOST:
        raise ExperimentError(f"the bench has {count} combinations; allowed: up to {MOST}", "bench_many", count=count,
                              limit=MOST)
    found: dict[str, Candidate] = {}
    for combined in product(*combining):
        named = dict(zip(AXES, combined, strict=True))
        cell = _cell(base, {path: value for axis, name in named.items() for path, value in AXES[axis][name].items()})
        key = ",".join(combined) if cell.experiment is None else cell.experiment.canonical_json()
        found.setdefault(key, Candidate(named, cell))
    return list(found.values())


def trained(candidate: Candidate, steps: int) -> Cell:
    """Return the candidate's training over so many steps, of which the first and the last are recorded."""
    if candidate.cell.experiment is None:
        return candidate.cell
    return _cell(candidate.cell.experiment, {"protocol.steps": steps, "protocol.record_every": steps})


def _cell(base: Experiment, changes: Changes) -> Cell:
    try:
        return Cell(changes, base.with_values(changes))
    except ExperimentError as refused:
        return Cell(changes, None, refused)
