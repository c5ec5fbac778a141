"""The views of the entropy page: a measure of every head as a map, the cause of each, and theory over what is measured.

It knows how heads are arranged; the engine judges causes and predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from core.entropy_causes import Causes, entropy_causes
from core.theory import Prediction, largest_entropy, predict
from core.trace import F64
from core.vocabulary import HEAD_MEASURES, STREAM
from pages.ui import charts, explain
from pages.ui.cache import Measured
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth, predicted
from pages.ui.views.depth import Number, Shown
from pages.ui.views.tokens import focus

ROW_PX, AROUND_PX, LEAST_ROWS, MOST_PX = 26, 190, 5, 760
"""Height of a head's row, of what stands around them, rows at least, and of a map at most."""

LIKENESS = Number("token_cosine", STREAM)
"""How alike tokens are."""


def heads(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """One measure of every head of one variant, and its mean over the heads over depth, all variants."""
    return [head_map(measured, shown, t), mean_lines(measured, shown["measure"], t)]


def head_map(measured: Sequence[Measured], shown: Shown, t: Words) -> Picture:
    """Return the map of one measure of every head of one variant; a click chooses a head."""
    one, snapshot = focus(measured, shown)
    measure, rows = shown["measure"], attending(one)
    title = t("entropy.map_title", measure=t(f"head.{measure}"), variant=one.name)
    if missing := absent(one, (measure,), t):
        return Picture("heads", None, title, Subject(extra=(measure,)), dict, remarks=missing, variant=one.name)
    values = snapshot.heads[measure][rows].T  # (H, R)
    frame = _frame(title, measure, t("entropy.head"), [values], t)
    whole = np.ones(values.shape, bool)
    cells = charts.Grid([str(row) for row in rows], [str(head) for head in range(len(values))], values, whole, whole,
                        name=one.name)
    return Picture("heads", charts.grid(cells, frame, t), title, Subject(extra=(measure,)),
                   partial(table, rows, {measure: values.T}, t), height(len(values)), picks=True, variant=one.name)


def mean_lines(measured: Sequence[Measured], measure: str, t: Words) -> Picture:
    """Return the chart of a measure's mean over the heads of each layer, a line a variant that attends."""
    found = depth.dressed({one.name: mean_of_heads(one, measure) for one in measured}, measured)
    series = [line for line in found.values() if line is not None]
    title = t("entropy.mean_title", measure=t(f"head.{measure}"))
    frame = _frame(title, measure, t(f"head.{measure}"), [one.values for one in series], t)
    frame = replace(frame, references=_most(measured, t) if measure == "entropy" else {})
    missing = depth.said_once({one.name: " ".join(absent(one, (measure,), t)) for one in measured}, t)
    return Picture("mean", charts.profile(series, frame, t) if series else None, title, Subject(extra=(measure,)),
                   partial(depth.table, found, t), depth.SMALL_PX, missing if series else ())


def _most(measured: Sequence[Measured], t: Words) -> dict[str, float]:
    """Return the most that the entropy can be, where that is the same for all variants."""
    most = {None if one.experiment.input.lengths else largest_entropy(one.experiment.input.seq_len,
                                                                      one.experiment.model.causal) for one in measured}
    return {t("entropy.most"): value for value in most if value is not None} if len(most) == 1 else {}


def mean_of_heads(one: Measured, measure: str) -> charts.Series | None:
    """Return the mean over the heads of each layer that attends."""
    rows = attending(one)
    if one.trace is None or not rows or measure not in one.trace.snapshots[-1].heads:
        return None
    return charts.Series(one.name, np.array(rows), one.trace.snapshots[-1].heads[measure][rows].mean(1),
                         key=one.variant.key)


def causes(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The cause of every head of one variant with its evidence, and that evidence over depth."""
    one, _ = focus(measured, shown)
    assert one.trace is not None
    found = entropy_causes(one.trace, one.experiment)
    title = t("entropy.causes_title", variant=one.name)
    subject = Subject(extra=("cause", "score_scale", "entropy_norm", "score_std", "q_rms", "k_rms", "qk_cosine"))
    remarks = () if found.layers else (t("entropy.no_softmax") if attending(one) else _no_head(one, t)[0],)
    frame = charts.Frame(title=title, statistic="cause", y_title=t("entropy.head"), x_title=t("chart.layer"),
                         y_scale="linear")
    cells = charts.Heads([str(layer) for layer in found.layers], found.names.T.tolist(), _evidence(found, t))
    picture = Picture("causes", charts.causes(cells, frame, t) if found.layers else None, title, subject,
                      partial(table, found.layers, {"cause": found.names, **found.evidence}, t),
                      height(found.names.shape[1]), remarks, variant=one.name)
    return [picture, mean_lines(measured, "score_std", t), depth.inputs(measured, "attention", LIKENESS, "linear", t)]


def _evidence(found: Causes, t: Words) -> list[list[str]]:
    """Say of each head, (H, R), what its cause was told from."""
    return [["<br>".join(f"{t(f'evidence.{name}')} {explain.number(float(values[row, head]))}"
                         for name, values in found.evidence.items()) for row in range(len(found.layers))]
            for head in range(found.names.shape[1])]


def theory(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """What mathematics predicts as dotted lines, what was measured as points: stream, likeness, entropy, gain."""
    known, silent = predicted.told({one.name: prediction(one) for one in measured}, t)
    stream = depth.stream_of(measured)
    of_sites = [predicted.over_depth(measured, known, Number(statistic, stream), "theory", t)
                for statistic in ("rms", "token_cosine")]
    of_heads = [_against_heads(measured, known, measure, t) for measure in ("entropy", "softmax_gain", "score_std")]
    first, *rest = [*of_sites, *(one for one in of_heads if one.figure is not None)]
    return [replace(first, remarks=silent), *rest]


def prediction(one: Measured) -> Prediction | str:
    """Return what is predicted of a variant from its embedding, or the code of why nothing is."""
    return _predicted(one.experiment.canonical_json(), *predicted.start_of(one, "embed"))


_predicted = lru_cache(maxsize=128)(partial(predicted.asked, predict))


def _against_heads(measured: Sequence[Measured], known: Mapping[str, Prediction], measure: str, t: Words) -> Picture:
    pairs: dict[str, tuple[NDArray[np.integer], NDArray[np.floating], F64 | None]] = {}
    for one in measured:
        line = mean_of_heads(one, measure)
        if line is not None:
            told = known[one.name].heads[measure][line.layers] if one.name in known else None
            pairs[one.name] = (line.layers, line.values, told)
    frame = partial(_frame, t("entropy.mean_title", measure=t(f"head.{measure}")), measure, t(f"head.{measure}"), t=t)
    return predicted.against(measured, pairs, predicted.Kind(measure, Subject(extra=(measure, "theory")), frame), t)


def _frame(title: str, name: str, axis: str, values: Sequence[NDArray[np.floating]], t: Words) -> charts.Frame:
    """Return the frame of a chart over depth; a measure without a bound is on a logarithmic axis."""
    scale = depth.positive(values, "log") if name in depth.UNBOUNDED else "linear"
    return charts.Frame(title=title, statistic=name, y_title=axis, x_title=t("chart.layer"), y_scale=scale,
                        unit=depth.unit_said(HEAD_MEASURES[name].unit, t))


def attending(one: Measured) -> list[int]:
    """Return the layers that attend."""
    return one.trace.layout.rows("q")[0] if one.trace else []


def absent(one: Measured, measures: Sequence[str], t: Words) -> tuple[str, ...]:
    """Say why a variant has not all of these measures of its heads; nothing where it has."""
    if not attending(one):
        return _no_head(one, t)
    assert one.trace is not None
    return () if one.trace.snapshots[-1].heads.keys() >= set(measures) else (t("drift.not_full"),)


def _no_head(one: Measured, t: Words) -> tuple[str, ...]:
    return () if attending(one) else (t("entropy.no_head", variant=one.name),)


def height(count: int) -> int:
    """Return the height of a map with so many heads."""
    return min(AROUND_PX + ROW_PX * max(count, LEAST_ROWS), MOST_PX)


def table(layers: Sequence[int], columns: Mapping[str, np.ndarray], t: Words) -> Columns:
    """Return a row a head, (R, H) values a column."""
    cells = list(np.ndindex(next(iter(columns.values())).shape))
    return {t("chart.layer"): [layers[row] for row, _ in cells], t("entropy.head"): [head for _, head in cells],
            **{name: [values[cell].item() for cell in cells] for name, values in columns.items()}}
