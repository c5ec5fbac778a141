"""The recorder: it leaves no trace, and knows its steps, modes and errors."""

import gc
import itertools
import math
import sys
import weakref

import naive
import numpy as np
import pytest
import torch
from tiny import MASK, TOKENS, B, D, L, T, Tiny, one_step, record, row_of, same_snapshots, watched
from torch import nn

from core.recorder import Recorder, RecorderError
from core.sites import Site

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


def test_memory_stays_flat_over_steps():
    """One object kept a step would show in each of the spans; what other threads do meanwhile shows in some."""
    model, blocks = Tiny(), []
    with Recorder(model) as recorder:
        for number in range(170):
            model.zero_grad()
            recorder.begin()
            one_step(model)
            recorder.snapshot(number, 0.0)
            if number % 40 == 9:
                gc.collect()
                blocks.append(sys.getallocatedblocks())
    assert min(after - before for before, after in itertools.pairwise(blocks)) < 40


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
