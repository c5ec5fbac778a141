"""A hand-out: titles, sentences, pictures and tables as one HTML file that fetches nothing.

The pages' own component (``assets/chart.js``) draws its charts, with plotly.js in the file. What can stand in it is in
`pages.ui.handout_blocks`.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template

from pages.ui import component, theme
from pages.ui.handout_blocks import Block, Drawn, Writer
from pages.ui.handout_marks import marked
from pages.ui.picture import Picture
from pages.ui.text import Words

STATIC = component.ASSETS / "handout"


@dataclass(frozen=True)
class Section:
    """A part of a hand-out under a heading: blocks in their order."""

    heading: str
    blocks: Sequence[Block]

    @property
    def pictures(self) -> list[Picture]:
        """The pictures that stand in it."""
        return [block.picture for block in self.blocks if isinstance(block, Drawn)]


def page(title: str, lead: str, sections: Sequence[Section], t: Words) -> str:
    """Return the file: a document of its own, in the light or the dark theme of who reads it."""
    writer = Writer(t)
    body = "\n".join(f"<section><h2>{html.escape(section.heading)}</h2>{writer.all(section.blocks)}</section>"
                     for section in sections)
    shared = {**component.spoken(t), "library": "", "module": "", "feed": "", "name": "", "scale": 0, "picks": False}
    sheet = packed(json.dumps({"shared": shared, "figures": writer.figures}, allow_nan=False).encode())
    script = (STATIC / "handout.js").read_text("utf-8")
    return Template((STATIC / "handout.html").read_text("utf-8")).substitute(
        lang=t.lang, title=html.escape(title), lead=marked(lead), body=body, style=_style(), script=script,
        policy=_policy(script), theme=html.escape(t("handout.theme")), failure=html.escape(t("handout.failed")),
        chart=packed(component.SCRIPT.encode()), plotly=_plotly(), sheet=sheet)


def packed(content: bytes) -> str:
    """Return content compressed, as letters that mean nothing in HTML."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


@cache
def _plotly() -> str:
    """Return plotly.js, packed; that takes a moment."""
    return packed((files("plotly") / "package_data" / "plotly.min.js").read_bytes())


def _policy(script: str) -> str:
    """Return the rule by which a browser runs our script, what that unpacks, no other, and asks nobody for anything."""
    ours = base64.b64encode(sha256(script.encode()).digest()).decode()
    return (f"default-src 'none'; script-src 'sha256-{ours}' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'")


def _style() -> str:
    """Return the style sheet: both themes as the variables that charts read, and the rules for both."""
    sheets = [(path / name).read_text("utf-8") for path, name in
              ((component.ASSETS, "chart.css"), (STATIC, "handout.css"))]
    light, dark = (_variables(theme.PALETTES[base]) for base in ("light", "dark"))
    chosen = f':root[data-theme="dark"]{{{dark}}}'
    return "\n".join([f":root{{{light}}}", f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}",
                      f':root[data-theme="light"]{{{light}}}', chosen, *sheets])


def _variables(look: theme.Palette) -> str:
    named = {"background-color": look.background, "text-color": look.text, "primary-color": look.accent,
             "border-color": look.grid, "muted-color": look.muted}
    return "".join(f"--st-{name}:{color};" for name, color in named.items())
