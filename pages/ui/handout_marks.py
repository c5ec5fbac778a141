"""Words as HTML: the few marks of Markdown that our sentences have, cells of tables, folds, judgements.

Every letter of a text is shown; none of it becomes HTML but by a mark named here. No words of its own, no Streamlit.
"""

from __future__ import annotations

import html
import re

from core.table import shown

SIGNS: dict[bool | None, tuple[str, str]] = {True: ("✕", "alarm"), False: ("✓", "calm"), None: ("", "open")}
"""Whether a sentence says that something is wrong → its sign and the class of its colour."""

_MARKS = re.compile(r"\\(?P<literal>[\\`*_{}\[\]<>()#+\-.!|:$~])|`(?P<code>[^`]*)`|\*\*(?P<strong>(?:\\.|[^*\\])+)\*\*"
                    r"|(?P<line> *\n)")


def marked(text: str) -> str:
    """Return a sentence in Markdown as HTML: ``code``, **strong**, line breaks, and signs taken literally."""
    parts, end = [], 0
    for found in _MARKS.finditer(text):
        parts += [html.escape(text[end:found.start()]), _mark(found)]
        end = found.end()
    return "".join([*parts, html.escape(text[end:])])


def _mark(found: re.Match[str]) -> str:
    kind, inner = found.lastgroup, found.group(found.lastgroup or 0)
    if kind == "strong":
        return f"<strong>{marked(inner)}</strong>"
    return {"literal": html.escape(inner), "code": f"<code>{html.escape(inner)}</code>"}.get(kind or "", "<br>")


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
