"""A look at one attention head: its weights are the model's own, and a run that keeps them is another run."""

import numpy as np
import pytest
import torch
from torch import nn

from core import looking
from core.attentions import softmax_pattern
from core.experiment import Experiment
from core.fields import ExperimentError
from core.look import CELLS, LOOKS, HeadLook, Look, TokenLeak, block
from core.looking import NOTHING, weights
from core.sites import Heads
from core.tables import PATTERNS
from core.trace import Snapshot
from core.train import train

SMALL = {"model.n_layers": 3, "model.d_model": 16, "model.n_heads": 2, "input.batch": 3, "input.seq_len": 12,
         "protocol.device": "cpu"}
LOOK = HeadLook(1, 1, 2)


def drawn(length, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 8, generator=random)


def looked_at(changes, look=LOOK):
    return next(iter(train(Experiment().with_values(SMALL | changes), look=look)))


class Patterns(nn.Module):
    """Keeps what passed the site of the explicit pattern."""

    def __init__(self, training, look):
        super().__init__()
        site = training._stack.layers[look.layer].sites["attn_pattern"]
        site.register_forward_hook(lambda _module, _given, p: setattr(self, "seen", p[look.sequence, look.head]))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("changes", [
    {}, {"model.attn_softcap": 2.0}, {"model.qk_norm": "rmsnorm"}, {"model.n_kv_heads": 1},
    {"model.positions": "rotary"}, {"model.attention_scale": 3.0}, {"model.pattern": "uniform"},
    {"model.pattern": "identity"}, {"input.lengths": (12, 5, 7)}, {"protocol.dtype": "float64"},
], ids=str)
def test_the_weights_are_those_of_the_pattern_that_the_model_writes_out(changes, causal):
    experiment = Experiment().with_values(SMALL | changes | {"protocol.attention": "explicit", "model.causal": causal})
    training = train(experiment, look=LOOK)
    pattern = Patterns(training, LOOK)
    found = next(training).looks["weights"]
    expected = pattern.seen.detach().double().numpy()
    real = 12 if "input.lengths" not in changes else 7
    there = np.zeros((12, 12), bool)
    there[:real, :real] = np.tril(np.ones((real, real), bool)) if causal else True
    assert (found == NOTHING).tolist() == (~there).tolist()
    np.testing.assert_allclose(found[there], expected[there], atol=1e-6)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [1, CELLS, CELLS + 1, 150, 700])
@pytest.mark.parametrize("real", [1.0, 0.6])
def test_a_cell_of_a_long_sequence_is_the_mean_over_its_queries_of_what_they_give_to_its_keys(
        pattern, length, real, monkeypatch):
    monkeypatch.setattr(looking, "PIECE", 7 * length)
    q, k = drawn(length)
    mask = torch.arange(length) < max(1, int(real * length))
    rule = Heads(0.5, None, pattern, True)
    found = weights(q, k, mask, rule)
    earlier = torch.ones(length, length).tril()
    rows = {"softmax": softmax_pattern(0.5 * q @ k.T, mask & earlier.bool()),
            "uniform": earlier / torch.arange(1, length + 1)[:, None],
            "identity": torch.eye(length)}[pattern].double().numpy()
    size, count = block(length), int(mask.sum())
    assert found.shape == (-(-length // size),) * 2 and len(found) <= CELLS
    for row in range(len(found)):
        queries = range(row * size, min((row + 1) * size, count))
        for column in range(len(found)):
            keys = range(column * size, min((column + 1) * size, count))
            pairs = [(i, j) for i in queries for j in keys if j <= i]
            expected = sum(rows[pair] for pair in pairs) / len(queries) if pairs else NOTHING
            assert found[row, column] == pytest.approx(expected, abs=1e-6)
    sums = np.where(found == NOTHING, 0, found).sum(1)
    np.testing.assert_allclose(sums[: -(-count // size)], 1, atol=1e-5)


def test_scores_that_are_not_finite_are_nan_and_what_is_not_there_stays_so():
    q, k = drawn(6)
    q[2] = torch.inf
    found = weights(q, k, None, Heads(1.0, None, "softmax", True))
    assert np.isnan(found[2, :3]).all() and (found[2, 3:] == NOTHING).all()
    assert np.isfinite(np.delete(found, 2, 0)).all()


@pytest.mark.parametrize("attention", ["fused", "explicit"])
def test_a_look_changes_no_number_of_the_run(attention):
    changes = {"protocol.attention": attention}
    seen, plain = looked_at(changes), looked_at(changes, look=None)
    assert not plain.looks and seen.looks["weights"].shape == (12, 12)
    assert seen.loss == plain.loss
    for group in ("activations", "gradients", "heads", "parameters"):
        for name, values in getattr(plain, group).items():
            np.testing.assert_array_equal(getattr(seen, group)[name], values)


def test_the_weights_have_the_entropy_that_the_head_is_said_to_have():
    found = [looked_at({}, HeadLook(2, 0, sequence)) for sequence in range(3)]
    p = np.stack([one.looks["weights"] for one in found]).astype(np.float64)
    p[p == NOTHING] = 0
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(2).mean()
    assert found[0].heads["entropy"][2, 0] == pytest.approx(entropy, rel=1e-5)


def test_a_snapshot_gives_its_weights_back():
    seen = looked_at({})
    np.testing.assert_array_equal(Snapshot.from_bytes(seen.to_bytes()).looks["weights"], seen.looks["weights"])


@pytest.mark.parametrize("code", ["head.0.0.0", "head.11.3.7", "head.511.127.1023", "token.0.5", "sample.3",
                                  "evaluation", "costs"])
def test_a_look_is_written_and_read(code):
    assert Look.of(code).code == code


@pytest.mark.parametrize("code", ["", "1.2.3", "head", "head.1.2", "head.1.2.3.4", "head.a.b.c", "head.-1.0.0",
                                  "head.1.0.0 ", "head.١.0.0", f"head.{'1' * 9}.0.0", "token.1",
                                  "evaluation.0", "heads.1.0.0"])
def test_what_is_no_look_is_refused(code):
    with pytest.raises(ValueError, match=f"allowed: one of {', '.join(LOOKS)} and its numbers"):
        Look.of(code)


@pytest.mark.parametrize(("look", "changes", "said"), [
    (HeadLook(3, 0), {}, "the look's layer is 3; allowed: 0 … 2"), (HeadLook(0, 2), {}, "head is 2; allowed: 0 … 1"),
    (HeadLook(0, 0, 3), {}, "sequence is 3; allowed: 0 … 2"),
    (HeadLook(0, 0), {"model.sublayers": "mlp"}, "no layer attends"),
    (HeadLook(0, 0), {"protocol.steps": 2}, "protocol.steps is 2; allowed: 0"),
])
def test_a_head_that_is_not_there_is_refused_with_what_is_allowed(look, changes, said):
    with pytest.raises(ExperimentError, match=said):
        look.check(Experiment().with_values(SMALL | changes))


def test_every_look_has_a_key_of_its_own():
    key = Experiment().key("cpu")
    looks = HeadLook(1, 2), HeadLook(12, 0), HeadLook(1, 20), HeadLook(1, 2, 1), HeadLook(1, 2), TokenLeak(1, 2)
    keys = {look.key(key) for look in looks}
    assert len(keys) == 5 and key not in keys and all(len(one) == 64 for one in keys)
