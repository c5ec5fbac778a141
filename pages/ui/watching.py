"""Runs that are watched: each with its variant and its film, and what their number over steps is, as a matrix.

It puts engine arrays into the order that pictures need; it computes no statistic and draws nothing.

Axes: N recorded steps, R rows (layers, or heads of layers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.films import Film
from core.trace import F64, Trace
from core.vocabulary import NON_FINITE
from pages.ui.cache import Measured
from pages.ui.charts.axes import Mask


@dataclass(frozen=True)
class Watched(Measured):
    """One variant, its run, what was kept of its trace, and all its losses."""

    film: Film


@dataclass(frozen=True)
class Matrix:
    """A number over steps. `rows`: layer of each row, and its head where it has one; `values`, `observed`,
    `non_finite`: (N, R).
    """

    steps: NDArray[np.int64]
    rows: tuple[tuple[int, int | None], ...]
    values: F64
    observed: Mask
    non_finite: F64

    @property
    def names(self) -> list[str]:
        """What the rows are called."""
        return [str(layer) if head is None else f"{layer} · {head}" for layer, head in self.rows]

    def only(self, layers: Sequence[int]) -> Matrix:
        """Return the rows of these layers."""
        kept = [place for place, (layer, _) in enumerate(self.rows) if layer in layers]
        return Matrix(self.steps, tuple(self.rows[place] for place in kept), self.values[:, kept],
                      self.observed[:, kept], self.non_finite[:, kept])


def of_site(trace: Trace, sites: Sequence[str], statistic: str, gradient: bool) -> Matrix:
    """Return a statistic at sites that stand one after another, such as the embedding and the stream, over steps."""
    places = [(layer, row) for site in sites for layer, row in zip(*trace.layout.rows(site), strict=True)]
    rows = [row for _, row in places]
    counts = np.nansum([trace.site(name, gradient)[:, rows] for name in NON_FINITE], axis=0)
    return _matrix(trace, [(layer, None) for layer, _ in places], trace.site(statistic, gradient)[:, rows],
                   ~np.isnan(trace.site("n", gradient)[:, rows]), counts)


def of_parameter(trace: Trace, role: str, statistic: str) -> Matrix:
    """Return a statistic of the parameter that is called `role` in each layer, over steps."""
    places = [(layer, row) for row, (layer, name) in enumerate(trace.layout.parameters)
              if name == f"layers.{layer}.{role}"]
    rows = [row for _, row in places]
    values = trace.parameter(statistic)[:, rows]
    taken = np.array([statistic in snapshot.parameters for snapshot in trace.snapshots])
    seen = np.stack([snapshot.observed_parameters(statistic) for snapshot in trace.snapshots])[:, rows]
    return _matrix(trace, [(layer, None) for layer, _ in places], values, seen & taken[:, None], np.zeros(values.shape))


def of_heads(trace: Trace, measure: str) -> Matrix:
    """Return a measure of every attention head of every layer that attends, over steps."""
    values = trace.head(measure)  # (N, L, H)
    rows = [(layer, head) for layer in trace.layout.rows("q")[0] for head in range(trace.layout.n_heads)]
    found = values[:, [layer for layer, _ in rows], [head for _, head in rows]]
    taken = np.array([measure in snapshot.heads for snapshot in trace.snapshots])
    return _matrix(trace, rows, found, np.broadcast_to(taken[:, None], found.shape), np.zeros(found.shape))


def _matrix(trace: Trace, rows: Sequence[tuple[int, int | None]], values: F64, observed: Mask, counts: F64) -> Matrix:
    return Matrix(np.array(trace.steps, np.int64), tuple(rows), values, observed, counts)
