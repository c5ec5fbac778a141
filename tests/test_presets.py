"""Presets: each runs unasked, has words, differs from the others, and shows what its words claim."""

import re
from functools import cache

import numpy as np
import pytest

from core import settings
from core.cost import check_limits, cost
from core.drift import drift
from core.fields import ExperimentError
from core.presets import GROUPS, PRESETS, preset
from core.trace import Trace
from core.train import train
from pages.ui.cache import AUTOMATIC_S
from pages.ui.text import LANGUAGES, Words


def test_every_preset_is_in_exactly_one_group_and_menus_keep_the_order():
    assert [name for group in GROUPS.values() for name in group] == list(PRESETS)
    assert len(set(PRESETS)) == len(PRESETS)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_group_and_every_preset_has_words(lang):
    t = Words(lang)
    assert all(t(f"preset_group.{group}") for group in GROUPS)
    for kind in ("preset", "preset_help"):
        words = [t(f"{kind}.{name}") for name in PRESETS]
        assert len(set(words)) == len(words)


@pytest.mark.parametrize("name", PRESETS)
def test_the_words_of_both_languages_give_the_same_numbers(name):
    english, chinese = (sorted(map(float, re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", numerals(Words(lang)(
        f"preset_help.{name}"))))) for lang in LANGUAGES)
    assert set(english) == set(chinese)


def numerals(words):
    """The text without what the languages write differently: numbers in words stay out, digits are joined."""
    return words.replace("\u202f", "").replace(" 000", "000").replace("log2", "")


def test_no_two_presets_are_the_same_experiment():
    assert len({preset(name).canonical_json() for name in PRESETS}) == len(PRESETS)


def test_an_unknown_preset_is_refused_with_those_that_exist():
    with pytest.raises(ExperimentError, match=r'preset is "nope"; allowed: pre_layernorm, pre_rmsnorm, .*, deepnet'):
        preset("nope")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_runs_unasked_within_the_servers_limits(name):
    check_limits([preset(name)], settings.limits())
    assert cost(preset(name)).seconds < AUTOMATIC_S


# ── what they show ──


@cache
def shown(name):
    """The trace of a preset, as it is."""
    return Trace(tuple(train(preset(name))))


def ends(name, site="resid_post", statistic="rms", gradient=False):
    """A statistic at the first and the last layer that has the site."""
    values = shown(name).profile(site, statistic, gradient)[1]
    return values[0], values[-1]


def per_block(name):
    return drift(shown(name)).growth ** (1 / preset(name).model.n_layers)


def head(name, measure):
    """The mean over heads of one attention measure in the first block and in the last."""
    values = shown(name).snapshots[0].heads[measure].mean(1)
    return values[0], values[-1]


def squares_per_block(name):
    """The mean growth of the stream's mean square per block."""
    squares = shown(name).profile("resid_post", "rms")[1] ** 2
    return (squares[-1] - squares[0]) / (len(squares) - 1)


def outlier_layers(name):
    """The share of blocks after which the largest entry of the stream, far above the median, is of feature 0."""
    found = {row.layer for row in shown(name).snapshots[0].outliers
             if row.site == "resid_post" and row.dim == 0 and row.ratio > 100}
    return len(found) / preset(name).model.n_layers


def non_finite(name):
    """How many sites hold a value that is not finite."""
    values = shown(name).snapshots[0].activations
    return int(((values["n_nan"] + values["n_posinf"] + values["n_neginf"]) > 0).sum())


def over_time(name, gradient=False):
    """The RMS of the first layer's hidden state at each time step, or of its gradient."""
    return shown(name).snapshots[0].over_steps(0, "hidden", "rms", gradient)


MEASURES = {
    "growth": lambda name: drift(shown(name)).growth,
    "per_block": per_block,
    "squares_per_block": squares_per_block,
    "first": lambda name: ends(name)[0],
    "last": lambda name: ends(name)[1],
    "embed": lambda name: shown(name).profile("embed", "rms")[1][0],
    "least_rms": lambda name: shown(name).profile("resid_post", "rms")[1].min(),
    "most_rms": lambda name: shown(name).profile("resid_post", "rms")[1].max(),
    "gradient": lambda name: drift(shown(name), gradient=True).growth,
    "gradient_most": lambda name: shown(name).profile("resid_post", "absmax", gradient=True)[1][:-1].max(),
    "gradient_block": lambda name: drift(shown(name), gradient=True).growth ** (1 / (preset(name).model.n_layers - 1)),
    "least_over_time": lambda name: over_time(name).min() / over_time(name).max(),
    "gradient_over_time": lambda name: np.divide(*over_time(name, True)[[0, -1]]),
    "cosine": lambda name: ends(name, statistic="token_cosine")[1],
    "cosine_gain": lambda name: np.diff(ends(name, statistic="token_cosine"))[0],
    "input_least": lambda name: shown(name).profile("norm1", "rms")[1].min(),
    "input_most": lambda name: shown(name).profile("norm1", "rms")[1].max(),
    "input_first": lambda name: ends(name, "norm1")[0],
    "input_absmax": lambda name: ends(name, "norm1", "absmax")[0],
    "input_zeros": lambda name: shown(name).profile("norm1", "zero_frac")[1].min(),
    "input_middle": lambda name: max(np.abs(ends(name, "norm1", quantile)[0]) for quantile in ("q25", "q75")),
    "entropy": lambda name: head(name, "entropy_norm")[0],
    "entropy_last": lambda name: head(name, "entropy_norm")[1],
    "saturated": lambda name: head(name, "saturated_frac")[0],
    "largest": lambda name: shown(name).profile("resid_post", "absmax")[1].max(),
    "outlier_layers": outlier_layers,
    "non_finite": non_finite,
    "first_bad_layer": lambda name: shown(name).snapshots[0].non_finite.layer,
    "last_nan_share": lambda name: ends(name, statistic="n_nan")[1] / ends(name, statistic="n")[1],
}
"""What a claim is about → its number."""

ONE = (0.999, 1.001)
CLAIMS = {
    "pre_layernorm": {"growth": (2.5, 4), "input_least": ONE, "input_most": ONE},
    "pre_rmsnorm": {("growth", "pre_layernorm"): (0.95, 1.05), "input_least": ONE},
    "post_layernorm": {"least_rms": ONE, "most_rms": ONE, "cosine_gain": (0.6, 1)},
    "sandwich_layernorm": {"squares_per_block": (1.5, 2.5), "input_least": ONE},
    "branch_layernorm": {"squares_per_block": (1.5, 2.5), ("gradient", "sandwich_layernorm"): (3, 20)},
    "deepnorm": {"least_rms": ONE, "most_rms": ONE, "gradient": (0.9, 1.1), "cosine_gain": (-0.05, 0.05)},
    "no_norm": {"per_block": (1.5, 1.8), "growth": (200, 600), "gradient": (1e6, 1e8), "cosine": (0.9, 1)},
    "exploding": {"per_block": (3.4, 4.4), ("per_block", "no_norm"): (2, 3)},
    "no_norm_torch_default": {"growth": (1.4, 2)},
    "no_norm_scaled": {"growth": (1, 1.25)},
    "no_softmax": {("growth", "no_norm"): (0.7, 1.2), "entropy": ONE, "gradient": (500, 3000)},
    "no_mixing": {("growth", "no_norm"): (0.9, 1.2), "cosine": (0.4, 0.8)},
    "vanishing": {"per_block": (0.3, 0.5), "gradient_block": (0.3, 0.5)},
    "rank_collapse": {"least_rms": ONE, "most_rms": ONE, "cosine": (0.9999, 1)},
    "deep_post": {"least_rms": ONE, "most_rms": ONE, "cosine": (0.9995, 1)},
    "batchnorm": {("growth", "pre_layernorm"): (1, 1.4), "input_least": ONE},
    "batchnorm_two_tokens": {"input_first": (0.85, 1), "input_absmax": (0.99, 1)},
    "batchnorm_padding": {"input_least": (1.02, 1.2), "input_most": (1.02, 1.2)},
    "batchnorm_eval": {("growth", "no_norm"): (0.99, 1.01)},
    "std_eps_small_scale": {"embed": (0.9e-4, 1.1e-4), "input_first": (0.85, 0.95)},
    "saturated_softmax": {"saturated": (0.4, 0.7), "entropy": (0, 0.15), "entropy_last": (0, 0.15),
                          "gradient": (1e4, 1e7)},
    "uniform_softmax": {"entropy": ONE, "entropy_last": ONE, ("growth", "pre_layernorm"): (0.95, 1.05)},
    "float16_overflow": {"first_bad_layer": (4, 9), "last_nan_share": (1, 1)},
    "bfloat16_range": {"non_finite": (0, 0), "largest": (100 * 65504, 1e12), "per_block": (3.4, 4.4)},
    "float16_naive_norm": {"input_zeros": (1, 1), "non_finite": (0, 0), "gradient_most": (0, 0)},
    "massive_feature": {"outlier_layers": (1, 1), "input_middle": (0, 0.1), "growth": (0.98, 1.02)},
    "lstm_plain": {"growth": (0.01, 0.03), "last": (0.01, 0.03), "first": (0.15, 0.25), "gradient": (0.03, 0.2)},
    "lstm_layernorm": {"least_rms": (0.3, 0.37), "most_rms": (0.3, 0.37), "least_over_time": (0.85, 1),
                       "gradient": (15, 300), "gradient_over_time": (200, 1e5)},
    "lstm_deep": {"least_rms": (0.3, 0.37), "most_rms": (0.3, 0.37), "gradient": (500, 1e5)},
    "gru_plain": {"least_rms": (0.2, 0.5), "most_rms": (0.2, 0.5), "gradient": (0.5, 1)},
    "gru_layernorm": {("last", "gru_plain"): (1.5, 3), "least_over_time": (0.6, 0.8), "gradient": (1.5, 4)},
    "transformer": {"least_rms": ONE, "most_rms": ONE, "cosine_gain": (0.3, 1)},
    "bert": {"embed": ONE, "least_rms": ONE, "most_rms": ONE, "cosine_gain": (-0.02, 0.02)},
    "gpt2": {"embed": (0.02, 0.03), "most_rms": (0.03, 0.1), "input_least": (0.95, 1)},
    "llama": {"embed": (0.018, 0.023), "entropy": (0.999, 1)},
    "gemma2": {"embed": (0.2, 0.28), "squares_per_block": (1.5, 2.7)},
    "olmo2": {"embed": (0.018, 0.023), "first": (0.7, 1.6)},
    "qwen3": {("entropy", "llama"): (0.8, 0.95), ("growth", "llama"): (0.9, 1.1)},
    "vit": {"input_least": ONE, "growth": (2, 4)},
    "deepnet": {"least_rms": ONE, "most_rms": ONE, "gradient": (0.9, 1.1), "cosine_gain": (-0.05, 0.05)},
}
"""Preset → the numbers behind its words, each with bounds that other seeds keep too; a pair is a ratio to another."""


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_shows_what_its_words_claim(name):
    for claim, (low, high) in CLAIMS[name].items():
        measure, other = claim if isinstance(claim, tuple) else (claim, None)
        value = MEASURES[measure](name) / (MEASURES[measure](other) if other else 1)
        assert low <= value <= high, f"{claim} is {value}"


def test_the_explosion_with_kaiming_is_the_fastest():
    growths = {name: per_block(name) for name in PRESETS if preset(name).protocol.dtype == "float32"
               and name != "std_eps_small_scale"}
    assert max(growths, key=growths.get) == "exploding"


def test_epsilon_inside_the_root_holds_a_tiny_token_down():
    layernorm = preset("std_eps_small_scale").with_values({"model.norm": "layernorm"})
    trace = Trace(tuple(train(layernorm)))
    assert 0.02 < trace.profile("norm1", "rms")[1][0] < 0.04


def test_padding_that_is_masked_leaves_the_real_tokens_at_one():
    masked = preset("batchnorm_padding").with_values({"model.bn_padding": "masked"})
    assert Trace(tuple(train(masked))).profile("norm1", "rms")[1] == pytest.approx(1, abs=1e-3)


def test_a_single_token_has_no_variance_and_is_refused():
    with pytest.raises(ExperimentError, match="two tokens or more"):
        preset("batchnorm_two_tokens").with_values({"input.seq_len": 1})
