"""What the lessons 6 to 10 say in numbers: folder → number's name → what computes it, of the lesson's own states.

A training is played without the steps between being recorded, and everything on the CPU; neither changes a loss.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.branch_input import branch_input
from core.corpus import batch, conditional_entropy
from core.drift import drift
from core.experiment import Experiment
from core.leak_verdicts import relative
from core.look import DIRECTIONS, MEASURED, WAYS, CompanionShift, EvaluationGap, Look, NormCosts, PaddingShift
from core.looking import streams
from core.model import build
from core.norm_bill import passes, ratios, setting
from core.roles import over_depth
from core.softmax_row import Row, softmax_row
from core.trace import Trace
from core.train import train
from core.worked import F64, worked
from pages.ui import lab, link, softmax_link, tensor_link
from pages.ui.link import View
from pages.ui.places import BATCHNORM, DRIFT, ENTROPY, GRADIENTS, LIVE, NORM_BENCH

LESSONS = Path(__file__).parents[1] / "assets" / "lessons"
PLACES = {place.name: place for place in (DRIFT, ENTROPY, GRADIENTS, LIVE, NORM_BENCH, BATCHNORM)}

SOFTMAX, RESCUE, PLACE, RMS, BATCH = (
    "06_softmax_scale", "07_layernorm_rescues", "08_where_it_stands", "09_layernorm_or_rmsnorm", "10_why_not_batchnorm")


@cache
def described(folder: str, state: str) -> dict[str, Any]:
    """Return a state as the lesson writes it."""
    states: dict[str, dict[str, Any]] = tomllib.loads((LESSONS / folder / "lesson.toml").read_text())["states"]
    return states[state]


@cache
def experiments(folder: str, state: str) -> list[Experiment]:
    """Return what the state compares, the base first."""
    said = described(folder, state)
    place = PLACES[said["page"]]
    start = View.of(place, said.get("preset", link.DEFAULT_PRESET))
    view = View(start.preset, start.base.with_values(said.get("base", {})),
                tuple(said.get("variants", start.variants)), start.shown)
    found, notices = link.compared(view)
    assert not notices
    return [one.experiment.with_values({"protocol.device": "cpu"}) for one in found]


@cache
def trace(folder: str, state: str, who: int = 0, look: Look | None = None, **changes: Any) -> Trace:
    """Return the run of one of them, 0 the base; `changes`: dotted paths → values, such as a dial or a page sets."""
    experiment = experiments(folder, state)[who].with_values(changes)
    steps = experiment.protocol.steps
    sparse = {"protocol.record_every": steps} if steps else {}
    return Trace(tuple(train(experiment.with_values(sparse), look=look)))


def growth(folder: str, state: str, who: int = 0, gradient: bool = False, **changes: Any) -> float:
    """Return the growth of the stream, or of its gradient from the last block to the first."""
    return drift(trace(folder, state, who, **changes), gradient=gradient).growth


def last(folder: str, state: str, statistic: str, who: int = 0) -> float:
    """Return a statistic of the stream after the last block."""
    return float(trace(folder, state, who).profile("resid_post", statistic)[1][-1])


def loss(folder: str, who: int = 0, step: int = -1) -> float:
    """Return the loss at the first or the last step of the lesson's training."""
    return trace(folder, "learn", who).snapshots[step].loss


def row(state: str = "row", std: float | None = None) -> Row:
    """Return the softmax lesson's row of scores, as it is or at another spread."""
    query = described(SOFTMAX, state)["query"] | ({} if std is None else {"std": str(std)})
    asked, notices = softmax_link.read(query)
    assert not notices
    return asked.row()


def uniform(state: str) -> float:
    """Return the Jacobian's norm of a row whose scores are all 0."""
    return softmax_row(np.zeros(row(state).n)).jacobian_norm


def peak_scale() -> float:
    """Return at which factor on its scores the row's Jacobian is largest."""
    swept = row().sweep
    return float(swept.scales[swept.top])


def head_entropy(who: int) -> float:
    """Return the normalized entropy, the mean over all heads of all layers."""
    return float(np.nanmean(trace(SOFTMAX, "heads", who).snapshots[-1].heads["entropy_norm"]))


def worked_step(folder: str, state: str, step: str) -> F64:
    """Return what a step of a worked tensor gives for its first sample, (T, D)."""
    asked, notices = tensor_link.read(described(folder, state)["query"])
    assert not notices
    values: F64 = worked(asked.norm, asked.tensor(), asked.dials()).values(step)[0]
    return values


def component(state: str, place: int) -> float:
    """Return one entry of the normalized vector."""
    return float(worked_step(RMS, state, "normalized")[0, place])


def last_matrix(who: int) -> float:
    """Return the gradient norm of the MLP's second matrix in the last block."""
    return float(over_depth(trace(PLACE, "last", who), "mlp.out.weight", "param_grad_norm").values[-1])


def mean_share() -> float:
    """Return in percent how much of a token's mean square its mean makes up, after the last block with RMSNorm."""
    experiment = experiments(RMS, "stack")[1].resolved("cpu")
    x = streams(build(experiment), batch(experiment, 0), 0)[0][-1].double()
    return 100 * float((x.mean(-1).square() / x.square().mean(-1)).mean())


@cache
def costs() -> tuple[Experiment, dict[str, NDArray[np.floating]]]:
    """Return the experiment in which norms are measured, and what was found."""
    experiment = setting(experiments(RMS, "costs")[0])
    return experiment, dict(next(iter(train(experiment, look=NormCosts()))).looks)


def passed(norm: str, way: str) -> float:
    """Return the forward passes over memory of one call of a norm."""
    found = passes(*costs())
    return float(found[MEASURED.index(norm), WAYS.index(way), DIRECTIONS.index("forward")])


def leaked(group: str, who: int, mode: str = "train") -> float:
    """Return the largest relative change of a group in any layer when the page's token is another."""
    shown = {**BATCHNORM.defaults, **described(BATCH, "leak")["shown"]}
    found = trace(BATCH, "leak", who, lab.exchanged(shown), **{"protocol.mode": mode}).snapshots[-1].looks
    return float(relative(found, group).max())


def in_batches(name: str, size: int, who: int = 1) -> float:
    """Return what a look at companions finds in batches of `size` single tokens; of a profile the last layer."""
    single = {"input.batch": lab.LARGEST_BATCH, "input.seq_len": 1}
    found = trace(BATCH, "batch", who, CompanionShift(), **single).snapshots[-1].looks
    value = found[name][found["sizes"].tolist().index(size)]
    return float(value[-1] if value.ndim else value)


def padded(name: str, share: float = 0.5, who: int = 1) -> float:
    """Return what a look at padding finds at a share of it, padding counted; of a profile the first layer."""
    found = trace(BATCH, "padding", who, PaddingShift(), **{"model.bn_padding": "pooled"}).snapshots[-1].looks
    value = found[name][int(np.abs(found["shares"] - share).argmin())]
    return float(value[0] if value.ndim else value)


def gap(name: str, step: int, place: int | None = None) -> float:
    """Return what is found between training and evaluation at the first or last step: one entry, or the largest."""
    steps = int(described(BATCH, "gap")["shown"]["steps"])
    found = trace(BATCH, "gap", 1, EvaluationGap(), **{"protocol.steps": steps}).snapshots[step].looks[name]
    return float(found.max() if place is None else found[place])


Compute = Callable[[], float]

NUMBERS: dict[str, dict[str, Compute]] = {
    SOFTMAX: {
        "norm_uniform": partial(uniform, "row"),
        "norm_own": lambda: row().jacobian_norm,
        "norm_peak": lambda: float(row().sweep.norm.max()),
        "peak_scale": peak_scale,
        "norm_huge": lambda: row(std=30).jacobian_norm,
        "entropy_own": lambda: row().entropy_norm,
        "entropy_six": lambda: row(std=6).entropy_norm,
        "entropy_huge": lambda: row(std=30).entropy_norm,
        "largest_own": lambda: row().max_prob,
        "largest_six": lambda: row(std=6).max_prob,
        "largest_huge": lambda: row(std=30).max_prob,
        "gain_own": lambda: row().gain,
        "gain_six": lambda: row(std=6).gain,
        "few_own": lambda: row("few").jacobian_norm,
        "few_uniform": partial(uniform, "few"),
        "entropy_xavier": partial(head_entropy, 0),
        "entropy_normal": partial(head_entropy, 1),
        "entropy_saturated": partial(head_entropy, 2),
        "gradient_xavier": partial(growth, SOFTMAX, "heads", 0, True),
        "loss_start": partial(loss, SOFTMAX, 0, 0),
        "loss_uniform": partial(loss, SOFTMAX, 0),
        "loss_xavier": partial(loss, SOFTMAX, 1),
        "loss_saturated": partial(loss, SOFTMAX, 2),
    },
    RESCUE: {
        "growth_none": partial(growth, RESCUE, "stack", 0),
        "per_block": lambda: float(np.exp(drift(trace(RESCUE, "stack", 0)).log_slope)),
        "growth_none_deep": partial(growth, RESCUE, "stack", 0, **{"model.n_layers": 24}),
        "growth_pre": partial(growth, RESCUE, "stack", 1),
        "growth_pre_deep": partial(growth, RESCUE, "stack", 1, **{"model.n_layers": 24}),
        "input_pre": lambda: float(branch_input(trace(RESCUE, "stack", 1), "mlp").values.min()),
        "stream_post": lambda: float(trace(RESCUE, "stack", 2).profile("resid_post", "rms")[1].min()),
        "growth_normal": partial(growth, RESCUE, "care", 1),
        "growth_scaled": partial(growth, RESCUE, "care", 2),
        "growth_torch": partial(growth, RESCUE, "care", 3),
        "loss_none_start": partial(loss, RESCUE, 0, 0),
        "loss_normal": partial(loss, RESCUE, 1),
        "loss_pre": partial(loss, RESCUE, 2),
        "variance_small": lambda: float(worked_step(RESCUE, "rows", "variance").min()),
        "variance_large": lambda: float(worked_step(RESCUE, "rows", "variance").max()),
        "largest_feature": lambda: float(np.abs(worked_step(RESCUE, "rows", "normalized")).max()),
    },
    PLACE: {
        "growth_pre": partial(growth, PLACE, "places", 0),
        "stream_post": lambda: float(trace(PLACE, "places", 1).profile("resid_post", "rms")[1].min()),
        "square_sandwich": lambda: last(PLACE, "places", "rms", 2) ** 2,
        "pre_shallow": partial(last_matrix, 2),
        "pre_deep": partial(last_matrix, 0),
        "pre_ratio": lambda: last_matrix(2) / last_matrix(0),
        "post_shallow": partial(last_matrix, 5),
        "post_deep": partial(last_matrix, 3),
        "back_pre": partial(growth, PLACE, "back", 0, True),
        "back_post": partial(growth, PLACE, "back", 1, True),
        "back_sandwich": partial(growth, PLACE, "back", 2, True),
        "cosine_post": partial(last, PLACE, "deep", "token_cosine"),
        "rms_post": partial(last, PLACE, "deep", "rms"),
        "cosine_pre": partial(last, PLACE, "deep", "token_cosine", 1),
        "cosine_deepnorm": partial(last, PLACE, "deep", "token_cosine", 2),
        "loss_pre": partial(loss, PLACE, 0),
        "loss_post": partial(loss, PLACE, 1),
        "loss_floor": lambda: conditional_entropy(experiments(PLACE, "learn")[0].resolved("cpu")),
        "loss_chance": lambda: float(np.log(experiments(PLACE, "learn")[0].resolved("cpu").input.vocab or 0)),
    },
    RMS: {
        "z_mean": lambda: float(worked_step(RMS, "vector_layer", "mean")[0, 0]),
        **{f"layer_{place + 1}": partial(component, "vector_layer", place) for place in range(4)},
        **{f"rms_{place + 1}": partial(component, "vector_rms", place) for place in range(4)},
        "rms_mean": lambda: float(worked_step(RMS, "vector_rms", "normalized").mean()),
        "growth_layer": partial(growth, RMS, "stack", 0),
        "growth_rms": partial(growth, RMS, "stack", 1),
        "mean_share": mean_share,
        "loss_layer": partial(loss, RMS, 0),
        "loss_rms": partial(loss, RMS, 1),
        "fused_layer": partial(passed, "layernorm", "fused"),
        "fused_rms": partial(passed, "rmsnorm", "fused"),
        "written_layer": partial(passed, "layernorm", "written"),
        "written_rms": partial(passed, "rmsnorm", "written"),
        "written_ratio": lambda: ratios(costs()[1], "rmsnorm", "layernorm")["traffic_written"],
    },
    BATCH: {
        "past": partial(leaked, "earlier", 1),
        "samples": partial(leaked, "others", 1),
        "past_layernorm": lambda: max(leaked("earlier", 0), leaked("others", 0)),
        "past_evaluation": lambda: max(leaked("earlier", 1, "eval"), leaked("others", 1, "eval")),
        "two_tokens": partial(in_batches, "norm_largest", 2),
        "moved_two": partial(in_batches, "streams", 2),
        "moved_sixteen": partial(in_batches, "streams", 16),
        "padding_half": partial(padded, "norm"),
        "padding_most": partial(padded, "norm", 0.8),
        "padding_mean": partial(padded, "mean_shift"),
        "padding_variance": partial(padded, "padded_variance"),
        "padding_layernorm": partial(padded, "norm", 0.8, 0),
        "gap_start": partial(gap, "gap", 0),
        "gap_end": partial(gap, "gap", -1),
        "training_start": partial(gap, "loss", 0, 0),
        "evaluation_start": partial(gap, "loss", 0, 1),
        "training_end": partial(gap, "loss", -1, 0),
        "evaluation_end": partial(gap, "loss", -1, 1),
    },
}
"""Every number of these lessons."""
