"""The ranking of the norm bench as a table and as sentences: the numbers of every candidate, and what differs.

It knows rows and criteria; it draws no chart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.drift import verdicts
from core.norm_bill import bill
from core.outcomes import OUTCOMES
from core.ranking import CRITERIA, Finding, Row, findings, ranked
from core.rules import attends
from pages.ui import explain
from pages.ui.cache import Measured
from pages.ui.picture import Columns
from pages.ui.text import Words, escaped
from pages.ui.views.bench import HEADS, Bench

READ = ("growth", "grad_ratio", "token_cosine", "entropy_norm")
"""What is read off a trace; the loss is read after a training, and the rest is the bill of the norms."""

SPOKEN: dict[str, Callable[[float], str]] = {
    "norm_seconds": lambda value: explain.number(1e3 * value),
    "norm_bytes": lambda value: explain.number(value / 2**20),
}
"""Column → its number in the unit that its head says; others are said as they are."""


def rows(bench: Bench) -> list[Row]:
    """Return the numbers of every candidate; one without a norm has no bill of norms, one without heads no entropy."""
    return [_row(one, bench) for one in bench.measured]


def _row(one: Measured, bench: Bench) -> Row:
    assert one.trace is not None
    heads = attends(one.experiment)
    values = {name: OUTCOMES[name].read(one.trace) for name in READ if heads or name != HEADS}
    if one.name in bench.losses:
        values["loss"] = bench.losses[one.name]
    if bench.costs is not None and (billed := bill(one.experiment, bench.costs)).calls:
        values |= {"norm_seconds": sum(billed.seconds), "norm_bytes": sum(billed.bytes)}
    alarms = tuple(verdict.code for verdict in verdicts(one.trace, one.experiment) if verdict.alarm)
    return Row(one.name, values, alarms)


def table(bench: Bench, measured: Sequence[Row], by: str, t: Words) -> str:
    """Return all candidates as a table in Markdown, the best first, the column that decides in bold."""
    found = ranked(measured, by)
    names = [name for name in (*READ, *CRITERIA) if any(name in row.values for row in found)]
    columns = list(dict.fromkeys(names))
    said = {one.name: _verdicts(one, t) for one in bench.measured}
    heads = ["#", t("drift.variant"), t("bench.verdict"), *(t(f"bench.column_{name}") for name in columns)]
    lines = [[str(place + 1), f"**{escaped(row.name)}**", said[row.name],
              *(_cell(row, name, name == by) for name in columns)] for place, row in enumerate(found)]
    ruler = [":-:", ":--", ":--", *["--:"] * len(columns)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in (heads, ruler, *lines))


def _cell(row: Row, name: str, decides: bool) -> str:
    if name not in row.values:
        return "–"
    said = SPOKEN.get(name, explain.number)(row.values[name])
    return f"**{said}**" if decides else said


def _verdicts(one: Measured, t: Words) -> str:
    """Say the alarms in a few words; of none, how the stream is."""
    assert one.trace is not None
    found = verdicts(one.trace, one.experiment)
    alarms = [verdict for verdict in found if verdict.alarm]
    icon = ":red[:material/error:]" if alarms else ":green[:material/check_circle:]"
    heads = [explain.sentence(verdict, t).partition(t("drift.colon"))[0] for verdict in alarms or found[:1]]
    return f"{icon} {' · '.join(dict.fromkeys(heads))}"


def summary(measured: Sequence[Row], t: Words) -> str:
    """Say in short in what the candidates differ, with who is ahead there, and in what they do not."""
    found = findings(measured)
    named = {one.criterion: t(f"bench.column_{one.criterion}") for one in found}
    apart = [t("bench.ahead", name=named[one.criterion], best=escaped(one.best.name))
             for one in found if one.code == "apart"]
    alike = [named[one.criterion] for one in found if one.code == "same"]
    parts = {"bench.short_apart": apart, "bench.short_same": alike}
    return " ".join(t(key, names=t("bench.between").join(names)) for key, names in parts.items() if names)


def said(measured: Sequence[Row], t: Words) -> list[str]:
    """Say of each criterion whether the candidates differ in it, and who is best and worst."""
    return [_finding(one, t) for one in findings(measured)]


def _finding(one: Finding, t: Words) -> str:
    say, criterion = SPOKEN.get(one.criterion, explain.number), CRITERIA[one.criterion]
    icon = ":orange[:material/compare_arrows:]" if one.code == "apart" else ":gray[:material/drag_handle:]"
    numbers = {"best": escaped(one.best.name), "low": say(one.best.values[one.criterion]),
               "worst": escaped(one.worst.name), "high": say(one.worst.values[one.criterion])}
    limit = t(f"bench.limit_{criterion.kind}", limit=explain.number(criterion.limit))
    head = f"{icon} **{t(f'bench.column_{one.criterion}')}**{t('drift.colon')}"
    return head + t(f"bench.{one.code}", limit=limit, **numbers)


def columns(found: Sequence[Row], t: Words) -> Columns:
    """Return the ranking as a table to take away, in full precision."""
    names = list(dict.fromkeys(name for row in found for name in row.values))
    return {t("drift.variant"): [row.name for row in found],
            **{name: [row.values.get(name) for row in found] for name in names},
            t("bench.verdict"): [" ".join(row.alarms) for row in found]}
