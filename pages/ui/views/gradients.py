"""The views of the gradients page: sites and parameters over depth, clipping, theory, what an update would do.

Gradients are those before clipping, unscaled. It knows which roles belong to which setting, to say why one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import streamlit as st

from core.gradient_theory import predict_gradient
from core.gradient_verdicts import USUAL_LIMIT
from core.landscape import Landscape
from core.roles import Clipping, RoleDepth, by_role, clipped, clipping, over_depth
from core.rules import is_recurrent
from core.tables import FAMILIES
from core.theory import Prediction
from core.vocabulary import STREAM
from pages.ui import charts
from pages.ui.cache import Measured
from pages.ui.charts import Series
from pages.ui.picture import Columns, Picture, Subject
from pages.ui.places import LIVE, ROLES
from pages.ui.text import Words
from pages.ui.views import depth, onward, overview, predicted
from pages.ui.views.depth import Number, Shown
from pages.ui.views.tokens import focus

DOT_PX, GAP_PX = 2, 4
"""A line after clipping is dotted, as no placement is; the gaps of a second one in the same colour are wider."""

GRADIENT_NORM = "param_grad_norm"


def backward(shown: Shown) -> dict[str, str]:
    """Return what is shown, of gradients."""
    return {**shown, "of": "gradient"}


def sites(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The gradient at one site over depth, all variants; below it every site of one, where a click chooses the site."""
    number = Number(shown["stat"], shown["site"], gradient=True)
    return [depth.lines(measured, number, shown["scale"], t, "profile", depth.SMALL_PX),
            overview.every_site(measured, backward(shown), t)]


def parameters(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """One measure of one role over depth, all variants; below it every parameter of one, a click chooses the role."""
    role, measure = shown["role"], shown["weight"]
    found = _before(measured, role, measure)
    title = t("live.weights_title", statistic=t(f"weight.{measure}"), role=role)
    lines = _lines("role", title, measure, found, shown["scale"], t)
    remarks = depth.said_once({one.name: _why_absent(one, role, measure, t) for one in measured}, t)
    return [_with(lines, remarks), _every_parameter(measured, shown, measure, t)]


def clip(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The gradient norm of one role over depth before clipping and after it; below it every parameter of one variant.
    """
    role = shown["role"]
    before = _before(measured, role, GRADIENT_NORM)
    after = _after(measured, before, role, t)
    title = t("gradients.clipping_title", role=role)
    lines = _lines("clipping", title, GRADIENT_NORM, {**before, **after}, shown["scale"], t)
    subject = Subject(extra=(GRADIENT_NORM, "grad_total_norm", "clip_factor"))
    missing = depth.said_once({one.name: _why_absent(one, role, GRADIENT_NORM, t) for one in measured}, t)
    unclipped = depth.said_once({one.name: _why_unclipped(one, t) for one in measured}, t)
    return [_with(replace(lines, subject=subject), (*missing, *unclipped)),
            _every_parameter(measured, shown, GRADIENT_NORM, t, clips=True)]


def theory(measured: Sequence[Measured], _shown: Shown, t: Words) -> list[Picture]:
    """What mathematics predicts of the stream's gradient as dotted lines, what was measured as points."""
    known, silent = predicted.told({one.name: prediction(one) for one in measured}, t)
    stream = depth.stream_of(measured)
    size, likeness = (predicted.over_depth(measured, known, Number(statistic, stream, gradient=True),
                                           "gradient_theory", t) for statistic in ("rms", "token_cosine"))
    return [_with(size, silent), likeness]


def prediction(one: Measured) -> Prediction | str:
    """Return what is predicted of a variant's gradients from the last layer's, or the code of why nothing is."""
    starts = predicted.start_of(one, "embed"), predicted.start_of(one, STREAM, gradient=True)
    return _predicted(one.experiment.canonical_json(), *starts)


_predicted = lru_cache(maxsize=128)(partial(predicted.asked, predict_gradient))


def _before(measured: Sequence[Measured], role: str, measure: str) -> dict[str, Series | None]:
    """Return a line a variant, of what was measured."""
    return depth.dressed({one.name: _series(one, _depth(one, role, measure), role) for one in measured}, measured)


def _depth(one: Measured, role: str, measure: str) -> RoleDepth:
    assert one.trace is not None
    return over_depth(one.trace, role, measure)


def _series(one: Measured, found: RoleDepth, role: str) -> Series | None:
    """Return a variant's line; None where no layer has the role, or no gradient reached it in any."""
    seen = found.observed
    if not seen.any():
        return None
    return Series(one.name, np.array(found.layers, np.int64)[seen], found.values[seen], site=role, key=one.variant.key)


def _after(measured: Sequence[Measured], before: Mapping[str, Series | None], role: str,
           t: Words) -> dict[str, Series | None]:
    """Return the lines of what is left after clipping; None where nothing is clipped."""
    found: dict[str, Series | None] = {}
    colors: list[str] = []
    for one in measured:
        line, by = before[one.name], _clipping(one)
        name = t("gradients.after", variant=one.name)
        if line is None or not by.clips:
            found[name] = None
            continue
        left = clipped(_depth(one, role, GRADIENT_NORM), by)
        dash = f"{DOT_PX}px,{GAP_PX * (1 + colors.count(line.style.color))}px"
        colors.append(line.style.color)
        found[name] = replace(line, name=name, values=left.values[left.observed], style=replace(line.style, dash=dash),
                              key=f"{one.variant.key} after", beside=line.key or line.name)
    return found


def _clipping(one: Measured) -> Clipping:
    assert one.trace is not None
    return clipping(one.trace, one.experiment)


def _lines(key: str, title: str, measure: str, found: Mapping[str, Series | None], scale: str, t: Words) -> Picture:
    series = [line for line in found.values() if line is not None]
    frame = charts.Frame(title=title, statistic=measure, y_title=t(f"weight.{measure}"), x_title=t("drift.depth"),
                         y_scale=depth.positive([one.values for one in series], scale))
    rows = depth.legend_rows([one.name for one in series if not one.beside])
    return Picture(key, charts.profile(series, frame, t) if series else None, title, Subject(extra=(measure,)),
                   partial(depth.table, found, t), depth.SMALL_PX + depth.LEGEND_PX * (rows - 1))


def _with(picture: Picture, remarks: tuple[str, ...]) -> Picture:
    return replace(picture, remarks=remarks)


NEEDS: dict[str, str] = {
    "mlp.gate.weight": "gradients.needs_gate",
    **{f"norm{number}.weight": "gradients.needs_norm" for number in (1, 2)},
    **{f"norm{number}_out.weight": "gradients.needs_norm_out" for number in (1, 2)},
}
"""Role that not every stack has → why one may lack it; the others are missing with their whole sublayer."""


def _why_absent(one: Measured, role: str, measure: str, t: Words) -> str:
    """Say why a variant has no such line; nothing where it has one."""
    found = _depth(one, role, measure)
    if found.observed.any():
        return ""
    if found.layers:
        return t("gradients.no_gradient", role=role)
    return t("gradients.absent", role=role, why=t(_needs(one, role)))


def _needs(one: Measured, role: str) -> str:
    """Return the text key that says what a variant lacks for a role: another family, a norm, a gate, a sublayer."""
    of_family = [name for name, family in FAMILIES.items()
                 if role.partition(".")[0] in (*family.gates, *family.norms)]
    if is_recurrent(one.experiment) or of_family:
        with_norms = one.experiment.model.family in of_family
        return "gradients.needs_cell_norm" if with_norms else "gradients.needs_family"
    return NEEDS.get(role, "gradients.needs_sublayer")


def _why_unclipped(one: Measured, t: Words) -> str:
    """Say why there is no line after clipping; nothing where there is one."""
    by = _clipping(one)
    if by.clips:
        return ""
    return t("gradients.no_limit" if by.limit is None else "gradients.within_limit")


def _every_parameter(measured: Sequence[Measured], shown: Shown, measure: str, t: Words,
                     clips: bool = False) -> Picture:
    """Return the map of a measure of every weight of one variant; its table has the other parameters as well.

    `clips`: the table says what is left of it after clipping.
    """
    one, _ = focus(measured, shown)
    assert one.trace is not None
    found = by_role(one.trace, measure)
    drawn = _weights(found)
    title = t("gradients.every_parameter", statistic=t(f"weight.{measure}"), variant=one.name)
    frame = charts.Frame(title=title, statistic=t(f"weight.{measure}"), y_title="", x_title=t("drift.depth"),
                         y_scale=depth.positive([drawn.values.ravel()], shown["scale"]))
    cells = replace(overview.cells(drawn, shown["role"], t), name=one.name)
    after = _clipping(one).after if clips else None
    return Picture("parameters", charts.grid(cells, frame, t), title, Subject(extra=(measure,)),
                   partial(_table, found, after, t), overview.AROUND_PX + overview.ROW_PX * max(len(drawn.sites), 4),
                   picks=True, variant=one.name)


def _weights(found: Landscape) -> Landscape:
    """Return the rows of weights: the roles that can be chosen, and what stands outside the layers."""
    inside = (found.states != "absent")[:, 1:-1].any(axis=1)
    kept = [row for row, role in enumerate(found.sites)
            if role in ROLES or (role.endswith(".weight") and not inside[row])]
    return replace(found, sites=tuple(found.sites[row] for row in kept), values=found.values[kept],
                   states=found.states[kept], non_finite=found.non_finite[kept])


def _table(found: Landscape, after: Callable[[np.ndarray], np.ndarray] | None, t: Words) -> Columns:
    """Return a row a parameter, in tables' own terms; nothing was seen where the value is empty."""
    places = [cell for cell in np.ndindex(found.states.shape) if found.states[cell] != "absent"]
    seen = [found.states[cell] != "not_observed" for cell in places]

    def column(values: np.ndarray) -> list[float | None]:
        return [float(values[cell]) if there else None for cell, there in zip(places, seen, strict=True)]

    clipped_column = {} if after is None else {t("gradients.after_column"): column(after(found.values))}
    return {t("drift.role"): [found.sites[row] for row, _ in places],
            t("chart.layer"): [found.layers[place] for _, place in places],
            found.statistic: column(found.values), **clipped_column,
            t("overview.state"): [t(f"state.{found.states[cell]}") for cell in places]}


def to_training(measured: Sequence[Measured], t: Words) -> None:
    """Draw the link to the same variants on the live page: an update ratio needs updates."""
    few = len(measured) <= LIVE.most + 1
    st.markdown(t("gradients.update_ratio_all") if few else t("gradients.update_ratio", count=LIVE.most))
    query = onward.training(measured, st.session_state["preset"], view="updates", role=st.session_state["role"])
    onward.way("live", query, t("gradients.open_live"), t)


def offer_limit(measured: Sequence[Measured], t: Words) -> None:
    """Draw the button that sets the usual threshold where the base has none."""
    if measured[0].experiment.protocol.grad_clip is None:
        st.button(t("gradients.clip_at", limit=f"{USUAL_LIMIT:g}"), icon=":material/content_cut:", on_click=_set_limit)


def _set_limit() -> None:
    st.session_state["protocol.grad_clip"] = f"{USUAL_LIMIT:g}"
