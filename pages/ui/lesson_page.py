"""A lesson to read: a question, a prediction, and only then what was measured, why, where to try it, and what to keep.

It knows Streamlit, lessons and scenes; what a figure shows is made by the page that it is a state of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urljoin

import streamlit as st

from pages.ui import explain, fields, lesson_handout, lesson_link, lessons, panels, query, scenes
from pages.ui.language import PARAMETER
from pages.ui.lesson_link import UNGUESSED, Visit
from pages.ui.lessons import Block, Dial, Figure, Lesson, Section, Way
from pages.ui.picture import Picture
from pages.ui.scenes import Scene
from pages.ui.text import Words
from pages.ui.views import onward

COLUMNS = 3

TALK = ("photocopy", "why_it_drifts", "softmax_scale", "layernorm_rescues", "where_it_stands", "layernorm_or_rmsnorm",
        "why_not_batchnorm", "blowing_up")
"""The lessons of a talk of forty minutes: why a deep Transformer needs LayerNorm, where, which, and what if not."""

AFTER_A_GUESS = frozenset(lessons.KINDS[2:])
"""Kinds of sections that would give the answer away."""


def arrive(t: Words) -> Visit:
    """Return where the visit is, having said what of its link was refused; on no lesson, draw the list of them."""
    visit, notices = lesson_link.read(query.read(lesson_link.PARAMETERS), t.lang)
    for notice in notices:
        st.warning(explain.notice(notice, t), icon=":material/link_off:")
    if not visit.lesson:
        st.title(t("lessons.title"))
        _listing(visit, t)
    return visit


def _listing(visit: Visit, t: Words) -> None:
    found = [lessons.lesson(name, t.lang) for name in lessons.names()]
    st.markdown(t("lessons.lead", count=len(found), minutes=_minutes(found)))
    _talk(visit, found, t)
    for first in range(0, len(found), COLUMNS):
        for column, one in zip(st.columns(COLUMNS), found[first:first + COLUMNS], strict=False):
            with column.container(border=True, height="stretch"):
                onward.way("lessons", {"lesson": one.name}, f"{one.number} · {one.title}", t)
                st.markdown(one.lead)


def _minutes(found: Sequence[Lesson]) -> str:
    return f"{sum(one.minutes for one in found):.0f}"


def _talk(visit: Visit, found: Sequence[Lesson], t: Words) -> None:
    """Draw the way to present several lessons one after the other: which, and how long that takes."""
    titles = {one.name: f"{one.number} · {one.title}" for one in found}
    st.session_state["lessons.talk"] = list(TALK if visit.talk is None else visit.talk)
    with st.expander(t("lessons.talk"), icon=":material/slideshow:", expanded=visit.talk is not None):
        chosen = st.pills(t("lessons.talk_of"), list(titles), selection_mode="multi", key="lessons.talk",
                          format_func=titles.__getitem__, on_change=_chosen, args=(visit,), wrap=True)
        talk = tuple(name for name in titles if name in chosen)
        if talk:
            minutes = _minutes([one for one in found if one.name in talk])
            onward.way("present", Visit(talk[0], talk=talk).write(),
                       t("lessons.present_talk", count=len(talk), minutes=minutes), t)
            st.caption(t("lessons.talk_said"))


def _chosen(visit: Visit) -> None:
    names = st.session_state["lessons.talk"]
    _go(replace(visit, talk=tuple(name for name in lessons.names() if name in names)))


def draw(lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw a lesson as far as the visit has come in it."""
    st.title(f"{lesson.number} · {lesson.title}")
    st.markdown(f"*{lesson.lead}*")
    seen: dict[str, Scene] = {}
    for section in lesson.sections:
        if section.kind in AFTER_A_GUESS and not visit.guess:
            break
        st.header(section.heading)
        st.markdown(linked(section.slide, lesson, t))
        if section.options:
            options(section, lesson, visit, t)
        for block in section.blocks:
            _block(block, lesson, visit, seen, t)
    if visit.guess and lesson_handout.complete(lesson, seen):
        kept = {name: scene.keep() for name, scene in seen.items()}
        panels.hand_out(partial(lesson_handout.made, lesson, visit, kept, _root(), t), f"lesson-{lesson.name}", t)
    _onward(lesson, t)


def _root() -> str:
    """Return the address below which the pages are."""
    return urljoin(st.context.url or "", ".")


def options(section: Section, lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw the options of a prediction: to choose from, and afterwards which was chosen and which is right."""
    if not visit.guess:
        for place, words in enumerate(section.options, 1):
            st.button(words, key=f"lesson.guess.{place}", on_click=_go, args=(replace(visit, guess=str(place)),))
        st.button(t("lessons.skip"), type="tertiary", key="lesson.guess.0", icon=":material/visibility:", on_click=_go,
                  args=(replace(visit, guess=UNGUESSED),))
        return
    for place, words in enumerate(section.options):
        right, mine = place == lesson.answer, visit.guess == str(place + 1)
        icon = ":green[:material/check_circle:]" if right else ":material/radio_button_unchecked:"
        notes = [t("lessons.right")] * right + [t("lessons.mine")] * mine
        st.markdown(f"{icon} {words}{''.join(f' · **{note}**' for note in notes)}")
    st.button(t("lessons.again"), type="tertiary", icon=":material/undo:", key="lesson.again", on_click=_go,
              args=(replace(visit, guess=""),))


def _go(visit: Visit) -> None:
    query.write(visit.write(), lesson_link.PARAMETERS)


def _block(block: Block, lesson: Lesson, visit: Visit, seen: dict[str, Scene], t: Words) -> None:
    """Draw what follows in a section."""
    if isinstance(block, Figure):
        if block.state not in seen:
            if dial := lesson.dial(block.state):
                turn(dial, lesson, visit, t)
            seen[block.state] = scenes.scene(visit.state(lesson, block.state), f"lesson.{block.state}", t)
        found, there = seen[block.state], f"lesson.{block.state}"
        figure(block, found, t, lambda picture: panels.panel(picture, found.measured, t, there, feed=found.feed))
        st.caption(block.caption)
        state = visit.state(lesson, block.state)
        onward.way(state.page, state.query, t("lessons.open"), t)
    elif isinstance(block, Way):
        state = lesson.states[block.state]
        with st.container(border=True):
            onward.way(state.page, state.query, block.label, t)
            st.markdown(linked(block.why, lesson, t))
    else:
        st.markdown(linked(block, lesson, t))


def figure(wanted: Figure, scene: Scene, t: Words, draw: Callable[[Picture], None]) -> None:
    """Draw a figure of a lesson, or say why there is none. `draw`: draws what is a picture."""
    picture, other = scene.pictures.get(wanted.picture), scene.others.get(wanted.picture)
    if other is not None:
        other.draw()
    elif picture is not None:
        draw(replace(picture, picks=False))
    elif not all(one.run.over for one in scene.measured):
        st.info(t("lessons.not_yet"), icon=":material/hourglass:")
    elif scene.pictures:
        st.warning(t("lessons.no_picture", name=wanted.picture), icon=":material/visibility_off:")


def turn(dial: Dial, lesson: Lesson, visit: Visit, t: Words) -> None:
    """Draw a dial, which stands in the address."""
    key, now = f"lesson.dial.{dial.state}", visit.dials.get(dial.state, dial.at)
    st.session_state[key] = now
    st.select_slider(label(dial, lesson, t), range(len(dial.values)), key=key, on_change=_turned,
                     args=(dial, key, visit), format_func=lambda place: said(dial, place, lesson, t), width=420)


def _turned(dial: Dial, key: str, visit: Visit) -> None:
    _go(replace(visit, dials={**visit.dials, dial.state: st.session_state[key]}))


def label(dial: Dial, lesson: Lesson, t: Words) -> str:
    """Return what a dial is called: a field of an experiment, or a control of the page that it is a state of."""
    part, _, path = dial.target.partition(".")
    page = lesson.states[dial.state].page
    names = (f"field.{path.rpartition('.')[2]}",) if part == "base" else (
        f"lessons.dial_{path}", f"{page}.{path}", f"drift.{path}")
    return t(next((name for name in names if name in t), names[0]))


def said(dial: Dial, place: int, lesson: Lesson, t: Words) -> str:
    """Return a dial's value as it is spoken: as that of a field, as that page's control says it, or as it is."""
    part, _, path = dial.target.partition(".")
    value = dial.values[place]
    if part == "base":
        return fields.spoken_value(path.rpartition(".")[2], t)(value)
    page = lesson.states[dial.state].page
    names = (f"{page}.{path}_{value}", f"drift.{path}_{value}", f"{path}.{value}")
    return next((t(name) for name in names if name in t), value)


def linked(text: str, lesson: Lesson, t: Words) -> str:
    """Return a paragraph with its links to states as addresses in the visitor's language."""
    return lessons.linked(text, lesson.states, {PARAMETER: t.lang})


def _onward(lesson: Lesson, t: Words) -> None:
    """Draw the ways to the slides of this lesson, to its neighbours and to the list."""
    names = lessons.names()
    place = names.index(lesson.name)
    ways: list[tuple[str, Mapping[str, str], str]] = [
        ("present", {"lesson": lesson.name}, t("lessons.present")),
        *(("lessons", {"lesson": name}, t(key, title=lessons.lesson(name, t.lang).title))
          for key, name in (("lessons.before", names[place - 1] if place else ""),
                            ("lessons.next", names[place + 1] if place + 1 < len(names) else "")) if name),
        ("lessons", {}, t("lessons.all"))]
    st.divider()
    with st.container(horizontal=True):
        for page, asked, words in ways:
            onward.way(page, asked, words, t)
