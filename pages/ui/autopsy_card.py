"""The autopsy in words: what was made where, how, of what; what to try; and the line that leads to it from other views.

It knows Streamlit, autopsies and remedies; the maps beside it are made by `pages.ui.views.training.autopsy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import streamlit as st

from core import service
from core.autopsy import Autopsy
from core.evidence import Making, Measured
from core.experiment import Experiment
from core.remedies import Remedy, remedies
from core.service import RunView
from core.shapes import Shape, dtype_of, shape_of
from core.vocabulary import SITES
from pages.ui import explain, fields, link, sight
from pages.ui.cases import COUNTS, examined, looked, sizes, unexplained
from pages.ui.language import PARAMETER
from pages.ui.link import View
from pages.ui.places import LIVE
from pages.ui.shown import LOOK_AT
from pages.ui.text import Words, escaped
from pages.ui.watching import Watched

COLUMNS = 3
SIGNS = ("NaN", "+Inf", "−Inf")


def alarm(watched: Sequence[Watched], _shown: Mapping[str, str], t: Words) -> None:
    """Say of every run with a value that is not finite where it was made, and lead to its autopsy."""
    for number, one in enumerate(watched):
        if (met := unexplained(one)) is not None:
            st.error(explain.unexplained(met, one.name, t), icon=":material/error:")
        if (found := examined(one)) is None:
            continue
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            said = t("autopsy.broke", variant=escaped(one.name), kind=t(f"autopsy.kind_{found.kind}"), step=found.step,
                     place=where(found.site, found.layer, found.direction == "gradient", t))
            st.markdown(f":red[:material/error:] {said}")
            st.button(t("autopsy.open"), icon=":material/search:", key=f"autopsy.open.{number}", on_click=_open,
                      args=(one.name,))


def _open(name: str) -> None:
    """Switch to the autopsy of the variant of this name; the menu of variants is drawn with it next."""
    st.session_state["view"], st.session_state[LOOK_AT] = "autopsy", name


def report(watched: Sequence[Watched], shown: Mapping[str, str], t: Words) -> None:
    """Draw the card of the run that is looked at, and what to try; nothing where all is finite."""
    case = looked([one for one in watched if one.trace is not None], shown)
    if case is None:
        return
    one, found = case
    with st.container(border=True):
        st.header(f":red[:material/error:] {headline(found, t)}")
        st.markdown(f"**{escaped(one.name)}** · {t(f'autopsy.origin_{found.origin}')}")
        st.markdown(mechanism(found, t))
        st.markdown(table(found, one.experiment, t))
        for said in (*sentences(found, t), *untouched(one, found, t)):
            st.markdown(said)
    _remedies(one, found, t)


def headline(found: Autopsy, t: Words) -> str:
    """Return what was made, where, in which step, by which operation."""
    return t(f"autopsy.headline_{found.direction}", kind=t(f"autopsy.kind_{found.kind}"), step=found.step,
             place=explain.named(found.site, found.layer, t), operation=_operation(found.making, t))


def mechanism(found: Autopsy, t: Words) -> str:
    """Return how it was made, with the numbers that show it."""
    numbers = {name: explain.number(value) for name, value in found.how.numbers.items()}
    key = f"autopsy.how_{found.how.code}"
    unscaled = f"{key}_unscaled" if found.how.numbers.get("loss_scale") == 1 else ""
    return t(unscaled if unscaled in t else key, dtype=found.how.dtype, **numbers)


def where(site: str, layer: int, gradient: bool, t: Words) -> str:
    """Name a tensor: the activation, the parameter, the loss, or its gradient."""
    place = explain.named(site, layer, t)
    return t("autopsy.gradient_of", place=place) if gradient else place


def _operation(making: Making, t: Words) -> str:
    return t(f"autopsy.operation_{making.kind}")


def table(found: Autopsy, experiment: Experiment, t: Words) -> str:
    """Return what went into the operation and what came out of it as a table in Markdown, the operation between."""
    canonical, making = experiment.resolved(), found.making
    heads = ["", *(t(f"autopsy.row_{name}") for name in ("what", "shape", "dtype", "absmax", "lost"))]
    heads = [head.replace("|", "\\|") for head in heads]  # a bar would end the cell
    came, went = ("\u2060".join(t(f"autopsy.row_{name}")) for name in ("in", "out"))  # they do not break
    rows = [_row(came, one, canonical, t) for one in making.inputs]
    rows += [["", f"↓ *{_operation(making, t)}*", "", "", "", ""],
             _row(f"**{went}**", making.output, canonical, t)]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    none = [] if making.inputs or found.direction == "weights" else [t("autopsy.inputs_none"), ""]
    return "\n".join([*none, *lines])


def _row(role: str, one: Measured, canonical: Experiment, t: Words) -> list[str]:
    """Return one tensor's row. Of a parameter only its RMS is known, and whether it is finite."""
    absmax, shape = "–" if math.isnan(one.absmax) else explain.number(one.absmax), shape_of(one.site, canonical)
    counts = [f"{count:,.0f} {sign}".replace(",", "\u202f") for name, sign in zip(COUNTS, SIGNS, strict=True)
              if (count := getattr(one, name)) > 0]
    lost = " · ".join(counts) if counts else t("autopsy.row_none") if one.observed else "–"
    code = f" `{one.site}`" if one.site in SITES else ""
    return [role, where(one.site, one.layer, one.gradient, t) + code,
            spoken_shape(shape, t), dtype_of(one.site, canonical), absmax, lost]


def spoken_shape(shape: Shape, t: Words) -> str:
    """Say a shape with the letters of its axes: 2 × 64 × 192 (B T D)."""
    whole = "\u00a0×\u00a0".join(str(size) for _, size in shape)  # spaces that do not break
    letters = "\u00a0".join(letter for letter, _ in shape)
    return t("autopsy.shape", sizes=whole, letters=letters) if shape else t("autopsy.one_number")


def sentences(found: Autopsy, t: Words) -> Iterator[str]:
    """Yield what else is to be said, most telling first."""
    if found.making.weights and found.direction != "weights":
        known = [t("autopsy.weight", name=escaped(one.name), rms=explain.number(one.weight_rms))
                 for one in found.making.weights]
        yield t("autopsy.weights", weights=t("allowed.and").join(known))
    yield from _of_weights(found, t)
    yield _growth(found, t)
    if found.turn is not None:
        making = found.turn.making
        gradient = found.direction == "gradient"
        yield t("autopsy.turn", place=where(making.output.site, making.output.layer, gradient, t),
                operation=_operation(making, t), way=t(f"autopsy.way_{found.turn.how}"))
    for key, cells in (("forward", found.forward), ("gradient", found.gradient)):
        if count := len(cells.places("spread")):
            yield t(f"autopsy.spread_{key}", count=count)
    made = len((found.gradient if found.direction == "gradient" else found.forward).places("made"))
    if made > 1:
        yield t("autopsy.several", count=made)


def untouched(one: Watched, found: Autopsy, t: Words) -> Iterator[str]:
    """Yield how many steps were recorded before, all of them finite but for those that a loss scale skipped."""
    before = one.film.steps[one.film.steps < found.step]
    skipped = any(step < found.step for step, _ in one.film.events)
    if len(before):
        yield t("autopsy.untouched_overflow" if skipped else "autopsy.untouched", count=len(before), step=before[-1])


def _of_weights(found: Autopsy, t: Words) -> Iterator[str]:
    """Yield what is known of the update that spoiled weights, and where they were first read."""
    if found.direction != "weights":
        return
    if found.update is None:
        yield t("autopsy.update_unknown")
    else:
        numbers = {name: explain.number(value) for name, value in vars(found.update).items()}
        yield t("autopsy.update", **numbers)
    if found.first_read is not None:
        output = found.first_read.output
        yield t("autopsy.first_read", place=explain.named(output.site, output.layer, t),
                operation=_operation(found.first_read, t))


def _growth(found: Autopsy, t: Words) -> str:
    """Say whether the size there grew before it broke."""
    before = found.earlier
    if not before.steps:
        return t("autopsy.no_history")
    known = dict(zip(before.steps, sizes(found)[1], strict=True))
    numbers = {"step": before.steps[-1], "last": explain.number(known[before.steps[-1]])}
    if len(before.steps) == 1:
        return t("autopsy.one_before", **numbers)
    since = before.growing_since
    if since is None:
        return t("autopsy.not_growing", **numbers)
    return t("autopsy.growing", since=since, first=explain.number(known[since]), **numbers)


def _remedies(one: Watched, found: Autopsy, t: Words) -> None:
    """Draw what to try, a link to the paired run each."""
    offered = remedies(one.experiment, found)
    st.subheader(t("autopsy.remedies"))
    st.markdown(t("autopsy.remedies_lead" if offered else "autopsy.no_remedy"))
    tried = [run and service.view([run])[0] for run in service.standing(
        [one.experiment.with_values(remedy.changes) for remedy in offered])]
    for number, (remedy, run) in enumerate(zip(offered, tried, strict=True)):
        if number % COLUMNS == 0:
            columns = st.columns(COLUMNS)
        with columns[number % COLUMNS].container(border=True, height="stretch"):
            _remedy(one, remedy, run or None, t)


def _remedy(one: Watched, remedy: Remedy, run: RunView | None, t: Words) -> None:
    changes = one.experiment.with_values(remedy.changes).differences(one.experiment)
    query = paired(one, remedy, st.session_state.get("preset", link.DEFAULT_PRESET)) | {PARAMETER: t.lang}
    st.button(f"**{t(f'remedy.{remedy.name}')}**", icon=":material/arrow_forward:", key=f"remedy.{remedy.name}",
              on_click=_follow, args=(query,))
    st.markdown(" · ".join(f"**{escaped(fields.spoken(code, t))}**" for code in fields.codes(changes)))
    st.markdown(t(f"remedy_why.{remedy.name}"))
    if run is not None:
        key = {"done": "done", "stopped": "stopped"}.get(run.status, "running")
        st.markdown(t(f"autopsy.tried_{key}", done=max(run.steps_done - 1, 0), total=run.steps_total - 1))


def _follow(query: Mapping[str, str]) -> None:
    """Go to a link of this page, where Start is. A page link would leave the old address in the browser, and the next
    click with it.
    """
    st.query_params.from_dict(query)
    sight.want()


def paired(one: Watched, remedy: Remedy, preset: str) -> dict[str, str]:
    """Return the query of the live page with the run and the remedy alone beside it."""
    changes = one.experiment.with_values(remedy.changes).differences(one.experiment)
    return link.write(View(preset, one.experiment, (changes,), {**LIVE.defaults, "view": "overview"},
                           (one.run.id,)), LIVE)
