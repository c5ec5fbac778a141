"""The picture of a sweep: a cell for each experiment of the grid, coloured by what its run came to.

It knows cells and numbers; who computes them, and when, is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from core.outcomes import OUTCOMES
from core.sweep import Cell
from pages.ui import charts, explain, fields
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views.depth import Shown, fitting

ROW_PX, AROUND_PX, WRITTEN_CELLS = 44, 210, 150
"""Height of a row and of what stands around the map; up to so many cells have their number written in them."""


@dataclass(frozen=True)
class State:
    """What became of a cell: its run ("" while there is none), and its number, None as long as it is not known.

    `status`: done, refused, waiting, running, failed, or absent: nobody has asked for it yet; `error`: why it failed.
    """

    cell: Cell
    status: str
    run: str = ""
    value: float | None = None
    error: str = ""

    def reason(self, t: Words) -> str:
        """Say why the cell is refused or has failed, as it is read; nothing elsewhere."""
        return self.error if self.cell.refused is None else explain.refused(self.cell.refused, t, str)


def number_of(shown: Shown, t: Words) -> str:
    """Say which number the cells show."""
    if shown["outcome"] == "site":
        statistic = ("grad_" if shown["of"] == "gradient" else "") + shown["stat"]
        return t("sweep.at_site", statistic=statistic, site=shown["site"])
    return t("sweep.of_heads", measure=t(f"head.{shown['measure']}")) if shown["outcome"] == "head" else t(
        f"outcome.{shown['outcome']}")


def axes_of(states: Sequence[State], t: Words) -> tuple[list[str], list[str]]:
    """Return the names of the columns and of the rows; of a sweep over one field the row has none."""
    across, *down = states[0].cell.values
    return _names(states, across, t), _names(states, down[0], t) if down else [" "]


def sweep_map(states: Sequence[State], shown: Shown, t: Words) -> Picture:
    """Draw the grid; a click on a cell chooses it."""
    columns, rows = axes_of(states, t)
    placed = np.array(states, object).reshape(len(columns), len(rows)).T  # (R, C): the second field changes fastest
    values = _read(placed, lambda state: np.nan if state.value is None else state.value)
    known = _read(placed, lambda state: state.value is not None).astype(bool)
    texts = [[explain.number(state.value) if state.value is not None else "" for state in row] for row in placed]
    title = t("sweep.map_title", number=number_of(shown, t))
    across, *down = (fields.label(path, t) for path in states[0].cell.values)
    frame = charts.Frame(title=title, statistic=_short(shown), x_title=across, y_title=down[0] if down else "",
                         y_scale=_scale(values, shown))
    exists = _read(placed, lambda state: state.status != "refused").astype(bool)
    grid = charts.Grid(columns, rows, values, exists, known,
                       texts=texts if values.size <= WRITTEN_CELLS else None,
                       hovers=[[_says(state, t) for state in row] for row in placed], unseen="sweep.cell_absent")
    return Picture("sweep", charts.grid(grid, frame, t), title, _subject(shown), partial(_table, states, shown, t),
                   AROUND_PX + ROW_PX * max(len(rows), 4), picks=True)


def _read(placed: np.ndarray, read: Callable[[State], float]) -> np.ndarray:
    return np.array([[read(state) for state in row] for row in placed], np.float64)


def _names(states: Sequence[State], path: str, t: Words) -> list[str]:
    """Return the values of a field as a visitor reads them, each once."""
    spoken = fields.spoken_value(path.partition(".")[2], t)
    return [spoken(code) for code in dict.fromkeys(_code(one, path) for one in states)]


def _says(state: State, t: Words) -> str:
    """Say a cell's values, and what became of it."""
    named = [f"{fields.label(path, t)}: {charts.literal(_names([state], path, t)[0])}" for path in state.cell.values]
    became = [] if state.status == "done" else [t(f"sweep.cell_{state.status}", reason=charts.literal(state.reason(t)))]
    return "<br>".join([*named, *became])


def _short(shown: Shown) -> str:
    return {"site": shown["stat"], "head": shown["measure"]}.get(shown["outcome"], shown["outcome"])


def _scale(values: np.ndarray, shown: Shown) -> str:
    """Return the scale of the colours: logarithmic for what spans decades, where it can be."""
    if shown["outcome"] == "site":
        return fitting([values.ravel()], "log", shown["stat"])
    wanted = OUTCOMES[shown["outcome"]].scale if shown["outcome"] in OUTCOMES else "linear"
    finite = values[np.isfinite(values)]
    return "log" if wanted == "log" and finite.size and (finite > 0).all() else "linear"


def _subject(shown: Shown) -> Subject:
    if shown["outcome"] == "site":
        return Subject((shown["stat"],), (shown["site"],), shown["of"] == "gradient")
    return Subject(extra=(shown["measure"] if shown["outcome"] == "head" else f"outcome_{shown['outcome']}",))


def _table(states: Sequence[State], shown: Shown, t: Words) -> Columns:
    """Return a row a cell."""
    return {
        **{path: [_code(one, path) for one in states] for path in states[0].cell.values},
        _short(shown): [one.value for one in states],
        t("sweep.status"): [t(f"sweep.status_{one.status}") for one in states],
        t("sweep.run"): [one.run for one in states],
    }


def _code(state: State, path: str) -> str:
    return fields.codes({path: state.cell.values[path]})[0].partition("=")[2]
