"""What the recorder reads, of a small model written by hand and of the real stack."""

import copy
import math

import naive
import numpy as np
import pytest
import torch
from tiny import MASK, TOKENS, B, D, H, L, T, Tiny, one_step, path_of, record, row_of, same_snapshots, watched

from core.corpus import batch as make_batch
from core.experiment import parse
from core.model import build
from core.parameters import norms
from core.passes import step as play
from core.recorder import Recorder
from core.statistics import statistics_of
from core.trace import Snapshot
from core.vocabulary import HEAD_MEASURES, HISTOGRAM_BINS, STATISTICS


@pytest.mark.parametrize("mask", [None, MASK])
def test_every_site_holds_the_statistics_of_what_passed_it(mask):
    model, tensors, gradients = Tiny(), {}, {}
    handles = watched(model, tensors, gradients)
    snapshot = record(model, mask)
    for handle in handles:
        handle.remove()
    real = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
    for row, (layer, site) in enumerate(snapshot.layout.sites):
        for group, kept in ((snapshot.activations, tensors), (snapshot.gradients, gradients)):
            x = kept[path_of(layer, site)]
            if site in ("attn_scores", "attn_pattern"):
                seen = (real[:, None, :, None] & real[:, None, None, :] & torch.ones(T, T).tril().bool()).expand_as(x)
                entries = x[seen]
            else:
                entries = (x.transpose(1, 2).flatten(2) if site in ("q", "k") else x)[real]
            expected = statistics_of(entries)
            for name, value in expected.items():
                if name in group:
                    close = pytest.approx(value, rel=1e-5, nan_ok=True, abs=1e-7 * expected["rms"])
                    assert group[name][row] == close, (site, name)
            wanted = [expected[f"log2_hist[{name}]"] for name in HISTOGRAM_BINS]
            direction = "activations" if group is snapshot.activations else "gradients"
            assert snapshot.histograms[direction][row].tolist() == wanted


def test_token_statistics_are_over_real_tokens_and_pairs_of_one_sequence():
    model, tensors = Tiny(), {}
    watched(model, tensors)
    snapshot = record(model, MASK)
    x = tensors["layers.1.sites.resid_mid"].numpy()
    sequences = [sequence[real] for sequence, real in zip(x, MASK.numpy(), strict=True)]
    row = row_of(snapshot, 1, "resid_mid")
    assert snapshot.activations["token_cosine"][row] == pytest.approx(naive.token_cosine(sequences), abs=1e-6)
    for name, value in naive.token_rms(np.concatenate(sequences)).items():
        assert snapshot.activations[name][row] == pytest.approx(value, rel=1e-5)
    q = tensors["layers.1.sites.q"].transpose(1, 2).flatten(2)[MASK].numpy()
    for name, value in naive.token_rms(q).items():
        assert snapshot.activations[name][row_of(snapshot, 1, "q")] == pytest.approx(value, rel=1e-5)
    assert math.isnan(snapshot.activations["token_cosine"][row_of(snapshot, 1, "q")])
    assert math.isnan(snapshot.activations["token_rms_p50"][row_of(snapshot, 1, "attn_scores")])


def test_layer_cosine_and_branch_ratio_compare_the_stream_and_what_is_added_to_it():
    model, tensors = Tiny(), {}
    watched(model, tensors)
    snapshot = record(model, MASK)
    see = {site: tensors[f"layers.1.sites.{site}"][MASK].double().numpy() for site in
           ("resid_pre", "resid_post", "attn_out", "resid_mid", "mlp_out")}
    values = {name: snapshot.activations[name][row_of(snapshot, 1, site)] for name, site in
              (("layer_cosine", "resid_post"), ("branch_ratio", "mlp_out"))}
    assert values["layer_cosine"] == pytest.approx(naive.mean_cosine(see["resid_pre"], see["resid_post"]), abs=1e-6)
    rms = {site: np.sqrt((x**2).mean()) for site, x in see.items()}
    assert values["branch_ratio"] == pytest.approx(rms["mlp_out"] / rms["resid_mid"], rel=1e-5)
    ratio = snapshot.activations["branch_ratio"]
    assert ratio[row_of(snapshot, 1, "attn_out")] == pytest.approx(rms["attn_out"] / rms["resid_pre"], rel=1e-5)
    assert np.isfinite(ratio).sum() == 2 * L and np.isfinite(snapshot.activations["layer_cosine"]).sum() == L
    assert "layer_cosine" not in snapshot.gradients and "branch_ratio" not in snapshot.gradients


def test_a_model_without_a_stream_has_no_branch_ratio():
    assert "branch_ratio" not in record(Tiny(), residual=False).activations


def test_heads_are_measured_in_every_layer():
    model, tensors = Tiny(), {}
    watched(model, tensors)
    snapshot = record(model, MASK)
    assert list(snapshot.heads) == list(HEAD_MEASURES)
    scores = tensors["layers.1.sites.attn_scores"].numpy()
    real = MASK.numpy()
    visible = real[:, :, None] & real[:, None, :] & np.tri(T, dtype=bool)
    for head in range(H):
        for name, value in naive.head(scores[:, head], visible).items():
            assert snapshot.heads[name][1, head] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_parameters_are_measured_with_their_gradients():
    model = Tiny()
    model.final_norm.bias.requires_grad_(False)
    snapshot = record(model)
    names = [name for name, _ in model.named_parameters()]
    assert [name for _, name in snapshot.layout.parameters] == names
    layers = {name: layer for layer, name in snapshot.layout.parameters}
    assert (layers["embed.token.weight"], layers["layers.1.up.bias"], layers["head.weight"]) == (-1, 1, L)
    for place, parameter in enumerate(model.parameters()):
        weight, grad = parameter.detach().double(), parameter.grad
        assert snapshot.parameters["weight_norm"][place] == pytest.approx(float(weight.norm()), rel=1e-6)
        assert snapshot.parameters["weight_rms"][place] == pytest.approx(float(weight.square().mean().sqrt()), rel=1e-6)
        expected = math.nan if grad is None else float(grad.double().norm())
        assert snapshot.parameters["param_grad_norm"][place] == pytest.approx(expected, rel=1e-6, nan_ok=True)
    total = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None))
    assert snapshot.totals["grad_total_norm"] == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_norms_of_vanishing_and_exploding_parameters_hold(size):
    model = Tiny()
    with torch.no_grad():
        model.head.weight.copy_(torch.ones_like(model.head.weight) * size)
    place = [name for name, _ in model.named_parameters()].index("head.weight")
    with Recorder(model) as recorder, torch.no_grad():
        recorder.begin()
        model(TOKENS)
        snapshot = recorder.snapshot(0, 0.0)
    assert snapshot.parameters["weight_norm"][place] == pytest.approx(size * math.sqrt(10 * D), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (0,), (300, 200), (700, 300), (2000, 1000)])
def test_norms_are_those_of_float64_for_tensors_of_any_size(shape, dtype):
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 0.02 + 0.01).to(dtype)
    spoilt = [torch.cat((x.flatten(), torch.tensor([value], dtype=dtype))) for value in (math.nan, math.inf)]
    found = norms([x, x * 0, x.t() if x.ndim > 1 else x, *spoilt])
    truth = float(x.double().norm())
    assert found.tolist() == pytest.approx([truth, 0, truth, math.nan, math.inf], rel=2e-6, nan_ok=True)


@pytest.mark.parametrize("scale", [1024.0, 1000.0])
def test_gradients_are_unscaled_before_anything_is_measured(scale):
    plain, scaled = record(Tiny()), record(Tiny(), scale=scale)
    for name in ("rms", "absmax", "subnormal_frac16", "q75"):
        assert scaled.gradients[name] == pytest.approx(plain.gradients[name], rel=1e-4, nan_ok=True), name
    assert scaled.parameters["param_grad_norm"] == pytest.approx(plain.parameters["param_grad_norm"], rel=1e-4)
    assert scaled.totals["grad_total_norm"] == pytest.approx(plain.totals["grad_total_norm"], rel=1e-4)


def test_a_loss_scale_saves_float16_gradients_that_underflow_without_it():
    small, saved = Tiny(dtype=torch.float16), Tiny(dtype=torch.float16)
    for model in (small, saved):
        with torch.no_grad():
            model.head.weight.mul_(1e-4)
    wide = copy.deepcopy(small).float()
    row = row_of(record(wide), 0, "resid_pre")
    truth = record(wide).gradients["rms"][row]
    assert record(saved, scale=65536.0).gradients["rms"][row] == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("detail", ["standard", "full"])
def test_a_snapshot_has_what_its_detail_asks_for(detail):
    snapshot = record(Tiny(), detail=detail)
    wanted = [name for name, statistic in STATISTICS.items() if detail == "full" or statistic.detail == "standard"]
    assert set(snapshot.activations) == {name for name in wanted if STATISTICS[name].forward}
    assert set(snapshot.gradients) == {name for name in wanted if STATISTICS[name].gradient}
    assert set(snapshot.histograms) == (set() if detail == "standard" else {"activations", "gradients"})
    assert all(values.shape == (len(snapshot.layout.sites),) for values in snapshot.activations.values())


def test_the_detail_of_one_step_can_differ():
    model = Tiny()
    with Recorder(model, "standard") as recorder:
        for number, detail in enumerate(("full", None)):
            recorder.begin(detail=detail)
            one_step(model)
            snapshot = recorder.snapshot(number, 0.0)
            assert ("kurtosis" in snapshot.activations) == (detail == "full")


def test_a_snapshot_survives_being_stored():
    snapshot = record(Tiny())
    same_snapshots(snapshot, Snapshot.from_bytes(snapshot.to_bytes()))


def test_outliers_name_layer_token_and_dimension():
    model = Tiny()

    def inject(_module, arguments):
        x = arguments[0].clone()
        x[1, 2, 7] = 1000.0
        x[2, 5, 3] = -5000.0  # at padding
        return (x,)

    model.layers[1].sites["resid_mid"].register_forward_pre_hook(inject)
    snapshot = record(model, MASK)
    found = [outlier for outlier in snapshot.outliers if outlier.site == "resid_mid"]
    assert [(o.layer, o.token, o.dim, o.value) for o in found] == [(1, T + 2, 7, 1000.0)]
    assert found[0].ratio > 100
    assert {o.layer for o in snapshot.outliers if o.value == 1000.0} == {1}


# The real stack

EXPERIMENTS = {
    "default": {},
    "explicit": {"protocol": {"attention": "explicit"}},
    "post, ragged": {"model": {"placement": "post"}, "input": {"lengths": "ragged"}},
    "sandwich, vectors": {"model": {"placement": "sandwich"}, "input": {"source": "gaussian"}},
    "float16 with a loss scale": {"protocol": {"dtype": "float16", "loss_scale": 1024.0}},
    "bfloat16, dropout": {"model": {"dropout": 0.1}, "protocol": {"dtype": "bfloat16"}},
    "float64": {"protocol": {"dtype": "float64"}},
    "no residual, no norm": {"model": {"residual": False, "norm": "none"}},
    "uniform": {"model": {"pattern": "uniform"}},
    "attention only": {"model": {"sublayers": "attention"}},
    "mlp only": {"model": {"sublayers": "mlp"}},
    "grouped keys, rotary": {"model": {"n_kv_heads": 1, "positions": "rotary", "qk_norm": "rmsnorm"}},
}
SMALL = {"model": {"n_layers": 2, "d_model": 16, "n_heads": 2}, "input": {"batch": 3, "seq_len": 8}}


def small(name):
    changes = EXPERIMENTS[name]
    return parse({part: {**SMALL.get(part, {}), **changes.get(part, {})} for part in {*SMALL, *changes}}).resolved()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_real_stack_is_recorded_whole_and_left_as_it_was(name):
    experiment = small(name)
    model, batch = build(experiment), make_batch(experiment, 0, None)
    scale = experiment.protocol.loss_scale or 1.0
    bare = play(model, batch, 0)
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with Recorder(model, gradients=True) as recorder:
        recorder.begin(batch.mask, scale)
        loss = play(model, batch, 0)
        snapshot = recorder.snapshot(0, float(loss))
    assert torch.equal(loss, bare)
    for ours, theirs in zip(gradients, model.parameters(), strict=True):
        assert (ours is None and theirs.grad is None) or torch.equal(ours, theirs.grad)
    fused = experiment.protocol.attention == "fused"
    for row, (layer, site) in enumerate(snapshot.layout.sites):
        seen = not (fused and site in ("attn_scores", "attn_pattern"))
        assert math.isnan(snapshot.activations["n"][row]) != seen, (layer, site)
    tokens = batch.inputs.shape[0] * batch.inputs.shape[1] if batch.mask is None else int(batch.mask.sum())
    assert snapshot.activations["n"][row_of(snapshot, 0, "resid_pre")] == tokens * 16
    assert snapshot.non_finite is None
    assert (snapshot.layout.n_layers, snapshot.layout.n_heads) == (2, 0 if name == "mlp only" else 2)


def test_explicit_scores_agree_with_the_heads_that_see_only_queries_and_keys():
    experiment = small("explicit")
    model, batch = build(experiment), make_batch(experiment, 0, None)
    with Recorder(model) as recorder:
        recorder.begin(batch.mask)
        play(model, batch, 0)
        snapshot = recorder.snapshot(0, 0.0)
    scores = snapshot.activations["absmax"][row_of(snapshot, 1, "attn_scores")]
    assert snapshot.heads["score_absmax"][1].max() == pytest.approx(scores, rel=1e-5)
    pattern = snapshot.activations["max"][row_of(snapshot, 1, "attn_pattern")]
    assert pattern == 1.0  # the first query sees itself alone


# On a device


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mask", [None, MASK])
def test_a_cuda_device_gives_the_same_numbers_and_never_waits_before_the_snapshot(mask):
    on_cpu = record(Tiny(), mask)
    model, tokens = Tiny().cuda(), TOKENS.cuda()
    mask = None if mask is None else mask.cuda()
    with Recorder(model) as recorder:
        for number in range(2):  # the first step makes what is kept
            model.zero_grad()
            recorder.begin(mask)
            torch.cuda.set_sync_debug_mode("error" if number else "default")
            logits = model(tokens, mask)
            kept = logits.float() if mask is None else logits.float() * mask.unsqueeze(-1)
            real = B * T if mask is None else int(MASK.sum())
            (kept.square().sum() / (10 * real)).backward()
            torch.cuda.set_sync_debug_mode("default")
            snapshot = recorder.snapshot(number, 0.0)
    for group in ("activations", "gradients", "heads", "parameters"):
        for name, values in getattr(on_cpu, group).items():
            scale = np.nanmax(np.abs(values), initial=1e-30)
            close = pytest.approx(values, rel=1e-3, abs=1e-4 * scale, nan_ok=True)
            assert getattr(snapshot, group)[name] == close, name
