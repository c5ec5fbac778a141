"""What can stand in a hand-out, each kind one class and one function that writes it as HTML.

It knows pictures and words; it does not know runs, views or Streamlit's session. Whatever comes in is text, except the
cells of a worksheet, which our own code wrote.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from core import table
from core.trace import Trace
from pages.ui import component, explain
from pages.ui.handout_marks import cell, folded, formula, judgement, paragraph, prose
from pages.ui.picture import FORMATS, Columns, Picture
from pages.ui.text import Words

ROWS = 200
"""So many rows of a table are shown; its downloads have them all."""

DOWNLOAD_BYTES = 2**20
"""A table that is larger as a file of one format is not put into the hand-out in that format."""


@dataclass(frozen=True)
class Prose:
    """Markdown: paragraphs, lists, tables, formulas. `look`: class of the style sheet."""

    text: str
    look: str = ""


@dataclass(frozen=True)
class Drawn:
    """A picture, defined with what `traces` (by variant) observed. `above`, `below`: Markdown around it.

    `again`: address of the page that shows it, below the folder where the pages are.
    """

    picture: Picture
    traces: Mapping[str, Trace] = field(default_factory=dict)
    above: str = ""
    below: str = ""
    again: str = ""


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
class Spoken:
    """What is said of one variant; what is folded comes last. `name`: of the variant, empty for none."""

    name: str
    said: Sequence[Said]


@dataclass(frozen=True)
class Table:
    """A table under a heading of its own."""

    name: str
    columns: Columns


@dataclass(frozen=True)
class Code:
    """A text in fixed type under a heading. `folded`: whether it is folded away; `name`: may be empty.

    `language`: of a program.
    """

    name: str
    text: str
    folded: bool = False
    language: str | None = None


@dataclass(frozen=True)
class Cells:
    """A line of a worksheet: cells in HTML, `formula` (LaTeX) and `name` beside them."""

    name: str
    formula: str
    cells: str


@dataclass(frozen=True)
class Again:
    """How a figure that is no picture can be had anew. `address`: as of `Drawn`."""

    address: str


@dataclass(frozen=True)
class Folded:
    """Blocks under a heading that unfolds them."""

    name: str
    blocks: Sequence[Block]


Block = Prose | Drawn | Spoken | Table | Code | Cells | Again | Folded


class Writer:
    """Writes blocks of one file, and gathers in `figures` what its script will draw."""

    def __init__(self, t: Words) -> None:
        self.t = t
        self.figures: list[dict[str, Any]] = []

    def all(self, blocks: Sequence[Block]) -> str:
        """Return blocks as HTML, one below the other."""
        return "\n".join(map(self.write, blocks))

    @singledispatchmethod
    def write(self, block: Any) -> str:
        """Return a block as HTML."""
        raise TypeError(f"{type(block).__name__} is no block of a hand-out")

    @write.register
    def _(self, block: Prose) -> str:
        return prose(block.text, block.look)

    @write.register
    def _(self, block: Spoken) -> str:
        first, rest = ("".join(judgement(one.text, one.alarm, one.expected)
                               for one in block.said if one.folded is away) for away in (False, True))
        head = f"<h3>{html.escape(block.name)}</h3>" if block.name else ""
        return f"<div class=judged>{head}{first}{folded(self.t('handout.more'), rest)}</div>"

    @write.register
    def _(self, block: Table) -> str:
        return f"<h3>{html.escape(block.name)}</h3>{_table(block.columns)}"

    @write.register
    def _(self, block: Code) -> str:
        text = _fixed(block.text)
        if block.folded:
            return folded(block.name, text)
        return (f"<h3>{html.escape(block.name)}</h3>" if block.name else "") + text

    @write.register
    def _(self, block: Cells) -> str:
        head = html.escape(block.name) + (f" {formula(block.formula)}" if block.formula else "")
        return f"<div class=cells><div>{head}</div>{block.cells}</div>"

    @write.register
    def _(self, block: Again) -> str:
        return _again(block.address, self.t)

    @write.register
    def _(self, block: Folded) -> str:
        return folded(block.name, self.all(block.blocks))

    @write.register
    def _(self, block: Drawn) -> str:
        """A picture with what it owes a reader: remarks, what its numbers are, the numbers, and files of them."""
        picture, t = block.picture, self.t
        parts = [prose(block.above), *(paragraph(remark, "remark") for remark in picture.remarks)]
        if picture.figure is not None:
            parts.append(f'<div class=chart data-figure="{len(self.figures)}" '
                         f'style="min-height:{picture.height}px"></div>')
            self.figures.append(_drawn(picture))
        below = [f"<figcaption>{prose(block.below)}</figcaption>" if block.below else "",
                 folded(t("drift.what"), self._defined(block)), folded(t("drift.numbers"), _numbers(picture, t)),
                 _again(block.again, t)]
        inner = "\n".join(filter(None, [*parts, *below]))
        return f'<figure aria-label="{html.escape(picture.label)}">{inner}</figure>'

    def _defined(self, block: Drawn) -> str:
        known = [trace for name, trace in block.traces.items() if block.picture.shows(name)]
        found = explain.definitions(block.picture.subject, known, self.t)
        return "".join(paragraph(one.text) + (_fixed(one.formula) if one.formula else "") + paragraph(one.count, "lead")
                       for one in found)


def _fixed(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _again(address: str, t: Words) -> str:
    """Return where a figure can be had anew, as a link and to copy; nothing where that is not known."""
    if not address:
        return ""
    link = f'<p><a href="{html.escape(address)}">{html.escape(t("handout.open"))}</a></p>'
    return folded(t("handout.redo"), link + paragraph(t("handout.redo_said"), "lead") + _fixed(address))


def _drawn(picture: Picture) -> dict[str, Any]:
    """Return what the script is handed of a picture, without its film: there is no player."""
    assert picture.figure is not None
    made = {**component.drawn(picture.figure, picture.label), "height": picture.height, "width": picture.width}
    for film in ("film", "cursor"):
        made["figure"]["layout"].get("meta", {}).pop(film, None)
    return made


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
