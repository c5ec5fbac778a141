"""Where a visit is in the lessons, as a link: which lesson, which prediction was made, where its dials stand.

Reading never fails: what is refused is replaced and becomes a Notice. No Streamlit here, and no words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pages.ui import lessons
from pages.ui.lessons import Dial, Lesson, State
from pages.ui.link import Notice

PARAMETERS = ("lesson", "guess", "dials", "slide")

UNGUESSED = "0"
"""The guess of somebody who wants to see without one."""


@dataclass(frozen=True)
class Visit:
    """`lesson`: its name, empty for the list; `guess`: number of the chosen option from 1, or UNGUESSED, or empty;
    `dials`: state → which value of its dial; `slide`: number of the slide from 0.
    """

    lesson: str = ""
    guess: str = ""
    dials: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    slide: int = 0

    def write(self) -> dict[str, str]:
        """Return the query parameters; what is as by default is left out."""
        dials = "~".join(f"{state}.{place}" for state, place in self.dials.items())
        said = {"lesson": self.lesson, "guess": self.guess, "dials": dials, "slide": str(self.slide or "")}
        return {name: value for name, value in said.items() if value}

    def state(self, lesson: Lesson, name: str) -> State:
        """Return the state of that name where its dial stands."""
        dial = lesson.dial(name)
        return lesson.states[name] if dial is None else dial.states[self.dials.get(name, dial.at)]


def read(query: Mapping[str, str], lang: str) -> tuple[Visit, list[Notice]]:
    """Return where `query` says the visit is, and a notice for each part of it that was refused and replaced."""
    name = query.get("lesson", "")
    if name not in lessons.names():
        known = ", ".join(lessons.names())
        return Visit(), [_notice("lesson", name, known, "–")] if name else []
    notices: list[Notice] = []
    found = lessons.lesson(name, lang)
    most = len(next(one for one in found.sections if one.kind == "predict").options)
    guess = query.get("guess", "")
    if guess and guess not in (allowed := [str(place) for place in range(most + 1)]):
        notices.append(_notice("guess", guess, ", ".join(allowed), "–"))
        guess = ""
    slide = query.get("slide", "0")
    if not re.fullmatch("[0-9]{1,3}", slide):
        notices.append(_notice("slide", slide, "0 … 999", "0"))
        slide = "0"
    return Visit(name, guess, _dials(query.get("dials", ""), found, notices), int(slide)), notices


def _dials(text: str, lesson: Lesson, notices: list[Notice]) -> dict[str, int]:
    known: dict[str, Dial] = {one.state: one for one in lesson.dials}
    found = {}
    for part in filter(None, text.split("~")):
        state, _, place = part.partition(".")
        if state in known and re.fullmatch("[0-9]{1,2}", place) and int(place) < len(known[state].values):
            found[state] = int(place)
        else:
            notices.append(_notice("dials", part, ", ".join(f"{name}.0" for name in known) or "–", "–"))
    return found


def _notice(name: str, value: str, allowed: str, used: str) -> Notice:
    return Notice("link.choice", {"name": name, "value": value[:60], "allowed": allowed, "used": used})
