"""The autopsy of a training: where the first value that is not finite was made, where it spread, how it grew there.

It knows autopsies and charts, not what a remedy is. Without Streamlit: a feed makes its pictures too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from core.autopsy import CELLS, Autopsy
from core.landscape import landscape
from core.lineage import Place
from core.shapes import LARGEST
from core.vocabulary import SITES
from pages.ui import charts, explain
from pages.ui.cases import COUNTS, looked, lost_of, sizes, unexplained
from pages.ui.charts import Cells
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words, escaped
from pages.ui.views import courses, depth
from pages.ui.views.overview import AROUND_PX, column
from pages.ui.views.tokens import chosen
from pages.ui.views.training import curves
from pages.ui.watching import Watched

ROW_PX = 28


def autopsy(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> list[Picture]:
    """The map of the pass in which it was made, then that of the other, and the size there at the steps before."""
    having = [one for one in watched if one.trace is not None]
    remarks = tuple(said for one in having if (said := _skipped(one, t)))
    case = looked(having, shown)
    if case is None:
        finite = depth.said_once({one.name: _finite(one, t) for one in having}, t)
        return [replace(curves.loss(watched, t), remarks=(*finite, *remarks))]
    one, found = case
    passes = [gradient for gradient in (False, True) if not gradient or _says(found)]
    if found.direction == "gradient":
        passes.reverse()
    pictures = [_map(one, found, gradient, t) for gradient in passes]
    first = replace(pictures[0], remarks=(*_another(having, shown, one, t), *remarks))
    return [first, *pictures[1:], *([_history(one, found, t)] if found.earlier.steps else [])]


def _finite(one: Watched, t: Words) -> str:
    assert one.trace is not None
    if (met := unexplained(one)) is not None:
        return explain.unexplained(met, one.name, t)
    return t("autopsy.all_finite", count=len(one.film.steps), step=one.trace.snapshots[-1].step)


def _skipped(one: Watched, t: Words) -> str:
    """Say how many steps a loss scale overflowed in, which is no failure."""
    count = sum(kind == "overflow" for _, kind in one.film.events)
    return t("autopsy.skipped", variant=escaped(one.name), count=count) if count else ""


def _another(watched: Sequence[Watched], shown: Mapping[str, str], one: Watched, t: Words) -> tuple[str, ...]:
    """Say that this is not the variant that was asked for, since that one is finite."""
    asked = chosen(watched, shown)
    return () if asked is one else (t("autopsy.another", asked=escaped(asked.name), variant=escaped(one.name)),)


def _says(found: Autopsy) -> bool:
    """Say whether the gradient's map tells more than that all of it is finite, or that all of it has spread."""
    return found.direction == "gradient" or len({*found.gradient.states.flat} & {"made", "spread", "finite"}) > 1


def _map(one: Watched, found: Autopsy, gradient: bool, t: Words) -> Picture:
    """Return the map of one pass; the frame is around the producer, or around the first that read spoiled weights."""
    assert one.trace is not None
    states = found.gradient if gradient else found.forward
    index = one.trace.steps.index(found.step)
    table = {name: landscape(one.trace, name, gradient, index).values for name in (*COUNTS, "absmax")}
    began, label = _began(found, gradient, t)
    cells = Cells(states, [column(layer, states.layers[-1], t) for layer in states.layers],
                  np.stack([table[name] for name in COUNTS]), table["absmax"], began, label, gradient)
    key = "gradient" if gradient else "forward"
    title = t(f"autopsy.map_{key}", variant=one.name, step=found.step)
    frame = charts.Frame(title=title, statistic="", y_title="", x_title=t("drift.depth"))
    return Picture(f"cells.{key}", charts.cells(cells, frame, t), title,
                   Subject((*COUNTS, "absmax"), gradient=gradient), partial(_table, cells, t),
                   AROUND_PX + ROW_PX * len(states.sites), variant=one.name)


def _began(found: Autopsy, gradient: bool, t: Words) -> tuple[Place | None, str]:
    """Return the cell of one pass in which it began, and what to call it; none where it began elsewhere.

    A parameter's gradient has no cell: it is made beside the gradient of what the parameter made.
    """
    if found.first_read is not None and not gradient:
        output = found.first_read.output
        return (output.layer, output.site) if output.site in SITES else None, t("autopsy.first_seen")
    if found.direction != ("gradient" if gradient else "forward"):
        return None, ""
    if found.site in SITES:
        return (found.layer, found.site), t("autopsy.cell_made")
    read = (operation.output for operation in found.making.operations)
    return next((place for place in read if gradient and place[1] in SITES), None), t("autopsy.by_parameter")


def _table(cells: Cells, t: Words) -> Columns:
    """Return a row a site and layer that exists."""
    rows = [cell for state in CELLS if state != "absent" for cell in cells.at(state)]
    rows.sort(key=lambda cell: (cell[1], cell[0]))
    return {
        t("drift.site"): [cells.map.sites[row] for row, _ in rows],
        t("chart.layer"): [cells.map.layers[place] for _, place in rows],
        t("overview.state"): [t(f"autopsy.cell_{cells.map.states[cell]}") for cell in rows],
        **{name: [float(cells.counts[place, *cell]) for cell in rows] for place, name in enumerate(COUNTS)},
        "absmax": [float(cells.absmax[cell]) for cell in rows],
    }


def _history(one: Watched, found: Autopsy, t: Words) -> Picture:
    """Return the size where it was made, at the recorded steps before and at the one where it broke."""
    (statistic, before), output = sizes(found), found.making.output
    values = np.array([*before, output.absmax if statistic == "absmax" else np.nan])
    lost = np.array([*[0.0] * len(before), lost_of(output)])
    course = charts.Course(one.name, np.array([*found.earlier.steps, found.step]), values, depth.looks([one])[one.name],
                           site=found.site, key=one.variant.key, non_finite=lost,
                           events=(charts.Event(found.step, "non_finite"),))
    name = t(f"statistic.{statistic}") if statistic == "absmax" else t(f"extra.{statistic}")
    gradient = found.direction == "gradient"
    place = explain.named(found.site, found.layer, t, charts.literal)
    title = " · ".join([*([t("drift.of_gradient")] if gradient else []), t("autopsy.history", what=name, place=place)])
    frame = charts.Frame(title=title, statistic=statistic, y_title=name, x_title=t("chart.step"),
                         y_scale="log" if (values[np.isfinite(values)] > 0).any() else "linear",
                         references=_limit(found, t))
    site = (found.site,) if found.site in SITES else ()
    subject = Subject(("absmax",), site, gradient) if statistic == "absmax" else Subject(extra=(statistic,))
    return Picture("history", charts.steps([course], frame, t), title, subject, partial(courses.table, [course], t),
                   curves.SMALL_PX, variant=one.name)


def _limit(found: Autopsy, t: Words) -> dict[str, float]:
    """Return the largest number of the dtype; under a loss scale, which gradients carry, what is left of it."""
    scale = found.how.numbers.get("loss_scale", 1.0) if found.direction == "gradient" and found.site in SITES else 1.0
    key = "autopsy.limit" if scale == 1 else "autopsy.limit_scaled"
    return {t(key, dtype=found.dtype, scale=explain.number(scale)): LARGEST[found.dtype] / scale}
