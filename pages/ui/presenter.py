"""The presenter: one slide of a lesson over the whole window, and the speaker's window beside it.

Keys, clickers and windows are turned in the browser (assets/presenter.js); which slide is shown is in the address. It
knows Streamlit, slides and scenes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from pages.ui import component, lesson_page, lessons, scenes
from pages.ui.language import PARAMETER
from pages.ui.lesson_link import Visit
from pages.ui.lessons import Figure, Lesson
from pages.ui.slides import Slide, slides
from pages.ui.text import Words

ASSETS = Path(__file__).resolve().parents[2] / "assets"

NOTES = "notes"
"""Parameter of the speaker's window."""

BUTTONS = ("back", "next", "full", "notes", "leave")

SCALE = 1.35
"""A slide's figures have type so much larger than a page's."""

HEIGHT = 300
"""Pixels of a figure at least."""

_mount = st.components.v2.component(
    "driftscope_presenter",
    js=(ASSETS / "presenter.js").read_text("utf-8"),
    css=(ASSETS / "presenter.css").read_text("utf-8"),
    isolate_styles=False,
)


def present(lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw the slide where the visit is; a number beyond the last is the last."""
    made = slides(lesson)
    place = min(visit.slide, len(made) - 1)
    speaker = NOTES in st.query_params
    _bar(lesson, place, len(made), speaker, t)
    if speaker:
        _notes(made, place, t)
    else:
        _slide(made[place], lesson, visit, t)


def _bar(lesson: Lesson, place: int, count: int, speaker: bool, t: Words) -> None:
    here: Mapping[str, str] = {"lesson": lesson.name, PARAMETER: t.lang}
    _mount(
        key="presenter",
        data={
            "lesson": lesson.name, "slide": place, "count": count, "clock": speaker, "lang": t.lang,
            "notes": f"present?{urlencode({**here, 'slide': str(place), NOTES: '1'})}",
            "leave": f"lessons?{urlencode(here)}",
            "words": {"bar": t("present.bar")} | {
                name + end: t(f"present.{name}{end}") for name in BUTTONS for end in ("", "_label")},
        },
        on_turned_change=_turned,
    )


def _turned() -> None:
    turned = st.session_state["presenter"].get("turned")
    if isinstance(turned, dict) and isinstance(turned.get("slide"), int):
        st.query_params["slide"] = str(turned["slide"])


def _slide(slide: Slide, lesson: Lesson, visit: Visit, t: Words) -> None:
    with st.container(key="slide" if slide.figure else "slide-of-words"):
        st.title(slide.heading, anchor=False)
        st.markdown(_linked(slide.text, lesson, t))
        for place, words in enumerate(slide.options):
            st.markdown(_option(place, words, slide, lesson, t))
        if slide.ways:
            st.markdown("\n".join(f"- {_linked(f'[{way.label}]({way.state})', lesson, t)}" for way in slide.ways))
        if slide.figure is not None:
            _figure(slide.figure, lesson, visit, t)


def _linked(text: str, lesson: Lesson, t: Words) -> str:
    return lessons.linked(text, lesson.states, {PARAMETER: t.lang})


def _option(place: int, words: str, slide: Slide, lesson: Lesson, t: Words) -> str:
    said = f"**{chr(ord('A') + place)}** {words}"
    if slide.revealed and place == lesson.answer:
        return f":green[:material/check_circle:] **{said}** · {t('lessons.right')}"
    return said


def _figure(figure: Figure, lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw a figure as large as the slide allows."""
    if dial := lesson.dial(figure.state):
        lesson_page.turn(dial, lesson, visit, t)
    found = scenes.scene(visit.state(lesson, figure.state), f"present.{figure.state}", t)
    picture, other = found.pictures.get(figure.picture), found.others.get(figure.picture)
    if other is not None:
        other()
    elif picture is not None and picture.figure is not None:
        component.draw(picture.figure, f"present.{figure.state}.{picture.key}", label=picture.label, height=HEIGHT,
                       width=picture.width, feed=found.feed, name=picture.key, scale=SCALE)


def _notes(made: tuple[Slide, ...], place: int, t: Words) -> None:
    """Draw the speaker's window: what is said to this slide, and what comes next."""
    now = made[place]
    st.title(now.heading, anchor=False)
    st.markdown(now.notes or t("present.no_notes"))
    if place + 1 < len(made):
        st.caption(t("present.then", heading=made[place + 1].heading))
