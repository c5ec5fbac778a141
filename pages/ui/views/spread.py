"""How the entries of a site are spread: quantile ribbons, and histograms by power of two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core.trace import Snapshot
from core.vocabulary import HISTOGRAM_BINS, HISTOGRAM_LOW
from pages.ui import charts, theme
from pages.ui.cache import Measured
from pages.ui.charts import facets
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.depth import Number, Shown

QUANTILES = ("q01", "q05", "q25", "q50", "q75", "q95", "q99")
AROUND_PX, ROW_PX = 220, 320
"""Heights of what stands around facets, and of a row of them."""


def quantiles(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The quantiles and true extremes of the entries at one site over depth, a facet a variant."""
    number, found = _asked(measured, shown)
    looks = depth.looks(measured)
    ribbons = [_ribbon(one, number, looks[one.name]) for one in found]
    title = depth.titled(number, depth.at(number.site, t), t, t("spread.quantiles"))
    frame = charts.Frame(title=title, statistic=number.site, y_title=t("spread.value"), y_scale=shown["scale"])
    subject = Subject((*QUANTILES, "min", "max"), (number.site,), number.gradient)
    return [Picture("quantiles", charts.ribbons(ribbons, frame, t) if found else None, frame.title, subject,
                    partial(_quantile_table, ribbons, t), AROUND_PX + ROW_PX * facets.rows(len(found)),
                    _unrecorded(measured, number, t))]


def exponents(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The share of the entries at one site in each power of two over depth, a facet a variant."""
    number, found = _asked(measured, shown)
    histograms = [_histogram(one, number) for one in found]
    title = depth.titled(number, depth.at(number.site, t), t, t("spread.exponents"))
    frame = charts.Frame(title=title, statistic=number.site, y_title="|x|")
    subject = Subject(("absmax",), (number.site,), number.gradient, ("log2_hist",))
    return [Picture("exponents", charts.exponents(histograms, frame, t) if found else None, frame.title, subject,
                    partial(_histogram_table, histograms, t), AROUND_PX + ROW_PX * facets.rows(len(found)),
                    _unrecorded(measured, number, t))]


def _asked(measured: Sequence[Measured], shown: Shown) -> tuple[Number, list[Measured]]:
    """Return what is asked for, by one statistic of the distribution, and the variants that have it."""
    number = Number("q50", shown["site"], shown["of"] == "gradient")
    return number, [one for one in measured if not depth.why_absent(one, number) and _recorded(one, number)]


def _recorded(one: Measured, number: Number) -> bool:
    """Say whether the last step was recorded in detail full."""
    return one.trace is not None and _group(number) in _snapshot(one).histograms


def _unrecorded(measured: Sequence[Measured], number: Number, t: Words) -> tuple[str, ...]:
    """Say which variants have no distribution and why."""
    absent = depth.missing(measured, number, t)
    if absent or all(_recorded(one, number) for one in measured):
        return absent
    return (t("drift.not_full"),)


def _group(number: Number) -> str:
    return "gradients" if number.gradient else "activations"


def _ribbon(one: Measured, number: Number, look: theme.Style) -> charts.Ribbon:
    layers, rows = _places(one, number)
    values = _snapshot(one).measured(number.gradient)
    return charts.Ribbon(one.name, layers, np.stack([values[name][rows] for name in QUANTILES]), values["min"][rows],
                         values["max"][rows], look, one.variant.key,
                         _snapshot(one).not_finite(number.gradient)[rows])


def _histogram(one: Measured, number: Number) -> charts.Histogram:
    layers, rows = _places(one, number)
    counts = _snapshot(one).histograms[_group(number)][rows]
    return charts.Histogram(one.name, layers, counts, _snapshot(one).measured(number.gradient)["absmax"][rows])


def _places(one: Measured, number: Number) -> tuple[NDArray[np.int64], list[int]]:
    """Return the layers that have the site, and the row of each; the stream begins with the embedding."""
    assert one.trace is not None
    found = [one.trace.layout.rows(site) for site in depth.sites_of(number)]
    return np.array([layer for layers, _ in found for layer in layers]), [row for _, rows in found for row in rows]


def _snapshot(one: Measured) -> Snapshot:
    assert one.trace is not None
    return one.trace.snapshots[-1]


def _quantile_table(ribbons: Sequence[charts.Ribbon], t: Words) -> Columns:
    """Return a row a variant and layer, a column a quantile."""
    columns: dict[str, list[object]] = {
        t("drift.variant"): [one.name for one in ribbons for _ in one.layers],
        t("chart.layer"): [layer for one in ribbons for layer in one.layers.tolist()],
        "min": [value for one in ribbons for value in one.low.tolist()]}
    for row, name in enumerate(QUANTILES):
        columns[name] = [value for one in ribbons for value in one.quantiles[row].tolist()]
    columns["max"] = [value for one in ribbons for value in one.high.tolist()]
    columns[t("chart.non_finite")] = [int(count) for one in ribbons for count in one.non_finite]
    return columns


def _histogram_table(histograms: Sequence[charts.Histogram], t: Words) -> Columns:
    """Return a row a variant, layer and bin that is not empty."""
    filled = [(one, layer, bin_) for one in histograms for layer, bin_ in np.argwhere(one.counts).tolist()]
    return {
        t("drift.variant"): [one.name for one, _, _ in filled],
        t("chart.layer"): [int(one.layers[layer]) for one, layer, _ in filled],
        "log2_hist": [HISTOGRAM_BINS[bin_] for _, _, bin_ in filled],
        t("axis.count"): [int(one.counts[layer, bin_]) for one, layer, bin_ in filled],
        t("axis.share"): [float(one.counts[layer, bin_] / one.counts[layer].sum()) for one, layer, bin_ in filled],
        "|x| ≥": [_least(bin_) for _, _, bin_ in filled],
    }


def _least(bin_: int) -> float | None:
    """Return the lower end of a bin, 0 of the first, which has none; None for those of zero and of what is not finite.
    """
    return 2.0 ** (bin_ + HISTOGRAM_LOW) * (bin_ > 0) if bin_ < len(HISTOGRAM_BINS) - 2 else None
