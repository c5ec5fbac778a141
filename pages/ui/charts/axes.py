"""Value axes: linear, logarithmic, and symlog, which Plotly lacks. Where a value stands, and how it is labelled.

What has no place on an axis (NaN, ±Inf, a zero or a negative number on a logarithmic one) is said by `has_place`; what
becomes of it is for the chart to decide. The file knows numbers and Plotly's axis settings; it draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pages.ui import theme

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

SYMLOG_DECADES = 40
"""How far below the largest magnitude the linear part of a symlog axis may begin, where nobody says otherwise."""

SHARES = (-0.03, 1.03)
"""From where to where an axis of shares reaches: a line at 0 or 1 is seen whole."""

TICKS, LEAST_TICKS, POWERS = 6, 3, 0.71
"""About how many labels a log axis gets, and a side of a symlog axis; the fewest that are asked for; see _log_ticks."""


@dataclass(frozen=True)
class Scale:
    """One kind of axis.

    `near`: a reference value within this factor of the data is drawn, a farther one is only named; `span`: the least
    ratio of top to bottom, so that rounding noise of a constant looks constant; `plotly`: the type it is drawn on.
    """

    near: float
    span: float
    plotly: str = "linear"


SCALES: dict[str, Scale] = {"log": Scale(1e4, 10.0, "log"), "linear": Scale(2.0, 1.1), "symlog": Scale(1e4, 1.1)}


@dataclass(frozen=True)
class Axis:
    """The value axis of one chart. `linear_to`: symlog is linear up to about this magnitude; elsewhere without use.

    `low`, `high`: the least and the greatest magnitude that it shows, for its labels.
    """

    scale: str = "linear"
    linear_to: float = 1.0
    high: float = field(default=1.0, compare=False)
    low: float = field(default=1.0, compare=False)

    def reaching(self, *values: float) -> Axis:
        """Return the axis that reaches these values too."""
        return self if self.scale != "log" else replace(self, low=min(self.low, *values), high=max(self.high, *values))

    def has_place(self, values: NDArray[np.floating]) -> Mask:
        """Say which values have a place on the axis."""
        finite: Mask = np.isfinite(values)
        return finite & (values > 0) if self.scale == "log" else finite

    def place(self, values: NDArray[np.floating]) -> F64:
        """Return where the values stand in Plotly's coordinates, NaN where they have no place."""
        kept = np.where(self.has_place(values), values, np.nan).astype(np.float64)
        return self._symlog(kept) if self.scale == "symlog" else kept

    def _symlog(self, values: F64) -> F64:
        """Return asinh(v / 2c) / ln 10: v/(2c·ln 10) near 0 and ±log10(|v|/c) far from it."""
        with np.errstate(over="ignore"):
            size = np.abs(values) / self.linear_to
        far = np.sign(values) * (np.log10(np.maximum(np.abs(values), self.linear_to)) - np.log10(self.linear_to))
        close: F64 = np.sign(values) * np.arcsinh(np.minimum(size, 1e12) / 2) / np.log(10)
        return np.where(size > 1e10, far, close)

    def level(self, values: NDArray[np.floating]) -> F64:
        """Return where the values stand on a ruler that Plotly takes as linear, such as a colour bar."""
        placed = self.place(values)
        return np.log10(placed) if self.scale == "log" else placed

    def layout(self, title: str) -> dict[str, object]:
        """Return Plotly's settings. No range: it would throw away the visitor's zoom; so does a new scale, on purpose.

        The coordinates of symlog change with its linear part, and then a zoom means nothing any more.
        """
        kind = SCALES[self.scale]
        revision = self.scale if self.scale != "symlog" else f"symlog {self.linear_to:g}"
        settings: dict[str, object] = {"title": {"text": title}, "type": kind.plotly, "uirevision": revision}
        return settings | _TICKS[self.scale](self)


def axis_for(scale: str, values: NDArray[np.floating], linear_to: float | None = None,
             decades: int = SYMLOG_DECADES) -> Axis:
    """Return the axis for these values; `linear_to` (default: from the values) is rounded down to a power of ten.

    `decades`: how far below the largest magnitude the linear part of symlog may begin.

    Errors: ValueError for an unknown scale.
    """
    if scale not in SCALES:
        raise ValueError(f"y_scale is {scale!r}; allowed are {', '.join(sorted(SCALES))}")
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    shown = finite_range(values, scale)
    if scale == "log" and shown:
        return Axis(scale, low=shown[0], high=shown[1])
    if scale != "symlog" or not sizes.size:
        return Axis(scale)
    high = float(sizes.max())
    wanted = float(np.quantile(sizes, 0.1)) if linear_to is None or not linear_to > 0 else linear_to
    low = max(np.log10(min(wanted, high)), np.log10(high) - decades)
    return Axis(scale, float(10.0 ** np.floor(max(low, -307.0))), high)


def ruler(axis: Axis, low: float, high: float) -> dict[str, object]:
    """Return the labels of a colour bar from `low` to `high`: powers of ten, or figures between where it is short."""
    if axis.scale == "linear":
        return {}
    if axis.scale == "symlog":
        return _symlog_ticks(axis)
    first, last = int(np.ceil(np.log10(low) - 1e-9)), int(np.floor(np.log10(high) + 1e-9))
    powers = 10.0 ** np.arange(first, last + 1, max(1, (last - first) // TICKS + 1))
    at = powers if len(powers) > 2 else _between(low, high)
    return {"tickvals": axis.level(at), "ticktext": numbers(at)}


def colors(axis: Axis, shown: tuple[float, float] | None, title: str, scale: object) -> dict[str, object]:
    """Return Plotly's colour axis for values between those of `shown`, None for none; `scale`: the colours."""
    if shown is None:
        return {"colorscale": scale, "showscale": False}
    bar: dict[str, object] = {"title": {"text": title, "side": "right"}, "thickness": 18}
    low, high = axis.level(np.array(shown)).tolist()
    if high - low > 1e-3 * max(1.0, abs(low)):
        return {"colorscale": scale, "cmin": low, "cmax": high, "colorbar": bar | ruler(axis, *shown)}
    room = 0.5 * max(1.0, abs(low))  # one value has a colour of the middle, and rounding noise not all of them
    only = {"tickvals": [low], "ticktext": [number(shown[0])]}
    return {"colorscale": scale, "cmin": low - room, "cmax": high + room, "colorbar": bar | only}


def first_sizes(lines: Sequence[NDArray[np.floating]]) -> float | None:
    """Return a magnitude that stays when steps are appended: the lowest tenth of those at the first step that has any.

    `lines`: (N, …) each, oldest step first; None where nothing but zeros and what is not finite came so far. A symlog
    axis that is linear up to it keeps every place while a training goes on, if not by more than SYMLOG_DECADES.
    """
    for step in range(max(map(len, lines), default=0)):
        found = np.concatenate([np.ravel(values[step]) for values in lines if step < len(values)])
        sizes = np.abs(found[np.isfinite(found) & (found != 0)])
        if sizes.size:
            return float(np.quantile(sizes, 0.1))
    return None


def _between(low: float, high: float) -> F64:
    """Return round numbers from `low` to `high`, 1, 2 and 5 times powers of ten; its ends where there is none."""
    powers = 10.0 ** np.arange(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    found = np.outer(powers, (1.0, 2.0, 5.0)).ravel()
    kept = found[(found >= low * (1 - 1e-9)) & (found <= high * (1 + 1e-9))]
    return kept if kept.size > 1 else np.array([low, high])


def finite_range(values: NDArray[np.floating], scale: str) -> tuple[float, float] | None:
    """Return the least and greatest value that such an axis can show; None when there is none."""
    shown = values[Axis(scale).has_place(values)]
    return (float(shown.min()), float(shown.max())) if shown.size else None


def narrow(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the values in float32, beyond what a screen shows and half as long to send, if its range holds them."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    fits = not sizes.size or (sizes.min() >= limits.tiny and sizes.max() <= limits.max)
    return values.astype(np.float32) if fits else values


def number(value: float) -> str:
    """Return a number as a tick says it: powers of ten as such, else three figures."""
    if value == 0:
        return "0"
    exponent = int(f"{abs(value):.2e}".partition("e")[2])
    if -3 < exponent < 5:
        return f"{value:.3g}".replace("-", "−") if exponent < 3 else f"{value:,.0f}".replace("-", "−")
    return _power(value)


def numbers(values: NDArray[np.floating]) -> list[str]:
    """Return numbers as the ticks of one axis say them: where one is written with a power of ten, all but 0 are."""
    said = [number(value) for value in values.tolist()]
    powers = any("<sup>" in one for one in said)
    return [_power(value) if value else "0" for value in values.tolist()] if powers else said


def _power(value: float) -> str:
    """Return a number as a multiple of a power of ten."""
    mantissa, _, exponent = f"{abs(value):.2e}".partition("e")
    head = "" if float(mantissa) == 1 else f"{float(mantissa):g}·"
    return ("−" if value < 0 else "") + f"{head}10<sup>{int(exponent)}</sup>".replace("-", "−")


def _log_ticks(axis: Axis) -> dict[str, object]:
    """Return settings with which Plotly labels powers of ten, or 1, 2 and 5 times them where there is room for these.

    It takes powers where a label has more than POWERS decades, and writes them a quarter larger; of what is between it
    would write one digit, and small, if it were not given a format.
    """
    decades = 1.1 * float(np.log10(axis.high) - np.log10(axis.low))  # with the room that Plotly leaves at the ends
    wide = decades > LEAST_TICKS * POWERS
    return {"nticks": min(TICKS, int(decades / POWERS)) if wide else LEAST_TICKS,
            "tickfont": {"size": theme.TICK_PX / 1.25 if wide else theme.TICK_PX},
            "tickformatstops": [{"dtickrange": [None, "D2"], "value": "~g"}]}


def _symlog_ticks(axis: Axis) -> dict[str, object]:
    """Return labels at 0 and at powers of ten on both sides, as far apart as keeps them readable."""
    first, last = round(np.log10(axis.linear_to)), int(np.floor(np.log10(axis.high)))
    step = max(1, -(-(last - first + 1) // TICKS))
    powers = [10.0**exponent for exponent in range(last, first - 1, -step)]
    if len(powers) > 1 and powers[-1] < 2 * axis.linear_to:  # beside 0 there is no room
        powers = powers[:-1]
    at = np.array([*(-power for power in powers), 0.0, *reversed(powers)])
    return {"tickvals": axis.place(at), "ticktext": numbers(at)}


_TICKS: dict[str, Callable[[Axis], dict[str, object]]] = {
    "linear": lambda _: {},
    "log": _log_ticks,
    "symlog": _symlog_ticks,
}
