"""Training over many steps: what is recorded, updates, schedules, loss scaling, stops, and going on bit for bit."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from core.checkpoints import CheckpointError
from core.corpus import batch
from core.experiment import parse
from core.model import build
from core.passes import step
from core.schedules import is_recorded, rate, recorded_steps
from core.train import train

SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2}


def experiment(model=None, source=None, **protocol):
    return parse({"model": {**SMALL, **(model or {})}, "input": {"seq_len": 8, "batch": 3, **(source or {})},
                  "protocol": {"device": "cpu", "steps": 6, **protocol}})


def trained(*given, **protocol):
    return list(train(experiment(*given, **protocol)))


def by_hand(described, make, after=None):
    """Train with torch's own optimizer and return the losses: the plain loop that everybody writes."""
    stack = build(described)
    optimizer, losses = make(stack.parameters()), []
    for number in range(described.protocol.steps + 1):
        optimizer.zero_grad()
        losses.append(step(stack, batch(described, number), number).item())
        if after:
            after(stack, optimizer, number)
        optimizer.step()
    return losses


@pytest.mark.parametrize(("protocol", "make"), [
    ({"optimizer": "sgd", "lr": 0.1}, lambda ps: torch.optim.SGD(ps, 0.1)),
    ({"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
     lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01)),
    ({"optimizer": "adam", "lr": 1e-2, "betas": [0.9, 0.98]}, lambda ps: torch.optim.Adam(ps, 1e-2, (0.9, 0.98))),
    ({"optimizer": "adamw", "lr": 1e-2, "weight_decay": 0.1},
     lambda ps: torch.optim.AdamW(ps, 1e-2, (0.9, 0.95), weight_decay=0.1)),
], ids=["sgd", "momentum", "adam", "adamw"])
def test_a_training_is_the_loop_that_everybody_writes(protocol, make):
    described = experiment(**protocol, dtype="float64")
    losses = [snapshot.loss for snapshot in train(described)]
    np.testing.assert_allclose(losses, by_hand(described, make), rtol=1e-12)


def test_clipping_warm_up_and_cosine_are_torchs_own():
    described = experiment(optimizer="sgd", lr=0.5, grad_clip=0.3, warmup=2, schedule="cosine", dtype="float64")

    def after(stack, optimizer, number):
        torch.nn.utils.clip_grad_norm_(stack.parameters(), 0.3)
        optimizer.param_groups[0]["lr"] = [0.25, 0.5, 0.5, 0.5 * 0.5 * (1 + math.cos(math.pi / 4)), 0.25,
                                           0.5 * 0.5 * (1 + math.cos(3 * math.pi / 4)), 0][number]

    losses = [snapshot.loss for snapshot in train(described)]
    np.testing.assert_allclose(losses, by_hand(described, lambda ps: torch.optim.SGD(ps, 0.5), after), rtol=1e-5)


def test_snapshot_k_is_batch_k_through_the_weights_after_k_updates():
    described = experiment(optimizer="sgd", lr=0.2)
    stack = build(described)
    snapshots = list(train(described))
    assert [snapshot.step for snapshot in snapshots] == list(range(7))
    loss = step(stack, batch(described, 0), 0)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.sub_(0.2 * parameter.grad)
            parameter.grad = None
    assert (snapshots[0].loss, snapshots[1].loss) == pytest.approx(
        (loss.item(), step(stack, batch(described, 1), 1).item()), rel=1e-6)


@pytest.mark.parametrize(("every", "steps", "recorded"), [
    (1, 3, [0, 1, 2, 3]), (2, 5, [0, 2, 4, 5]), (3, 6, [0, 3, 6]), (100, 7, [0, 7]), ("log", 8, [0, 1, 2, 4, 8]),
    ("log", 11, [0, 1, 2, 4, 8, 11]), ("log", 1, [0, 1]), (4, 0, [0]), ("log", 0, [0]),
])
def test_the_first_the_last_and_those_of_the_interval_are_recorded(every, steps, recorded):
    described = experiment(record_every=every, steps=steps)
    assert [snapshot.step for snapshot in train(described)] == recorded
    assert recorded_steps(described.protocol) == len(recorded)


@pytest.mark.parametrize("every", [*range(1, 12), "log"])
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_recorded_steps_are_counted_as_they_come(every, steps):
    protocol = experiment(record_every=every, steps=steps).protocol
    assert recorded_steps(protocol) == sum(is_recorded(protocol, number) for number in range(steps + 1))


def test_a_step_that_is_not_recorded_changes_nothing():
    every, third = trained(), trained(record_every=3)
    for snapshot in third:
        same = every[snapshot.step]
        assert snapshot.loss == same.loss and snapshot.totals == same.totals
        for name, values in same.parameters.items():
            np.testing.assert_array_equal(snapshot.parameters[name], values)


def test_the_first_and_the_last_step_are_in_full_detail_unless_a_detail_is_asked_for():
    assert ["q50" in one.activations for one in trained(steps=3)] == [True, False, False, True]
    assert ["q50" in one.activations for one in trained(steps=2, detail="full")] == [True] * 3
    assert ["q50" in one.activations for one in trained(steps=2, detail="standard")] == [False] * 3


def test_the_update_ratio_is_the_size_of_the_last_update_against_the_weight_before_it():
    described = experiment(optimizer="sgd", lr=0.3)
    first, second = list(train(described))[:2]
    assert "update_ratio" not in first.parameters
    sizes = first.parameters["weight_norm"]
    expected = 0.3 * first.parameters["param_grad_norm"] / np.where(sizes > 0, sizes, np.nan)
    np.testing.assert_allclose(second.parameters["update_ratio"], expected, rtol=1e-3)
    assert np.isnan(expected).any()


def test_a_clipped_gradient_is_shown_before_clipping_with_the_factor_beside_it():
    plain, clipped = trained(grad_clip=None)[0], trained(grad_clip=0.01)[0]
    assert clipped.totals["grad_total_norm"] == plain.totals["grad_total_norm"]
    assert plain.totals["clip_factor"] == 1.0
    assert clipped.totals["clip_factor"] == pytest.approx(0.01 / plain.totals["grad_total_norm"])


@pytest.mark.parametrize(("protocol", "rates"), [
    ({"lr": 2.0, "warmup": 4}, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]),
    ({"lr": 2.0, "schedule": "cosine", "steps": 4}, [2.0, 1 + math.cos(math.pi / 4), 1.0, 1 - math.cos(math.pi / 4)]),
    ({"lr": 1.0, "schedule": "cosine", "warmup": 2, "steps": 4}, [0.5, 1.0, 1.0, 0.5]),
    ({"lr": 1.0, "warmup": 9, "steps": 3}, [1 / 9, 2 / 9, 3 / 9]),
])
def test_the_rate_rises_then_follows_the_schedule_and_is_recorded(protocol, rates):
    described = experiment(**{"steps": len(rates), **protocol})
    assert [rate(described.protocol, update) for update in range(len(rates))] == pytest.approx(rates)
    *recorded, last = [snapshot.totals for snapshot in train(described)]
    assert [totals["lr"] for totals in recorded] == pytest.approx(rates)
    assert "lr" not in last  # no update follows it


# ── precision ──


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computes_in_half_and_learns_in_float32(dtype):
    described = experiment(dtype=dtype, lr=1e-5, steps=2)
    training = train(described)
    first, *_, last = training
    assert {parameter.dtype for parameter in training._parameters} == {torch.float32}
    weights = [row for row, (_, name) in enumerate(last.layout.parameters) if name.endswith("q.weight")]
    ratio = last.parameters["update_ratio"][weights]
    assert (ratio > 0).all() and (ratio < 2.0**-12).all()  # half precision would round it away
    assert first.loss != last.loss


def test_an_overflow_step_under_loss_scaling_is_shown_skipped_and_survived():
    snapshots = trained(dtype="float16", loss_scale="dynamic", steps=12, model={"init_gain": 2.0}, optimizer="sgd",
                        lr=1e-3)
    overflow = [snapshot for snapshot in snapshots if snapshot.totals["overflow"]]
    assert overflow and overflow != snapshots and len(snapshots) == 13
    for before, after in pairwise(snapshots):
        scale, skipped = before.totals["loss_scale"], before.totals["overflow"]
        assert after.totals["loss_scale"] == (scale / 2 if skipped else scale)
        moved = np.nan_to_num(after.parameters["update_ratio"])
        assert (moved == 0).all() if skipped else (moved > 0).any()
        assert np.isfinite(before.loss)
    assert snapshots[-1].totals["overflow_steps"] == len(overflow)


def test_a_fixed_scale_that_always_overflows_is_recorded_sixty_four_times_beyond_the_interval():
    snapshots = trained(dtype="float16", loss_scale=1e9, steps=100, record_every=1000)
    assert [one.step for one in snapshots] == [*range(65), 100]
    assert all(one.totals["overflow"] for one in snapshots)


def test_gradients_under_a_loss_scale_are_those_without_it():
    plain, scaled = trained(), trained(loss_scale=1024.0)
    np.testing.assert_allclose([one.loss for one in plain], [one.loss for one in scaled], rtol=1e-5)
    np.testing.assert_allclose([one.totals["grad_total_norm"] for one in plain],
                               [one.totals["grad_total_norm"] for one in scaled], rtol=1e-4)


# ── what is not finite ──

BLOWS_UP = {"optimizer": "sgd", "lr": 1e3, "steps": 60}


@pytest.mark.parametrize("every", [1, 7, 1000, "log"])
def test_the_step_that_holds_the_first_non_finite_value_is_recorded_whole_and_is_the_last(every):
    snapshots = trained(record_every=every, **BLOWS_UP)
    last = snapshots[-1]
    assert last.step < 60 and last.step == trained(**BLOWS_UP)[-1].step
    assert last.non_finite is not None and last.non_finite.step == last.step
    assert not np.isnan(last.activations["n"]).all() and not np.isnan(last.gradients["n"]).all()
    assert all(one.non_finite is None for one in snapshots[:-1])


@pytest.mark.parametrize(("stops", "goes_on"), [
    ({"stop_on_nan": False, "stop_on_inf": False}, True), ({"stop_on_nan": True, "stop_on_inf": False}, False),
])
def test_what_stops_a_training_is_chosen_for_nan_and_inf_apart(stops, goes_on):
    snapshots = trained(**BLOWS_UP, **stops)
    assert (snapshots[-1].step == 60) == goes_on
    kinds = snapshots[-1].non_finite_kinds() | snapshots[-1].non_finite_kinds(gradient=True)
    assert "nan" in kinds


def test_inf_alone_stops_only_where_it_is_asked_for():
    model = {"sublayers": "mlp", "activation": "tanh", "norm": "none", "embed_scale": 3000.0, "init_gain": 30.0}
    description = {"model": model, "dtype": "float16", "steps": 3, "optimizer": "sgd", "lr": 0.0}
    stopped = trained(**description)
    assert stopped[-1].non_finite_kinds() == {"inf"} and stopped[-1].step == 0
    assert trained(**description, stop_on_inf=False, stop_on_nan=False)[-1].step == 3


def test_a_weight_that_an_update_made_infinite_is_found_before_the_forward_pass():
    training = train(experiment(record_every=1000))
    next(training)
    with torch.no_grad():
        training._stack.layers[1].mlp.out.weight[0, 0] = math.inf
    found = next(training)
    assert (found.step, found.non_finite.site, found.non_finite.layer) == (1, "layers.1.mlp.out.weight", 1)
    assert (found.non_finite.direction, found.non_finite.kind) == ("weights", "inf")
    with pytest.raises(StopIteration):
        next(training)


def test_a_non_finite_step_between_recorded_ones_leaves_the_running_statistics_as_one_pass_would():
    free = {"stop_on_nan": False, "stop_on_inf": False, "steps": 12, "optimizer": "sgd", "lr": 1e3}
    model = {"norm": "batchnorm"}
    every, rare = trained(model, **free), trained(model, record_every=1000, **free)
    assert rare[-1].loss == every[-1].loss or (math.isnan(rare[-1].loss) and math.isnan(every[-1].loss))


@pytest.mark.parametrize("every", [1, 7, 50])
def test_the_loss_scale_does_not_depend_on_which_steps_are_recorded(every):
    free = {"stop_on_nan": False, "stop_on_inf": False, "dtype": "float16", "loss_scale": "dynamic"}
    hot = {"optimizer": "sgd", "lr": 30.0, "steps": 60}
    last, expected = trained(record_every=every, **hot, **free)[-1], trained(**hot, **free)[-1]
    assert not np.isfinite(expected.loss)
    assert (last.totals["loss_scale"], last.totals["overflow_steps"]) == (
        expected.totals["loss_scale"], expected.totals["overflow_steps"])


# ── going on ──

GOING_ON = [
    {}, {"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adam", "schedule": "cosine", "warmup": 3},
    {"model": {"dropout": 0.3}}, {"model": {"norm": "batchnorm", "placement": "post"}}, {"record_every": 4},
    {"dtype": "float16", "loss_scale": "dynamic"}, {"dtype": "bfloat16"}, {"source": {"source": "markov"}},
    {"source": {"source": "gaussian", "lengths": "ragged"}}, {"model": {"tie_embeddings": True, "embed_std": 0.02}},
    {"model": {"branch_scale": "rezero"}}, {"dtype": "float64"},
]


@pytest.mark.parametrize("described", GOING_ON, ids=str)
@pytest.mark.parametrize("at", [1, 5])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(described, at):
    wanted = experiment(**described, **({} if "steps" in described else {"steps": 9}))
    whole = {snapshot.step: snapshot for snapshot in train(wanted)}
    first = train(wanted)
    for _ in range(at):
        first.play()
    second = train(wanted, checkpoint=first.checkpoint())
    assert second.step == at and second.provenance["resumed_at"] == at
    for snapshot in second:
        same = whole[snapshot.step]
        assert (snapshot.loss, snapshot.totals) == (same.loss, same.totals)
        for group in ("activations", "gradients", "heads", "parameters"):
            for name, values in getattr(same, group).items():
                np.testing.assert_array_equal(getattr(snapshot, group)[name], values, err_msg=name)


def test_a_checkpoint_is_safetensors_and_another_models_is_refused():
    training = train(experiment())
    training.play()
    content = training.checkpoint()
    assert int.from_bytes(content[:8], "little") < len(content) and content[8:9] == b"{"
    with pytest.raises(CheckpointError, match="the checkpoint cannot be used: "):
        train(experiment({"d_model": 32}), checkpoint=content)
    with pytest.raises(CheckpointError, match="the checkpoint cannot be used: "):
        train(experiment(), checkpoint=content[:100])


def test_a_training_that_ended_leaves_no_hook_behind():
    for described in ({}, BLOWS_UP):
        training = train(experiment(**described))
        list(training)
        assert training.over
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in training._stack.modules())
