"""How far two runs of one experiment lie apart: the largest difference between the numbers that both recorded.

It knows traces and numpy; it does not know the store, nor why two runs should be alike.

Two numbers are the same when their bits are; NaN is the same as NaN. A number that is finite in one run alone has no
difference to speak of: it is counted and located apart.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from core.trace import F64, MEASURES, Layout, Snapshot, Trace
from core.vocabulary import ATTENTION_SITE

Name = tuple[str, str]
"""Group of a snapshot, name in it."""


@dataclass(frozen=True)
class Gap:
    """One number in both runs, and where it stands: as in a row of the tidy table, None where nothing applies.

    `absolute`: |a − b|; `relative`: |a − b| / max(|a|, |b|), 0 where both are 0; both NaN where one is not finite.
    """

    step: int
    layer: int | None
    site: str
    head: int | None
    statistic: str
    a: float
    b: float

    @property
    def absolute(self) -> float:
        """|a − b|."""
        return float(_absolute(np.array(self.a), np.array(self.b)))

    @property
    def relative(self) -> float:
        """|a − b| / max(|a|, |b|)."""
        return float(_relative(np.array(self.a), np.array(self.b)))


@dataclass(frozen=True)
class Difference:
    """What two runs have in common. `steps`: recorded by both; `only_a`, `only_b`: by one alone.

    `compared`: so many numbers, of which `differing` are not the same and `one_sided` of these not finite on one side,
    or in another way; `largest`: by absolute difference, `relative`: by relative one, `first_one_sided`: the first in
    the order of steps; None where there is none. Runs of different layouts have no numbers in common.
    """

    same_layout: bool
    steps: int = 0
    only_a: int = 0
    only_b: int = 0
    compared: int = 0
    differing: int = 0
    one_sided: int = 0
    largest: Gap | None = None
    relative: Gap | None = None
    first_one_sided: Gap | None = None

    @property
    def identical(self) -> bool:
        """Whether both runs recorded the same steps and every number bit for bit."""
        return self.same_layout and self.steps > 0 and not (self.only_a or self.only_b or self.differing)


def largest_difference(a: Trace, b: Trace) -> Difference:
    """Return the largest difference over every number both recorded: loss, activations, gradients, heads, parameters,
    totals; of each step in turn.
    """
    if a.layout != b.layout:
        return Difference(False)
    mine, theirs = ({snapshot.step: snapshot for snapshot in trace.snapshots} for trace in (a, b))
    common = sorted(mine.keys() & theirs.keys())
    found = Difference(True, len(common), len(mine) - len(common), len(theirs) - len(common))
    for step in common:
        found = _with_step(found, mine[step], theirs[step])
    return found


def _with_step(found: Difference, a: Snapshot, b: Snapshot) -> Difference:
    """Return what was found so far together with what this step says."""
    mine, theirs = dict(_numbers(a)), dict(_numbers(b))
    names = [name for name in mine if name in theirs]
    x, y = (np.concatenate([numbers[name].ravel() for name in names]) for numbers in (mine, theirs))
    differs = (x.view(np.uint64) != y.view(np.uint64)) & ~(np.isnan(x) & np.isnan(y))
    counts = replace(found, compared=found.compared + x.size, differing=found.differing + int(differs.sum()))
    if not differs.any():
        return counts
    shapes = {name: mine[name].shape for name in names}

    def gap(index: int) -> Gap:
        return Gap(a.step, *_place(index, shapes, a.layout), float(x[index]), float(y[index]))

    apart = np.flatnonzero(differs & ~(np.isfinite(x) & np.isfinite(y)))
    near = np.flatnonzero(differs & np.isfinite(x) & np.isfinite(y))
    largest, relative = found.largest, found.relative
    if near.size:
        largest = _larger(largest, gap(int(near[np.argmax(_absolute(x[near], y[near]))])), "absolute")
        relative = _larger(relative, gap(int(near[np.argmax(_relative(x[near], y[near]))])), "relative")
    return replace(counts, one_sided=found.one_sided + apart.size, largest=largest, relative=relative,
                   first_one_sided=found.first_one_sided or (gap(int(apart[0])) if apart.size else None))


def _larger(before: Gap | None, now: Gap, by: str) -> Gap:
    return before if before is not None and getattr(before, by) >= getattr(now, by) else now


def _absolute(x: F64, y: F64) -> F64:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(x - y)


def _relative(x: F64, y: F64) -> F64:
    """Return |x − y| / max(|x|, |y|), divided before it is subtracted, so that nothing overflows."""
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(x), np.abs(y))
        scale = np.where(size == 0, 1.0, size)
        return np.abs(x / scale - y / scale)


def _numbers(snapshot: Snapshot) -> Iterator[tuple[Name, NDArray[np.float64]]]:
    """Yield every named array of a step; single numbers have no axis."""
    yield ("loss", "value"), np.array(snapshot.loss, np.float64)
    for name, value in snapshot.totals.items():
        yield ("totals", name), np.array(value, np.float64)
    for group in MEASURES:
        for name, values in getattr(snapshot, group).items():
            yield (group, name), np.asarray(values, np.float64)


def _place(index: int, shapes: dict[Name, tuple[int, ...]], layout: Layout) -> tuple[int | None, str, int | None, str]:
    """Return layer, site, head and statistic of the `index`-th number of a step."""
    names, sizes = list(shapes), [math.prod(shape) for shape in shapes.values()]
    which = bisect_right(list(accumulate(sizes)), index)
    (group, name), place = names[which], index - sum(sizes[:which])
    if group == "loss":
        return layout.n_layers, "loss", None, name
    if group == "totals":
        return None, "all", None, name
    if group == "heads":
        layer, head = divmod(place, layout.n_heads)
        return layer, ATTENTION_SITE, head, name
    layer, site = (layout.parameters if group == "parameters" else layout.sites)[place]
    return layer, site, None, f"grad_{name}" if group == "gradients" else name
