"""Why an operation gave a value that is not finite though what went in was: a mechanism, where the numbers prove it.

From finite numbers arithmetic makes Inf or NaN in two ways only: a value passes the largest number of its dtype, or
something is divided by zero. Which of them could happen follows from the recorded extremes, the norms of the weights
and the settings (`core.reach`). Where both could, or neither, the cause is unknown: nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from core.evidence import Evidence, Making
from core.experiment import Experiment
from core.formulas import NORM_FORMULAS
from core.lineage import Step
from core.reach import reach, reach_back
from core.shapes import LARGEST, LEAST, dtype_of
from core.trace import NonFinite

HOWS = ("overflow", "overflow_source", "overflow_gradient", "overflow_weights", "square_overflow", "score_overflow",
        "zero_variance", "gradient", "unknown")
"""overflow: a value passed the largest number of the dtype; _source: where nothing recorded goes in; _gradient: on the
way back; _weights: in an update; square_overflow: a square inside a norm did;
score_overflow: a score q·k inside an attention did; zero_variance:
a norm divided by the spread of tokens that have none; gradient: the update before was made of a gradient that was not
finite."""


@dataclass(frozen=True)
class How:
    """A mechanism, a code of HOWS, and the numbers that show it, by name; `dtype`: the one whose limit it is about."""

    code: str
    numbers: Mapping[str, float]
    dtype: str = ""


@dataclass(frozen=True)
class Case:
    """The first value that is not finite, how it came to be, and the numbers of the update before, where known."""

    first: NonFinite
    making: Making
    evidence: Evidence
    update: Mapping[str, float]


def how(case: Case) -> How:
    """Return the mechanism by which the first value that is not finite was made."""
    return _BY_DIRECTION[case.first.direction](case)


def turning(making: Making) -> str:
    """Return how an operation that was given an Inf made NaN of it; unknown where its steps could in several ways."""
    bad = {one.site for one in making.inputs if not one.finite}
    spared = _SCORING if bad == {"v"} else frozenset()
    found = {code for step in making.steps if step.kind not in spared and (code := _turns(step))}
    return found.pop() if len(found) == 1 else "unknown"


_SCORING = frozenset({"scores", "softcap", "pattern"})
"""What an attention makes of q and k alone."""


def _of_weights(case: Case) -> How:
    update, dtype = case.update, dtype_of(case.first.site, case.evidence.experiment)
    if any(not math.isfinite(update[name]) for name in ("grad_norm", "grad_total_norm") if name in update):
        return How("gradient", update)
    known = update and case.first.kind == "inf"
    return How("overflow_weights" if known else "unknown", {**update, "limit": LARGEST[dtype]}, dtype)


def _of_forward(case: Case) -> How:
    making, canonical = case.making, case.evidence.experiment
    dtype = dtype_of(case.first.site, canonical)
    bound = reach(making, dtype, canonical)
    numbers = {"absmax": making.largest_input, "limit": LARGEST[dtype], "bound": bound * LARGEST[dtype]}
    divisors = [step for step in making.steps if _divides_by_zero(step)]
    if inside := _inside(case):
        return inside
    if divisors and bound < 1:
        entering = making.inputs[0] if making.inputs else making.output
        return How("zero_variance", {"eps": divisors[0].about["eps"], "std": entering.std, "rms": entering.rms,
                                    "absmax": entering.absmax}, str(divisors[0].about["wide"]))
    sure = bound >= 1 and not divisors and not (case.first.kind == "nan" and _meets_padding(making, canonical))
    overflow = "overflow" if making.inputs else "overflow_source"
    return How(overflow if sure else "unknown", numbers, dtype)


def _of_gradient(case: Case) -> How:
    making, scale = case.making, case.evidence.snapshot.totals.get("loss_scale", 1.0)
    incoming = max((one.absmax for one in making.inputs if one.gradient), default=math.nan)
    canonical = case.evidence.experiment
    dtype = canonical.protocol.dtype
    bound, limit = reach_back(making, canonical, incoming * scale), LARGEST[dtype]
    numbers = {"absmax": incoming, "loss_scale": scale, "scaled": incoming * scale, "limit": limit,
               "bound": bound * limit}
    if inside := _inside(case):
        return inside
    divides = any(_divides_by_zero(step) for step in making.steps)
    sure = bound >= 1 and not divides and not (case.first.kind == "nan" and _meets_padding(making, canonical))
    return How("overflow_gradient" if sure else "unknown", numbers, dtype)


_BY_DIRECTION: dict[str, Callable[[Case], How]] = {
    "weights": _of_weights, "forward": _of_forward, "gradient": _of_gradient,
}

def _inside(case: Case) -> How | None:
    """Return the overflow inside a norm or an attention that the records show, or None."""
    return _squares(case.making) or _scores(case)


def _scores(case: Case) -> How | None:
    """Return the overflow of an attention whose scores, which it keeps to itself, are not finite though q and k are.

    The recorder takes them again from q and k, in float32 at least; a head with one that is not finite has NaN.
    """
    heads, wide = case.evidence.snapshot.heads.get("entropy"), dtype_of("loss", case.evidence.experiment)
    sizes = {(one.layer, one.site): one.absmax for one in case.making.inputs if not one.gradient}
    for operation in case.making.operations:
        layer = operation.output[0]
        if operation.kind == "attention" and heads is not None and np.isnan(heads[layer]).any():
            q, k = (sizes.get((layer, name), math.nan) for name in ("q", "k"))
            return How("score_overflow", {"q": q, "k": k, "product": q * k, "limit": LARGEST[wide]}, wide)
    return None


def _squares(making: Making) -> How | None:
    """Return the overflow of a norm whose squares pass the dtype it works in; None where none is known to."""
    entering = {(one.layer, one.site): one.absmax for one in making.inputs if not one.gradient}
    for operation in making.operations:
        norm = operation.steps[0] if operation.steps else None  # what enters a later step was not recorded
        if norm is not None and norm.kind == "norm" and norm.about["norm"] in _SQUARES:
            x, wide = entering.get(operation.inputs[0], 0.0), str(norm.about["wide"])
            if x * x > LARGEST[wide]:
                return How("square_overflow", {"absmax": x, "square": x * x, "limit": LARGEST[wide]}, wide)
    return None


_SQUARES = frozenset(NORM_FORMULAS) - {"dyt"}
"""Norms that are known to square what comes in."""

_WITH_EPS = frozenset(NORM_FORMULAS) - {"scalenorm", "dyt"}
"""Norms that need ε: of the others a token of zeros stays zeros, or nothing is divided."""


def _divides_by_zero(step: Step) -> bool:
    """Say whether a step is a norm whose ε is 0 in the dtype it works in."""
    if step.kind not in ("norm", "qk_norm") or step.about["norm"] not in _WITH_EPS:
        return False
    return bool(step.about["eps"] <= LEAST[str(step.about["wide"])] / 2)


def _meets_padding(making: Making, canonical: Experiment) -> bool:
    """Say whether padding, which no statistic covers, may have a part in it."""
    mixes = any(step.kind == "mix" or step.about.get("norm") == "batchnorm" for step in making.steps)
    return mixes and canonical.input.lengths is not None


def _turns(step: Step) -> str:
    code = TURNS.get(step.kind, "")
    return _NORM_TURNS.get(str(step.about["norm"]), "") if step.kind in ("norm", "qk_norm") else code


TURNS: dict[str, str] = {
    "projection": "inf_in_products", "head": "inf_in_products", "scores": "inf_in_products", "mix": "inf_in_products",
    "pattern": "inf_minus_inf", "add": "inf_minus_inf", "loss": "inf_minus_inf", "activation": "inf_times_zero",
    "gate": "inf_times_zero", "scale": "inf_times_zero", "learned_scale": "inf_times_zero", "turn": "inf_minus_inf",
}
"""Step → how it makes NaN of an Inf. inf_in_products: in a sum of products, by Inf − Inf or Inf · 0."""

_NORM_TURNS = {"rmsnorm": "inf_over_inf", "scalenorm": "inf_over_inf", "dyt": "",
               **dict.fromkeys(("layernorm", "batchnorm", "groupnorm", "layernorm_std_eps", "layernorm_unbiased"),
                               "inf_minus_inf")}
