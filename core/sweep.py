"""A sweep: a grid of experiments over one or two fields of a base, cell by cell. No torch here.

A cell that its fields refuse is a cell with a reason, not an end of the sweep. It knows experiments; what is read off a
cell's run is in `core.outcomes`, and who computes it is not its business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from core.comparison import label
from core.experiment import Experiment
from core.fields import ExperimentError

MOST_FIELDS, MOST_CELLS = 2, 400


@dataclass(frozen=True)
class Cell:
    """One cell. `values`: field → value; `experiment`: None where the fields refuse each other, `refused` says why."""

    values: Mapping[str, Any]
    experiment: Experiment | None
    refused: ExperimentError | None = None

    @property
    def name(self) -> str:
        """The cell's values as short code."""
        return label(self.values)


def grid(base: Experiment, axes: Mapping[str, Sequence[Any]]) -> list[Cell]:
    """Return the cells of the grid in order, the last field's values changing fastest.

    `axes`: one or two dotted paths, each with its values, each value once. Errors: ExperimentError for another number
    of fields, for a field without values, with the same value twice or that does not exist, and for too many cells.
    """
    if not 1 <= len(axes) <= MOST_FIELDS:
        raise ExperimentError(f"the sweep is over {len(axes)} fields; allowed: one or two", "sweep_fields")
    known = base.paths()
    for path, values in axes.items():
        if path not in known:
            base.with_values({path: None})  # says which fields there are
        if not values:
            raise ExperimentError(f"{path} has no values to sweep over; allowed: {path}=value,value,…", "sweep_empty",
                                  field=path)
        if len({label({path: value}) for value in values}) < len(values):
            raise ExperimentError(f"{path} has a value twice; allowed: each value once", "sweep_twice", field=path)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_CELLS:
        raise ExperimentError(f"the sweep has {count} cells; allowed: up to {MOST_CELLS}", "sweep_cells", count=count,
                              limit=MOST_CELLS)
    return [_cell(base, dict(zip(axes, values, strict=True))) for values in product(*axes.values())]


def _cell(base: Experiment, values: Mapping[str, Any]) -> Cell:
    try:
        return Cell(values, base.with_values(values))
    except ExperimentError as refused:
        return Cell(values, None, refused)
