"""A hand-out: titles, sentences, pictures and tables as one HTML file that fetches nothing.

The pages' own component (``assets/chart.js``) draws its charts, with plotly.js in the file. It knows pictures;
it does not know runs, views or Streamlit's session. Whatever comes in is text: what is no mark of ours is literal.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

from core import table
from core.trace import Trace
from pages.ui import component, explain, theme
from pages.ui.handout_marks import cell, folded, judgement, marked, paragraph
from pages.ui.picture import FORMATS, Columns, Picture
from pages.ui.text import Words

ROWS = 200
"""So many rows of a table are shown; its downloads have them all."""

DOWNLOAD_BYTES = 2**20
"""A table that is larger as a file of one format is not put into the hand-out in that format."""

STATIC = component.ASSETS / "handout"


@dataclass(frozen=True)
class Said:
    """A sentence in Markdown. `alarm`: whether it says that something is wrong, None where it does not judge.

    `expected`: what was to be expected of it; `folded`: whether it is folded away.
    """

    text: str
    alarm: bool | None = None
    expected: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a hand-out: what stands in it, in this order.

    `lead`: Markdown; `pictures`, each defined with what `traces` (by variant) observed; `said`: by variant;
    `tables`, `codes`: by what stands above them; `folded`: codes that are folded away.
    """

    heading: str
    lead: str = ""
    pictures: Sequence[Picture] = ()
    traces: Mapping[str, Trace] | None = None
    said: Mapping[str, Sequence[Said]] | None = None
    tables: Mapping[str, Columns] | None = None
    codes: Mapping[str, str] | None = None
    folded: Mapping[str, str] | None = None


def page(title: str, lead: str, sections: Sequence[Section], t: Words) -> str:
    """Return the file: a document of its own, in the light or the dark theme of who reads it."""
    figures: list[dict[str, Any]] = []
    body = "\n".join(_section(section, figures, t) for section in sections)
    sheet = packed(json.dumps({"shared": {**component.spoken(t), "library": "", "module": "", "feed": "", "name": "",
                                          "scale": 0, "picks": False}, "figures": figures}, allow_nan=False).encode())
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


def _section(section: Section, figures: list[dict[str, Any]], t: Words) -> str:
    """Return a part as HTML; its figures are added to those that the script will draw."""
    parts = [f"<h2>{html.escape(section.heading)}</h2>", paragraph(section.lead, "lead")]
    parts += [_picture(picture, section.traces or {}, figures, t) for picture in section.pictures]
    parts += [_judged(name, said, t) for name, said in (section.said or {}).items()]
    for name, columns in (section.tables or {}).items():
        parts += [f"<h3>{html.escape(name)}</h3>", _table(columns)]
    parts += [f"<h3>{html.escape(name)}</h3>{_code(text)}" for name, text in (section.codes or {}).items()]
    parts += [folded(name, _code(text)) for name, text in (section.folded or {}).items()]
    return "<section>" + "\n".join(part for part in parts if part) + "</section>"


def _code(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _picture(picture: Picture, traces: Mapping[str, Trace], figures: list[dict[str, Any]], t: Words) -> str:
    """Return a picture with what it owes a reader: remarks, what its numbers are, the numbers, and files of them."""
    parts = [paragraph(remark, "remark") for remark in picture.remarks]
    if picture.figure is not None:
        parts.append(f'<div class=chart data-figure="{len(figures)}" style="min-height:{picture.height}px"></div>')
        figures.append({**component.drawn(picture.figure, picture.label), "height": picture.height,
                        "width": picture.width})
        for film in ("film", "cursor"):  # for a player, which is not here
            figures[-1]["figure"]["layout"].get("meta", {}).pop(film, None)
    known = [trace for name, trace in traces.items() if picture.variant in ("", name)]
    defined = "".join(paragraph(one.text) + (_code(one.formula) if one.formula else "")
                      + paragraph(one.count, "lead") for one in explain.definitions(picture.subject, known, t))
    parts += [folded(t("drift.what"), defined), folded(t("drift.numbers"), _numbers(picture, t))]
    return f'<figure aria-label="{html.escape(picture.label)}">' + "\n".join(parts) + "</figure>"


def _numbers(picture: Picture, t: Words) -> str:
    """Return the numbers of a picture as a table, and as files that are in this one."""
    columns = picture.columns()
    made = table.table_of(columns)
    links, large = [], []
    for ending, (name, media) in FORMATS.items():
        content = table.FORMATS[ending](made)
        file = html.escape(f"driftscope-{picture.key}{ending}")
        if len(content) > DOWNLOAD_BYTES:
            large.append(paragraph(t("handout.too_large", format=name), "lead"))
        else:
            links.append(f'<a class=button download="{file}" href="data:{media};base64,'
                         f'{base64.b64encode(content).decode()}">{html.escape(t("drift.download", format=name))}</a>')
    more = t("handout.rows", shown=ROWS, count=made.num_rows) if made.num_rows > ROWS else ""
    return _table(columns) + paragraph(more, "lead") + " ".join([*links, *large])


def _table(columns: Columns) -> str:
    """Return the first rows of a table."""
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" if name else "<td></td>" for name in columns)
    rows = zip(*(list(values)[:ROWS] for values in columns.values()), strict=True)
    body = "".join("<tr>" + "".join(cell(value) for value in row) + "</tr>" for row in rows)
    return f"<div class=table><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _judged(name: str, said: Sequence[Said], t: Words) -> str:
    """Return what is said of one variant; what is folded comes last."""
    first, rest = ("".join(judgement(one.text, one.alarm, one.expected) for one in said if one.folded is away)
                   for away in (False, True))
    head = f"<h3>{html.escape(name)}</h3>" if name else ""
    return f"<div class=judged>{head}{first}{folded(t('handout.more'), rest)}</div>"
