"""What looks find beside the statistics: what a token moves, what evaluation changes, what norms cost."""

import math

import numpy as np
import pytest
import torch

from core import norm_costs
from core.corpus import batch
from core.experiment import Experiment
from core.fields import ExperimentError
from core.look import (
    DIRECTIONS,
    LOOKS,
    MEASURED,
    NOTHING,
    WAYS,
    CompanionShift,
    EvaluationGap,
    HeadLook,
    NormCosts,
    PaddingShift,
    SampleLeak,
    TokenLeak,
)
from core.looking import moved, rms
from core.model import build
from core.norms import NormSettings
from core.tables import NORMS, load
from core.trace import Snapshot
from core.train import train

SMALL = {"model.n_layers": 3, "model.d_model": 16, "model.n_heads": 2, "input.batch": 3, "input.seq_len": 10,
         "protocol.device": "cpu"}
TAKEN = (HeadLook(1, 1, 2), TokenLeak(1, 4), SampleLeak(1), EvaluationGap(), NormCosts(), CompanionShift(),
         PaddingShift())
PER_TOKEN = [name for name in NORMS if name != "batchnorm"]
"""Every norm whose statistics are those of one token."""


def described(changes):
    return Experiment().with_values(SMALL | changes)


def found(look, changes):
    return next(iter(train(described(changes), look=look))).looks


def streams_of(experiment, tokens, mask):
    """The stream after each layer, by a pass of its own."""
    kept = []
    stack = build(experiment).train(experiment.protocol.mode == "train")
    for layer in stack.layers:
        layer.register_forward_hook(lambda _layer, _given, x: kept.append(x.detach().double().numpy()))
    with torch.no_grad():
        stack(tokens, mask)
    return np.array(kept)  # (L, B, T, D)


def test_one_of_every_kind_of_look_is_taken_here():
    assert {type(look) for look in TAKEN} == set(LOOKS.values())


@pytest.mark.parametrize("look", TAKEN, ids=lambda look: look.code)
@pytest.mark.parametrize("changes", [{"model.norm": "batchnorm"}, {"model.dropout": 0.3}], ids=str)
def test_a_look_changes_no_number_of_the_run(look, changes):
    seen, plain = (list(train(described(changes), look=one))[-1] for one in (look, None))
    assert seen.looks and not plain.looks and seen.loss == plain.loss
    for group in ("activations", "gradients", "heads", "parameters"):
        for name, values in getattr(plain, group).items():
            np.testing.assert_array_equal(getattr(seen, group)[name], values)


def test_a_look_at_a_training_changes_no_step_of_it():
    changes = {"protocol.steps": 4, "model.norm": "batchnorm"}
    looked, plain = (list(train(described(changes), look=one)) for one in (EvaluationGap(), None))
    assert [one.loss for one in looked] == [one.loss for one in plain]
    assert len(looked) == 5 and all(one.looks["gap"].shape == (3,) for one in looked)


def test_a_snapshot_gives_back_all_that_looks_found():
    for look in TAKEN:
        seen = next(iter(train(described({}), look=look)))
        again = Snapshot.from_bytes(seen.to_bytes()).looks
        assert again.keys() == seen.looks.keys()
        for name, values in seen.looks.items():
            np.testing.assert_array_equal(again[name], values)


@pytest.mark.parametrize("norm", PER_TOKEN)
@pytest.mark.parametrize("source", ["text", "gaussian"])
def test_a_norm_of_one_token_lets_nothing_through_to_other_samples_or_the_past(norm, source):
    leak = found(TokenLeak(1, 4), {"model.norm": norm, "input.source": source})
    assert (leak["others"] == 0).all() and (leak["earlier"] == 0).all()
    assert (leak["own"] > 0).all() and (leak["later"] > 0).all()


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "branch"])
def test_batchnorm_lets_a_token_through_to_the_past_and_to_other_samples_in_training_only(placement):
    changes = {"model.norm": "batchnorm", "model.placement": placement}
    training, evaluation = (found(TokenLeak(1, 4), changes | {"protocol.mode": mode}) for mode in ("train", "eval"))
    for who in ("others", "earlier"):
        assert (training[who] > 0).all() and (evaluation[who] == 0).all()


@pytest.mark.parametrize("norm", PER_TOKEN)
def test_without_a_causal_mask_the_past_sees_the_token_by_attention_and_other_samples_never(norm):
    leak = found(TokenLeak(1, 4), {"model.norm": norm, "model.causal": False})
    assert (leak["earlier"] > 0).all() and (leak["others"] == 0).all()


def test_a_whole_sample_moves_others_by_batchnorm_alone():
    assert (found(SampleLeak(2), {})["others"] == 0).all()
    assert (found(SampleLeak(2), {"model.norm": "batchnorm"})["others"] > 0).all()


def test_padding_moves_real_tokens_only_where_it_is_pooled():
    changes = {"model.norm": "batchnorm", "input.lengths": (10, 5, 10)}
    for padding, leaks in (("masked", False), ("pooled", True)):
        leak = found(TokenLeak(1, 7), changes | {"model.bn_padding": padding})
        assert (leak["others"] > 0).all() == leaks and (leak["own"] == NOTHING).all()


@pytest.mark.parametrize("changes", [{}, {"model.norm": "batchnorm"}, {"input.lengths": (10, 5, 8)}], ids=str)
def test_changes_are_those_of_two_passes_of_ones_own(changes):
    experiment, leak = described(changes).resolved("cpu"), found(TokenLeak(2, 3), changes)
    data = batch(experiment, 0)
    other = data.inputs.clone()
    other[2, 3] = (other[2, 3] + 128) % 256
    before, after = (streams_of(experiment, tokens, data.mask) for tokens in (data.inputs, other))
    real = np.ones((3, 10), bool) if data.mask is None else data.mask.numpy()
    change = np.where(real, np.abs(after - before).max(-1), NOTHING)
    np.testing.assert_allclose(leak["map"], change[-1], rtol=1e-6)
    np.testing.assert_allclose(leak["own"], change[:, 2, 3], rtol=1e-6)
    np.testing.assert_allclose(leak["later"], change[:, 2, 4:].max(1), rtol=1e-6)
    np.testing.assert_allclose(leak["earlier"], change[:, 2, :3].max(1), rtol=1e-6, atol=0)
    np.testing.assert_allclose(leak["others"], change[:, :2].max((1, 2)), rtol=1e-6, atol=0)
    np.testing.assert_allclose(leak["level"], [np.sqrt(np.square(x[real]).mean()) for x in before], rtol=1e-5)


def test_a_group_without_a_token_is_nothing():
    first, alone = found(TokenLeak(0, 0), {}), found(SampleLeak(0), {"input.batch": 1})
    assert (first["earlier"] == NOTHING).all() and (alone["others"] == NOTHING).all()
    assert (alone["own"] > 0).all()


def test_a_map_of_many_sequences_and_tokens_is_one_of_blocks():
    leak = found(TokenLeak(70, 90), {"input.batch": 100, "input.seq_len": 130, "model.n_layers": 1})
    assert leak["map"].shape == (50, 44) and leak["map"].max() == max(leak["own"][-1], leak["later"][-1])
    assert np.argwhere(leak["map"] > 0)[:, 0].tolist() == [35] * 14


@pytest.mark.parametrize("norm", PER_TOKEN)
def test_evaluation_is_training_without_batchnorm(norm):
    seen = found(EvaluationGap(), {"model.norm": norm})
    assert (seen["gap"] == 0).all() and seen["loss"][0] == seen["loss"][1]
    assert np.isnan(seen["mean_error"]).all() and np.isnan(seen["variance_ratio"]).all()


@pytest.mark.parametrize("look", [EvaluationGap(), CompanionShift(), PaddingShift()], ids=lambda look: look.code)
def test_a_stream_of_zeros_does_not_move(look):
    seen = found(look, {"model.norm": "batchnorm", "model.residual": False, "model.branch_scale": 0.0})
    assert (seen["gap" if isinstance(look, EvaluationGap) else "streams"] == 0).all()


def test_sizes_whose_squares_float32_does_not_hold_are_sizes_all_the_same():
    large = torch.full((2, 3, 4), 1e30)
    assert rms(large) == pytest.approx(1e30) and rms(large / 1e60) == pytest.approx(1e-30)
    assert moved(2 * large, large) == pytest.approx(1) and moved(large, 0 * large) == math.inf
    assert moved(large, large) == 0 and moved(0 * large, 0 * large) == 0


def test_the_gap_of_batchnorm_is_that_of_two_passes_of_ones_own():
    changes, seen = {"model.norm": "batchnorm"}, found(EvaluationGap(), {"model.norm": "batchnorm"})
    data = batch(described(changes).resolved("cpu"), 0)
    both = [streams_of(described(changes | {"protocol.mode": mode}).resolved("cpu"), data.inputs, None)
            for mode in ("train", "eval")]
    rms = [np.sqrt(np.square(x).mean((1, 2, 3))) for x in (both[1] - both[0], both[0])]
    np.testing.assert_allclose(seen["gap"], rms[0] / rms[1], rtol=1e-5)
    assert (seen["gap"] > 0.1).all()


def test_running_statistics_come_near_those_of_batches_and_the_gap_shrinks():
    changes = {"model.norm": "batchnorm", "protocol.steps": 60, "protocol.record_every": 60, "protocol.lr": 0.0,
               "input.batch": 16, "input.seq_len": 32}
    start, end = (one.looks for one in train(described(changes), look=EvaluationGap()))
    assert (end["gap"] < 0.25 * start["gap"]).all()
    assert (end["mean_error"] < 0.5 * start["mean_error"]).all()
    assert (np.abs(np.log(end["variance_ratio"])) < np.abs(np.log(start["variance_ratio"]))).all()
    assert abs(end["loss"][1] - end["loss"][0]) < abs(start["loss"][1] - start["loss"][0])


def test_running_statistics_of_the_very_batch_leave_no_error_of_the_mean():
    norm = load(NORMS, "batchnorm")(16, NormSettings(momentum=1.0))
    x = torch.randn(4, 9, 16, generator=torch.Generator().manual_seed(0)) * 3 + 1
    norm(x)
    with torch.no_grad():
        variance, mean = torch.var_mean(x.flatten(0, 1).double(), 0)
    np.testing.assert_allclose(norm.running_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_var, variance, rtol=1e-5)


def test_costs_have_a_number_for_every_norm_way_and_direction():
    seen = found(NormCosts(), {})
    shape = len(MEASURED), len(WAYS), len(DIRECTIONS)
    assert seen["seconds"].shape == (*shape, 3) and (seen["seconds"] > 0).all()
    assert (np.diff(seen["seconds"]) >= 0).all()
    for name in ("bytes", "kernels"):
        assert seen[name].shape == shape and (seen[name] > 0).all()


def test_a_fused_layernorm_reads_and_writes_each_entry_once_and_a_written_one_many_times():
    changes = {"model.d_model": 256, "input.batch": 4, "input.seq_len": 32}
    seen = found(NormCosts(), changes)["bytes"][MEASURED.index("layernorm")] / (4 * 32 * 256 * 4)
    fused, written = seen
    assert fused[0] == pytest.approx(2, abs=0.05) and fused[1] == pytest.approx(3, abs=0.05)
    assert written[0] > 10 and written[1] > 20


def test_written_out_rmsnorm_moves_less_than_written_out_layernorm():
    seen = found(NormCosts(), {})
    rms, layer = (seen["bytes"][MEASURED.index(name), WAYS.index("written")] for name in ("rmsnorm", "layernorm"))
    assert (rms < 0.85 * layer).all()


def test_traffic_counts_what_is_repeated_once_and_views_not_at_all():
    x, row = torch.zeros(64, 32), torch.zeros(32)
    with norm_costs.Traffic() as seen:
        x.view(32, 64).transpose(0, 1)
    assert (seen.bytes, seen.kernels) == (0, 0)
    with norm_costs.Traffic() as seen:
        x + row.expand(64, 32)
    assert (seen.bytes, seen.kernels) == (4 * (64 * 32 + 32 + 64 * 32), 1)


def test_a_norm_that_refuses_the_shape_has_no_costs():
    seen = found(NormCosts(), {"input.batch": 1, "input.seq_len": 1, "model.norm_groups": 3})
    undefined = {MEASURED[row] for row in np.flatnonzero(np.isnan(seen["bytes"][:, 0, 0]))}
    assert undefined == {"batchnorm", "groupnorm"}
    assert math.isnan(seen["seconds"][MEASURED.index("groupnorm"), 0, 0, 1])


@pytest.mark.parametrize(("look", "changes", "said"), [
    (TokenLeak(3, 0), {}, "the look's sequence is 3; allowed: 0 … 2"),
    (TokenLeak(0, 10), {}, "the look's position is 10; allowed: 0 … 9"),
    (SampleLeak(3), {}, "the look's sequence is 3; allowed: 0 … 2"),
    (TokenLeak(0, 0), {"protocol.steps": 2}, "protocol.steps is 2; allowed: 0"),
    *((look, {"protocol.steps": 2}, "protocol.steps is 2; allowed: 0")
      for look in (NormCosts(), CompanionShift(), PaddingShift())),
    (EvaluationGap(), {"protocol.mode": "eval"}, "protocol.mode is eval; allowed: train"),
])
def test_a_look_at_what_is_not_there_is_refused_with_what_is_allowed(look, changes, said):
    with pytest.raises(ExperimentError, match=said):
        look.check(described(changes))
