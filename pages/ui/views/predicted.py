"""What theory predicts beside what was measured: points, a dotted line through them, and why there is none.

It knows neither what is predicted nor how; the views of the pages say of which number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from core.experiment import parse
from core.theory import NoPrediction, Prediction
from core.trace import F64
from core.vocabulary import STATISTICS
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views import depth
from pages.ui.views.depth import Number

Pairs = Mapping[str, tuple[NDArray[np.integer], NDArray[np.floating], F64 | None]]
"""Variant → layers, measured values, and predicted ones, None where nothing is."""


@dataclass(frozen=True)
class Kind:
    """What a picture is of: the name of its number, its subject, and what frames values that are drawn in it."""

    name: str
    subject: Subject
    frame: Callable[[Sequence[NDArray[np.floating]]], charts.Frame]


def asked(predict: Callable[..., Prediction], experiment: str, *starts: object) -> Prediction | str:
    """Return what is predicted of a description from where it starts, or the code of why nothing is."""
    try:
        return predict(parse(experiment), *starts)
    except NoPrediction as silent:
        return silent.code


def start_of(one: Measured, site: str, gradient: bool = False) -> tuple[float, float]:
    """Return rms and token_cosine of a site in its last layer."""
    assert one.trace is not None
    rms, likeness = (float(one.trace.profile(site, name, gradient)[1][-1]) for name in ("rms", "token_cosine"))
    return rms, likeness


def told(found: Mapping[str, Prediction | str], t: Words) -> tuple[dict[str, Prediction], tuple[str, ...]]:
    """Return the predictions by variant, and what is said of the variants without one."""
    silent = {name: t(f"no_prediction.{one}") if isinstance(one, str) else "" for name, one in found.items()}
    return {name: one for name, one in found.items() if isinstance(one, Prediction)}, depth.said_once(silent, t)


def over_depth(measured: Sequence[Measured], known: Mapping[str, Prediction], number: Number, why: str,
               t: Words) -> Picture:
    """Return rms or token_cosine at a site over depth, or that of its gradient; `why`: the text on the theory."""
    pairs: dict[str, tuple[NDArray[np.integer], NDArray[np.floating], F64 | None]] = {}
    for one in measured:
        assert one.trace is not None
        layers, values = one.trace.profile(number.site, number.statistic, number.gradient)
        places = np.array(layers, np.int64)
        line = known[one.name].over_depth(number.statistic, number.site, places) if one.name in known else None
        pairs[one.name] = (places, values, line)
    subject = Subject((number.statistic,), (number.site,), number.gradient, (why,))
    return against(measured, pairs, Kind(number.name, subject, partial(_frame, number, t)), t)


def against(measured: Sequence[Measured], pairs: Pairs, kind: Kind, t: Words) -> Picture:
    """Draw the measured values as points and the predicted ones, where there are any, as a line through them."""
    styles, found = depth.looks(measured), {}
    keys = {one.name: one.variant.key for one in measured}
    for name, (layers, values, line) in pairs.items():
        found[name] = charts.Series(name, layers, values, styles[name], key=keys[name], role="points")
        if line is not None and not np.isnan(line).all():
            said = t("entropy.theory_of", variant=name)
            found[said] = charts.Series(said, layers, line, styles[name], key=f"{keys[name]}.theory",
                                        role="prediction")
    frame = kind.frame([one.values for one in found.values()])
    height = depth.SMALL_PX + depth.LEGEND_PX * (depth.legend_rows(list(found)) - 1)
    return Picture(f"theory.{kind.name}", charts.profile(list(found.values()), frame, t) if found else None,
                   frame.title, kind.subject, partial(depth.table, found, t), height)


def _frame(number: Number, t: Words, values: Sequence[NDArray[np.floating]]) -> charts.Frame:
    """Return the frame of rms, on a logarithmic axis, or of token_cosine."""
    scale = depth.positive(values, "log") if number.statistic in depth.SIZES else "linear"
    return charts.Frame(title=depth.titled(number, depth.at(number.site, t), t), statistic=number.name,
                        y_title=t(f"statistic.{number.statistic}"), x_title=t("chart.layer"), y_scale=scale,
                        unit=depth.unit_said(STATISTICS[number.statistic].unit, t))
