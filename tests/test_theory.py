"""What theory predicts against what is measured, over placements, inits, activations and patterns; where it is silent.

Tolerances: two runs of a stack of width 128 scatter by some percent around the mean of all, and more the deeper and
the sharper their attention; each bound is about twice the largest deviation that was seen.
"""

import math

import numpy as np
import pytest
import torch

from core import gaussian_activation
from core.experiment import Experiment
from core.mean_field import NORMS as PREDICTED
from core.tables import ACTIVATIONS, INITS, NORMS, PLACEMENTS, load
from core.theory import REASONS, NoPrediction, largest_entropy, predict
from core.train import train

BASE = {"model.n_layers": 8, "protocol.device": "cpu", "protocol.detail": "standard"}
VECTORS = BASE | {"input.source": "gaussian", "model.causal": False}
SEEDS = 2
BOUNDS = {"stream": 0.1, "site": 0.2, "cosine": 0.08, "entropy": 0.12, "softmax_gain": 0.02, "score_std": 0.12}


class Compared:
    """An experiment measured, means over seeds, and predicted from its embedding."""

    def __init__(self, changes):
        self.experiment = Experiment().with_values(changes)
        self.runs = [next(iter(train(self.experiment.with_values({"protocol.seed": seed})))) for seed in range(SEEDS)]
        self.rows = {place: row for row, place in enumerate(self.runs[0].layout.sites)}
        self.theory = predict(self.experiment, self.at("rms", -1, "embed"), self.at("token_cosine", -1, "embed"))

    def at(self, statistic, layer, site):
        return np.mean([run.activations[statistic][self.rows[layer, site]] for run in self.runs])

    def heads(self, measure):
        return np.mean([run.heads[measure] for run in self.runs], (0, 2))

    def check(self, **wider):
        bounds = BOUNDS | wider
        for (layer, site), rms in self.theory.rms.items():
            rel = bounds["stream" if site == "resid_post" else "site"]
            assert rms == pytest.approx(self.at("rms", layer, site), rel=rel), (layer, site)
        for layer in range(self.experiment.model.n_layers):
            cosine = self.at("token_cosine", layer, "resid_post")
            assert self.theory.token_cosine[layer, "resid_post"] == pytest.approx(cosine, abs=bounds["cosine"])
        for measure in ("entropy", "softmax_gain", "score_std"):
            np.testing.assert_allclose(self.theory.heads[measure], self.heads(measure), atol=bounds[measure],
                                       err_msg=measure)


@pytest.mark.parametrize("source", [BASE, VECTORS], ids=["text, causal", "vectors"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement_is_predicted(placement, source):
    sharp = {"entropy": 0.4, "softmax_gain": 0.12, "score_std": 0.8} if placement == "branch" else {}
    Compared(source | {"model.placement": placement}).check(**sharp)


@pytest.mark.parametrize("init", INITS)
def test_every_init_is_predicted(init):
    Compared(VECTORS | {"model.init": init}).check(entropy=0.2)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_predicted(activation):
    Compared(VECTORS | {"model.activation": activation}).check()


@pytest.mark.parametrize("changes", [
    {"model.residual_alpha": "deepnorm", "model.placement": "post", "model.init": "deepnorm"},
    {"model.branch_scale": "inv_sqrt_2L"}, {"model.branch_scale": "layerscale"},
    {"model.depth_scaling": "inv_sqrt_layer"}, {"model.pattern": "uniform"},
    {"model.qk_norm": "rmsnorm", "model.qk_gain": 3.0},
    {"model.n_kv_heads": 2}, {"model.layer_norms": {3: "none"}}, {"model.sublayers": "mlp"}, {"model.head_dim": 16},
    {"model.norm": "rmsnorm"},
], ids=str)
def test_scalings_patterns_and_overrides_are_predicted(changes):
    compared = Compared(VECTORS | changes)
    if "model.pattern" in changes:  # no softmax, so no spread of its scores is predicted
        assert np.isnan(compared.theory.heads["score_std"]).all()
        compared.theory.heads["score_std"][:] = compared.heads("score_std")
    if "model.sublayers" in changes:
        assert all(np.isnan(values).all() for values in compared.theory.heads.values())
        compared.heads = lambda measure: compared.theory.heads[measure]
    compared.check()


@pytest.mark.parametrize("source", [BASE, VECTORS], ids=["text, causal", "vectors"])
@pytest.mark.parametrize("residual", [True, False])
def test_without_a_norm_it_is_the_right_explosion_and_the_right_vanishing(residual, source):
    compared = Compared(source | {"model.norm": "none", "model.residual": residual})
    growth = [compared.theory.rms[7, "resid_post"], compared.at("rms", 7, "resid_post")]
    assert np.diff(np.log(growth)) == pytest.approx(0, abs=0.4)  # of growth by e^3.6, and a fall by e^9
    assert abs(math.log(growth[1])) > 2.5
    assert compared.theory.token_cosine[7, "resid_post"] == pytest.approx(
        compared.at("token_cosine", 7, "resid_post"), abs=0.1)


def test_rezero_predicts_the_embedding_itself():
    theory = predict(Experiment().with_values(VECTORS | {"model.branch_scale": "rezero"}), 0.7, 0.1)
    assert theory.rms[7, "resid_post"] == pytest.approx(0.7)
    assert theory.token_cosine[7, "resid_post"] == pytest.approx(0.1)


SILENT = {"recurrent": {"model.family": "gru"}, "trained": {"protocol.steps": 3},
          "norm": {"model.norm": "batchnorm"},
          "positions": {"model.positions": "rotary"}, "softcap": {"model.attn_softcap": 5.0},
          "dropout": {"model.dropout": 0.1}, "lengths": {"input.lengths": "ragged"},
          "size": {"input.seq_len": 2048, "input.batch": 1}}


@pytest.mark.parametrize("code", REASONS)
def test_what_cannot_be_predicted_is_said_with_its_reason(code):
    with pytest.raises(NoPrediction) as caught:
        predict(Experiment().with_values(SILENT[code]), 1.0, 0.0)
    assert caught.value.code == code


@pytest.mark.parametrize("start", [(math.nan, 0.0), (0.0, 0.0), (1.0, math.nan), (math.inf, 0.0), (1e300, 0.0)])
def test_an_embedding_without_a_size_predicts_nothing(start):
    with pytest.raises(NoPrediction, match="start"):
        predict(Experiment(), *start)


@pytest.mark.parametrize("norm", [name for name in NORMS if name in PREDICTED])
def test_a_predicted_norm_makes_of_a_token_what_the_norm_itself_makes(norm):
    from core.norms import NormSettings

    x = torch.randn(64, 4096, dtype=torch.float64) * torch.logspace(-2, 2, 64)[:, None]
    y = load(NORMS, norm)(4096, NormSettings(affine=False, dtype=torch.float64))(x)
    size = PREDICTED[norm](x.square().mean(1).numpy(), Experiment().with_values({"model.d_model": 4096}).model)
    np.testing.assert_allclose(x.square().mean(1).sqrt().numpy() / size, y.square().mean(1).sqrt().numpy(), rtol=2e-3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_functions_of_the_theory_are_those_of_the_engine(name):
    x = np.concatenate([np.linspace(-12, 12, 2001), [-1e6, 1e6, 1e30, -1e30]])
    mine, engine = gaussian_activation.FUNCTIONS[name](x), load(ACTIVATIONS, name)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, engine, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("std", [0.1, 1.0, 7.0])
def test_products_of_activations_are_those_of_drawn_pairs(name, std):
    rho = np.array([-0.5, 0.0, 0.6, 0.99])
    one, other = np.random.default_rng(1).normal(size=(2, 400_000))
    for cosine in rho:
        pair = std * np.stack([one, cosine * one + math.sqrt(1 - cosine**2) * other])
        first, second = (gaussian_activation.FUNCTIONS[name](row) for row in pair)
        found = gaussian_activation.gram(std**2 * np.array([[1, cosine], [cosine, 1]]), name)
        error = 5 * np.std(first * second) / math.sqrt(len(one)) + 3e-3 * found[0, 0]
        assert found[0, 1] == pytest.approx(np.mean(first * second), abs=error)
        assert found[0, 0] == pytest.approx(np.mean(first**2), rel=0.02)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 8, 33])
def test_the_largest_entropy_is_that_of_uniform_weights(length, causal):
    uniform = Experiment().with_values({
        "model.n_layers": 1, "model.pattern": "uniform", "model.causal": causal, "model.d_model": 16,
        "input.seq_len": length, "protocol.device": "cpu", "protocol.loss": "projection"})
    measured = next(iter(train(uniform))).heads["entropy"]
    np.testing.assert_allclose(measured, largest_entropy(length, causal), atol=1e-6)
