"""Training: the observer changes nothing, losses, loss scale, dropout, devices, provenance."""

import json
import math

import numpy as np
import pytest
import torch

from core.corpus import batch
from core.devices import available_devices, pick_device
from core.experiment import parse
from core.fields import ExperimentError
from core.inits import unit_normals
from core.model import build
from core.passes import LOSSES, step
from core.recorder import Recorder
from core.tables import FAMILIES
from core.train import train
from core.vocabulary import SITES

SMALL = {"n_layers": 3, "d_model": 16, "n_heads": 2}


def experiment(model=None, source=None, **protocol):
    return parse({"model": {**SMALL, **(model or {})}, "input": {"seq_len": 8, "batch": 3, **(source or {})},
                  "protocol": {"device": "cpu", **protocol}})


def probe(*given, **protocol):
    (snapshot,) = train(experiment(*given, **protocol))
    return snapshot


@pytest.mark.parametrize("detail", ["standard", "full"])
@pytest.mark.parametrize("described", [
    {}, {"attention": "explicit"}, {"dtype": "bfloat16"}, {"dtype": "float16", "loss_scale": "dynamic"},
    {"model": {"norm": "batchnorm", "placement": "post"}}, {"model": {"dropout": 0.3, "n_kv_heads": 1}},
    {"source": {"source": "gaussian", "lengths": "ragged"}}, {"model": {"pattern": "uniform", "activation": "geglu"}},
], ids=str)
def test_a_recorded_step_is_the_bare_step_bit_for_bit(described, detail):
    wanted, results = experiment(**described), []
    for recorded in (False, True):
        stack, data = build(wanted), batch(wanted, 0)
        if recorded:
            with Recorder(stack, detail=detail) as recorder:
                recorder.begin(data.mask, 1.0)
                loss = step(stack, data, 0)
                recorder.snapshot(0, float(loss))
        else:
            loss = step(stack, data, 0)
        results.append((loss, [parameter.grad for parameter in stack.parameters()], list(stack.buffers())))
    (one, grads, buffers), (other, others, other_buffers) = results
    assert torch.equal(one, other)
    for mine, theirs in zip([*grads, *buffers], [*others, *other_buffers], strict=True):
        assert mine is theirs is None or torch.equal(mine, theirs)


def test_a_probe_is_one_snapshot_of_step_zero_in_full_detail():
    snapshots = list(train(experiment()))
    assert [snapshot.step for snapshot in snapshots] == [0]
    assert "q50" in snapshots[0].activations
    assert snapshots[0].histograms
    assert "q50" not in probe(detail="standard").activations


def test_a_default_model_starts_near_the_loss_of_a_uniform_guess_plus_the_heads_variance():
    (snapshot,) = train(parse({"model": {"n_layers": 2}, "protocol": {"device": "cpu"}}))
    assert snapshot.loss == pytest.approx(math.log(256) + 0.5, abs=0.3)


def test_next_token_is_the_mean_over_real_tokens_alone():
    described = experiment(source={"lengths": [8, 3, 5]}, dtype="float64")
    stack, data = build(described), batch(described, 0)
    output = stack(data.inputs, data.mask)
    chosen = output.logits.log_softmax(-1).gather(-1, data.targets.unsqueeze(-1)).squeeze(-1)
    assert probe(None, {"lengths": [8, 3, 5]}, dtype="float64").loss == pytest.approx(-chosen[data.mask].mean().item())


@pytest.mark.parametrize("final_norm", [True, False])
def test_projection_is_a_gradient_of_known_size_at_the_top(final_norm):
    described = {"model": {"final_norm": final_norm}, "source": {"source": "gaussian"}, "dtype": "float64"}
    snapshot, wanted = probe(**described), experiment(**described)
    data = batch(wanted, 0)
    x = build(wanted)(data.inputs).x
    direction = unit_normals(0, "projection", (3, 8, 16)).double()
    assert snapshot.loss == pytest.approx(((x * direction).sum() / math.sqrt(3 * 8 * 16)).item())
    _, rows = snapshot.layout.rows("final_norm" if final_norm else "resid_post")
    expected = direction.square().mean().sqrt().item() / math.sqrt(3 * 8 * 16)
    assert snapshot.gradients["rms"][rows[-1]] == pytest.approx(expected)


def test_projection_leaves_the_padding_out():
    described = {"source": {"source": "gaussian", "lengths": [8, 2, 4]}, "dtype": "float64"}
    data, wanted = batch(experiment(**described), 0), experiment(**described)
    x = build(wanted)(data.inputs, data.mask).x
    expected = (x * unit_normals(0, "projection", (3, 8, 16)))[data.mask].sum() / math.sqrt(3 * 8 * 16)
    assert probe(**described).loss == pytest.approx(expected.item())


def test_projection_of_a_token_model_shows_the_logits_without_a_gradient():
    snapshot = probe({"causal": False})
    row = snapshot.layout.sites.index((3, "logits"))
    assert snapshot.activations["rms"][row] > 0
    assert np.isnan(snapshot.gradients["n"][row])


def test_a_loss_is_computed_in_float32_at_least():
    wanted = experiment(dtype="float16")
    stack, data = build(wanted), batch(wanted, 0)
    assert LOSSES["next_token"](stack(data.inputs, data.mask), data, wanted).dtype == torch.float32


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_recorded_gradients_do_not_depend_on_the_loss_scale(scale):
    plain, scaled = probe(), probe(loss_scale=scale)
    assert scaled.loss == plain.loss
    for statistic in ("rms", "absmax"):
        np.testing.assert_allclose(scaled.gradients[statistic], plain.gradients[statistic], rtol=1e-5)
    np.testing.assert_allclose(scaled.parameters["param_grad_norm"], plain.parameters["param_grad_norm"], rtol=1e-5)


def test_a_float16_gradient_that_vanishes_is_saved_by_the_loss_scale():
    source = {"source": "gaussian", "batch": 64, "seq_len": 128}
    model = {"branch_scale": 1e-4}
    plain, scaled = (probe(model, source, dtype="float16", loss_scale=scale) for scale in (None, "dynamic"))
    row = plain.layout.sites.index((1, "mlp_act"))
    assert plain.gradients["zero_frac"][row] > 0.1
    assert scaled.gradients["zero_frac"][row] < 0.01


def test_dropout_belongs_to_seed_and_step_and_leaves_the_callers_random_state_alone():
    described = experiment({"dropout": 0.5})
    torch.manual_seed(1)
    before, losses = torch.get_rng_state(), []
    for number in (0, 0, 1):
        losses.append(step(build(described), batch(described, 0), number).item())
    assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1] != losses[2]
    assert probe({"dropout": 0.5}).loss == losses[0] != probe({"dropout": 0.5}, seed=1).loss


def test_the_mode_switches_norms_and_dropout():
    assert probe({"dropout": 0.5}, mode="eval").loss == probe(mode="eval").loss
    batchnorm = {"norm": "batchnorm"}
    assert probe(batchnorm, mode="eval").loss != probe(batchnorm, mode="train").loss


def test_the_same_experiment_gives_the_same_snapshot_again():
    first, second = probe(), probe()
    assert first.loss == second.loss
    for statistic, values in first.activations.items():
        np.testing.assert_array_equal(values, second.activations[statistic])


@pytest.mark.parametrize("pattern", ["uniform", "identity"])
def test_a_pattern_that_no_score_moves_has_a_gradient_and_its_queries_none(pattern):
    snapshot = probe({"pattern": pattern})
    sites = snapshot.layout.sites
    assert snapshot.gradients["rms"][sites.index((0, "attn_pattern"))] > 0
    assert np.isnan(snapshot.gradients["n"][sites.index((0, "q"))])


@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_every_site_of_an_explicit_run_is_observed_forward_and_backward(norm):
    snapshot = probe({"norm": norm, "placement": "sandwich"}, attention="explicit")
    assert not np.isnan(snapshot.activations["n"]).any()
    assert not np.isnan(snapshot.gradients["n"]).any()
    present = {name for _, name in snapshot.layout.sites}
    norms = {"norm1", "norm2", "norm1_out", "norm2_out", "final_norm"}
    recurrent = {site for family in FAMILIES.values() for site in family.steps}
    assert present == set(SITES) - recurrent - {"attn_sum", "mlp_sum"} - (norms if norm == "none" else set())


def test_an_own_text_is_found_by_its_hash():
    raw = experiment(source={"text": "hello, wörld. " * 9})
    named = raw.resolved()
    assert next(train(named, {named.input.text: raw.input.text})).loss == next(train(raw)).loss
    with pytest.raises(ExperimentError, match=r"input\.text is"):
        train(named)


# ── devices and provenance ──


def test_auto_is_the_best_device_and_it_is_recorded():
    training = train(parse({"model": SMALL}))
    assert training.provenance["device"] == available_devices()[0]
    assert available_devices()[-1] == "cpu"


@pytest.mark.parametrize("name", [name for name in ("cuda:117", "cuda", "mps")
                                  if not any(here.startswith(name) for here in available_devices())])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(ExperimentError) as refused:
        train(experiment(device=name))
    assert str(refused.value).startswith(f'protocol.device is "{name}"; allowed: what is available here: auto, cpu')


@pytest.mark.parametrize("name", available_devices())
def test_every_device_that_is_there_is_taken_by_name(name):
    assert str(pick_device(name)) == name


def test_the_provenance_says_where_and_with_what_it_ran_and_is_json():
    provenance = train(experiment(source={"lengths": "ragged"}, dtype="bfloat16", seed=7)).provenance
    facts = {"engine", "torch", "numpy", "python", "device", "device_name", "dtype", "threads", "seed", "lengths"}
    assert set(provenance) == {*facts, "pairing"}
    assert (provenance["device"], provenance["dtype"], provenance["seed"]) == ("cpu", "bfloat16", 7)
    assert max(provenance["lengths"]) == 8
    assert json.loads(json.dumps(provenance)) == provenance
    assert "lengths" not in train(experiment()).provenance


def test_two_norms_start_from_the_same_weights_and_data():
    layer, rms = (train(experiment({"norm": norm})).provenance["pairing"] for norm in ("layernorm", "rmsnorm"))
    assert layer == rms
