"""What the lessons claim and no other test holds, each by the engine itself.

Elsewhere: worked numbers (test_worked, test_pitfalls), depth laws and references A01–A21 (test_acceptance), the softmax
(test_softmax_row), leaks and batches (test_looks, test_batch_verdicts), number formats (test_formats, test_variances,
test_fixed_point, test_precision_views), the autopsy with its remedies (test_autopsy, test_remedies), recurrent cells
(test_recurrent).
"""

import numpy as np
import pytest
import torch

from core.branch_input import branch_inputs
from core.corpus import batch
from core.drift import drift, verdict
from core.experiment import Experiment
from core.looking import streams
from core.model import build
from core.norms import normalize
from core.tables import NORMS
from core.trace import Trace
from core.train import train

WIDE = {"model.norm": "none", "model.bias": False, "model.positions": "none", "model.causal": False,
        "input.source": "gaussian", "input.batch": 4, "input.seq_len": 32, "protocol.device": "cpu"}
TEXT = {"model.d_model": 32, "model.n_heads": 2, "input.batch": 8, "input.seq_len": 16, "protocol.device": "cpu",
        "protocol.steps": 50, "protocol.record_every": 50, "protocol.lr": 3e-3}


def described(*changes):
    return Experiment().with_values({path: value for part in changes for path, value in part.items()})


def trace_of(experiment):
    return Trace(tuple(train(experiment)))


def trace(*changes):
    return trace_of(described(*changes))


def test_normalizing_keeps_the_order_and_takes_the_unit_away():
    scores = torch.tensor([61.0, 120.0, 75.0, 98.0], dtype=torch.float64)
    found = normalize("layernorm", scores, eps=0.0)
    assert found.argsort().tolist() == scores.argsort().tolist()
    torch.testing.assert_close(normalize("layernorm", scores * 100 / 150, eps=0.0), found)
    torch.testing.assert_close(normalize("layernorm", scores + 40, eps=0.0), found)


@pytest.mark.parametrize("gain", [0.8, 1.0, 1.25])
def test_a_copy_of_a_copy_grows_by_the_gain_to_the_power_of_the_depth(gain):
    copies = {"model.sublayers": "mlp", "model.activation": "identity", "model.residual": False, "model.d_ff": 256,
              "model.d_model": 256, "model.n_layers": 16, "model.init_gain": gain}
    assert drift(trace(WIDE, copies)).log_slope == pytest.approx(2 * np.log(gain), abs=0.03)  # two matrices a block


@pytest.mark.parametrize(("changes", "code"), [
    ({"model.init": "xavier"}, "exploding"), ({"model.init": "kaiming"}, "exploding"),
    ({"model.init": "torch_default"}, "growing"), ({"model.init": "normal"}, "steady"),
    ({"model.init": "xavier", "model.residual": False}, "vanishing")], ids=str)
def test_the_residual_carries_information_and_no_stability_and_the_init_says_how_fast(changes, code):
    one = described(WIDE, changes)
    assert verdict(trace_of(one), one).code == code


def test_uniform_attention_at_initialization_is_normal_and_trains_fine():
    seen = trace(TEXT, {"model.n_layers": 4, "model.init": "normal"})
    first, last = seen.snapshots
    assert np.nanmean(first.heads["entropy_norm"]) > 0.99
    assert last.loss < first.loss - 1.5


def test_a_pre_norm_holds_what_the_branches_read_at_1_while_the_stream_grows_and_a_post_norm_holds_the_stream():
    pre, post = (trace(WIDE, {"model.norm": "layernorm", "model.placement": one}) for one in ("pre", "post"))
    for fed in branch_inputs(pre):
        np.testing.assert_allclose(fed.values, 1, atol=1e-3)
    assert drift(pre).growth > 2
    np.testing.assert_allclose(post.profile("resid_post", "rms")[1], 1, atol=1e-4)


@pytest.mark.parametrize("care", [{"model.branch_scale": "inv_sqrt_2L"}, {"model.init": "normal"}], ids=str)
def test_with_small_branches_a_stack_trains_without_a_norm(care):
    first, last = trace(TEXT, {"model.n_layers": 8, "model.norm": "none"}, care).snapshots
    assert last.loss < first.loss - 1.0


def test_in_a_deep_post_norm_stack_tokens_become_alike_at_an_rms_of_exactly_1():
    seen = trace(WIDE, {"model.norm": "layernorm", "model.placement": "post", "model.n_layers": 24})
    assert seen.profile("resid_post", "token_cosine")[1][-1] > 0.99
    np.testing.assert_allclose(seen.profile("resid_post", "rms")[1], 1, atol=1e-4)


def test_pre_layernorm_is_pre_rmsnorm_when_everything_written_to_the_stream_is_centred():
    found = []
    for norm in ("layernorm", "rmsnorm"):
        experiment = described({"model.norm": norm, "model.n_layers": 4, "model.d_model": 32, "protocol.device": "cpu",
                                "protocol.dtype": "float64"}).resolved("cpu")
        stack = build(experiment)
        with torch.no_grad():
            for name, weight in stack.named_parameters():
                if name in ("embed.token.weight", "embed.position.weight"):
                    weight.sub_(weight.mean(1, keepdim=True))
                elif name.endswith(("attn.o.weight", "mlp.out.weight")):
                    weight.sub_(weight.mean(0))
        found.append(torch.stack(streams(stack, batch(experiment, 0), 0)[0]))
    assert found[0].mean(-1).abs().max() < 1e-12
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", ["lstm", "gru"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_norm_in_a_cell_acts_at_each_time_step_whatever_the_length_of_the_sequence(family, norm):
    cell = {"model.family": family, "model.norm": norm, "model.n_layers": 2, "model.d_model": 16, "input.batch": 1,
            "input.source": "gaussian", "protocol.device": "cpu"}
    short, long = (described(cell, {"input.seq_len": length}).resolved("cpu") for length in (6, 12))
    data = batch(long, 0)
    outputs = [build(one)(data.inputs[:, :one.input.seq_len]).x for one in (short, long)]
    torch.testing.assert_close(outputs[0], outputs[1][:, :6], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_dropout_falls_on_the_branch_before_it_is_scaled_and_added(placement):
    """With almost everything dropped what is added is 0, or 1/(1 − p) times what was there, times the scale."""
    changes = {"model.placement": placement, "model.n_layers": 1, "model.d_model": 64, "model.sublayers": "mlp",
               "input.source": "gaussian", "protocol.device": "cpu"}
    added = []
    for dropped in ({}, {"model.dropout": 0.5, "model.branch_scale": 0.5}):
        experiment = described(changes, dropped).resolved("cpu")
        stack, kept = build(experiment), []
        stack.layers[0].sites["mlp_out"].register_forward_hook(lambda _site, _given, x, kept=kept: kept.append(x))
        streams(stack, batch(experiment, 0), 0)
        added.append(kept[0])
    plain, thinned = added
    there = thinned != 0
    assert 0.4 < there.double().mean() < 0.6
    torch.testing.assert_close(thinned[there], plain[there] * 2 * 0.5, rtol=1e-5, atol=1e-6)


def test_weight_decay_pulls_at_every_parameter_gamma_and_beta_included():
    """One update with decay moves each weight by rate·decay·w more than one without."""
    changes = {"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "protocol.steps": 1, "protocol.lr": 0.1,
               "protocol.optimizer": "sgd", "protocol.device": "cpu"}
    ends = []
    for decay in (0.0, 0.5):
        training = train(described(changes, {"protocol.weight_decay": decay}))
        started = {name: weight.detach().clone() for name, weight in training._stack.named_parameters()}
        list(training)
        ends.append({name: weight.detach() for name, weight in training._stack.named_parameters()})
    for name, weight in started.items():
        torch.testing.assert_close(ends[0][name] - ends[1][name], 0.1 * 0.5 * weight, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("norm", [name for name, one in NORMS.items() if not one.absent])
def test_gamma_is_1_and_beta_0_at_first_and_an_affine_norm_learns_them(norm):
    experiment = described({"model.norm": norm, "model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2,
                            "protocol.device": "cpu"}).resolved("cpu")
    module = build(experiment).layers[0].norm1
    learned = dict(module.named_parameters())
    assert {"weight"} <= learned.keys() and (learned["weight"] == 1).all()
    assert (learned.get("bias", torch.zeros(1)) == 0).all()
    assert ("bias" in learned) == (NORMS[norm].vectors == 2)
    plain = build(experiment.with_values({"model.norm_affine": False}).resolved("cpu")).layers[0].norm1
    assert set(dict(plain.named_parameters())) <= {"alpha"}
