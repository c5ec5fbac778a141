"""What feeds the branches: the input of attention and of the MLP in every layer, which is not the residual stream.

Under pre-norm the stream grows while each branch reads a normalized copy of it: two answers, both true. Torch-free; it
knows which sites a layer has, not why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.trace import F64, Trace

INPUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "attention": ("q", ("norm1", "resid_pre")),
    "mlp": ("mlp_pre", ("norm2", "resid_mid", "resid_pre")),
}
"""Sublayer → the site that a layer with it has, and what feeds it: the first of these sites that the layer has."""


@dataclass(frozen=True, eq=False)
class BranchInput:
    """One statistic of what feeds one sublayer, layer by layer.

    `sublayer`: a key of INPUTS; `layers`: those that have it; `sites`: the site that feeds it in each; `values`
    (layers,): NaN where undefined or not observed; `observed`, `non_finite` (layers,): whether the site was seen, and
    how many of its entries are NaN or Inf.
    """

    sublayer: str
    layers: tuple[int, ...]
    sites: tuple[str, ...]
    values: F64
    observed: NDArray[np.bool_]
    non_finite: F64


def branch_input(trace: Trace, sublayer: str, statistic: str = "rms", gradient: bool = False,
                 step: int = -1) -> BranchInput:
    """Return `statistic` of what feeds `sublayer`, a key of INPUTS; empty where no layer has it.

    A gradient at a site of the stream is that of the whole stream there, not only of the part that feeds the branch.
    """
    snapshot = trace.snapshots[step]
    rows = {place: row for row, place in enumerate(snapshot.layout.sites)}
    mark, candidates = INPUTS[sublayer]
    fed = [(layer, next(site for site in candidates if (layer, site) in rows))
           for layer in range(snapshot.layout.n_layers)
           if (layer, mark) in rows and any((layer, site) in rows for site in candidates)]
    places = [rows[place] for place in fed]
    group = snapshot.measured(gradient)
    values, counts = (group[name][places] if name in group else np.full(len(places), np.nan)
                      for name in (statistic, "n"))
    return BranchInput(sublayer, tuple(layer for layer, _ in fed), tuple(site for _, site in fed), values,
                       ~np.isnan(counts), snapshot.not_finite(gradient)[places])


def branch_inputs(trace: Trace, statistic: str = "rms", gradient: bool = False,
                  step: int = -1) -> tuple[BranchInput, ...]:
    """Return `branch_input` of every sublayer that a layer has, attention first."""
    found = (branch_input(trace, sublayer, statistic, gradient, step) for sublayer in INPUTS)
    return tuple(one for one in found if one.layers)
