"""Where the numbers of a hand-out come from, and how to compute them again: provenance, settings, commands, Python.

It turns runs into the sections of a hand-out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from core import service
from core.comparison import Pairing, pairing
from core.experiment import Experiment
from core.rules import TEXT_HASH
from pages.ui import explain, stored
from pages.ui.cache import Measured
from pages.ui.handout import Section
from pages.ui.handout_blocks import Code, Prose, Table
from pages.ui.picture import Columns
from pages.ui.text import Words
from pages.ui.views.depth import said_once

TIMES = ("created", "started", "finished")


def sections(measured: Sequence[Measured], t: Words, together: bool = True) -> list[Section]:
    """Return whence the numbers are, as tables with a column a run, and how to compute them again.

    `together`: whether the runs are one comparison, of which it is said how they are paired and were taken. Of nothing,
    nothing.
    """
    if not measured:
        return []
    views = service.view([one.run.id for one in measured])
    told = [replace(one, run=view) for one, view in zip(measured, views, strict=True)]
    known = Section(t("runs.provenance"), [
        Prose(_common(told, t) if together else "", "lead"), Prose(t("handout.utc"), "lead"),
        Table(t("handout.runs"), _facts(told, t)), Table(t("runs.experiment"), _settings(told, _changes(told), t))])
    return [known, again(told, t)]


def again(measured: Sequence[Measured], t: Words) -> Section:
    """Return how to compute runs again: their command lines, a program, their settings as JSON."""
    changes = _changes(measured)
    own = any(str(one.experiment.input.text).startswith(TEXT_HASH) for one in measured)
    closer = any(one.closer or (one.trace and one.trace.snapshots[-1].looks) for one in measured)
    more = [*([t("handout.text")] if own else []), *([t("handout.closer")] if closer else [])]
    commands = "\n".join(stored.command_of(changes[one.name], one.run.id) for one in measured)
    contents = {one.name: service.experiment(one.run.id) for one in measured}
    return _again(commands, python(changes), contents, t, *more)


def _changes(measured: Sequence[Measured]) -> dict[str, Mapping[str, Any]]:
    """Return in what each run differs from the default experiment."""
    return {one.name: stored.described(service.experiment(one.run.id), _device(one))[2] for one in measured}


def of_grid(base: Experiment, axes: Mapping[str, Sequence[Any]], t: Words) -> Section:
    """Return how to compute a sweep again. `axes`: field → values."""
    changes = base.differences()
    program = ("from core.archive import play\nfrom core.experiment import Experiment\nfrom core.sweep import grid\n\n"
               f"base = Experiment().with_values({dict(changes)!r})\ncells = grid(base, {dict(axes)!r})\n"
               "traces = {cell.name: play(cell.experiment, keep=False).trace for cell in cells if cell.experiment}\n")
    return _again(stored.command_of_grid(changes, axes), program, {"": base.canonical_json()}, t)


def of_code(program: str, t: Words) -> Section:
    """Return how to compute again what needs no run."""
    return _again("", program, {}, t)


def _again(command: str, program: str, experiments: Mapping[str, str], t: Words, *more: str) -> Section:
    """Return the section. `experiments`: by the name of their variant; `more`: what is said besides."""
    return Section(t("handout.again"), [
        Prose("  \n".join([t("handout.folder"), *more]), "lead"),
        *([Code(t("runs.command"), command, language="sh")] if command else []),
        Code(t("handout.python"), program, language="python"),
        *(Code(" · ".join(filter(None, [name, t("runs.json")])), content, folded=True, language="json")
          for name, content in experiments.items())])


def _device(one: Measured) -> str:
    return str(one.run.provenance.get("device", "cpu"))


def paired(experiments: Sequence[Experiment], provenances: Sequence[Mapping[str, Any]]) -> Pairing | None:
    """Return how runs are paired; None for a single one, and where not every one has recorded yet what tells."""
    prints = [one["pairing"] for one in provenances if one.get("pairing")]
    return pairing(experiments, prints) if 1 < len(prints) == len(provenances) else None


def _common(measured: Sequence[Measured], t: Words) -> str:
    """Say how the variants are paired, and under which protocol the numbers were taken."""
    found = paired([one.experiment for one in measured], [one.run.provenance for one in measured])
    said = {one.name: explain.protocol(one.experiment, one.run.provenance, t) for one in measured}
    return "  \n".join([*([] if found is None else explain.paired(found, t)), *said_once(said, t)])


def _facts(measured: Sequence[Measured], t: Words) -> Columns:
    """Return where each run's numbers come from."""
    known = [name for name in stored.FACTS if any(name in one.run.provenance for one in measured)]
    names = [t("runs.run"), *(t(f"runs.fact_{name}") for name in known), *(t(f"runs.{name}") for name in TIMES)]
    return {"": names, **{one.name: [one.run.id, *(one.run.provenance.get(name) for name in known),
                                     *(_moment(getattr(one.run, name)) for name in TIMES)] for one in measured}}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _settings(measured: Sequence[Measured], changes: Mapping[str, Mapping[str, Any]], t: Words) -> Columns:
    """Return the fields in which a run differs from the default experiment, and what they are in each."""
    paths = list(dict.fromkeys(path for one in changes.values() for path in one))
    default = Experiment().paths()
    return {t("runs.field"): [stored.named(path, t) for path in paths],
            **{one.name: [stored.valued(path, changes[one.name].get(path, default[path]), t) for path in paths]
               for one in measured}}


def python(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a program that computes the traces of experiments, given as what each changes of the default one."""
    rows = "".join(f"    {name!r}: {dict(one)!r},\n" for name, one in changes.items())
    return ("from core.archive import play\nfrom core.experiment import Experiment\n\n"
            f"changes = {{\n{rows}}}\n"
            "traces = {name: play(Experiment().with_values(one), keep=False).trace for name, one in changes.items()}\n")
