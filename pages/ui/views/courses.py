"""Lines over steps or time, whatever they are of: their numbers as a table, and the scale that a loss is drawn on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pages.ui import charts
from pages.ui.picture import Columns
from pages.ui.text import Words

FAR = 20
"""On a linear axis what is so many times smaller than the largest loss lies flat at its foot."""


def loss_scale(found: Sequence[charts.Course]) -> str:
    """Return log where losses differ more than FAR-fold and none is 0 or below, else linear."""
    values = np.concatenate([np.empty(0), *(one.values for one in found)])
    values = values[np.isfinite(values)]
    return "log" if values.size and values.min() > 0 and values.max() > FAR * values.min() else "linear"


def table(found: Sequence[charts.Course], t: Words, over: str = "") -> Columns:
    """Return the numbers of lines over steps as a table: a row a step, a column a line; `over`: what a step is called.
    """
    known = {" · ".join(part for part in (one.name, one.layer) if part): dict(zip(
        one.steps.tolist(), one.values.tolist(), strict=True)) for one in found}
    steps = sorted({step for column in known.values() for step in column})
    columns = {name: [column.get(step) for step in steps] for name, column in known.items()}
    return {over or t("chart.step"): steps} | columns
