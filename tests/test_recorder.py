"""The recorder: what it reads, and that it leaves no trace."""

import copy
import gc
import math
import sys
import weakref

import naive
import numpy as np
import pytest
import torch
from torch import nn

from core.corpus import batch as make_batch
from core.experiment import parse
from core.model import build
from core.parameters import norms
from core.recorder import Recorder, RecorderError
from core.sites import Heads, Site
from core.statistics import statistics_of
from core.trace import NonFinite, Snapshot
from core.train import step as play
from core.vocabulary import HEAD_MEASURES, HISTOGRAM_BINS, STATISTICS

B, T, D, H, L = 3, 8, 12, 2, 2


class TinyBlock(nn.Module):
    """A block written by hand: pre-norm attention in the open, an MLP, dropout."""

    def __init__(self, dropout):
        super().__init__()
        names = ("resid_pre", "norm1", "q", "k", "attn_scores", "attn_pattern", "attn_out", "resid_mid", "mlp_pre",
                 "mlp_act", "mlp_out", "resid_post")
        self.sites = nn.ModuleDict({name: Site() for name in names})
        self.heads = Heads((D // H) ** -0.5, None, "softmax", True)
        self.norm, self.dropout = nn.LayerNorm(D), nn.Dropout(dropout)
        sizes = ((D, 3 * D), (D, D), (D, 2 * D), (2 * D, D))
        self.qkv, self.o, self.up, self.down = (nn.Linear(a, b) for a, b in sizes)

    def forward(self, x, mask=None):
        see = self.sites
        x = see["resid_pre"](x)
        parts = self.qkv(see["norm1"](self.norm(x))).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in parts)
        q, k = see["q"](q), see["k"](k)
        self.heads(q, k, mask)
        scores = see["attn_scores"](q @ k.mT * self.heads.scale)
        hidden = torch.ones(x.shape[1], x.shape[1]).tril() == 0
        hidden = hidden if mask is None else hidden | ~mask[:, None, None, :]
        pattern = see["attn_pattern"](scores.masked_fill(hidden, -1e4).softmax(-1))
        x = see["resid_mid"](x + see["attn_out"](self.dropout(self.o((pattern @ v).transpose(1, 2).flatten(2)))))
        return see["resid_post"](x + see["mlp_out"](self.down(see["mlp_act"](see["mlp_pre"](self.up(x)).relu()))))


class Tiny(nn.Module):
    def __init__(self, dropout=0.0, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.ModuleDict({"token": nn.Embedding(10, D)})
        self.layers = nn.ModuleList(TinyBlock(dropout) for _ in range(L))
        self.final_norm, self.head = nn.LayerNorm(D), nn.Linear(D, 10)
        self.sites = nn.ModuleDict({name: Site() for name in ("embed", "final_norm", "logits")})
        self.to(dtype)

    def forward(self, tokens, mask=None, *, fail=False):
        x = self.sites["embed"](self.embed["token"](tokens))
        for layer in self.layers:
            x = layer(x, mask)
            if fail:
                raise KeyError("on purpose")
        return self.sites["logits"](self.head(self.sites["final_norm"](self.final_norm(x))))


TOKENS = torch.arange(B * T).reshape(B, T) % 10
MASK = torch.arange(T) < torch.tensor([T, 5, 1])[:, None]


def one_step(model, mask=None, scale=1.0, seed=3):
    torch.manual_seed(seed)
    logits = model(TOKENS, mask)
    loss = logits.float().square().mean() if mask is None else logits.float()[mask].square().mean()
    (loss * scale).backward()
    return logits.detach(), loss.detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def record(model, mask=None, detail="full", scale=1.0, **settings):
    model.zero_grad()
    with Recorder(model, detail, **settings) as recorder:
        recorder.begin(mask, scale)
        _, loss, _ = one_step(model, mask, scale)
        return recorder.snapshot(0, float(loss))


def row_of(snapshot, layer, site):
    return snapshot.layout.sites.index((layer, site))


def watched(model, tensors, gradients=None):
    """Hooks of our own that keep what passes every site."""
    handles = []
    for path, module in model.named_modules():
        if isinstance(module, Site):
            def keep(_module, _arguments, x, path=path):
                tensors[path] = x.detach().clone()
                if gradients is not None:
                    x.register_hook(lambda g: gradients.__setitem__(path, g.clone()))
            handles.append(module.register_forward_hook(keep))
    return handles


def path_of(layer, site):
    return f"layers.{layer}.sites.{site}" if 0 <= layer < L else f"sites.{site}"


def same_snapshots(first, second):
    for group in ("activations", "gradients", "heads", "parameters", "histograms"):
        ours, theirs = getattr(first, group), getattr(second, group)
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert np.array_equal(ours[name], theirs[name], equal_nan=True), (group, name)
    assert first.totals == second.totals and first.outliers == second.outliers


# Looking without touching


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("detail", ["standard", "full"])
def test_output_loss_and_gradients_are_bit_identical_with_the_recorder_on_and_off(dtype, detail):
    model = Tiny(dropout=0.2, dtype=dtype)
    bare = one_step(model, MASK)
    model.zero_grad()
    with Recorder(model, detail) as recorder:
        recorder.begin(MASK)
        seen = one_step(model, MASK)
        recorder.snapshot(0, 0.0)
    assert torch.equal(bare[0], seen[0]) and torch.equal(bare[1], seen[1])
    assert all(torch.equal(a, b) for a, b in zip(bare[2], seen[2], strict=True))


def hooks_of(model):
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
            for module in model.modules()]


@pytest.mark.parametrize("where", ["nowhere", "forward", "backward", "between"])
def test_every_hook_is_gone_after_the_with_block_and_after_an_exception_anywhere(where):
    model = Tiny()
    model.head.weight.register_hook(lambda g: 1 / 0 if where == "backward" else None)
    errors = {"nowhere": (), "forward": (KeyError,), "backward": (ZeroDivisionError,), "between": (ValueError,)}[where]

    def run():
        with Recorder(model) as recorder:
            assert sum(hooks_of(model)) > 0
            recorder.begin()
            loss = model(TOKENS, fail=where == "forward").sum()
            if where == "between":
                raise ValueError
            loss.backward()

    if errors:
        with pytest.raises(errors):
            run()
    else:
        run()
    assert sum(hooks_of(model)) == 0


def test_hooks_of_others_stay_and_are_still_called():
    model, seen = Tiny(), []
    site = model.layers[0].sites["resid_post"]
    site.register_forward_hook(lambda *_: seen.append("before"))
    with Recorder(model) as recorder:
        site.register_forward_hook(lambda *_: seen.append("during"))
        recorder.begin()
        one_step(model)
        recorder.snapshot(0, 0.0)
    one_step(model)
    assert seen == ["before", "during"] * 2


@pytest.mark.parametrize("gradients", [True, False])
def test_no_activation_outlives_the_step(gradients):
    model, passed = Tiny(), []
    for module in model.modules():
        if isinstance(module, Site):
            module.register_forward_hook(lambda _m, _a, x: passed.append(weakref.ref(x)))
    with Recorder(model) as recorder:
        recorder.begin()
        with torch.set_grad_enabled(gradients):
            loss = model(TOKENS).sum()
        if gradients:
            loss.backward()
        del loss
        gc.collect()
        assert not any(tensor() is not None for tensor in passed)  # not even before the snapshot
        recorder.snapshot(0, 0.0)
    assert len(passed) == 12 * L + 3


def test_after_an_exception_in_the_forward_pass_nothing_is_kept():
    model, passed = Tiny(), []
    for module in model.modules():
        if isinstance(module, Site):
            module.register_forward_hook(lambda _m, _a, x: passed.append(weakref.ref(x)))
    recorder = Recorder(model)
    with pytest.raises(KeyError), recorder:
        recorder.begin()
        model(TOKENS, fail=True)
    gc.collect()
    assert not any(tensor() is not None for tensor in passed)


def test_memory_stays_flat_over_fifty_steps():
    model, blocks = Tiny(), []
    with Recorder(model) as recorder:
        for number in range(50):
            model.zero_grad()
            recorder.begin()
            one_step(model)
            recorder.snapshot(number, 0.0)
            if number in (9, 49):
                gc.collect()
                blocks.append(sys.getallocatedblocks())
    assert blocks[1] - blocks[0] < 100


def test_the_number_of_tensors_alive_stays_flat_over_steps():
    model = Tiny()

    def alive():
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    with Recorder(model) as recorder:
        counts = []
        for number in range(4):
            recorder.begin()
            one_step(model)
            recorder.snapshot(number, 0.0)
            counts.append(alive())
    assert counts[1] == counts[-1]


def test_recording_draws_no_random_numbers():
    model = Tiny(dropout=0.3)
    torch.manual_seed(5)
    with Recorder(model) as recorder:
        recorder.begin()
        model(TOKENS).sum().backward()
        recorder.snapshot(0, 0.0)
    with_recorder = torch.rand(3)
    torch.manual_seed(5)
    model(TOKENS)
    assert torch.equal(torch.rand(3), with_recorder)


# What it reads


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


# Steps, modes, errors


def test_the_forward_record_is_the_same_with_and_without_autograd_and_in_evaluation():
    model = Tiny()
    with_gradients = record(model)
    with Recorder(model.eval()) as recorder:
        for guard in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            recorder.begin()
            with guard():
                model(TOKENS)
            snapshot = recorder.snapshot(0, 0.0)
            assert snapshot.gradients == {} and "gradients" not in snapshot.histograms
            for name, values in with_gradients.activations.items():
                assert np.array_equal(snapshot.activations[name], values, equal_nan=True), name
            for name, values in with_gradients.heads.items():
                assert np.array_equal(snapshot.heads[name], values, equal_nan=True), name


def test_gradients_that_nobody_wants_are_not_read():
    assert record(Tiny(), gradients=False).gradients == {}


def test_asking_for_gradients_without_autograd_is_an_error():
    model = Tiny()
    with Recorder(model, gradients=True) as recorder:
        with torch.no_grad(), pytest.raises(RecorderError, match="gradients were asked for, but autograd is off"):
            recorder.begin()
        recorder.begin()
        model(TOKENS)
        with pytest.raises(RecorderError, match="gradients were asked for and none came"):
            recorder.snapshot(0, 0.0)


def test_a_site_and_a_gradient_that_were_not_seen_have_no_count():
    model = Tiny()
    model.layers[1].sites["v"] = Site()  # never called
    model.embed.requires_grad_(False)
    snapshot = record(model)
    unseen = row_of(snapshot, 1, "v")
    for group in (snapshot.activations, snapshot.gradients):
        assert all(math.isnan(values[unseen]) for values in group.values())
    embed = row_of(snapshot, -1, "embed")
    assert snapshot.activations["n"][embed] == B * T * D
    assert math.isnan(snapshot.gradients["n"][embed])


def test_a_second_step_forgets_the_first():
    model = Tiny()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        first = recorder.snapshot(0, 1.0)
        with torch.no_grad():
            model.embed["token"].weight.mul_(100)
        recorder.begin()
        with torch.no_grad():
            model(TOKENS)
        recorder.begin()
        model.zero_grad()
        one_step(model)
        second = recorder.snapshot(1, 2.0)
    same_snapshots(second, record(model))
    assert second.activations["absmax"][0] == pytest.approx(100 * first.activations["absmax"][0], rel=1e-6)
    assert (second.step, second.loss) == (1, 2.0)


def test_between_snapshot_and_begin_nothing_is_recorded():
    model = Tiny()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        recorder.snapshot(0, 0.0)
        one_step(model)
        with pytest.raises(RecorderError, match=r"snapshot\(\) without begin\(\)"):
            recorder.snapshot(1, 0.0)


def test_a_backward_pass_after_the_snapshot_does_not_reach_the_next_step():
    model = Tiny()
    with Recorder(model) as recorder:
        recorder.begin()
        late = model(TOKENS).sum()
        recorder.snapshot(0, 0.0)
        recorder.begin()
        with torch.no_grad():
            model(TOKENS)
        late.backward()
        assert recorder.snapshot(1, 0.0).gradients == {}


def test_a_recorder_can_be_used_again_and_two_at_once():
    model = Tiny()
    outer = Recorder(model)
    with outer:
        outer.begin()
        with Recorder(model) as inner:
            inner.begin()
            one_step(model)
            second = inner.snapshot(0, 0.0)
        first = outer.snapshot(0, 0.0)
    same_snapshots(first, second)
    model.zero_grad()
    with outer:
        outer.begin()
        one_step(model)
        same_snapshots(outer.snapshot(0, 0.0), first)


def test_errors_say_what_was_wrong_and_what_is_allowed():
    model = Tiny()
    with pytest.raises(ValueError, match='detail is "much"; allowed: standard, full'):
        Recorder(model, "much")
    with pytest.raises(RecorderError, match="Linear has no site; allowed: a model with Site modules"):
        Recorder(nn.Linear(2, 2))
    recorder = Recorder(model)
    with pytest.raises(RecorderError, match=r"begin\(\) outside the with block"):
        recorder.begin()
    with recorder, pytest.raises(RecorderError, match="attached already"):
        recorder.__enter__()
    with recorder:
        recorder.begin()
        with pytest.raises(RecorderError, match="no site was seen since begin"):
            recorder.snapshot(0, 0.0)
        recorder.begin()
        model(TOKENS)
        with pytest.raises(RecorderError, match="site embed of layer -1 was passed twice in one step"):
            model(TOKENS)
        recorder.begin(torch.ones(B, T - 1, dtype=torch.bool) & (torch.arange(T - 1) > 0))
        with pytest.raises(ValueError, match=r"the mask given to begin\(\) is \(3, 7\), a tensor is \(3, 8, 12\)"):
            model(TOKENS)


def test_a_compiled_model_is_refused():
    model = Tiny()
    with pytest.raises(RecorderError, match=r"the model is compiled \(torch.compile\)"):
        Recorder(torch.compile(model, backend="eager"))
    model.layers[1].compile(backend="eager")
    with pytest.raises(RecorderError, match=r"layers.1 is compiled"):
        Recorder(model)


def test_autocast_does_not_narrow_what_is_measured():
    model, tensors = Tiny(), {}
    watched(model, tensors)
    with Recorder(model) as recorder:
        recorder.begin()
        with torch.autocast("cpu", torch.bfloat16):
            model(TOKENS)
        snapshot = recorder.snapshot(0, 0.0)
    x = tensors["sites.embed"].numpy()
    row = row_of(snapshot, -1, "embed")
    assert snapshot.activations["token_cosine"][row] == pytest.approx(naive.token_cosine(list(x)), abs=1e-6)


# The first value that is not finite


def at(model, layer, site, value, padding=False):
    """Put a value into what passes a site."""
    def inject(_module, arguments):
        x = arguments[0].clone()
        x[-1, -1 if padding else 0, 0] = value
        return (x,)

    sites = model.sites if layer in (-1, L) else model.layers[layer].sites
    sites[site].register_forward_pre_hook(inject)
    return model


@pytest.mark.parametrize(("value", "kind"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "inf")])
@pytest.mark.parametrize(("layer", "site"), [(-1, "embed"), (0, "mlp_out"), (1, "norm1"), (L, "logits")])
def test_the_first_non_finite_value_is_named_where_the_forward_pass_meets_it(layer, site, value, kind):
    assert record(at(Tiny(), layer, site, value)).non_finite == NonFinite(0, layer, site, "forward", kind)


def test_a_value_at_padding_is_nobodys_fault():
    model = at(Tiny(), L - 1, "mlp_out", math.nan, padding=True)
    with Recorder(model) as recorder, torch.no_grad():
        recorder.begin(MASK)
        model(TOKENS, MASK)
        snapshot = recorder.snapshot(0, 0.0)
    assert snapshot.non_finite is None
    assert np.nansum(snapshot.activations["n_nan"]) == 0


def test_counts_of_non_finite_values_are_those_that_were_there():
    model = Tiny()

    def inject(_module, arguments):
        x = arguments[0].clone()
        x.view(-1)[:9] = torch.tensor([math.nan] * 4 + [math.inf] * 3 + [-math.inf] * 2)
        return (x,)

    model.sites["logits"].register_forward_pre_hook(inject)
    snapshot = record(model)
    row = row_of(snapshot, L, "logits")
    assert [snapshot.activations[name][row] for name in ("n_nan", "n_posinf", "n_neginf")] == [4, 3, 2]
    assert np.isfinite(snapshot.activations["rms"][row])


def test_a_gradient_that_is_not_finite_is_named_in_backward_order():
    model = Tiny()

    def spoil(_module, _arguments, x):
        x.register_hook(lambda g: g * math.inf)

    model.layers[0].sites["mlp_act"].register_forward_hook(spoil)
    found = record(model).non_finite
    assert (found.layer, found.direction) == (0, "gradient") and found.site in ("mlp_act", "mlp_pre")


def test_a_loss_and_a_parameter_gradient_that_are_not_finite_are_named_when_no_site_is():
    model = Tiny()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        assert recorder.snapshot(4, math.inf).non_finite == NonFinite(4, L, "loss", "forward", "inf")
    model.zero_grad()
    with Recorder(model) as recorder:
        recorder.begin()
        one_step(model)
        model.head.bias.grad[0] = math.nan
        snapshot = recorder.snapshot(4, 0.0)
    assert snapshot.non_finite == NonFinite(4, L, "head.bias", "gradient", "nan")
    assert math.isnan(snapshot.totals["grad_total_norm"])


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
