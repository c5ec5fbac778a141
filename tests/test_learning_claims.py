"""What trainings of known outcome come to: published depth results, scores at a high rate, and golden losses.

Golden losses: tolerance 1e-4 relative (another machine's float32 rounding, amplified over a few updates, passes;
another optimizer or formula does not). To renew them after a change that is meant: python tests/test_learning_claims.py
"""

import json
import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).with_name("golden_losses.json")
ITEM = next(item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]
            if item["id"] == "A17")
PRESETS = {"pre": "pre_layernorm", "post": "post_layernorm", "sandwich": "sandwich_layernorm",
           "branch": "branch_layernorm"}
SMALL = {"model.n_layers": 6, "model.d_model": 64, "input.source": "markov", "input.batch": 4, "input.seq_len": 32,
         "protocol.steps": 12, "protocol.record_every": 1, "protocol.detail": "standard", "protocol.device": "cpu"}
FRESH = 8
"""Batches that the training has not seen, over which the loss at its end is taken."""


def excess(placement, seed):
    """Return the loss over fresh batches after the training, less the chain's conditional entropy, in nats."""
    import torch

    from core.corpus import batch, conditional_entropy
    from core.experiment import parse
    from core.passes import LOSSES
    from core.train import train

    described = parse(ITEM["experiment"]).with_values({
        "model.placement": placement, "protocol.seed": seed, "protocol.record_every": 1000,
        "protocol.detail": "standard", "protocol.device": "cpu"})
    training = train(described)
    list(training)
    losses = []
    with torch.no_grad():
        for number in range(described.protocol.steps + 1, described.protocol.steps + 1 + FRESH):
            data = batch(described, number)
            losses.append(LOSSES["next_token"](training._stack(data.inputs), data, described).item())
    return np.mean(losses) - conditional_entropy(described)


@pytest.mark.parametrize("seed", range(ITEM["seeds"]))
def test_a17_at_depth_18_pre_norm_learns_and_post_norm_with_xavier_does_not(seed):
    assert excess("pre", seed) < 0.4
    assert excess("post", seed) > 1.2


@cache
def largest_scores(qk_norm, affine):
    """Return the largest |score| of all heads every twenty updates at a rate that is too high, and the last loss."""
    from core.experiment import parse
    from core.train import train

    snapshots = list(train(parse({
        "model": {"n_layers": 4, "d_model": 32, "n_heads": 2, "qk_norm": qk_norm, "norm_affine": affine},
        "input": {"source": "markov", "seq_len": 32},
        "protocol": {"device": "cpu", "steps": 120, "record_every": 20, "lr": 0.1, "detail": "standard"}})))
    assert [snapshot.step for snapshot in snapshots] == list(range(0, 121, 20))
    return [float(np.nanmax(snapshot.heads["score_absmax"])) for snapshot in snapshots], snapshots[-1].loss


def test_attention_scores_grow_without_bound_at_a_high_rate():
    scores, _ = largest_scores("none", True)
    assert max(scores[4:]) > 1.3 * max(scores[1:4]) > 100 * scores[0]  # and not only at first
    assert scores[-1] > 500 * scores[0]


def test_with_qk_norm_the_same_rate_leaves_the_scores_bounded():
    scores, loss = largest_scores("rmsnorm", True)
    assert max(scores) < 50  # γ may grow, by the rate in every update at most
    assert loss < largest_scores("none", True)[1]
    fixed, _ = largest_scores("rmsnorm", False)
    assert max(fixed) <= math.sqrt(16) * (1 + 1e-6)


def losses(placement):
    """Return the loss at every step of one preset of this placement, at a small size."""
    from core.presets import preset
    from core.train import train

    return [snapshot.loss for snapshot in train(preset(PRESETS[placement]).with_values(SMALL))]


@pytest.mark.parametrize("placement", PRESETS)
def test_the_losses_of_every_step_are_the_ones_that_were_kept(placement):
    kept = json.loads(FILE.read_text())
    assert kept.keys() == PRESETS.keys()
    assert losses(placement) == pytest.approx(kept[placement], rel=1e-4)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILE.write_text(json.dumps({placement: losses(placement) for placement in PRESETS}, indent=1) + "\n")
