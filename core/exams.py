"""The marks of one class in one exam, and where each stands in the class: what normalizing keeps and what it removes.

Numbers only: it knows neither students nor words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

EPS = 1e-12
"""Below the root, as in a norm: so small that it has an effect only where all marks are equal."""


@dataclass(frozen=True)
class Exam:
    """One exam. `marks`: of the n students of a class; `full`: the most that the exam gives, beyond which bonuses lead.

    Errors: ValueError for no marks or a full mark that is not above 0.
    """

    marks: tuple[float, ...]
    full: float

    def __post_init__(self) -> None:
        if not self.marks or not self.full > 0:
            raise ValueError(f"there are {len(self.marks)} marks and full marks are {self.full:g}; "
                             "allowed: one mark or more, full marks above 0")

    @property
    def mean(self) -> float:
        """μ = Σx / n."""
        return self.marks[0] + float(self._from_first.mean())

    @property
    def std(self) -> float:
        """σ = √(Σ(x − μ)² / n), the biased one, as in a norm."""
        return float(self._from_first.std())

    @property
    def alike(self) -> bool:
        """Whether all marks are equal, so that nobody stands anywhere."""
        return len(set(self.marks)) == 1

    @property
    def shares(self) -> F64:
        """Marks over the full mark, (n,): without a unit, and blind to how hard the exam was."""
        return np.array(self.marks) / self.full

    @property
    def z(self) -> F64:
        """z-scores (x − μ)/√(σ² + ε), (n,): the same for the marks of any a·x + b with a > 0; 0 where all are equal."""
        x = self._from_first
        return np.asarray((x - x.mean()) / np.sqrt(x.var() + EPS))

    @property
    def _from_first(self) -> F64:
        """Marks minus the first, which moves no deviation: equal marks are 0 then, to the last digit."""
        return np.array(self.marks) - self.marks[0]


def better(exams: Mapping[str, Exam], who: int) -> str:
    """Return the name of the exam in which the student at place `who` stands highest in class; "" where all are equal.
    """
    found = {name: float(one.z[who]) for name, one in exams.items()}
    low, high = min(found.values()), max(found.values())
    return "" if isclose(low, high, rel_tol=1e-9, abs_tol=1e-9) else max(found, key=lambda name: found[name])
