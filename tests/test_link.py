"""Links: every state of the page survives its link; a hostile, broken or outdated one is answered with notices."""

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.experiment import Experiment
from core.presets import PRESETS, preset
from core.tables import INITS, NORMS, PLACEMENTS
from pages.ui import link
from pages.ui.link import View
from pages.ui.places import DRIFT, LIVE
from pages.ui.text import Words


def test_the_default_view_is_the_empty_link():
    assert link.write(View()) == {}
    assert link.read({}) == (View(), [])


def test_the_default_view_compares_no_norm_layernorm_and_rmsnorm():
    found, notices = link.compared(View())
    assert [one.experiment.model.norm for one in found] == ["layernorm", "none", "rmsnorm"]
    assert notices == []


def packed(text):
    """A parameter that holds this very text."""
    return "1." + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3))
PATHS = st.sampled_from([*Experiment().paths(), "model.layer_norms.0", "model.layer_norms.x", "model", "x.y"])
CHANGES = st.fixed_dictionaries({}, optional={
    "model.norm": st.sampled_from(list(NORMS)), "model.placement": st.sampled_from(list(PLACEMENTS)),
    "model.init": st.sampled_from(list(INITS)), "model.n_layers": st.integers(1, 512), "model.bias": st.booleans(),
    "model.init_gain": st.floats(0, 100), "model.layer_norms": st.just({"0": "none"}),
    "input.lengths": st.just("ragged"), "protocol.seed": st.integers(0, 2**32 - 1)})
SHOWN = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in DRIFT.shown.items()})


@given(st.sampled_from(list(PRESETS)), CHANGES, st.lists(CHANGES.filter(bool), max_size=6), SHOWN)
def test_every_view_survives_its_link(name, changes, variants, shown):
    view = View(name, preset(name).with_values(changes), tuple(variants), shown)
    assert link.read(link.write(view)) == (view, [])


def test_single_dials_have_a_parameter_of_their_own():
    view = View(base=Experiment().with_values({"model.n_layers": 30, "model.norm": "none", "model.dropout": 0.1}))
    query = link.write(view)
    assert (query["layers"], query["norm"]) == ("30", "none")
    assert link.unpack(query["x"]) == {"base": {"model.dropout": 0.1}}


@pytest.mark.parametrize(("query", "key"), [
    ({"layers": "5000"}, "link.choice"), ({"layers": "hello"}, "link.choice"), ({"layers": ""}, "link.choice"),
    ({"layers": "١٢"}, "link.choice"), ({"layers": "--5"}, "link.choice"), ({"layers": "9" * 5000}, "link.choice"),
    ({"norm": "foo"}, "link.choice"), ({"preset": "nope"}, "link.choice"),
    ({"stat": "<script>"}, "link.choice"), ({"x": "garbage"}, "link.packed"), ({"x": "2.abc"}, "link.packed"),
    ({"x": "1.!!!"}, "link.packed"), ({"x": link.pack([1])}, "link.packed"),
    ({"x": link.pack({"base": {"model.dropout": 7}})}, "link.field"),
    ({"x": link.pack({"base": {"model.nothing": 7}})}, "link.field"),
    ({"x": link.pack({"base": {"nonsense": 7}})}, "link.field"),
    ({"x": link.pack({"base": 7})}, "link.packed"), ({"x": link.pack({"bases": {}})}, "link.packed"),
    ({"x": packed('{"base":{"model.dropout":"\\ud800"}}')}, "link.packed"),
    ({"x": link.pack({"variants": "many"})}, "link.variants"),
    ({"x": link.pack({"variants": [{"model.nope": 1}]})}, "link.variants"),
    ({"x": link.pack({"variants": [{"model.n_layers": n + 1} for n in range(9)]})}, "link.too_many"),
])
def test_what_is_refused_is_replaced_with_a_notice(query, key):
    view, notices = link.read(query)
    assert [notice.key for notice in notices] == [key]
    assert view.base == Experiment()


def test_a_large_or_deep_parameter_is_refused():
    bomb = "1." + base64.urlsafe_b64encode(zlib.compress(b"[" * 10_000_000)).decode()
    deep = "1." + base64.urlsafe_b64encode(zlib.compress(b"[" * 60_000)).decode()
    for text in (bomb, deep):
        assert [notice.key for notice in link.read({"x": text})[1]] == ["link.packed"]


def test_good_changes_beside_a_bad_one_are_kept():
    view, notices = link.read({"x": link.pack({"base": {"model.dropout": 7, "model.bias": False}})})
    assert view.base == Experiment().with_values({"model.bias": False})
    assert len(notices) == 1


def test_a_variant_that_the_base_refuses_is_left_out_with_a_notice():
    view = View(variants=({"model.placement": "post", "model.depth_scaling": "inv_sqrt_layer"}, {"model.norm": "none"}))
    found, notices = link.compared(view)
    assert len(found) == 2
    assert notices[0].key == "link.variant"


def test_a_variant_equal_to_the_base_is_shown_once():
    found, _ = link.compared(View(variants=({"model.norm": "layernorm"}, {"model.d_ff": 512})))
    assert len(found) == 1


@given(st.dictionaries(st.sampled_from(["layers", "norm", "x", "preset", "stat"]), st.text(max_size=20)))
def test_any_query_at_all_gives_a_view(query):
    view, _ = link.read(query)
    assert json.dumps(link.write(view))


@given(st.fixed_dictionaries({}, optional={
    "base": st.dictionaries(PATHS, JSON, max_size=4) | JSON,
    "variants": st.lists(st.dictionaries(PATHS, JSON, max_size=3), max_size=8) | JSON, "more": JSON}))
def test_any_content_of_the_packed_parameter_gives_a_view_that_can_be_compared_and_written(content):
    view, _ = link.read({"x": packed(json.dumps(content))})
    link.compared(view)
    assert "".join(link.write(view).values()).isascii()


def test_dials_and_packed_changes_that_are_only_possible_together_are_taken_together():
    together = {"model.placement": "sandwich", "model.depth_scaling": "inv_sqrt_layer"}
    view = View("post_layernorm", preset("post_layernorm").with_values(together), ())
    assert link.read(link.write(view)) == (view, [])


@pytest.mark.parametrize(("name", "value"), [("step", "x"), ("step", "1234567"), ("at", "1-2"), ("at", "")])
def test_what_has_a_form_is_refused_with_words_of_its_own_and_no_list_of_examples(name, value):
    view, (notice,) = link.read({name: value}, LIVE)
    assert view.shown[name] == LIVE.defaults[name]
    assert (notice.key, notice.values) == (f"link.form_{name}", {"value": value, "used": LIVE.defaults[name]})
    assert notice.key in Words("en") and notice.key in Words("zh")
