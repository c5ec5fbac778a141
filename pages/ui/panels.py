"""A view on the page: its pictures, and below each of them what its number is and the numbers to take away.

It knows Streamlit and pictures; it does not know what a picture shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from core import table
from core.vocabulary import SITES
from pages.ui import component, dossier, explain, image_panel, judging, origin, recall
from pages.ui.cache import Measured
from pages.ui.handout import Section
from pages.ui.handout_blocks import Code, Prose
from pages.ui.picture import FORMATS, Picture
from pages.ui.places import ROLES
from pages.ui.recall import Recall
from pages.ui.stage import Stage
from pages.ui.text import Words
from pages.ui.views import Lab, Viewpoint
from pages.ui.views.depth import said_once


def view(looked: Viewpoint, stage: Stage, shown: Mapping[str, str], t: Words, place: str) -> None:
    """Draw a view of what was measured, and say everything about it; of what is not current the pictures alone.

    `place`: the page it stands on.
    """
    if not stage.finished:
        return
    shown = {**shown, "who": stage.among_finished(shown["who"])}
    pictures = looked.make(stage.finished, shown, t)
    if not stage.current:
        for picture in pictures:
            draw(picture, place)
        st.caption(t("drift.previous"))
        return
    if looked.report is not None:
        looked.report(stage.finished, t)
    for picture in pictures:
        panel(picture, stage.finished, t, place, choose)
    if looked.more is not None:
        looked.more(stage.finished, t)
    pairing_and_protocol(stage.finished, t)
    kept = list(map(recall.keep, stage.finished))
    hand_out(partial(dossier.of_page, place, looked, kept, shown, t), f"{place}-{shown['view']}", t,
             partial(recalled, kept, t))
    judgements(looked, stage.finished, shown, t)


def lab(looked: Lab, shown: Mapping[str, str], t: Words, place: str) -> None:
    """Draw a view that needs no run: sentences, and below each of them its picture."""
    for one in looked.make(shown, t):
        icon = "" if one.alarm is None else explain.sign(one.alarm)
        st.markdown(f"{icon} {one.said}".strip())
        panel(one.picture, [], t, place)
    hand_out(partial(dossier.of_lab, place, looked, dict(shown), t), f"{place}-{shown['view']}", t)


def choose(column: str, row: str) -> None:
    """Let the page show the site or role of this row, or look at the head of this layer; else it is none to choose."""
    for parameter, names in (("site", SITES), ("role", ROLES)):
        if row in names:
            st.session_state[parameter] = row
    if row.isdigit() and column.isdigit() and "head" in st.session_state:
        for name, value in {"view": "weights", "layer": column, "head": row}.items():
            st.session_state[name] = value


def judgements(looked: Viewpoint, measured: Sequence[Measured], shown: Mapping[str, str], t: Words) -> None:
    """Say what the traces tell: of every variant, or of the one that the view looks at."""
    st.header(t("drift.verdicts"))
    found = judging.of_view(looked, measured, shown)
    columns = st.columns(min(len(found), 3))
    for index, one in enumerate(found):
        with columns[index % len(columns)].container(border=True):
            explain.judgement(one.name, one.verdicts, t, one.spoken)


def draw(picture: Picture, place: str, on_pick: Callable[[str, str], None] | None = None, feed: str = "",
         scale: float = 0) -> None:
    """Draw a picture and its remarks. `place`: the page it stands on, or a place on it.

    `on_pick`: takes what a click on it chooses; `feed`: address of the event stream that it follows;
    `scale`: as for `component.draw`.
    """
    for remark in picture.remarks:
        st.info(remark, icon=":material/visibility_off:")
    if picture.figure is not None:
        component.draw(picture.figure, f"{place}.{picture.key}", label=picture.label, height=picture.height,
                       width=picture.width, on_pick=on_pick if picture.picks else None, feed=feed, name=picture.key,
                       scale=scale)


def panel(picture: Picture, measured: Sequence[Measured], t: Words, place: str,
          on_pick: Callable[[str, str], None] | None = None, feed: str = "") -> None:
    """Draw a picture with what it is, its numbers and its images below it, folded; folded, they cost nothing."""
    draw(picture, place, on_pick, feed)
    traces = [one.trace for one in measured if one.trace is not None and picture.shows(one.name)]
    with st.container(horizontal=True, vertical_alignment="center"):
        explain.what(picture.subject, traces, t, key=f"what.{place}.{picture.key}")
        fold = st.popover(t("drift.numbers"), icon=":material/table:", key=f"numbers.{place}.{picture.key}",
                          on_change="rerun", type="tertiary")
        image_panel.fold(picture, measured, t, place)
    if fold.open:
        with fold:
            numbers(picture, t, place)


def numbers(picture: Picture, t: Words, place: str) -> None:
    """Draw the numbers of a picture as a table, and the ways to take them away. `place`: where the picture stands."""
    columns = picture.columns()
    st.dataframe(columns, hide_index=True)
    made = table.table_of(columns)
    with st.container(horizontal=True):
        for ending, (name, kind) in FORMATS.items():
            st.download_button(t("drift.download", format=name), partial(table.FORMATS[ending], made),
                               f"driftscope-{picture.key}{ending}", kind, icon=":material/download:",
                               key=f"download.{place}.{picture.key}{ending}", on_click="ignore")


def hand_out(make: Callable[[], bytes], name: str, t: Words, again: Callable[[], Section] | None = None) -> None:
    """Draw the button that downloads what is on screen as one HTML file, which `make` makes when it is asked for.

    `again`: says how to compute it again, folded; folded, it costs nothing.
    """
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(t("handout.button"), make, f"driftscope-{name}.html", "text/html", on_click="ignore",
                           icon=":material/description:", help=t("handout.help"), key=f"handout.{name}")
        fold = None if again is None else st.popover(t("handout.code"), icon=":material/code:", on_change="rerun",
                                                     type="tertiary", key=f"again.{name}")
    if again is not None and fold is not None and fold.open:
        with fold:
            _listed(again())


def _listed(section: Section) -> None:
    """Draw the texts and codes of a section."""
    st.markdown(f"**{section.heading}**")
    for block in section.blocks:
        if isinstance(block, Prose):
            st.markdown(block.text)
        elif isinstance(block, Code):
            there = st.expander(block.name) if block.folded else st.container()
            there.code(block.text, language=block.language, wrap_lines=True)


def recalled(kept: Sequence[Recall], t: Words) -> Section:
    """Return how to compute again what was kept. Errors: StoreError."""
    return origin.again([recall() for recall in kept], t)


def pairing_and_protocol(measured: Sequence[Measured], t: Words) -> None:
    """Say how the variants are paired, and under which protocol the numbers were taken."""
    with st.container(horizontal=True, vertical_alignment="center"):
        found = origin.paired([one.experiment for one in measured], [one.run.provenance for one in measured])
        if found is not None:
            explain.pairing_badge(found, t)
        said = {one.name: explain.protocol(one.experiment, one.run.provenance, t) for one in measured}
        st.caption("".join(said_once(said, t)))
