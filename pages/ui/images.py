"""A picture as an image for slides: PNG, SVG, PDF, in the look that it has on the page.

It knows figures and themes; how a figure becomes an image is in `pages.ui.chromium`. Streamlit is not here.
"""

from __future__ import annotations

import html
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pages.ui import chromium, theme
from pages.ui.patches import Figure, plain
from pages.ui.picture import Picture

FORMATS: Mapping[str, tuple[str, str]] = {
    ".png": ("PNG", "image/png"), ".svg": ("SVG", "image/svg+xml"), ".pdf": ("PDF", "application/pdf"),
}
"""An image's ending → its name and its media type."""

FONT = ("'Source Sans', 'Source Sans 3', Arial, 'Liberation Sans', "
        "'PingFang SC', 'Microsoft YaHei', 'Noto Sans SC', 'Noto Sans CJK SC', sans-serif")
"""The type of the pages, which a browser has from the server; where it is not installed, one much like it; Chinese."""

WIDTH, HEIGHT = 1280, 720
"""A slide in CSS pixels, for which type has its size; a picture that needs more gets it, in the same ratio."""

PIXELS = 2
"""So many pixels of a PNG make one CSS pixel."""

SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER_BYTES = len(SIGNATURE) + 25
"""What a PNG begins with: its signature and the chunk of its size."""


def image(picture: Picture, ending: str, base: str, runs: Sequence[str] = ()) -> bytes:
    """Return a picture as an image. `ending`: of FORMATS; `base`: the theme; `runs`: whose numbers it shows.

    A chart that a player moves is as it is at the newest step. A PNG and an SVG say what they show, and of which runs.
    Errors: ImageError.
    """
    width, height = size(picture)
    scale = PIXELS if ending == ".png" else 1
    content = chromium.STUDIO.draw(dressed(plain(picture.figure), base), format=ending[1:], width=width, height=height,
                                   scale=scale)
    told = {"Title": picture.label, "Software": "Driftscope", **({"Source": " ".join(["runs", *runs])} if runs else {})}
    return _TOLD[ending](content, told)


def size(picture: Picture) -> tuple[int, int]:
    """Return width and height of a picture's image in CSS pixels."""
    factor = max(1.0, picture.width / WIDTH, picture.height / HEIGHT)
    return round(factor * WIDTH), round(factor * HEIGHT)


def dressed(figure: Figure, base: str) -> Figure:
    """Return a figure in a theme of the pages, without what only a player reads and what only a visitor presses."""
    look: dict[str, Any] = theme.template(base).to_plotly_json()
    font = {**look["layout"]["font"], "family": FONT}
    hidden = ("meta", "updatemenus")
    layout = {name: value for name, value in figure["layout"].items() if name not in hidden}
    return {"data": figure["data"], "layout": {**layout, "template": {**look, "layout": {**look["layout"], "font": font}}}}


def _png(content: bytes, told: Mapping[str, str]) -> bytes:
    """Return a PNG with texts in it, each a keyword and UTF-8."""
    texts = b"".join(_chunk(b"iTXt", name.encode() + b"\0" * 5 + text.encode()) for name, text in told.items())
    return content[:HEADER_BYTES] + texts + content[HEADER_BYTES:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _svg(content: bytes, told: Mapping[str, str]) -> bytes:
    """Return an SVG with its title and the rest as its description."""
    title, *rest = told.values()
    said = f"<title>{html.escape(title)}</title><desc>{html.escape(' · '.join(rest))}</desc>"
    head, end, body = content.partition(b">")
    return head + end + said.encode() + body


_TOLD: Mapping[str, Callable[[bytes, Mapping[str, str]], bytes]] = {
    ".png": _png, ".svg": _svg, ".pdf": lambda content, _told: content,
}
"""An image's ending → what writes into it what it shows."""
