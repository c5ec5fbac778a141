"""The numbers of lessons 11 to 15, each as a function that takes it from the engine: folder → name → function.

A trace is that of a state of the lesson, at its variant where it has one; it is played once.
"""

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch

from core import headroom, norm_bill, norm_costs
from core.autopsy import autopsy
from core.corpus import batch
from core.fixed_point import Scheme, integer_layernorm
from core.formats import rounded, square
from core.look import MEASURED
from core.model import build
from core.pitfalls import outcome
from core.trace import Trace
from core.train import train
from core.variances import data, variances
from core.worked import worked
from pages.ui import tensor_link
from pages.ui.places import DRIFT, GRADIENTS, LIVE, NORM_BENCH, PRECISION

LESSONS = Path(__file__).resolve().parents[1] / "assets" / "lessons"
PLACES = {place.name: place for place in (DRIFT, GRADIENTS, LIVE, NORM_BENCH, PRECISION)}
PITFALLS, FORMATS, BLOWING_UP = "11_pitfalls", "12_number_formats", "13_blowing_up"
BEYOND, FAST = "14_beyond_transformers", "15_making_it_fast"


@cache
def state(lesson, name):
    """Return a state as the lesson's file says it."""
    return tomllib.loads((LESSONS / lesson / "lesson.toml").read_text(encoding="utf-8"))["states"][name]


def experiment(lesson, name, *changes):
    """Return a state's base on the CPU, with changes of path and value."""
    said = state(lesson, name)
    origin = PLACES[said["page"]].origin(said.get("preset", "pre_layernorm"))
    return origin.with_values({**said.get("base", {}), "protocol.device": "cpu", **dict(changes)})


@cache
def trace(lesson, name, *changes):
    """Return the trace of that experiment."""
    return Trace(tuple(train(experiment(lesson, name, *changes))))


def tensor(name):
    """Return the tensor of a state of the worked tensor, and its ε."""
    asked, notices = tensor_link.read(state(PITFALLS, name)["query"])
    assert not notices
    return asked.tensor(), asked.eps


# lesson 11


def pitfall(name, of, what="difference"):
    """Return what a piece of wrong code does to the tensor of a state."""
    return getattr(outcome(name, *tensor(of)), what)


def largest(norm, of):
    """Return the largest output of a norm of the tensor of a state."""
    x, eps = tensor(of)
    assert eps == 1e-5
    return worked(norm, x).values("output").max()


def apart(scale):
    """Return how much larger the output is with ε outside the root, for [1, 2, 3, 4] times a scale."""
    x = np.array([[[1.0, 2.0, 3.0, 4.0]]]) * scale
    wrong, right = (worked(norm, x).values("output").max() for norm in ("layernorm_std_eps", "layernorm"))
    return wrong / right


def first_norm(*changes):
    """Return the RMS of the first norm's output in the stack of tiny embeddings."""
    return trace(PITFALLS, "small", *changes).profile("norm1", "rms")[1][0]


# lesson 12


def passed():
    """Return every place of the exploding stack, in float32, that is beyond float16."""
    return headroom.passed(trace(FORMATS, "room"), "float16")


def naive(statistic, dtype, how):
    """Return a statistic of the first norm's output in a format, its norm computed as `how` says."""
    changes = ("protocol.dtype", dtype), ("model.norm_dtype", how)
    return trace(FORMATS, "naive", *changes).profile("norm1", statistic)[1][0]


def variance(of, method):
    """Return the variance that a method finds at the shift of a state; of no method, the true one."""
    shown = state(FORMATS, of)["shown"]
    found = variances(shown["arithmetic"], (float(shown["ratio"]),), 256, 1.0)
    return found.found[method][0] if method else found.truth


def whole(what, bits, step):
    """Return a number of a LayerNorm in whole numbers, with Newton's root, 4 fractional bits and 256 entries."""
    return getattr(integer_layernorm(data(256, 0), np.array([step]), Scheme(bits)), what)[0]


# lesson 13


@cache
def broken(of="autopsy", *changes):
    """Return the autopsy of a state's training, with changes."""
    return autopsy(trace(BLOWING_UP, of, *changes), experiment(BLOWING_UP, of, *changes))


def loss(step, of="autopsy", *changes):
    """Return the loss of a state's training at a step."""
    return trace(BLOWING_UP, of, *changes).snapshots[step].loss


# lesson 14


def over_time(of, layer, step, norm="layernorm", gradient=False):
    """Return the RMS of the hidden state of a layer at a time step, or that of its gradient."""
    snapshot = trace(BEYOND, of, ("model.norm", norm)).snapshots[-1]
    return snapshot.over_steps(layer, "hidden", "rms", gradient)[step]


def back(norm):
    """Return how many times larger the gradient in layer 0 is at the first time step than at the last."""
    return over_time("back", 0, 0, norm, True) / over_time("back", 0, -1, norm, True)


def change_with_length():
    """Return the largest change of the first 32 hidden states when the sequence ends there, of 64 time steps."""
    short, long = (experiment(BEYOND, "lstm", ("input.seq_len", length)).resolved("cpu") for length in (32, 64))
    inputs = batch(long, 0).inputs
    with torch.no_grad():
        cut, full = (build(one)(inputs[:, :one.input.seq_len]).x for one in (short, long))
    return (cut - full[:, :32]).abs().max().item()


# lesson 15


@cache
def costs(of):
    """Return what norms cost in the setting of a state, with the passes over memory."""
    wanted = norm_bill.setting(experiment(FAST, of)).resolved("cpu")
    found = norm_costs.measure(wanted, torch.device("cpu"))
    return {"passes": norm_bill.passes(wanted, found), "kernels": found["kernels"]}


def cost(norm, way, direction, what="passes", of="costs"):
    """Return passes or kernels of one call. `way`: 0 fused, 1 written out; `direction`: 0 forward, 1 backward."""
    return float(costs(of)[what][MEASURED.index(norm), way, direction])


def both(norm, way):
    """Return the passes of a call forward and backward."""
    return cost(norm, way, 0) + cost(norm, way, 1)


NUMBERS: dict[str, dict[str, Callable[[], float]]] = {
    PITFALLS: {
        "lost": lambda: pitfall("no_eps", "cube", "lost"),
        "entries": lambda: tensor("cube")[0].size,
        "eps_error": lambda: pitfall("no_eps", "cube"),
        "axis_0_error": lambda: pitfall("axis_0", "cube"),
        "axis_1_error": lambda: pitfall("axis_1", "cube"),
        "keepdims_error": lambda: pitfall("no_keepdims", "square"),
        "keepdims_ratio": lambda: pitfall("no_keepdims", "square", "ratio"),
        "shrink": lambda: pitfall("unbiased", "cube", "ratio"),
        "right_end": lambda: largest("layernorm", "tiny"),
        "wrong_end": lambda: largest("layernorm_std_eps", "tiny"),
        "apart": lambda: apart(1e-4),
        "apart_at_1": lambda: apart(1.0),
        "right_rms": lambda: first_norm(("model.norm", "layernorm")),
        "wrong_rms": first_norm,
        "biased": lambda: largest("layernorm", "one_hot"),
        "unbiased": lambda: largest("layernorm_unbiased", "one_hot"),
    },
    FORMATS: {
        "last_square": lambda: square(255.875, "float16"),
        "first_square": lambda: square(256, "float16"),
        "bfloat16_rounded": lambda: float(rounded(66246, "bfloat16")),
        "bfloat16_off": lambda: 100 * (66246 - float(rounded(66246, "bfloat16"))) / 66246,
        "first_over": lambda: passed()[0].absmax,
        "first_layer": lambda: passed()[0].layer,
        "places_over": lambda: len(passed()),
        "naive_rms": lambda: naive("rms", "float16", "compute"),
        "naive_zeros": lambda: 100 * naive("zero_frac", "float16", "compute"),
        "careful_rms": lambda: naive("rms", "float16", "float32"),
        "bfloat16_rms": lambda: naive("rms", "bfloat16", "compute"),
        "true_variance": lambda: variance("far", ""),
        "naive_variance": lambda: variance("far", "naive"),
        "two_pass_variance": lambda: variance("far", "two_pass"),
        "welford_variance": lambda: variance("far", "welford"),
        "half_two_pass": lambda: variance("half", "two_pass"),
        "half_true": lambda: variance("half", ""),
        "int8_error": lambda: whole("rms_error", 8, 0.03),
        "int8_largest": lambda: whole("largest_error", 8, 0.03),
        "int8_step": lambda: Scheme(8).output_step,
        "int8_cut": lambda: 100 * whole("saturated", 8, 0.01),
        "int8_cut_error": lambda: whole("rms_error", 8, 0.01),
        "int4_error": lambda: whole("rms_error", 4, 0.5),
    },
    BLOWING_UP: {
        "first_loss": lambda: loss(0),
        "norm_first_loss": lambda: loss(0, "rates", ("model.norm", "layernorm"), ("protocol.lr", 0.1)),
        "norm_loss": lambda: loss(-1, "rates", ("model.norm", "layernorm"), ("protocol.lr", 0.1)),
        "broken_step": lambda: broken().step,
        "slow_step": lambda: broken("rates", ("protocol.lr", 0.01)).step,
        "broken_layer": lambda: broken().layer,
        "query": lambda: broken().how.numbers["q"],
        "key": lambda: broken().how.numbers["k"],
        "product": lambda: broken().how.numbers["product"],
        "spread": lambda: len(broken().forward.places("spread")),
        "next_loss": lambda: loss(-1, "next"),
        "next_layer": lambda: broken("next").layer,
    },
    BEYOND: {
        "length_difference": change_with_length,
        "norm_bottom": lambda: over_time("lstm", 0, -1),
        "norm_top": lambda: over_time("lstm", 3, -1),
        "plain_bottom": lambda: over_time("lstm", 0, -1, "none"),
        "plain_top": lambda: over_time("lstm", 3, -1, "none"),
        "plain_first": lambda: over_time("lstm", 3, 0, "none"),
        "back_norm": lambda: back("layernorm"),
        "back_plain": lambda: back("none"),
        "gru_norm": lambda: over_time("gru", 3, -1),
        "gru_plain": lambda: over_time("gru", 3, -1, "none"),
        "norm_loss": lambda: trace(BEYOND, "learning").snapshots[-1].loss,
        "plain_loss": lambda: trace(BEYOND, "learning", ("model.norm", "none")).snapshots[-1].loss,
    },
    FAST: {
        "fused": lambda: cost("layernorm", 0, 0),
        "fused_back": lambda: cost("layernorm", 0, 1),
        "written": lambda: cost("layernorm", 1, 0),
        "written_back": lambda: cost("layernorm", 1, 1),
        "fused_both": lambda: both("layernorm", 0),
        "written_both": lambda: both("layernorm", 1),
        "times_less": lambda: both("layernorm", 1) / both("layernorm", 0),
        "forward_ratio": lambda: cost("layernorm", 1, 0) / cost("layernorm", 0, 0),
        "fused_kernels": lambda: cost("layernorm", 0, 0, "kernels"),
        "written_kernels": lambda: cost("layernorm", 1, 0, "kernels"),
        "rms_written": lambda: cost("rmsnorm", 1, 0),
        "rms_written_both": lambda: both("rmsnorm", 1),
        "rms_saves": lambda: 100 * (1 - both("rmsnorm", 1) / both("layernorm", 1)),
        "rms_fused": lambda: cost("rmsnorm", 0, 0),
        "rms_kernels": lambda: cost("rmsnorm", 0, 0, "kernels"),
        "half_fused": lambda: cost("layernorm", 0, 0, of="half"),
        "half_kernels": lambda: cost("layernorm", 0, 0, "kernels", "half"),
        "calls": lambda: norm_bill.calls(experiment(FAST, "costs").resolved("cpu")).total(),
    },
}
"""Lesson → name of a number → what it is."""
