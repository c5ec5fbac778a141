"""The formulas: what a norm, an attention and an MLP compute, each one expression over an alphabet `w`.

With the alphabets of this file an expression writes itself down; the tests play the same expressions with tensors and
compare them with the modules. `w.let` names an intermediate value. The file does not know where in a block a thing
stands. No torch here.

Shapes: D features, K features of a head, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.notation import PRODUCT, Formula, Line, call, number, root, square, symbol, word
from core.tables import ACTIVATIONS, GATED_ACTIVATIONS, NORMS

Expression = Callable[[Any, Any], Any]
"""x and an alphabet → what is computed of x, in tensors or in text."""


def _layernorm(x: Any, w: Any) -> Any:
    mean = w.let("mean", w.mean(x))
    variance = w.let("variance", w.mean(w.square(x - mean)))
    return (x - mean) / w.root(variance + w.eps)


def _layernorm_std_eps(x: Any, w: Any) -> Any:
    mean = w.let("mean", w.mean(x))
    deviation = w.let("deviation", w.root(w.mean(w.square(x - mean))))
    return (x - mean) / (deviation + w.eps)


def _layernorm_unbiased(x: Any, w: Any) -> Any:
    mean = w.let("mean", w.mean(x))
    deviation = w.let("deviation", w.root(w.width / (w.width - w.one) * w.mean(w.square(x - mean))))
    return (x - mean) / (deviation + w.eps)


def _groupnorm(x: Any, w: Any) -> Any:
    mean = w.let("mean", w.group_mean(x))
    variance = w.let("variance", w.group_mean(w.square(x - mean)))
    return (x - mean) / w.root(variance + w.eps)


def _batchnorm(x: Any, w: Any) -> Any:
    mean = w.let("mean", w.token_mean(x) if w.training else w.running_mean)
    variance = w.let("variance", w.token_mean(w.square(x - mean)) if w.training else w.running_variance)
    return (x - mean) / w.root(variance + w.eps)


@dataclass(frozen=True)
class NormFormula:
    """How a norm is written: its name, and x̂ before anything learned is applied."""

    name: str
    expression: Expression


NORM_FORMULAS: dict[str, NormFormula] = {
    "layernorm": NormFormula("LayerNorm", _layernorm),
    "rmsnorm": NormFormula("RMSNorm", lambda x, w: x / w.root(w.mean(w.square(x)) + w.eps)),
    "batchnorm": NormFormula("BatchNorm", _batchnorm),
    "groupnorm": NormFormula("GroupNorm", _groupnorm),
    "scalenorm": NormFormula("ScaleNorm", lambda x, w: w.root(w.width) * x / w.length(x)),
    "dyt": NormFormula("DyT", lambda x, w: w.tanh(w.slope * x)),
    "layernorm_std_eps": NormFormula("LayerNorm", _layernorm_std_eps),
    "layernorm_unbiased": NormFormula("LayerNorm", _layernorm_unbiased),
}
"""A norm that is not here is written as its name alone."""


def norm(x: Any, w: Any) -> Any:
    """Return the whole norm: x widened, normalized, γ and β applied, and cast back before or after them."""
    wide = w.let("wide", w.widened(x)) if w.widens else x
    y = w.normalized(wide)
    if w.widens and w.cast_first:
        return w.affine(w.narrowed(y))
    y = w.affine(y)
    return w.narrowed(y) if w.widens else y


def attention(x: Any, w: Any) -> Any:
    """Return o(pattern(cap(s·q·kᵀ)) v) of all heads; the values it names are those of the sites."""
    q = w.let("q", w.turned(w.normed("q", w.linear("q", x))))
    k = w.let("k", w.turned(w.normed("k", w.linear("k", x))))
    v = w.let("v", w.linear("v", x))
    scores = w.let("scores", w.scaled(w.pairs(q, k)))
    if w.caps:
        scores = w.let("capped", w.capped(scores))
    pattern = w.let("pattern", w.pattern(scores))
    return w.linear("o", w.merged(w.dropped(pattern) @ v))


def mlp(x: Any, w: Any) -> Any:
    """Return out(a(in(x))), or out(a(gate(x)) ⊙ in(x)) with a gate."""
    if not w.gated:
        return w.linear("out", w.active(w.linear("in", x)))
    return w.linear("out", w.active(w.linear("gate", x)) * w.linear("in", x))


# ── the alphabets of text ──


class Text:
    """What all alphabets of text share: the parameters of a node, the lines already written, and the linear maps."""

    names: Mapping[str, Formula] = {}

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters
        self.lines: list[Line] = []

    def let(self, name: str, formula: Formula) -> Formula:
        """Write a line that names an intermediate value, and return its letter."""
        self.lines.append(Line(self.names[name], formula))
        return self.names[name]

    def linear(self, role: str, x: Formula) -> Formula:
        """Return W x, plus b where there are biases."""
        weight = symbol(rf"W_{{\mathrm{{{role}}}}}", f"W_{role}")
        y = weight @ x
        return y + symbol(rf"b_{{\mathrm{{{role}}}}}", f"b_{role}") if self.parameters["bias"] else y


class NormText(Text):
    """The alphabet of norms."""

    names: Mapping[str, Formula] = {
        "mean": symbol(r"\mu", "μ"), "variance": symbol(r"\sigma^2", "σ²"), "deviation": symbol(r"\sigma", "σ"),
        "wide": symbol("u"),
    }
    eps, width, one = symbol(r"\varepsilon", "ε"), symbol("D"), symbol("1")
    slope = symbol("a")
    running_mean = symbol(r"\mu_{\mathrm{run}}", "μ_run")
    running_variance = symbol(r"\sigma^2_{\mathrm{run}}", "σ²_run")
    root, square = staticmethod(root), staticmethod(square)

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.training = parameters["training"]
        self.widens, self.cast_first = parameters["wide"] != parameters["dtype"], parameters["cast"] == "before"

    def normalized(self, x: Formula) -> Formula:
        """Return x̂; the norm's name of x where its formula is not known."""
        known = NORM_FORMULAS.get(self.parameters["norm"])
        return known.expression(x, self) if known else call(word(self.parameters["norm"]), x)

    def affine(self, x: Formula) -> Formula:
        """Return γ ⊙ x + β, g·x, or x: what the norm learns."""
        entry = NORMS[self.parameters["norm"]]
        if not self.parameters["affine"]:
            return x
        gain = symbol(r"\gamma", "γ", each=True) if entry.vectors else symbol("g")
        x = gain * x if entry.vectors or entry.scalars else x
        return x + symbol(r"\beta", "β") if entry.vectors > 1 else x

    def widened(self, x: Formula) -> Formula:
        """Return x in the dtype that the norm computes in."""
        return call(self.parameters["wide"], x)

    def narrowed(self, x: Formula) -> Formula:
        """Return x in the dtype of the run."""
        return call(self.parameters["dtype"], x)

    def mean(self, x: Formula) -> Formula:
        """Return the mean over the features of a token."""
        return call(_indexed("mean", self.parameters["over"]), x)

    def group_mean(self, x: Formula) -> Formula:
        """Return the mean over a group of features of a token."""
        return call(_indexed("mean", f"D/{self.parameters['groups']}"), x)

    def token_mean(self, x: Formula) -> Formula:
        """Return the mean over tokens: the N real ones, or all of B·T."""
        return call(_indexed("mean", "N" if self.parameters["padding"] == "masked" else "B·T"), x)

    def length(self, x: Formula) -> Formula:
        """Return ‖x‖."""
        return Formula(rf"\lVert {x.latex} \rVert", f"‖{x.plain}‖")

    def tanh(self, x: Formula) -> Formula:
        """Return tanh x."""
        return call("tanh", x)


class AttentionText(Text):
    """The alphabet of attention."""

    names: Mapping[str, Formula] = {
        "q": symbol("q"), "k": symbol("k"), "v": symbol("v"), "scores": symbol("S"), "capped": symbol("S'", "S′"),
        "pattern": symbol("P"),
    }

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.caps = parameters["softcap"] is not None

    def normed(self, _role: str, x: Formula) -> Formula:
        """Return queries or keys normalized over a head, or over all heads together."""
        about = self.parameters["qk_norm"]
        return x if NORMS[about["norm"]].absent else call(norm_name(about), x)

    def turned(self, x: Formula) -> Formula:
        """Return queries or keys with rotary positions."""
        return call("RoPE", x) if self.parameters["rotary"] else x

    def pairs(self, q: Formula, k: Formula) -> Formula:
        """Return q·k of every pair."""
        return Formula(rf"{q.latex}\,{k.latex}^{{\top}}", f"{q.plain}·{k.plain}ᵀ", PRODUCT)

    def scaled(self, scores: Formula) -> Formula:
        """Return the scores times the attention scale, 1/√K and 1/K written as such."""
        scale, width = self.parameters["scale"], self.parameters["head_dim"]
        if math.isclose(scale, width**-0.5):
            return scores / root(symbol("K"))
        return scores / symbol("K") if math.isclose(scale, 1 / width) else number(scale) * scores

    def capped(self, scores: Formula) -> Formula:
        """Return c·tanh(scores/c)."""
        return softcap(self.parameters["softcap"], scores)

    def pattern(self, scores: Formula) -> Formula:
        """Return the attention pattern over the visible keys j of a query i."""
        name = self.parameters["pattern"]
        known = {"uniform": symbol("1") / symbol("n"), "identity": symbol("I")}
        keys = (r"j \le i", "j≤i") if self.parameters["causal"] else ("j", "j")
        return known.get(name) or call(Formula(rf"\mathrm{{{name}}}_{{{keys[0]}}}", f"{name}_{keys[1]}"), scores)

    def dropped(self, pattern: Formula) -> Formula:
        """Return the pattern after dropout."""
        return call("Dropout", pattern) if self.parameters["dropout"] else pattern

    def merged(self, heads: Formula) -> Formula:
        """Return the heads side by side."""
        return call(_indexed("concat", "h"), heads) if self.parameters["heads"] > 1 else heads


class MlpText(Text):
    """The alphabet of the MLP."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.gated = parameters["activation"] in GATED_ACTIVATIONS

    def active(self, x: Formula) -> Formula:
        """Return the activation of x; a product with it is taken feature by feature."""
        function = ACTIVATIONS[self.parameters["activation"]].rpartition(":")[2]
        y = x if function == "identity" else call(_ACTIVATION_NAMES.get(function, word(function)), x)
        return Formula(y.latex, y.plain, y.binds, each=True)


_ACTIVATION_NAMES: dict[str, Formula] = {
    "gelu": word("GELU"), "gelu_tanh": Formula(r"\mathrm{GELU}_{\tanh}", "GELU_tanh"), "relu": word("ReLU"),
    "silu": word("SiLU"),
}


def norm_name(parameters: Mapping[str, Any]) -> Formula:
    """Return how a norm is called in formulas, with what it is over unless that is D; a strange one by its own name."""
    name, over = parameters["norm"], parameters["over"]
    said = NORM_FORMULAS[name].name if name in NORM_FORMULAS else name
    return word(said) if over == "D" else _indexed(said, over)


def softcap(cap: float, x: Formula) -> Formula:
    """Return c·tanh(x/c)."""
    return number(cap) * call("tanh", x / number(cap))


def _indexed(name: str, index: str) -> Formula:
    latex = index.replace("·", r"\cdot ")
    return Formula(rf"\mathrm{{{name}}}_{{{latex}}}", f"{name}_{index}")
