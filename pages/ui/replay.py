"""The replay of a training as a film: one picture at its recorded steps, one after another, as GIF.

A figure says in ``layout.meta`` how it follows a player (`pages.ui.component`); what ``played`` and ``cursors`` of
`assets/chart.js` make of that in a browser is made here for a frame. Streamlit is not here.

Axes: N recorded steps.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pages.ui import images, theme
from pages.ui.patches import Figure, plain
from pages.ui.picture import Picture
from pages.ui.text import Words

MOST_FRAMES, FILM_MS, HOLD_MS = 60, 12_000, 2_000
"""So many frames at most are shown in so many milliseconds, and the last for longer."""

TOGETHER = 6
"""So many frames are drawn at once: more are quicker, and less often something is heard of them."""

PNG_END = b"IEND\xaeB`\x82"

Colors = NDArray[np.float32]
"""Colours from 0 to 255, (colours, 3)."""

COLORS, EXACT = 256, 64
"""A GIF has so many colours; so many are exactly those of the picture."""


def moves(picture: Picture) -> bool:
    """Say whether a picture is another one at another step."""
    meta = None if picture.figure is None else picture.figure.layout.meta
    return bool(meta and (meta.get("film") or meta.get("cursor")))


def newest(picture: Picture, steps: Sequence[int], t: Words) -> str:
    """Say which step a picture shows that has no player, where it shows one."""
    meta = picture.figure.layout.meta if picture.figure is not None else None
    return t("player.at_newest", last=steps[-1]) if meta and meta.get("film") and steps else ""


def chosen(steps: Sequence[int]) -> list[int]:
    """Return the steps of the frames: the first, the last, and others evenly between."""
    places = np.linspace(0, len(steps) - 1, min(len(steps), MOST_FRAMES)).round().astype(int)
    return [steps[place] for place in places]


def frames(picture: Picture, steps: Sequence[int], base: str, t: Words) -> Iterator[bytes]:
    """Yield the picture at each of the steps as a PNG of a slide's size, the step in its title. Errors: ImageError."""
    whole, size = plain(picture.figure), images.size(picture)
    for place in range(0, len(steps), TOGETHER):
        figures = [images.dressed(at(whole, step, theme.PALETTES[base].text), base,
                                  t("player.at", step=step, last=steps[-1])) for step in steps[place:place + TOGETHER]]
        content = images.drawn([{**one, "title": "", "source": ""} for one in figures], ".png", size,
                               images.WIDTH / size[0])
        yield from (part + PNG_END for part in content.split(PNG_END)[:-1])


def at(figure: Figure, step: int, color: str) -> Figure:
    """Return a figure, of plain dicts, as it is at a step. `color`: of the line at the step."""
    layout = dict(figure["layout"])
    meta: Mapping[str, Any] = layout.get("meta") or {}
    data = figure["data"]
    if film := meta.get("film"):
        row = max(0, bisect_right(film["steps"], step) - 1)  # of the recorded step there, or of the one before
        then = [film["traces"].get(str(place), {}) for place in range(len(data))]
        data = [{**trace, **{name: rows[row] for name, rows in parts.items()}}
                for trace, parts in zip(data, then, strict=True)]
        if notes := film.get("notes"):
            title = layout["title"]
            layout["title"] = {**title, "subtitle": {**title.get("subtitle", {}), "text": notes[row]}}
    if meta.get("cursor"):
        layout["shapes"] = [*layout.get("shapes", ()), *_cursors(layout, step, color)]
    return {"data": data, "layout": layout}


def _cursors(layout: Figure, step: int, color: str) -> Iterator[Figure]:
    """Yield a line at the step over each x axis."""
    names = [name for name in layout if re.fullmatch(r"xaxis\d*", name)] or ["xaxis"]
    for name in names:
        axis, number = layout.get(name, {}), name.removeprefix("xaxis")
        x = _place(step, axis)
        anchor = str(axis.get("anchor", ""))
        over = anchor if anchor.startswith("y") else f"y{number}"
        if x is not None:
            yield {"type": "line", "xref": f"x{number}", "yref": f"{over} domain", "x0": x, "x1": x, "y0": 0, "y1": 1,
                   "line": {"color": color, "width": 2}}


def _place(step: int, axis: Figure) -> int | None:
    """Return where a step stands on an axis: among categories beside the last one before it; None for nowhere."""
    if axis.get("type") == "log" and step <= 0:
        return None
    if axis.get("type") != "category":
        return step
    before = [place for place, one in enumerate(axis.get("categoryarray", ())) if int(one) <= step]
    return before[-1] if before else None


def gif(pngs: Sequence[bytes], said: str = "") -> bytes:
    """Return the frames as a GIF that runs again and again. `said`: what it shows, a comment in it."""
    palette = _palette([pngs[place] for place in sorted({0, len(pngs) // 2, len(pngs) - 1})])
    first, *others = [_indexed(_opened(png), palette) for png in pngs]
    each = FILM_MS // len(pngs)
    content = io.BytesIO()
    first.save(content, "GIF", save_all=True, append_images=others, loop=0, comment=said.encode()[:255],
               duration=[*[each] * len(others), each + HOLD_MS])
    return content.getvalue()


def _opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def _palette(pngs: Sequence[bytes]) -> Colors:
    """Return the colours of all frames, lest they flicker: exactly those that fill most of these, some near others."""
    sheet = Image.fromarray(np.concatenate([np.asarray(_opened(png)) for png in pngs]))
    found, counts = np.unique(_packed(sheet), return_counts=True)
    most = _unpacked(found[np.argsort(-counts)[:EXACT]])
    others = sheet.quantize(COLORS - len(most), dither=Image.Dither.NONE).getpalette() or []
    return np.concatenate([most, np.array(others, np.float32).reshape(-1, 3)])[:COLORS]


def _indexed(picture: Image.Image, palette: Colors) -> Image.Image:
    """Return a picture in the nearest of these colours; Pillow's own way to do it takes one that is near."""
    packed = _packed(picture)
    nearest = np.zeros(1 << 24, np.uint8)  # of every colour there is
    nearest[packed] = 1
    found = np.flatnonzero(nearest)
    nearest[found] = ((palette**2).sum(axis=-1) - 2 * _unpacked(found) @ palette.T).argmin(axis=-1)
    indexed = Image.fromarray(nearest[packed], "P")
    indexed.putpalette(palette.astype(np.uint8).ravel().tolist())
    return indexed


def _packed(picture: Image.Image) -> NDArray[np.int32]:
    """Return the colour of each pixel as one number."""
    red, green, blue = np.moveaxis(np.asarray(picture).astype(np.int32), -1, 0)
    packed: NDArray[np.int32] = red << 16 | green << 8 | blue
    return packed


def _unpacked(colors: NDArray[np.integer]) -> Colors:
    return np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1).astype(np.float32)
