"""The judgement on a size over time steps: how a recurrent layer's states, or their gradients, grow or decay in time.

Torch-free and wordless, like `core.verdicts`: the laws and thresholds of drift over depth, with time steps in the place
of blocks. A gradient flows backward in time, from the last time step to the first.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from core.drift import ALARMS, THRESHOLDS, Verdict, code_of, over, over_depth, thresholds_of
from core.trace import Trace


def over_time(trace: Trace, site: str, layer: int, gradient: bool = False, step: int = -1) -> Verdict:
    """Return the judgement on the RMS of a site of one layer over its time steps, or on that of its gradient.

    time_<code of drift.VERDICTS>, of gradients gradient_time_<code>; time_zero: it is 0 at every time step;
    time_single: there is but one; nothing_absent: the layer has no such site over time; nothing_not_taken: detail
    standard; nothing_not_observed: no gradient. `per_step`: exp of the least-squares slope of ln rms against time.
    A state that starts at 0 and fills is no alarm: growing counts as exploding only with a slope that lasts.
    """
    snapshot = trace.snapshots[step]
    if (layer, site) not in snapshot.layout.over_time:
        return Verdict("nothing_absent", False, {"layer": float(layer)}, {}, site=site)
    values = snapshot.over_steps(layer, site, "rms", gradient)
    if not values.size:
        taken = snapshot.over_time.size > 0
        return Verdict(f"nothing_{'not_observed' if taken else 'not_taken'}", False, {}, {}, site=site)
    times = snapshot.time_steps.astype(np.float64)
    if gradient:
        times, values = times[::-1], values[::-1]
    prefix = "gradient_time" if gradient else "time"
    numbers = {"start_rms": float(values[0]), "last_rms": float(values[-1]), "first_step": float(times[0]),
               "last_step": float(times[-1]), "layer": float(layer)}
    if len(values) < 2 or (values == 0).all():
        return Verdict(f"{prefix}_{'single' if len(values) < 2 else 'zero'}", False, numbers, {}, site=site)
    measured = over_depth(np.abs(times - times[0]), values, float(values[0]))
    bad = np.flatnonzero(np.isnan(values))
    first_bad = int(times[bad[0]]) if bad.size else None
    measured = replace(measured, growth=over(values[-1], values[0]), first_non_finite=first_bad)
    code = code_of(measured)
    numbers |= measured.numbers() | {"per_step": _power(measured.log_slope)}
    numbers |= {} if first_bad is None else {"bad_step": float(first_bad)}
    return Verdict(f"{prefix}_{code}", code in ALARMS, numbers, thresholds_of(code) or _STEADY, law=measured.law,
                   site=site)


_STEADY = {"steady_growth": THRESHOLDS["steady_growth"]}


def _power(log_slope: float) -> float:
    """Return the factor per time step; NaN without a slope."""
    return math.exp(min(log_slope, 700.0)) if not math.isnan(log_slope) else math.nan
