"""The views of the BatchNorm page, each one entry of a table, and what they say in words of one variant.

A new view is an entry here, its name in `pages.ui.places`, and its words (``batchnorm_view.*``).
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core import batch_verdicts, leak_verdicts
from core.drift import Verdict
from core.experiment import Experiment
from core.trace import Trace
from pages.ui import lab
from pages.ui.cache import Measured
from pages.ui.text import Words
from pages.ui.views import Viewpoint, onward
from pages.ui.views.companions import companions, why_refused
from pages.ui.views.depth import Shown
from pages.ui.views.gap import gap
from pages.ui.views.leak import leak
from pages.ui.views.padding import padding


def on_leak(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """Whether anything that must not change has changed."""
    return [leak_verdicts.leak(trace.snapshots[-1].looks, experiment, lab.exchanged(shown))]


def on_companions(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """What a sequence's numbers owe to the others, and what becomes of one and of two tokens."""
    return batch_verdicts.companions(trace.snapshots[-1].looks, experiment)


def on_padding(trace: Trace, experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """How far padding moves the numbers of real tokens."""
    return batch_verdicts.padding(trace.snapshots[-1].looks, experiment)


def on_gap(trace: Trace, _experiment: Experiment, _shown: Shown) -> list[Verdict]:
    """How far evaluation is from training."""
    return batch_verdicts.gap(trace)


def ways(measured: Sequence[Measured], t: Words) -> None:
    """Draw the links to the same base and variants on the drift page, and in a training."""
    preset = st.session_state["preset"]
    with st.container(horizontal=True):
        onward.way("drift", onward.probe(measured, preset), t("batchnorm.open_drift"), t)
        onward.way("live", onward.training(measured, preset), t("batchnorm.open_live"), t)


def _refused_and_ways(measured: Sequence[Measured], t: Words) -> None:
    why_refused(measured, t)
    ways(measured, t)


SIZE = ("input.batch", "input.seq_len")
MODE = "protocol.mode"

BATCHNORM_VIEWS: dict[str, Viewpoint] = {
    "leak": Viewpoint(leak, on_leak, ("exchange", "sample", "position"), more=ways, take=lab.leak,
                      at_hand=(MODE, *SIZE)),
    "batch": Viewpoint(companions, on_companions, ("tokens",), spoken=3, more=_refused_and_ways, take=lab.batch,
                       at_hand=(MODE, "input.seq_len")),
    "lengths": Viewpoint(padding, on_padding, ("share",), more=ways, take=lab.lengths,
                         at_hand=(MODE, *SIZE, "input.lengths")),
    "gap": Viewpoint(gap, on_gap, ("steps", "at"), more=ways, take=lab.gap,
                     at_hand=("model.bn_momentum", "protocol.lr", *SIZE)),
}
"""Those of the BatchNorm page."""
