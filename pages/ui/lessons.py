"""The lessons, read from ``assets/lessons``: words of one language, and the states of pages that their figures show.

What the files of a lesson may say is in decision 0013. Reading is strict: what does not fit is a `LessonError` that
says file, place and what is allowed. No Streamlit here, and of a page no more than how a link to it is written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pages.ui import link
from pages.ui.link import View
from pages.ui.places import PLACES

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "lessons"

KINDS = ("question", "predict", "measure", "reason", "try", "takeaway")
"""Kinds of sections, in their order; `SEVERAL` of them may come more than once."""

SEVERAL = frozenset({"measure", "reason"})

SPEAKER = "???"
"""The line below which a section is for the speaker."""

_HEADING = re.compile(r"^## (?P<heading>.+) \{#(?P<name>[a-z]+(?:\.[a-z_]+)?)\}$", re.MULTILINE)
_FIGURE = re.compile(r"!\[(?P<caption>[^\]]+)\]\((?P<state>\w+)#(?P<picture>[\w.]+)\)")
_LINK = re.compile(r"(?<!!)\[(?P<label>[^\]]+)\]\((?P<state>\w+)\)")
_WAY = re.compile(r"- \[(?P<label>[^\]]+)\]\((?P<state>\w+)\)[:：]\s*(?P<why>.+)")
_OPTION = re.compile(r"- \[(?P<right>[ x])\] (?P<words>.+)")
_NUMBER = re.compile(r"\{(?P<name>[a-z]\w*)\}")


class LessonError(ValueError):
    """A lesson that is not of the form; the message says where and what is allowed."""


@dataclass(frozen=True)
class State:
    """A state of a page, as a link to it."""

    page: str
    query: Mapping[str, str]


@dataclass(frozen=True)
class Dial:
    """One dial beside the figures of `state`: its values, and the state at each of them; `at`: where it begins.

    `target`: what it sets, as in ``[dials]``.
    """

    state: str
    target: str
    values: tuple[str, ...]
    states: tuple[State, ...]
    at: int


@dataclass(frozen=True)
class Figure:
    """A figure: picture `picture` of the state called `state`."""

    caption: str
    state: str
    picture: str


@dataclass(frozen=True)
class Way:
    """A link to a page in a state, and why one should go there."""

    label: str
    state: str
    why: str


Block = str | Figure | Way


@dataclass(frozen=True)
class Section:
    """One section. `slide`: its first paragraph; `blocks`: all that follows; `options`: of a prediction.

    `notes`: for the speaker.
    """

    kind: str
    name: str
    heading: str
    slide: str
    blocks: tuple[Block, ...]
    options: tuple[str, ...] = ()
    notes: str = ""

    @property
    def figures(self) -> list[Figure]:
        """Its figures, in order."""
        return [block for block in self.blocks if isinstance(block, Figure)]


@dataclass(frozen=True)
class Lesson:
    """A lesson in one language. `answer`: which option of its prediction is right, from 0; `minutes`: of talk."""

    number: int
    name: str
    title: str
    lead: str
    minutes: float
    answer: int
    sections: tuple[Section, ...]
    states: Mapping[str, State]
    dials: tuple[Dial, ...]

    def dial(self, state: str) -> Dial | None:
        """Return the dial beside the figures of a state."""
        return next((one for one in self.dials if one.state == state), None)


def names() -> tuple[str, ...]:
    """Return the names of all lessons, in their order."""
    return tuple(_folders())


@cache
def lesson(name: str, lang: str) -> Lesson:
    """Return a lesson in a language. Errors: KeyError for none of `names`; LessonError."""
    return read(_folders()[name], lang)


@cache
def _folders() -> dict[str, Path]:
    return {path.name.partition("_")[2]: path for path in sorted(FOLDER.iterdir()) if path.is_dir()}


def read(folder: Path, lang: str) -> Lesson:
    """Return the lesson of a folder ``NN_name``. Errors: LessonError."""
    number, _, name = folder.name.partition("_")
    try:
        facts = tomllib.loads((folder / "lesson.toml").read_text("utf-8"))
        states = {key: state_of(spec) for key, spec in facts.get("states", {}).items()}
        dials = tuple(_dial(spec, facts["states"]) for spec in facts.get("dials", {}).values())
        text = filled((folder / f"{lang}.md").read_text("utf-8"), facts.get("numbers", {}))
        title, lead, sections = _parsed(text)
        _check(lead, sections, states)
        return Lesson(int(number), name, title, lead, float(facts["minutes"]), _answer(text), sections, states, dials)
    except (KeyError, ValueError) as error:
        raise LessonError(f"{folder.name}, {lang}: {type(error).__name__}: {error}") from error


def state_of(spec: Mapping[str, Any]) -> State:
    """Return the state that an entry of ``[states]`` describes."""
    page = spec["page"]
    if "query" in spec:
        return State(page, {name: str(value) for name, value in spec["query"].items()})
    place, preset = PLACES[page], spec.get("preset", link.DEFAULT_PRESET)
    base = place.origin(preset).with_values(spec.get("base", {}))
    variants = tuple(spec["variants"]) if "variants" in spec else link.default_variants(preset, place)
    return State(page, link.write(View(preset, base, variants, {**place.defaults, **spec.get("shown", {})}), place))


def _dial(spec: Mapping[str, Any], specs: Mapping[str, Any]) -> Dial:
    """Return a dial; the state's own value is among its values."""
    part, _, path = spec["set"].partition(".")
    own = specs[spec["state"]]
    states = tuple(state_of({**own, part: {**own.get(part, {}), path: value}}) for value in spec["values"])
    at = states.index(state_of(own))
    return Dial(spec["state"], spec["set"], tuple(map(str, spec["values"])), states, at)


def filled(text: str, numbers: Mapping[str, str]) -> str:
    """Return the text with every ``{name}`` of a number replaced by it; other braces are left, as in formulas."""
    return _NUMBER.sub(lambda found: numbers.get(found["name"], found[0]), text)


def _parsed(text: str) -> tuple[str, str, tuple[Section, ...]]:
    """Return title, lead and sections."""
    marks = list(_HEADING.finditer(text))
    if not marks:
        raise ValueError("no section; allowed: ## Heading {#kind}")
    title, _, lead = text[:marks[0].start()].strip().partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"begins with {title[:40]!r}; allowed: # Title")
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    sections = tuple(_section(mark, text[mark.end():end]) for mark, end in zip(marks, ends, strict=True))
    return title[2:].strip(), lead.strip(), sections


def _section(mark: re.Match[str], text: str) -> Section:
    said, _, notes = text.partition(f"\n{SPEAKER}\n")
    slide, *rest = [part.strip() for part in re.split(r"\n\s*\n", said.strip())]
    options = tuple(found["words"] for found in _OPTION.finditer(said))
    blocks = [block for part in rest if not _OPTION.match(part) for block in _blocks(part)]
    name = mark["name"]
    return Section(name.partition(".")[0], name, mark["heading"], slide, tuple(blocks), options, notes.strip())


def _blocks(part: str) -> Iterator[Block]:
    """Yield a figure, the ways of a list, or a paragraph."""
    if found := _FIGURE.fullmatch(part):
        yield Figure(found["caption"], found["state"], found["picture"])
        return
    ways = [_WAY.fullmatch(line) for line in re.split(r"\n(?=- )", part)]
    if all(ways):
        yield from (Way(way["label"], way["state"], " ".join(way["why"].split())) for way in ways if way)
        return
    if "![" in part:
        raise ValueError(f"a figure within a paragraph, or with a link in its caption: {part[:60]!r}; "
                         "allowed: ![Caption](state#picture) as a paragraph of its own")
    yield part


def _answer(text: str) -> int:
    """Return which option of the prediction is the right one."""
    right = [found["right"] == "x" for found in _OPTION.finditer(text)]
    if right.count(True) != 1:
        raise ValueError(f"{right.count(True)} of {len(right)} options are right; allowed: 1")
    return right.index(True)


def _check(lead: str, sections: Sequence[Section], states: Mapping[str, State]) -> None:
    """Raise ValueError where kinds are missing or out of order, a mark names a state that there is none of, or a link
    stands where none becomes an address.
    """
    kinds = [section.kind for section in sections]
    order = [kind for place, kind in enumerate(kinds) if kind not in SEVERAL or kind not in kinds[:place]]
    if order != list(KINDS):
        raise ValueError(f"the sections are {', '.join(kinds)}; allowed: {', '.join(KINDS)}, in this order")
    named = [block.state for section in sections for block in section.blocks if isinstance(block, Figure | Way)]
    prose = [block.why if isinstance(block, Way) else block for section in sections
             for block in (section.slide, *section.blocks) if not isinstance(block, Figure)]
    inline = [found["state"] for text in prose for found in _LINK.finditer(text)]
    for name in (*named, *inline):
        if name not in states:
            raise ValueError(f"a mark names the state {name!r}; allowed: {', '.join(states)}")
    for text in (lead, *(text for section in sections for text in (*section.options, section.notes))):
        if found := _LINK.search(text):
            raise ValueError(f"a link in lead, option or notes: {found[0]!r}; allowed: in slides, paragraphs and ways")


def address(state: State, more: Mapping[str, str], root: str = "") -> str:
    """Return the address of a state. `more`: parameters that every address has; `root`: where the pages are."""
    return f"{root}{state.page}?{urlencode({**state.query, **more})}"


def linked(text: str, states: Mapping[str, State], more: Mapping[str, str], root: str = "") -> str:
    """Return a paragraph with its links to states as addresses, see `address`."""
    def written(found: re.Match[str]) -> str:
        return f"[{found['label']}]({address(states[found['state']], more, root)})"

    return _LINK.sub(written, text)
