"""Which numbers of a step float16 could not hold, and the loss scale that would save its gradients.

Torch-free; it reads shares and histograms by exponent. float16 ends at 65504, its least normal number is 2⁻¹⁴; below it
digits are lost, and below 2⁻²⁵ the number is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from core.drift import THRESHOLDS
from core.trace import F64, Snapshot
from core.vocabulary import HISTOGRAM_HIGH, HISTOGRAM_LOW

LOW, HIGH = -14, 15
"""The exponents ⌊log₂|x|⌋ of the least and the largest normal float16."""

SMALL_BY_NATURE = frozenset({"attn_pattern", "mlp_act"})
"""Sites whose small activations are no loss: an attention weight, or what an activation function lets through far below
0, did not count if it is rounded to 0."""

Worst = tuple[float, int, str]
"""A share of a site's entries, and the layer and site where it is."""


def worst_over(snapshot: Snapshot, gradient: bool) -> Worst | None:
    """Return where the largest share of entries is beyond float16, infinite ones included; None where none is defined.
    """
    return _worst(snapshot, _over(snapshot.measured(gradient)), frozenset())


def worst_under(snapshot: Snapshot, gradient: bool) -> Worst | None:
    """Return where the largest share of entries is below the normal float16, zeros apart; None where undefined."""
    shares = snapshot.measured(gradient).get("subnormal_frac16", np.empty(0))
    return _worst(snapshot, shares, frozenset() if gradient else SMALL_BY_NATURE)


def saving_scale(snapshot: Snapshot) -> float:
    """Return the least power of two, from 1 on, that as a loss scale brings the gradients of all sites into float16.

    Within: not more than lost_share16 of a site's entries below the least normal number, and none beyond the largest.
    NaN where no power does, or no histogram was recorded.
    """
    counts = snapshot.histograms.get("gradients")
    if counts is None:
        return math.nan
    by_exponent = counts[:, :HISTOGRAM_HIGH - HISTOGRAM_LOW + 1]  # (S, 277)
    filled = np.flatnonzero(by_exponent.any(0))
    if not filled.size:
        return math.nan
    shares = by_exponent.cumsum(1) / np.maximum(counts[:, :-1].sum(1), 1)[:, None]  # up to each exponent
    below = np.append(0.0, shares.max(0))[LOW - HISTOGRAM_LOW::-1]  # what is lost at a scale of 1, 2, 4, …
    shift = int(np.flatnonzero(below <= THRESHOLDS["lost_share16"])[0])
    return 2.0**shift if filled[-1] + HISTOGRAM_LOW + shift <= HIGH else math.nan


def _over(group: Mapping[str, F64]) -> F64:
    """Return the share of all entries that are beyond float16 or infinite, by site; NaN where none was observed."""
    if "n" not in group:
        return np.empty(0)
    infinite = group["n_posinf"] + group["n_neginf"]
    finite = group["n"] - infinite - group["n_nan"]
    beyond = np.where(finite > 0, np.nan_to_num(group["overflow_frac16"]) * finite, np.where(infinite > 0, 0, np.nan))
    with np.errstate(invalid="ignore"):
        share: F64 = (beyond + infinite) / group["n"]
    return share


def _worst(snapshot: Snapshot, shares: F64, but: frozenset[str]) -> Worst | None:
    found = [(share, layer, site) for share, (layer, site) in zip(shares.tolist(), snapshot.layout.sites, strict=False)
             if not math.isnan(share) and site not in but]
    return max(found, key=lambda place: place[0], default=None)
