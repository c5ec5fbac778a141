"""What each view says in words of one variant: which of the engine's judgements belong to what it shows.

It knows which judgement belongs where; the engine judges, `pages.ui.explain` has the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core import drift, entropy_causes, gradient_verdicts, landscape, time_verdicts, verdicts
from core.branch_input import branch_inputs
from core.drift import Verdict
from core.experiment import Experiment
from core.trace import Trace
from core.vocabulary import STREAM
from pages.ui.views.depth import Shown
from pages.ui.views.tokens import layer_of

Judge = Callable[[Trace, Experiment, Shown], Sequence[Verdict]]
"""From a trace, its experiment and what is shown: the judgements, those on what is seen first."""


def on_map(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """Where to look first, then the chosen site and the whole stack."""
    look = landscape.where_to_look(trace, _gradient(shown))
    return [look, *on_site(trace, experiment, shown)]


def on_site(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The chosen site, then what the whole stack tells."""
    site = verdicts.site_drift(trace, experiment, shown["site"], _gradient(shown))
    return [site, *(one for one in drift.verdicts(trace, experiment) if one.code != site.code)]


def on_twins(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The chosen site forward and backward."""
    return [verdicts.site_drift(trace, experiment, shown["site"], gradient) for gradient in (False, True)]


def on_gradient(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The gradient at the chosen site, what the embedding's row would make of it, where to look first, and float16."""
    site = verdicts.site_drift(trace, experiment, shown["site"], gradient=True)
    ratio = gradient_verdicts.ratio(trace, shown["site"])
    rest = (landscape.where_to_look(trace, gradient=True), verdicts.float16_range(trace, experiment, gradient=True))
    return [site, *([] if ratio is None else [ratio]), *rest]


def on_stream_gradient(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The gradient of the stream, whatever site is chosen."""
    return on_gradient(trace, experiment, {**shown, "site": STREAM})


def on_role(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The gradient norm of the chosen parameter over depth."""
    return [gradient_verdicts.role_drift(trace, experiment, shown["role"])]


def on_clipping(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """What clipping does to all gradients, and where to look first."""
    return [gradient_verdicts.clip(trace, experiment), landscape.where_to_look(trace, gradient=True)]


def on_stream_and_input(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """The stream, and what feeds each branch: separate answers, each true; or the gradients at the same sites."""
    if _gradient(shown):
        sites = dict.fromkeys((STREAM, *(site for fed in branch_inputs(trace) for site in fed.sites)))
        return [verdicts.site_drift(trace, experiment, site, True) for site in sites]
    return [drift.verdict(trace, experiment), *verdicts.branch_feed(trace, experiment)]


def on_cosines(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """How alike the tokens are, how far blocks turn the stream, how much branches write."""
    return [drift.token_rank(trace), verdicts.block_turn(trace, experiment), verdicts.branch_share(trace, experiment)]


def on_quantiles(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """How heavy the tails are at the chosen site."""
    return [verdicts.tails(trace, experiment, shown["site"], _gradient(shown))]


def on_exponents(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """Which numbers float16 would lose."""
    return [verdicts.float16_range(trace, experiment, _gradient(shown))]


def on_outliers(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """Whether single entries stand far above the rest."""
    return [verdicts.massive_activations(trace, experiment)]


def on_text(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """Whether single tokens stand far above the rest."""
    return [verdicts.token_sizes(trace, experiment)]


def on_attention(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """Why the heads' entropy is what it is, and whether the tokens still differ."""
    return [entropy_causes.attention_verdict(trace, experiment), drift.token_rank(trace)]


def on_time(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """How the chosen gate or state goes from time step to time step in the chosen layer, and how its gradient does."""
    layer = layer_of({"layer": shown["depth"]}, experiment.model.n_layers)
    found = [time_verdicts.over_time(trace, shown["gate"], layer, gradient) for gradient in (False, True)]
    return found[::-1] if shown.get("of", "gradient") == "gradient" else found


def on_wiring(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """What the stream makes of this wiring."""
    return [drift.verdict(trace, experiment)]


def _gradient(shown: Shown) -> bool:
    return shown["of"] == "gradient"
