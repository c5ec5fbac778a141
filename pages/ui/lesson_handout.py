"""A lesson as a hand-out: what a reader reads, its figures with their numbers, and how to compute each of them again.

What is for the speaker alone is left out, and the answer to the prediction is folded away. No Streamlit here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pages.ui import dossier, handout, lessons, origin
from pages.ui.cache import Measured
from pages.ui.handout import Section
from pages.ui.handout_blocks import Again, Block, Drawn, Folded, Prose
from pages.ui.language import PARAMETER
from pages.ui.lesson_link import Visit
from pages.ui.lessons import Figure, Lesson, Way
from pages.ui.scenes import Scene
from pages.ui.text import Words


def complete(lesson: Lesson, scenes: Mapping[str, Scene]) -> bool:
    """Return whether every figure of the lesson is there to be handed out."""
    return all(figure.picture in (*scenes[figure.state].pictures, *scenes[figure.state].others)
               for section in lesson.sections for figure in section.figures)


def made(lesson: Lesson, visit: Visit, scenes: Mapping[str, Callable[[], Scene]], root: str, t: Words) -> bytes:
    """Return the file. `scenes`: what brings back the scene of each state; `root`: where the pages are.

    Errors: StoreError.
    """
    writing = _Writing(lesson, visit, {name: again() for name, again in scenes.items()}, root, t)
    sections = [Section(one.heading, list(writing.blocks(one))) for one in lesson.sections]
    lead = f"{lesson.lead}  \n{t('handout.lead')}"
    return handout.page(f"{lesson.number} · {lesson.title}", lead, [
        *sections, *origin.sections(writing.measured, t, together=False)], t).encode()


@dataclass
class _Writing:
    """One file that is being written.

    `figures`: how many stand in it so far; `runs`: what was measured for them, with the numbers of those that show it.
    """

    lesson: Lesson
    visit: Visit
    scenes: Mapping[str, Scene]
    root: str
    t: Words
    figures: int = 0
    runs: dict[str, tuple[Measured, list[int]]] = field(default_factory=dict)

    @property
    def measured(self) -> Sequence[Measured]:
        """What was measured, each named by the figures that show it."""
        return [replace(one, variant=replace(one.variant, name=f"{self._called(figures)} · {one.name}"))
                for one, figures in self.runs.values()]

    def _called(self, figures: Sequence[int]) -> str:
        return self.t("handout.figure", number=self.t("handout.between").join(map(str, figures)))

    def blocks(self, section: lessons.Section) -> Iterator[Block]:
        """Yield what stands in a section."""
        yield Prose(self._linked(section.slide))
        if section.options:
            answer = section.options[self.lesson.answer]
            yield Prose("\n".join(f"- {one}" for one in section.options))
            yield Folded(self.t("handout.answer"), [Prose(answer)])
        for block in section.blocks:
            if isinstance(block, Figure):
                yield from self._figure(block)
            elif isinstance(block, Way):
                address = lessons.address(self.lesson.states[block.state], {PARAMETER: self.t.lang}, self.root)
                yield Prose(f"- [{block.label}]({address})  \n  {self._linked(block.why)}")
            else:
                yield Prose(self._linked(block))
        if any(isinstance(block, Way) for block in section.blocks):
            yield Prose(self.t("handout.redo_said"), "lead")

    def _figure(self, figure: Figure) -> Iterator[Block]:
        """Yield a figure with its number and caption."""
        self.figures += 1
        scene = self.scenes[figure.state]
        below = f"**{self._called([self.figures])}**{self.t('drift.colon')}{figure.caption}"
        again = lessons.address(self.visit.state(self.lesson, figure.state), {PARAMETER: self.t.lang}, self.root)
        if figure.picture in scene.others:
            yield from [*scene.others[figure.picture].blocks(), Prose(below), Again(again)]
            return
        yield Drawn(scene.pictures[figure.picture], dossier.traces(scene.measured), below=below, again=again)
        for one in scene.measured:
            self.runs.setdefault(one.run.id, (one, []))[1].append(self.figures)

    def _linked(self, text: str) -> str:
        return lessons.linked(text, self.lesson.states, {PARAMETER: self.t.lang}, self.root)
