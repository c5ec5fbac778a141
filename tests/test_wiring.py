"""The wiring: the diagram is the model that is built, and its formulas are what the model computes."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import SMALL, TOKENS, experiment, with_random_constants

from core import tables
from core.attentions import View
from core.corpus import batch
from core.equations import PARTS, WRITTEN, equations, written
from core.experiment import parse
from core.formulas import NORM_FORMULAS, attention, mlp, norm
from core.model import build
from core.norms import NormSettings
from core.notation import Formula, call, number, root, symbol
from core.placements import Placement
from core.plan import SUBLAYERS
from core.presets import PRESETS, preset
from core.rules import is_recurrent
from core.sites import sites_of
from core.tables import ACTIVATIONS, GATED_ACTIVATIONS, NORMS, PATTERNS, PLACEMENTS, POSITIONS, load
from core.wiring import KINDS, follow, wiring, wirings

DOUBLE = {"dtype": "float64", "attention": "explicit"}
MODELS = [
    {}, {"residual": False}, {"residual_alpha": 0.5}, {"residual_alpha": 0.0}, {"residual_alpha": "deepnorm"},
    {"branch_scale": 0.3}, {"branch_scale": 0.0}, {"branch_scale": "inv_sqrt_2L"}, {"branch_scale": "rezero"},
    {"branch_scale": "layerscale", "residual_alpha": 2.0}, {"depth_scaling": "inv_sqrt_layer"},
    {"sublayers": "attention"}, {"sublayers": "mlp", "residual": False}, {"layer_norms": {"1": "rmsnorm"}},
    {"layer_norms": {"1": "none"}}, {"dropout": 0.5},
]

BLOCKS = [name for name in PRESETS if not is_recurrent(preset(name))]
"""The presets whose layers are blocks."""


def drawn(described):
    """Return a stack with every parameter away from 0 and 1, in evaluation, so that dropout stands still."""
    stack = build(described)
    with torch.no_grad():
        for index, (name, parameter) in enumerate(stack.named_parameters()):
            if "scale" in name:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return with_random_constants(stack)


def watched(stack):
    seen = {}
    for (layer, name), site in sites_of(stack, len(stack.layers)).items():
        site.register_forward_hook(lambda _m, _i, y, key=(layer, name): seen.update({key: y}))
    return seen


def tensors(block, view):
    """Return what each kind of node makes of tensors, with the block's own modules."""
    def step(node, inputs):
        p = node.parameters
        return {
            "norm": lambda x: block.get_submodule(node.name)(x, view.mask),
            "divide": lambda x: x / math.sqrt(p["layer"] + 1),
            "attention": lambda x: block.get_submodule(node.name)(x, view),
            "mlp": lambda x: block.get_submodule(node.name)(x, view),
            "dropout": lambda x: block.get_submodule(node.name)(x) + 0,
            "scale": lambda x: p["value"] * x,
            "learned_scale": lambda x: block.get_submodule(node.name).weight * x,
            "add": lambda stream, branch: p["alpha"] * stream + branch,
        }[node.kind](*inputs)
    return step


# ── the diagram is the model ──


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("sublayers", SUBLAYERS)
@pytest.mark.parametrize("norm_name", NORMS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_diagram_has_the_sites_of_the_model_that_is_built(placement, norm_name, sublayers, residual):
    described = experiment(placement=placement, norm=norm_name, sublayers=sublayers, residual=residual)
    stack = build(described)
    for layer in range(2):
        assert wiring(described, layer).sites() == {name for at, name in sites_of(stack, 2) if at == layer}


@pytest.mark.parametrize("source", [TOKENS, {**TOKENS, "source": "gaussian"}])
@pytest.mark.parametrize("model", [
    {}, {"norm": "none"}, {"placement": "post"}, {"final_norm": False}, {"embed_norm": True}, {"embed_scale": 3.0},
    {"final_softcap": 5.0}, {"positions": "none"}, {"positions": "rotary", "tie_embeddings": True},
])
def test_around_the_blocks_the_diagram_has_the_sites_of_the_model_too(model, source):
    described = experiment(source, **model)
    drawing = wiring(described, 0)
    shown = {site for node in (*drawing.before, *drawing.after) for site in node.sites}
    assert shown == {name for layer, name in sites_of(build(described), 2) if layer in (-1, 2)}


@pytest.mark.parametrize("norm_name", NORMS)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_graph_computes_what_the_block_computes_at_every_site(model, placement, norm_name):
    if "depth_scaling" in model and not PLACEMENTS[placement].scales_depth:
        return
    described = experiment(protocol=DOUBLE, placement=placement, norm=norm_name, **model)
    stack, mode = drawn(described).double(), "dropout" not in model
    stack.train(mode)
    x = torch.randn(3, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    seen, view = watched(stack), View(None, torch.ones(6, 6, dtype=torch.bool).tril(), lambda y: y)
    for layer, block in enumerate(stack.layers):
        drawing = wiring(described, layer)
        expected = block(x, view)
        given_by = follow(drawing.nodes, tensors(block, view), x)
        torch.testing.assert_close(given_by[drawing.output.name], expected, rtol=1e-12, atol=1e-12)
        for node in drawing.nodes:
            for site in node.sites:
                torch.testing.assert_close(given_by[node.name], seen[layer, site], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", [
    {}, {"placement": "post", "tie_embeddings": True}, {"embed_norm": True, "embed_scale": 3.0, "norm": "rmsnorm"},
    {"final_softcap": 2.0, "positions": "sinusoidal"}, {"positions": "rotary"}, {"norm": "none"},
])
def test_around_the_blocks_the_graph_computes_what_the_stack_computes(model):
    described = experiment(protocol=DOUBLE, **model)
    stack, drawing, tokens = drawn(described), wiring(described, 0), batch(described, 0).inputs
    seen = watched(stack)
    output = stack(tokens)

    def step(node, inputs):
        p, (x,) = node.parameters, inputs
        weight = stack.embed.token.weight if p.get("tied") else getattr(stack.head, "weight", None)
        return {
            "tokens": lambda: stack.embed.token.weight[x],
            "scale": lambda: p["value"] * x,
            "positions": lambda: stack.embed.position(x),
            "norm": lambda: (stack.final_norm if node.name == "final_norm" else stack.embed.norm)(x),
            "head": lambda: x @ weight.T,
            "softcap": lambda: p["cap"] * torch.tanh(x / p["cap"]),
        }[node.kind]()

    before = follow(drawing.before, step, tokens)[drawing.before[-1].name]
    torch.testing.assert_close(before, seen[-1, "embed"], rtol=1e-12, atol=1e-12)
    after = follow(drawing.after, step, seen[1, "resid_post"])[drawing.after[-1].name]
    torch.testing.assert_close(after, output.logits, rtol=1e-12, atol=1e-12)


def test_layers_that_are_wired_alike_share_a_diagram():
    drawings = wirings(experiment(n_layers=6, layer_norms={"3": "rmsnorm", "0": "none", "5": "rmsnorm"}))
    assert [drawing.layers for drawing in drawings] == [(0,), (1, 2, 4), (3, 5)]
    assert {drawing.depth for drawing in drawings} == {6}
    kinds = [[node.kind for node in drawing.nodes].count("norm") for drawing in drawings]
    assert kinds == [0, 2, 2]


def test_a_group_of_layers_shows_the_divisor_that_its_first_layer_would_not_have():
    described = experiment(n_layers=4, depth_scaling="inv_sqrt_layer")
    (drawing,) = wirings(described)
    assert "divide" in {node.kind for node in drawing.nodes}
    assert "divide" not in {node.kind for node in wiring(described, 0).nodes}


def test_the_residual_path_is_the_edge_into_the_sum_that_passes_the_branch():
    edges = wiring(experiment(placement="sandwich"), 0).edges
    assert [(edge.source, edge.target) for edge in edges if edge.residual] == [("stream", "add1"), ("add1", "add2")]
    assert not [edge for edge in wiring(experiment(residual=False), 0).edges if edge.residual]


def test_a_node_says_what_is_inside_an_attention_and_an_mlp():
    nodes = {node.name: node.parameters for node in wiring(experiment(
        n_kv_heads=1, attn_softcap=50.0, qk_norm="rmsnorm", qk_norm_scope="full", positions="rotary", causal=False,
        attention_scale="1/K", activation="swiglu", bias=False, pattern="uniform"), 0).nodes}
    told = nodes["attn"]
    assert (told["heads"], told["kv_heads"], told["head_dim"], told["scale"]) == (2, 1, 8, 1 / 8)
    assert (told["softcap"], told["causal"], told["pattern"], told["rotary"]) == (50.0, False, "uniform", True)
    assert (told["qk_norm"]["norm"], told["qk_norm"]["over"], told["bias"]) == ("rmsnorm", "H·K", False)
    assert nodes["mlp"] == {"activation": "swiglu", "gated": True, "d_ff": 32, "bias": False}


def test_without_training_mode_there_is_no_dropout_to_draw():
    for mode, expected in (("train", 2), ("eval", 0)):
        nodes = wiring(experiment(protocol={"mode": mode}, dropout=0.1), 0).nodes
        assert [node.kind for node in nodes].count("dropout") == expected


# ── a new placement ──


@pytest.fixture
def both_normed(monkeypatch):
    """The stream itself goes on normalized: n(x) + f(n(x))."""
    def wire(x, s, v):
        y = s.before(x, v)
        return s.add(y, s.branch(y, v))
    monkeypatch.setitem(tables.PLACEMENTS, "both_normed", Placement(wire))
    return "both_normed"


def test_a_new_placement_has_its_diagram_by_itself(both_normed):
    described = experiment(placement=both_normed, norm="rmsnorm", protocol=DOUBLE)
    drawing, stack = wiring(described, 1), drawn(described)
    x, view = torch.randn(3, 6, 16, dtype=torch.float64), View(None, None, lambda y: y)
    given_by = follow(drawing.nodes, tensors(stack.layers[1], view), x)
    torch.testing.assert_close(given_by[drawing.output.name], stack.layers[1](x, view), rtol=1e-12, atol=1e-12)
    assert drawing.sites() == {name for layer, name in sites_of(stack, 2) if layer == 1}
    lines = [line.plain for line in equations(drawing)[0].lines]
    assert lines == ["h = RMSNorm(x) + Attention(RMSNorm(x))", "y = RMSNorm(h) + MLP(RMSNorm(h))"]


def test_what_follows_from_a_placement_is_read_off_its_expression():
    assert {name: one.slots for name, one in PLACEMENTS.items()} == {
        "pre": ("before",), "post": ("after",), "sandwich": ("before", "inside"), "branch": ("inside",)}
    assert [name for name, one in PLACEMENTS.items() if not one.final_norm] == ["post"]
    assert [name for name, one in PLACEMENTS.items() if one.scales_depth] == ["pre", "sandwich"]


# ── the block's lines ──


@pytest.mark.parametrize(("model", "lines"), [
    ({}, ["h = x + Attention(LayerNorm(x))", "y = h + MLP(LayerNorm(h))"]),
    ({"norm": "none"}, ["h = x + Attention(x)", "y = h + MLP(h)"]),
    ({"placement": "post", "residual_alpha": "deepnorm", "n_layers": 8},
     ["h = LayerNorm(2·x + Attention(x))", "y = LayerNorm(2·h + MLP(h))"]),
    ({"placement": "sandwich", "norm": "rmsnorm", "branch_scale": "inv_sqrt_2L", "n_layers": 8},
     ["h = x + 0.25·RMSNorm(Attention(RMSNorm(x)))", "y = h + 0.25·RMSNorm(MLP(RMSNorm(h)))"]),
    ({"residual": False, "sublayers": "attention"}, ["y = Attention(LayerNorm(x))"]),
    ({"residual": False}, ["h = Attention(LayerNorm(x))", "y = MLP(LayerNorm(h))"]),
    ({"placement": "branch", "sublayers": "mlp", "branch_scale": "layerscale"}, ["y = x + λ ⊙ LayerNorm(MLP(x))"]),
    ({"branch_scale": "rezero", "sublayers": "mlp", "dropout": 0.1}, ["y = x + λ·Dropout_0.1(MLP(LayerNorm(x)))"]),
    ({"depth_scaling": "inv_sqrt_layer", "sublayers": "mlp"}, ["y = x + MLP(LayerNorm(x)/√(ℓ + 1))"]),
])
def test_the_lines_of_a_block_are_those_of_the_papers(model, lines):
    section = equations(wirings(experiment(**model))[0])[0]
    assert section.about == "block"
    assert [line.plain for line in section.lines] == lines


@pytest.mark.parametrize(("dtype", "norm_dtype", "cast", "line"), [
    ("float32", "float32", "before", "RMSNorm(x) = γ ⊙ x/√(mean_D(x²) + ε)"),
    ("bfloat16", "float32", "after", "RMSNorm(x) = bfloat16(γ ⊙ u/√(mean_D(u²) + ε))"),
    ("bfloat16", "float32", "before", "RMSNorm(x) = γ ⊙ bfloat16(u/√(mean_D(u²) + ε))"),
    ("float16", "compute", "before", "RMSNorm(x) = γ ⊙ x/√(mean_D(x²) + ε)"),
    ("float64", "float32", "after", "RMSNorm(x) = γ ⊙ x/√(mean_D(x²) + ε)"),
])
def test_a14_the_formula_of_a_norm_says_in_which_order_it_is_cast(dtype, norm_dtype, cast, line):
    described = experiment(protocol={"dtype": dtype}, norm="rmsnorm", norm_dtype=norm_dtype, norm_cast=cast)
    (section,) = [one for one in equations(wiring(described, 0)) if one.about == "norm"]
    lines = [one.plain for one in section.lines]
    assert line in lines
    assert ("u = float32(x)" in lines) == ("u" in line.partition("=")[2].replace("float", "").replace("bfloat", ""))
    assert "ε = 10⁻⁵" in lines


# ── the formulas are what the parts compute ──


class Numbers:
    """The alphabet of formulas, in tensors."""

    one, root, square, tanh = 1.0, staticmethod(torch.sqrt), staticmethod(torch.square), staticmethod(torch.tanh)

    def let(self, _name, x):
        return x

    def mean(self, x):
        return x.mean(-1, keepdim=True)


class NormNumbers(Numbers):
    def __init__(self, name, module, wide, dtype):
        self.name, self.module, settings = name, module, module.settings
        self.eps, self.training, self.groups = settings.eps, module.training, settings.groups
        self.width, self.cast_first = torch.tensor(float(module.width), dtype=wide), settings.cast_first
        self.widens, self.wide, self.dtype = wide != dtype, wide, dtype

    def __getattr__(self, name):
        if name.startswith("running"):
            return getattr(self.module, {"running_mean": "running_mean", "running_variance": "running_var"}[name])
        return self.module.alpha.to(self.wide) if name == "slope" else super().__getattribute__(name)

    def normalized(self, x):
        return NORM_FORMULAS[self.name].expression(x, self)

    def affine(self, x):
        x = x if self.module.weight is None else self.module.weight.to(x.dtype) * x
        return x if self.module.bias is None else x + self.module.bias.to(x.dtype)

    def widened(self, x):
        return x.to(self.wide)

    def narrowed(self, x):
        return x.to(self.dtype)

    def group_mean(self, x):
        grouped = x.unflatten(-1, (self.groups, -1))
        return grouped.mean(-1, keepdim=True).expand_as(grouped).flatten(-2)

    def token_mean(self, x):
        return x.mean((0, 1))

    def length(self, x):
        return x.norm(dim=-1, keepdim=True)


REAL_NORMS = [name for name, entry in NORMS.items() if not entry.absent]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", REAL_NORMS)
def test_the_formula_of_a_norm_is_what_the_norm_computes(name, affine, training):
    settings = NormSettings(eps=0.03, affine=affine, groups=4, dtype=torch.float64)
    module = load(NORMS, name)(16, settings).train(training)
    x = 3 * torch.randn(3, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 1
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
        expected = module(x)
        found = norm(x, NormNumbers(name, module, torch.float64, torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cast_first", [True, False])
@pytest.mark.parametrize("name", REAL_NORMS)
def test_a14_the_formula_of_a_norm_casts_where_the_norm_does(name, cast_first):
    module = load(NORMS, name)(64, NormSettings(cast_first=cast_first))
    x = torch.randn(4, 8, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)))
        found = norm(x, NormNumbers(name, module, torch.float32, torch.bfloat16))
        expected = module(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert (found == expected).float().mean() > 0.99  # float32 differs in its last bit: a tie now and then


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", REAL_NORMS)
def test_the_text_of_a_norm_names_the_parameters_that_it_learns(name, affine):
    described = experiment(norm=name, norm_affine=affine, sublayers="mlp", final_norm=False)
    (section,) = [one for one in equations(wiring(described, 0)) if one.about == "norm"]
    text = section.lines[-1].plain + section.lines[-2].plain if len(section.lines) > 1 else section.lines[-1].plain
    module = build(described).layers[0].norm2
    assert ("γ" in text or "g·" in text) == (module.weight is not None)
    assert ("β" in text) == (module.bias is not None)
    assert ("ε" in text) == (name not in ("scalenorm", "dyt"))


class AttentionNumbers(Numbers):
    def __init__(self, module, parameters, turn):
        self.module, self.parameters, self.turn = module, parameters, turn
        self.caps = parameters["softcap"] is not None

    def linear(self, role, x):
        y = x @ self.module.get_submodule(role).weight.T
        bias = self.module.get_submodule(role).bias
        assert (bias is not None) == self.parameters["bias"]
        y = y if bias is None else y + bias
        return y if role == "o" else y.unflatten(-1, (-1, self.parameters["head_dim"]))  # (B, T, H, K)

    def normed(self, role, x):
        p = self.parameters["qk_norm"]
        module = self.module.get_submodule(f"{role}_norm")
        if NORMS[p["norm"]].absent:
            return x
        over = x if p["over"] == "K" else x.flatten(-2)
        return NORM_FORMULAS[p["norm"]].expression(over, self.about(p)).view(over.shape).mul(module.weight).add(
            0 if module.bias is None else module.bias).view(x.shape)

    def about(self, p):
        return SimpleNamespace(let=self.let, mean=self.mean, square=torch.square, root=torch.sqrt, eps=p["eps"])

    def turned(self, x):
        return self.turn(x.transpose(1, 2)).transpose(1, 2) if self.parameters["rotary"] else x

    def pairs(self, q, k):
        shared = self.parameters["heads"] // self.parameters["kv_heads"]
        return torch.einsum("bihk,bjhk->bhij", q, k.repeat_interleave(shared, 2))

    def scaled(self, x):
        return self.parameters["scale"] * x

    def capped(self, x):
        return self.parameters["softcap"] * torch.tanh(x / self.parameters["softcap"])

    def pattern(self, x):
        length = x.shape[-1]
        seen = torch.ones(length, length, dtype=torch.bool)
        seen = seen.tril() if self.parameters["causal"] else seen
        uniform = seen.double() / seen.sum(-1, keepdim=True)
        constant = {"uniform": uniform, "identity": torch.eye(length, dtype=torch.float64)}
        pattern = constant.get(self.parameters["pattern"], x.masked_fill(~seen, -torch.inf).softmax(-1))
        return Pattern(pattern.expand(x.shape), self.parameters)

    def dropped(self, x):
        return x

    def merged(self, heads):
        return heads.flatten(-2)


class Pattern:
    """An attention pattern (B, H, T, T), applied to values (B, T, Hkv, K)."""

    def __init__(self, weights, parameters):
        self.weights, self.shared = weights, parameters["heads"] // parameters["kv_heads"]

    def __matmul__(self, v):
        return torch.einsum("bhij,bjhk->bihk", self.weights, v.repeat_interleave(self.shared, 2))


@pytest.mark.parametrize("model", [
    {}, {"causal": False}, {"attn_softcap": 2.0, "attention_scale": 3.0}, {"n_kv_heads": 1, "head_dim": 4},
    {"positions": "rotary", "attention_scale": "1/K"}, {"qk_norm": "rmsnorm"}, {"bias": False},
    {"qk_norm": "layernorm", "qk_norm_scope": "full", "positions": "rotary"},
    *({"pattern": name} for name in PATTERNS),
], ids=str)
def test_the_formula_of_an_attention_is_what_the_attention_computes(model):
    described = experiment(protocol=DOUBLE, **model)
    stack, x = drawn(described), torch.randn(3, 6, 16, dtype=torch.float64)
    module, causal = stack.layers[0].attn, described.model.causal
    view = View(None, torch.ones(6, 6, dtype=torch.bool).tril() if causal else None, stack.embed.position.turn)
    (parameters,) = [node.parameters for node in wiring(described, 0).nodes if node.kind == "attention"]
    found = attention(x, AttentionNumbers(module, parameters, view.turn))
    torch.testing.assert_close(found, module(x, view), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_formula_of_an_mlp_is_what_the_mlp_computes(name):
    described = experiment(protocol=DOUBLE, activation=name)
    module, x = drawn(described).layers[0].mlp, torch.randn(3, 6, 16, dtype=torch.float64)

    def linear(role, y):
        part = module.get_submodule(role)
        return y @ part.weight.T + part.bias

    w = SimpleNamespace(gated=name in GATED_ACTIVATIONS, linear=linear, active=load(ACTIVATIONS, name))
    torch.testing.assert_close(mlp(x, w), module(x, None), rtol=1e-12, atol=1e-12)


def test_positions_are_added_or_turned_as_the_table_says():
    for name in POSITIONS:
        kind = load(POSITIONS, name)
        assert kind.turns == (name in tables.TURNED_POSITIONS)
        assert (kind.forward is not load(POSITIONS, "none").forward) == (name in tables.ADDED_POSITIONS)


# ── notation ──

LEAVES = st.integers(1, 9).map(lambda value: (number(float(value)), float(value)))
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner).map(
    lambda tree: (_apply(tree[0], tree[1][0], tree[2][0]), _apply(tree[0], tree[1][1], tree[2][1]))), max_leaves=12)


def _apply(sign, a, b):
    if isinstance(b, float) and sign == "/" and b == 0:
        return math.nan
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[sign]()


@given(TREES)
def test_brackets_stand_where_the_value_needs_them(tree):
    formula, value = tree
    plain = formula.plain.replace("−", "-").replace("·", "*")
    latex = formula.latex.replace(r"\left", "").replace(r"\right", "").replace(r"\cdot", "*")
    while r"\frac" in latex:  # the innermost fraction first
        latex = re.sub(r"\\frac{([^{}]*)}{([^{}]*)}", r"((\1)/(\2))", latex)
    for text in (plain, latex):
        try:
            found = eval(text)
        except ZeroDivisionError:
            found = math.nan
        assert found == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(("value", "plain", "latex"), [
    (1.0, "1", "1"), (0.25, "0.25", "0.25"), (-2.0, "−2", "-2"), (2.2134, "2.213", "2.213"), (0.0, "0", "0"),
    (1e-5, "10⁻⁵", "10^{-5}"), (2.5e-7, "2.5·10⁻⁷", r"2.5 \cdot 10^{-7}"), (65504.0, "65504", "65504"),
    (0.20412, "0.2041", "0.2041"), (12345.67, "12346", "12346"), (2e9, "2·10⁹", r"2 \cdot 10^{9}"),
])
def test_numbers_are_written_with_four_figures(value, plain, latex):
    assert (number(value).plain, number(value).latex) == (plain, latex)


def test_a_root_a_call_and_a_strange_name_are_written_in_both_ways():
    assert root(symbol("a") + symbol("b")) == Formula(r"\sqrt{a + b}", "√(a + b)")
    assert call("my_norm", symbol("x")) == Formula(r"\mathrm{my\_norm}(x)", "my_norm(x)")


@pytest.mark.parametrize("name", BLOCKS)
def test_every_preset_has_a_diagram_and_a_line_for_every_node(name):
    for drawing in wirings(preset(name)):
        for node in (*drawing.before, *drawing.nodes, *drawing.after):
            assert node.kind in KINDS
            assert written(node) or not node.inputs
        about = [section.about for section in equations(drawing)]
        assert about[0] == "block" and about[-1] == "stack"


def test_every_kind_of_node_is_written_somehow():
    assert {*WRITTEN, "stream"} == set(KINDS)
    assert set(PARTS) <= set(KINDS)


def test_a_norm_that_is_not_ours_is_written_by_its_name(monkeypatch):
    monkeypatch.setitem(tables.NORMS, "my_norm", NORMS["rmsnorm"])
    (section,) = [one for one in equations(wiring(parse({"model": {**SMALL, "norm": "my_norm"}}), 0))
                  if one.about == "norm"]
    assert section.lines[-1].plain == "my_norm(x) = γ ⊙ my_norm(x)"
