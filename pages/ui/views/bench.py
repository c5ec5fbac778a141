"""The pictures of the norm bench: candidates over depth, overlaid and as small multiples, and what their norms cost.

It knows candidates and what was measured of them; who asked for it, and when, is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from core.bench import AXES, Candidate
from core.look import DIRECTIONS, MEASURED, WAYS
from core.norm_bill import Costs, is_fused, microseconds, passes, ratios
from core.vocabulary import STREAM
from pages.ui import charts, explain, theme
from pages.ui.cache import Measured
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.text import Words
from pages.ui.views import attention, depth
from pages.ui.views.depth import Number, Shown

HEADS = "entropy_norm"
"""The measure of heads that stands for entropy."""

FACET_PX, AROUND_PX = 300, 150
"""Height of a row of small multiples, and of what stands around them."""


@dataclass(frozen=True)
class Bench:
    """What there is to show: the finished candidates by name, in order, with what was measured of each.

    `losses`: loss after the training, of those that are trained; `costs`: of norms, where they were measured; `costed`:
    the experiment in which they were; `after`: the number of steps.
    """

    candidates: Mapping[str, Candidate]
    measured: Sequence[Measured]
    losses: Mapping[str, float] = field(default_factory=dict)
    costs: Costs | None = None
    costed: Measured | None = None
    after: int = 0


@dataclass(frozen=True)
class Depth:
    """One number over depth. `series`: of one candidate; `picture`: of all, overlaid, by a scale; `kind`: its words."""

    series: Callable[[Measured], charts.Series | None]
    picture: Callable[[Sequence[Measured], str, Words], Picture]
    subject: Subject
    title: Callable[[Words], str]
    logarithmic: bool


def _of_site(statistic: str, gradient: bool = False) -> Depth:
    number, logarithmic = Number(statistic, STREAM, gradient), statistic in depth.SIZES
    return Depth(partial(depth.series_of, number=number),
                 lambda measured, scale, t: depth.lines(measured, number, scale if logarithmic else "linear", t,
                                                        f"bench.{number.name}", depth.SMALL_PX),
                 Subject((statistic,), (STREAM,), gradient),
                 lambda t: depth.titled(number, depth.at(STREAM, t), t), logarithmic)


DEPTHS: dict[str, Depth] = {
    "stream": _of_site("rms"),
    "gradient": _of_site("rms", gradient=True),
    "cosine": _of_site("token_cosine"),
    "entropy": Depth(partial(attention.mean_of_heads, measure=HEADS),
                     lambda measured, _scale, t: attention.mean_lines(measured, HEADS, t), Subject(extra=(HEADS,)),
                     lambda t: t("entropy.mean_title", measure=t(f"head.{HEADS}")), False),
}
"""Name of a number over depth, as the place has it → what it is."""


def overlay(bench: Bench, shown: Shown, t: Words) -> list[Picture]:
    """All four numbers over depth, all candidates in one chart each."""
    return [one.picture(bench.measured, shown["scale"], t) for one in DEPTHS.values()]


def multiples(bench: Bench, shown: Shown, t: Words) -> list[Picture]:
    """One number over depth, a facet for each placement, init and scaling, a line a norm."""
    kind = DEPTHS[shown["number"]]
    series = {one.name: kind.series(one) for one in bench.measured}
    norms = {name: one.names["norms"] for name, one in bench.candidates.items()}
    compared = list(dict.fromkeys(norms.values()))
    styles = dict(zip(compared, theme.distinct([theme.style(norm) for norm in compared]), strict=True))
    groups: dict[str, list[charts.Series]] = {}
    for facet, members in _facets(bench, t).items():
        groups[facet] = [replace(line, name=spoken("norms", norms[name], t), key=norms[name], style=styles[norms[name]])
                         for name in members if (line := series.get(name)) is not None]
    values = [line.values for line in series.values() if line is not None]
    scale = depth.positive(values, shown["scale"]) if kind.logarithmic else "linear"
    title = kind.title(t)
    frame = charts.Frame(title=title, statistic="", y_title="", x_title=t("drift.depth"), y_scale=scale)
    height = AROUND_PX + FACET_PX * charts.facet_rows(len(groups))
    figure = charts.multiples(groups, frame, t) if values else None
    return [Picture("multiples", figure, title, kind.subject, partial(depth.table, series, t), height,
                    () if values else (t("bench.none"),))]


def _facets(bench: Bench, t: Words) -> dict[str, list[str]]:
    """Return title → candidates of each facet; a stack without a norm has no placement and stands in each."""
    differing = [axis for axis in AXES if axis != "norms"
                 and len({one.names[axis] for one in bench.candidates.values()}) > 1]
    keys = dict.fromkeys(tuple(one.names[axis] for axis in differing) for one in bench.candidates.values())
    facets = [dict(zip(differing, key, strict=True)) for key in keys]
    return {" · ".join(spoken(axis, value, t) for axis, value in facet.items()) or t("bench.all_norms"):
            [name for name, one in bench.candidates.items() if _belongs(one, facet)] for facet in facets}


def _belongs(one: Candidate, facet: Mapping[str, str]) -> bool:
    """Say whether a candidate stands in a facet of these names; without a norm there is no placement."""
    return all(one.names[axis] == name or (axis == "placements" and not one.placed) for axis, name in facet.items())


def spoken(axis: str, name: str, t: Words) -> str:
    """Return what a visitor reads as a name on an axis."""
    return t(f"{axis.removesuffix('s')}.{name}")


def costs(bench: Bench, shown: Shown, t: Words) -> list[Picture]:
    """Time and traffic of one call of every norm, fused and written out, in one direction."""
    if bench.costs is None or bench.costed is None:
        return []
    costed, direction = bench.costed.experiment, DIRECTIONS.index(shown["way"])
    source = costed.input
    seconds = bench.costs["seconds"][:, :, direction].astype(np.float64)  # (N, 2, 3)
    counts = passes(costed, bench.costs)[:, :, direction].astype(np.float64)
    where = t("bench.tokens", tokens=source.batch * source.seq_len, features=costed.model.d_model,
              dtype=costed.protocol.dtype)
    low, middle, high = np.moveaxis(1e6 * seconds, -1, 0)  # (N, 2) each
    timed = [charts.Member(t(f"bench.way_{way}"), middle[:, place], low[:, place], high[:, place])
             for place, way in enumerate(WAYS)]
    counted = [charts.Member(t(f"bench.way_{way}"), counts[:, place]) for place, way in enumerate(WAYS)]
    way = t(f"drift.way_{shown['way']}")
    return [_grouped(timed, ("seconds", f"{way} · {where}", "µs"), bench.costs, t),
            _grouped(counted, ("passes", f"{way} · {where}", ""), bench.costs, t)]


def _grouped(members: Sequence[charts.Member], about: tuple[str, str, str], found: Costs, t: Words) -> Picture:
    """Return a picture of all norms. `about`: its key, what its title adds, and the unit."""
    key, where, unit = about
    title = t(f"bench.{key}_title", where=where)
    axis = t(f"bench.{key}")
    frame = charts.Frame(title=title, statistic=axis, y_title=f"{axis} ({unit})" if unit else axis, unit=unit)
    names = [spoken("norms", name, t) for name in MEASURED]
    return Picture(key, charts.groups(names, members, frame, t), title, Subject(extra=(f"norm_{key}",)),
                   partial(_cost_table, found, t), depth.LARGE_PX)


def _cost_table(found: Costs, t: Words) -> Columns:
    """Return a row a norm, way and direction."""
    cells = list(np.ndindex(found["bytes"].shape))
    return {
        t("field.norm"): [MEASURED[norm] for norm, _, _ in cells],
        t("bench.way"): [WAYS[way] for _, way, _ in cells],
        t("drift.way"): [DIRECTIONS[direction] for _, _, direction in cells],
        **{f"seconds_{name}": [float(found["seconds"][(*cell, place)]) for cell in cells]
           for place, name in enumerate(("q25", "q50", "q75"))},
        **{name: [float(found[name][cell]) for cell in cells] for name in ("bytes", "kernels")},
    }


def said_of_costs(bench: Bench, t: Words) -> list[str]:
    """Say what the costs of the compared norms come to, each against the first, and which has no fused kernel here."""
    measured = [name for one in bench.candidates.values() if (name := one.names["norms"]) in MEASURED]
    if bench.costs is None or not measured:
        return []
    first, *others = dict.fromkeys(measured)
    names = {name: spoken("norms", name, t) for name in (first, *others)}
    said = [t("bench.cost_first", norm=names[first], **_numbers(microseconds(bench.costs, first)))]
    said += [t("bench.cost_other", norm=names[name], first=names[first], **_numbers(ratios(bench.costs, name, first)))
             for name in others]
    return [*said, *unfused(bench, t)]


def unfused(bench: Bench, t: Words) -> list[str]:
    """Say which of the compared norms have no kernel of their own on this device."""
    costs, used = bench.costs, {one.names["norms"] for one in bench.candidates.values()} & set(MEASURED)
    names = [spoken("norms", name, t) for name in sorted(used) if costs is not None and not is_fused(costs, name)]
    return [t("bench.unfused", norms=t("allowed.and").join(names))] if names else []


def _numbers(values: Mapping[str, float]) -> dict[str, str]:
    return {name: explain.number(value) for name, value in values.items()}
