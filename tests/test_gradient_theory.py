"""The gradient that theory predicts against the one that comes back: placements, inits, activations, norms, scalings.

Compared are means over seeds: ln of the gradient's rms, which starts at that of the last resid_post, and the cosines
between tokens' gradients there. Tolerances are about twice the largest deviation that was seen: with a residual and
norms, 0.15 at the stream, 0.25 elsewhere in a block, 0.1 of a cosine; without a residual, and where scores spread far,
nothing is normalized or the head is tied, wider, and said where it is.
"""

import math

import numpy as np
import pytest
import torch
from test_theory import BASE, SILENT, VECTORS, Compared

from core import gaussian_activation
from core.experiment import Experiment
from core.gradient_theory import MOST_WORK, UNTOLD, predict_gradient
from core.mean_field import NORMS
from core.mean_pattern import _met, _met_back
from core.tables import ACTIVATIONS, INITS, PLACEMENTS, load
from core.tape import Tokens, pull_back
from core.theory import REASONS, NoPrediction

BOUNDS = {"stream": 0.15, "site": 0.25, "cosine": 0.1}
SOURCES = pytest.mark.parametrize("source", [BASE, VECTORS], ids=["text, causal", "vectors"])
TOP = (1e-3, 0.1)
START = (1.0, 0.1)


class Returned(Compared):
    """An experiment measured, means over seeds, and its gradients predicted from the last layer's."""

    def __init__(self, changes):
        super().__init__(changes)
        self.last = self.experiment.model.n_layers - 1
        start = (self.at("rms", -1, "embed"), self.at("token_cosine", -1, "embed"))
        top = (self.back("rms", self.last, "resid_post"), self.back("token_cosine", self.last, "resid_post"))
        self.gradient = predict_gradient(self.experiment, start, top)

    def back(self, statistic, layer, site):
        return np.mean([run.gradients[statistic][self.rows[layer, site]] for run in self.runs])

    def growth(self):
        ends = (self.back("rms", layer, "resid_post") for layer in (0, self.last))
        return abs(np.subtract(*np.log(tuple(ends))))

    def check(self, **wider):
        bounds = BOUNDS | wider
        for (layer, site), rms in self.gradient.rms.items():
            measured = self.back("rms", layer, site)
            if measured == 0:
                assert rms == 0
                continue
            bound = bounds["stream" if site == "resid_post" else "site"]
            assert math.log(rms / measured) == pytest.approx(0, abs=bound), (layer, site)
            if site == "resid_post":
                assert self.gradient.token_cosine[layer, site] == pytest.approx(
                    self.back("token_cosine", layer, site), abs=bounds["cosine"], nan_ok=True), layer


@SOURCES
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_gradient_of_every_placement_is_predicted(placement, source):
    Returned(source | {"model.placement": placement}).check(stream=0.25 if placement == "post" else 0.15)


@SOURCES
@pytest.mark.parametrize("init", INITS)
def test_the_gradient_of_every_init_is_predicted(init, source):
    Returned(source | {"model.init": init}).check()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_of_every_activation_is_predicted(activation):
    Returned(VECTORS | {"model.activation": activation}).check()


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [name for name in NORMS if name not in ("none", "layernorm")])
def test_the_gradient_through_every_norm_is_predicted(norm, placement):
    Returned(VECTORS | {"model.norm": norm, "model.placement": placement}).check(cosine=0.15)


@pytest.mark.parametrize("changes", [
    {"model.residual_alpha": "deepnorm", "model.placement": "post", "model.init": "deepnorm"},
    {"model.branch_scale": "inv_sqrt_2L"}, {"model.branch_scale": "layerscale"}, {"model.branch_scale": "rezero"},
    {"model.depth_scaling": "inv_sqrt_layer"}, {"model.pattern": "uniform"}, {"model.pattern": "identity"},
    {"model.qk_norm": "rmsnorm", "model.qk_gain": 3.0}, {"model.n_kv_heads": 2}, {"model.layer_norms": {3: "none"}},
    {"model.sublayers": "mlp"}, {"model.sublayers": "attention"}, {"model.head_dim": 16},
    {"input.seq_len": 1, "input.batch": 64},
], ids=str)
def test_the_gradient_of_scalings_patterns_and_overrides_is_predicted(changes):
    Returned(VECTORS | changes).check()


@SOURCES
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_without_a_residual_the_gradient_is_predicted_through_collapsing_tokens(placement, source):
    Returned(source | {"model.residual": False, "model.placement": placement}).check(stream=0.45, site=0.45, cosine=0.2)


@SOURCES
@pytest.mark.parametrize(("changes", "growths"), [
    ({"model.qk_gain": 3.0}, (3.0, 5.0)), ({"model.init_gain": 2.0}, (1.8, 3.0)),
    ({"model.norm": "none", "model.residual": False}, (5.0, 9.5)),
    ({"model.norm": "none", "model.init_gain": 0.8}, (0.4, 3.5)),
    ({"model.norm": "none", "model.sublayers": "mlp", "model.activation": "relu", "model.init": "kaiming"}, (3.5, 4.5)),
    ({"model.tie_embeddings": True}, (0.4, 1.2)),
], ids=str)
def test_large_growths_and_falls_are_predicted_to_a_share_of_their_logarithm(changes, growths, source):
    compared = Returned(source | changes)
    assert growths[0] < compared.growth() < growths[1]
    bound = 0.15 + 0.2 * compared.growth()
    compared.check(stream=bound, site=bound + 0.1, cosine=0.2)


@pytest.mark.parametrize(("residual", "factor"), [(True, 3.0), (False, 2.0)])
def test_a_stack_of_relu_and_kaiming_weights_has_its_closed_form(residual, factor):
    mlp = {"model.norm": "none", "model.sublayers": "mlp", "model.activation": "relu", "model.init": "kaiming",
           "model.d_ff": 128, "model.n_layers": 6, "model.residual": residual}
    found = predict_gradient(Experiment().with_values(mlp), (1.0, 0.0), (1.0, 0.0))
    for layer in range(6):  # a branch gives back out·std²·E φ'²·out·std² = 2·½·2 (Schoenholz et al. 2017)
        assert found.rms[layer, "resid_post"] ** 2 == pytest.approx(factor ** (5 - layer), rel=1e-2)


SILENT_BACK = {"gradient": {}, "saturated": {"model.qk_gain": 8.0}, "size": {"input.seq_len": 512}}


@pytest.mark.parametrize("code", REASONS)
def test_where_the_stream_is_not_predicted_the_gradient_is_not(code):
    with pytest.raises(NoPrediction) as caught:
        predict_gradient(Experiment().with_values(SILENT[code]), START, TOP)
    assert caught.value.code == code


@pytest.mark.parametrize("code", SILENT_BACK)
def test_what_cannot_be_predicted_of_a_gradient_is_said_with_its_reason(code):
    experiment = Experiment().with_values(SILENT_BACK[code])
    assert (experiment.model.n_layers * experiment.input.seq_len**2 > MOST_WORK) == (code == "size")
    for top in ((math.nan, 0.0), (0.0, 0.0), (math.inf, 0.0), (1.0, math.nan)) if code == "gradient" else (TOP,):
        with pytest.raises(NoPrediction) as caught:
            predict_gradient(experiment, START, top)
        assert caught.value.code == code


def test_an_embedding_without_a_size_predicts_no_gradient():
    with pytest.raises(NoPrediction, match="start"):
        predict_gradient(Experiment(), (0.0, 0.0), TOP)


def test_of_every_site_that_the_stream_s_theory_tells_but_queries_and_keys_a_gradient_is_told():
    compared = Returned(BASE | {"model.n_layers": 2, "model.placement": "sandwich"})
    assert compared.gradient.rms.keys() == {place for place in compared.theory.rms if place[1] not in UNTOLD}
    assert compared.gradient.rms[-1, "embed"] == compared.gradient.rms[0, "resid_pre"]


@pytest.mark.parametrize("causal", [True, False])
def test_what_comes_back_from_means_over_keys_is_their_transpose(causal):
    length, draws = 9, np.random.default_rng(0)
    n = np.arange(1, length + 1) if causal else np.full(length, length)
    keys, own, between = draws.normal(size=(3, length, length))
    found = sum((one * weight).sum() for one, weight in zip(_met(keys, n), (own, between), strict=True))
    assert (keys * _met_back(own, between, n)).sum() == pytest.approx(found)


def test_a_value_that_is_used_twice_gets_back_what_both_uses_give():
    below = Tokens(np.eye(2))
    top = below.times(4.0, 3.0) + below.times(1.0, 5.0)
    pull_back(top, np.full((2, 2), 2.0))
    np.testing.assert_array_equal(top.products, 5 * np.eye(2))
    np.testing.assert_array_equal(below.gradient, np.full((2, 2), 16.0))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("std", [0.0, 1e-20, 0.1, 1.0, 7.0])
def test_the_slope_of_an_activation_is_that_of_the_engine(name, std):
    z = torch.randn(400_001, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * std
    z.requires_grad_()
    load(ACTIVATIONS, name)(z).sum().backward()
    found = gaussian_activation.slope_gram(np.array([[std**2]]), name)[0, 0]
    if std:  # at 0 itself a kink has either slope
        assert found == pytest.approx(z.grad.square().mean().item(), rel=0.01)
    assert 0 < found < 1.2
