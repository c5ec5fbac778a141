"""How the queries of a head differ, which a mean over them hides: a box a head of one layer, and a band over depth.

It knows how heads are arranged; the engine took the quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from core.trace import F64, Snapshot
from core.vocabulary import ENTROPY_QUANTILES
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.charts import facets
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views import attention, depth
from pages.ui.views.depth import Shown
from pages.ui.views.tokens import focus, layer_of

MEAN = "entropy_norm"
NUMBERS = (*ENTROPY_QUANTILES, MEAN)

MOST_HEADS = 12
"""So many heads have a facet each; more are cells of one map."""

AROUND_PX, ROW_PX, BOXES_PX = 190, 235, 430
"""Heights of what stands around facets, of a row of them, and of the boxes."""


def queries(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The spread over the queries of every head of one variant: of one layer as boxes, of several over depth."""
    one, snapshot = focus(measured, shown)
    rows = attention.attending(one)
    missing = attention.absent(one, tuple(ENTROPY_QUANTILES), t)
    return [_of_layer(one, snapshot, layer_of(shown, snapshot.layout.n_layers), t, missing),
            *([] if missing or len(rows) < 2 else [_over_depth(one, snapshot, rows, t)])]


def _of_layer(one: Measured, snapshot: Snapshot, layer: int, t: Words, missing: tuple[str, ...]) -> Picture:
    title = t("entropy.queries_title", layer=layer, variant=one.name)
    subject = Subject(extra=NUMBERS)
    if missing:
        return Picture("queries", None, title, subject, dict, remarks=missing, variant=one.name)
    found = {name: snapshot.heads[name][layer] for name in NUMBERS}
    frame = charts.Frame(title=title, statistic=MEAN, y_title=t(f"head.{MEAN}"), y_scale="linear",
                         x_title=t("entropy.head"))
    table = charts.Boxes(f"{one.name} · {t('chart.layer')} {layer}", _quantiles(found), found[MEAN],
                         depth.looks([one])[one.name], one.variant.key)
    return Picture("queries", charts.boxes(table, frame, t), title, subject,
                   partial(attention.table, [layer], {name: values[None] for name, values in found.items()}, t),
                   BOXES_PX, variant=one.name)


def _over_depth(one: Measured, snapshot: Snapshot, rows: Sequence[int], t: Words) -> Picture:
    """Return the median with its bands over depth, a facet a head; of many heads the median as a map."""
    found = {name: snapshot.heads[name][list(rows)] for name in ENTROPY_QUANTILES}  # (R, H) each
    heads = snapshot.layout.n_heads
    few = heads <= MOST_HEADS
    title = t("entropy.queries_depth_title", variant=one.name)
    frame = charts.Frame(title=title, statistic=MEAN if few else "entropy_norm_p50", y_scale="linear",
                         y_title=t(f"head.{MEAN}" if few else "entropy.head"), x_title=t("chart.layer"))
    figure = (charts.ribbons(_ribbons(one, rows, _quantiles(found), t), frame, t, first=0, ends=charts.SHARES)
              if few else charts.grid(_cells(one, rows, _quantiles(found), t), frame, t))
    height = AROUND_PX + ROW_PX * facets.rows(heads) if few else attention.height(heads)
    return Picture("queries.depth", figure, title, Subject(extra=tuple(ENTROPY_QUANTILES)),
                   partial(attention.table, rows, found, t), height, variant=one.name)


def _quantiles(found: dict[str, F64]) -> F64:
    """Return the quantiles of each head, (5, …)."""
    return np.stack([found[name] for name in ENTROPY_QUANTILES])


def _ribbons(one: Measured, rows: Sequence[int], quantiles: F64, t: Words) -> list[charts.Ribbon]:
    look, layers = depth.looks([one])[one.name], np.array(rows, np.int64)
    return [charts.Ribbon(f"{t('entropy.head')} {head}", layers, quantiles[:, :, head], style=look,
                          key=f"{one.variant.key}.{head}", bands=charts.HEAD_BANDS)
            for head in range(quantiles.shape[2])]


def _cells(one: Measured, rows: Sequence[int], quantiles: F64, t: Words) -> charts.Grid:
    """Return the medians, (H, R), and the other quantiles as what the hover says."""
    medians = quantiles[len(quantiles) // 2].T
    hovers = [[_says(row, head, quantiles[:, place, head], t) for place, row in enumerate(rows)]
              for head in range(len(medians))]
    whole = np.ones(medians.shape, bool)
    return charts.Grid([str(row) for row in rows], [str(head) for head in range(len(medians))], medians, whole, whole,
                       hovers=hovers, name=one.name)


def _says(layer: int, head: int, quantiles: F64, t: Words) -> str:
    spans = "<br>".join(f"{name}: {quantiles[lower]:.3f} … {quantiles[upper]:.3f}"
                        for name, lower, upper, _ in charts.HEAD_BANDS)
    return f"{t('chart.layer')} {layer} · {t('entropy.head')} {head}<br>{spans}"
