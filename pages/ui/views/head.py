"""One attention head, looked at closely: its weights over the text it reads, chosen on the map of all heads.

It knows tokens and how weights are arranged; which head is looked at, the engine is asked for beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from core import token_table
from core.experiment import Experiment
from core.look import HeadLook, block
from core.rules import attends
from core.trace import Snapshot
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import attention
from pages.ui.views.depth import Shown
from pages.ui.views.tokens import focus, layer_of

MAP_PX = 880


def look(experiment: Experiment, shown: Mapping[str, str]) -> HeadLook | None:
    """Return which head is looked at; None where no layer attends."""
    if not attends(experiment):
        return None
    return HeadLook(layer_of(shown, experiment.model.n_layers), int(shown["head"]), int(shown["sequence"]))


def weights(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The map of every head with a frame around the one that is looked at, and the weights of that one."""
    one, _ = focus(measured, shown)
    of_all = attention.head_map(measured, {**shown, "measure": "entropy_norm"}, t)
    wanted = look(one.experiment, shown)
    if wanted is None or of_all.figure is None:
        return [of_all]
    of_all.figure.add_shape(
        type="rect", x0=wanted.layer - 0.5, x1=wanted.layer + 0.5, y0=wanted.head - 0.5, y1=wanted.head + 0.5,
        line={"width": 5})
    return [of_all] if one.closer is None else [of_all, _weights(one, one.closer, wanted, t)]


def _weights(one: Measured, seen: Snapshot, wanted: HeadLook, t: Words) -> Picture:
    title = t("entropy.weights_title", variant=one.name, layer=wanted.layer, head=wanted.head)
    table = _arranged(one, seen, wanted.sequence)
    frame = charts.Frame(title=title, statistic=t("entropy.weight"), y_title=t("entropy.query"),
                         x_title=t("entropy.key"))
    size = block(one.experiment.input.seq_len)
    remarks = (t("entropy.blocks", size=size),) if size > 1 else ()
    return Picture("weights", charts.weights(table, frame, t), title, Subject(extra=("weights", "entropy_norm")),
                   partial(_columns, table, t), MAP_PX, remarks, variant=one.name)


def _arranged(one: Measured, seen: Snapshot, sequence: int) -> charts.Weights:
    """Return the weights with what each cell stands for."""
    length, size = one.experiment.input.seq_len, block(one.experiment.input.seq_len)
    starts = range(0, length, size)
    written = token_table.symbols(seen, one.experiment.input.source)[sequence * length:(sequence + 1) * length]
    names = ["".join(written[start:start + size]) for start in starts]
    places = [str(start) if size == 1 else f"{start}–{min(start + size, length) - 1}" for start in starts]
    values = seen.looks["weights"].astype(np.float64)
    return charts.Weights(values, ~(values < 0), places, names, one.name)


def _columns(table: charts.Weights, t: Words) -> Columns:
    """Return a row for each query and key that it sees."""
    cells = np.argwhere(table.exists)
    rows, columns = cells.T.tolist()
    return {
        t("entropy.query"): [table.places[row] for row in rows],
        t("entropy.query_text"): [table.names[row] for row in rows],
        t("entropy.key"): [table.places[column] for column in columns],
        t("entropy.key_text"): [table.names[column] for column in columns],
        t("entropy.weight"): [float(table.values[row, column]) for row, column in cells],
    }
