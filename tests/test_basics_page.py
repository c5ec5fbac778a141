"""The page of first experiments: its pictures beside the engine, its links, its boxes to type in, a real visit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest
from test_precision_views import whole

from core import service
from core.copies import copies
from core.exams import Exam
from pages.ui import explain, link
from pages.ui.link import View
from pages.ui.places import BASICS, Form
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import BASICS_VIEWS
from pages.ui.views.copies import BESIDE

ROOT = Path(__file__).parent.parent
EN, ZH = Words("en"), Words("zh")
STATES = ({}, {"a": "7_7_7", "b": "1", "who": "0"}, {"a": "0_0.5_999999.999", "b": "3_2_1_0", "who": "2"},
          {"b": "40_101_55_62"}, {"view": "copies"}, {"view": "copies", "gain": "1", "width": "16", "depth": "96"},
          {"view": "copies", "gain": "0.5", "depth": "8", "draw": "9"})


def told(t=EN, **shown):
    state = BASICS.defaults | shown
    return BASICS_VIEWS[state["view"]].make(state, t)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("state", STATES, ids=str)
def test_every_state_comes_out_whole_and_in_words(state, lang):
    for one in told(Words(lang), **state):
        whole(one.picture, Words(lang))
        assert one.said and not any(sign in one.said for sign in ("{", "nan", "NaN"))


def test_the_pictures_are_called_as_lessons_call_them_and_the_views_are_in_the_link():
    assert tuple(BASICS_VIEWS) == BASICS.views
    assert [one.picture.key for view in BASICS_VIEWS for one in told(view=view)] == ["marks", "zscores", "copies"]
    assert all(set(one.asks) <= BASICS.shown.keys() for one in BASICS_VIEWS.values())


# two exams


def test_the_bars_are_the_marks_and_the_z_scores_and_the_followed_student_s_are_hatched_and_numbered():
    marks, z = (one.picture.figure for one in told(who="2"))
    exams = Exam((61, 120, 75, 98), 150), Exam((40, 80, 55, 62), 100)
    for figure, values in ((marks, [one.marks for one in exams]), (z, [one.z for one in exams])):
        bars = [trace for trace in figure.data if trace.type == "bar"]
        for bar, expected in zip(bars, values, strict=True):
            np.testing.assert_array_equal(bar.y, expected)
            assert [bool(shape) for shape in bar.marker.pattern.shape] == [False, False, True, False]
            assert [bool(text) for text in bar.text] == [False, False, True, False]
    assert [trace.y[0] for trace in marks.data if trace.type == "scatter"] == [150, 100]


def test_the_z_scores_of_both_exams_stand_on_axes_that_reach_as_far():
    marks, z = (one.picture.figure.layout for one in told())
    assert z.yaxis2.matches == "y" and marks.yaxis2.matches is None


def test_students_without_a_mark_in_one_exam_have_no_number_there():
    columns = told(b="40_80")[1].picture.columns()
    assert columns["z_b"][2:] == columns["mark_b"][2:] == [None, None] and None not in columns["z_a"]


def test_what_is_said_says_who_stands_where_and_that_equal_marks_tell_nobody_apart():
    marks, z = told()
    assert "80 %" in marks.said and "z = 1.401" in z.said and "z = 1.443" in z.said
    assert EN("basics.better", who=1, exam=EN("basics.exam_b")) in z.said and EN("basics.order") in z.said
    flat = told(a="5_5_5_5")[1].said
    assert EN("basics.alike", exam=EN("basics.exam_a")) in flat and EN("basics.order") not in flat
    assert EN("basics.beyond", count=1) in told(b="40_101_55_62")[0].said
    assert EN("basics.better_none", who=1) in told(b="1_60_15_38")[1].said


# a copy of a copy


@pytest.mark.parametrize("gain", BASICS.shown["gain"])
def test_every_gain_is_drawn_once_with_the_engine_s_numbers_and_the_chosen_one_with_its_law(gain):
    figure = told(view="copies", gain=gain, width="16", draw="4")[0].picture.figure
    gains = tuple(sorted({*BESIDE, float(gain)}))
    found = copies(gains, 24, 16, 4)
    *lines, law = figure.data
    assert len(lines) == len(gains) and law.line.dash != "solid"
    for trace, one in zip(lines, gains, strict=True):
        np.testing.assert_allclose(trace.y, found.rms[gains.index(one)], rtol=1e-12)
        assert (trace.line.width > 3) == (one == float(gain))
    np.testing.assert_array_equal(law.y, found.expected(float(gain)))
    assert len({trace.line.dash for trace in figure.data}) == len(figure.data)
    assert figure.layout.yaxis.type == "log"


def test_what_is_said_of_the_copies_is_the_growth_the_law_and_the_doubling_depth():
    growth = copies((1.25,), 24, 128).growth(1.25)
    said = told(view="copies")[0].said
    assert all(explain.number(value) in said for value in (growth, 1.25**24, growth / 1.25**24))
    assert "= 3.11," in said and "= 1," in told(view="copies", gain="0.5")[0].said
    assert "1.05" in told(view="copies", gain="1")[0].said


# links

SHOWN = st.fixed_dictionaries({name: st.sampled_from(list(values)) for name, values in BASICS.shown.items()})


@given(SHOWN)
def test_every_state_survives_its_link(shown):
    view = replace(View.of(BASICS), shown=shown)
    assert link.read(link.write(view, BASICS), BASICS) == (view, [])


BAD = {"a": ("", "1_", "_1", "x", "-5", "1_nan", "1e3", "1,2", "_".join("1" * 13), "1234567", "1.2345", "<b>"),
       "full_a": ("", "0", "0.0", "-1", "inf", "1e2", "1_2"), "who": ("", "12", "-1", "x", "01")}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in (
    BAD | {"b": BAD["a"], "full_b": BAD["full_a"]}).items() for value in values])
def test_what_is_no_mark_no_full_mark_and_no_student_is_replaced_with_a_notice(name, value):
    view, notices = link.read({name: value}, BASICS)
    assert [notice.key for notice in notices] == [f"link.form_{name}"] and view == View.of(BASICS)
    assert all("{" not in explain.notice(notices[0], Words(lang)) for lang in LANGUAGES)


@pytest.mark.parametrize("name", [name for name, values in BASICS.shown.items() if not isinstance(values, Form)])
def test_what_a_link_cannot_say_is_replaced_with_a_notice(name):
    view, notices = link.read({name: "<b>nan"}, BASICS)
    assert [notice.key for notice in notices] == ["link.choice"] and view == View.of(BASICS)


def test_a_page_without_a_model_takes_none_from_a_link():
    view, notices = link.read({"layers": "3", "x": link.pack({"base": {"model.norm": "none"}})}, BASICS)
    assert view.base == View.of(BASICS).base and [notice.key for notice in notices] == ["link.field"] * 2


# the page


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store of its own: the home page, where a visit begins, asks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('basics') / 'store.db'}")
        yield
        service.stop()


def page(**query):
    at = AppTest.from_file(str(ROOT / "pages" / "ui" / "shell.py"), default_timeout=60)
    at.query_params.update(query)
    at.run()
    at.switch_page(str(ROOT / "pages" / "basics.py"))
    at.query_params.update(query)
    return at.run()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("view", "pictures"), [("scores", 2), ("copies", 1)])
def test_every_view_runs_in_every_language(view, pictures, lang):
    at = page(lang=lang, view=view)
    assert not at.exception and not at.error and not at.warning
    assert [title.value for title in at.title] == [Words(lang)("basics.title")]
    assert sum("figure" in one.proto.json for one in at.get("bidi_component")) == pictures


@pytest.mark.parametrize(("typed", "kept"), [("5, 6，7", "5_6_7"), ("  5 6、7.5；8 ", "5_6_7.5_8"), ("9", "9")])
def test_marks_are_typed_as_one_writes_them_and_stand_in_the_link(typed, kept):
    at = page(lang="en")
    at.text_input(key="shown.typed.a").input(typed).run()
    assert at.query_params["a"] == kept and not at.error
    assert at.text_input(key="shown.typed.a").value.replace(", ", "_") == kept


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("name", "typed"), [("a", "5, six"), ("b", "1 " * 13), ("full_a", "0"), ("full_b", "-3")])
def test_what_is_refused_says_why_and_the_last_good_numbers_stay(name, typed, lang):
    at = page(lang=lang, b="3_4_5", full_b="6")
    before = dict(at.query_params)
    at.text_input(key=f"shown.typed.{name}").input(typed).run()
    assert len(at.error) == 1 and typed in at.error[0].value.replace("\\", "")
    assert dict(at.query_params) == before and not at.exception


def test_who_is_followed_has_a_mark_in_both_exams():
    at = page(lang="en", who="3")
    at.text_input(key="shown.typed.b").input("1, 2").run()
    assert at.warning[0].value == EN("link.form_who", value="3", used="1")
    assert "who" not in at.query_params and at.selectbox(key="who").options == ["0", "1"]


@pytest.mark.browser
def test_a_visitor_types_marks_follows_a_student_and_keeps_both_in_the_other_view(visit):
    visit.open("/basics?lang=zh&who=0")
    box = visit.page.get_by_role("textbox", name=ZH("basics.a"), exact=True)
    expect(box).to_have_value("61, 120, 75, 98")
    box.fill("10，20 30")
    box.press("Enter")
    visit.page.wait_for_url("**a=10_20_30**")
    visit.settle()
    expect(box).to_have_value("10, 20, 30")
    expect(visit.page.get_by_text("z = −1.225")).to_be_visible()
    visit.page.get_by_text(ZH("basics_view.copies"), exact=True).click()
    visit.page.wait_for_url("**view=copies**")
    visit.page.wait_for_function("[...document.querySelectorAll('.driftscope-chart')].map(gd => gd.data?.length) == 4")
    visit.settle()
    assert "a=10_20_30" in visit.page.url and "who=0" in visit.page.url and not visit.errors
