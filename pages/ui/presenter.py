"""The presenter: one slide of a lesson over the whole window, and the speaker's window beside it.

Keys, clickers and windows are turned in the browser (assets/presenter.js); which slide is shown is in the address. It
knows Streamlit, slides and scenes.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from pages.ui import component, lesson_link, lesson_page, lessons, panels, query, scenes
from pages.ui.language import PARAMETER
from pages.ui.lesson_link import Visit
from pages.ui.lessons import Figure, Lesson
from pages.ui.slides import Slide, slides
from pages.ui.text import LANGUAGES, Words

NOTES = "notes"
"""Parameter of the speaker's window."""

BUTTONS = ("back", "next", "full", "notes", "leave")

MOST_SLIDES = 1000

SCALE = 1.35
"""A slide's figures have type so much larger than a page's."""

HEIGHT = 300
"""Pixels of a figure at least."""

_mount = st.components.v2.component(
    "driftscope_presenter",
    js=(component.ASSETS / "presenter.js").read_text("utf-8"),
    css=(component.ASSETS / "presenter.css").read_text("utf-8"),
    isolate_styles=False,
)


def present(lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw the slide where the visit is; a number beyond the last is the last."""
    made = slides(lesson)
    place = min(visit.slide, len(made) - 1)
    speaker = NOTES in st.query_params
    _bar(replace(visit, slide=place), len(made), speaker, t)
    if speaker:
        _notes(made, place, t)
    else:
        _slide(made[place], lesson, visit, t)


def _bar(visit: Visit, count: int, speaker: bool, t: Words) -> None:
    """Draw the bar. Beyond the first and the last slide of a lesson are those of its neighbours in the talk."""
    before, after = visit.beside(-1), visit.beside(1)
    last = len(slides(lessons.lesson(before, t.lang))) - 1 if before else 0
    here = {**replace(visit, guess="", dials={}).write(), PARAMETER: t.lang}
    _mount(
        key="presenter",
        data={
            "lesson": visit.lesson, "slide": visit.slide, "count": count, "clock": speaker, "lang": t.lang,
            "before": [before, last] if before else None, "after": [after, 0] if after else None,
            "lessons": visit.order,
            "notes": f"present?{urlencode({**here, NOTES: '1'})}",
            "leave": f"lessons?{urlencode({'lesson': visit.lesson, PARAMETER: t.lang})}",
            "words": {"bar": t("present.bar"), "part": _part(visit, t)} | {
                name + end: t(f"present.{name}{end}") for name in BUTTONS for end in ("", "_label")},
        },
        on_turned_change=_turned,
    )


def _part(visit: Visit, t: Words) -> str:
    """Say which lesson of a talk it is; nothing where there is no talk."""
    if visit.order != visit.talk:
        return ""
    return t("present.part", number=visit.order.index(visit.lesson) + 1, count=len(visit.order))


def _turned() -> None:
    turned = st.session_state["presenter"].get("turned")
    if not isinstance(turned, dict):
        return
    visit, _ = lesson_link.read(query.read(lesson_link.PARAMETERS), next(iter(LANGUAGES)))
    lesson, slide = turned.get("lesson"), turned.get("slide")
    if lesson in lessons.names() and isinstance(slide, int) and 0 <= slide < MOST_SLIDES:
        kept = visit.dials if lesson == visit.lesson else {}
        query.write(replace(visit, lesson=str(lesson), slide=slide, dials=kept).write(), lesson_link.PARAMETERS)


def _slide(slide: Slide, lesson: Lesson, visit: Visit, t: Words) -> None:
    with st.container(key="slide" if slide.figure else "slide-of-words"):
        st.title(slide.heading, anchor=False)
        st.markdown(lesson_page.linked(slide.text, lesson, t))
        for place, words in enumerate(slide.options):
            st.markdown(_option(place, words, slide, lesson, t))
        if slide.ways:
            listed = "\n".join(f"- [{way.label}]({way.state})" for way in slide.ways)
            st.markdown(lesson_page.linked(listed, lesson, t))
        if slide.figure is not None:
            _figure(slide.figure, lesson, visit, t)


def _option(place: int, words: str, slide: Slide, lesson: Lesson, t: Words) -> str:
    said = f"**{chr(ord('A') + place)}** {words}"
    if slide.revealed and place == lesson.answer:
        return f":green[:material/check_circle:] **{said}** · {t('lessons.right')}"
    return said


def _figure(figure: Figure, lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw a figure as large as the slide allows."""
    if dial := lesson.dial(figure.state):
        with st.container(key="slide-dial"):
            lesson_page.turn(dial, lesson, visit, t)
    found = scenes.scene(visit.state(lesson, figure.state), f"present.{figure.state}", t)
    there = f"present.{figure.state}"
    lesson_page.figure(figure, found, t, lambda picture: panels.draw(
        replace(picture, height=HEIGHT), there, feed=found.feed, scale=SCALE))


def _notes(made: tuple[Slide, ...], place: int, t: Words) -> None:
    """Draw the speaker's window: what is said to this slide, and what comes next."""
    now = made[place]
    st.title(now.heading, anchor=False)
    st.markdown(now.notes or t("present.no_notes"))
    if place + 1 < len(made):
        st.caption(t("present.then", heading=made[place + 1].heading))
