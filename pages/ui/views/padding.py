"""What padding does to the same real tokens: the first norm's output and the batch's statistics, over its share.

It knows a look's arrays; it draws no judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from core.look import PADDED
from core.trace import F64
from pages.ui import charts, theme
from pages.ui.cache import Measured
from pages.ui.charts import Curve, Drawing
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.companions import key_of, widened
from pages.ui.views.depth import Shown
from pages.ui.views.leak import found

HEIGHT_PX, SMALL_PX = 860, 600

NUMBERS = ("norm", "mean_shift", "padded_variance")
"""What is drawn over the share, as `core.companions.Padding` names it."""


def padding(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The first norm over the share of padding, and the statistics of all layers at the chosen share."""
    place = nearest(shown)
    return [_over_share(measured, place, t), _over_depth(measured, place, t)]


def nearest(shown: Shown) -> int:
    """Return which of the shares that were played the chosen one is."""
    return min(range(len(PADDED)), key=lambda place: abs(PADDED[place] - int(shown["share"]) / 100))


def _over_share(measured: Sequence[Measured], place: int, t: Words) -> Picture:
    title = t("batchnorm.padding_title")
    frame = charts.Frame(title=title, statistic="", y_title="", y_scale="linear", x_title=t("batchnorm.share_axis"))
    figure = charts.curves([Drawing(_curves(measured, name), t(f"batchnorm.{name}_axis"), t(f"batchnorm.{name}_short"))
                            for name in NUMBERS], frame, t)
    at = 100 * float(found(measured[0])["shares"][place])
    figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"dash": "2px,4px", "width": 2})
    without = {one.name: t("batchnorm.no_norm") if np.isnan(found(one)["norm"]).all() else "" for one in measured}
    return Picture("padding", figure, title, Subject(extra=("padding_shift", "mean_shift", "padded_variance")),
                   partial(_share_columns, measured, t), HEIGHT_PX, depth.said_once(without, t))


def _curves(measured: Sequence[Measured], name: str) -> list[Curve]:
    """Return a line a variant that has the number in its first layer."""
    styles = looks(measured)
    lines = [(one, _first_layer(found(one)[name])) for one in measured]
    there = [(one, values) for one, values in lines if np.isfinite(values).any()]
    return [Curve(charts.literal(one.name), 100 * found(one)["shares"], values, styles[one.name], key_of(one),
                  width=widened(place, len(there))) for place, (one, values) in enumerate(there)]


def looks(measured: Sequence[Measured]) -> dict[str, theme.Style]:
    """Return how each variant looks: batchnorm that counts padding is dashed, for it shares its norm with the other."""
    models = [one.experiment.model for one in measured]
    styles = [replace(theme.style(model.norm), dash="12px,6px" if model.bn_padding == "pooled" else "solid")
              for model in models]
    return dict(zip([one.name for one in measured], theme.distinct(styles), strict=True))


def _first_layer(values: F64) -> F64:
    return values if values.ndim == 1 else values[:, 0]


def _over_depth(measured: Sequence[Measured], place: int, t: Words) -> Picture:
    """Draw the shifts of the statistics at one share, over depth."""
    styles, drawings = looks(measured), []
    having = [one for one in measured if np.isfinite(found(one)[NUMBERS[-1]]).any()]
    for name in NUMBERS[1:]:
        lines = [(one, found(one)[name][place]) for one in having]
        drawings.append(Drawing([
            Curve(charts.literal(one.name), np.arange(float(len(values))), values, styles[one.name], key_of(one),
                  width=widened(number, len(lines))) for number, (one, values) in enumerate(lines)],
            t(f"batchnorm.{name}_axis"), t(f"batchnorm.{name}_short")))
    title = t("batchnorm.statistics_title", share=f"{100 * float(found(measured[0])['shares'][place]):.0f}")
    frame = charts.Frame(title=title, statistic="", y_title="", y_scale="linear", x_title=t("drift.depth"))
    reasons = {one.name: "" if one in having else t("batchnorm.no_batchnorm") for one in measured}
    return Picture("padding_depth", charts.curves(drawings, frame, t) if having else None, title,
                   Subject(extra=NUMBERS[1:]), partial(_depth_columns, having, place, t), SMALL_PX,
                   depth.said_once(reasons, t))


def _depth_columns(having: Sequence[Measured], place: int, t: Words) -> Columns:
    """Return a row for each variant and layer."""
    rows = [(one, layer) for one in having for layer in range(one.experiment.model.n_layers)]
    return {t("drift.variant"): [one.name for one, _ in rows], t("chart.layer"): [layer for _, layer in rows],
            **{t(f"batchnorm.{name}_short"): [float(found(one)[name][place, layer]) for one, layer in rows]
               for name in NUMBERS[1:]}}


def _share_columns(measured: Sequence[Measured], t: Words) -> Columns:
    """Return a row for each variant and share."""
    rows = [(found(one), one.name, place) for one in measured for place in range(len(PADDED))]
    numbers = {t(f"batchnorm.{name}_axis"): [float(_first_layer(known[name])[place]) for known, _, place in rows]
               for name in NUMBERS}
    return {t("drift.variant"): [who for _, who, _ in rows],
            t("batchnorm.share_axis"): [100 * float(known["shares"][place]) for known, _, place in rows], **numbers,
            t("batchnorm.stream_axis"): [float(known["streams"][place, -1]) for known, _, place in rows]}
