"""A ranking: candidates by one number of each, what counts as better, and which differences are none.

Torch-free and wordless: codes, numbers and names of candidates leave this file. It does not know how a candidate was
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.drift import THRESHOLDS


@dataclass(frozen=True)
class Row:
    """One candidate: its numbers by criterion, those it lacks left out, and the codes of its alarms."""

    name: str
    values: Mapping[str, float]
    alarms: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Criterion:
    """One number that candidates are ranked by.

    `worse`: number → how bad it is, ∞ for what is not finite; `apart`: two numbers → whether their difference counts;
    `limit`: the threshold of that, a ``ratio`` or a ``difference`` as `kind` says.
    """

    worse: Callable[[float], float]
    apart: Callable[[float, float], bool]
    limit: float
    kind: str


@dataclass(frozen=True)
class Finding:
    """What one criterion says of all candidates: ``same``, or ``apart`` with the best and the worst of them."""

    criterion: str
    code: str
    best: Row
    worst: Row


def _from_one(value: float) -> float:
    """Return how many e-folds a ratio is from 1, either way; ∞ for 0 and for what is not finite."""
    return abs(math.log(value)) if 0 < value < math.inf else math.inf


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _ratio(worse: Callable[[float], float], limit: float) -> Criterion:
    """Return a criterion of which values within a factor `limit` of each other count as the same."""
    return Criterion(worse, lambda a, b: not _within(a, b, limit), limit, "ratio")


def _within(a: float, b: float, limit: float) -> bool:
    return a == b or (min(a, b) > 0 and max(a, b) <= limit * min(a, b))


def _difference(limit: float) -> Criterion:
    """Return a criterion of which the least value is the best, and a difference up to `limit` is none."""
    return Criterion(_size, lambda a, b: not abs(a - b) <= limit, limit, "difference")


CRITERIA: dict[str, Criterion] = {
    "growth": _ratio(_from_one, THRESHOLDS["steady_growth"]),
    "grad_ratio": _ratio(_from_one, THRESHOLDS["steady_growth"]),
    "token_cosine": _difference(0.05),
    "loss": _difference(0.05),
    "norm_seconds": _ratio(_size, 1.25),
    "norm_bytes": _ratio(_size, 1.05),
}
"""Criterion → how it ranks. Times scatter more than traffic, which is counted."""

BY_ALARMS = "alarms"
"""Ranks by the number of alarms, then by how far stream and gradient are from where they began."""


def ranked(rows: Sequence[Row], by: str) -> list[Row]:
    """Return the candidates, the best first; those without the number come last, in their order."""
    if by == BY_ALARMS:
        return sorted(rows, key=lambda row: (len(row.alarms), sum(
            CRITERIA[name].worse(row.values.get(name, math.nan)) for name in ("growth", "grad_ratio"))))
    return sorted(rows, key=lambda row: CRITERIA[by].worse(row.values[by]) if by in row.values else math.inf)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Return what each criterion that two candidates have says of them, in the order of CRITERIA.

    Nothing where even the best of them is as bad as can be, as where no number is finite.
    """
    found = []
    for name, criterion in CRITERIA.items():
        known = ranked([row for row in rows if name in row.values], name)
        if len(known) < 2 or math.isinf(criterion.worse(known[0].values[name])):
            continue
        best, worst = known[0], known[-1]
        apart = criterion.apart(best.values[name], worst.values[name])
        found.append(Finding(name, "apart" if apart else "same", best, worst))
    return found
