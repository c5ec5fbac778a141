"""The reference values that come with the design, through the engine: closed forms and published results."""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from core.experiment import parse
from core.fields import ExperimentError
from core.train import train

ITEMS = {item["id"]: item for item in json.loads((Path(__file__).parent / "acceptance.json").read_text())["items"]}


def probe(item, seed=0, **changes):
    """Return the snapshot of an item's experiment, with fields changed (model__init is model.init)."""
    values = {path.replace("__", "."): value for path, value in changes.items()}
    document = {part: {name: value for name, value in fields.items() if value != "T"}
                for part, fields in ITEMS[item]["experiment"].items()}
    (snapshot,) = train(parse(document).with_values({**values, "protocol.seed": seed}))
    return snapshot


def mean_squares(snapshot, site="resid_post"):
    """Return rms² at one site by layer."""
    _, rows = snapshot.layout.rows(site)
    return snapshot.activations["rms"][rows] ** 2


@cache
def stream(item, **changes):
    """Return v by layer, the mean over the item's seeds."""
    return np.mean([mean_squares(probe(item, seed, **changes)) for seed in range(ITEMS[item]["seeds"])], axis=0)


@pytest.mark.parametrize("length", ITEMS["A05"]["expect"])
def test_a05_the_largest_entropy_of_a_causal_head(length):
    heads = probe("A05", input__seq_len=int(length)).heads
    assert heads["entropy"][0] == pytest.approx(ITEMS["A05"]["expect"][length], abs=ITEMS["A05"]["abs"])
    assert heads["entropy_norm"][0] == pytest.approx(1, abs=5e-4)


@pytest.mark.parametrize("layer", ITEMS["A07"]["expect"])
def test_a07_sandwich_grows_by_two_a_block(layer):
    assert stream("A07")[int(layer) - 1] == pytest.approx(ITEMS["A07"]["expect"][layer], rel=ITEMS["A07"]["rel"])


def test_a08_the_lemma_of_xiong_et_al():
    tolerance, blocks = ITEMS["A08"]["rel"], np.arange(1, 13)
    v = stream("A08", model__placement="pre")
    assert (v >= (1 + blocks / 2) * (1 - tolerance)).all()
    assert (v <= (1 + 3 * blocks / 2) * (1 + tolerance)).all()
    probes = [probe("A08", seed, model__placement="post") for seed in range(ITEMS["A08"]["seeds"])]
    sums = [mean_squares(snapshot, "mlp_sum")[0] for snapshot in probes]
    assert np.mean(sums) == pytest.approx(ITEMS["A08"]["expect"]["post mlp_sum"], rel=tolerance)


@pytest.mark.parametrize("init", ITEMS["A09"]["expect"])
def test_a09_without_a_norm_the_drift_depends_on_the_init(init):
    expected = ITEMS["A09"]["expect"][init]
    assert math.log10(stream("A09", model__init=init)[11]) == pytest.approx(expected["value"], abs=expected["abs"])


@pytest.mark.parametrize("init", ITEMS["A10"]["expect"])
def test_a10_pre_norm_grows_slowly(init):
    expected = ITEMS["A10"]["expect"][init]
    assert stream("A10", model__init=init)[11] == pytest.approx(expected["value"], abs=expected["abs"])


@pytest.mark.parametrize("init", ["xavier", "kaiming", "torch_default", "normal"])
def test_a11_post_norm_holds_the_stream_at_one(init):
    assert stream("A11", model__init=init) == pytest.approx(ITEMS["A11"]["expect"], abs=ITEMS["A11"]["abs"])


@pytest.mark.parametrize("protocol", ["fused", "explicit"])
def test_a12_qk_norm_bounds_the_scores(protocol):
    largest = probe("A12", protocol__attention=protocol).heads["score_absmax"]
    assert largest.shape == (12, 4)
    assert (largest <= math.sqrt(32) * (1 + 1e-6)).all()


def test_a14_batchnorm_on_two_tokens_gives_plus_and_minus_one_and_refuses_one():
    snapshot = probe("A14")
    _, rows = snapshot.layout.rows("norm1")
    assert 0.999 <= snapshot.activations["absmax"][rows[0]] <= 1
    with pytest.raises(ExperimentError, match="batchnorm"):
        probe("A14", input__batch=1)


def test_a15_dyt_of_standard_normal_vectors():
    assert mean_squares(probe("A15"), "norm1")[0] == pytest.approx(ITEMS["A15"]["expect"], rel=ITEMS["A15"]["rel"])


@pytest.mark.parametrize("placement", ITEMS["A18"]["expect"])
def test_a18_the_last_block_s_gradient_over_depth(placement):
    """Xiong et al. 2020: under pre-norm it shrinks like 1/√L, under post-norm it stays."""
    depths = np.array([4, 8, 16, 32])
    low, high = ITEMS["A18"]["expect"][placement]
    assert low <= np.polyfit(np.log(depths), [last_gradient(layers, placement) for layers in depths], 1)[0] <= high


def last_gradient(layers, placement):
    """Return the mean over the item's seeds of ln ‖∂loss/∂w‖ of the last block's second MLP matrix."""
    name = (layers - 1, f"layers.{layers - 1}.mlp.out.weight")
    snapshots = [probe("A18", seed, model__n_layers=int(layers), model__placement=placement)
                 for seed in range(ITEMS["A18"]["seeds"])]
    return np.mean([math.log(one.parameters["param_grad_norm"][one.layout.parameters.index(name)])
                    for one in snapshots])


@pytest.mark.parametrize("item", ["A19", "A20"])
def test_a19_a20_scaled_branches(item):
    assert stream(item)[11] == pytest.approx(ITEMS[item]["expect"], rel=ITEMS[item]["rel"])
