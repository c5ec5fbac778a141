"""How far the numbers of a run stay below the largest of a number format, and where they pass it first.

Torch-free and wordless. A float32 run read against float16 says what the same run in float16 would meet first; a run
in float16 has its infinities already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from core.drift import Verdict
from core.formats import FORMATS, rounded
from core.landscape import Landscape, landscape
from core.trace import F64, Trace

TIGHT = 10.0
"""Less than this factor below the largest number is little room."""


@dataclass(frozen=True)
class Passed:
    """A site of a layer with an entry beyond a format. `absmax`: of its finite entries; `infinite`: it has ±Inf."""

    layer: int
    site: str
    absmax: float
    infinite: bool


def headroom(trace: Trace, name: str, step: int = -1) -> Landscape:
    """Return log₁₀(largest/absmax), decades that are left in the format `name`, at every site and layer.

    Below 0: beyond. −Inf where an entry is infinite already, +Inf where all are 0.
    """
    found = landscape(trace, "absmax", step=step)
    infinite = landscape(trace, "n_posinf", step=step).values + landscape(trace, "n_neginf", step=step).values
    with np.errstate(divide="ignore"):
        decades = math.log10(FORMATS[name].largest) - np.log10(found.values)
    here = np.nan_to_num(infinite) > 0
    values: F64 = np.where(here, -np.inf, decades)
    states = np.where(here, "measured", found.states)
    return replace(found, statistic="headroom", values=values, states=states)


def passed(trace: Trace, name: str, step: int = -1) -> tuple[Passed, ...]:
    """Return every site that has an entry which the format `name` rounds to infinity, in the order of computation."""
    snapshot = trace.snapshots[step]
    group = snapshot.activations
    if "absmax" not in group:
        return ()
    infinite = np.nan_to_num(group["n_posinf"]) + np.nan_to_num(group["n_neginf"]) > 0
    beyond = np.isinf(rounded(group["absmax"], name))
    return tuple(Passed(layer, site, float(group["absmax"][row]), bool(infinite[row]))
                 for row, (layer, site) in enumerate(snapshot.layout.sites) if infinite[row] or beyond[row])


def judge(trace: Trace, name: str, step: int = -1) -> Verdict:
    """Return the judgement on a format's headroom; the first site beyond it decides, else the one with the least room.

    headroom_infinite: entries are infinite already, an alarm; headroom_overflows: finite ones are beyond, an alarm;
    headroom_tight: less than a factor of TIGHT is left; headroom_fits. `count`: so many sites are beyond.
    """
    largest = {"format_max": FORMATS[name].largest, "tight": TIGHT}
    over = passed(trace, name, step)
    if over:
        first = over[0]
        numbers = {"value": first.absmax, "layer": float(first.layer), "count": float(len(over)),
                   "factor": first.absmax / FORMATS[name].largest}
        code = "headroom_infinite" if first.infinite else "headroom_overflows"
        return Verdict(code, True, numbers, largest, site=first.site, format=name)
    found = headroom(trace, name, step)
    if not np.isfinite(found.values).any():
        seen = (found.states != "absent").any()
        return Verdict("nothing_undefined" if seen else "nothing_not_observed", bool(seen), {}, {})
    row, column = np.unravel_index(np.argmin(np.where(np.isfinite(found.values), found.values, np.inf)),
                                   found.values.shape)
    factor = float(10.0 ** min(found.values[row, column], 300.0))
    numbers = {"value": FORMATS[name].largest / factor, "layer": float(found.layers[column]), "factor": factor}
    code = "headroom_tight" if factor < TIGHT else "headroom_fits"
    return Verdict(code, False, numbers, largest, site=found.sites[row], format=name)
