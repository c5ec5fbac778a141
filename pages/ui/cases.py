"""Which of the runs on a page have a value that is not finite, and their autopsies, each made once.

It knows runs and autopsies; it draws nothing and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from core.autopsy import Autopsy, autopsy, is_case
from core.evidence import Measured
from core.experiment import Experiment
from core.lineage import LOSS
from core.trace import Trace
from core.vocabulary import SITES
from pages.ui.watching import Watched

COUNTS = ("n_nan", "n_posinf", "n_neginf")
"""Statistics that count entries which are not finite."""


def looked(watched: Sequence[Watched], shown: Mapping[str, str]) -> tuple[Watched, Autopsy] | None:
    """Return the variant that is looked at with its autopsy, else the first that has one; None where none has."""
    chosen = watched[min(int(shown["who"]), len(watched) - 1)]
    return next(((one, found) for one in (chosen, *watched) if (found := examined(one))), None)


def examined(one: Watched) -> Autopsy | None:
    """Return the autopsy of a run; None where everything that was recorded is finite."""
    if one.trace is None:
        return None
    step = next((snapshot.step for snapshot in one.trace.snapshots if is_case(snapshot)), None)
    return None if step is None else _examined(_Case(one.run.id, step, one.trace, one.experiment))


@dataclass(frozen=True)
class _Case:
    """What an autopsy is of: it stays as it is while a run goes on."""

    run: str
    step: int
    trace: Trace = field(compare=False)
    experiment: Experiment = field(compare=False)


@lru_cache(maxsize=16)
def _examined(case: _Case) -> Autopsy | None:
    return autopsy(case.trace, case.experiment)


def sizes(found: Autopsy) -> tuple[str, tuple[float, ...]]:
    """Return the name of the number that a history is of, and its values at the recorded steps before.

    absmax of a site, the loss, or of a parameter what is known of it: weight_rms, or param_grad_norm of its gradient.
    """
    if found.site in SITES or found.site == LOSS:
        return "absmax" if found.site in SITES else "loss", found.earlier.absmax
    return "param_grad_norm" if found.direction == "gradient" else "weight_rms", found.earlier.rms


def lost_of(one: Measured) -> float:
    """Return how many entries are not finite, as far as that is known."""
    return float(np.nansum([getattr(one, name) for name in COUNTS]))
