"""What the softmax lab is asked for, as a link both ways: one row of scores, and the gradient that comes to it.

Reading never fails: what is refused is replaced and becomes a Notice. No Streamlit here, and no words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from core.softmax_row import F64, Row, gaussian_scores, softmax_row, upstream_key, upstream_normal
from pages.ui.link import Notice

CHOICES: Mapping[str, Sequence[str]] = {"source": ("gaussian", "own"), "upstream": ("key", "normal")}
"""Where the scores come from, and which gradient comes to the weights."""


@dataclass(frozen=True)
class Limits:
    """What a number may be."""

    low: float
    high: float
    whole: bool = False

    def read(self, text: str) -> float | None:
        """Return the number that `text` says; None where it says none of these."""
        if not re.fullmatch(r"[0-9]{1,10}" if self.whole else r"[0-9.eE+-]{1,24}", text):
            return None
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return None
        return value if self.low <= value <= self.high else None


NUMBERS: Mapping[str, Limits] = {
    "n": Limits(2, 512, whole=True), "std": Limits(0, 30), "seed": Limits(0, 2**32 - 1, whole=True),
    "temperature": Limits(0.05, 20),
}

MOST, LARGEST = 64, 1e300
"""Of a visitor's own scores: so many, and none larger in size."""

TEXT_LETTERS = 1600


@dataclass(frozen=True)
class Asked:
    """The state of the page; the names are those of the query. `n`, `std`, `seed`: of drawn scores."""

    source: str = "gaussian"
    scores: tuple[float, ...] = (2.0, -1.0, 0.5, 4.0)
    n: int = 64
    std: float = 1.0
    seed: int = 0
    temperature: float = 1.0
    upstream: str = "key"

    def write(self) -> dict[str, str]:
        """Return the query parameters; what is as by default is left out."""
        values, usual = asdict(self), asdict(Asked())
        return {name: _said(value) for name, value in values.items() if value != usual[name]}

    def row(self) -> Row:
        """Return the row of scores."""
        drawn = self.source == "gaussian"
        scores = gaussian_scores(self.n, self.std, self.seed) if drawn else np.array(self.scores)
        return softmax_row(scores, self.temperature)

    def gradient(self, row: Row) -> F64:
        """Return the gradient that comes to the weights of `row`."""
        n = len(row.scores)
        return upstream_normal(n, self.seed) if self.upstream == "normal" else upstream_key(n, row.top)

    def program(self) -> str:
        """Return Python that computes the row and what the page shows of it."""
        scores = (f"gaussian_scores({self.n}, {self.std!r}, {self.seed})" if self.source == "gaussian"
                  else f"np.array([{', '.join(_literal(value) for value in self.scores)}])")
        upstream = f"upstream_normal(len(row.scores), {self.seed})" if self.upstream == "normal" else (
            "upstream_key(len(row.scores), row.top)")
        return ("import numpy as np\n\nfrom core.softmax_row import gaussian_scores, softmax_row, upstream_key, "
                f"upstream_normal\n\nrow = softmax_row({scores}, {self.temperature!r})\n"
                f"gradient = row.gradient({upstream})\n"
                "print(row.p, row.entropy, row.jacobian_norm, gradient)\n")


def _literal(value: float) -> str:
    return repr(value) if math.isfinite(value) else "-np.inf"


PARAMETERS = tuple(asdict(Asked()))

PRESETS: Mapping[str, Asked] = {
    "typical": Asked(),
    "uniform": Asked(std=0.0),
    "saturated": Asked(std=8.0, seed=5),
    "one_hot": Asked("own", (40.0, *[0.0] * 7)),
}
"""Rows to begin with."""


def read(query: Mapping[str, str]) -> tuple[Asked, list[Notice]]:
    """Return what `query` asks for, and a notice for each part of it that was refused and replaced."""
    notices: list[Notice] = []
    usual, found = asdict(Asked()), dict[str, Any]()
    for name in PARAMETERS:
        text = query.get(name, "")
        if name == "scores" and text:
            found[name], notice = scores_of(text)
            notices += [notice] if notice else []
        elif text:
            found[name] = _value(name, text)
            notices += [] if found[name] is not None else [Notice("link.choice", {
                "name": name, "value": text[:60], "allowed": _allowed(name), "used": str(usual[name])})]
    return Asked(**{name: value for name, value in found.items() if value is not None}), notices


def scores_of(text: str) -> tuple[tuple[float, ...] | None, Notice | None]:
    """Return the scores that a visitor wrote, or why they are refused."""
    parts = [part for part in re.split(r"[\s,;，、；]+", text[:TEXT_LETTERS].replace("−", "-")) if part]
    values = [_score(part) for part in parts]
    if None in values:
        refused = parts[values.index(None)][:40]
        return None, Notice("softmax.refused_score", {"value": refused, "limit": spelled([LARGEST]).replace("+", "")})
    if not 2 <= len(parts) <= MOST or len(text) > TEXT_LETTERS:
        return None, Notice("softmax.refused_count", {"count": str(len(parts)), "limit": str(MOST)})
    scores = tuple(value for value in values if value is not None)
    if not any(map(math.isfinite, scores)):
        return None, Notice("softmax.refused_masked", {})
    return scores, None


def _score(text: str) -> float | None:
    """Return one score: a number of a size that can be drawn, or −∞, a masked key."""
    if text.lower() in ("-inf", "-infinity", "-∞"):
        return -math.inf
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST else None


def _value(name: str, text: str) -> str | float | None:
    if name in NUMBERS:
        return NUMBERS[name].read(text)
    return text if text in CHOICES[name] else None


def _allowed(name: str) -> str:
    return f"{NUMBERS[name].low:g} … {NUMBERS[name].high:.10g}" if name in NUMBERS else ", ".join(CHOICES[name])


def spelled(scores: Sequence[float], between: str = ", ") -> str:
    """Write scores so that `scores_of` reads the same."""
    return between.join(repr(float(value)).removesuffix(".0") for value in scores)


def _said(value: object) -> str:
    if isinstance(value, float | tuple):
        return spelled(value if isinstance(value, tuple) else (value,), ",")
    return str(value)
