"""The ruler of number formats: where each begins and ends, and what becomes of the visitor's number in it."""

from __future__ import annotations

import math

from core.formats import FORMATS, fates, rounded, square
from pages.ui import charts
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown

TOO_WIDE = "float64"
"""The format that would leave the others no room: it is in the table alone."""


def ruler(shown: Shown, t: Words) -> list[Told]:
    """The formats as lines on one axis, with the number and what it becomes."""
    value = float(shown["value"])
    known = fates(value)
    spans = [charts.Span(name, one.least, one.least_normal, one.largest, _becomes(value, name, known[name], t),
                         _hover(name, t)) for name, one in FORMATS.items() if name != TOO_WIDE]
    title = t("precision.ruler_title")
    frame = charts.Frame(title, "", "", "log", x_title="|x|")
    said = t("precision.ruler_said", value=f"{value:.12g}", fates=t("precision.semicolon").join(
        f"{name} {_becomes(value, name, known[name], t)}" for name in ("float32", "bfloat16", "float16")),
             square=_written(square(value, "float16")))
    return [Told(Picture("ruler", charts.rulers(spans, value, frame, t), title, Subject(extra=("number_format",)),
                         lambda: _table(value, t), 430), said, known["float16"] in ("over", "zero"))]


def _becomes(value: float, name: str, fate: str, t: Words) -> str:
    """Say what a number becomes in a format."""
    near = float(rounded(value, name))
    share = number(100 * (near - value) / abs(value)) if value and fate in ("rounded", "subnormal") else "0"
    return t(f"precision.becomes_{fate}", near=_written(near), percent=share)


def _written(value: float) -> str:
    return f"{value:.9g}".replace("-", "−") if math.isfinite(value) else number(value)


def _hover(name: str, t: Words) -> str:
    one = FORMATS[name]
    return f"<b>{name}</b><br>" + t("precision.format_hover", largest=_written(one.largest), normal=number(
        one.least_normal), least=number(one.least), epsilon=number(one.epsilon), digits=one.digits)


def _table(value: float, t: Words) -> Columns:
    known = fates(value)
    return {"format": list(FORMATS), "largest": [one.largest for one in FORMATS.values()],
            "least_normal": [one.least_normal for one in FORMATS.values()],
            "least_subnormal": [one.least for one in FORMATS.values()],
            "epsilon": [one.epsilon for one in FORMATS.values()],
            "significand_bits": [one.digits for one in FORMATS.values()],
            "value": [value] * len(FORMATS), "rounded": [float(rounded(value, name)) for name in FORMATS],
            "square": [square(value, name) for name in FORMATS],
            t("overview.state"): [t(f"precision.fate_of_{known[name]}") for name in FORMATS]}
