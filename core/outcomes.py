"""What a whole run comes to, as one number: what a cell of a sweep or a row of a ranking shows.

Torch-free and wordless. NaN says that the run has no such number: no attention, no gradient, nothing finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.drift import drift, last_rms, over, start_rms
from core.trace import F64, Trace
from core.vocabulary import STREAM


@dataclass(frozen=True)
class Outcome:
    """One number of a run. `read`: takes it off a trace; `unit`: as in the vocabulary; `scale`: log where it spans
    decades.
    """

    read: Callable[[Trace], float]
    unit: str = ""
    scale: str = "linear"


def statistic(trace: Trace, site: str, name: str, gradient: bool = False) -> float:
    """Return a statistic of the last layer that has the site, at the last recorded step; NaN where none has it."""
    _, values = trace.profile(site, name, gradient)
    return float(values[-1]) if len(values) else math.nan


def of_heads(trace: Trace, measure: str, reduce: Callable[[F64], float] = np.mean) -> float:
    """Return a measure of the heads, over all heads of all layers, at the last recorded step; NaN without attention."""
    values = trace.snapshots[-1].heads.get(measure, np.empty(0))
    seen = values[~np.isnan(values)]
    return float(reduce(seen)) if seen.size else math.nan


def _drift(name: str) -> Callable[[Trace], float]:
    return lambda trace: float(getattr(drift(trace), name))


def _gradient_ratio(trace: Trace) -> float:
    """Return the gradient's RMS in the first layer over that in the last; the embedding is left out."""
    return over(last_rms(trace, STREAM, True, -1), start_rms(trace, STREAM, True, -1))


def _largest(trace: Trace) -> float:
    values = trace.snapshots[-1].activations["absmax"]
    return float(np.nanmax(values)) if not np.isnan(values).all() else math.nan


def _broken(trace: Trace) -> float:
    """Return the share of the observed sites with an entry that is not finite."""
    snapshot = trace.snapshots[-1]
    seen = ~np.isnan(snapshot.activations["n"])
    return float((snapshot.not_finite()[seen] > 0).mean()) if seen.any() else math.nan


OUTCOMES: dict[str, Outcome] = {
    "loss": Outcome(lambda trace: trace.snapshots[-1].loss, "nats"),
    "loss_change": Outcome(lambda trace: trace.snapshots[-1].loss - trace.snapshots[0].loss, "nats"),
    "stream_rms": Outcome(lambda trace: statistic(trace, STREAM, "rms"), scale="log"),
    "growth": Outcome(_drift("growth"), "ratio", "log"),
    "log_slope": Outcome(_drift("log_slope")),
    "absmax": Outcome(_largest, scale="log"),
    "token_cosine": Outcome(lambda trace: statistic(trace, STREAM, "token_cosine"), "cosine"),
    "entropy_norm": Outcome(lambda trace: of_heads(trace, "entropy_norm"), "share"),
    "saturated_frac": Outcome(lambda trace: of_heads(trace, "saturated_frac"), "share"),
    "score_absmax": Outcome(lambda trace: of_heads(trace, "score_absmax", np.max), scale="log"),
    "grad_ratio": Outcome(_gradient_ratio, "ratio", "log"),
    "grad_total_norm": Outcome(lambda trace: float(trace.total("grad_total_norm")[-1]), scale="log"),
    "non_finite": Outcome(_broken, "share"),
}
"""Name of an outcome → how it is read. All but loss and loss_change are of the last recorded step."""
