"""The variance of data far from 0: the relative error of four methods over μ/σ, in one arithmetic and in all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from core.variances import ARITHMETICS, METHODS, STORED, Variances, variances
from pages.ui import charts, theme
from pages.ui.charts.curves import Curve, Drawing
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown

SWEPT: tuple[float, ...] = tuple(np.geomspace(0.1, 1e8, 46).tolist())
"""μ/σ that the curves are drawn through, five a decade."""

LOOKS: Mapping[str, theme.Style] = {
    "naive": theme.Style(theme.WARNING_COLOR),
    "shifted": theme.Style(theme.NORM_COLORS["groupnorm"], "14px,5px,3px,5px"),
    "two_pass": theme.Style(theme.BELOW_COLOR, "12px,6px"),
    "welford": theme.Style(theme.NORM_COLORS["rmsnorm"], "4px,4px"), STORED: theme.Style(theme.OTHER_COLOR, "2px,4px"),
}
"""Method → how its curve is drawn."""

OWN = theme.Style(theme.ABOVE_COLOR, symbol="diamond")
THEORY = theme.Style(theme.OTHER_COLOR, "14px,5px,3px,5px")
ARITHMETIC_LOOKS: Mapping[str, theme.Style] = dict(zip(ARITHMETICS, (
    theme.Style(theme.WARNING_COLOR), theme.Style(theme.NORM_COLORS["scalenorm"], "12px,6px"),
    theme.Style(theme.NORM_COLORS["batchnorm"], "4px,4px"), theme.Style(theme.BELOW_COLOR, "14px,5px,3px,5px"),
    theme.Style(theme.NORM_COLORS["rmsnorm"], "2px,4px")), strict=True))


def variance(shown: Shown, t: Words) -> list[Told]:
    """The methods in the chosen arithmetic, with the chosen μ/σ marked; below it the naive method in all of them."""
    return [_methods(shown, t), _naive(shown, t)]


def _found(shown: Shown, arithmetic: str) -> Variances:
    """Return the variances over the swept ratios, the chosen one last."""
    return variances(arithmetic, (*SWEPT, float(shown["ratio"])), int(shown["entries"]), float(shown["sigma"]),
                     int(shown["draw"]))


def _methods(shown: Shown, t: Words) -> Told:
    found, name = _found(shown, shown["arithmetic"]), t(f"precision.arithmetic_{shown['arithmetic']}")
    curves = [Curve(t(f"precision.method_{method}"), found.ratios[:-1], found.errors(method)[:-1], LOOKS[method],
                    method, marked=method != STORED) for method in (*METHODS, STORED)]
    title = t("precision.variance_title", arithmetic=name)
    own = found.ratios[-1]
    errors = np.array([found.errors(method)[-1] for method in METHODS])
    points = [Curve(t("precision.own_ratio"), np.full(len(errors), own), errors, OWN, "own",
                    np.zeros(len(errors)))] if own else []
    frame = charts.Frame(title, "", "", "log", x_title=t("precision.ratio_axis"))
    drawing = Drawing([*curves, _theory(found, t), *points], t("precision.relative_error"),
                      t("precision.relative_error"))
    return Told(Picture("variance", charts.curves([drawing], frame, t, log=True), title,
                        Subject(extra=("variance_error", "variance_theory")), partial(_table, found), 600),
                _said(found, shown, name, t), found.fate("naive", -1) != "digits")


def _theory(found: Variances, t: Words) -> Curve:
    """Return u·(μ/σ)² up to where everything is lost."""
    line = np.where(found.theory[:-1] <= 10, found.theory[:-1], np.nan)
    return Curve(t("precision.theory", unit=number(found.unit)), found.ratios[:-1], line, THEORY, "theory")


def _said(found: Variances, shown: Shown, name: str, t: Words) -> str:
    """Say what became of every method at the chosen μ/σ, and from where on the naive one has lost every digit."""
    fates = [t(f"precision.fate_{found.fate(method, -1)}", method=t(f"precision.method_{method}"),
               error=number(abs(float(found.errors(method)[-1]))), value=number(float(found.found[method][-1])))
             for method in METHODS]
    lost = found.lost_from("naive")
    from_there = t("precision.lost_never") if np.isinf(lost) else t("precision.lost_from", ratio=number(lost))
    return t("precision.variance_said", arithmetic=name, ratio=number(float(shown["ratio"])),
             sigma=number(float(shown["sigma"])), n=shown["entries"], truth=number(found.truth),
             fates=t("precision.semicolon").join(fates), lost=from_there, limit=number(found.unit**-0.5),
             unit=number(found.unit))


def _table(found: Variances) -> Columns:
    """Return a row a ratio, the chosen one last: the variance and its relative error by each method."""
    return {"mu_over_sigma": found.ratios.tolist(), "theory": found.theory.tolist(),
            **{f"variance_{name}": values.tolist() for name, values in found.found.items()},
            **{f"error_{name}": np.abs(found.errors(name)).tolist() for name in found.found}}


def _naive(shown: Shown, t: Words) -> Told:
    known = {name: _found(shown, name) for name in ARITHMETICS}
    curves = [Curve(t(f"precision.arithmetic_{name}"), found.ratios[:-1], found.errors("naive")[:-1],
                    ARITHMETIC_LOOKS[name], name, marked=True) for name, found in known.items()]
    title = t("precision.naive_title")
    frame = charts.Frame(title, "", "", "log", x_title=t("precision.ratio_axis"))
    drawing = Drawing(curves, t("precision.relative_error"), t("precision.relative_error"))
    said = t("precision.semicolon").join(
        t("precision.lost_of", arithmetic=t(f"precision.arithmetic_{name}"), limit=number(found.unit**-0.5),
          lost=number(found.lost_from("naive")))
        for name, found in known.items())
    return Told(Picture("naive", charts.curves([drawing], frame, t, log=True), title,
                        Subject(extra=("variance_error", "variance_theory")), partial(_naive_table, known), 520),
                t("precision.naive_said", lost=said))


def _naive_table(known: Mapping[str, Variances]) -> Columns:
    first = next(iter(known.values()))
    return {"mu_over_sigma": first.ratios.tolist(),
            **{f"variance_{name}": found.found["naive"].tolist() for name, found in known.items()},
            **{f"error_{name}": np.abs(found.errors("naive")).tolist() for name, found in known.items()}}
