"""What a number is, in words: definitions, verdicts, pairing, protocol. Codes and numbers come in, sentences go out.

It knows the text keys that belong to the engine's codes; it computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from core.comparison import Pairing
from core.drift import Verdict
from core.experiment import Experiment
from core.fields import ExperimentError
from core.trace import Trace
from core.vocabulary import STATISTICS
from pages.ui import fields
from pages.ui.link import Notice
from pages.ui.text import Words, escaped

PAIRING_LOOK: dict[str, tuple[str, str]] = {
    "same_weights": (":material/link:", "green"),
    "same_draws": (":material/straighten:", "orange"),
    "unpaired": (":material/link_off:", "red"),
}
"""Pairing code → icon and colour of its badge."""

NAMES: dict[str, str] = {  # a verdict on a value that is not finite says its layer, whatever float16 would do
    "start_rms": "start", "last_rms": "last", "growth": "growth", "log_slope": "slope", "doubling_depth": "doubling",
    "overflow16_layer": "layer", "first_non_finite": "layer", "largest_absmax": "largest", "headroom": "headroom",
    "token_cosine": "cosine",
}
"""A verdict's number → the placeholder it fills."""


def number(value: float) -> str:
    """Return a number for a sentence: three figures, powers of ten written as such, NaN and ∞ by their signs."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    size = abs(float(f"{mantissa}e{exponent}"))
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{mantissa}·10{_raised(int(exponent))}".replace("-", "−")
    whole = f"{value:,.0f}".replace(",", "\u202f")  # a narrow space that does not break
    return (f"{value:.3g}" if size < 1000 else whole).replace("-", "−")


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def sentence(verdict: Verdict, t: Words) -> str:
    """Return a verdict as one sentence with its numbers and its threshold."""
    values = {placeholder: number(verdict.numbers[name]) for name, placeholder in NAMES.items()
              if name in verdict.numbers}
    values["doubling"] = number(abs(verdict.numbers.get("doubling_depth", math.nan)))
    threshold, least = (*(number(value) for value in verdict.thresholds.values()), "", "")[:2]
    return t(f"verdict.{verdict.code}", law=t(f"law.{verdict.law}") if verdict.law else "",
             threshold=threshold, least=least, **values)


def judgement(name: str, verdicts: Sequence[Verdict], t: Words) -> None:
    """Draw the judgements on one variant: the first and what was to be expected, the rest folded."""
    icon = ":red[:material/error:]" if verdicts[0].alarm else ":green[:material/check_circle:]"
    st.markdown(f"{icon} **{escaped(name)}**  \n{sentence(verdicts[0], t)}")
    st.caption(t(f"expected.{verdicts[0].expected}"))
    for verdict in verdicts[1:]:
        mark = ":red[:material/error:] " if verdict.alarm else ""
        head, _, rest = sentence(verdict, t).partition(t("drift.colon"))
        with st.expander(mark + head):
            st.markdown(rest)
            if verdict.expected:
                st.caption(t(f"expected.{verdict.expected}"))


def refused(error: ExperimentError, t: Words) -> str:
    """Say in the visitor's language why an experiment was refused."""
    path = str(error.values.get("field", ""))
    if not error.key or (error.key == "value" and path not in fields.schemas()):
        return t("refused.other", reason=escaped(str(error)))
    named = {name: t(f"field.{str(said).partition('.')[2]}") for name, said in error.values.items()
             if name in ("field", "of") and said in fields.schemas()}
    if error.key == "value":
        named["allowed"] = fields.allowed(path, t)
    given = {name: escaped(str(value)) for name, value in error.values.items()}
    return t(f"refused.{error.key}", **{**given, **named})


def notice(about: Notice, t: Words) -> str:
    """Say what of a link was refused."""
    reason = {} if about.error is None else {"reason": refused(about.error, t)}
    return t(about.key, **{name: escaped(value) for name, value in about.values.items()}, **reason)


def pairing_badge(pairing: Pairing, t: Words) -> None:
    """Draw the badge that says what the variants have in common."""
    icon, color = PAIRING_LOOK[pairing.code]
    named = ", ".join(t(f"field.{path.partition('.')[2]}") for path in pairing.fields)
    st.badge(t(f"pairing.{pairing.code}", fields=named), icon=icon, color=color,  # type: ignore[arg-type]
             help=t(f"pairing_help.{pairing.code}", fields=named))


def protocol(experiment: Experiment, provenance: Mapping[str, object], t: Words) -> str:
    """Return the line that says how the numbers were taken."""
    said = experiment.resolved(str(provenance.get("device", "cpu")))
    value = fields.spoken_value
    return t("drift.protocol_line", mode=value("mode", t)(said.protocol.mode),
             loss=value("loss", t)(said.protocol.loss or ""), batch=said.input.batch, length=said.input.seq_len,
             dtype=said.protocol.dtype, device=said.protocol.device, seed=said.protocol.seed)


def what(shown: Mapping[str, str], trace: Trace | None, t: Words) -> None:
    """Draw the panel that says what the chart's number is: definition, formula, site, entries."""
    statistic, site = shown["stat"], shown["site"]
    with st.popover(t("drift.what"), icon=":material/help:"):
        st.markdown(f"**{t(f'statistic.{statistic}')}** (`{prefixed(shown)}`)  \n{t(f'what.{statistic}')}")
        st.code(t(f"formula.{statistic}"), language=None)
        st.markdown(f"**{t(f'site.{site}')}** (`{site}`)  \n{t(f'site_help.{site}')}")
        if trace is not None and (counted := _entries(shown, trace, t)):
            st.caption(counted)


def prefixed(shown: Mapping[str, str]) -> str:
    """Return the statistic's name as tables and exports have it."""
    return ("grad_" if shown["of"] == "gradient" else "") + shown["stat"]


def _entries(shown: Mapping[str, str], trace: Trace, t: Words) -> str:
    """Say how many entries a point stands for, and whether they were sampled; nothing where none was observed."""
    count, used = (trace.profile(shown["site"], name, shown["of"] == "gradient")[1] for name in ("n", "n_sample"))
    if not len(count) or math.isnan(count[0]):
        return ""
    if STATISTICS[shown["stat"]].sampled and used[0] < count[0]:
        return t("drift.n_sampled", n=number(count[0]), sample=number(used[0]))
    return t("drift.n_exact", n=number(count[0]))
