"""What a sequence's numbers owe to its batch: batches of all sizes, down to a single token, which batchnorm refuses.

It knows a look's arrays; it draws no judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from core.batch_verdicts import trains_on_batches
from core.experiment import Experiment
from core.fields import ExperimentError
from core.trace import F64
from pages.ui import charts, explain, theme
from pages.ui.cache import Measured
from pages.ui.charts import Curve, Drawing, marks
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.depth import Shown
from pages.ui.views.leak import found

HEIGHT_PX = 860
REFUSED = "refused"
"""What the keys of marks end in that say that a batch was refused."""

BOUND = theme.Style(theme.OTHER_COLOR, "4px,4px")


def companions(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """How far the first sequence moves, in the stream and at the first norm, and the largest entry, over batch size."""
    title = t("batchnorm.batch_title", tokens=measured[0].experiment.input.seq_len)
    frame = charts.Frame(title=title, statistic="", y_title="", y_scale="linear", x_title=t("batchnorm.batch_size"))
    drawings = [
        Drawing(_curves(measured, [found(one)["streams"][:, -1] for one in measured], t("batchnorm.refused")),
                t("batchnorm.stream_axis"), t("batchnorm.distance")),
        Drawing(_curves(measured, [found(one)["norm"] for one in measured]), t("batchnorm.norm_axis"),
                t("batchnorm.distance")),
        Drawing([*_curves(measured, [found(one)["norm_largest"] for one in measured]), *_bound(measured, t)],
                t("batchnorm.largest_axis"), t("batchnorm.largest")),
    ]
    figure = charts.curves(drawings, frame, t, log=True)
    figure.for_each_trace(  # where a refused batch stands is no number
        lambda trace: trace.update(hovertemplate="<b>%{fullData.name}</b><extra></extra>"),
        selector=lambda trace: REFUSED in trace.uid)
    sizes = found(measured[0])["sizes"]
    ends = np.log10([sizes[0] / 1.25, sizes[-1] * 1.08]).tolist()
    figure.update_layout(xaxis={"tickvals": sizes, "ticktext": [f"{size:g}" for size in sizes], "range": ends})
    without = {one.name: t("batchnorm.no_norm") if np.isnan(found(one)["norm"]).all() else "" for one in measured}
    return [Picture("companions", figure, title, Subject(extra=("companion_distance", "norm_largest")),
                    partial(_columns, measured, t), HEIGHT_PX, depth.said_once(without, t))]


def _curves(measured: Sequence[Measured], values: Sequence[F64], refused: str = "") -> list[Curve]:
    """Return a line a variant; where a batch was refused stands a mark that says so, at the edge and not at 0."""
    styles = depth.looks(measured)
    sizes = found(measured[0])["sizes"]
    there = [(one, each) for one, each in zip(measured, values, strict=True) if np.isfinite(each).any()]
    lines = [Curve(charts.literal(one.name), sizes, each, styles[one.name], key_of(one),
                   width=widened(place, len(there)))
             for place, (one, each) in enumerate(there)]
    top = max((float(np.nanmax(one.y)) for one in lines), default=1.0)
    crosses = [Curve(f"{charts.literal(one.name)} · {refused}", sizes[:1], np.array([top]),
                     theme.Style(styles[one.name].color, symbol="x"), f"{key_of(one)}{REFUSED}", label=refused)
               for one, each in zip(measured, values, strict=True) if refused and np.isnan(each[0])]
    return [*lines, *crosses]


def key_of(one: Measured) -> str:
    """Return what a variant's curves are called in a figure, in letters and digits."""
    return marks.uid(charts.Series(one.name, np.empty(0, np.int64), np.empty(0), key=one.variant.key))


def widened(place: int, count: int) -> int:
    """Return the width of the `place`-th of so many lines: wider than those drawn over it, so that it shows below."""
    return 3 + 3 * min(count - 1 - place, 3)


def _bound(measured: Sequence[Measured], t: Words) -> list[Curve]:
    """Return √(N − 1), N tokens in all, which no entry of a batchnorm without γ exceeds: (x − μ)² ≤ (N − 1)·σ²."""
    sizes, length = found(measured[0])["sizes"], measured[0].experiment.input.seq_len
    if length > 1 or not any(trains_on_batches(one.experiment) for one in measured):
        return []  # far above anything that is seen, it would only flatten the rest
    return [Curve(t("batchnorm.bound"), sizes, np.sqrt(sizes - 1), BOUND, "bound")]


def _columns(measured: Sequence[Measured], t: Words) -> Columns:
    """Return a row for each variant and batch size."""
    rows = [(one.name, place) for one in measured for place in range(len(found(one)["sizes"]))]
    known = {one.name: found(one) for one in measured}

    def column(name: str, layer: int | None = None) -> list[float]:
        return [float(known[who][name][place] if layer is None else known[who][name][place, layer])
                for who, place in rows]

    return {
        t("drift.variant"): [who for who, _ in rows], t("batchnorm.batch_size"): column("sizes"),
        t("batchnorm.stream_axis"): column("streams", -1), t("batchnorm.norm_axis"): column("norm"),
        t("batchnorm.largest_axis"): column("norm_largest"), t("batchnorm.norm_rms"): column("norm_rms"),
        t("batchnorm.stream_rms"): column("stream_rms", -1),
    }


def why_refused(measured: Sequence[Measured], t: Words) -> None:
    """Say why a single token is refused, in the engine's own words and in plain ones; nothing where none would be."""
    for one in measured:
        if (error := _refusal(one.experiment)) is not None:
            st.info(t("batchnorm.why_refused", reason=explain.refused(error, t)), icon=":material/help:")
            return


def _refusal(experiment: Experiment) -> ExperimentError | None:
    """Return why the engine refuses the experiment with a single token; None where it does not."""
    try:
        experiment.with_values({"input.batch": 1, "input.seq_len": 1, "input.lengths": None})
    except ExperimentError as error:
        return error
    return None
