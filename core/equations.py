"""The equations of a wiring: its graph read back as formulas, and the formulas of the parts in it.

Every line is written from the nodes, with the same walk through the graph that the tests take with tensors. The file
knows how each kind of node is written; it does not know how the graph came about. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.formulas import AttentionText, MlpText, NormText, attention, mlp, norm, norm_name, softcap
from core.notation import Formula, Line, call, number, root, symbol
from core.tables import NORMS
from core.wiring import Node, Wiring, follow

INPUT, MIDDLE, OUTPUT = symbol("x"), symbol("h"), symbol("y")
"""The stream that enters a block, between its sublayers, and that leaves it."""


@dataclass(frozen=True)
class Section:
    """The lines about one thing. `about`: block, norm, attention, mlp or stack; `name`: the norm's."""

    about: str
    lines: tuple[Line, ...]
    name: str = ""


def equations(wiring: Wiring) -> tuple[Section, ...]:
    """Return the block's lines, those of every norm, attention and MLP in it, and those of what stands around."""
    sections = [Section("block", tuple(_block(wiring)))]
    for node in (*wiring.nodes, *wiring.before, *wiring.after):
        if node.kind in PARTS:
            sections.append(Section(node.kind, written(node), node.parameters.get("norm", "")))
        qk_norm = node.parameters.get("qk_norm")
        if qk_norm and not NORMS[qk_norm["norm"]].absent:
            sections.append(Section("norm", _norm_lines(qk_norm), qk_norm["norm"]))
    return (*dict.fromkeys(sections), Section("stack", tuple(_stack(wiring))))


def written(node: Node) -> tuple[Line, ...]:
    """Return what a node makes of x, line by line; nothing of the stream that comes in."""
    if node.kind in PARTS:
        return PARTS[node.kind](node.parameters)
    if not node.inputs:
        return ()
    inputs = [INPUT, symbol("f")] if len(node.inputs) > 1 else [INPUT]
    return (Line(OUTPUT, formula(node, inputs)),)


def formula(node: Node, inputs: Sequence[Formula]) -> Formula:
    """Return what a node gives, written of its inputs."""
    return WRITTEN[node.kind](node.parameters, *inputs)


def _norm_lines(p: Mapping[str, Any]) -> tuple[Line, ...]:
    text = NormText(p)
    result = Line(call(norm_name(p), INPUT), norm(INPUT, text))
    has_eps = any(NormText.eps.latex in line.latex for line in (*text.lines, result))
    return (*text.lines, result, *([Line(NormText.eps, number(p["eps"]))] if has_eps else []))


def _attention_lines(p: Mapping[str, Any]) -> tuple[Line, ...]:
    text = AttentionText(p)
    result = attention(INPUT, text)
    return (*text.lines, Line(call("Attention", INPUT), result), Line(symbol("K"), number(p["head_dim"])))


def _mlp_lines(p: Mapping[str, Any]) -> tuple[Line, ...]:
    return (Line(call("MLP", INPUT), mlp(INPUT, MlpText(p))),)


PARTS: dict[str, Callable[[Mapping[str, Any]], tuple[Line, ...]]] = {
    "norm": _norm_lines, "attention": _attention_lines, "mlp": _mlp_lines,
}
"""The kinds that have lines of their own; in a block's line they are names."""


def _learned(p: Mapping[str, Any], x: Formula) -> Formula:
    return symbol(r"\lambda", "λ", each=p["width"] > 1) * x


def _sum(p: Mapping[str, Any], stream: Formula, branch: Formula) -> Formula:
    return (stream if p["alpha"] == 1.0 else number(p["alpha"]) * stream) + branch


def _head(p: Mapping[str, Any], x: Formula) -> Formula:
    return (symbol("E") if p["tied"] else symbol(r"W_{\mathrm{head}}", "W_head")) @ x


WRITTEN: dict[str, Callable[..., Formula]] = {
    "tokens": lambda _, x: call(symbol("E"), x),
    "vectors": lambda _, x: x,
    "positions": lambda _, x: x + symbol("P"),
    "norm": lambda p, x: call(norm_name(p), x),
    "divide": lambda _, x: x / root(symbol(r"\ell", "ℓ") + symbol("1")),
    "attention": lambda _, x: call("Attention", x),
    "mlp": lambda _, x: call("MLP", x),
    "dropout": lambda p, x: call(Formula(rf"\mathrm{{Dropout}}_{{{p['rate']:g}}}", f"Dropout_{p['rate']:g}"), x),
    "scale": lambda p, x: number(p["value"]) * x,
    "learned_scale": _learned,
    "add": _sum,
    "head": _head,
    "softcap": lambda p, x: softcap(p["cap"], x),
}
"""Kind → how a node is written, of its parameters and its inputs."""


def _block(wiring: Wiring) -> list[Line]:
    """Return the block's line, or two where the stream between the sublayers has a name."""
    lines: list[Line] = []

    def step(node: Node, inputs: Sequence[Formula]) -> Formula:
        made = formula(node, inputs)
        if "resid_mid" not in node.sites or "resid_post" in node.sites:
            return made
        lines.append(Line(MIDDLE, made))
        return MIDDLE

    result = follow(wiring.nodes, step, INPUT)[wiring.output.name]
    return [*lines, Line(OUTPUT, result)]


def _stack(wiring: Wiring) -> list[Line]:
    """Return the lines of what stands before and after the blocks."""
    start, end, logits = symbol("x_0", "x₀"), symbol("x_L"), symbol(r"\mathrm{logits}", "logits")
    given = symbol("v") if wiring.before[0].kind == "vectors" else symbol(r"\mathrm{token}", "token")
    lines = [Line(start, _through(wiring.before, given))]
    if wiring.after:
        ends_in_logits = any("logits" in node.sites for node in wiring.after)
        lines.append(Line(logits if ends_in_logits else OUTPUT, _through(wiring.after, end)))
    return lines


def _through(nodes: Sequence[Node], start: Formula) -> Formula:
    return follow(nodes, formula, start)[nodes[-1].name]
