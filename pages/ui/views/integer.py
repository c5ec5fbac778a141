"""LayerNorm in whole numbers: how far its output lies from the one in float64, over the step of its input."""

from __future__ import annotations

import numpy as np

from core.fixed_point import ACCUMULATOR_BITS, Outcome, Scheme, integer_layernorm
from core.variances import data
from pages.ui import charts, theme
from pages.ui.charts.curves import Curve, Drawing
from pages.ui.explain import number
from pages.ui.picture import Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown

SWEPT = np.geomspace(0.002, 4, 100)
"""Steps of the input in units of its σ that the curves are drawn through."""

ERROR, LARGEST = theme.Style(theme.BELOW_COLOR), theme.Style(theme.WARNING_COLOR, "12px,6px")
BOUND, CUT = theme.Style(theme.OTHER_COLOR, "2px,4px"), theme.Style(theme.ABOVE_COLOR)
OUT, OWN = theme.Style(theme.NORM_COLORS["groupnorm"], "4px,4px"), theme.Style(theme.ABOVE_COLOR, symbol="diamond")


def integer(shown: Shown, t: Words) -> list[Told]:
    """The errors over the step, above the shares that are cut off; below it the entries at the chosen step."""
    scheme = Scheme(int(shown["bits"]), int(shown["fraction"]), shown["root"])
    x = data(int(shown["entries"]), int(shown["draw"]))
    step = float(shown["quantum"])
    own = integer_layernorm(x, np.array([step]), scheme)
    return [_errors(integer_layernorm(x, SWEPT, scheme), own, scheme, t), _entries(x, own, t)]


def _errors(found: Outcome, own: Outcome, scheme: Scheme, t: Words) -> Told:
    steps = found.steps
    finite_bound = np.where(np.isfinite(found.bound), found.bound, np.nan)
    errors = [Curve(t("precision.rms_error"), steps, found.rms_error, ERROR, "rms", marked=True),
              Curve(t("precision.largest_error"), steps, found.largest_error, LARGEST, "largest", marked=True),
              Curve(t("precision.bound"), steps, finite_bound, BOUND, "bound"),
              Curve(t("precision.chosen_step"), own.steps, own.rms_error, OWN, "own")]
    cut = [Curve(t("precision.saturated"), steps, _some(found.saturated), CUT, "cut"),
           Curve(t("precision.output_saturated"), steps, _some(found.output_saturated), OUT, "out")]
    title = t("precision.integer_title", bits=scheme.bits)
    frame = charts.Frame(title, "", "", "log", x_title=t("precision.step_axis"))
    drawings = [Drawing(errors, t("precision.error"), t("precision.error")),
                Drawing(cut, t("precision.cut"), t("precision.cut"))]
    picture = Picture("integer", charts.curves(drawings, frame, t, log=True), title,
                      Subject(extra=("integer_error", "integer_bound", "saturated_share")),
                      lambda: {"step": steps.tolist(), "rms_error": found.rms_error.tolist(),
                               "largest_error": found.largest_error.tolist(), "bound": found.bound.tolist(),
                               "saturated": found.saturated.tolist(),
                               "output_saturated": found.output_saturated.tolist(),
                               "accumulator_bits": found.accumulated.tolist()}, 640)
    return Told(picture, _said(found, own, scheme, t), kind(own) != "rounds")


def _some(shares: np.ndarray) -> np.ndarray:
    """Return shares for a logarithmic axis: nothing cut off is nothing drawn."""
    return np.where(shares > 0, shares, np.nan)


def kind(own: Outcome) -> str:
    """Return what limits the output at the chosen step: overflows, saturates or rounds."""
    if own.accumulated[0] > ACCUMULATOR_BITS:
        return "overflows"
    return "saturates" if own.saturated[0] > 0 else "rounds"


def _said(found: Outcome, own: Outcome, scheme: Scheme, t: Words) -> str:
    """Say what limits the output, how large the errors are, and at which step they are least."""
    errors = found.rms_error
    best = int(np.nanargmin(errors)) if np.isfinite(errors).any() else 0
    return t(f"precision.integer_{kind(own)}", step=number(float(own.steps[0])), bits=scheme.bits,
             top=scheme.top, error=number(float(own.rms_error[0])), largest=number(float(own.largest_error[0])),
             bound=number(float(own.bound[0])), share=number(100 * float(own.saturated[0])),
             accumulated=int(own.accumulated[0]), limit=ACCUMULATOR_BITS,
             least=number(float(errors[best])), best=number(float(found.steps[best])),
             output=number(scheme.output_step))


def _entries(x: np.ndarray, own: Outcome, t: Words) -> Told:
    """Return the output's error entry by entry."""
    off = own.y[0] - own.exact
    title = t("precision.entries_title", step=number(float(own.steps[0])))
    frame = charts.Frame(title, "", "", "linear", x_title=t("precision.entry"))
    figure = charts.bars([charts.Bars(off, t("precision.error"), t("precision.error"))], frame, t)
    return Told(Picture("entries", figure, title, Subject(extra=("integer_error",)),
                        lambda: {"entry": list(range(len(x))), "x": x.tolist(), "exact": own.exact.tolist(),
                                 "integer": own.y[0].tolist(), "error": off.tolist()}, 360),
                t("precision.entries_said"))
