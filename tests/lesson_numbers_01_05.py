"""The numbers in the prose of lessons 1 to 5, each by the engine, from the lesson's own state where it has one.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from core.drift import Drift, drift
from core.experiment import Experiment
from core.trace import Trace
from core.train import train
from core.vocabulary import FLOAT16_MAX
from core.worked import F64, Dials, Worked, worked
from pages.ui import tensor_link
from pages.ui.places import DRIFT

LESSONS = Path(__file__).parents[1] / "assets" / "lessons"

EXAMS, COPIES, TOKEN, AXIS, CAUSES = (
    "01_two_exams", "02_photocopy", "03_one_token", "04_which_axis", "05_why_it_drifts")


@cache
def state(lesson: str, name: str) -> Mapping[str, Any]:
    """Return a state of a page as the lesson has it."""
    found: Mapping[str, Any] = tomllib.loads((LESSONS / lesson / "lesson.toml").read_text())["states"][name]
    return found


# ── a stack ──


@cache
def trace(lesson: str, name: str, variant: int = 0) -> Trace:
    """Return the trace of a state's base (variant 0), or of its variant of that number."""
    said = state(lesson, name)
    changes = [said.get("base", {}), *said["variants"][variant - 1:variant]] if variant else [said.get("base", {})]
    experiment: Experiment = DRIFT.origin(said["preset"])
    for one in (*changes, {"protocol.device": "cpu"}):
        experiment = experiment.with_values(one)
    return Trace(tuple(train(experiment)))


def measured(lesson: str, name: str, variant: int = 0, gradient: bool = False) -> Drift:
    """Return the drift of a state's stream."""
    return drift(trace(lesson, name, variant), gradient=gradient)


def growth(lesson: str, name: str, variant: int = 0, gradient: bool = False) -> float:
    """Return by which factor the RMS of the stream, or of its gradient, grows."""
    return measured(lesson, name, variant, gradient).growth


def factor(lesson: str, name: str, variant: int = 0) -> float:
    """Return by which factor a block multiplies the RMS of the stream, by the fit over depth."""
    return math.exp(measured(lesson, name, variant).log_slope)


def branch(site: str) -> float:
    """Return the RMS of a branch over that of its stream in the stack without mixing, the RMS of all blocks."""
    _, ratios = trace(CAUSES, "switches", 1).profile(site, "branch_ratio")
    return float(np.sqrt(np.mean(ratios**2)))


def alike(variant: int, layer: int) -> float:
    """Return the mean cosine between tokens after a block of the state ``alike``."""
    return float(trace(CAUSES, "alike", variant).profile("resid_post", "token_cosine")[1][layer])


# ── a tensor ──


@cache
def sheet(lesson: str, name: str, **changes: str) -> Worked:
    """Return the worked norm of a tensor's state, with parameters of its query changed."""
    asked, notices = tensor_link.read({**state(lesson, name)["query"], **changes})
    assert not notices
    return worked(asked.norm, asked.tensor(), asked.dials())


def step(lesson: str, name: str, what: str, *at: int, **changes: str) -> float:
    """Return the value of one step at one entry (b, t, d)."""
    return float(sheet(lesson, name, **changes).values(what)[at])


def small(reduce: Callable[[F64], Any]) -> float:
    """Return the least or the largest of what the three features of the smallest scales become in the first row."""
    return float(reduce(sheet(TOKEN, "rows").values("output")[0, 0, :3]))


def first_of(norm: str) -> float:
    """Return what the first entry of the block becomes under a norm."""
    return step(AXIS, "cube", "output", 0, 0, 0, norm=norm)


def moved(norm: str) -> float:
    """Return how far the first entry's output moves when 10 is added to the first feature of the second token."""
    asked, _ = tensor_link.read({**state(AXIS, "cube")["query"], "norm": norm})
    x = asked.tensor()
    x[0, 1, 0] += 10
    return float(worked(norm, x, asked.dials()).values("output")[0, 0, 0]) - first_of(norm)


# ── exams: normalized as a token without ε ──


def marks(exam: str) -> F64:
    """Return the marks of exam ``a`` or ``b``."""
    return np.array(state(EXAMS, "exams")["query"][exam].split("_"), np.float64)


def exam(name: str, what: str) -> F64:
    """Return a step of the normalization of an exam's marks, one value a student."""
    return worked("layernorm", marks(name)[None, None], Dials(eps=0)).values(what)[0, 0]


def followed(name: str) -> float:
    """Return the z-score of the student who is followed."""
    return float(exam(name, "normalized")[int(state(EXAMS, "exams")["query"]["who"])])


def kurtosis(values: F64) -> float:
    """Return E[(x − mean)⁴]/std⁴."""
    return float(np.mean((values - values.mean()) ** 4) / values.var() ** 2)


def largest_of_four() -> float:
    """Return the largest z-score in the exam in which one student stands apart."""
    apart = np.array(state(EXAMS, "apart")["query"]["b"].split("_"), np.float64)
    return float(worked("layernorm", apart[None, None], Dials(eps=0)).values("normalized").max())


# ── copies ──


def power(gain: float) -> float:
    """Return the gain to the power of the number of copies."""
    return gain ** int(state(COPIES, "copies")["query"]["depth"])


def typical_weight() -> float:
    """Return the RMS of the first matrix of the stack at a gain of 1.25."""
    last = trace(COPIES, "stack", 2).snapshots[-1]
    return float(last.parameters["weight_rms"][last.layout.parameters.index((0, "layers.0.mlp.in.weight"))])


NUMBERS: dict[str, dict[str, Callable[[], float]]] = {
    EXAMS: {
        "mean_a": lambda: exam("a", "mean")[0],
        "std_a": lambda: exam("a", "root")[0],
        "z_a": partial(followed, "a"),
        "mean_b": lambda: exam("b", "mean")[0],
        "std_b": lambda: exam("b", "root")[0],
        "z_b": partial(followed, "b"),
        "kurtosis_marks": lambda: kurtosis(marks("a")),
        "kurtosis_z": lambda: kurtosis(exam("a", "normalized")),
        "most": largest_of_four,
    },
    COPIES: {
        "up": partial(power, 1.25),
        "down": partial(power, 0.8),
        "weight": typical_weight,
        "up_stack": partial(growth, COPIES, "stack", 2),
        "down_stack": partial(growth, COPIES, "stack", 1),
        "even_stack": partial(growth, COPIES, "stack"),
        "orthogonal_stack": partial(growth, COPIES, "stack", 3),
        "backward_stack": partial(growth, COPIES, "stack", 2, gradient=True),
        "overflow": lambda: math.ceil(math.log(FLOAT16_MAX) / math.log(1.25)),
        "normed_growth": partial(growth, COPIES, "normed", 1),
    },
    TOKEN: {
        "mean": partial(step, TOKEN, "cube", "mean", 0, 0, 0),
        "variance": partial(step, TOKEN, "cube", "variance", 0, 0, 0),
        "root": partial(step, TOKEN, "cube", "root", 0, 0, 0),
        "minus_far": partial(step, TOKEN, "cube", "output", 0, 0, 0),
        "minus_near": partial(step, TOKEN, "cube", "output", 0, 0, 1),
        "near": partial(step, TOKEN, "cube", "output", 0, 0, 2),
        "far": partial(step, TOKEN, "cube", "output", 0, 0, 3),
        "mean_second": partial(step, TOKEN, "cube", "mean", 1, 0, 0),
        "variance_second": partial(step, TOKEN, "cube", "variance", 1, 0, 0),
        "far_second": partial(step, TOKEN, "cube", "output", 1, 0, 3),
        "five_mean": partial(step, TOKEN, "five", "mean", 0, 0, 0),
        "five_variance": partial(step, TOKEN, "five", "variance", 0, 0, 0),
        "five_middle": partial(step, TOKEN, "five", "output", 0, 0, 0),
        "five_below": partial(step, TOKEN, "five", "output", 0, 0, 1),
        "five_low": partial(step, TOKEN, "five", "output", 0, 0, 2),
        "five_high": partial(step, TOKEN, "five", "output", 0, 0, 3),
        "five_above": partial(step, TOKEN, "five", "output", 0, 0, 4),
        "tiny_end": partial(step, TOKEN, "tiny", "output", 0, 0, 3),
        "row_first": partial(step, TOKEN, "rows", "variance", 0, 0, 0),
        "row_second": partial(step, TOKEN, "rows", "variance", 0, 1, 0),
        "row_third": partial(step, TOKEN, "rows", "variance", 0, 2, 0),
        "row_fourth": partial(step, TOKEN, "rows", "variance", 0, 3, 0),
        "row_after": lambda: float(sheet(TOKEN, "rows").values("output").var(-1).min()),
        "small_least": partial(small, np.min),
        "small_most": partial(small, np.max),
        "dominant": partial(step, TOKEN, "rows", "output", 0, 0, 4),
    },
    AXIS: {
        **{name: partial(first_of, name) for name in ("layernorm", "rmsnorm", "batchnorm", "groupnorm")},
        "alone": partial(step, AXIS, "alone", "output", 0, 0, 0),
        "alone_equal": partial(step, AXIS, "alone", "output", 0, 1, 1),
        "feature_mean": partial(step, AXIS, "batchnorm", "mean", 0, 0, 0),
        "feature_variance": partial(step, AXIS, "batchnorm", "variance", 0, 0, 0),
        "moved_layernorm": partial(moved, "layernorm"),
        "moved_batchnorm": partial(moved, "batchnorm"),
    },
    CAUSES: {
        "growth": partial(growth, CAUSES, "switches"),
        "no_mixing": partial(growth, CAUSES, "switches", 1),
        "no_residual": partial(growth, CAUSES, "switches", 2),
        "no_softmax": partial(growth, CAUSES, "switches", 3),
        "no_residual_factor": partial(factor, CAUSES, "switches", 2),
        "attention_ratio": partial(branch, "attn_out"),
        "mlp_ratio": partial(branch, "mlp_out"),
        "predicted_factor": lambda: math.sqrt((1 + branch("attn_out") ** 2) * (1 + branch("mlp_out") ** 2)),
        "measured_factor": partial(factor, CAUSES, "switches", 1),
        "large_factor": partial(factor, CAUSES, "large", 1),
        "kaiming": partial(growth, CAUSES, "inits", 1),
        "torch_default": partial(growth, CAUSES, "inits", 2),
        "normal": partial(growth, CAUSES, "inits", 3),
        "deep_torch_default": partial(growth, CAUSES, "deep"),
        "back_no_mixing": partial(growth, CAUSES, "both_ways", 1, gradient=True),
        "back_no_softmax": partial(growth, CAUSES, "both_ways", 3, gradient=True),
        "back_qk_norm": partial(growth, CAUSES, "bounded", 1, gradient=True),
        "alike_with": partial(alike, 0, 1),
        "alike_without": partial(alike, 1, 1),
        "alike_last": partial(alike, 1, -1),
        "normed": partial(growth, CAUSES, "normed", 1),
    },
}
"""Lesson → the name of a number in its prose → what it is."""
