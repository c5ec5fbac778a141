"""The views of the gradients page without a browser: whole for every kind of stack, and the numbers of the engine."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import test_views
from probes import probed
from test_views import SMALL, values

from core import table
from core.gradient_theory import predict_gradient
from core.roles import MEASURES, clipping, measured
from core.theory import REASONS
from core.trace import Trace
from core.vocabulary import SITES
from pages.ui import component, explain, link
from pages.ui.cache import Measured
from pages.ui.places import GRADIENTS, LIVE, ROLES
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import GRADIENT_VIEWS, onward

KINDS = {
    **test_views.KINDS,
    "gated": {"model.activation": "swiglu"}, "sandwich": {"model.placement": "sandwich"},
    "branch": {"model.placement": "branch"}, "uniform": {"model.pattern": "uniform"},
    "tied": {"model.tie_embeddings": True}, "no gain": {"model.norm_affine": False},
    "clipped": {"protocol.grad_clip": 0.25}, "clipped post": {"protocol.grad_clip": 0.25, "model.placement": "post"},
    "clipped nan": {"protocol.grad_clip": 0.25, "model.embed_scale": 1e30, "protocol.dtype": "float16"},
    "wide limit": {"protocol.grad_clip": 1e9}, "batchnorm": {"model.norm": "batchnorm"},
}
EN = Words("en")


@cache
def one(kind):
    return probed(kind, SMALL, KINDS[kind])


def pictures(view, kinds, lang="en", **shown):
    return GRADIENT_VIEWS[view].make([one(kind) for kind in kinds], GRADIENTS.defaults | shown, Words(lang))


def layer_norms_of(kind, role, measure):
    """Return a measure of a role by layer, straight from the snapshot."""
    snapshot = one(kind).trace.snapshots[-1]
    rows = [row for row, (layer, name) in enumerate(snapshot.layout.parameters) if name == f"layers.{layer}.{role}"]
    return measured(snapshot, measure)[rows]


@pytest.mark.parametrize("view", GRADIENT_VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_kind_of_stack_comes_out_whole(view, kind):
    for changes in ({}, {"scale": "symlog", "site": "mlp_act", "role": "norm1.weight"},
                    {"scale": "linear", "stat": "n_nan", "role": "mlp.gate.weight", "weight": "grad_weight_ratio"}):
        for picture in pictures(view, [kind], **changes):
            assert picture.figure is not None or picture.remarks
            columns = picture.columns()
            assert len({len(column) for column in columns.values()}) <= 1
            for write in table.FORMATS.values():
                write(table.table_of(columns))
            if picture.figure is not None:
                json.dumps(component._bare(picture.figure), allow_nan=False)


@pytest.mark.parametrize("view", GRADIENT_VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_judges_every_kind_of_stack_in_words(view, kind):
    for lang in LANGUAGES:
        for verdict in GRADIENT_VIEWS[view].judge(one(kind).trace, one(kind).experiment, GRADIENTS.defaults):
            said = explain.sentence(verdict, Words(lang))
            assert said and "{" not in said
            assert not verdict.expected or Words(lang)(f"expected.{verdict.expected}")


@pytest.mark.parametrize("view", GRADIENT_VIEWS)
def test_every_view_bears_seven_variants_that_are_all_clipped(view):
    found = [probed(kind, SMALL, {**KINDS[kind], "protocol.grad_clip": 1e-3, "model.n_layers": 3})
             for kind in list(KINDS)[:7]]
    for picture in GRADIENT_VIEWS[view].make(found, GRADIENTS.defaults, EN):
        assert len(picture.figure.data) <= 60 if picture.figure else picture.remarks


@pytest.mark.parametrize("view", GRADIENT_VIEWS)
def test_every_view_is_of_the_link_and_has_words_in_every_language(view):
    assert set(GRADIENT_VIEWS[view].asks) <= GRADIENTS.shown.keys()
    assert view in GRADIENTS.views
    for lang in LANGUAGES:
        assert Words(lang)(f"gradients_view.{view}") and Words(lang)(f"gradients_view_help.{view}")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("measure", MEASURES)
def test_every_picture_can_say_what_its_numbers_are(lang, measure):
    t = Words(lang)
    assert t(f"weight.{measure}")
    for view in GRADIENT_VIEWS:
        for picture in pictures(view, ["usual"], lang, weight=measure):
            for key in picture.subject.extra:
                assert t(f"extra.{key}") and t(f"what.{key}") and t(f"formula.{key}")
            assert set(picture.subject.sites) <= SITES.keys()
            assert picture.subject.extra or picture.subject.statistics


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("measure", MEASURES)
def test_the_lines_of_a_role_are_the_numbers_of_the_engine_and_what_is_missing_is_said(role, measure):
    kinds = ["usual", "gated", "sandwich", "branch", "uniform", "lstm", "deep gru"]
    lines, _ = pictures("parameters", kinds, role=role, weight=measure)
    drawn = {trace.name: trace.y for trace in lines.figure.data if trace.yaxis != "y2"} if lines.figure else {}
    for kind in kinds:
        expected = layer_norms_of(kind, role, measure)
        unseen = kind == "uniform" and role in ("attn.q.weight", "attn.k.weight") and measure in (
            "param_grad_norm", "grad_weight_ratio")
        if expected.size and not unseen:
            np.testing.assert_array_equal(drawn.pop(kind), expected)
            assert not any(f"{kind}: " in remark for remark in lines.remarks)
        else:
            assert any(f"{kind}: " in remark for remark in lines.remarks)
    assert not drawn


@pytest.mark.parametrize(("kind", "role", "reason"), [
    ("usual", "mlp.gate.weight", "gradients.needs_gate"), ("no norm", "norm1.weight", "gradients.needs_norm"),
    ("no gain", "norm2.weight", "gradients.needs_norm"), ("usual", "norm1_out.weight", "gradients.needs_norm_out"),
    ("attention alone", "mlp.in.weight", "gradients.needs_sublayer"),
    ("lstm", "mlp.out.weight", "gradients.needs_family"),
    ("usual", "gate_i.x.weight", "gradients.needs_family"),
    ("lstm without norm", "norm_h.weight", "gradients.needs_cell_norm"),
])
def test_a_role_that_a_stack_lacks_says_why(kind, role, reason):
    (lines, _) = pictures("parameters", [kind], role=role)
    assert lines.figure is None
    assert lines.remarks == (EN("gradients.absent", role=role, why=EN(reason)),)


def test_a_parameter_without_a_gradient_is_not_observed_and_nowhere_zero():
    lines, cells = pictures("parameters", ["uniform"], role="attn.q.weight")
    assert lines.figure is None and lines.remarks == (EN("gradients.no_gradient", role="attn.q.weight"),)
    columns = cells.columns()
    found = [(value, state) for role, value, state in zip(
        columns[EN("drift.role")], columns["param_grad_norm"], columns[EN("overview.state")], strict=True)
        if role == "attn.q.weight"]
    assert found == [(None, EN("state.not_observed"))] * 3
    (unseen,) = [trace for trace in cells.figure.data if trace.name == EN("chart.unseen")]
    assert set(unseen.y) == {"attn.q.weight", "attn.k.weight"}


@pytest.mark.parametrize("kind", ["usual", "gated", "tied", "branch"])
def test_the_table_of_numbers_has_every_parameter_with_embedding_and_head(kind):
    (_, cells) = pictures("parameters", [kind])
    columns, snapshot = cells.columns(), one(kind).trace.snapshots[-1]
    shown = dict(zip(zip(columns["layer"], columns[EN("drift.role")], strict=True), columns["param_grad_norm"],
                     strict=True))
    for (layer, name), value in zip(snapshot.layout.parameters, snapshot.parameters["param_grad_norm"], strict=True):
        assert shown.pop((layer, name.removeprefix(f"layers.{layer}."))) == value
    assert not shown
    assert "embed.token.weight" in columns[EN("drift.role")]


def test_after_clipping_every_gradient_is_the_one_before_times_the_factor():
    kinds = ["clipped", "clipped post"]
    lines, cells = pictures("clipping", kinds)
    drawn = {trace.name: trace for trace in lines.figure.data}
    dashes = set()
    for kind in kinds:
        factor = clipping(one(kind).trace, one(kind).experiment).factor
        before, after = drawn[kind], drawn[EN("gradients.after", variant=kind)]
        assert 0 < factor < 1
        np.testing.assert_array_equal(before.y, layer_norms_of(kind, "mlp.out.weight", "param_grad_norm"))
        np.testing.assert_allclose(after.y, before.y * factor)
        assert after.line.color == before.line.color and after.line.dash.startswith("2px,")
        assert after.legendgroup == before.legendgroup and not after.showlegend and before.uid != after.uid
        dashes.add(after.line.dash)
    assert len(dashes) == 2 and not lines.remarks  # one colour, two dots
    columns = cells.columns()
    factor = clipping(one("clipped").trace, one("clipped").experiment).factor
    np.testing.assert_allclose(columns[EN("gradients.after_column")], factor * np.array(columns["param_grad_norm"]))


@pytest.mark.parametrize(("kind", "reason"), [("usual", "no_limit"), ("wide limit", "within_limit")])
def test_where_nothing_is_clipped_there_is_no_second_line_and_it_is_said(kind, reason):
    lines, _ = pictures("clipping", [kind])
    assert [trace.name for trace in lines.figure.data] == [kind]
    assert lines.remarks == (EN(f"gradients.{reason}"),)


def test_gradients_that_are_not_finite_are_marked_before_and_after_clipping():
    lines, cells = pictures("clipping", ["clipped nan"])
    marks = [trace for trace in lines.figure.data if trace.yaxis == "y2"]
    assert len(marks) == 2 and all(set(mark.text) == {"NaN"} and len(mark.x) == 3 for mark in marks)
    assert all(np.isnan(values(trace)).all() for trace in lines.figure.data if trace.yaxis != "y2")
    (missing,) = [trace for trace in cells.figure.data if trace.name == EN("chart.no_place")]
    assert len(missing.x) > 3


def test_the_site_s_line_and_map_are_of_the_gradient():
    lines, cells = pictures("sites", ["usual"])
    trace = one("usual").trace
    np.testing.assert_array_equal(lines.figure.data[0].y[1:], trace.profile("resid_post", "rms", gradient=True)[1])
    assert lines.figure.data[0].y[0] == trace.profile("embed", "rms", gradient=True)[1][0]
    assert "grad_rms" in cells.columns() and cells.picks and lines.subject.gradient


def test_theory_is_a_line_through_measured_points_and_where_there_is_none_it_is_said():
    size, likeness = pictures("theory", ["usual", "post", "batchnorm"])
    for picture, statistic in ((size, "rms"), (likeness, "token_cosine")):
        drawn = {trace.name: trace for trace in picture.figure.data}
        for kind in ("usual", "post"):
            trace = one(kind).trace
            start, top = ([trace.profile(site, name, gradient)[1][-1] for name in ("rms", "token_cosine")]
                          for site, gradient in (("embed", False), ("resid_post", True)))
            theory = predict_gradient(one(kind).experiment, tuple(start), tuple(top))
            line = drawn[EN("entropy.theory_of", variant=kind)]
            np.testing.assert_allclose(line.y, theory.over_depth(statistic, "resid_post", np.arange(3)))
            np.testing.assert_array_equal(drawn[kind].y, trace.profile("resid_post", statistic, gradient=True)[1])
            assert line.y[-1] == pytest.approx(drawn[kind].y[-1])  # where it starts
            assert line.line.dash == "dot" and drawn[kind].mode == "markers"
        assert EN("entropy.theory_of", variant="batchnorm") not in drawn and "batchnorm" in drawn
        assert picture.subject.gradient and "gradient_theory" in picture.subject.extra
    assert len(size.remarks) == 1 and EN("no_prediction.norm") in size.remarks[0]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("code", [*REASONS, "start", "gradient", "saturated"])
def test_every_reason_for_no_prediction_has_words(lang, code):
    assert Words(lang)(f"no_prediction.{code}")


@pytest.mark.parametrize("kinds", [["usual"], ["usual", "post", "gated"], ["usual", "post", "gated", "tied", "branch"]])
def test_the_link_to_a_training_has_the_same_base_variants_and_role(kinds):
    query = onward.training([one(kind) for kind in kinds], "pre_layernorm", view="updates",
                            role="attn.v.weight")
    view, notices = link.read(query, LIVE)
    assert not notices
    assert (view.shown["view"], view.shown["role"]) == ("updates", "attn.v.weight")
    assert view.base == one(kinds[0]).experiment.with_values(LIVE.starts)
    found, refused = link.compared(view)
    assert not refused
    assert [variant.experiment for variant in found] == [
        one(kind).experiment.with_values(LIVE.starts) for kind in kinds[: LIVE.most + 1]]


def test_a_trace_without_parameters_says_that_nothing_was_observed():
    whole = one("usual")
    bare = replace(whole.trace.snapshots[-1], parameters={}, totals={},
                   grad_observed=np.zeros(len(whole.trace.layout.parameters), bool), gradients={})
    found = Measured(whole.variant, None, Trace((bare,)))
    for view in ("parameters", "clipping"):
        lines, _ = GRADIENT_VIEWS[view].make([found], GRADIENTS.defaults, EN)
        assert lines.figure is None and EN("gradients.no_gradient", role="mlp.out.weight") in lines.remarks
