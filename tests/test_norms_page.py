"""The norm bench as a visitor meets it: choose, rank, train, ask a question, and hand the link on."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from browser import Visit
from playwright.sync_api import expect

from core.bench import candidates
from core.experiment import parse
from core.outcomes import OUTCOMES
from core.trace import Trace
from core.train import train
from pages.ui import explain, link
from pages.ui.bench_views import QUESTIONS
from pages.ui.link import View
from pages.ui.places import NORM_BENCH
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2, "input.seq_len": 16}


def address(lang="en", base=SMALL, **shown):
    view = View(base=parse({}).with_values(base), shown=NORM_BENCH.defaults | shown)
    return f"/norms?{urlencode({**link.write(view, NORM_BENCH), 'lang': lang})}"


def cells(visit: Visit):
    """The ranking as rows of texts, without its head."""
    visit.settle()
    table = visit.page.locator("[data-testid=stMarkdown] table")
    table.wait_for()
    return [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in table.locator("tbody tr").all()]


def traces(**changes):
    base = parse({}).with_values(SMALL | {"protocol.device": "cpu"} | changes)
    axes = {"norms": ("layernorm", "none"), "placements": ("pre", "post"), "inits": ("xavier",), "scalings": ("plain",)}
    return [Trace(tuple(train(one.cell.experiment))) for one in candidates(base, axes)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_ranking_has_the_engines_numbers(visit: Visit, lang: str) -> None:
    t = Words(lang)
    visit.open(address(lang, view="ranking", norms="layernorm,none", by="growth"))
    visit.page.get_by_text(t("bench.column_norm_bytes")).first.wait_for()
    growth = sorted((OUTCOMES["growth"].read(trace) for trace in traces()), key=lambda value: abs(value - 1))
    assert [row[3] for row in cells(visit)] == [explain.number(value) for value in growth]
    assert [row[1] for row in cells(visit)][-1] == t("norm.none")
    assert cells(visit)[-1][-1] == "–"


def test_the_axes_are_chosen_by_clicks_and_the_link_keeps_them(visit: Visit) -> None:
    visit.open(address(norms="layernorm", placements="pre"))
    visit.page.get_by_role("button", name="sandwich").click()
    visit.page.wait_for_url(re.compile(r"placements=pre(%2C|,)sandwich"))
    visit.settle()
    names = visit.chart("return gd.data.filter(d => d.showlegend !== false).map(d => d.name)")
    assert names == ["pre-norm", "sandwich"]
    visit.page.get_by_role("radio", name="Small multiples").click()
    visit.page.wait_for_url(re.compile("view=multiples"))
    visit.open(visit.page.url.removeprefix(visit.address))
    titles = visit.chart("return gd.layout.annotations.map(a => a.text)")
    assert titles[:2] == ["<b>pre-norm</b>", "<b>sandwich</b>"]
    visit.page.get_by_role("button", name="LayerNorm", exact=True).click()  # the only norm: it stays
    visit.settle()
    assert "norms=layernorm" in visit.page.url


def test_candidates_are_trained_on_demand_and_ranked_by_what_they_learned(visit: Visit) -> None:
    visit.open(address(norms="layernorm,none", placements="pre", after="20", view="ranking", by="loss"))
    visit.page.get_by_role("button", name="Train all").click()
    head = visit.page.get_by_role("columnheader", name="loss (nats)")
    head.wait_for(timeout=60_000)
    expected = []
    for norm in ("layernorm", "none"):
        changes = {"protocol.steps": 20, "protocol.record_every": 20, "model.norm": norm}
        trace = Trace(tuple(train(parse({}).with_values(SMALL | {"protocol.device": "cpu"} | changes))))
        expected.append(trace.snapshots[-1].loss)
    heads = visit.page.locator("[data-testid=stMarkdown] th").all_inner_texts()
    place = [one.strip() for one in heads].index("loss (nats)")
    visit.page.wait_for_function("document.querySelectorAll('[data-testid=stMarkdown] tbody tr').length == 2")
    assert [row[place] for row in cells(visit)] == [explain.number(value) for value in sorted(expected)]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_a_state_of_the_page_with_a_link(visit: Visit, name: str) -> None:
    visit.open("/norms?lang=en&view=costs&norms=dyt")
    visit.page.get_by_role("button", name=Words("en")(f"bench.ask_{name}")).click()
    visit.page.wait_for_url(re.compile("view=ranking"))
    shown, notices = link.read(dict(parse_qsl(urlsplit(visit.page.url).query)), NORM_BENCH)
    changes, wanted = QUESTIONS[name]
    assert notices == [] and shown.shown == NORM_BENCH.defaults | wanted
    assert shown.base == NORM_BENCH.origin("pre_layernorm").with_values(changes)
    visit.page.get_by_role("button", name="Train all").wait_for(timeout=60_000)


def test_costs_of_all_norms_are_measured_and_say_where(visit: Visit) -> None:
    visit.open(address(view="costs", norms="layernorm,rmsnorm"))
    visit.page.get_by_text("16 features, float32").first.wait_for()
    assert len(visit.chart("return Array.from(gd.data[0].y._inputArray ?? gd.data[0].y)")) == 8
    expect(visit.page.get_by_text("µs forward and").first).to_be_visible()


@pytest.mark.parametrize(("query", "said"), [
    ("norms=nonsense", "Allowed: names of norms"), ("placements=pre,", "Allowed: names of placements"),
    ("inits=", "Allowed: names of inits"), ("scalings=<b>x</b>", "Allowed: names of residual scalings"),
    ("after=7", "after"), ("norm=none", "norm"), ("placements=pre,post&scalings=inv_sqrt_layer", "left out"),
    ("norms=layernorm,rmsnorm,none,dyt&placements=pre,post,sandwich,branch&inits=xavier,normal", "32 combinations"),
])
def test_a_bad_link_is_said_and_leaves_the_page_as_it_is(visit: Visit, query: str, said: str) -> None:
    visit.open(f"/norms?lang=en&{query}")
    expect(visit.page.get_by_role("alert").filter(has_text=said).first).to_be_visible()
    assert visit.page.get_by_test_id("stException").count() == 0 and visit.errors == []
