"""The single tokens of a step: sizes against a naive loop, padding, any scale, ids, and what is stored of them."""

import io
import json
import math
import zlib

import numpy as np
import pytest
import torch
from stacks import experiment, watched

from core.corpus import batch
from core.cost import cost
from core.experiment import parse
from core.model import build
from core.passes import step
from core.recorder import Recorder
from core.rows import RealTokens
from core.sites import sites_of
from core.token_rms import StreamTokens, token_rms
from core.trace import Snapshot
from core.train import train
from core.vocabulary import IDS_KEPT, TOKENS_KEPT


def naive(token):
    """√(mean x²) of one token, entry by entry, without overflow."""
    peak = max(abs(value) for value in token)
    if not math.isfinite(peak) or any(math.isnan(value) for value in token):
        return math.nan
    return peak * math.sqrt(math.fsum((value / peak) ** 2 for value in token) / len(token)) if peak else 0.0


def recorded(described, detail="full", spoil=None):
    stack, data = build(described), batch(described, 0)
    if spoil is not None:
        sites_of(stack, len(stack.layers))[spoil[0]].register_forward_pre_hook(lambda _m, a: (spoil[1](a[0]),))
    seen = watched(stack)
    with Recorder(stack, detail) as recorder:
        recorder.begin(data.mask, tokens=None if data.targets is None else data.inputs)
        loss = step(stack, data, 0)
        return recorder.snapshot(0, float(loss)), {place: x.detach() for place, x in seen.items()}, data


@pytest.mark.parametrize("source", ["tokens", "gaussian", "text"])
@pytest.mark.parametrize("lengths", [None, [6, 2, 4]])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_every_tokens_size_is_that_of_a_naive_loop_and_padding_has_none(source, lengths, dtype):
    described = experiment({"source": source, "seq_len": 6, "batch": 3, **({"lengths": lengths} if lengths else {})},
                           {"dtype": dtype})
    snapshot, seen, _ = recorded(described)
    assert snapshot.token_rms.shape == (3, 18) and snapshot.batch_shape == (3, 6)
    assert snapshot.token_rms.dtype == (np.float64 if dtype == "float64" else np.float32)
    real = [position < length for length in lengths or [6] * 3 for position in range(6)]
    for row, place in enumerate([(-1, "embed"), (0, "resid_post"), (1, "resid_post")]):
        tokens = seen[place].double().reshape(18, -1).tolist()
        wanted = [naive(token) if kept else math.nan for token, kept in zip(tokens, real, strict=True)]
        assert snapshot.token_rms[row] == pytest.approx(wanted, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("sublayers", ["attention", "mlp"])
def test_a_stream_that_passes_two_sites_as_one_tensor_is_still_seen(sublayers):
    snapshot, seen, _ = recorded(experiment(sublayers=sublayers))
    assert np.isfinite(snapshot.token_rms).all()
    assert snapshot.token_rms[2, 7] == pytest.approx(naive(seen[1, "resid_post"].reshape(18, -1)[7].tolist()), rel=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_token_that_is_not_finite_has_no_size_and_the_others_keep_theirs(value):
    def spoil(x):
        x = x.clone()
        x[1, 2, 3] = value
        return x

    vectors = experiment({"source": "gaussian", "seq_len": 6, "batch": 3})
    snapshot, _, _ = recorded(vectors, spoil=((-1, "embed"), spoil))
    assert np.flatnonzero(np.isnan(snapshot.token_rms[0])).tolist() == [8]
    assert np.isnan(snapshot.token_rms[1, 8])
    assert np.isfinite(snapshot.token_rms[:, [*range(6), *range(12, 18)]]).all()  # the other sequences


@pytest.mark.parametrize(("dtype", "scales"), [
    (torch.float32, [1e-45, 1e-30, 1.0, 1e30, 3.4e38]), (torch.float64, [5e-324, 1e-300, 1e-30, 1e30, 1.79e308]),
    (torch.bfloat16, [1e-38, 1e38]), (torch.float16, [6e-8, 60000.0]),
])
def test_no_finite_token_overflows_or_vanishes_at_any_scale(dtype, scales):
    pattern = torch.tensor([[1.0, 0, 0, 0], [1, -1, 1, -1], [0.5, 1, 0.25, 1], [0, 0, 0, 0]], dtype=torch.float64)
    for scale in scales:
        x = (pattern * scale).to(dtype)
        least = 2.0**-1074 if dtype == torch.float64 else 2.0**-149
        found, wanted = token_rms(x).double().numpy(), [naive(token) for token in x.double().tolist()]
        assert found == pytest.approx(wanted, rel=1e-6, abs=least)
        assert ((found > 0) == [True, True, True, False]).all()


def test_nothing_is_fetched_before_the_snapshot():
    x = torch.empty(3, 4, device="meta")  # has no entries that could be read
    assert token_rms(x).device.type == "meta"
    tokens = StreamTokens(torch.empty(3, 1, dtype=torch.int64, device="meta"), RealTokens(None))
    tokens.take(0, x[:, None])
    with pytest.raises(NotImplementedError):
        tokens.ids()


def test_only_the_first_positions_are_kept():
    x = torch.ones(2, TOKENS_KEPT, 2)
    tokens = StreamTokens(torch.zeros(IDS_KEPT + 5, 1, dtype=torch.int64), RealTokens(None))
    tokens.take(-1, x)
    assert tokens.sizes(0).shape == (1, TOKENS_KEPT) and tokens.shape == (2, TOKENS_KEPT)
    assert tokens.ids().shape == (IDS_KEPT,) and tokens.ids().dtype == np.int32


@pytest.mark.parametrize("source", ["text", "tokens", "markov", "gaussian"])
def test_ids_are_what_the_model_read_and_padding_has_none(source):
    described = experiment({"source": source, "seq_len": 6, "batch": 3, "lengths": [6, 2, 4]})
    (snapshot,) = train(described)
    data = batch(described, 0)
    wanted = [] if source == "gaussian" else torch.where(data.mask, data.inputs, -1).flatten().tolist()
    assert snapshot.tokens.tolist() == wanted and snapshot.tokens.dtype == np.int32


def test_ids_are_a_copy():
    described = experiment()
    stack, data = build(described), batch(described, 0)
    ids = data.inputs.to(torch.int32)
    with Recorder(stack) as recorder, torch.no_grad():
        recorder.begin(tokens=ids)
        stack(data.inputs)
        ids.zero_()
        assert recorder.snapshot(0, 0.0).tokens.tolist() == data.inputs.flatten().tolist()


def test_detail_standard_keeps_no_single_token():
    snapshot, _, _ = recorded(experiment(), "standard")
    assert snapshot.token_rms.size == snapshot.tokens.size == 0 and snapshot.batch_shape == (0, 0)


def test_a_model_whose_stream_was_not_seen_has_no_sizes():
    unseen = StreamTokens(torch.zeros(2, 3, dtype=torch.int64), RealTokens(None))
    assert unseen.sizes(1).size == 0 and unseen.shape == (0, 0) and unseen.ids().tolist() == [0] * 6


def test_a_layer_whose_stream_was_not_seen_has_no_sizes():
    tokens = StreamTokens(None, RealTokens(None))
    tokens.take(1, torch.ones(1, 2, 3))
    assert np.isnan(tokens.sizes(2)).all(1).tolist() == [True, True, False]


@pytest.mark.parametrize("described", [{}, {"lengths": [6, 2, 4]}, {"source": "gaussian"}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tokens_survive_being_stored_exactly(described, dtype):
    (snapshot,) = train(experiment({"source": "tokens", "seq_len": 6, "batch": 3, **described}, {"dtype": dtype}))
    again = Snapshot.from_bytes(snapshot.to_bytes())
    assert np.array_equal(again.token_rms, snapshot.token_rms, equal_nan=True)
    assert np.array_equal(again.tokens, snapshot.tokens) and again.batch_shape == snapshot.batch_shape
    assert (again.token_rms.dtype, again.tokens.dtype) == (snapshot.token_rms.dtype, np.int32)


def test_a_snapshot_that_was_stored_without_tokens_can_still_be_read():
    (snapshot,) = train(experiment())
    with np.load(io.BytesIO(zlib.decompress(snapshot.to_bytes()))) as stored:
        kept = {name: stored[name] for name in stored.files if name not in ("token_rms", "tokens", "json")}
        facts = json.loads(stored["json"].tobytes())
    del facts["batch_shape"]
    stream = io.BytesIO()
    np.savez_compressed(stream, json=np.frombuffer(json.dumps(facts).encode(), np.uint8), **kept)
    again = Snapshot.from_bytes(stream.getvalue())
    assert again.token_rms.size == again.tokens.size == 0 and again.batch_shape == (0, 0)
    assert again.outliers == snapshot.outliers


@pytest.mark.parametrize("described", [{}, {"dtype": "float64"}, {"dtype": "float16"}], ids=str)
def test_recording_tokens_leaves_loss_and_gradients_bit_for_bit(described):
    wanted, results = experiment({"source": "text", "seq_len": 6, "batch": 3, "lengths": [6, 2, 4]}, described), []
    for is_recorded in (False, True):
        stack, data = build(wanted), batch(wanted, 0)
        with Recorder(stack) as recorder:
            if is_recorded:
                recorder.begin(data.mask, tokens=data.inputs)
            loss = step(stack, data, 0)
            if is_recorded:
                assert recorder.snapshot(0, float(loss)).tokens.size
        results.append([loss, *(parameter.grad for parameter in stack.parameters())])
    assert all(one is other is None or torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(("tokens", "sentence"), [
    (torch.zeros(3, 6), r"the tokens given to begin\(\) hold torch.float32; allowed: whole numbers, \(B, T\), or None"),
    (torch.zeros(3, 5, dtype=torch.int64), r"the tokens given to begin\(\) are \(3, 5\), the mask is \(3, 6\); "
                                           r"allowed: both \(B, T\)"),
])
def test_tokens_that_are_none_are_refused(tokens, sentence):
    mask = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    with Recorder(build(experiment())) as recorder, pytest.raises(ValueError, match=sentence):
        recorder.begin(mask, tokens=tokens)


@pytest.mark.parametrize("source", ["tokens", "gaussian"])
def test_the_store_is_told_of_them(source):
    one, many = (parse({"model": {"n_layers": 2}, "input": {"source": source, "seq_len": 8, "batch": size}})
                 for size in (2, 100))
    positions, ids = (100 - 2) * 8, 4 if source == "tokens" else 0
    assert cost(many).stored_bytes - cost(one).stored_bytes == positions * (3 * 4 + ids)
