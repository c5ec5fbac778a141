"""How large the numbers inside an operation can become, from what went in and the norms of its weights: an upper bound.

Each step bounds what it gives by what it is given: a matrix product by Cauchy–Schwarz, |x·w| ≤ ‖x‖‖w‖ ≤ √n·max|x|·‖W‖;
a norm gives at most √n; and so on. Below 1 an overflow is ruled out; from 1 on it is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from core.evidence import Making
from core.experiment import Experiment
from core.formulas import NORM_FORMULAS
from core.lineage import Step
from core.shapes import LARGEST, sizes
from core.vocabulary import SITES

MARGIN = 1.01
"""What rounding may add."""


@dataclass(frozen=True)
class _Given:
    """What a step may use: `entry`, the largest |x| that entered the operation; `x`, that enters this step.

    `size`: sizes by letter; `norm`: of the step's parameters, by the end of the name; `inner`: the largest number of
    the dtype over that of the dtype in which a fused attention holds its scores.
    """

    step: Step
    entry: float
    x: float
    size: Mapping[str, int]
    norm: Callable[[str], float]
    inner: float = 1.0


def reach(making: Making, dtype: str, canonical: Experiment) -> float:
    """Return a bound of the largest number met in a forward operation over the largest of its dtype."""
    entry = making.largest_input
    if math.isnan(entry):
        return math.inf
    known, inner_share = sizes(canonical), _inner(making, dtype)
    x = most = entry
    for step in making.steps:
        given = _Given(step, entry, x, known, partial(_norm, making, step), inner_share)
        inner, x = BOUNDS[step.kind](given)
        squares = _square_share(given) * LARGEST[dtype]
        most = max(most, inner, x, squares)
    return MARGIN * most / LARGEST[dtype]


def _inner(making: Making, dtype: str) -> float:
    wide = max(LARGEST[dtype], LARGEST["float32"])
    return LARGEST[dtype] / wide if making.kind == "attention" else 1.0


def _norm(making: Making, step: Step, end: str) -> float:
    return sum(weights.weight_norm for weights in making.weights
               if weights.name.startswith(step.reads) and weights.name.endswith(end))


def _square_share(given: _Given) -> float:
    """Return the square inside a norm over the largest number of the dtype that the norm works in."""
    if given.step.kind not in ("norm", "qk_norm") or given.step.about["norm"] == "dyt":
        return 0.0
    return 4 * given.x * given.x / LARGEST[str(given.step.about["wide"])]


_Bound = tuple[float, float]
"""The largest number met on the way, and the largest given."""


def _matrix(given: _Given) -> _Bound:
    weight = given.norm(".weight")
    width = math.prod(given.size[letter] for letter in _width(given.step).split())
    return weight, given.x * math.sqrt(width) * weight + given.norm(".bias")


def _width(step: Step) -> str:
    """Return the letters of a matrix's inner size; that of the head is D."""
    return str(step.about.get("width", "D"))


def _normed(given: _Given) -> _Bound:
    about = given.step.about
    if about["norm"] not in NORM_FORMULAS or (about["norm"] == "batchnorm" and not about["training"]):
        return math.inf, math.inf  # nothing is known of it, or the running estimates, which are not recorded
    tokens = given.size["B"] * given.size["T"]
    features = given.size["HK" if given.step.kind == "qk_norm" else "D"]
    width = tokens if about["norm"] == "batchnorm" else features
    gain = max(1.0, given.norm(".weight"))
    return 2 * given.x, math.sqrt(width) * gain + given.norm(".bias")


def _scores(given: _Given) -> _Bound:
    scale = abs(given.step.about["scale"])
    return given.entry * scale, given.entry * given.entry * scale * given.size["K"] * given.inner


def _capped(given: _Given) -> _Bound:
    cap = given.step.about["cap"]
    return given.x / cap, cap


def _mixed(given: _Given) -> _Bound:
    return 1.0, 2 * given.entry / (1 - given.step.about["dropout"])


def _gated(given: _Given) -> _Bound:
    return given.x, given.x * given.entry


def _added(given: _Given) -> _Bound:
    alpha = abs(given.step.about["alpha"])
    return alpha * given.entry, alpha * given.entry + given.x


def _lost(given: _Given) -> _Bound:
    entries = given.size["B"] * given.size["T"] * given.size["D"]
    terms = (2 * given.x + 100) * given.size["B"] * given.size["T"]
    return terms, _DRAW * given.x * entries if given.step.about["loss"] == "projection" else terms


_DRAW = 10.0
"""No unit normal that is ever drawn is larger."""

BOUNDS: dict[str, Callable[[_Given], _Bound]] = {
    "tokens": lambda given: (0.0, given.norm(".weight")),
    "vectors": lambda _: (math.inf, math.inf),  # the data are not recorded
    "positions": lambda given: (0.0, given.x + max(1.0, given.norm(".weight"))),
    "projection": _matrix,
    "head": _matrix,
    "norm": _normed,
    "qk_norm": _normed,
    "turn": lambda given: (0.0, 2 * given.x),
    "scores": _scores,
    "softcap": _capped,
    "pattern": lambda given: (1.0, given.entry),
    "mix": _mixed,
    "activation": lambda given: (0.0, given.x),
    "gate": _gated,
    "divide": lambda given: (0.0, given.x / given.step.about["by"]),
    "dropout": lambda given: (0.0, given.x / (1 - given.step.about["rate"])),
    "scale": lambda given: (0.0, given.x * abs(given.step.about["value"])),
    "learned_scale": lambda given: (given.norm(".weight"), given.x * given.norm(".weight")),
    "add": _added,
    "loss": _lost,
}
"""Step → the bounds of what it meets and of what it gives; the pattern's is that of the values it will mix."""


def reach_back(making: Making, canonical: Experiment, incoming: float) -> float:
    """Return a bound of the largest number met in a backward pass over the largest of the compute dtype.

    `incoming`: the largest gradient that comes in, times the loss scale.
    """
    dtype, known = canonical.protocol.dtype, sizes(canonical)
    entry = max((one.absmax for one in making.inputs if not one.gradient), default=0.0)
    if math.isnan(incoming) or math.isnan(entry):
        return math.inf
    most = 0.0
    for operation in making.operations:
        x = incoming
        for step in reversed(operation.steps):
            x *= FACTORS[step.kind](_Given(step, max(1.0, entry), x, known, partial(_norm, making, step)))
        most = max(most, x)
    learns = known["B"] * known["T"] * max(1.0, entry) if making.output.site not in SITES else 1.0
    return MARGIN * len(making.inputs) * most * learns / LARGEST[dtype]


def _back_through_matrix(given: _Given) -> float:
    return max(1.0, given.norm(".weight")) * math.sqrt(max(given.size.values()))


BOUNDED_BELOW = frozenset({"layernorm", "rmsnorm", "batchnorm", "groupnorm", "dyt"})
"""Norms that divide by a root with ε in it, or by nothing."""


def _back_through_norm(given: _Given) -> float:
    about = given.step.about
    if about["norm"] not in BOUNDED_BELOW or not about["eps"]:
        return math.inf  # divided by the spread itself, which no statistic bounds from below
    width = given.size["B"] * given.size["T"] + given.size["HK"] + given.size["D"]
    return 3 * width * max(1.0, given.norm(".weight")) * given.entry / math.sqrt(float(about["eps"]))


def _back_through_mix(given: _Given) -> float:
    kept = 1 - float(given.step.about["dropout"])
    return (given.size["K"] * given.entry + given.size["T"]) / kept


FACTORS: dict[str, Callable[[_Given], float]] = {
    "tokens": lambda given: given.size["B"] * given.size["T"],
    "vectors": lambda _: 1.0,
    "positions": lambda given: given.size["B"],
    "projection": _back_through_matrix,
    "head": _back_through_matrix,
    "norm": _back_through_norm,
    "qk_norm": _back_through_norm,
    "turn": lambda _: 2.0,
    "scores": lambda given: given.entry * max(1.0, abs(given.step.about["scale"])) * given.size["T"],
    "softcap": lambda _: 1.0,
    "pattern": lambda given: 2.0 * given.size["T"],
    "mix": _back_through_mix,
    "activation": lambda _: 2.0,
    "gate": lambda given: 2.0 * given.entry * given.entry,
    "divide": lambda given: 1 / given.step.about["by"],
    "dropout": lambda given: 1 / (1 - given.step.about["rate"]),
    "scale": lambda given: max(1.0, abs(given.step.about["value"])),
    "learned_scale": lambda given: max(1.0, given.norm(".weight")),
    "add": lambda given: max(1.0, abs(given.step.about["alpha"])),
    "loss": lambda _: 1.0,
}
"""Step → by how much at most a gradient grows on its way back through it."""
