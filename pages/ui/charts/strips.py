"""Depth over training: a map of cells for each variant, rows over steps, one colour scale for all.

Rows are layers (the embedding at the bottom), heads of layers, anything that has a name. A cell without a value is
grey and never a colour of the scale: a triangle where such cells begin in a row says what is not finite, a dash what
was not observed; what does not exist is empty. Made to grow: a step more adds a column, every trace keeps its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, Axis, Mask, axis_for, colors, finite_range, first_sizes, narrow
from pages.ui.charts.marks import Frame, Part, Series, Text, nothing

COLUMNS = (1, 1, 2, 3, 2)
"""Number of facets → how many stand side by side."""

BESIDE, ABOVE = 0.04, 0.14
"""Room between facets side by side, and above each other, as a share of the drawing."""

LABELS = 14
"""Room for labels along the rows, in all facets above each other."""

LEVEL_DIGITS = 4
"""Decimals of a place on the colour scale: finer than an eye, and short to send."""

UNSEEN, PLACELESS = 0.0, 1.0
GREYS = [[0.0, "rgba(125,135,148,0.22)"], [0.5, "rgba(125,135,148,0.22)"], [0.5, theme.OTHER_COLOR],
         [1.0, theme.OTHER_COLOR]]
"""The grey of what was not observed, and of what has no place on the scale."""


@dataclass(frozen=True)
class Strip:
    """One variant. `steps`: (N,), ascending; `rows`: names, the lowest first; `values`: (N, R), NaN and ±Inf allowed.

    `observed`: (N, R), None for everywhere; `non_finite`: (N, R), entries that were not finite, None for nowhere; the
    value is then over the rest. `exists`: (R,), None for all; `key` (default: name): the same in all languages.
    """

    name: str
    steps: NDArray[np.integer]
    rows: Sequence[str]
    values: F64
    observed: Mask | None = None
    non_finite: F64 | None = None
    exists: Mask | None = None
    key: str = ""

    @property
    def there(self) -> Mask:
        """Which cells exist, (N, R)."""
        return np.broadcast_to(True if self.exists is None else self.exists, self.values.shape)

    @property
    def seen(self) -> Mask:
        """Which cells should have a value, (N, R)."""
        return self.there if self.observed is None else self.there & self.observed

    @property
    def unseen(self) -> Mask:
        """Which cells exist and were not observed, (N, R)."""
        return self.there & ~self.seen

    @property
    def counts(self) -> F64:
        """Entries that were not finite, (N, R)."""
        return np.zeros(self.values.shape) if self.non_finite is None else self.non_finite

    @property
    def uid(self) -> str:
        """What stays when numbers and language change."""
        return marks.uid(Series(self.name, np.empty(0, np.int32), nothing(), key=self.key))

    def on(self, rows: Sequence[str]) -> Strip:
        """Return the same on other rows; those that it does not have do not exist there."""
        place = {name: number for number, name in enumerate(self.rows)}
        taken = np.array([place.get(name, -1) for name in rows], int)
        known = taken >= 0

        def moved(table: NDArray[Any], missing: object) -> NDArray[Any]:
            made = np.full((len(self.steps), len(rows)), missing, table.dtype)
            made[:, known] = table[:, taken[known]]
            return made

        return replace(self, rows=rows, values=moved(self.values, np.nan), observed=moved(self.seen, False),
                       non_finite=moved(self.counts, 0), exists=known & moved(self.there, True).all(0))


def strips(series: Sequence[Strip], frame: Frame, t: Text, cursor: bool = False) -> go.Figure:
    """Draw a facet for each variant. `y_title` names the rows, `statistic` the colours; `cursor`: as in `steps`.

    Errors: ValueError for an unknown scale or more than four variants.
    """
    if len(series) >= len(COLUMNS):
        most = len(COLUMNS) - 1
        raise ValueError(f"maps over steps are at most {most}, these are {len(series)}: draw fewer variants")
    names = list(dict.fromkeys(name for one in sorted(series, key=lambda one: -len(one.rows)) for name in one.rows))
    series = [one.on(names) for one in series]
    values = np.concatenate([nothing(), *(one.values[one.seen] for one in series)])
    axis = axis_for(frame.y_scale, values, first_sizes([np.where(one.seen, one.values, np.nan) for one in series]))
    shown = finite_range(values, frame.y_scale)
    anything = any(one.values.size for one in series)
    traces = [trace | axes for index, one in enumerate(series) for axes in [_axes_of(index)]
              for trace in _traces(one, axis, frame, t)]
    notes = _notes(series, axis, t)
    return go.Figure(traces, marks.layout(frame, notes) | _facets(series, names, frame, t) | {
        "title": marks.title(frame, notes) | {"pad": {"b": 34}}, "showlegend": False, "hoverdistance": 1,
        "coloraxis": colors(axis, shown, frame.statistic, theme.HEAT_SCALE),
        "annotations": [*_titles(series), *([] if anything else [marks.nothing_said(t)])],
        "meta": {"cursor": True} if cursor else None})


def _axes_of(index: int) -> Part:
    """Return the names that Plotly gives the axes of a facet, for its traces."""
    return {"xaxis": f"x{_number(index)}", "yaxis": f"y{_number(index)}"}


def _number(index: int) -> str:
    return str(index + 1) if index else ""


def _domains(index: int, count: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return from where to where a facet reaches, along the drawing's width and its height, 0 … 1."""
    columns = COLUMNS[count]
    row, column, rows = index // columns, index % columns, max(1, -(-count // columns))
    wide, high = (1 - BESIDE * (columns - 1)) / columns, (1 - ABOVE * (rows - 1)) / rows
    left, top = column * (wide + BESIDE), 1 - row * (high + ABOVE)
    return (left, left + wide), (max(top - high, 0.0), top)


def _titles(series: Sequence[Strip]) -> list[Part]:
    """Return what stands above each facet."""
    found = []
    for index, one in enumerate(series):
        (left, right), (_, top) = _domains(index, len(series))
        name = marks.literal(marks.shortened(one.name, COLUMNS[len(series)]))
        found.append({"text": f"<b>{name}</b>", "x": (left + right) / 2, "y": top, "xref": "paper", "yref": "paper",
                      "xanchor": "center", "yanchor": "bottom", "showarrow": False, "font": {"size": theme.TEXT_PX}})
    return found


def _facets(series: Sequence[Strip], names: Sequence[str], frame: Frame, t: Text) -> Part:
    """Return the axes of all facets; all are those of the one at the lower left, so that a zoom moves them together."""
    count = len(series)
    columns = COLUMNS[count]
    rows = max(1, -(-count // columns))
    kept = list(names)[:: _every(len(names), rows)]
    of_steps = marks.step_axis([one.steps for one in series], frame, t) | {
        "showgrid": False, "autorange": True, "autorangeoptions": _ends(series), "tickangle": 0,
        "nticks": max(4, 10 // columns)}
    of_rows = {"type": "category", "categoryarray": list(names), "tickvals": kept, "showgrid": False,
               "ticktext": [marks.literal(name) for name in kept], "autorange": False,
               "range": [-0.5, max(len(names), 1) - 0.5], "title": {"text": frame.y_title}}
    first = (rows - 1) * columns
    found = {}
    for index in range(max(count, 1)):
        across, up = _domains(index, count)
        x, y = ({"matches": name} if index != first else {} for name in _axes_of(first).values())
        above = {"showticklabels": False, "title": {"text": ""}} if index + columns < count else {}
        beside = {"showticklabels": False, "title": {"text": ""}} if index % columns else {}
        found[f"xaxis{_number(index)}"] = of_steps | {"anchor": f"y{_number(index)}", "domain": across} | x | above
        found[f"yaxis{_number(index)}"] = of_rows | {"anchor": f"x{_number(index)}", "domain": up} | y | beside
    return found


def _every(count: int, rows: int) -> int:
    """Return that every how many-th name has room; a divisor of the count where one is near, such as heads a layer."""
    least = max(1, -(-count * rows // LABELS))
    return next((step for step in range(least, 2 * least) if count % step == 0), least)


def _ends(series: Sequence[Strip]) -> dict[str, float]:
    """Return where the first and the last cell end, lest the marks make room beside them."""
    lows = [one.steps[0] - (np.diff(one.steps[:2]).sum() or 1) / 2 for one in series if len(one.steps)]
    highs = [one.steps[-1] + (np.diff(one.steps[-2:]).sum() or 1) / 2 for one in series if len(one.steps)]
    return {"clipmin": float(min(lows)), "clipmax": float(max(highs))} if lows else {}


def _traces(one: Strip, axis: Axis, frame: Frame, t: Text) -> Iterator[Part]:
    """Yield the grey of cells without a value, the coloured cells, and the marks.

    What is nowhere but in the first columns is given for those only: most trainings have no cell without a value.
    """
    placed = axis.has_place(one.values) & one.seen
    rows, steps = list(one.rows), np.asarray(one.steps, np.int32)
    says = (f"<b>{marks.literal(one.name)}</b><br>{t('chart.step')} %{{x}}<br>{frame.y_title} %{{y}}<br>"
            f"{frame.statistic}")
    unit = f" {frame.unit}" if frame.unit else ""
    gone, parts = one.there & ~placed, placed & (one.counts > 0)
    words = _words(one, gone, t)
    greys = np.select([~gone, one.seen], [np.nan, PLACELESS], UNSEEN)[: _used(gone)]
    common = {"type": "heatmap", "y": rows, "hoverongaps": False}
    yield common | {"uid": f"{one.uid}grey", "x": steps[: len(greys)], "z": greys.T.astype(np.float32), "zmin": UNSEEN,
                    "zmax": PLACELESS, "colorscale": GREYS, "showscale": False, "text": words[: len(greys)].T,
                    "hovertemplate": f"{says} <b>%{{text}}</b><extra></extra>"}
    levels = axis.level(np.where(placed, one.values, np.nan))
    same = axis.scale == "linear"  # the place on the colour scale is the value itself
    in_part = np.where(parts, f"<br>{t('chart.cell_in_part')}", "")[: _used(parts)]
    value = "z" if same else "customdata"
    yield common | {"uid": f"{one.uid}cells", "x": steps, "coloraxis": "coloraxis",
                    "z": narrow((levels if same else np.round(levels, LEVEL_DIGITS)).T),
                    "customdata": None if same else narrow(np.where(placed, one.values, np.nan).T),
                    "text": in_part.T.astype(object), "hovertemplatefallback": "",  # of cells beyond the texts
                    "hovertemplate": f"{says} <b>%{{{value}:.5~g}}</b>{unit}%{{text}}<extra></extra>"}
    yield _marks(one, placed, words, says, t)


def _used(where: Mask) -> int:
    """Return how many steps hold all of `where`, and one more, or Plotly would end the last cell elsewhere."""
    steps = np.flatnonzero(where.any(axis=1))
    return min(int(steps[-1]) + 2, len(where)) if steps.size else 0


def _words(one: Strip, which: Mask, t: Text) -> NDArray[np.object_]:
    """Return what the hover says of cells without a colour, (N, R), nothing elsewhere."""
    words = np.full(one.values.shape, "", object)
    words[which & ~one.seen] = t("chart.unseen")
    gone = which & one.seen
    values, places = np.unique(one.values[gone], return_inverse=True)  # all NaN are one
    words[gone] = np.array([marks.spelled(value) for value in values.tolist()], object)[places]
    return words


def _marks(one: Strip, placed: Mask, words: NDArray[np.object_], says: str, t: Text) -> Part:
    """Mark where in a row cells of a kind begin: a mark on each of thousands would be none."""
    broken = one.seen & ~np.isfinite(one.values)
    kinds = (
        (broken, "triangle-up", theme.WARNING_COLOR),
        (one.seen & ~placed & ~broken, "triangle-down", theme.WARNING_COLOR),
        (placed & (one.counts > 0), "triangle-up-open", theme.WARNING_COLOR),
        (one.unseen, "line-ew-open", theme.OTHER_COLOR),
    )
    found = sorted((int(step), int(row), kind) for kind, (where, *_) in enumerate(kinds)
                   for step, row in np.argwhere(_begins(where)))
    looks = [kinds[kind] for *_, kind in found]
    tinted = [color for *_, color in looks]
    return {
        "type": "scatter", "x": np.array([one.steps[step] for step, *_ in found], np.int32),
        "y": [one.rows[row] for _, row, _ in found], "uid": f"{one.uid}gaps", "mode": "markers", "cliponaxis": False,
        "marker": {"symbol": [symbol for _, symbol, _ in looks], "color": tinted,
                   "size": 12 if len(one.rows) <= 40 else 6, "line": {"width": 2, "color": tinted}},
        "text": [words[step, row] or t("chart.in_part", value=marks.spelled(one.values[step, row]),
                                       count=f"{one.counts[step, row]:.0f}") for step, row, _ in found],
        "hovertemplate": f"{says} <b>%{{text}}</b><extra></extra>"}


def _begins(where: Mask) -> Mask:
    """Return the cells of `where` that have none of it just before, (N, R)."""
    before = np.zeros_like(where)
    before[1:] = where[:-1]
    found: Mask = where & ~before
    return found


def _notes(series: Sequence[Strip], axis: Axis, t: Text) -> str:
    gone = [one.values[one.seen & ~axis.has_place(one.values)] for one in series]
    parts = sum(int((one.seen & axis.has_place(one.values) & (one.counts > 0)).sum()) for one in series)
    unseen = sum(int(one.unseen.sum()) for one in series)
    said = [marks.cell_notes(np.concatenate([nothing(), *gone]), t),
            t("chart.cells_parts", count=parts) if parts else "",
            t("chart.cells_unseen", count=unseen) if unseen else ""]
    return " · ".join(part for part in said if part)
