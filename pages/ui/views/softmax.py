"""The pictures of the softmax lab, each with the sentences above it: one row of scores, and what it moves."""

from __future__ import annotations

from functools import partial

import numpy as np

from core.gaussian_softmax import beginning, gaussian_softmax
from core.softmax_row import F64, UNIFORM, Drawn, Row, drawn_rows
from core.vocabulary import SATURATED
from pages.ui import charts, theme
from pages.ui.charts.curves import Curve, Drawing
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject, Told
from pages.ui.softmax_link import Asked
from pages.ui.text import Words

MOST_CELLS = 64
"""So many keys have a row and a column in the picture of the Jacobian."""

ROWS, SPREADS = 200, 12
"""So many rows are drawn at so many spreads, to measure what the theory says."""

USUAL, FARTHEST = 6.0, 12.0
"""The spread to which the theory is drawn: farther for a row that is, as far as the second."""

WRONG_AT = 2.0
"""The spread at which it is said how wrong ln n − σ²/2 is."""

CURVE, GUESS = theme.Style(theme.BELOW_COLOR), theme.Style(theme.OTHER_COLOR, "12px,6px")
POINTS = theme.Style(theme.NORM_COLORS["rmsnorm"])
PEAK, OWN = theme.Style(theme.NORM_COLORS["groupnorm"], symbol="star"), theme.Style(theme.ABOVE_COLOR, symbol="diamond")


def told(asked: Asked, row: Row, t: Words) -> list[Told]:
    """Return all pictures of a row, the first ones first."""
    return [scores(row, t), sweep(row, t), jacobian(row, t), gradient(asked, row, t),
            *([theory(asked, row, t)] if row.n > 1 else [])]


def verdict(row: Row, t: Words) -> str:
    """Say what the row is, with the threshold."""
    peak = row.sweep.norm[row.sweep.top]
    return t(f"softmax.verdict_{row.kind}", key=row.top, max_prob=number(row.max_prob), norm=number(row.jacobian_norm),
             share=number(100 * row.jacobian_norm / peak if peak else 0), entropy_norm=number(row.entropy_norm),
             saturated=f"{SATURATED:g}", uniform=f"{UNIFORM:g}")


def measures(row: Row) -> dict[str, float]:
    """Return the row's numbers by the names of their words, ``softmax.measure_*``."""
    return {"entropy": row.entropy, "entropy_norm": row.entropy_norm, "max_prob": row.max_prob, "gain": row.gain,
            "norm": row.jacobian_norm}


def scores(row: Row, t: Words) -> Told:
    """The scores above the weights that they become."""
    frame = charts.Frame(t("softmax.row_title"), "", "", "linear", x_title=t("softmax.key"))
    uniform = {t("softmax.uniform_line", value=number(1 / row.n)): 1 / row.n}
    figure = charts.bars([charts.Bars(row.scores, t("softmax.score"), t("softmax.score")),
                          charts.Bars(row.p, t("softmax.weight"), t("softmax.weight"), uniform)], frame, t)
    masked = len(row.scores) - row.n
    remarks = (t("softmax.masked", count=masked, total=len(row.scores)),) if masked else ()
    return Told(Picture("row", figure, frame.title, Subject(extra=("row_weights", "row_entropy", "row_gain")),
                        lambda: {"key": _keys(row), "score": row.scores.tolist(), "p": row.p.tolist()}, 520, remarks),
                t("softmax.row_said"))


def sweep(row: Row, t: Words) -> Told:
    """The Jacobian's norm and the entropy of the same row at other scales, with the peak and the row itself."""
    found = row.sweep
    peak, own = found.top, (row.jacobian_norm, row.entropy)
    frame = charts.Frame(t("softmax.sweep_title"), "", "", "linear", x_title=t("softmax.scale"))
    spoken = t("softmax.peak", norm=number(found.norm[peak]), scale=number(found.scales[peak]))
    mark = Curve(t("softmax.peak_name"), found.scales[[peak]], found.norm[[peak]], PEAK, "peak", label=spoken)
    drawings = [Drawing([Curve(t("softmax.swept"), found.scales, values, CURVE, "swept"),
                         *([mark] if values is found.norm and found.shape == "between" else []),
                         Curve(t("softmax.own_row"), np.ones(1), np.array([value]), OWN, "own")],
                        t(f"softmax.{name}_axis"), t(f"softmax.{name}"))
                for name, values, value in zip(("norm", "entropy"), (found.norm, found.entropy), own, strict=True)]
    said = t(f"softmax.sweep_{found.shape}", peak=number(found.norm[peak]), scale=number(found.scales[peak]),
             small=number(found.norm[0]), large=number(found.norm[-1]))
    return Told(Picture("sweep", charts.curves(drawings, frame, t, log=True), frame.title,
                        Subject(extra=("row_jacobian_norm", "row_entropy")),
                        lambda: {"scale": found.scales.tolist(), "jacobian_norm": found.norm.tolist(),
                                 "entropy": found.entropy.tolist()}, 560), said)


def jacobian(row: Row, t: Words) -> Told:
    """The Jacobian as cells; of a long row the keys with the largest weights."""
    kept = np.sort(np.argsort(-row.p, kind="stable")[:MOST_CELLS])
    cells = row.jacobian[np.ix_(kept, kept)]
    names = [str(key) for key in kept]
    seen = np.ones(cells.shape, bool)
    frame = charts.Frame(t("softmax.jacobian_title"), "∂pᵢ/∂sⱼ", t("softmax.weight_of"), "symlog",
                         x_title=t("softmax.score_of"))
    figure = charts.grid(charts.Grid(names, names, cells, seen, seen, signed=True), frame, t)
    figure.update_yaxes(scaleanchor="x", constrain="domain")
    figure.update_xaxes(constrain="domain")
    remarks = (t("softmax.cut", kept=MOST_CELLS, total=len(row.p)),) if len(row.p) > MOST_CELLS else ()
    return Told(Picture("jacobian", figure, frame.title, Subject(extra=("row_jacobian",)),
                        partial(_cells, kept, cells), 560, remarks), t("softmax.jacobian_said"))


def _cells(kept: np.ndarray, cells: F64) -> Columns:
    rows, columns = np.meshgrid(kept, kept, indexing="ij")
    return {"i": rows.ravel().tolist(), "j": columns.ravel().tolist(), "jacobian": cells.ravel().tolist()}


def gradient(asked: Asked, row: Row, t: Words) -> Told:
    """The gradient that reaches the scores, of the one that comes to the weights."""
    upstream = asked.gradient(row)
    found = row.gradient(upstream)
    size, came = (float(np.linalg.norm(one)) for one in (found, upstream))
    frame = charts.Frame(t("softmax.gradient_title"), "", "", "linear", x_title=t("softmax.key"))
    figure = charts.bars([charts.Bars(found, t("softmax.gradient_axis"), t("softmax.gradient_axis"))], frame, t)
    said = t("softmax.gradient_said", came=t(f"softmax.came_{asked.upstream}", key=row.top), size=number(size),
             sum=number(float(found.sum())), upstream=number(came), share=number(100 * size / came))
    return Told(Picture("gradient", figure, frame.title, Subject(extra=("row_gradient",)),
                        lambda: {"key": _keys(row), "at_weights": upstream.tolist(), "at_scores": found.tolist()}, 380),
                said)


def theory(asked: Asked, row: Row, t: Words) -> Told:
    """The mean entropy and gain of Gaussian rows over their spread: exact, as often guessed, and measured."""
    inside = row.spread <= FARTHEST
    fine = np.linspace(0, max(USUAL, 1.05 * row.spread) if inside else USUAL, 241)
    spreads = np.linspace(0, fine[-1], SPREADS)
    exact, drawn = gaussian_softmax(fine, row.n), drawn_rows(row.n, spreads, ROWS, asked.seed)
    guess = beginning(fine, row.n)
    own = [np.array([value]) for value in (row.entropy, row.gain)]
    means = ((exact.entropy, drawn.entropy, drawn.entropy_error), (exact.gain, drawn.gain, drawn.gain_error))
    drawings = [Drawing([
        Curve(t("softmax.exact"), fine, curve, CURVE, "exact"),
        *([Curve("ln n − σ²/2", fine, np.where(guess >= 0, guess, np.nan), GUESS, "guess")] if not place else []),
        Curve(t("softmax.drawn", rows=ROWS), spreads, mean, POINTS, "drawn", 2 * error),
        *([Curve(t("softmax.own_row"), np.array([row.spread]), own[place], OWN, "own")] if inside else [])],
        t(f"softmax.{name}_axis"), t(f"softmax.{name}"))
        for place, (name, (curve, mean, error)) in enumerate(zip(("entropy", "gain"), means, strict=True))]
    frame = charts.Frame(t("softmax.theory_title", n=row.n), "", "", "linear", x_title=t("softmax.spread"))
    remarks = () if inside else (t("softmax.outside", spread=number(row.spread), entropy=number(row.entropy)),)
    off = float(gaussian_softmax(WRONG_AT, row.n).entropy - beginning(WRONG_AT, row.n))
    said = t("softmax.theory_said", at=f"{WRONG_AT:g}", off=number(off), n=row.n)
    return Told(Picture("theory", charts.curves(drawings, frame, t), frame.title,
                        Subject(extra=("gaussian_entropy", "row_gain")), partial(_means, row.n, spreads, drawn),
                        620, remarks), said)


def _means(n: int, spreads: F64, drawn: Drawn) -> Columns:
    exact = gaussian_softmax(spreads, n)
    columns = {"spread": spreads, "entropy": exact.entropy, "entropy_guess": beginning(spreads, n),
               "entropy_drawn": drawn.entropy, "entropy_2se": 2 * drawn.entropy_error, "gain": exact.gain,
               "gain_drawn": drawn.gain, "gain_2se": 2 * drawn.gain_error}
    return {name: values.tolist() for name, values in columns.items()}


def _keys(row: Row) -> list[int]:
    return list(range(len(row.scores)))
