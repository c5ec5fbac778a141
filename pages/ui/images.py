"""A picture as an image for slides: PNG, SVG, PDF, in the look that it has on the page.

It knows figures and themes; how a figure becomes an image is in `pages.ui.chromium` and `assets/images.js`. Streamlit
is not here.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pages.ui import chromium, theme
from pages.ui.patches import Figure, plain
from pages.ui.picture import Picture

FORMATS: Mapping[str, tuple[str, str]] = {
    ".png": ("PNG", "image/png"), ".svg": ("SVG", "image/svg+xml"), ".pdf": ("PDF", "application/pdf"),
}
"""An image's ending → its name and its media type."""

WIDTH, HEIGHT = 1280, 720
"""A slide in CSS pixels, for which type has its size; a picture that needs more gets it, in the same ratio."""

PIXELS = 2
"""So many pixels of a PNG make one CSS pixel."""

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A sign that no XML may hold."""

HEADER_BYTES = 33
"""A PNG begins with its signature and the chunk of its size."""


def image(picture: Picture, ending: str, base: str, runs: Sequence[str] = (), said: str = "") -> bytes:
    """Return a picture as an image. `ending`: of FORMATS; `base`: the theme; `runs`: whose numbers it shows.

    A chart that a player moves is as it is at the newest step; `said`: stands behind its title. The file says what it
    shows: its title, and in PNG and SVG the runs. Errors: ImageError.
    """
    title, source = legal(picture.label), legal(" ".join(["Driftscope", *runs]))
    figure = {**dressed(plain(picture.figure), base, said), "title": title, "source": source}
    content = drawn([figure], ending, size(picture), PIXELS if ending == ".png" else 1)
    return _told(content, {"Title": title, "Source": source}) if ending == ".png" else content


def size(picture: Picture) -> tuple[int, int]:
    """Return width and height of a picture's image in CSS pixels."""
    factor = max(1.0, picture.width / WIDTH, picture.height / HEIGHT)
    return round(factor * WIDTH), round(factor * HEIGHT)


def dressed(figure: Figure, base: str, said: str = "") -> Figure:
    """Return a figure in a theme of the pages, without what only a player reads and what only a visitor presses.

    `said`: stands behind its title.
    """
    look: dict[str, Any] = theme.template(base).to_plotly_json()
    font = {**look["layout"]["font"], "family": theme.FONT}
    template = {**look, "layout": {**look["layout"], "font": font}}
    layout = {name: value for name, value in figure["layout"].items() if name not in ("meta", "updatemenus")}
    if said:
        layout["title"] = {**layout["title"], "text": f"{layout['title']['text']} · {said}"}
    return {"data": legal(figure["data"]), "layout": {**legal(layout), "template": template}}


def drawn(figures: Sequence[Figure], ending: str, size: tuple[int, int], scale: float) -> bytes:
    """Return the image of a dressed figure that has a title and a source, or several PNGs. Errors: ImageError."""
    return chromium.STUDIO.draw(figures, format=ending[1:], width=size[0], height=size[1], scale=scale)


def legal(part: Any) -> Any:
    """Return a part of a figure without the signs in its words that XML forbids: an SVG with one cannot be read."""
    if isinstance(part, str):
        return _FORBIDDEN.sub("", part)
    if isinstance(part, dict):
        return {name: legal(one) for name, one in part.items()}
    if isinstance(part, list | tuple) or (isinstance(part, np.ndarray) and part.dtype.kind in "OU"):
        return [legal(one) for one in part]
    return part


def _told(content: bytes, texts: Mapping[str, str]) -> bytes:
    """Return a PNG with texts in it, by keyword."""
    chunks = b"".join(_chunk(b"iTXt", name.encode() + b"\0" * 5 + text.encode()) for name, text in texts.items())
    return content[:HEADER_BYTES] + chunks + content[HEADER_BYTES:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
