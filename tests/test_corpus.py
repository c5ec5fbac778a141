"""Batches: what each source gives, that batch k is a pure function of seed and k, lengths and masks."""

import hashlib
import math
from pydoc_data.topics import topics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.corpus import batch, conditional_entropy, lengths, stationary_distribution
from core.experiment import parse
from core.fields import ExperimentError
from core.tables import SOURCES, VECTOR_SOURCES

TEXT = "Gleich größer: 一二三."
TOKEN_SOURCES = [name for name in SOURCES if name not in VECTOR_SOURCES]


def experiment(seed=0, model=None, **source):
    if source.get("source") == "scaled":
        source.setdefault("feature_scales", [1.0] * 127 + [50.0])
    return parse({"model": model or {}, "input": source, "protocol": {"seed": seed}})


def same(one, other):
    return all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_is_a_pure_function_of_seed_and_number(source):
    described = experiment(source=source)
    third = batch(described, 3)
    batch(described, 0)
    assert same(batch(described, 3), third)
    assert not torch.equal(batch(described, 4).inputs, third.inputs)
    assert not torch.equal(batch(experiment(seed=1, source=source), 3).inputs, third.inputs)


@pytest.mark.parametrize("source", SOURCES)
def test_no_model_field_changes_the_data(source):
    model = {"n_layers": 2, "norm": "batchnorm", "init": "kaiming", "causal": False, "dropout": 0.3}
    assert same(batch(experiment(source=source), 1), batch(experiment(source=source, model=model), 1))


@pytest.mark.parametrize("source", SOURCES)
def test_drawing_data_leaves_the_random_states_of_the_caller_alone(source):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    batch(experiment(source=source), 0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


@pytest.mark.parametrize("source", TOKEN_SOURCES)
def test_the_target_of_a_token_is_the_next_one(source):
    data = batch(experiment(source=source, batch=3, seq_len=20), 0)
    assert data.inputs.shape == data.targets.shape == (3, 20)
    assert data.inputs.dtype == torch.int64
    assert torch.equal(data.inputs[:, 1:], data.targets[:, :-1])
    assert data.mask is None


def test_the_text_is_the_documentation_that_ships_with_python():
    whole = "\n".join(topics[name] for name in sorted(topics)).encode()
    data = batch(experiment(batch=16, seq_len=50), 2)
    windows = torch.cat((data.inputs, data.targets[:, -1:]), 1)
    assert all(bytes(window.tolist()) in whole for window in windows)
    assert len({bytes(window.tolist()) for window in windows}) == 16


def test_ones_own_text_is_read_as_bytes_and_repeats_when_it_is_short():
    data = batch(experiment(source="text", text=TEXT, seq_len=100), 0)
    assert bytes(data.inputs[0].tolist()) in TEXT.encode() * 9
    single = batch(experiment(source="text", text="a", seq_len=5), 0)
    assert torch.equal(single.inputs, torch.full((8, 5), 97))


def test_a_text_that_is_exactly_one_window_is_read_from_its_start():
    data = batch(experiment(source="text", text="abcdef", seq_len=5), 0)
    assert bytes(data.inputs[0].tolist()) == b"abcde"
    assert bytes(data.targets[0].tolist()) == b"bcdef"


def test_a_text_named_by_its_hash_is_handed_in_as_a_mapping_or_a_function():
    raw = experiment(source="text", text=TEXT)
    named = raw.resolved()
    assert named.input.text.startswith("sha256:")
    texts = {named.input.text: TEXT}
    assert same(batch(named, 0, texts), batch(raw, 0))
    assert same(batch(named, 0, texts.get), batch(raw, 0))


@pytest.mark.parametrize("handed", [None, {}, "another text"])
def test_a_text_that_is_missing_or_another_is_refused(handed):
    key = "sha256:" + hashlib.sha256(TEXT.encode()).hexdigest()
    texts = {key: handed} if isinstance(handed, str) else handed
    with pytest.raises(ExperimentError) as refused:
        batch(experiment(source="text", text=key), 0, texts)
    assert str(refused.value).startswith('input.text is "sha256:')
    assert str(refused.value).endswith("allowed: the text itself, or the hash of a text that is handed in with it")


def test_gaussian_vectors_are_standard_normal_and_scaled_ones_are_the_same_times_their_scales():
    plain, scaled = batch(experiment(source="gaussian"), 0), batch(experiment(source="scaled"), 0)
    assert plain.inputs.shape == (8, 64, 128)
    assert plain.inputs.mean().item() == pytest.approx(0, abs=0.02)
    assert plain.inputs.std().item() == pytest.approx(1, abs=0.02)
    assert plain.targets is None
    assert torch.equal(scaled.inputs[..., :-1], plain.inputs[..., :-1])
    torch.testing.assert_close(scaled.inputs[..., -1], 50 * plain.inputs[..., -1])


def test_tokens_are_uniform_over_the_vocabulary():
    data = batch(experiment(source="tokens", vocab=5, batch=64, seq_len=200), 0)
    shares = data.inputs.flatten().bincount(minlength=5) / data.inputs.numel()
    assert shares.numpy() == pytest.approx(0.2, abs=0.02)
    assert batch(experiment(source="tokens"), 0).inputs.max() > 200


def test_markov_tokens_follow_the_chain_whose_entropy_is_given():
    described = experiment(source="markov", batch=512, seq_len=200, vocab=6, seed=2)
    data = batch(described, 0)
    counts = torch.zeros(6, 6, dtype=torch.float64)
    pairs = data.inputs.flatten(), data.targets.flatten()
    counts.index_put_(pairs, torch.ones((), dtype=torch.float64), accumulate=True)
    rows = counts / counts.sum(1, keepdim=True)
    empirical = -(counts / counts.sum() * rows.clamp(min=1e-300).log()).sum().item()
    assert conditional_entropy(described) == pytest.approx(empirical, abs=0.01)


def test_markov_runs_start_in_the_stationary_distribution():
    described = experiment(source="markov", batch=1024, seq_len=50, vocab=6, seed=2)
    data = batch(described, 0)
    first, last = (data.inputs[:, place].bincount(minlength=6) / 1024 for place in (0, 49))
    assert first.numpy() == pytest.approx(last.numpy(), abs=0.08)


def test_the_default_chain_has_32_states_and_an_entropy_below_theirs():
    assert batch(experiment(source="markov", batch=64), 0).inputs.max() < 32
    assert 0.5 < conditional_entropy(experiment(source="markov")) < math.log(32)


@given(vocab=st.integers(2, 12), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_stationary_distribution_is_the_one_the_chain_keeps(vocab, seed):
    rows = np.random.default_rng(seed).dirichlet(np.full(vocab, 0.1), vocab)
    share = stationary_distribution(rows)
    assert share.sum() == pytest.approx(1)
    assert share @ rows == pytest.approx(share, abs=1e-12)
    assert (share >= 0).all()


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 9), length=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_ragged_lengths_lie_between_half_and_full_and_one_is_full(seed, size, length):
    described = experiment(seed, source="tokens", batch=size, seq_len=length, lengths="ragged")
    real = lengths(described)
    assert len(real) == size
    assert max(real) == length
    assert min(real) >= math.ceil(length / 2)
    assert real == lengths(described)


@pytest.mark.parametrize("source", SOURCES)
def test_padding_is_masked_zero_and_the_same_in_every_batch(source):
    described = experiment(source=source, batch=3, seq_len=10, lengths=[10, 1, 7])
    data = batch(described, 5)
    assert data.mask.sum(1).tolist() == [10, 1, 7]
    assert data.mask[1].tolist() == [True] + [False] * 9
    assert data.inputs[~data.mask].abs().sum() == 0
    full = batch(experiment(source=source, batch=3, seq_len=10), 5)
    assert torch.equal(data.inputs[data.mask], full.inputs[data.mask])
    assert batch(described, 6).mask.equal(data.mask)
