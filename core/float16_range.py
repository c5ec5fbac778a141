"""Which numbers of a step float16 could not hold, and the loss scale that would save its gradients.

Torch-free; it reads shares and histograms by exponent. float16 ends at 65504, its least normal number is 2⁻¹⁴; below it
digits are lost, and below 2⁻²⁵ the number is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from core.drift import THRESHOLDS
from core.formats import FORMATS
from core.trace import F64, Snapshot
from core.vocabulary import HISTOGRAM_HIGH, HISTOGRAM_LOW

LOW, HIGH = FORMATS["float16"].low, FORMATS["float16"].high
"""The exponents ⌊log₂|x|⌋ of the least and the largest normal float16."""

GONE = -25
"""Below 2 to this power float16 rounds to 0."""

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
    losses = scaled(snapshot)
    if losses is None:
        return math.nan
    shift = int(np.flatnonzero(losses.below <= THRESHOLDS["lost_share16"])[0])
    return float(losses.scales[shift]) if losses.beyond[shift] == 0 else math.nan


@dataclass(frozen=True, eq=False)
class Losses:
    """What float16 loses of the gradients under a loss scale: at the worst site, shares of its entries, (K,) each.

    `scales`: 1, 2, 4, …; `below`: below the least normal number, digits or all of it lost; `gone`: rounded to 0;
    `beyond`: from 2^16 on, infinite. Entries that are 0 without any rounding are counted in none of them.
    """

    scales: F64
    below: F64
    gone: F64
    beyond: F64


def scaled(snapshot: Snapshot) -> Losses | None:
    """Return what float16 would lose of the step's gradients under each power of two as loss scale.

    From histograms by exponent; None where none was recorded, or every gradient is 0.
    """
    counts = snapshot.histograms.get("gradients")
    if counts is None:
        return None
    by_exponent = counts[:, :HISTOGRAM_HIGH - HISTOGRAM_LOW + 1]  # (S, 277)
    if not by_exponent.any():
        return None
    entries = np.maximum(counts[:, :-1].sum(1), 1)[:, None]
    up_to = np.concatenate([np.zeros((len(counts), 1)), by_exponent.cumsum(1) / entries], 1)  # below each exponent
    shifts = np.arange(LOW - HISTOGRAM_LOW + 1)

    def under(exponent: int) -> F64:
        worst: F64 = up_to[:, np.maximum(exponent - HISTOGRAM_LOW - shifts, 0)].max(0)
        return worst

    beyond = up_to[:, -1:] - up_to[:, np.maximum(HIGH + 1 - HISTOGRAM_LOW - shifts, 0)]
    return Losses(np.exp2(shifts), under(LOW), under(GONE), beyond.max(0))


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
