"""What a recorder sees of recurrent layers: every gate and state, forward and backward, whole and at each time step."""

import numpy as np
import pytest
import torch
from naive import statistics as naive_statistics
from stacks import TOKENS, VECTORS, experiment, shown
from test_recurrent import layernorm, naive

from core.corpus import batch
from core.model import Output, build
from core.passes import projection, step
from core.record import Record
from core.recorder import Recorder
from core.table import tidy
from core.tables import FAMILIES
from core.time_steps import kept_steps, statistics_over_time
from core.trace import Snapshot, Trace
from core.train import train
from core.vocabulary import TIME_KEPT, TIME_STATISTICS

RECURRENT = [name for name, family in FAMILIES.items() if family.recurrent]
LENGTHS = [6, 4, 3]


def recorded(described, detail="full", scale=1.0):
    """One step of a new stack under a recorder: its loss, its gradients, and the snapshot."""
    stack, data = build(described), batch(described, 0)
    with Recorder(stack, detail) as recorder:
        recorder.begin(data.mask, scale)
        loss = step(stack, data, 0, scale)
        snapshot = recorder.snapshot(0, float(loss))
    return loss, [parameter.grad for parameter in stack.parameters()], snapshot


def with_gradients(described):
    """What every site over time showed, (B, T, D), and the gradient there, by autograd's own word."""
    stack, seen, output = shown(described)
    data = batch(described, 0)
    direction = torch.linspace(-1, 1, output.x.numel(), dtype=output.x.dtype).view(output.x.shape)
    loss = (output.x * direction * (1 if data.mask is None else data.mask[..., None])).sum()
    over_time = {place: steps for place, steps in seen.items() if isinstance(steps, tuple)}
    found = {place: torch.stack(torch.autograd.grad(loss, steps, retain_graph=True), 1)
             for place, steps in over_time.items()}
    with Recorder(stack) as recorder:
        recorder.begin(data.mask)
        again = stack(data.inputs, data.mask).x
        (again * direction * (1 if data.mask is None else data.mask[..., None])).sum().backward()
        snapshot = recorder.snapshot(0, float(loss.detach()))
    values = {place: torch.stack(steps, 1).detach() for place, steps in over_time.items()}
    return values, found, snapshot, data.mask


@pytest.mark.parametrize("detail", ["standard", "full"])
@pytest.mark.parametrize("norm", ["none", "layernorm"])
@pytest.mark.parametrize("family", RECURRENT)
def test_loss_and_gradients_are_bit_for_bit_what_they_are_without_a_recorder(family, norm, detail):
    described = experiment({**TOKENS, "lengths": LENGTHS}, family=family, norm=norm, dropout=0.2)
    stack = build(described)
    loss = step(stack, batch(described, 0), 0)
    watched_loss, gradients, _ = recorded(described, detail)
    assert torch.equal(loss, watched_loss)
    for ours, theirs in zip(gradients, stack.parameters(), strict=True):
        assert (ours is None) == (theirs.grad is None) and (ours is None or torch.equal(ours, theirs.grad))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "ragged"])
@pytest.mark.parametrize("norm", ["none", "layernorm", "rmsnorm"])
@pytest.mark.parametrize("family", RECURRENT)
def test_every_gate_and_state_is_seen_forward_and_backward(family, norm, lengths):
    values, gradients, snapshot, mask = with_gradients(
        experiment({**VECTORS, "lengths": lengths}, {"dtype": "float64"}, family=family, norm=norm))
    assert set(values) == {(layer, site) for layer in (0, 1) for site in FAMILIES[family].steps}
    real = torch.ones(3, 6, dtype=torch.bool) if mask is None else mask
    for place in values:
        row = snapshot.layout.sites.index(place)
        for tensors, measured in ((values, snapshot.activations), (gradients, snapshot.gradients)):
            expected = naive_statistics(tensors[place][real].numpy())
            for name in ("n", "mean", "std", "rms", "absmax", "min", "max"):
                assert measured[name][row] == pytest.approx(expected[name], rel=1e-9, abs=1e-15), (place, name)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "ragged"])
@pytest.mark.parametrize("family", RECURRENT)
def test_each_time_step_has_its_own_statistics(family, lengths):
    values, gradients, snapshot, mask = with_gradients(
        experiment({**VECTORS, "lengths": lengths}, {"dtype": "float64"}, family=family))
    assert snapshot.time_steps.tolist() == list(range(6))
    real = torch.ones(3, 6, dtype=torch.bool) if mask is None else mask
    for layer, site in values:
        for gradient, tensors in ((False, values), (True, gradients)):
            for name in TIME_STATISTICS:
                expected = [naive_statistics(tensors[layer, site][real[:, t], t].numpy())[name] for t in range(6)]
                found = snapshot.over_steps(layer, site, name, gradient)
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-15), (layer, site, name)


@pytest.mark.parametrize("family", RECURRENT)
def test_gradients_over_time_are_those_of_the_unrolled_cell(family):
    described = experiment({**VECTORS, "batch": 1}, {"dtype": "float64"}, family=family, n_layers=1)
    _, _, snapshot = recorded(described)
    stack, data = build(described), batch(described, 0)
    sites = naive(stack.layers[0], family, data.inputs[0].double(), layernorm(stack.layers[0]))
    hidden = torch.stack(sites[-1])
    loss = projection(Output(hidden[None], None), data, described)
    for name, steps in zip(FAMILIES[family].steps, sites, strict=True):
        by_hand = torch.autograd.grad(loss, steps, retain_graph=True)
        sizes = [float(gradient.square().mean().sqrt()) for gradient in by_hand]
        assert snapshot.over_steps(0, name, "rms", gradient=True) == pytest.approx(sizes, rel=1e-9), name


@pytest.mark.parametrize("family", RECURRENT)
def test_a_site_is_measured_once_a_direction_however_long_the_sequence(family, monkeypatch):
    counted, observe = [], Record.observe
    monkeypatch.setattr(Record, "observe", lambda *given: counted.append(given[2]) or observe(*given))
    recorded(experiment({**VECTORS, "seq_len": 40}, family=family))
    rows = len(FAMILIES[family].steps) * 2 + 1  # two layers, and the embedding
    assert sorted(counted) == sorted([*range(rows)] * 2)


def test_a_loss_scale_is_taken_out_of_gradients_over_time():
    described = experiment(VECTORS, family="lstm")
    (_, _, plain), (_, _, scaled) = recorded(described), recorded(described, scale=1024.0)
    np.testing.assert_allclose(plain.over_time, scaled.over_time, rtol=1e-5)


def test_detail_standard_takes_none():
    _, _, snapshot = recorded(experiment(VECTORS, family="lstm"), "standard")
    assert snapshot.over_time.size == 0 and snapshot.time_steps.size == 0
    assert snapshot.over_steps(0, "hidden", "rms").size == 0


def test_a_transformer_has_none():
    _, _, snapshot = recorded(experiment(VECTORS))
    assert snapshot.layout.over_time == () and snapshot.over_time.size == 0


# ── what is kept ──


def test_of_a_long_sequence_evenly_spaced_steps_are_kept_from_the_first_to_the_last():
    for length in (1, 2, TIME_KEPT - 1, TIME_KEPT, TIME_KEPT + 1, 1000, 16384):
        kept = kept_steps(length)
        assert kept[0] == 0 and kept[-1] == length - 1 and len(kept) == min(length, TIME_KEPT)
        gaps = np.diff(kept)
        assert not gaps.size or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)


def test_beyond_the_longest_sequence_there_is_no_time_step():
    _, _, snapshot = recorded(experiment({**VECTORS, "seq_len": 9, "lengths": [5, 2, 1]}, family="gru"))
    assert snapshot.time_steps.tolist() == [0, 1, 2, 3, 4] and not np.isnan(snapshot.over_time).any()


def test_a_value_that_is_not_finite_leaves_a_gap_at_its_time_step_alone():
    x = torch.ones(2, 4, 3)
    x[1, 2, 0], x[0, 3, 1] = torch.nan, torch.inf
    found = statistics_over_time(x)
    assert torch.isnan(found).tolist() == [[False, False, True, True]] * 3
    real = torch.tensor([[True] * 4, [True, True, False, True]])
    assert torch.isnan(statistics_over_time(x, real)).any(0).tolist() == [False, False, False, True]


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-42), (torch.float32, 1e38), (torch.float64, 1e-300),
                                             (torch.float64, 1e300)])
def test_what_is_finite_neither_overflows_nor_vanishes(dtype, size):
    x = torch.full((2, 3, 4), size, dtype=dtype)
    exact = float(x[0, 0, 0])
    assert statistics_over_time(x).tolist() == [pytest.approx([exact] * 3, rel=1e-6, abs=0)] * 3


def test_a_snapshot_keeps_its_time_steps_as_bytes():
    (snapshot,) = train(experiment(TOKENS, family="lstm"))
    again = Snapshot.from_bytes(snapshot.to_bytes())
    assert np.array_equal(again.over_time, snapshot.over_time)
    assert np.array_equal(again.time_steps, snapshot.time_steps)


def test_the_tidy_table_carries_the_time_step_in_token():
    (snapshot,) = train(experiment(TOKENS, family="lstm"))
    rows = [row for row in tidy(Trace((snapshot,)), "run").to_pylist()
            if row["token"] is not None and not row["statistic"].startswith("outlier")]
    assert {row["statistic"] for row in rows} == {prefix + name for prefix in ("", "grad_") for name in TIME_STATISTICS}
    assert len(rows) == 2 * len(FAMILIES["lstm"].steps) * 2 * len(TIME_STATISTICS) * 6
    one = [row["value"] for row in rows if (row["layer"], row["site"], row["statistic"]) == (1, "cell", "grad_rms")]
    assert one == snapshot.over_steps(1, "cell", "rms", gradient=True).tolist()
