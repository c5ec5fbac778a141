"""Words as HTML: sentences and prose in Markdown, formulas, cells of tables, folds, judgements.

Markdown is read by a library that is told which marks there are; whatever else a text holds is shown letter by letter
and none of it becomes HTML. Formulas become MathML, which browsers draw by themselves. No Streamlit.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from xml.etree.ElementTree import tostring

from latex2mathml.converter import Converter
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from core.table import shown

SIGNS: dict[bool | None, tuple[str, str]] = {True: ("✕", "alarm"), False: ("✓", "calm"), None: ("", "open")}
"""Whether a sentence says that something is wrong → its sign and the class of its colour."""

ICONS: Mapping[str, str] = {"error": "✕", "check_circle": "✓", "compare_arrows": "≠", "drag_handle": "="}
"""Streamlit's icons in our sentences → the sign that stands for each; others are left out."""

_ICON = re.compile(r":(?P<color>\w+)\[:material/(?P<icon>\w+):\]")


def formula(latex: str, display: bool = False) -> str:
    """Return a formula as MathML, or its source where that cannot be read. `display`: on a line of its own."""
    try:
        made = Converter(display="block" if display else "inline").convert_to_element(latex)
    except Exception:  # it raises what it happens to meet
        return f"<code>{html.escape(latex)}</code>"
    for part in made.iter():  # its texts are HTML already, whatever was in the source
        part.text = html.unescape(part.text or "")
        part.attrib.pop("href", None)
    return tostring(made, encoding="unicode")


def _math(content: str, options: Mapping[str, bool]) -> str:
    return formula(content, options["display_mode"])


_INLINE = ("escape", "backticks", "emphasis", "newline")
_SENTENCE = MarkdownIt("zero").enable(list(_INLINE))
_PROSE = MarkdownIt("zero").enable([*_INLINE, "link", "list", "table"]).use(dollarmath_plugin, renderer=_math)


def marked(text: str) -> str:
    """Return a sentence in Markdown as HTML: ``code``, **strong**, *stressed*, line breaks, and signs taken literally.
    """
    return str(_SENTENCE.renderInline(_signs(text)))


def prose(text: str, look: str = "") -> str:
    """Return paragraphs, lists and tables in Markdown as HTML, with links and formulas. `look`: class of the whole."""
    return f'<div class="prose {look}">{_PROSE.render(_signs(text))}</div>' if text else ""


def _signs(text: str) -> str:
    return _ICON.sub(lambda found: ICONS.get(found["icon"], ""), text)


def cell(value: object) -> str:
    """Return a cell of a table; numbers stand at the right, in all their digits, and what is missing is empty."""
    if value is None:
        return "<td></td>"
    if isinstance(value, float):  # numpy's too
        return f"<td class=number>{shown(value)}</td>"
    kind = " class=number" if isinstance(value, int) and not isinstance(value, bool) else ""
    return f"<td{kind}>{html.escape(str(value))}</td>"


def folded(heading: str, content: str) -> str:
    """Return content in HTML under a heading that unfolds it."""
    return f"<details><summary>{html.escape(heading)}</summary>{content}</details>" if content else ""


def paragraph(text: str, look: str = "") -> str:
    """Return a text in Markdown as a paragraph of a class of the style sheet; nothing where there is none."""
    return f'<p class="{look}">{marked(text)}</p>' if text else ""


def judgement(text: str, alarm: bool | None, expected: str) -> str:
    """Return a sentence in Markdown with the sign of what it says, and below it what was to be expected."""
    sign, look = SIGNS[alarm]
    icon = f"<span class={look} aria-hidden=true>{sign}</span> " if sign else ""
    return f"<p>{icon}{marked(text)}</p>{paragraph(expected, 'lead')}"
