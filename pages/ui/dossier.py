"""What is handed out of measured runs: pictures and judgements, where the numbers come from, how to repeat them.

It turns runs and views into the sections of a hand-out; how a file is made of them is in `pages.ui.handout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from core import service
from core.comparison import pairing
from core.experiment import Experiment
from core.learning import UNDECIDED
from core.rules import TEXT_HASH
from pages.ui import explain, feed, handout, judging, stored
from pages.ui.cache import Measured
from pages.ui.handout import Said, Section
from pages.ui.judging import Judged
from pages.ui.link import Variant
from pages.ui.picture import Columns
from pages.ui.text import Words
from pages.ui.views import Lab, Viewpoint
from pages.ui.views.depth import said_once
from pages.ui.views.training import LiveView
from pages.ui.watching import Watched

Shown = Mapping[str, str]
TIMES = ("created", "started", "finished")


def page(title: str, sections: Sequence[Section], measured: Sequence[Measured], t: Words) -> bytes:
    """Return the file of these sections, with the origin of the measured numbers below."""
    return handout.page(title, t("handout.lead"), [*_once(sections), *_origin(measured, t)], t).encode()


def of_page(place: str, looked: Viewpoint, measured: Sequence[Measured], shown: Shown, t: Words) -> bytes:
    """Return the file of what a page that compares shows; traces are read anew. Errors: StoreError."""
    again = [_again(one) for one in measured]
    return page(t(f"{place}.title"), [of_view(place, looked, again, shown, t)], again, t)


def of_live(looked: LiveView, runs: Sequence[tuple[str, Variant]], shown: Shown, t: Words) -> bytes:
    """Return the file of what the live page shows of trainings, as they are now. Errors: StoreError."""
    again = feed.watch(runs)
    return page(t("live.title"), [of_trainings(looked, again, shown, t)], again, t)


def of_lab(place: str, looked: Lab, shown: Shown, t: Words) -> bytes:
    """Return the file of a view of numbers alone: each of its pictures below what is said of it."""
    sections = [Section(one.picture.label, pictures=[one.picture], said={"": [Said(one.said, one.alarm)]})
                for one in looked.make(shown, t)]
    title = [t(f"{place}.title"), t(f"{place}_view.{shown['view']}")]
    return handout.page(" · ".join(title), t("handout.lead"), sections, t).encode()


def _again(one: Measured) -> Measured:
    if isinstance(one, Watched):
        return feed.watch([(one.run.id, one.variant)])[0]
    return replace(one, trace=service.trace(one.run.id))


def of_view(place: str, looked: Viewpoint, measured: Sequence[Measured], shown: Shown, t: Words) -> Section:
    """Return a view of a page as a section: its pictures, and what the traces tell."""
    return replace(_section(place, shown, measured, judging.of_view(looked, measured, shown), t),
                   pictures=looked.make(measured, shown, t))


def of_trainings(looked: LiveView, watched: Sequence[Watched], shown: Shown, t: Words) -> Section:
    """Return a view of trainings as a section: its pictures, and what each training has come to."""
    lead = t("handout.last_step", step=feed.steps(watched)[-1]) if looked.player else ""
    return replace(_section("live", shown, watched, [judging.of_training(one) for one in watched], t),
                   pictures=looked.make(watched, shown, t), lead=lead)


def _section(place: str, shown: Shown, measured: Sequence[Measured], judged: Sequence[Judged], t: Words) -> Section:
    traces = {one.name: one.trace for one in measured if one.trace is not None}
    return Section(t(f"{place}_view.{shown['view']}"), traces=traces,
                   said={one.name: _said(one, t) for one in judged})


def _said(judged: Judged, t: Words) -> list[Said]:
    """Say the judgements on one variant; what was to be expected of several in a row, once."""
    found = []
    for place, verdict in enumerate(judged.verdicts):
        spoken = place < judged.spoken
        follows = [one.expected for one in judged.verdicts[place + 1:judged.spoken][:1]]
        expected = verdict.expected if verdict.expected not in follows else ""
        waits = verdict.code in UNDECIDED and not verdict.alarm
        found.append(Said(explain.sentence(verdict, t), None if waits else verdict.alarm,
                          t(f"expected.{expected}") if expected else "", folded=not spoken))
    return found


def _once(sections: Sequence[Section]) -> list[Section]:
    """Return the sections without what is folded in one and told in another before it."""
    told = set[tuple[str, str]]()
    found = []
    for section in sections:
        said = {name: [one for one in sentences if not (one.folded and (name, one.text) in told)]
                for name, sentences in (section.said or {}).items()}
        told |= {(name, one.text) for name, sentences in said.items() for one in sentences}
        found.append(replace(section, said=said))
    return found


def _origin(measured: Sequence[Measured], t: Words) -> list[Section]:
    """Return whence the numbers are, as tables with a column a run, and how to compute them again."""
    views = service.view([one.run.id for one in measured])
    told = [replace(one, run=view) for one, view in zip(measured, views, strict=True)]
    contents = {one.name: service.experiment(one.run.id) for one in told}
    changes = {one.name: stored.described(contents[one.name], _device(one))[2] for one in told}
    known = Section(t("runs.provenance"), _common(told, t), tables={
        t("handout.runs"): _facts(told, t), t("runs.experiment"): _settings(told, changes, t)})
    own = any(str(one.experiment.input.text).startswith(TEXT_HASH) for one in told)
    closer = any(one.closer or (one.trace and one.trace.snapshots[-1].looks) for one in told)
    lead = [t("handout.folder"), *([t("handout.text")] if own else []), *([t("handout.closer")] if closer else [])]
    commands = "\n".join(stored.command_of(changes[one.name], one.run.id) for one in told)
    again = Section(t("handout.again"), "  \n".join(lead),
                    codes={t("runs.command"): commands, t("handout.python"): python(changes)},
                    folded={f"{name} · {t('runs.json')}": content for name, content in contents.items()})
    return [known, again]


def _device(one: Measured) -> str:
    return str(one.run.provenance.get("device", "cpu"))


def _common(measured: Sequence[Measured], t: Words) -> str:
    """Say how the variants are paired, and under which protocol the numbers were taken."""
    prints = [one.run.provenance["pairing"] for one in measured if "pairing" in one.run.provenance]
    paired = pairing([one.experiment for one in measured], prints) if 1 < len(prints) == len(measured) else None
    said = {one.name: explain.protocol(one.experiment, one.run.provenance, t) for one in measured}
    return "  \n".join([*([] if paired is None else explain.paired(paired, t)), *said_once(said, t), t("handout.utc")])


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
