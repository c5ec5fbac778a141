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
from plotly.subplots import make_subplots

from pages.ui import theme
from pages.ui.charts import marks
from pages.ui.charts.axes import F64, Axis, Mask, axis_for, colors, finite_range, first_sizes
from pages.ui.charts.marks import Frame, Series, Text, nothing

COLUMNS = (1, 1, 2, 3, 2)
"""Number of facets → how many stand side by side."""

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
    figure = _facets(series, names, frame, t)
    for index, one in enumerate(series):
        row, column = _place(index, len(series))
        figure.add_traces(list(_traces(one, axis, frame, t)), rows=row, cols=column)
    figure.update_layout(marks.layout(frame, _notes(series, axis, t)))
    figure.update_layout(coloraxis=colors(axis, shown, frame.statistic, theme.HEAT_SCALE), showlegend=False,
                         hoverdistance=1, title_pad={"b": 34})
    if cursor:
        figure.update_layout(meta={"cursor": True})
    return figure if any(one.values.size for one in series) else marks.say_nothing(figure, t)


def _place(index: int, count: int) -> tuple[int, int]:
    """Return row and column of a facet, from 1."""
    return index // COLUMNS[count] + 1, index % COLUMNS[count] + 1


def _facets(series: Sequence[Strip], names: Sequence[str], frame: Frame, t: Text) -> go.Figure:
    """Return the empty facets on the same axes."""
    count = len(series)
    columns, rows = COLUMNS[count], max(1, -(-count // COLUMNS[count]))
    titles = [f"<b>{marks.literal(marks.shortened(one.name, columns))}</b>" for one in series]
    figure = make_subplots(rows, columns, shared_xaxes="all", shared_yaxes="all", subplot_titles=titles,
                           horizontal_spacing=0.02, vertical_spacing=0.14)
    kept = list(names)[:: _every(len(names), rows)]
    figure.update_yaxes(type="category", categoryarray=list(names), tickvals=kept, showgrid=False, autorange=False,
                        ticktext=[marks.literal(name) for name in kept], range=[-0.5, max(len(names), 1) - 0.5])
    figure.update_xaxes(marks.step_axis([one.steps for one in series], frame, t))
    figure.update_xaxes(showgrid=False, autorange=True, autorangeoptions=_ends(series), tickangle=0,
                        nticks=max(4, 10 // columns))
    for index in range(count):
        row, column = _place(index, count)
        below = index + columns >= count  # nothing stands under it
        if not below:
            figure.update_xaxes(showticklabels=False, title_text="", row=row, col=column)
        figure.update_yaxes(title_text=frame.y_title if column == 1 else "", row=row, col=column)
    return figure


def _every(count: int, rows: int) -> int:
    """Return that every how many-th name has room; a divisor of the count where one is near, such as heads a layer."""
    least = max(1, -(-count * rows // LABELS))
    return next((step for step in range(least, 2 * least) if count % step == 0), least)


def _ends(series: Sequence[Strip]) -> dict[str, float]:
    """Return where the first and the last cell end, lest the marks make room beside them."""
    lows = [one.steps[0] - (np.diff(one.steps[:2]).sum() or 1) / 2 for one in series if len(one.steps)]
    highs = [one.steps[-1] + (np.diff(one.steps[-2:]).sum() or 1) / 2 for one in series if len(one.steps)]
    return {"clipmin": float(min(lows)), "clipmax": float(max(highs))} if lows else {}


def _traces(one: Strip, axis: Axis, frame: Frame, t: Text) -> Iterator[go.Heatmap | go.Scatter]:
    """Yield the grey of cells without a value, the coloured cells, and the marks."""
    placed = axis.has_place(one.values) & one.seen
    rows, steps = list(one.rows), np.asarray(one.steps, np.int32)
    says = (f"<b>{marks.literal(one.name)}</b><br>{t('chart.step')} %{{x}}<br>{frame.y_title} %{{y}}<br>"
            f"{frame.statistic}")
    unit = f" {frame.unit}" if frame.unit else ""
    greys = np.select([placed | ~one.there, one.seen], [np.nan, PLACELESS], UNSEEN)
    common = {"x": steps, "y": rows, "hoverongaps": False}
    yield go.Heatmap(**common, uid=f"{one.uid}grey", z=greys.T.astype(np.float32), zmin=UNSEEN, zmax=PLACELESS,
                     colorscale=GREYS, showscale=False, text=_words(one, one.there & ~placed, t).T,
                     hovertemplate=f"{says} <b>%{{text}}</b><extra></extra>")
    levels = axis.level(np.where(placed, one.values, np.nan))
    levels = levels if axis.scale == "linear" else np.round(levels, LEVEL_DIGITS)
    yield go.Heatmap(**common, uid=f"{one.uid}cells", z=_narrow(levels.T), coloraxis="coloraxis",
                     customdata=_narrow(np.where(placed, one.values, np.nan).T),
                     text=np.where(placed & (one.counts > 0), f"<br>{t('chart.cell_in_part')}", "").T.astype(object),
                     hovertemplate=f"{says} <b>%{{customdata:.5~g}}</b>{unit}%{{text}}<extra></extra>")
    yield _marks(one, placed, says, t)


def _narrow(values: F64) -> NDArray[np.floating]:
    """Return the values in float32, half as long to send, if its range holds them."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    fits = not sizes.size or (sizes.min() >= limits.tiny and sizes.max() <= limits.max)
    return values.astype(np.float32) if fits else values


def _words(one: Strip, which: Mask, t: Text) -> NDArray[np.object_]:
    """Return what the hover says of cells without a colour, (N, R), nothing elsewhere."""
    words = np.full(one.values.shape, "", object)
    words[which] = [marks.spelled(value) if seen else t("chart.unseen")
                    for value, seen in zip(one.values[which].tolist(), one.seen[which].tolist(), strict=True)]
    return words


def _marks(one: Strip, placed: Mask, says: str, t: Text) -> go.Scatter:
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
    words = _words(one, one.there & ~placed, t)
    looks = [kinds[kind] for *_, kind in found]
    tinted = [color for *_, color in looks]
    return go.Scatter(
        x=np.array([one.steps[step] for step, *_ in found], np.int32), y=[one.rows[row] for _, row, _ in found],
        uid=f"{one.uid}gaps", mode="markers", cliponaxis=False,
        marker={"symbol": [symbol for _, symbol, _ in looks], "color": tinted, "size": 12 if len(one.rows) <= 40 else 6,
                "line": {"width": 2, "color": tinted}},
        text=[words[step, row] or t("chart.in_part", value=marks.spelled(one.values[step, row]),
                                    count=f"{one.counts[step, row]:.0f}") for step, row, _ in found],
        hovertemplate=f"{says} <b>%{{text}}</b><extra></extra>")


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
