"""The slides of a lesson: a title, each section's first paragraph with its formula, and one figure at a time.

What a slide says is what a reader reads; nothing is written for slides alone. No Streamlit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pages.ui.lessons import Figure, Lesson, Section, Way


@dataclass(frozen=True)
class Slide:
    """One slide. `heading`, `text`: what stands above; `figure`: what is shown; `options`: of a prediction.

    `ways`: links, shown as a list; `revealed`: whether the right option is marked; `notes`: for the speaker.
    """

    kind: str
    heading: str
    text: str
    figure: Figure | None = None
    options: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()
    revealed: bool = False
    notes: str = ""


def slides(lesson: Lesson) -> tuple[Slide, ...]:
    """Return the slides of a lesson. The answer to its prediction has one of its own, after the first measurement."""
    made = [Slide("title", lesson.title, lesson.lead)]
    asked = next(section for section in lesson.sections if section.options)
    measured = False
    for section in lesson.sections:
        if section.kind == "reason" and not measured:
            measured = True
            made.append(Slide("answer", asked.heading, asked.slide, options=asked.options, revealed=True))
        made += _of(section)
    return tuple(made)


def _text(section: Section) -> str:
    """Return the first paragraph of a section, with the formula that follows it."""
    formula = [block for block in section.blocks[:1] if isinstance(block, str) and block.startswith("$$")]
    return "\n\n".join([section.slide, *formula])


def _of(section: Section) -> Iterator[Slide]:
    """Yield the slides of a section: one a figure, each further one under its caption; else one."""
    ways = tuple(block for block in section.blocks if isinstance(block, Way))
    first = next(iter(section.figures), None)
    yield Slide(section.kind, section.heading, _text(section), first, section.options, ways, notes=section.notes)
    for figure in section.figures[1:]:
        yield Slide(section.kind, section.heading, figure.caption, figure, notes=section.notes)
