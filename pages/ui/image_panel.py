"""Below a chart: the chart as an image for slides, and where a player moves it, the replay as a film.

It knows Streamlit and pictures; how images are made is in `pages.ui.images` and `pages.ui.replay`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import streamlit as st

from pages.ui import chromium, feed, images, patches, replay, theme
from pages.ui.cache import Measured
from pages.ui.chromium import ImageError
from pages.ui.filming import Filming
from pages.ui.picture import Picture
from pages.ui.text import Words, escaped

WATCH_S, TOLD_S = 0.5, 2.0
"""So often a page looks how far a film is, and whether a download failed."""


def fold(picture: Picture, measured: Sequence[Measured], t: Words, place: str) -> None:
    """Draw what unfolds the ways to take the chart away as an image; folded, it costs nothing.

    `measured`: the runs whose numbers it shows; `place`: where it stands.
    """
    if picture.figure is None:
        return
    opened = st.popover(t("image.fold"), icon=":material/image:", key=f"image.{place}.{picture.key}",
                        on_change="rerun", type="tertiary")
    if opened.open:
        with opened:
            _ways(replace(picture, columns=dict), measured, t, place)  # its numbers are not kept until it is drawn


def _ways(picture: Picture, measured: Sequence[Measured], t: Words, place: str) -> None:
    if not chromium.found():
        st.info(t("image.no_chromium"), icon=":material/info:")
        return
    try:
        with st.spinner(t("image.starting")):
            chromium.STUDIO.open()
    except ImageError as error:
        _say(error, t)
        return
    here = f"{place}.{picture.key}"
    shown = [one for one in measured if picture.shows(one.name)]
    runs, steps = [one.run.id for one in shown], feed.steps(shown)
    width, height = images.size(picture)
    st.caption(t("image.lead", width=images.PIXELS * width, height=images.PIXELS * height))
    base = st.segmented_control(t("image.theme"), list(theme.PALETTES), default=st.context.theme.type or "light",
                                required=True, format_func=lambda name: t(f"image.{name}"), key=f"theme.{here}")
    said = replay.newest(picture, steps, t)
    troubles: list[ImageError] = st.session_state.setdefault(f"image.{here}.troubles", [])
    with st.container(horizontal=True):
        for ending, (name, kind) in images.FORMATS.items():
            st.download_button(t("drift.download", format=name),
                               partial(_made, troubles, picture, ending, base, runs, said),
                               f"driftscope-{picture.key}{ending}", kind, icon=":material/download:",
                               key=f"image.{here}{ending}", on_click="ignore")
    st.fragment(_told, run_every=TOLD_S)(troubles, t)
    if replay.moves(picture) and len(steps) > 1:
        _film(picture, replay.chosen(steps), base, t, f"film.{here}")


def _made(troubles: list[ImageError], *asked: Any) -> bytes:
    """Return an image as `images.image` makes it; a failure is kept in `troubles` until the next one is asked for.

    Streamlit calls it when the button is pressed, outside of the page, and says of an error only that there was one.
    """
    troubles.clear()
    try:
        return images.image(*asked)
    except ImageError as error:
        troubles.append(error)
        raise


def _told(troubles: Sequence[ImageError], t: Words) -> None:
    """Say why the last download failed."""
    for error in troubles:
        _say(error, t)


def _say(error: ImageError, t: Words) -> None:
    about = {name: escaped(str(value)) for name, value in error.values.items()}
    st.error(t("image.failed", reason=t(error.key, **about)), icon=":material/error:")


def _film(picture: Picture, steps: Sequence[int], base: str, t: Words, key: str) -> None:
    """Draw the button that makes the replay, how far it is, and what takes it away."""
    of = _identity(picture, steps, base, t)
    made, filming = st.session_state.get(key, (of, None))
    if filming is not None and made != of:
        filming.stop()
        filming = None
    if filming is not None and filming.look():
        st.fragment(_progress, run_every=WATCH_S)(filming, t, key)
        return
    if filming is not None and filming.trouble:
        _say(filming.trouble, t)
    with st.container(horizontal=True):
        if filming is not None and filming.content:
            st.download_button(t("drift.download", format="GIF"), filming.content, f"driftscope-{picture.key}.gif",
                               "image/gif", icon=":material/download:", key=f"{key}.gif", on_click="ignore")
        st.button(t("image.film"), icon=":material/movie:", key=f"{key}.make", on_click=_start,
                  args=(picture, steps, base, of, t, key), help=t("image.film_help", count=len(steps)))


def _identity(picture: Picture, steps: Sequence[int], base: str, t: Words) -> Hashable:
    """Return what a replay is of: whatever would be seen differently in it makes another one."""
    shown = sha256(patches.wire(patches.plain(picture.figure))).digest()
    return picture.label, base, t.lang, tuple(steps), shown


def _start(picture: Picture, steps: Sequence[int], base: str, of: Hashable, t: Words, key: str) -> None:
    frames = replay.frames(picture, steps, base, t)
    st.session_state[key] = (of, Filming(frames, len(steps), partial(replay.gif, said=picture.label)))


def _progress(filming: Filming, t: Words, key: str) -> None:
    """Show how far a film is; draw the page anew when it is over."""
    if not filming.look():
        st.rerun()
    st.progress(filming.done / filming.count, text=t("image.filming", done=filming.done, count=filming.count))
    st.button(t("live.stop"), icon=":material/stop:", key=f"{key}.stop", on_click=filming.stop)
