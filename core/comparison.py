"""What two runs have in common: whether they start from the same weights, the same draws, or neither.

Torch-free: it compares the fingerprints that `core.pairing` made and the runs' provenance carries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from core.experiment import Experiment
from core.fields import ExperimentError

SCALE_FIELDS = frozenset({
    "model.init", "model.init_std", "model.init_gain", "model.qk_gain", "model.value_gain", "model.output_gain",
    "model.embed_std", "model.pos_std", "model.n_layers", "protocol.dtype",
})
"""The fields that may rescale a tensor without drawing it anew."""


@dataclass(frozen=True)
class Pairing:
    """`code`: same_weights, same_draws (other scale) or unpaired; `fields`: what rescales or what unpairs."""

    code: str
    fields: tuple[str, ...]


def pairing(experiments: Sequence[Experiment], fingerprints: Sequence[Mapping[str, Any]]) -> Pairing:
    """Return how the runs are paired; `fingerprints` are those of `core.pairing.fingerprint`, in the same order."""
    differing = tuple(differing_fields(experiments))
    first, rest = fingerprints[0], fingerprints[1:]
    shared = set(first["tensors"]).intersection(*(other["tensors"] for other in rest))
    if not shared or any(other["data"] != first["data"] for other in rest):
        return Pairing("unpaired", differing)
    same_draws, same_weights = (
        all(other["tensors"][name][part] == first["tensors"][name][part] for other in rest for name in shared)
        for part in (0, 1)
    )
    if same_weights and same_draws:
        return Pairing("same_weights", ())
    if same_draws:
        return Pairing("same_draws", tuple(path for path in differing if path in SCALE_FIELDS))
    return Pairing("unpaired", differing)


def differing_fields(experiments: Sequence[Experiment]) -> list[str]:
    """Return the dotted paths of the canonical fields in which the experiments are not all alike."""
    documents = [experiment.resolved().paths() for experiment in experiments]
    return [path for path in documents[0] if any(other[path] != documents[0][path] for other in documents[1:])]


def variants(base: Experiment, vary: Mapping[str, Sequence[Any]]) -> dict[str, Experiment]:
    """Return the product of the varied fields as label → experiment, in the order given.

    `vary`: dotted path → values. Errors: ExperimentError when a field has no value or a value is refused.
    """
    for path, values in vary.items():
        if not values:
            raise ExperimentError(f"{path} has no values to vary; allowed: {path}=value,value,…")
    names = list(vary)
    found = {}
    for values in product(*vary.values()):
        chosen = dict(zip(names, values, strict=True))
        found[label(chosen)] = base.with_values(chosen)
    return found


def label(values: Mapping[str, Any]) -> str:
    """Return values of fields as short code: ``model.norm=none, model.n_layers=24``."""
    return ", ".join(f"{path}={_plain(value)}" for path, value in values.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
