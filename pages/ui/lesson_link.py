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

PARAMETERS = ("lesson", "guess", "dials", "slide", "talk")

UNGUESSED = "0"
"""The guess of somebody who wants to see without one."""

NO_TALK = "-"
"""The talk of somebody who has taken all lessons out of it."""


@dataclass(frozen=True)
class Visit:
    """`lesson`: its name, empty for the list; `guess`: number of the chosen option from 1, or UNGUESSED, or empty;
    `dials`: state → which value of its dial; `slide`: number of the slide from 0; `talk`: names of the lessons that are
    presented one after the other, None where nobody has chosen any.
    """

    lesson: str = ""
    guess: str = ""
    dials: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    slide: int = 0
    talk: tuple[str, ...] | None = None

    def write(self) -> dict[str, str]:
        """Return the query parameters; what is as by default is left out."""
        dials = "~".join(f"{state}.{place}" for state, place in self.dials.items())
        said = {"lesson": self.lesson, "guess": self.guess, "dials": dials, "slide": str(self.slide or ""),
                "talk": "" if self.talk is None else ".".join(self.talk) or NO_TALK}
        return {name: value for name, value in said.items() if value}

    @property
    def order(self) -> tuple[str, ...]:
        """The lessons that are presented, in their order: those of the talk, if this one is among them."""
        return self.talk if self.talk and self.lesson in self.talk else lessons.names()

    def beside(self, step: int) -> str:
        """Return the lesson before (−1) or after (1) this one, empty where there is none."""
        place = self.order.index(self.lesson) + step
        return self.order[place] if 0 <= place < len(self.order) else ""

    def state(self, lesson: Lesson, name: str) -> State:
        """Return the state of that name where its dial stands."""
        dial = lesson.dial(name)
        return lesson.states[name] if dial is None else dial.states[self.dials.get(name, dial.at)]


def read(query: Mapping[str, str], lang: str) -> tuple[Visit, list[Notice]]:
    """Return where `query` says the visit is, and a notice for each part of it that was refused and replaced."""
    notices: list[Notice] = []
    name, talk = query.get("lesson", ""), _talk(query.get("talk", ""), notices)
    if name not in lessons.names():
        known = ", ".join(lessons.names())
        return Visit(talk=talk), [*notices, *([_notice("lesson", name, known, "–")] if name else [])]
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
    return Visit(name, guess, _dials(query.get("dials", ""), found, notices), int(slide), talk), notices


def _talk(text: str, notices: list[Notice]) -> tuple[str, ...] | None:
    """Return the lessons of a talk, each once; None where none are named."""
    if text == NO_TALK:
        return ()
    named = tuple(dict.fromkeys(filter(None, text.split("."))))
    known = tuple(name for name in named if name in lessons.names())
    if len(known) < len(named):
        refused = next(name for name in named if name not in known)
        notices.append(_notice("talk", refused, ", ".join(lessons.names()), "–"))
    return known or None


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
