"""Which of the runs on a page have a value that is not finite, and their autopsies, each made once.

It knows runs and autopsies; it draws nothing and says nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np

from core.autopsy import Autopsy, autopsy, is_case
from core.evidence import Measured
from core.lineage import LOSS
from core.rules import is_recurrent
from core.trace import NonFinite
from core.vocabulary import SITES
from pages.ui.views.tokens import chosen
from pages.ui.watching import Watched

COUNTS = ("n_nan", "n_posinf", "n_neginf")
"""Statistics that count entries which are not finite."""


def looked(watched: Sequence[Watched], shown: Mapping[str, str]) -> tuple[Watched, Autopsy] | None:
    """Return the variant that is looked at with its autopsy, else the first that has one; None where none has."""
    return next(((one, found) for one in (chosen(watched, shown), *watched) if (found := examined(one))), None)


def examined(one: Watched) -> Autopsy | None:
    """Return the autopsy of a run; None where everything that was recorded is finite."""
    if one.trace is None:
        return None
    step = next((snapshot.step for snapshot in one.trace.snapshots if is_case(snapshot)), None)
    if step is None:
        return None
    key = one.run.id, step  # an autopsy stays as it is while a run goes on
    with _LOCK:
        known = _EXAMINED.get(key)
    if known is None:
        known = autopsy(one.trace, one.experiment)
        with _LOCK:
            _EXAMINED[key] = known
            while len(_EXAMINED) > KEPT:
                _EXAMINED.popitem(last=False)
    return known


KEPT = 16
_LOCK = Lock()
_EXAMINED: OrderedDict[tuple[str, int], Autopsy | None] = OrderedDict()


def unexplained(one: Watched) -> NonFinite | None:
    """Return the first value that is not finite in a run that has no autopsy, a recurrent one; None without one."""
    if one.trace is None or not is_recurrent(one.experiment):
        return None
    return next((snapshot.non_finite for snapshot in one.trace.snapshots if is_case(snapshot)), None)


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
