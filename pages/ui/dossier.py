"""What is handed out of a page: pictures and judgements of what was measured, and where the numbers come from.

It turns runs and views into the sections of a hand-out; how a file is made of them is in `pages.ui.handout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from core.learning import UNDECIDED
from core.trace import Trace
from pages.ui import explain, feed, handout, judging, origin
from pages.ui.cache import Measured
from pages.ui.handout import Section
from pages.ui.handout_blocks import Drawn, Prose, Said, Spoken
from pages.ui.judging import Judged
from pages.ui.link import Variant
from pages.ui.picture import Picture
from pages.ui.recall import Recall
from pages.ui.text import Words
from pages.ui.views import Lab, Viewpoint
from pages.ui.views.training import LiveView
from pages.ui.watching import Watched

Shown = Mapping[str, str]


def page(title: str, sections: Sequence[Section], measured: Sequence[Measured], t: Words) -> bytes:
    """Return the file of these sections, with the origin of the measured numbers below."""
    return handout.page(title, t("handout.lead"), [*_once(sections), *origin.sections(measured, t)], t).encode()


def of_page(place: str, looked: Viewpoint, kept: Sequence[Recall], shown: Shown, t: Words) -> bytes:
    """Return the file of what a page that compares shows. Errors: StoreError."""
    again = [recall() for recall in kept]
    return page(t(f"{place}.title"), [of_view(place, looked, again, shown, t)], again, t)


def of_live(looked: LiveView, runs: Sequence[tuple[str, Variant]], shown: Shown, t: Words) -> bytes:
    """Return the file of what the live page shows of trainings, as they are now. Errors: StoreError."""
    again = feed.watch(runs)
    return page(t("live.title"), [of_trainings(looked, again, shown, t)], again, t)


def of_lab(place: str, looked: Lab, shown: Shown, t: Words) -> bytes:
    """Return the file of a view of numbers alone: each of its pictures below what is said of it."""
    sections = [Section(one.picture.label, [Spoken("", [Said(one.said, one.alarm)]), Drawn(one.picture)])
                for one in looked.make(shown, t)]
    title = [t(f"{place}.title"), t(f"{place}_view.{shown['view']}")]
    return of_blocks(" · ".join(title), sections, t)


def of_told(place: str, shown: Shown, said: Sequence[str], make: Callable[[Sequence[Measured]], Sequence[Picture]],
            kept: Sequence[Recall], t: Words) -> bytes:
    """Return the file of sentences and the pictures below them. `make`: makes them of what was `kept`.

    Errors: StoreError.
    """
    again = [recall() for recall in kept]
    section = Section(t(f"{place}_view.{shown['view']}"), [
        *map(Prose, said), *(Drawn(one, traces(again)) for one in make(again))])
    return page(t(f"{place}.title"), [section], again, t)


def of_blocks(title: str, sections: Sequence[Section], t: Words) -> bytes:
    """Return the file of sections that say themselves where their numbers come from."""
    return handout.page(title, t("handout.lead"), sections, t).encode()


def of_view(place: str, looked: Viewpoint, measured: Sequence[Measured], shown: Shown, t: Words) -> Section:
    """Return a view of a page as a section: its pictures, and what the traces tell."""
    pictures = looked.make(measured, shown, t)
    return Section(t(f"{place}_view.{shown['view']}"), [
        *(Drawn(one, traces(measured)) for one in pictures), *_told(judging.of_view(looked, measured, shown), t)])


def of_trainings(looked: LiveView, watched: Sequence[Watched], shown: Shown, t: Words) -> Section:
    """Return a view of trainings as a section: its pictures, and what each training has come to."""
    lead = t("handout.last_step", step=feed.steps(watched)[-1]) if looked.player else ""
    return Section(t(f"live_view.{shown['view']}"), [
        Prose(lead, "lead"), *(Drawn(one, traces(watched)) for one in looked.make(watched, shown, t)),
        *_told([judging.of_training(one) for one in watched], t)])


def traces(measured: Sequence[Measured]) -> dict[str, Trace]:
    """Return the traces of what was measured, by variant."""
    return {one.name: one.trace for one in measured if one.trace is not None}


def _told(judged: Sequence[Judged], t: Words) -> list[Spoken]:
    return [Spoken(one.name, _said(one, t)) for one in judged]


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
        blocks = [Spoken(one.name, [said for said in one.said if not (said.folded and (one.name, said.text) in told)])
                  if isinstance(one, Spoken) else one for one in section.blocks]
        told |= {(one.name, said.text) for one in blocks if isinstance(one, Spoken) for said in one.said}
        found.append(replace(section, blocks=blocks))
    return found
