"""What an exchanged token moves: the map of all tokens after the last layer, and the leak over depth.

It knows a look's arrays and who may change; it draws no judgement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from core.leak_verdicts import forbidden, relative
from core.look import NOTHING, Look, SampleLeak, TokenLeak, block
from core.trace import F64
from pages.ui import charts, lab, theme
from pages.ui.cache import Measured
from pages.ui.charts.leaks import COLUMNS, Exchange, Leak, Span
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth, zero
from pages.ui.views.depth import LEGEND_PX, SMALL_PX, Shown, legend_rows

ROW_PX, AROUND_PX, LEAST_PX = 26, 96, 150
BELOW_PX = 120

Found = Mapping[str, F64]


def leak(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The maps of all variants, and for each group that must not change its change over depth."""
    look = lab.exchanged(shown)
    groups = [group for group in ("earlier", "others")
              if any(group in forbidden(one.experiment, look) for one in measured)]
    return [_maps(measured, look, t), *(_over_depth(measured, look, group, t) for group in groups)]


def found(one: Measured) -> Found:
    """Return what the look of a variant's run found."""
    assert one.trace is not None
    return {name: np.asarray(values, np.float64) for name, values in one.trace.snapshots[-1].looks.items()}


def _maps(measured: Sequence[Measured], look: Look, t: Words) -> Picture:
    """Draw one map a variant; variants of another batch or length are drawn on the largest."""
    title = t("batchnorm.map_title", what=_what(look, t))
    frame = charts.Frame(title=title, statistic=t("batchnorm.change"), x_title=t("batchnorm.position"),
                         y_title=t("batchnorm.sequence"))
    one = max(measured, key=lambda each: found(each)["map"].size)
    sizes = one.experiment.input.batch, one.experiment.input.seq_len
    at = Exchange(_places(sizes[0]), _places(sizes[1]), *_spans(one, look))
    series = [_map(each, look, (len(at.rows), len(at.columns)), t) for each in measured]
    rows = -(-len(series) // COLUMNS)
    height = rows * (max(LEAST_PX, ROW_PX * len(at.rows)) + AROUND_PX) + BELOW_PX
    remarks = (t("batchnorm.blocks", rows=block(sizes[0]), columns=block(sizes[1])),) if max(
        map(block, sizes)) > 1 else ()
    return Picture("leak", charts.leaks(series, at, frame, t), title, Subject(extra=("leak_change",)),
                   partial(_map_columns, series, at, t), height, remarks)


def _what(look: Look, t: Words) -> str:
    """Say what is exchanged."""
    if isinstance(look, TokenLeak):
        return t("batchnorm.one_token", sequence=look.sequence, position=look.position)
    assert isinstance(look, SampleLeak)
    return t("batchnorm.whole_sample", sequence=look.sequence)


def _places(size: int) -> list[str]:
    """Return what the cells of a map are called along an axis of so many."""
    step = block(size)
    return [str(start) if step == 1 else f"{start}–{min(start + step, size) - 1}" for start in range(0, size, step)]


def _spans(one: Measured, look: Look) -> tuple[Span, Span | None]:
    """Return the cells of what is exchanged, and those that its change may reach."""
    assert isinstance(look, TokenLeak | SampleLeak)
    source = one.experiment.input
    row, last = look.sequence // block(source.batch), (source.seq_len - 1) // block(source.seq_len)
    if isinstance(look, SampleLeak):
        return Span(row, 0, last), None
    column = look.position // block(source.seq_len)
    first = column if one.experiment.model.causal else 0
    return Span(row, column, column), Span(row, first, last)


def _map(one: Measured, look: Look, shape: tuple[int, int], t: Words) -> Leak:
    """Return a variant's map in `shape` cells; those that it does not have do not exist."""
    own, reach = _spans(one, look)
    changes = found(one)["map"]
    values = np.full(shape, NOTHING)
    values[:changes.shape[0], :changes.shape[1]] = changes
    whose = np.full(shape, "others", object)
    whose[own.row] = "earlier"
    if reach is not None:
        whose[reach.row, reach.first:reach.last + 1] = "later" if one.experiment.model.causal else "same"
    whose[own.row, own.first:own.last + 1] = "own"
    outside = (whose == "others") | (whose == "earlier")
    exists = values != NOTHING
    texts = [[t(f"batchnorm.group_{name}") for name in row] for row in whose]
    return Leak(one.name, values, exists, exists & outside & ~(values == 0), texts)


def _map_columns(series: Sequence[Leak], at: Exchange, t: Words) -> Columns:
    """Return a row for each cell that exists in some map, a column a variant."""
    cells = np.argwhere(np.any([one.exists for one in series], axis=0))
    return {
        t("batchnorm.sequence"): [at.rows[row] for row, _ in cells],
        t("batchnorm.position"): [at.columns[column] for _, column in cells],
        t("batchnorm.group"): [series[0].texts[row][column] for row, column in cells],
        **{one.name: [float(one.values[cell]) if one.exists[cell] else None for cell in map(tuple, cells)]
           for one in series},
    }


def _over_depth(measured: Sequence[Measured], look: Look, group: str, t: Words) -> Picture:
    """Draw the largest relative change of a group over depth; 0 is a place of its own below all others."""
    lines: dict[str, charts.Series | None] = {}
    remarks: dict[str, str] = {}
    for one in measured:
        values = relative(found(one), group)
        allowed = group not in forbidden(one.experiment, look)
        nobody = bool((found(one)[group] == NOTHING).all())
        remarks[one.name] = t("batchnorm.allowed") if allowed else t("batchnorm.nobody") if nobody else ""
        lines[one.name] = None if remarks[one.name] else charts.Series(
            one.name, np.arange(len(values)), values, theme.NEUTRAL, "resid_post", one.variant.key)
    lines = depth.dressed(lines, measured)
    drawn = [line for line in lines.values() if line is not None]
    title = t("batchnorm.depth_title", who=t(f"batchnorm.group_{group}"))
    frame = charts.Frame(title=title, statistic=t("batchnorm.relative"), y_title=t("batchnorm.relative_axis"),
                         x_title=t("drift.depth"))
    figure = zero.drawn(partial(charts.profile, drawn), [one.values for one in drawn], frame, t) if drawn else None
    height = SMALL_PX + LEGEND_PX * (legend_rows([one.name for one in drawn]) - 1)
    return Picture(f"leak_{group}", figure, title, Subject(extra=("leak_relative",)), partial(depth.table, lines, t),
                   height, depth.said_once(remarks, t))
