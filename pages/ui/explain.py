"""What a number is, in words: definitions, verdicts, pairing, protocol. Codes and numbers come in, sentences go out.

It knows the text keys that belong to the engine's codes; it computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from core.branch_input import INPUTS
from core.comparison import Pairing
from core.drift import Verdict
from core.experiment import Experiment
from core.fields import ExperimentError
from core.learning import UNDECIDED
from core.service import StoreError
from core.trace import NonFinite, Trace
from core.vocabulary import SITES, STATISTICS
from pages.ui import fields
from pages.ui.language import PARAMETER
from pages.ui.link import Notice
from pages.ui.picture import Subject
from pages.ui.text import Words, escaped

PAIRING_LOOK: dict[str, tuple[str, str]] = {
    "same_weights": (":material/link:", "green"),
    "same_draws": (":material/straighten:", "orange"),
    "unpaired": (":material/link_off:", "red"),
}
"""Pairing code → icon and colour of its badge."""

GLOSSARY = str(Path(__file__).resolve().parents[1] / "glossary.py")

NAMES: dict[str, str] = {  # a verdict on a value that is not finite says its layer, whatever float16 would do
    "start_rms": "start", "last_rms": "last", "growth": "growth", "log_slope": "slope", "doubling_depth": "doubling",
    "overflow16_layer": "layer", "first_non_finite": "layer", "largest_absmax": "largest", "headroom": "headroom",
    "token_cosine": "cosine", "cosine": "cosine", "layer": "layer", "first_layer": "first_layer",
    "last_layer": "last_layer", "level": "level", "ratio": "ratio", "rest": "rest", "least": "smallest",
    "factor": "factor", "kurtosis": "kurtosis", "crest": "crest", "loss_scale": "scale", "count": "count",
    "value": "value", "dim": "dim", "depth": "depth", "kept": "kept", "start_loss": "start", "last_loss": "last",
    "chance": "chance", "step": "step", "window": "window", "peak": "peak", "peak_step": "peak_step",
    "total": "total", "entropy_norm": "entropy", "score_std": "spread", "score_scale": "reach",
    "with_embedding": "with_embedding", "total_norm": "total", "would": "would", "first_step": "first_step",
    "last_step": "last_step", "per_step": "per_step", "bad_step": "bad_step",
    "start": "start", "last": "last",
    "own": "own", "earlier": "earlier", "others": "others", "size": "size", "whole": "whole", "distance": "distance",
    "largest": "largest", "shift": "shift", "mean_shift": "mean_shift", "padded_variance": "padded_variance",
    "training": "training", "evaluation": "evaluation",
}
"""A verdict's number → the placeholder it fills; its thresholds fill those of their own names."""

PERCENT: dict[str, str] = {"share": "percent", "lost_share16": "lost"}
"""A verdict's share, measured or threshold → the placeholder that it fills as a percentage."""


def number(value: float, figures: int = 3) -> str:
    """Return a number for a sentence: in so many figures, powers of ten written as such, NaN and ∞ by their signs."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.{figures - 1}e}".partition("e")
    size = abs(float(f"{mantissa}e{exponent}"))
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{mantissa}·10{_raised(int(exponent))}".replace("-", "−")
    power = int(exponent)
    said = f"{round(value, max(0, figures - 1 - power)):,.{max(figures, power + 1)}g}"
    return said.replace(",", "\u202f").replace("-", "−")  # a narrow space that does not break


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def sentence(verdict: Verdict, t: Words) -> str:
    """Return a verdict as one sentence with its numbers and its threshold."""
    values = {placeholder: number(verdict.numbers[name]) for name, placeholder in NAMES.items()
              if name in verdict.numbers}
    values["doubling"] = number(abs(verdict.numbers.get("doubling_depth", math.nan)))
    shares = {placeholder: number(100 * value) for name, placeholder in PERCENT.items()
              if (value := {**verdict.numbers, **verdict.thresholds}.get(name)) is not None}
    limits = {name: number(value) for name, value in verdict.thresholds.items()}
    threshold, least = (*limits.values(), "", "")[:2]
    return t(f"verdict.{verdict.code}", law=t(f"law.{verdict.law}") if verdict.law else "", place=place(verdict, t),
             format=verdict.format, token=_token(verdict, t), threshold=threshold, least=least,
             **{**limits, **shares, **values})


def place(verdict: Verdict, t: Words) -> str:
    """Say which site, sublayer or parameter a verdict speaks of, and in which layer where it names one."""
    known = {"": "any", **{sublayer: sublayer for sublayer in INPUTS}}
    if verdict.site in known:
        return t(f"place.{known[verdict.site]}")
    return named(verdict.site, verdict.numbers.get("layer"), t)


def named(site: str, layer: float | None, t: Words, name: Callable[[str], str] = escaped) -> str:
    """Say a site with its layer where it stands in one, the loss, or a parameter, whose name `name` writes."""
    if site not in SITES:
        return t("place.loss") if site == "loss" else t("place.parameter", name=name(site))
    in_block = layer is not None and SITES[site].where == "block"
    return t("place.block", site=t(f"site.{site}"), layer=number(layer or 0)) if in_block else t(f"site.{site}")


def unexplained(met: NonFinite, variant: str, t: Words) -> str:
    """Say where a run met its first value that is not finite, and that no more is told of it."""
    place = named(met.site, met.layer, t)
    where = t("autopsy.gradient_of", place=place) if met.direction == "gradient" else place
    return t("autopsy.recurrent", variant=escaped(variant), kind=t(f"autopsy.kind_{met.kind}"), step=met.step,
             place=where)


def _token(verdict: Verdict, t: Words) -> str:
    """Say which token a verdict names; nothing where it names none."""
    if "position" not in verdict.numbers:
        return ""
    where = {name: number(verdict.numbers[name]) for name in ("position", "sequence")}
    return t("place.token", symbol=escaped(verdict.token), **where) if verdict.token else t("place.vector", **where)


def sign(alarm: bool) -> str:
    """Return the sign of a judgement."""
    return ":red[:material/error:]" if alarm else ":green[:material/check_circle:]"


def judgement(name: str, verdicts: Sequence[Verdict], t: Words, spoken: int = 1) -> None:
    """Draw the judgements on one variant: the first `spoken` and what was to be expected of them, the rest folded."""
    st.markdown(f"**{escaped(name)}**")
    for verdict, following in zip(verdicts[:spoken], [*verdicts[1:spoken], None], strict=False):
        waits = verdict.code in UNDECIDED and not verdict.alarm
        icon = ":gray[:material/pending:]" if waits else sign(verdict.alarm)
        st.markdown(f"{icon} {sentence(verdict, t)}")
        if verdict.expected and (following is None or following.expected != verdict.expected):  # said once for both
            st.caption(t(f"expected.{verdict.expected}"))
    for verdict in verdicts[spoken:]:
        mark = ":red[:material/error:] " if verdict.alarm else ""
        head, _, rest = sentence(verdict, t).partition(t("drift.colon"))
        with st.expander(mark + head):
            st.markdown(rest)
            if verdict.expected:
                st.caption(t(f"expected.{verdict.expected}"))


def refused(error: ExperimentError | StoreError, t: Words, write: Callable[[str], str] = escaped) -> str:
    """Say in the visitor's language why an experiment was refused, or why the store could not take it.

    `write`: writes what a visitor gave; `str` where the sentence is not read as Markdown.
    """
    if isinstance(error, StoreError):
        return t("drift.store", reason=write(str(error)))
    path = str(error.values.get("field", ""))
    if not error.key or (error.key == "value" and path not in fields.schemas()):
        return t("refused.other", reason=write(str(error)))
    named = {name: t(f"field.{str(said).partition('.')[2]}") for name, said in error.values.items()
             if name in ("field", "of") and said in fields.schemas()}
    key = error.key
    if key == "value":
        named["allowed"] = fields.allowed(path, t)
        key = "nothing" if error.values["value"] == "null" else key
    given = {name: write(str(value)) for name, value in error.values.items()}
    return t(f"refused.{key}", **{**given, **named})


def notice(about: Notice, t: Words) -> str:
    """Say what of a link was refused."""
    reason = {} if about.error is None else {"reason": refused(about.error, t)}
    return t(about.key, **{name: escaped(value) for name, value in about.values.items()}, **reason)


def pairing_badge(pairing: Pairing, t: Words) -> None:
    """Draw the badge that says what the variants have in common."""
    icon, color = PAIRING_LOOK[pairing.code]
    said, why = paired(pairing, t)
    st.badge(said, icon=icon, color=color, help=why)  # type: ignore[arg-type]


def paired(pairing: Pairing, t: Words) -> tuple[str, str]:
    """Say what the variants have in common, and what that means."""
    named = t("allowed.and").join(t(f"field.{path.partition('.')[2]}") for path in pairing.fields)
    return t(f"pairing.{pairing.code}", fields=named), t(f"pairing_help.{pairing.code}", fields=named)


def protocol(experiment: Experiment, provenance: Mapping[str, object], t: Words) -> str:
    """Return the line that says how the numbers were taken."""
    said = experiment.resolved(str(provenance.get("device", "cpu")))
    value = fields.spoken_value
    return t("drift.protocol_line", mode=value("mode", t)(said.protocol.mode),
             loss=value("loss", t)(said.protocol.loss or ""), batch=said.input.batch, length=said.input.seq_len,
             dtype=said.protocol.dtype, device=said.protocol.device, seed=said.protocol.seed)


def what(subject: Subject, traces: Sequence[Trace], t: Words, key: str) -> None:
    """Draw the panel that says what a picture's numbers are: definition, formula, site, axes, unit, entries."""
    fold = st.popover(t("drift.what"), icon=":material/help:", key=key, on_change="rerun", type="tertiary")
    if not fold.open:
        return
    with fold:
        for one in definitions(subject, traces, t):
            st.markdown(one.text)
            if one.formula:
                st.code(one.formula, language=None)
            if one.count:
                st.caption(one.count)
        first = next(iter((*subject.statistics, *subject.extra, *subject.sites)), "")
        st.page_link(GLOSSARY, label=t("glossary.open"), icon=":material/menu_book:",
                     query_params={"term": first, PARAMETER: t.lang})


@dataclass(frozen=True)
class Definition:
    """What one number is, or where it is taken: a text in Markdown, its formula, over how many entries."""

    text: str
    formula: str = ""
    count: str = ""


def definitions(subject: Subject, traces: Sequence[Trace], t: Words) -> Iterator[Definition]:
    """Yield what a picture's numbers are: of each statistic and extra, of gradients, and of each site with its axes."""
    for statistic in subject.statistics:
        name = f"`{'grad_' * subject.gradient}{statistic}`"
        yield Definition(f"**{t(f'statistic.{statistic}')}** ({name})  \n{defined(statistic, t)}",
                         t(f"formula.{statistic}"))
    for name in subject.extra:
        yield Definition(f"**{t(f'extra.{name}')}** (`{name}`)  \n{t(f'what.{name}')}", t(f"formula.{name}"))
    if subject.gradient:
        yield Definition(t("explain.gradient"))
    for site in subject.sites:
        said = t("explain.axes", axes=subject.axes or SITES[site].shape)
        yield Definition(f"**{t(f'site.{site}')}** (`{site}`)  \n{t(f'site_help.{site}')} {said}",
                         count=entries(subject, site, traces, t))


def defined(statistic: str, t: Words) -> str:
    """Say what a statistic is, and its unit."""
    unit = STATISTICS[statistic].unit
    return f"{t(f'what.{statistic}')} {t('explain.unit', unit=t(f'axis.{unit}')) if unit else t('explain.unit_own')}"


def entries(subject: Subject, site: str, traces: Sequence[Trace], t: Words) -> str:
    """Say how many entries a point stands for, from the least to the most of all traces, and whether they were sampled.

    Nothing where none was observed, and where points differ in what they are taken over.
    """
    if subject.axes:
        return t("drift.n_exact", n=number(subject.entries)) if subject.entries else ""
    count, used = ([value for trace in traces for value in trace.profile(site, name, subject.gradient)[1].tolist()
                    if not math.isnan(value)] for name in ("n", "n_sample"))
    sampled = any(STATISTICS[name].sampled for name in subject.statistics) or not SAMPLED.isdisjoint(subject.extra)
    if not count:
        return ""
    if sampled and sum(used) < sum(count):
        return t("drift.n_sampled", n=_span(count), sample=_span(used))
    return t("drift.n_exact", n=_span(count))


SAMPLED = frozenset({"log2_hist", "outliers"})
"""What is taken from a sample, or with its median, beside the statistics that say so themselves."""


def _span(values: Sequence[float]) -> str:
    return " … ".join(dict.fromkeys((number(min(values)), number(max(values)))))
