"""Which site is made of which: the lineage follows the recorder's order, the model's parameters and autograd."""

import math

import pytest
import torch
from stacks import TOKENS, VECTORS, experiment, shrunk

from core.corpus import batch
from core.inits import is_drawn
from core.lineage import LOSS, STEPS, lineage
from core.model import build
from core.passes import LOSSES
from core.presets import PRESETS
from core.reach import BOUNDS, FACTORS
from core.rules import is_recurrent
from core.shapes import LARGEST, LEAST, dtype_of, shape_of
from core.sites import sites_of
from core.vocabulary import EMBED

VARIED = {
    "pre": {},
    "post": {"placement": "post"},
    "sandwich": {"placement": "sandwich", "depth_scaling": "inv_sqrt_layer"},
    "branch": {"placement": "branch", "branch_scale": "layerscale"},
    "branch without residual": {"placement": "branch", "residual": False},
    "post without residual": {"placement": "post", "residual": False},
    "pre without residual": {"residual": False},
    "attention alone": {"sublayers": "attention"},
    "mlp alone": {"sublayers": "mlp", "placement": "post"},
    "gated": {"activation": "swiglu", "bias": False},
    "rotary and QK-norm": {"positions": "rotary", "qk_norm": "rmsnorm", "qk_norm_scope": "full", "n_kv_heads": 1},
    "QK-norm of a head": {"qk_norm": "layernorm", "n_kv_heads": 1},
    "soft caps": {"attn_softcap": 20.0, "final_softcap": 10.0, "tie_embeddings": True},
    "uniform": {"pattern": "uniform"},
    "identity": {"pattern": "identity", "norm": "scalenorm"},
    "no norm": {"norm": "none", "branch_scale": 0.5, "residual_alpha": 0.9},
    "rezero": {"norm": "none", "branch_scale": "rezero"},
    "overrides": {"layer_norms": {1: "none"}, "norm": "dyt", "embed_norm": True, "embed_scale": 2.0},
    "one norm in a stack of none": {"norm": "none", "layer_norms": {1: "scalenorm"}, "placement": "post"},
    "no final norm": {"final_norm": False, "dropout": 0.1},
}


def varied():
    """Every arrangement, for tokens with attention written out, and for vectors with it fused."""
    for name, model in VARIED.items():
        for source, attention in ((TOKENS, "explicit"), (VECTORS, None)):
            yield pytest.param(experiment(source, {"attention": attention}, **model),
                               id=f"{name}, {source['source']}, {attention}")


RECURRENT = [name for name in PRESETS if is_recurrent(shrunk(name))]
EXPERIMENTS = [*varied(), *(pytest.param(shrunk(name), id=name) for name in PRESETS if name not in RECURRENT)]


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_stack_has_no_lineage_and_says_so(name):
    with pytest.raises(ValueError, match="whose layers are no blocks; allowed: transformer"):
        lineage(shrunk(name))


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_every_site_of_the_model_and_the_loss_has_one_operation_in_the_order_in_which_it_is_met(described):
    stack = build(described)
    depth = len(stack.layers)
    found = lineage(described).operations
    assert list(found) == [*sites_of(stack, depth), (depth, LOSS)]


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_what_goes_into_an_operation_was_made_before(described):
    made = set()
    for place, operation in lineage(described).operations.items():
        assert operation.output == place
        assert set(operation.inputs) <= made
        assert (operation.kind == "same") == (not operation.steps)
        made.add(place)


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_every_parameter_is_read_by_an_operation_and_has_its_shape(described):
    tree, canonical = lineage(described), described.resolved()
    for name, parameter in build(described).named_parameters():
        assert tree.readers(name), name
        assert math.prod(size for _, size in shape_of(name, canonical)) == parameter.numel(), name
        if is_drawn(name):
            assert tuple(size for _, size in shape_of(name, canonical)) == tuple(parameter.shape)
        assert f"torch.{dtype_of(name, canonical)}" == str(parameter.dtype)


def tensors(described):
    """What one forward pass shows at every site, and its loss."""
    stack, seen = build(described).eval(), {}
    for key, site in sites_of(stack, len(stack.layers)).items():
        site.register_forward_hook(lambda _m, _i, y, key=key: seen.update({key: y}))
    data = batch(described, 0)
    loss = LOSSES[described.resolved().protocol.loss](stack(data.inputs, data.mask), data, described.resolved())
    return stack, seen, loss


@pytest.mark.parametrize("described", EXPERIMENTS)
def test_a_site_has_the_shape_and_the_dtype_that_the_description_says(described):
    canonical = described.resolved()
    _, seen, loss = tensors(described)
    for (_, site), x in seen.items():
        assert tuple(size for _, size in shape_of(site, canonical)) == tuple(x.shape)
        assert str(x.dtype) == f"torch.{dtype_of(site, canonical)}"
    assert shape_of(LOSS, canonical) == () and str(loss.dtype) == f"torch.{dtype_of(LOSS, canonical)}"


@pytest.mark.parametrize("described", list(varied()))
def test_an_operation_reads_exactly_what_autograd_says_it_reads(described):
    """A site depends on the sites and parameters of its operation once everything before those is cut off."""
    stack, seen, loss = tensors(described)
    depth, tree = len(stack.layers), lineage(described)
    outputs = {**seen, (depth, LOSS): loss}
    for place, output in outputs.items():
        operation = tree.maker(place, frozenset(seen))
        before = [key for key in seen if key != place and seen[key] is not output]
        if operation.kind == "same":
            assert seen[operation.inputs[0]] is output
        elif output.requires_grad:
            assert _direct(output, seen, before) == {id(seen[key]) for key in operation.inputs}, place
            assert _parameters(output, stack, seen, before) == {
                name for name, _ in stack.named_parameters() if name.startswith(operation.reads or ("-",))}, place


def _direct(output, seen, before):
    """The ids of the tensors that a walk up the graph of autograd meets first."""
    return {id(x) for x in _walk(output, [seen[key] for key in before])[0]}


def _parameters(output, stack, seen, before):
    leaves = _walk(output, [seen[key] for key in before])[1]
    names = {id(parameter): name for name, parameter in stack.named_parameters()}
    return {names[id(leaf)] for leaf in leaves if id(leaf) in names}


def _walk(output, stops):
    ends = {_node(x): x for x in stops if x.requires_grad}
    met, leaves, known, waiting = [], [], set(), [_node(output)]
    while waiting:
        node = waiting.pop()
        for following, _ in getattr(node, "next_functions", ()):
            if following in ends:
                met.append(ends[following])
            elif following is not None and following not in known:
                known.add(following)
                waiting.append(following)
                leaves += [following.variable] if hasattr(following, "variable") else []
    return met, leaves


def _node(x):
    return x.grad_fn if x.grad_fn is not None else torch.autograd.graph.get_gradient_edge(x).node


def test_a_site_that_was_not_seen_is_looked_through():
    tree = lineage(experiment())
    everything = frozenset(tree.operations)
    hidden = everything - {(0, "attn_scores"), (0, "attn_pattern")}
    whole, fused = (tree.maker((0, "attn_out"), seen) for seen in (everything, hidden))
    assert (whole.kind, whole.inputs) == ("mix", ((0, "v"), (0, "attn_pattern")))
    assert (fused.kind, fused.inputs) == ("attention", ((0, "q"), (0, "k"), (0, "v")))
    assert [step.kind for step in fused.steps] == ["scores", "pattern", "mix", "projection"]
    assert tree.followers((0, "q"), hidden)[1] == [(0, "attn_out")]
    assert tree.followers((0, "resid_mid"), everything)[1] == [(0, "norm2"), (0, "resid_post")]


def test_what_leads_nowhere_has_no_gradient():
    tree = lineage(experiment(protocol={"loss": "projection"}))
    assert tree.followers((2, "final_norm"), frozenset(tree.operations))[1] == [(2, LOSS)]
    assert tree.followers((2, "logits"), frozenset(tree.operations)) == ([], [])
    constant = lineage(experiment(pattern="uniform"))
    assert constant.followers((0, "q"), frozenset(constant.operations)) == ([], [])


def test_every_step_has_its_bounds():
    assert set(BOUNDS) == set(FACTORS) == set(STEPS)
    kinds = {step.kind for case in EXPERIMENTS for operation in lineage(case.values[0]).operations.values()
             for step in operation.steps}
    assert kinds == set(STEPS)


@pytest.mark.parametrize("dtype", LARGEST)
def test_the_limits_are_those_of_the_dtypes(dtype):
    kind = getattr(torch, dtype if dtype != "float8_e4m3" else "float8_e4m3fn")
    assert LARGEST[dtype] == torch.finfo(kind).max
    ends = torch.tensor([LEAST[dtype] / 2, LEAST[dtype]], dtype=torch.float64)
    assert ends.to(kind).double().tolist() == [0, LEAST[dtype]]


def test_the_embedding_stands_before_layer_0():
    operations = lineage(experiment(embed_scale=3.0, embed_norm=True)).operations
    assert [step.kind for step in operations[EMBED, "embed"].steps] == ["tokens", "scale", "positions", "norm"]
    assert operations[0, "resid_pre"].inputs == ((EMBED, "embed"),)
