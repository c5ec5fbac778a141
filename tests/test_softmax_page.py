"""The softmax lab: its words, links and pictures without a browser, then as a visitor meets it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from core import table
from core.gaussian_softmax import gaussian_softmax
from core.softmax_row import SCALES, gaussian_scores, softmax_row
from pages.ui import charts, component, explain, softmax_link, theme
from pages.ui.softmax_link import LARGEST, MOST, NUMBERS, PRESETS, Asked
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import softmax

EN = Words("en")
ROWS = {
    **PRESETS, "masked": Asked("own", (2.0, -1.0, -math.inf, 4.0)), "single": Asked("own", (-math.inf, 3.0)),
    "huge": Asked("own", (1e300, -1e300, 0.0), temperature=0.05), "two": Asked("own", (1.0, 0.0)),
    "tie": Asked("own", (4.0, 4.0, 0.0)), "long": Asked(n=512, std=30.0, temperature=0.05, upstream="normal"),
    "far": Asked(std=9.0, temperature=20.0), "underflow": Asked("own", (1000.0, 0.0), upstream="normal"),
}
NUMBER = {name: st.integers(int(one.low), int(one.high)) if one.whole else st.floats(one.low, one.high)
          for name, one in NUMBERS.items()}
SCORES = st.lists(st.floats(-LARGEST, LARGEST) | st.just(-math.inf), min_size=2, max_size=MOST).map(tuple).filter(
    lambda scores: any(map(math.isfinite, scores)))
ASKED = st.builds(Asked, source=st.sampled_from(["gaussian", "own"]), scores=SCORES,
                  upstream=st.sampled_from(["key", "normal"]), **NUMBER)


# without a browser


@given(ASKED)
def test_a_link_says_what_is_asked_for_both_ways(asked):
    assert softmax_link.read(asked.write()) == (asked, [])


@pytest.mark.parametrize(("query", "keys"), [
    ({"n": "1"}, ["link.choice"]), ({"n": "64.5"}, ["link.choice"]), ({"std": "-1"}, ["link.choice"]),
    ({"std": "nan"}, ["link.choice"]), ({"temperature": "0"}, ["link.choice"]), ({"seed": "9" * 11}, ["link.choice"]),
    ({"source": "<b>", "upstream": "x"}, ["link.choice", "link.choice"]), ({"temperature": "1e"}, ["link.choice"]),
    ({"scores": "1,nan"}, ["softmax.refused_score"]), ({"scores": "inf 1"}, ["softmax.refused_score"]),
    ({"scores": "1,1e301"}, ["softmax.refused_score"]), ({"scores": "<script>,1"}, ["softmax.refused_score"]),
    ({"scores": "1"}, ["softmax.refused_count"]), ({"scores": ", ,"}, ["softmax.refused_count"]),
    ({"scores": "1 " * 65}, ["softmax.refused_count"]),
    ({"scores": "1" + " " * 1600 + ",2"}, ["softmax.refused_count"]),
    ({"scores": "-inf,-inf"}, ["softmax.refused_masked"]),
])
def test_what_a_link_cannot_say_is_refused_with_a_notice_and_left_out(query, keys):
    asked, notices = softmax_link.read(query)
    assert asked == Asked()
    assert [notice.key for notice in notices] == keys
    for lang in LANGUAGES:
        for notice in notices:
            assert "{" not in explain.notice(notice, Words(lang))


@pytest.mark.parametrize("text", ["2,-1,0.5,4", "2, -1, 0.5, 4", "2 -1\n0.5\t4", "2；−1，0.5、4,", "2;-1;.5;4e0"])
def test_scores_are_read_however_they_are_separated(text):
    assert softmax_link.scores_of(text) == ((2.0, -1.0, 0.5, 4.0), None)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_whole_pictures_words_and_tables(name, lang):
    asked, t = ROWS[name], Words(lang)
    row = asked.row()
    assert "{" not in softmax.verdict(row, t)
    told = softmax.told(asked, row, t)
    assert len(told) == (4 if row.n == 1 else 5)
    for one in told:
        assert "{" not in one.said
        for key in one.picture.subject.extra:
            assert t(f"extra.{key}") and t(f"what.{key}") and t(f"formula.{key}")
        json.dumps(component._bare(one.picture.figure), allow_nan=False)
        columns = one.picture.columns()
        assert len({len(column) for column in columns.values()}) == 1
        for write in table.FORMATS.values():
            write(table.table_of(columns))


@pytest.mark.parametrize(("name", "kind"), [("typical", "between"), ("uniform", "uniform"), ("saturated", "saturated"),
                                            ("one_hot", "saturated"), ("single", "single")])
def test_the_rows_to_begin_with_are_what_they_are_called(name, kind):
    assert ROWS[name].row().kind == kind


def picture(name, asked):
    return next(one for one in softmax.told(asked, asked.row(), EN) if one.picture.key == name)


def test_bars_are_the_scores_and_the_weights_and_a_masked_key_is_a_mark_and_no_bar():
    asked = ROWS["masked"]
    figure = picture("row", asked).picture.figure
    above, mark, below, uniform = figure.data
    np.testing.assert_array_equal(above.y, [2, -1, np.nan, 4])
    np.testing.assert_array_equal(below.y, asked.row().p)
    assert list(above.marker.color) == [theme.ABOVE_COLOR, theme.BELOW_COLOR, theme.BELOW_COLOR, theme.ABOVE_COLOR]
    assert (list(mark.x), list(mark.text), mark.yaxis) == ([2], ["−Inf"], "y50")
    assert list(uniform.y) == [1 / 3, 1 / 3] and uniform.yaxis == below.yaxis == "y2"
    assert figure.layout.title.subtitle.text == EN("chart.below_axis", count=1)


def test_the_sweep_marks_its_peak_and_the_row_and_no_peak_where_there_is_none():
    asked = ROWS["typical"]
    sweep = asked.row().sweep
    lines = picture("sweep", asked).picture.figure.data
    peak, own = lines[1], lines[2]
    assert (peak.x[0], peak.y[0]) == (SCALES[sweep.top], sweep.norm.max())
    assert (own.x[0], own.y[0]) == (1, asked.row().jacobian_norm)
    assert [line.showlegend for line in lines] == [True, True, True, False, False]
    for name in ("uniform", "two", "tie", "single"):
        assert len(picture("sweep", ROWS[name]).picture.figure.data) == 4


def test_the_jacobian_has_no_colour_at_zero_and_a_long_row_shows_its_largest_weights():
    figure = picture("jacobian", ROWS["typical"]).picture.figure
    colors = figure.layout.coloraxis
    assert colors.cmin == -colors.cmax
    middle = [color for place, color in colors.colorscale if place == 0.5]
    assert all(color.endswith(",0)") for color in middle)
    np.testing.assert_array_equal(figure.data[0].customdata, ROWS["typical"].row().jacobian)
    asked = ROWS["long"]
    row, one = asked.row(), picture("jacobian", asked).picture
    assert one.remarks == (EN("softmax.cut", kept=64, total=512),)
    kept = [int(name) for name in one.figure.data[0].x]
    assert sorted(row.p[kept]) == sorted(np.sort(row.p)[-64:])
    np.testing.assert_array_equal(one.figure.data[0].customdata, row.jacobian[np.ix_(kept, kept)])


def test_the_gradient_says_its_sum_and_its_share_of_what_came():
    asked = Asked("own", (0.0, 0.0))
    one = picture("gradient", asked)
    np.testing.assert_allclose(one.picture.figure.data[0].y, [0.25, -0.25])
    assert one.said == EN("softmax.gradient_said", came=EN("softmax.came_key", key=0), sum="0", size="0.354",
                          upstream="1", share="35.4")


def test_the_theory_is_the_quadrature_its_points_lie_on_it_and_the_guess_is_said_to_be_wrong():
    asked = ROWS["typical"]
    one = picture("theory", asked)
    curve, guess, points, own = one.picture.figure.data[:4]
    np.testing.assert_array_equal(curve.y, gaussian_softmax(np.array(curve.x), 64).entropy)
    assert np.nanmin(guess.y) >= 0 and np.isnan(guess.y[-1])
    exact = gaussian_softmax(np.array(points.x), 64).entropy
    assert (abs(points.y - exact) <= 2 * points.error_y.array + 1e-5).all()
    assert (own.x[0], own.y[0]) == (asked.row().spread, asked.row().entropy)
    assert EN("softmax.theory_said", at="2", off="0.484", n=64) == one.said
    outside = picture("theory", ROWS["long"]).picture
    assert len(outside.remarks) == 1 and len(outside.figure.data) == 5


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("draw", [lambda t: charts.bars([], charts.Frame("", "", ""), t),
                                  lambda t: charts.curves([], charts.Frame("", "", ""), t),
                                  lambda t: charts.bars([charts.Bars(np.array([np.nan]), "", "")],
                                                        charts.Frame("", "", ""), t)])
def test_a_chart_without_a_finite_value_comes_out_whole(draw, lang):
    json.dumps(component._bare(draw(Words(lang))), allow_nan=False)


# in the browser

browser = pytest.mark.browser
CELLS = "return Array.from(gd._fullData[0].customdata, row => Array.from(row))"
Y = "return Array.from(gd.data[{trace}].y._inputArray ?? gd.data[{trace}].y)"


def metrics_say(visit, row):
    """Wait until the numbers on the page are those of the row."""
    expect(visit.page.get_by_test_id("stMetricValue")).to_have_text(
        [explain.number(value) for value in softmax.measures(row).values()], timeout=30_000)


@browser
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_cold_link_gives_the_pictures_and_the_numbers_of_the_engine(visit, lang):
    visit.open(f"/softmax?lang={lang}&n=40&std=2&seed=3&temperature=0.5&upstream=normal")
    row = softmax_row(gaussian_scores(40, 2.0, 3), 0.5)
    metrics_say(visit, row)
    np.testing.assert_allclose(visit.chart(Y.format(trace=1)), row.p, rtol=1e-12)
    np.testing.assert_allclose(visit.chart(Y.format(trace=0), 1), row.sweep.norm, rtol=1e-12)
    np.testing.assert_allclose(visit.chart(CELLS, 2), row.jacobian, rtol=1e-12)
    assert len(visit.chart("return gd.data", 4)) == 7
    expect(visit.page.get_by_role("heading", name=Words(lang)("softmax.title"))).to_be_visible()
    expect(visit.page.get_by_text(softmax.verdict(row, Words(lang)))).to_be_visible()
    assert "{" not in visit.page.inner_text("body")


@browser
def test_a_bad_link_is_answered_with_a_notice_and_a_whole_page(visit):
    visit.open("/softmax?lang=en&n=1&std=x&scores=1,<b>&source=q")
    said = visit.page.get_by_test_id("stAlert").all_inner_texts()
    assert [word in text for word, text in zip(["“q”", "<b>", "“1”", "“x”"], said, strict=True)] == [True] * 4
    metrics_say(visit, Asked().row())
    visit.page.wait_for_url(lambda url: "n=1" not in url and "scores" not in url)


@browser
def test_refused_scores_say_why_and_are_kept_beside_the_last_good_row(visit):
    good = softmax_row(np.array([2.0, -1.0, 0.5, 4.0]))
    visit.open("/softmax?lang=en&source=own&scores=2,-1,0.5,4")
    box = visit.page.get_by_role("textbox", name=EN("softmax.scores"))
    box.fill("3, 1, nan")
    box.press("Control+Enter")
    expect(visit.page.get_by_test_id("stAlert")).to_contain_text("“nan”")
    visit.settle()
    metrics_say(visit, good)
    visit.page.get_by_test_id("stSidebar").get_by_text("中文").click()
    visit.page.wait_for_url("**lang=zh**")
    visit.settle()
    box = visit.page.get_by_role("textbox", name=Words("zh")("softmax.scores"))
    assert box.input_value() == "3, 1, nan"
    assert "scores" not in visit.page.url  # 2, −1, 0.5, 4 is the default
    box.fill("3, 1, −inf")
    box.press("Control+Enter")
    visit.page.wait_for_url("**scores=3%2C1%2C-inf**")
    visit.settle()
    metrics_say(visit, softmax_row(np.array([3.0, 1.0, -np.inf])))


@browser
def test_a_row_to_begin_with_fills_the_controls_and_the_link_and_back_leads_back(visit):
    visit.open("/softmax?lang=en&n=32")
    visit.page.get_by_role("button", name=EN("softmax.preset_saturated")).click()
    visit.page.wait_for_url("**std=8**seed=5**")
    visit.settle()
    metrics_say(visit, PRESETS["saturated"].row())
    assert visit.page.get_by_role("slider", name=EN("softmax.n")).input_value() == "64"
    visit.page.go_back()
    visit.page.wait_for_url("**n=32**")
    visit.settle()
    metrics_say(visit, Asked(n=32).row())
