"""What a configuration should show at initialization, as codes; their words say why.

It knows the experiment's description alone, no trace and no torch. An empty code: nothing simple is to be expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.drift import expected, has_factors, runs_on_statistics
from core.experiment import Experiment
from core.rules import layer_norms


def of_input(experiment: Experiment) -> str:
    """Return what should feed the branches over depth."""
    return _first(_INPUTS, experiment)


def of_site(experiment: Experiment, site: str) -> str:
    """Return what a site should show over depth: that of the stream, of the branches' inputs, of a norm's output."""
    expectation = _OF_SITE.get(site)
    return expectation(experiment) if expectation else ""


def of_turn(experiment: Experiment) -> str:
    """Return how far blocks should turn the stream."""
    return "" if experiment.model.residual else "turn_without_residual"


def of_tails(experiment: Experiment, site: str) -> str:
    """Return how heavy the tails of a site should be."""
    return "tails_activation" if site == "mlp_act" and experiment.model.activation not in SYMMETRIC else ""


SYMMETRIC = frozenset({"tanh", "identity"})
"""Activation functions that treat both sides alike and no gate."""


def of_ratio(experiment: Experiment) -> str:
    """Return how large branches should be beside the stream."""
    return _first(_RATIOS, experiment)


def _norms(experiment: Experiment) -> frozenset[str]:
    return frozenset(layer_norms(experiment))


def _differ(experiment: Experiment) -> bool:
    """Say whether the stream is normalized in some layers and not in others."""
    lets_through = {"none", "batchnorm"} if experiment.protocol.mode == "eval" else {"none"}
    return bool(_norms(experiment) & lets_through) and len(_norms(experiment)) > 1


def _is_promised(experiment: Experiment) -> bool:
    """Say whether every norm there is sets the size of what it returns."""
    evaluated = {"batchnorm"} if experiment.protocol.mode == "eval" else set()
    return not _norms(experiment) & ({"dyt"} | evaluated)


def _placed(*placements: str) -> Callable[[Experiment], bool]:
    return lambda experiment: experiment.model.placement in placements


def _first(codes: Mapping[str, Callable[[Experiment], bool]], experiment: Experiment) -> str:
    return next((code for code, holds in codes.items() if holds(experiment)), "")


_INPUTS: dict[str, Callable[[Experiment], bool]] = {
    "input_none": lambda experiment: _norms(experiment) == {"none"},
    "": lambda experiment: (_differ(experiment) and experiment.model.placement in ("post", "branch"))
    or (has_factors(experiment) and experiment.model.placement == "branch"),
    "input_mixed": _differ,
    "input_running": runs_on_statistics,
    "input_dyt": lambda experiment: "dyt" in _norms(experiment),
    "input_scaled": lambda experiment: experiment.model.depth_scaling != "none",
    "input_before": _placed("pre", "sandwich"),
    "input_post": _placed("post"),
    "input_branch": lambda experiment: experiment.model.residual,
    "input_branch_without_residual": lambda _: True,
}

_RATIOS: dict[str, Callable[[Experiment], bool]] = {
    "": lambda experiment: not experiment.model.residual or "none" in _norms(experiment)
    or not _is_promised(experiment) or has_factors(experiment),
    "ratio_pre": _placed("pre"),
    "ratio_unit": _placed("sandwich", "branch"),
    "ratio_post": _placed("post"),
}
"""Code → whether it holds; the first that holds is meant."""


def _norm_output(experiment: Experiment) -> str:
    return "norm_output" if _is_promised(experiment) else ""


def _norm_before(experiment: Experiment) -> str:
    holds = _norm_output(experiment)
    return "input_scaled" if holds and experiment.model.depth_scaling != "none" else holds


_OF_SITE: dict[str, Callable[[Experiment], str]] = {
    "resid_post": expected, "norm1": _norm_before, "norm2": _norm_before,
    "norm1_out": _norm_output, "norm2_out": _norm_output,
}
"""Site → what to expect there."""
