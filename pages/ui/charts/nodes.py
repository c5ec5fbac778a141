"""What the nodes of a wiring are called: the lines in a box, and what its label says when it is pointed at.

Codes and numbers come in, words go out through `t`. The file does not know where a node is drawn.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable

from core.equations import written
from core.notation import number
from core.tables import NORMS
from core.wiring import Node, Wiring
from pages.ui.charts.marks import literal
from pages.ui.text import Words

WRAP = {"en": 48, "zh": 24}
"""Signs in a line of a hover label."""

LONGEST_SPANS, LONGEST_LINE = 12, 16
"""Signs of layer numbers in a block's caption, and of words packed into one line of a box; a wide one counts twice."""


def lines(node: Node, t: Words) -> list[str]:
    """Return the lines in a node's box, its name first; nothing for the stream, which has no box."""
    return [literal(line) for line in LINES[node.kind](node, t)]


def hover(node: Node, t: Words) -> str:
    """Say what a node is, in a sentence, and its formula."""
    kind = t(f"wiring_kind.{node.kind}")
    name = " ".join(LINES[node.kind](node, t)[:1]) if node.kind == "norm" else kind
    inside = [t("wiring.inside", sites=", ".join(node.inside))] if node.inside else []
    return _label(name, [t(f"wiring_help.{node.kind}"), *inside], [line.plain for line in written(node)], t)


def site_hover(site: str, t: Words) -> str:
    """Say what a site shows."""
    return _label(f"{t(f'site.{site}')} ({site})", [t(f"site_help.{site}")], [], t)


def caption(wiring: Wiring, t: Words) -> tuple[str, str]:
    """Say for which layers a block stands: in short, and in full for its label."""
    if len(wiring.layers) == wiring.depth:
        return t("wiring.block", depth=wiring.depth), ""
    spans = ranges(wiring.layers)
    short = spans if len(spans) <= LONGEST_SPANS else spans[:LONGEST_SPANS].rpartition(",")[0] + ", …"
    key = "wiring.layer" if len(wiring.layers) == 1 else "wiring.layers"
    return t(key, layers=short, depth=wiring.depth), t(key, layers=spans, depth=wiring.depth)


def ranges(layers: tuple[int, ...]) -> str:
    """Write layer numbers as ranges: ``0–2, 4, 6–11``."""
    spans: list[list[int]] = []
    for layer in layers:
        if spans and layer == spans[-1][1] + 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in spans)


def _label(name: str, sentences: list[str], formulas: list[str], t: Words) -> str:
    wrapped = [line for sentence in sentences for line in _wrapped(sentence, WRAP[t.lang])]
    shown = [f"<b>{literal(name)}</b>", *map(literal, wrapped), *([""] if formulas else []),
             *(f"<b>{literal(line)}</b>" for line in formulas)]
    return "<br>".join(shown)


def _wrapped(sentence: str, signs: int) -> list[str]:
    """Return a sentence in lines; a Chinese line does not begin with a mark."""
    return re.sub(r"\n([，。；：、）])", r"\1\n", "\n".join(textwrap.wrap(sentence, signs))).strip().split("\n")


def _norm(node: Node, t: Words) -> list[str]:
    said = t(f"norm.{node.parameters['norm']}")
    head, bracket, rest = said.replace("（", " (").replace("）", ")").partition(" (")
    return [head, bracket.strip() + rest] if bracket else [said]


def _attention(node: Node, t: Words) -> list[str]:
    p = node.parameters
    heads = t("wiring.heads", heads=p["heads"]) if p["heads"] > 1 else t("wiring.head_one")
    if p["kv_heads"] != p["heads"]:
        heads = t("wiring.heads_shared", heads=p["heads"], shared=p["kv_heads"])
    extras = [
        heads, t("wiring.causal") if p["causal"] else t("wiring.all_keys"),
        "" if p["pattern"] == "softmax" else t(f"value.pattern_{p['pattern']}"),
        t("wiring.rotary") if p["rotary"] else "",
        "" if NORMS[p["qk_norm"]["norm"]].absent else t("wiring.qk_norm", norm=t(f"norm.{p['qk_norm']['norm']}")),
        "" if p["softcap"] is None else t("wiring.softcap_short", cap=number(p["softcap"]).plain),
    ]
    return [t("wiring_kind.attention"), *_packed([extra for extra in extras if extra])]


def _packed(words: list[str]) -> list[str]:
    """Put short words on a line together, as long as they fit."""
    packed: list[str] = []
    for one in words:
        if packed and _wide(f"{packed[-1]} · {one}") <= LONGEST_LINE:
            packed[-1] += f" · {one}"
        else:
            packed.append(one)
    return packed


def _wide(text: str) -> int:
    """Return the width of a text in narrow signs."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _mlp(node: Node, t: Words) -> list[str]:
    p = node.parameters
    activation = t(f"value.activation_{p['activation']}")
    return [t("wiring_kind.mlp"), *_packed([activation, t("wiring.width", width=p["d_ff"])])]


LINES: dict[str, Callable[[Node, Words], list[str]]] = {
    "tokens": lambda _, t: [t("wiring_kind.tokens")],
    "vectors": lambda _, t: [t("wiring_kind.vectors")],
    "positions": lambda node, t: [
        f"+ {t('wiring_kind.positions')}", t(f"value.positions_{node.parameters['positions']}")],
    "stream": lambda _node, _t: [],
    "norm": _norm,
    "divide": lambda _node, _t: ["÷ √(ℓ + 1)"],
    "attention": _attention,
    "mlp": _mlp,
    "dropout": lambda node, t: [f"{t('wiring_kind.dropout')} {node.parameters['rate']:g}"],
    "scale": lambda node, _t: [f"× {number(node.parameters['value']).plain}"],
    "learned_scale": lambda node, _t: ["× λ", f"λ₀ = {number(node.parameters['value']).plain}"],
    "add": lambda _node, _t: ["+"],
    "head": lambda node, t: [t("wiring_kind.head"), *([t("wiring.tied")] if node.parameters["tied"] else [])],
    "softcap": lambda node, t: [t("wiring.softcap_short", cap=number(node.parameters["cap"]).plain)],
}
"""Kind → the lines in its box, of a node and the words."""
