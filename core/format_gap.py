"""How far a run in one number format lies from the same run in another, statistic by statistic.

Torch-free and wordless. Both runs have the same draws and data; what differs is rounding, and what rounding led to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from core.landscape import Landscape, landscape
from core.trace import F64, Trace


@dataclass(frozen=True)
class Numbers:
    """One number of a run, and of the reference. `relative`: (value − reference)/|reference|."""

    value: float
    reference: float

    @property
    def relative(self) -> float:
        """(value − reference)/|reference|; NaN where one is not finite or the reference is 0."""
        with np.errstate(all="ignore"):
            return float(np.float64(self.value - self.reference) / abs(self.reference))


def gap(trace: Trace, reference: Trace, statistic: str, gradient: bool = False) -> Landscape:
    """Return |value − reference|/|reference| of a statistic at every site and layer of the last step.

    0 where both are 0, Inf where the reference alone is, NaN where one of the two is undefined. Errors: ValueError when
    the runs have other sites.
    """
    if trace.layout.sites != reference.layout.sites:
        raise ValueError("the runs have other sites; allowed: runs that differ in their number format only")
    found, other = landscape(trace, statistic, gradient), landscape(reference, statistic, gradient)
    return replace(found, values=_relative(found.values, other.values),
                   states=np.where(other.states == "undefined", "undefined", found.states))


def _relative(values: F64, reference: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: F64 = np.abs(values - reference) / np.abs(reference)
    return np.where(values == reference, 0.0, found)


def whole(trace: Trace, reference: Trace) -> dict[str, Numbers]:
    """Return the loss and the norm of the whole gradient of the last step, each with the reference's."""
    ours, theirs = trace.snapshots[-1], reference.snapshots[-1]
    nothing = float("nan")
    return {"loss": Numbers(ours.loss, theirs.loss),
            "grad_total_norm": Numbers(*(one.totals.get("grad_total_norm", nothing) for one in (ours, theirs)))}
