"""Single tokens of one variant: massive activations, the text marked by per-token norm, and tokens over depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from core import massive, token_table
from core.massive import Massive
from core.trace import Snapshot
from core.vocabulary import EMBED, STREAM, TOKENS_KEPT
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views.depth import Shown

LISTED = 16
"""Massive activations that the chart has a row for; the table has all."""

LINE = 64
"""Tokens of a text in one line."""

LAYER_PX, DEPTH_PX = 22, 500
"""Height of a layer where it is a row, and of all of them at most."""

ROW_PX, AROUND_PX = 30, 190
"""Height of a row of cells, and of what stands around them."""


def outliers(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The massive activations of one variant: which token and feature, through which layers."""
    one, snapshot = focus(measured, shown)
    rows = massive.massive(snapshot, one.experiment.input.source)
    title = t("tokens.outliers_title", variant=one.name)
    subject = Subject(sites=(snapshot.layout.answering(STREAM),), extra=("outliers",))
    frame = charts.Frame(title=title, statistic=t("tokens.ratio"), y_title=t("tokens.token_dim"), y_scale="log",
                         x_title=t("drift.depth"))
    persisting = [row for row in rows if row.layers][:LISTED]
    figure = None
    if persisting:
        figure = charts.grid(replace(_persistence(persisting, snapshot, t), name=one.name), frame, t)
    remark = "" if persisting else "tokens.gone" if rows else _why_no_outliers(snapshot)
    height = AROUND_PX + ROW_PX * max(len(persisting), 4)
    return [Picture("outliers", figure, title, subject, partial(massive.columns, rows), height,
                    (t(remark),) if remark else (), variant=one.name)]


def _why_no_outliers(snapshot: Snapshot) -> str:
    if not massive.observed(snapshot):
        return "drift.not_full"
    return "tokens.no_outliers" if np.isfinite(snapshot.token_rms).any() else "chart.nothing"


def text(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The tokens as they are read, coloured by their RMS after one layer; and all layers, position by position."""
    one, snapshot = focus(measured, shown)
    width, stream = one.experiment.model.d_model, snapshot.layout.answering(STREAM)
    if not snapshot.token_rms.size:
        subject = Subject(sites=(stream,), extra=("token_rms",), axes="D", entries=width)
        return [Picture("text", None, "", subject, dict, remarks=(t("drift.not_full"),), variant=one.name)]
    layer = layer_of(shown, snapshot.layout.n_layers)
    names = token_table.symbols(snapshot, one.experiment.input.source)
    columns = partial(token_table.columns, snapshot, one.experiment.input.source)
    cut = snapshot.batch_shape[0] * snapshot.batch_shape[1] > TOKENS_KEPT
    remarks = (t("tokens.cut", kept=TOKENS_KEPT),) if cut else ()
    subject = Subject(sites=("embed",) if layer == EMBED else (stream,), extra=("token_rms",), axes="D",
                      entries=width)
    where = t("chart.embed") if layer == EMBED else f"{t('chart.layer')} {layer}"
    frame = charts.Frame(title=t("tokens.text_title", variant=one.name, where=where), statistic=t("tokens.rms"),
                         y_title=t("tokens.line"), y_scale=shown["scale"], x_title=t("tokens.in_line"))
    lines = replace(_lines(snapshot, layer, names, t), name=f"{one.name} · {where}")
    depths = charts.Frame(title=t("tokens.depth_title", variant=one.name), statistic=t("tokens.rms"),
                          y_title=t("chart.layer"), y_scale=shown["scale"], x_title=t("tokens.position"))
    return [
        Picture("text", charts.grid(lines, frame, t), frame.title, subject, columns,
                AROUND_PX + ROW_PX * max(len(lines.rows), 4), remarks, variant=one.name),
        Picture("tokens", charts.grid(replace(_depths(snapshot, names, t), name=one.name), depths, t), depths.title,
                replace(subject, sites=("embed", stream)), columns,
                AROUND_PX + min(LAYER_PX * (snapshot.layout.n_layers + 1), DEPTH_PX), variant=one.name),
    ]


M = TypeVar("M", bound=Measured)


def chosen(measured: Sequence[M], shown: Shown) -> M:
    """Return the one variant that a view of single variants looks at."""
    return measured[min(int(shown["who"]), len(measured) - 1)]


def focus(measured: Sequence[Measured], shown: Shown) -> tuple[Measured, Snapshot]:
    """Return the one variant that a view of single variants looks at, and its last snapshot."""
    one = chosen(measured, shown)
    assert one.trace is not None
    return one, one.trace.snapshots[-1]


def layer_of(shown: Shown, n_layers: int) -> int:
    """Return the layer that is looked at: −1 for the embedding, the last one for a layer that this stack lacks."""
    return n_layers - 1 if shown["layer"] == "last" else min(int(shown["layer"]), n_layers - 1)


def _persistence(rows: Sequence[Massive], snapshot: Snapshot, t: Words) -> charts.Grid:
    """Return ratios |x|/median|x| of the embedding and of the stream after each layer, a row a (token, feature)."""
    sites = ("embed", snapshot.layout.answering(STREAM))
    found = {(one.token, one.dim, one.layer): one for one in snapshot.outliers if one.site in sites}
    layers = range(EMBED, snapshot.layout.n_layers)
    cells = [[found.get((row.token, row.dim, layer)) for layer in layers] for row in rows]
    values = np.array([[np.nan if cell is None else cell.ratio for cell in line] for line in cells])
    names = [_entry(row, t) for row in rows]
    hovers = [["" if cell is None else f"{charts.literal(name)}<br>{t('chart.layer')} {cell.layer} · {cell.site}<br>"
               f"x = {cell.value:.5g}" for cell in line] for name, line in zip(names, cells, strict=True)]
    columns = [t("chart.embed_short"), *map(str, layers[1:])]
    return charts.Grid(columns, names, values, np.isfinite(values), np.isfinite(values), hovers=hovers)


def _entry(row: Massive, t: Words) -> str:
    """Name a feature of a token: as it is written, where it has a symbol, and where it stands."""
    symbol = f"{row.symbol} · " if row.symbol else ""
    return symbol + t("tokens.entry", sequence=row.sequence, position=row.position, dim=row.dim)


def _lines(snapshot: Snapshot, layer: int, names: Sequence[str], t: Words) -> charts.Grid:
    """Return the kept tokens in lines of LINE, each sequence beginning a new one."""
    sizes = snapshot.token_rms[layer + 1]
    places = _wrapped(snapshot, len(sizes))
    exists = (places >= 0) & ~token_table.padding(snapshot)[places]
    values = np.where(exists, sizes[places], np.nan).astype(np.float64)
    rows = [t("tokens.line_name", sequence=sequence, position=position) for sequence, position in (
        token_table.place(snapshot, place) for place in places[:, 0].tolist())]
    cells = [[charts.literal(_letter(names[place])) if there else "" for place, there in zip(row, seen, strict=True)]
             for row, seen in zip(places.tolist(), exists.tolist(), strict=True)] if names else None
    return charts.Grid([str(column) for column in range(places.shape[1])], rows, values, exists, exists, texts=cells,
                       hovers=[[_token(snapshot, place, names, t) for place in row] for row in places.tolist()])


def _wrapped(snapshot: Snapshot, kept: int) -> NDArray[np.int64]:
    """Return the positions of the flattened batch in lines, −1 where a line ends early."""
    length = max(snapshot.batch_shape[1], 1)
    starts = [start for first in range(0, kept, length) for start in range(first, min(first + length, kept), LINE)]
    width = min(LINE, length)
    rows = [np.arange(start, start + width) for start in starts]
    ends = [min(start - start % length + length, kept) for start in starts]
    return np.stack([np.where(row < end, row, -1) for row, end in zip(rows, ends, strict=True)])


def _letter(name: str) -> str:
    """Return what stands in a cell: of a character of several bytes the first has it, the rest have nothing."""
    head, byte = name[:-1], name[-1:]
    return name if len(name) < 2 or byte not in "₁₂₃₄" else head if byte == "₁" else ""


def _token(snapshot: Snapshot, place: int, names: Sequence[str], t: Words) -> str:
    """Say which token stands at a position of the flattened batch, and where that is."""
    sequence, position = token_table.place(snapshot, max(place, 0))
    symbol = f"<b>{charts.literal(names[place])}</b> · " if names else ""
    return symbol + t("tokens.where", sequence=sequence, position=position)


def _depths(snapshot: Snapshot, names: Sequence[str], t: Words) -> charts.Grid:
    """Return the RMS of the first sequence's tokens, position by position, the embedding and then layer by layer."""
    kept = min(max(snapshot.batch_shape[1], 1), snapshot.token_rms.shape[1])
    values = snapshot.token_rms[:, :kept].astype(np.float64)
    exists = np.broadcast_to(~token_table.padding(snapshot)[:kept], values.shape)
    columns = [f"{place} {_letter(names[place])}" if names else str(place) for place in range(kept)]
    return charts.Grid(columns, [t("chart.embed"), *map(str, range(snapshot.layout.n_layers))], values, exists, exists)
