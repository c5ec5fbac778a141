"""Every norm worked by hand: the steps from x to γ·x̂ + β as numbers.

A second implementation beside `core.norms`, in NumPy and float64: a statistic is a mean over the entries that have one
label (`core.pools`), and a norm the steps that `WORKED` writes down. A norm of `core.tables.NORMS` needs one
entry there. Numbers and formulas only: it knows no torch, no words and no picture.

Shapes: B batch, T positions, D features, G groups; every array here is (B, T, D).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core.pools import POOLS, Labels, Pool, Shape
from core.tables import NORMS

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

ALPHA = 0.5
"""DyT's slope at initialization."""


@dataclass(frozen=True)
class Dials:
    """How a norm is computed. `groups`: of groupnorm; `alone`: batchnorm pools over B for each (t, d), not over B·T.

    `gamma`, `beta`: one number for each feature, or a single one for all; scalenorm's g is the first of `gamma`.
    """

    eps: float = 1e-5
    groups: int = 1
    alone: bool = False
    gamma: tuple[float, ...] = (1.0,)
    beta: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, eq=False)
class Step:
    """One step. `values`: (B, T, D); `axes`: along which they vary, along the others they are repeated; `latex`: how
    it is written."""

    name: str
    latex: str
    values: F64
    axes: str

    @property
    def shared(self) -> bool:
        """Whether it is a statistic, which several entries have in common."""
        return self.axes != "B T D"

    @property
    def broken(self) -> Mask:
        """Which entries are NaN or infinite."""
        found: Mask = ~np.isfinite(self.values)
        return found


@dataclass(frozen=True, eq=False)
class Worked:
    """A norm of one tensor. `labels`: (B, T, D), equal where entries share their statistics; x comes first in `steps`,
    what leaves the norm last."""

    norm: str
    pool: str
    labels: Labels
    steps: tuple[Step, ...]

    def values(self, name: str) -> F64:
        """Return the values of a step: x, mean, centred, variance, normalized (x̂), output …; KeyError for none."""
        return {step.name: step.values for step in self.steps}[name]

    @property
    def is_centred(self) -> bool:
        """Whether a mean is taken off."""
        return any(step.name == "centred" for step in self.steps)

    def sharing(self, entry: Shape) -> Mask:
        """Return which entries share the statistics of `entry` (b, t, d), itself among them."""
        found: Mask = self.labels == self.labels[entry]
        return found


@dataclass(eq=False)
class _Sheet:
    """What a recipe computes with and writes its steps on."""

    pool: Pool
    labels: Labels
    eps: float
    steps: list[Step] = field(default_factory=list)

    @property
    def count(self) -> F64:
        """How many entries share each entry's statistic."""
        return np.bincount(self.labels.ravel())[self.labels].astype(np.float64)

    def write(self, name: str, latex: str, values: F64, axes: str = "B T D") -> F64:
        """Keep a step and return its values."""
        self.steps.append(Step(name, latex, values, axes))
        return values

    def share(self, name: str, latex: str, values: F64) -> F64:
        """Keep a step whose values are a statistic's."""
        return self.write(name, latex, values, self.pool.axes)

    def of_each(self, values: F64, statistic: Callable[[F64], float]) -> F64:
        """Return a statistic of the entries of each label, repeated for all of them."""
        found = np.empty(values.shape)
        for label in range(int(self.labels.max()) + 1):
            members = self.labels == label
            found[members] = statistic(values[members])
        return found

    def mean(self, values: F64) -> F64:
        """Return the mean of each label's entries."""
        return self.of_each(values, _mean)

    def written_mean(self, latex: str, less: str = "") -> str:
        """Return how a mean over the pool is written; `less`: what is taken off the count."""
        count = f"{self.pool.count}{less}"
        return rf"\frac{{1}}{{{count}}}\sum_{{{self.pool.index}}} {latex}"


def _mean(entries: F64) -> float:
    """Return the mean, which rounding may not move out of the entries' range: a constant token's is that constant."""
    return float(np.clip(entries.mean(), entries.min(), entries.max()))


def _length(entries: F64) -> float:
    """Return √Σx², of entries brought to the scale of the largest, so that no square overflows or vanishes."""
    largest = float(np.abs(entries).max())
    return largest * float(np.sqrt(np.square(entries / largest).sum())) if largest else 0.0


SQUARE = r"(x - \mu)^2"

Recipe = Callable[[F64, _Sheet], F64]
"""x and a sheet → x̂, with the steps on the sheet."""


def _centred(x: F64, w: _Sheet) -> F64:
    mean = w.share("mean", rf"\mu = {w.written_mean('x')}", w.mean(x))
    return w.write("centred", r"x - \mu", x - mean)


def _layernorm(x: F64, w: _Sheet) -> F64:
    centred = _centred(x, w)
    variance = w.share("variance", rf"\sigma^2 = {w.written_mean(SQUARE)}", w.mean(np.square(centred)))
    root = w.share("root", r"\sqrt{\sigma^2 + \varepsilon}", np.sqrt(variance + w.eps))
    return w.write("normalized", r"\hat{x} = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}", centred / root)


def _std_eps(x: F64, w: _Sheet, correction: int) -> F64:
    centred = _centred(x, w)
    square = w.mean(np.square(centred)) * (w.count / (w.count - correction))
    written = w.written_mean(SQUARE, f"-{correction}" if correction else "")
    deviation = w.share("deviation", rf"\sigma = \sqrt{{{written}}}", np.sqrt(square))
    below = w.share("below", r"\sigma + \varepsilon", deviation + w.eps)
    return w.write("normalized", r"\hat{x} = \frac{x - \mu}{\sigma + \varepsilon}", centred / below)


def _rmsnorm(x: F64, w: _Sheet) -> F64:
    square = w.share("mean_square", w.written_mean("x^2"), w.mean(np.square(x)))
    root = w.share("rms", rf"\mathrm{{rms}} = \sqrt{{{w.written_mean('x^2')} + \varepsilon}}", np.sqrt(square + w.eps))
    return w.write("normalized", r"\hat{x} = \frac{x}{\mathrm{rms}}", x / root)


def _scalenorm(x: F64, w: _Sheet) -> F64:
    length = w.share("length", rf"\lVert x \rVert = \sqrt{{\sum_{{{w.pool.index}}} x^2}}", w.of_each(x, _length))
    found = np.where(length == 0, x, x / length * np.sqrt(w.count))
    return w.write("normalized", r"\hat{x} = \sqrt{D}\,\frac{x}{\lVert x \rVert}", found)


def _dyt(x: F64, w: _Sheet) -> F64:
    slope = w.write("slope", r"\alpha", np.full(x.shape, ALPHA), "")
    scaled = w.write("scaled", r"\alpha x", slope * x)
    return w.write("normalized", r"\hat{x} = \tanh(\alpha x)", np.tanh(scaled))


@dataclass(frozen=True)
class Entry:
    """How a norm is worked: over which pool, by which recipe, and whether it has an ε.

    `alone`: its pool when batchnorm pools over B.
    """

    pool: str
    recipe: Recipe
    eps: bool = True
    alone: str = ""


WORKED: dict[str, Entry] = {
    "layernorm": Entry("token", _layernorm),
    "none": Entry("entry", lambda x, _: x, eps=False),
    "rmsnorm": Entry("token", _rmsnorm),
    "batchnorm": Entry("feature", _layernorm, alone="position"),
    "groupnorm": Entry("group", _layernorm),
    "scalenorm": Entry("token", _scalenorm, eps=False),
    "dyt": Entry("entry", _dyt, eps=False),
    "layernorm_std_eps": Entry("token", partial(_std_eps, correction=0)),
    "layernorm_unbiased": Entry("token", partial(_std_eps, correction=1)),
}
"""Norm → how it is worked."""


def worked(norm: str, x: F64, dials: Dials | None = None) -> Worked:
    """Return every step of a norm of x (B, T, D); batchnorm is that of training.

    What is not finite is computed with like any number. Errors: KeyError for an unknown norm; ValueError for another
    number of axes, an empty tensor, features that do not split into the groups, or γ, β of another length.
    """
    dials = dials or Dials()
    entry = WORKED[norm]
    x = np.asarray(x, np.float64)
    if x.ndim != 3 or not x.size:
        raise ValueError(f"the tensor has shape {x.shape}; allowed: three axes (B, T, D), none of them empty")
    pool = entry.alone if dials.alone and entry.alone else entry.pool
    labels = POOLS[pool].label(x.shape, dials.groups)
    sheet = _Sheet(POOLS[pool], labels, dials.eps)
    with np.errstate(all="ignore"):
        normalized = entry.recipe(sheet.write("x", "x", x), sheet)
        _affine(norm, normalized, dials, sheet)
    return Worked(norm, pool, labels, tuple(sheet.steps))


def _affine(norm: str, normalized: F64, dials: Dials, sheet: _Sheet) -> None:
    """Write what the norm learns: γ·x̂ + β, γ·x̂, g·x̂, or nothing."""
    learns, width = NORMS[norm], normalized.shape[2]
    if learns.vectors > 1:
        values, latex = _each(dials.gamma, width) * normalized + _each(dials.beta, width), r"\gamma \hat{x} + \beta"
    elif learns.vectors:
        values, latex = _each(dials.gamma, width) * normalized, r"\gamma \hat{x}"
    elif learns.scalars:
        values, latex = dials.gamma[0] * normalized, r"g \hat{x}"
    else:
        values, latex = normalized, "x"
    sheet.write("output", f"y = {latex}", values)


def _each(numbers: tuple[float, ...], width: int) -> F64:
    """Return one number for each feature."""
    if len(numbers) not in (1, width):
        raise ValueError(f"there are {len(numbers)} numbers for {width} features; allowed: 1 or {width}")
    return np.broadcast_to(np.array(numbers, np.float64), (width,))
