"""What a token's numbers owe to its batch and to padding: to other tokens by batchnorm alone, and by how much."""

import numpy as np
import pytest
import torch

from core.companions import played
from core.corpus import batch
from core.look import PADDED, CompanionShift, PaddingShift, batches, kept
from core.looking import twin
from core.model import build
from core.tables import NORMS
from tests.test_looks import PER_TOKEN, described, found, streams_of

BATCHNORM = {"model.norm": "batchnorm"}
POOLED = BATCHNORM | {"model.bn_padding": "pooled"}
ONE_TOKEN = {"input.batch": 16, "input.seq_len": 1}
LONG = {"input.seq_len": 40}
ROUNDING = 1e-5


@pytest.mark.parametrize("whole", [1, 2, 3, 8, 20, 32])
def test_batches_are_powers_of_two_up_to_the_whole(whole):
    sizes = batches(whole)
    assert sizes == sorted(set(sizes)) and sizes[-1] == whole
    assert all(size & (size - 1) == 0 for size in sizes[:-1]) and 2 * sizes[-2:][0] >= whole


@pytest.mark.parametrize("norm", PER_TOKEN)
@pytest.mark.parametrize("shape", [{"input.batch": 8}, ONE_TOKEN], ids=str)
def test_a_norm_of_one_token_gives_a_sequence_the_same_numbers_in_every_batch(norm, shape):
    seen = found(CompanionShift(), {"model.norm": norm} | shape)
    assert np.isnan(seen["norm"]).all() if norm == "none" else (seen["norm"] == 0).all()
    assert (seen["streams"] <= ROUNDING).all() and (seen["streams"][-1] == 0).all()


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "branch"])
def test_batchnorm_gives_it_others_in_training_and_the_same_in_evaluation(placement):
    changes = BATCHNORM | {"model.placement": placement, "input.batch": 8}
    training, evaluation = (found(CompanionShift(), changes | {"protocol.mode": mode}) for mode in ("train", "eval"))
    assert (training["streams"][:-1] > 0.05).all() and (training["norm"][:-1] > 0.05).all()
    assert (evaluation["streams"] <= ROUNDING).all()


@pytest.mark.parametrize("changes", [{"model.norm": "rmsnorm"}, BATCHNORM], ids=str)
def test_distances_are_those_of_passes_of_ones_own(changes):
    experiment = described(changes | {"input.batch": 6}).resolved("cpu")
    seen, tokens = found(CompanionShift(), changes | {"input.batch": 6}), batch(experiment, 0).inputs
    whole = streams_of(experiment, tokens, None)
    assert seen["sizes"].tolist() == [1, 2, 4, 6]
    for row, size in enumerate((1, 2, 4, 6)):
        part = streams_of(experiment, tokens[:size], None)
        rms = [np.sqrt(np.square(x).mean((1, 2))) for x in (part[:, 0] - whole[:, 0], whole[:, 0])]
        np.testing.assert_allclose(seen["streams"][row], rms[0] / rms[1], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(seen["stream_rms"][row], np.sqrt(np.square(part).mean((1, 2, 3))), rtol=1e-5)


def test_a_single_token_is_refused_in_training_and_not_in_evaluation():
    training, evaluation = (found(CompanionShift(), BATCHNORM | ONE_TOKEN | {"protocol.mode": mode})
                            for mode in ("train", "eval"))
    for name in ("norm", "norm_rms", "norm_largest"):
        assert np.isnan(training[name]).tolist() == [True] + [False] * 4
        assert np.isfinite(evaluation[name]).all()
    assert np.isnan(training["streams"][0]).all() and np.isfinite(training["streams"][1:]).all()


def test_two_tokens_become_plus_and_minus_one_and_no_entry_of_more_passes_the_root_of_n_less_one():
    changes = BATCHNORM | ONE_TOKEN | {"input.source": "gaussian"}
    seen = found(CompanionShift(), changes)
    assert seen["norm_largest"][1] == pytest.approx(1, abs=1e-3) == seen["norm_rms"][1]
    assert (seen["norm_largest"][1:] <= np.sqrt(seen["sizes"][1:] - 1) + 1e-6).all()
    experiment = described(changes | {"input.batch": 2}).resolved("cpu")
    pass_ = played(twin(build(experiment)), batch(experiment, 0), 0)
    np.testing.assert_allclose(pass_.norm.abs(), np.ones((2, 1, 16)), atol=1e-2)
    np.testing.assert_allclose(pass_.norm.sum(0), np.zeros((1, 16)), atol=1e-6)


@pytest.mark.parametrize("norm", PER_TOKEN)
def test_padding_changes_nothing_in_a_norm_of_one_token(norm):
    seen = found(PaddingShift(), LONG | {"model.norm": norm})
    assert np.isnan(seen["norm"]).all() if norm == "none" else (seen["norm"] == 0).all()
    assert (seen["streams"] <= ROUNDING).all()
    assert np.isnan(seen["mean_shift"]).all() and np.isnan(seen["padded_variance"]).all()


@pytest.mark.parametrize("lengths", [None, "ragged", (40, 13, 5)], ids=str)
def test_padding_moves_batchnorm_only_where_it_is_counted_and_the_more_of_it_the_farther(lengths):
    changes = LONG | {"input.lengths": lengths}
    masked, pooled = (found(PaddingShift(), changes | rule) for rule in (BATCHNORM, POOLED))
    assert (masked["norm"] <= ROUNDING).all() and (masked["streams"] <= ROUNDING).all()
    np.testing.assert_allclose(masked["mean_shift"], 0, atol=ROUNDING)
    np.testing.assert_allclose(masked["padded_variance"], 1, rtol=ROUNDING)
    assert (np.diff(pooled["norm"]) > 0).all() and pooled["norm"][-1] > 0.3
    assert (np.diff(pooled["mean_shift"][:, 0]) > 0).all()


def test_padding_moves_nothing_in_evaluation():
    seen = found(PaddingShift(), LONG | POOLED | {"protocol.mode": "eval"})
    assert (seen["norm"] == 0).all() and (seen["streams"] <= ROUNDING).all()


def test_the_statistics_that_count_padding_are_those_of_the_mixture():
    changes = LONG | POOLED | {"model.positions": "none"}
    experiment = described(changes).resolved("cpu")
    stack, data = build(experiment), batch(experiment, 0)
    rows = stack.embed.token.weight.detach().double()
    real, pad = rows[data.inputs[:, :kept(40)]].flatten(0, 1), rows[0]
    mean, variance = real.mean(0), real.var(0, correction=0)
    seen = found(PaddingShift(), changes)
    for place, share in enumerate(seen["shares"]):
        shift = share * (pad - mean) / variance.sqrt()
        ratio = (1 - share) * (1 + share * ((pad - mean).square() / variance))
        assert seen["mean_shift"][place, 0] == pytest.approx(float(shift.square().mean().sqrt()), rel=1e-4)
        assert seen["padded_variance"][place, 0] == pytest.approx(float(ratio.median()), rel=1e-4)


@pytest.mark.parametrize("length", [1, 4, 10, 64])
def test_shares_of_padding_are_as_near_to_the_wanted_ones_as_whole_tokens_come(length):
    seen = found(PaddingShift(), POOLED | {"input.seq_len": length})
    assert len(seen["shares"]) == len(PADDED) and seen["shares"][0] == 0
    assert (np.diff(seen["shares"]) >= 0).all()
    np.testing.assert_allclose(seen["shares"], np.minimum(PADDED, 1 - kept(length) / length), atol=0.5 / kept(length))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("source", ["text", "gaussian"])
def test_looks_at_companions_and_padding_take_every_norm_and_source(norm, source):
    for look in (CompanionShift(), PaddingShift()):
        seen = found(look, {"model.norm": norm, "input.source": source})
        assert np.isfinite(seen["streams"]).all()


def test_a_stream_of_zeros_has_not_moved():
    silent = {"model.embed_std": 0.0, "model.pos_std": 0.0, "model.norm": "none", "model.positions": "none",
              "model.init_gain": 0.0}
    assert (found(CompanionShift(), silent)["streams"] == 0).all()


def test_a_pass_leaves_nothing_on_the_stack_behind():
    experiment = described(BATCHNORM).resolved("cpu")
    stack = build(experiment)
    played(stack, batch(experiment, 0), 0)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in stack.modules())
    assert torch.is_grad_enabled()
