"""The recurrent layers: torch's own LSTM and GRU, cells with norms written out naively, padding, what is refused."""

import pytest
import torch
from stacks import TOKENS, VECTORS, experiment, shown, with_random_constants

from core.corpus import batch
from core.experiment import Experiment, parse
from core.fields import ExperimentError
from core.init_scales import Fan
from core.model import build
from core.passes import step
from core.tables import FAMILIES, INITS, NORMS
from core.train import train

RECURRENT = [name for name, family in FAMILIES.items() if family.recurrent]
PER_TOKEN = [name for name, norm in NORMS.items() if not norm.over_tokens]
TOLERANCES = [("float32", 1e-5), ("float64", 1e-10)]

# ── torch's own layers ──


def torchs(stack):
    """Torch's module with the weights of the stack: its second bias is 0, but for the candidate's of a GRU."""
    model = stack.experiment.model
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[model.family]
    theirs = kind(model.d_model, model.d_model, model.n_layers, bias=model.bias, batch_first=True, dtype=stack.dtype)
    with torch.no_grad():
        for number, layer in enumerate(stack.layers):
            for letter, name in (("x", "ih"), ("h", "hh")):
                weights = torch.cat([getattr(gate, letter).weight for gate in layer.gates])
                getattr(theirs, f"weight_{name}_l{number}").copy_(weights)
            if model.bias:
                getattr(theirs, f"bias_ih_l{number}").copy_(torch.cat([gate.bias for gate in layer.gates]))
                inner = getattr(theirs, f"bias_hh_l{number}").zero_()
                if layer.gates[-1].h.bias is not None:
                    inner[-model.d_model:] = layer.gates[-1].h.bias
    return theirs


def close(ours, theirs, tolerance):
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lengths", [None, [6, 4, 1]], ids=["whole", "ragged"])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("family", RECURRENT)
def test_a_stack_without_norm_equals_torchs_own_forward_and_backward(family, dtype, tolerance, lengths, bias):
    described = experiment({**VECTORS, "lengths": lengths}, {"dtype": dtype}, n_layers=3, family=family, norm="none",
                           bias=bias)
    stack = with_random_constants(build(described))
    data, theirs = batch(described, 0), torchs(stack)
    inputs = data.inputs.to(stack.dtype).requires_grad_()
    output = stack(inputs, data.mask).x
    own_inputs = inputs.detach().clone().requires_grad_()
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        own_inputs, torch.tensor(lengths or [6] * 3), batch_first=True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    real = torch.ones(3, 6, dtype=torch.bool) if data.mask is None else data.mask
    assert close(output[real], expected[real], tolerance)
    direction = torch.linspace(-1, 1, output.numel(), dtype=stack.dtype).view(output.shape)
    for result in (output, expected):
        (result * direction)[real].sum().backward()
    assert close(inputs.grad, own_inputs.grad, tolerance)
    for number, layer in enumerate(stack.layers):
        for letter, name in (("x", "ih"), ("h", "hh")):
            ours = torch.cat([getattr(gate, letter).weight.grad for gate in layer.gates])
            assert close(ours, getattr(theirs, f"weight_{name}_l{number}").grad, tolerance)
        if bias:
            ours = torch.cat([gate.bias.grad for gate in layer.gates])
            assert close(ours, getattr(theirs, f"bias_ih_l{number}").grad, tolerance)
            if family == "gru":
                inner = getattr(theirs, f"bias_hh_l{number}").grad[-16:]
                assert close(layer.gates[-1].h.bias.grad, inner, tolerance)


# ── the cells with norms, written out a second time ──


def parameters(layer):
    return dict(layer.named_parameters())


def naive(layer, family, x, norm):
    """One layer over one sequence (T, D), gate by gate in plain expressions; `norm`: (module, vector) → vector.

    Returns what each site shows, time step by time step.
    """
    found, width = parameters(layer), x.shape[-1]
    gates = FAMILIES[family].gates
    hidden = cell = torch.zeros(width, dtype=x.dtype)
    seen = []

    def products(letter, vector):
        return torch.cat([found[f"{gate}.{letter}.weight"] @ vector for gate in gates])

    for vector in x:
        if family == "lstm":
            total = norm("norm_h", products("h", hidden)) + norm("norm_x", products("x", vector))
            i, f, g, o = (total[place * width:(place + 1) * width] + found[f"{gate}.bias"]
                          for place, gate in enumerate(gates))
            i, f, g, o = 1 / (1 + torch.exp(-i)), 1 / (1 + torch.exp(-f)), torch.tanh(g), 1 / (1 + torch.exp(-o))
            cell = f * cell + i * g
            hidden = o * torch.tanh(norm("norm_cell", cell))
            seen.append((i, f, g, o, cell, hidden))
        else:
            from_h, from_x = products("h", hidden), products("x", vector)
            total = norm("norm_h", from_h[:2 * width]) + norm("norm_x", from_x[:2 * width])
            r, z = (1 / (1 + torch.exp(-(total[place * width:(place + 1) * width] + found[f"{gate}.bias"])))
                    for place, gate in enumerate(gates[:2]))
            recalled = norm("norm_h_candidate", from_h[2 * width:]) + found["gate_n.h.bias"]
            new = torch.tanh(norm("norm_x_candidate", from_x[2 * width:]) + found["gate_n.bias"] + r * recalled)
            hidden = (1 - z) * new + z * hidden
            seen.append((r, z, new, hidden))
    return list(zip(*seen, strict=True))


def layernorm(layer, epsilon=1e-5):
    found = parameters(layer)

    def norm(name, vector):
        centred = vector - vector.sum() / vector.numel()
        size = torch.sqrt((centred * centred).sum() / vector.numel() + epsilon)
        return found[f"{name}.weight"] * centred / size + found[f"{name}.bias"]

    return norm


@pytest.mark.parametrize("family", RECURRENT)
def test_layernorm_stands_where_the_paper_puts_it(family):
    described = experiment(VECTORS, {"dtype": "float64"}, family=family, norm="layernorm")
    stack, seen, _ = shown(described, with_random_constants(build(described)))
    x = batch(described, 0).inputs.double()
    for number, layer in enumerate(stack.layers):
        whole = [naive(layer, family, sequence, layernorm(layer)) for sequence in x]
        for site, steps in zip(FAMILIES[family].steps, zip(*whole, strict=True), strict=True):
            ours = torch.stack(seen[number, site], 1)
            assert close(ours, torch.stack([torch.stack(one) for one in steps]), 1e-10), site
        x = torch.stack([torch.stack(steps[-1]) for steps in whole])


@pytest.mark.parametrize("norm", PER_TOKEN)
@pytest.mark.parametrize("family", RECURRENT)
def test_every_norm_that_works_per_token_acts_on_each_time_step_alone(family, norm):
    described = experiment({**VECTORS, "lengths": [6, 4, 1]}, {"dtype": "float64"}, family=family, norm=norm)
    stack, data = build(described), batch(described, 0)
    together = stack(data.inputs, data.mask).x
    for sequence, length in enumerate([6, 4, 1]):
        alone = stack(data.inputs[sequence:sequence + 1, :length], None).x
        torch.testing.assert_close(together[sequence:sequence + 1, :length], alone, rtol=1e-12, atol=1e-12)
    step(stack, data, 0)
    assert all(torch.isfinite(parameter.grad).all() for parameter in stack.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("family", RECURRENT)
def test_what_stands_in_the_padding_influences_no_real_token_and_no_gradient(family):
    described = experiment({**VECTORS, "lengths": [6, 4, 3]}, {"dtype": "float64"}, family=family)
    data, results = batch(described, 0), []
    noise = torch.where(data.mask.unsqueeze(-1), data.inputs, 3 + 5 * torch.randn(data.inputs.shape))
    for inputs in (data.inputs, noise):
        stack = build(described)
        x = stack(inputs, data.mask).x[data.mask]
        (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum().backward()
        results.append((x, [parameter.grad for parameter in stack.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", RECURRENT)
def test_dropout_acts_between_layers_while_training_only(family):
    plain, dropped = (build(experiment(VECTORS, family=family, norm="none", dropout=dropout)) for dropout in (0.0, 0.5))
    data = batch(plain.experiment, 0)
    assert torch.equal(plain(data.inputs).x, dropped.eval()(data.inputs).x)
    first = []
    dropped.layers[0].sites["hidden"].register_forward_hook(lambda _m, _i, steps: first.append(torch.stack(steps, 1)))
    assert not torch.equal(plain(data.inputs).x, dropped.train()(data.inputs).x)
    shown_plain = []
    plain.layers[0].sites["hidden"].register_forward_hook(lambda _m, _i, s: shown_plain.append(torch.stack(s, 1)))
    plain(data.inputs)
    assert torch.equal(first[0], shown_plain[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("norm", ["none", "layernorm"])
@pytest.mark.parametrize("family", RECURRENT)
def test_every_precision_gives_finite_numbers_in_its_own_dtype(family, norm, dtype):
    stack, seen, output = shown(experiment(TOKENS, {"dtype": dtype}, family=family, norm=norm))
    assert output.x.dtype == stack.dtype
    assert all(part.dtype == stack.dtype for steps in seen.values() if isinstance(steps, tuple) for part in steps)
    assert torch.isfinite(output.logits).all()


# ── what is described ──


@pytest.mark.parametrize("family", RECURRENT)
def test_fields_without_effect_are_canonical_so_that_equal_runs_have_equal_keys(family):
    plain = parse({"model": {"family": family}})
    others = {"n_heads": 8, "head_dim": 5, "n_kv_heads": 2, "d_ff": 99, "activation": "swiglu", "placement": "post",
              "bn_padding": "pooled", "bn_momentum": 0.5, "residual": False, "residual_alpha": 2.0,
              "branch_scale": "rezero", "layerscale_init": 0.5, "depth_scaling": "inv_sqrt_layer", "qk_gain": 2.0,
              "value_gain": 2.0, "output_gain": 2.0, "pos_std": 1.0, "sublayers": "mlp", "pattern": "uniform",
              "attention_scale": 0.3, "qk_norm": "rmsnorm", "qk_norm_scope": "full", "attn_softcap": 5.0,
              "positions": "rotary", "rope_theta": 5.0}
    assert others.keys() == FAMILIES[family].unused.keys()
    for name, value in others.items():
        other = plain.with_values({f"model.{name}": value})
        assert other.canonical_json() == plain.canonical_json(), name
        assert other.shortened().canonical_json() == plain.canonical_json()
        assert other.shortened().paths()[f"model.{name}"] == Experiment().paths()[f"model.{name}"], name
    assert plain.with_values({"protocol.attention": "explicit"}).key() == plain.key()


@pytest.mark.parametrize("family", RECURRENT)
def test_fields_with_an_effect_change_the_numbers(family):
    base = experiment(TOKENS, family=family, layer_norms={"0": "none"})  # a norm would take the size of the input away
    losses = {"": next(train(base)).loss}
    for name, value in {"n_layers": 3, "d_model": 24, "norm": "rmsnorm", "norm_eps": 0.5, "layer_norms": {"0": "dyt"},
                        "final_norm": True, "init": "kaiming", "init_gain": 2.0, "embed_std": 3.0, "embed_scale": 2.0,
                        "embed_norm": True, "final_softcap": 1.0, "tie_embeddings": True, "dropout": 0.5}.items():
        losses[name] = next(train(base.with_values({f"model.{name}": value}))).loss
    assert len(set(losses.values())) == len(losses)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"norm": "batchnorm"}, r'model.norm is "batchnorm"; allowed: layernorm, none, rmsnorm, .* with model.family lstm, '
                            "whose norms act at each time step, on each token alone"),
    ({"layer_norms": {"1": "batchnorm"}}, 'model.norm is "batchnorm"; allowed: .* on each token alone'),
    ({"init": "deepnorm"}, 'model.init is "deepnorm"; allowed: xavier, .* with model.family lstm, which has no'),
    ({"init": "gpt2"}, 'model.init is "gpt2"; allowed: xavier, .* which has no branches to scale'),
    ({"causal": False}, "model.causal is false; allowed: true with model.family lstm, which reads one time step after"),
    ({"norm": "groupnorm", "norm_groups": 5}, r"model.norm_groups is 5; allowed: a divisor of model.d_model \(128\)"),
])
def test_what_makes_no_sense_is_refused_by_one_sentence(changes, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        parse({"model": {"family": "lstm", **changes}})


@pytest.mark.parametrize("init", [name for name, init in INITS.items() if not init.of_branches])
@pytest.mark.parametrize("family", RECURRENT)
def test_every_init_without_branches_draws_each_gates_matrices(family, init):
    stack = build(experiment(family=family, init=init, d_model=64, init_std=0.3))
    expected = INITS[init].std(Fan("x", 64, 64, 2, 0.3))
    for layer in stack.layers:
        for gate in layer.gates:
            assert float(gate.x.weight.detach().std()) == pytest.approx(expected, rel=0.1)
            assert not torch.equal(gate.x.weight, gate.h.weight) and not gate.bias.any()
