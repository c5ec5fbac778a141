"""The worked tensor: what may be written, links, pictures and words without a browser, then as a visitor meets it."""

import json
import math
import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from core import service, table
from core.pitfalls import PITFALLS, outcome
from core.pools import POOLS
from core.tables import NORMS
from core.worked import WORKED, worked
from pages.ui import charts, component, explain, tensor_link, tensor_text, worksheet
from pages.ui.tensor_link import CHOICES, CUBE, PRESETS, Asked
from pages.ui.tensor_text import LARGEST, LEAST, MOST
from pages.ui.text import LANGUAGES, Words
from pages.ui.views import tensor

ROOT = Path(__file__).resolve().parents[1]
EN = Words("en")
ENTRY = st.floats(-LARGEST, LARGEST) | st.sampled_from([math.nan, math.inf, -math.inf])
TENSOR = st.tuples(*[st.integers(low, high) for low, high in zip(LEAST, MOST, strict=True)]).flatmap(
    lambda shape: arrays.arrays(float, shape, elements=ENTRY, fill=st.nothing() if np.prod(shape) < 40 else ENTRY))


@st.composite
def questions(draw):
    x = draw(TENSOR)
    listed = st.integers(0, 1).flatmap(lambda one: st.lists(
        st.floats(-1e3, 1e3), min_size=1 if one else x.shape[2], max_size=1 if one else x.shape[2])).map(
            lambda numbers: "_".join(map(tensor_text.said, numbers)))
    return Asked(
        tensor_text.spelled(x), draw(st.floats(1e-6, 1e6)), draw(st.sampled_from(CHOICES["norm"])),
        draw(st.floats(0, 1)), draw(st.sampled_from(tensor_link.divisors(x.shape[2]))),
        draw(st.sampled_from(CHOICES["pool"])), draw(listed), draw(listed),
        ".".join(str(draw(st.integers(0, size - 1))) for size in x.shape))


# what may be written


@given(TENSOR)
def test_a_tensor_is_read_however_it_is_written(x):
    wide = x.tolist()
    csv = "\n\n".join("\n".join(",".join(map(repr, token)) for token in sample) for sample in wide)
    written = [repr(x), repr(wide), csv, f"np.array({wide}, dtype=np.float64)", repr(tuple(map(tuple, wide)))]
    written += [str(torch.tensor(wide, dtype=torch.float64))] if np.isfinite(x).all() else []
    for text in written:
        found, notice = tensor_text.tensor_of(text)
        assert notice is None
        np.testing.assert_allclose(found, x, rtol=1e-3 if "tensor" in text else 1e-7, atol=1e-4 * ("tensor" in text))
    np.testing.assert_array_equal(tensor_text.unspelled(tensor_text.spelled(x))[0], x)


@pytest.mark.parametrize(("text", "expected"), [
    ("1, 2, 3", [[[1, 2, 3]]]), ("1 2\n3\t4", [[[1, 2], [3, 4]]]), ("1,2\n\n3,4\n", [[[1, 2]], [[3, 4]]]),
    ("1；2，3、−4", [[[1, 2, 3, -4]]]), ("[1, -inf, nan]", [[[1, -np.inf, np.nan]]]), ("[[1. 2.]\n [3. 4.]]", [[[1, 2],
                                                                                                     [3, 4]]]),
    ("array([1., 2.], dtype=float32)", [[[1, 2]]]), ("tensor([[1., -2.]], device='cuda:0')", [[[1, -2]]]),
    ("[np.float64(1.0), np.float64(2.5)]", [[[1, 2.5]]]), ("(1, 2)", [[[1, 2]]]), ("−∞ 1", [[[-np.inf, 1]]]),
    ("1e-4,2E-4", [[[1e-4, 2e-4]]])])
def test_these_are_tensors(text, expected):
    found, notice = tensor_text.tensor_of(text)
    assert notice is None
    np.testing.assert_array_equal(found, np.array(expected, float))


REFUSED = [
    ("", "empty"), ("[]", "empty"), ("1", "shape"), ("1 " * 17, "shape"), ("1 2\n" * 9, "shape"), ("[[1, 2], [3]]",
    "features"), ("1 2\n3 4 5", "features"), ("[[[1, 2]], [[1, 2], [3, 4]]]", "tokens"), ("[[1, 2], 3]", "nested"),
    ("[[[[1, 2]]]]", "depth"), ("1,,2", "number"), ("a,b", "number"), ("[True, 1]", "number"), ("['1', 2]", "number"),
    ("1,1.1e30", "number"), ("[1, 2e31]", "number"), ("[1j, 2]", "number"), ("[1 2 ... 8 9]", "number"),
    ("[1, 2", "literal"), ("[3 - 1, 4]", "literal"), ("[" * 5000, "literal"), ("[1" + "0" * 5000 + ", 1]", "literal"),
    ("[x for x in (1, 2)]", "literal"), ("__import__('os')", "literal"), ("1 " * 12_001, "long")]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_these_are_no_tensors_and_it_is_said_why(text, why):
    found, notice = tensor_text.tensor_of(text)
    assert found is None and notice.key == f"tensor.refused_{why}"
    for lang in LANGUAGES:
        assert "{" not in explain.notice(notice, Words(lang))


def test_nothing_that_is_written_is_run(tmp_path):
    for call in (f"open({str(tmp_path / 'a')!r}, 'w')", f"__import__('os').mkdir({str(tmp_path / 'b')!r})"):
        for text in (call, f"[{call}, 1]", f"np.array([{call}])", f"array(({call}))"):
            assert tensor_text.tensor_of(text)[0] is None
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_says_what_was_wrong_and_what_is_allowed():
    said = {why: explain.notice(tensor_text.tensor_of(text)[1], EN).replace("\\", "") for text, why in REFUSED}
    assert said["features"] == ("Token 1 of sample 0 has 3 features, the first one 2; all must have the same number.")
    assert said["shape"] == "The shape is 1×9×2; allowed are B 1 … 6, T 1 … 8, D 2 … 16."


# links


@given(questions())
def test_a_link_says_what_is_asked_for_both_ways(asked):
    assert tensor_link.read(asked.write()) == (asked, [])


@pytest.mark.parametrize(("query", "keys"), [
    ({"x": "1_2~3"}, ["tensor.refused_features"]), ({"x": "1_<b>"}, ["tensor.refused_number"]),
    ({"x": "__import__('os')"}, ["tensor.refused_literal"]), ({"scale": "0"}, ["link.choice"]),
    ({"scale": "nan"}, ["link.choice"]), ({"eps": "-1"}, ["link.choice"]), ({"norm": "<b>", "pool": "x"}, [
        "link.choice"] * 2), ({"groups": "3", "norm": "groupnorm"}, ["tensor.refused_groups"]), ({"groups": "3"}, []),
    ({"groups": "0"}, ["link.choice"]), ({"gamma": "1_2"}, ["tensor.refused_gamma"]), ({"beta": "inf"}, [
        "tensor.refused_number"]), ({"beta": "1_2_3"}, ["tensor.refused_beta"]), ({"gamma": "_".join("1" * 17)}, [
            "tensor.refused_count"]), ({"at": "2.0.0"}, ["link.choice"]), ({"at": "0.0"}, ["link.choice"]),
    ({"at": "0.0.-1"}, ["link.choice"])])
def test_a_bad_link_is_answered_with_notices_and_what_is_usual(query, keys):
    asked, notices = tensor_link.read(query)
    assert [notice.key for notice in notices] == keys
    assert (asked.x, asked.at, asked.gamma, asked.beta) == (Asked().x, Asked().at, Asked().gamma, Asked().beta)
    for lang in LANGUAGES:
        for notice in notices:
            assert "{" not in explain.notice(notice, Words(lang))


# pictures and words

BROKEN = Asked("2_nan_1~1_3_-inf~5_5_5", groups=1, gamma="1_2_3", beta="0.5")
LARGE = Asked(tensor_text.spelled(np.random.default_rng(0).standard_normal(MOST)), at="5.7.15")
QUESTIONS = {**PRESETS, "broken": BROKEN, "large": LARGE, "huge": Asked("1e30_-1e30", 1e6),
             "alone": Asked(pool="batch"), "one": Asked("1_2_4", pool="batch", groups=1),
             "bare": Asked(eps=0.0, at="1.1.0")}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_norm_of_every_tensor_has_whole_pictures_words_and_tables(name, lang):
    t = Words(lang)
    for norm in NORMS:
        asked, _ = tensor_link.settled(Asked(**{**vars(QUESTIONS[name]), "norm": norm}))
        sheet = worked(norm, asked.tensor(), asked.dials())
        pictures = [tensor.block(asked, sheet, t), tensor.pools(asked, sheet, t), tensor.steps(sheet),
                    tensor.pitfalls(asked, sheet.values("x"))]
        said = [*tensor.remarks(asked, sheet, t), t(f"tensor.about_{norm}"),
                *(t(f"tensor.step_{step.name}") for step in sheet.steps),
                *(t(f"tensor.pool_of_{pool}", groups=1) for pool in POOLS),
                *(tensor.judged(outcome(pitfall, sheet.values("x"), asked.eps), sheet.labels.shape, t)
                  + t(f"tensor.pitfall_{pitfall}") + t(f"tensor.pitfall_{pitfall}_why") for pitfall in PITFALLS)]
        assert not [one for one in said if "{" in one]
        for picture in pictures:
            assert all(t(f"{about}.{key}") for key in picture.subject.extra for about in ("extra", "what", "formula"))
            if picture.figure is not None:
                json.dumps(component._bare(picture.figure), allow_nan=False)
                assert len(picture.figure.data) <= 10
            columns = picture.columns()
            assert {len(column) for column in columns.values()} == {sheet.labels.size}
            for write in table.FORMATS.values():
                write(table.table_of(columns))


def fronts(figure, key):
    """How many cubes have this look: polygons of five points with a gap behind each."""
    found = [trace for trace in figure.data if trace.name == EN(key) and trace.showlegend is None]
    return sum(int(np.isnan(trace.x).sum()) for trace in found)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["cube", "alone", "rows", "large"])
def test_the_cubes_that_are_lit_are_those_that_share_a_statistic(name, norm):
    asked, _ = tensor_link.settled(Asked(**{**vars(QUESTIONS[name]), "norm": norm}))
    sheet = worked(norm, asked.tensor(), asked.dials())
    figure = tensor.block(asked, sheet, EN).figure
    lit = int(sheet.sharing(asked.entry).sum()) - 1
    assert [fronts(figure, f"chart.cube_{look}") for look in ("lit", "chosen", "other")] == [
        lit, 1, sheet.labels.size - lit - 1]
    (marks,) = [trace for trace in figure.data if trace.ids is not None]
    assert marks.ids[int(np.ravel_multi_index(asked.entry, sheet.labels.shape))] == f"{asked.at}|{sheet.pool}"
    lit_trace = [trace for trace in figure.data if trace.name == EN("chart.cube_lit")]
    assert not lit_trace or lit_trace[-1].fillpattern.shape == "/"  # not a colour alone


def test_no_cube_hides_another_and_all_are_inside_the_drawing():
    for question in QUESTIONS.values():
        asked, _ = tensor_link.settled(question)
        sheet = worked(asked.norm, asked.tensor(), asked.dials())
        for figure in (tensor.block(asked, sheet, EN).figure, tensor.pools(asked, sheet, EN).figure):
            (marks,) = [trace for trace in figure.data if trace.ids is not None]
            places = np.stack([marks.x, marks.y], 1)[:sheet.labels.size]
            apart = np.abs(places[:, None] - places[None]).max(-1) + 9 * np.eye(len(places))
            assert apart.min() >= 1.35
            for axis, values in (("xaxis", marks.x), ("yaxis", marks.y)):
                low, high = figure.layout[axis].range
                assert low <= min(values) - 0.5 and max(values) + 0.5 <= high


def test_what_is_not_finite_is_named_on_its_cube_and_marked_where_it_comes_out():
    sheet = worked("rmsnorm", BROKEN.tensor())
    figure = tensor.block(BROKEN, sheet, EN).figure
    assert "NaN" in str([trace.text for trace in figure.data]) and "−Inf" in str([trace.text for trace in figure.data])
    (warnings,) = [trace for trace in figure.data if trace.name == EN("chart.cube_broken")]
    assert len(warnings.x) == sheet.steps[-1].broken.sum() == 4


def test_a_row_of_cells_joins_what_is_shared_and_marks_what_is_not_finite():
    joined = worksheet.row(np.array([2.0, 2.0, 6.0, 6.0]), "mean", 3, np.array([4, 4, 5, 5]))
    assert joined.count("<td") == joined.count("colspan='2'") == 2
    assert "rgba(192,106,0,0.55)" not in joined  # a statistic has no colour
    cells = worksheet.row(np.array([-1.3416407, np.nan, -np.inf, 1.5e-7]), "x", 0)
    assert [said in cells for said in ("−1.3416<", "▲ NaN", "▲ −∞", "1.5·10⁻⁷")] == [True] * 4
    assert cells.count("dashed") == 2 and cells.count("3px solid") == 1


def test_the_constant_token_and_two_samples_alone_are_told():
    def told(asked):
        return tensor.remarks(asked, worked(asked.norm, asked.tensor(), asked.dials()), EN)

    assert EN("tensor.constant") in told(Asked(at="1.1.2"))
    assert EN("tensor.constant_lost") in told(QUESTIONS["bare"])
    assert EN("tensor.constant") not in told(Asked(norm="rmsnorm", at="1.1.2"))
    assert EN("tensor.two_samples") in told(Asked(norm="batchnorm", pool="batch"))
    assert EN("tensor.broken", before=2, after=6, total=9) in told(BROKEN)


def test_a_norm_is_under_exactly_one_way_to_pool():
    named = " ".join(" ".join(tensor._norms(pool, EN)) for pool in POOLS)
    assert all(EN(f"norm.{name}") in named for name in WORKED)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_chart_of_cubes_speaks_its_language(lang):
    t = Words(lang)
    block = charts.Block("token", [], np.ones((1, 1, 2)), np.array([[[True, True]]]), np.zeros((1, 1, 2), bool),
                         (0, 0, 0))
    names = {trace.name for trace in charts.CHARTS["cubes"]([block], charts.Frame("", "x", ""), t).data}
    assert {t("chart.cube_chosen"), t("chart.cube_lit")} <= names


# the page

UNFILLED = re.compile(r"\{[a-z_]+\}")


def page(**query):
    at = AppTest.from_file(str(ROOT / "pages" / "ui" / "shell.py"), default_timeout=60)
    at.query_params.update(query)
    at.run()
    at.switch_page(str(ROOT / "pages" / "tensor.py"))
    at.query_params.update(query)
    return at.run()


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store of its own: the home page, where a visit begins, asks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('tensor') / 'store.db'}")
        yield
        service.stop()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("norm", NORMS)
def test_the_page_is_whole_for_every_norm(norm, lang):
    at = page(lang=lang, norm=norm, at="1.1.2")
    assert not at.exception and not at.error and not at.warning
    assert [title.value for title in at.title] == [Words(lang)("tensor.title")]
    formulas = [one.value for one in at.markdown if "$" in one.value]
    assert len(formulas) == len(worked(norm, Asked().tensor()).steps)
    assert not [one for one in (*at.markdown, *at.caption) if "$" not in one.value and UNFILLED.search(one.value)]
    assert sum("figure" in one.proto.json for one in at.get("bidi_component")) == 2


def test_a_preset_brings_its_norm_and_its_scale():
    at = page(lang="en")
    at.button(key="tensor.preset.tiny").click().run()
    assert not at.exception
    assert (at.query_params["x"], at.query_params["scale"]) == ("1_2_3_4", "0.0001")
    assert at.session_state["tensor.norm"] == "layernorm_std_eps"
    assert any("26 times" in one.value for one in at.markdown)


def test_gamma_that_does_not_fit_is_replaced_with_a_notice_and_comes_back():
    at = page(lang="en")
    at.text_input(key="tensor.gamma").input("1, 2, 3, 4").run()
    assert at.query_params["gamma"] == "1_2_3_4"
    at.text_input(key="tensor.gamma").input("1, x").run()
    assert "“x”" in at.error[0].value and at.query_params["gamma"] == "1_2_3_4"
    at.text_input(key="tensor.gamma").input("1, 2").run()
    assert at.info[0].value == EN("tensor.refused_gamma", count=2, width=4, used=1)
    assert "gamma" not in at.query_params
    at.text_input(key="tensor.gamma").input("2").run()
    assert not at.info and at.query_params["gamma"] == "2"


def test_a_dial_keeps_its_value_while_another_norm_hides_it():
    at = page(lang="en", norm="groupnorm", groups="4")
    at.segmented_control(key="tensor.norm").set_value("rmsnorm").run()
    at.segmented_control(key="tensor.norm").set_value("groupnorm").run()
    assert at.session_state["tensor.groups"] == 4 and not at.exception


# in the browser

browser = pytest.mark.browser
CELL = "table[aria-label='{name}'] td"


def cells_say(visit, asked, step="output", lang="en"):
    """Wait until the cells of a step are those of the norm."""
    sheet, (b, token, _) = worked(asked.norm, asked.tensor(), asked.dials()), asked.entry
    expect(visit.page.locator(CELL.format(name=Words(lang)(f"tensor.step_{step}")))).to_have_text(
        [worksheet.said(value, worksheet.FIGURES) for value in sheet.values(step)[b, token].tolist()], timeout=30_000)


def entry_place(visit, place, number=0):
    """Return where an entry's cube is on the screen."""
    find = f"gd.data[trace].ids.findIndex(id => id.startsWith('{place}|'))"
    return visit.chart(
        f"const trace = gd._fullData.findIndex(one => one.ids), found = {find};" """
        const at = gd.getBoundingClientRect(), { xaxis, yaxis } = gd._fullLayout;
        const of = name => (gd.data[trace][name]._inputArray ?? gd.data[trace][name])[found];
        return [at.left + xaxis._offset + xaxis.c2p(of("x")), at.top + yaxis._offset + yaxis.c2p(of("y"))]""", number)


@browser
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_cold_link_gives_the_steps_of_the_norm_and_the_lit_cubes(visit, lang):
    asked = Asked(norm="groupnorm", gamma="1_2_1_0.5", beta="0.5", at="1.0.3", scale=10.0)
    visit.open(f"/tensor?lang={lang}&{urlencode(asked.write())}")
    cells_say(visit, asked, lang=lang)
    lit = visit.chart(f"return gd.data.filter(one => one.name === '{Words(lang)('chart.cube_lit')}').length")
    assert lit == 2
    assert visit.page.locator(".katex").count() >= 6
    assert "{" not in visit.page.inner_text("[data-testid=stMain] h1, [data-testid=stMain] h2")


@browser
def test_an_entry_is_chosen_by_a_click_and_by_keyboard_and_the_link_says_it(visit):
    visit.open("/tensor?lang=en&norm=batchnorm")
    cells_say(visit, Asked(norm="batchnorm"))
    for chart, place in ((0, "1.2.1"), (1, "0.1.3")):
        visit.page.locator(".driftscope-chart").nth(chart).scroll_into_view_if_needed()
        visit.page.mouse.click(*entry_place(visit, place, chart))
        visit.page.wait_for_url(f"**at={place}**")
        visit.settle()
        cells_say(visit, Asked(norm="batchnorm", at=place))
    box = visit.page.get_by_label(EN("tensor.at_t"), exact=True)
    box.focus()
    box.press("ArrowUp")
    box.press("Enter")
    visit.page.wait_for_url("**at=0.2.3**")
    cells_say(visit, Asked(norm="batchnorm", at="0.2.3"))


def write_cell(visit, row, column, text):
    """Open a cell of the table, and write into it with the keyboard."""
    table = visit.page.get_by_test_id("stDataFrame")
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    width = (box["width"] - 60) / 4
    editor = visit.page.locator(".gdg-input")
    visit.page.mouse.click(box["x"] + 60 + (column + 0.5) * width, box["y"] + 38 + 37 * (row + 0.5))
    expect(visit.page.locator("[data-testid=stDataFrame] [role=gridcell][aria-selected=true]")).to_have_count(1)
    visit.page.keyboard.press("Enter")
    editor.fill(text)
    editor.press("Enter")
    editor.wait_for(state="detached")
    visit.settle()


@browser
def test_a_cell_is_edited_by_keyboard_and_a_refused_one_stays_where_it_was_written(visit):
    visit.open("/tensor?lang=en")
    visit.page.get_by_test_id("stDataFrame").wait_for()
    write_cell(visit, 0, 1, "10")
    after = Asked(x=CUBE.replace("2_4_6_8", "2_10_6_8"))
    visit.page.wait_for_url("**x=2_10_6_8**")
    cells_say(visit, after)
    write_cell(visit, 1, 0, "nan")
    after = Asked(x=after.x.replace("1_3_5_7", "nan_3_5_7"))
    visit.page.wait_for_url("**nan_3_5_7**")
    write_cell(visit, 0, 1, "abc")
    said = EN("tensor.refused_cell", place="0.0.1", value="abc", limit="1e30")
    expect(visit.page.get_by_test_id("stAlert")).to_contain_text(said)
    cells_say(visit, after)
    visit.page.get_by_test_id("stSidebar").get_by_text("中文").click()
    visit.page.wait_for_url("**lang=zh**")
    visit.settle()
    expect(visit.page.get_by_test_id("stAlert")).to_contain_text("“abc”")
    cells_say(visit, after, lang="zh")
    write_cell(visit, 0, 1, "4")
    visit.page.wait_for_url("**x=2_4_6_8~nan_3_5_7**")
    expect(visit.page.get_by_test_id("stAlert")).to_have_count(0)


@browser
def test_a_pasted_tensor_is_taken_or_it_is_said_why_not_and_back_leads_back(visit):
    visit.open("/tensor?lang=en&norm=rmsnorm")
    visit.page.get_by_text(EN("tensor.paste")).click()
    box = visit.page.get_by_role("textbox", name=EN("tensor.pasted"))
    for text, refused in (("[[1, 2], [3]]", True), ("array([[1., 2., 4.],\n       [5., 7., 6.]])", False)):
        box.fill(text)
        visit.page.get_by_role("button", name=EN("tensor.use")).click()
        if refused:
            expect(visit.page.get_by_test_id("stAlert")).to_contain_text("Token 1 of sample 0 has 1 features")
    visit.page.wait_for_url("**x=1_2_4~5_7_6**")
    visit.settle()
    cells_say(visit, Asked("1_2_4~5_7_6", norm="rmsnorm", groups=1))
    visit.page.go_back()
    visit.page.wait_for_url(lambda url: "x=" not in url)
    cells_say(visit, Asked(norm="rmsnorm"))
