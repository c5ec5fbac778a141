"""What to try after an autopsy: changes of the experiment, each with its own reason, the most fitting first.

A remedy is something to try, not a promise: the page runs it beside the run that failed. The file knows experiments and
autopsies; it knows no words and needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core import rules
from core.autopsy import Autopsy
from core.experiment import Experiment

Changes = Mapping[str, Any]
"""Dotted path → value, as `core.experiment.Experiment.with_values` takes them."""

Rule = Callable[[Experiment], Changes | None]


@dataclass(frozen=True)
class Remedy:
    """`name`: a key of REMEDIES; `changes`: what it sets in the experiment."""

    name: str
    changes: Changes


def remedies(experiment: Experiment, autopsy: Autopsy) -> list[Remedy]:
    """Return what may help, the most fitting first; empty where nothing of what is known applies."""
    found = [Remedy(name, changes) for name in ORDERS[situation(experiment, autopsy)]
             if (changes := REMEDIES[name](experiment))]
    return found


def situation(experiment: Experiment, autopsy: Autopsy) -> str:
    """Return the situation that an autopsy shows, a key of ORDERS; the first that holds."""
    return next(name for name, holds in SITUATIONS.items() if holds(experiment, autopsy))


def _is_start(_experiment: Experiment, autopsy: Autopsy) -> bool:
    return autopsy.origin == "at_start"


def _is_half_gradient(experiment: Experiment, autopsy: Autopsy) -> bool:
    return autopsy.direction == "gradient" and experiment.protocol.dtype == "float16"


def _is_naive_norm(experiment: Experiment, autopsy: Autopsy) -> bool:
    in_norm = autopsy.making.kind == "norm" or autopsy.how.code == "square_overflow"
    return in_norm and REMEDIES["norm_float32"](experiment) is not None


def _is_attention(_experiment: Experiment, autopsy: Autopsy) -> bool:
    return autopsy.making.kind in ("scores", "pattern") or autopsy.how.code == "score_overflow"


SITUATIONS: dict[str, Callable[[Experiment, Autopsy], bool]] = {
    "no_spread": lambda _, autopsy: autopsy.how.code == "zero_variance",
    "naive_norm": _is_naive_norm,
    "half_gradient": _is_half_gradient,
    "attention_at_start": lambda experiment, autopsy: _is_start(experiment, autopsy) and _is_attention(
        experiment, autopsy),
    "start": _is_start,
    "attention": _is_attention,
    "training": lambda _experiment, _autopsy: True,
}
"""What kind of case it is; the first that holds."""

_RATE = ("lower_rate", "warmup", "clipping")

ORDERS: dict[str, tuple[str, ...]] = {
    "no_spread": ("epsilon", "norm_float32", "bfloat16"),
    "naive_norm": ("norm_float32", "bfloat16"),
    "half_gradient": ("loss_scaling", "bfloat16", "norm", "norm_float32"),
    "attention_at_start": ("qk_norm", "smaller_init", "norm", "bfloat16"),
    "start": ("norm", "smaller_init", "bfloat16", "norm_float32", "qk_norm"),
    "attention": ("qk_norm", *_RATE, "norm", "bfloat16"),
    "training": (*_RATE, "norm", "qk_norm", "bfloat16", "norm_float32"),
}
"""Situation → the remedies that are offered, the most fitting first.

At step 0 nothing about the rate, the warm-up or clipping can help: no update has been made, so only what the stack is
built of, its weights and its precision are left. A division by the spread of tokens that have none is healed by an ε,
which a wider dtype keeps from being rounded to 0. Squares that overflow in a norm want a wider dtype in that norm,
before one for the whole run. A gradient that overflows in float16 wants a loss scale that gives way, which leaves such
steps out. Scores grow with the square of q and k: there the norm of q and k comes before the rate. All else that
happens in training is a step that was too large until shown otherwise: the rate first, since that is one dial, then
warm-up and clipping, which keep the rate; then what changes the model; then precision."""


SMALL = 0.02
"""The standard deviation of a small init, that of GPT-2 (Radford et al. 2019)."""


def _lower_rate(experiment: Experiment) -> Changes | None:
    rate = experiment.protocol.lr
    return {"protocol.lr": float(f"{rate / 10:.3g}")} if _trains(experiment) and rate else None


def _warmup(experiment: Experiment) -> Changes | None:
    steps = max(10, math.ceil(experiment.protocol.steps / 10))
    return {"protocol.warmup": steps} if _trains(experiment) and experiment.protocol.warmup < steps else None


def _clipping(experiment: Experiment) -> Changes | None:
    limit = experiment.protocol.grad_clip
    return {"protocol.grad_clip": 1.0} if _trains(experiment) and (limit is None or limit > 1) else None


def _qk_norm(experiment: Experiment) -> Changes | None:
    model = experiment.model
    scores = rules.attends(experiment) and model.pattern == "softmax"
    return {"model.qk_norm": "rmsnorm"} if scores and model.qk_norm == "none" else None


def _norm_float32(experiment: Experiment) -> Changes | None:
    model = experiment.model
    naive = model.norm_dtype == "compute" and experiment.protocol.dtype in ("float16", "bfloat16")
    has_norm = rules.norms_in_use(experiment) or model.qk_norm != "none"
    return {"model.norm_dtype": "float32"} if naive and has_norm else None


def _bfloat16(experiment: Experiment) -> Changes | None:
    return {"protocol.dtype": "bfloat16"} if experiment.protocol.dtype == "float16" else None


def _loss_scaling(experiment: Experiment) -> Changes | None:
    protocol = experiment.protocol
    scales = protocol.dtype == "float16" and protocol.loss_scale != "dynamic"
    return {"protocol.loss_scale": "dynamic"} if scales else None


def _norm(experiment: Experiment) -> Changes | None:
    if rules.norms_in_use(experiment):
        return None
    return {"model.norm": "layernorm", "model.placement": "pre", "model.layer_norms": {}}


def _smaller_init(experiment: Experiment) -> Changes | None:
    model = experiment.model
    gains = {f"model.{name}": 1.0 for name in ("init_gain", "qk_gain", "value_gain", "output_gain", "embed_std",
                                               "pos_std", "embed_scale") if (getattr(model, name) or 0) > 1}
    is_small = model.init == "gpt2" or (model.init == "normal" and model.init_std <= SMALL)
    return (gains if is_small else {"model.init": "normal", "model.init_std": SMALL, **gains}) or None


def _epsilon(experiment: Experiment) -> Changes | None:
    return {"model.norm_eps": 1e-5} if experiment.model.norm_eps < 1e-5 else None


def _trains(experiment: Experiment) -> bool:
    return experiment.protocol.steps > 0


REMEDIES: dict[str, Rule] = {
    "lower_rate": _lower_rate,
    "warmup": _warmup,
    "clipping": _clipping,
    "qk_norm": _qk_norm,
    "norm": _norm,
    "norm_float32": _norm_float32,
    "bfloat16": _bfloat16,
    "loss_scaling": _loss_scaling,
    "smaller_init": _smaller_init,
    "epsilon": _epsilon,
}
"""Every remedy: what it changes in an experiment, None where that is so already or cannot be."""
