"""The sweep page as a visitor meets it: a grid computed by the real workers, stopped, gone on with, and its cells."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from browser import Visit
from playwright.sync_api import Browser, expect

from core.drift import drift
from core.experiment import parse
from core.outcomes import OUTCOMES
from core.trace import Trace
from core.train import train
from pages.ui import axes, link
from pages.ui.link import View
from pages.ui.places import SWEEP
from pages.ui.text import Words

pytestmark = pytest.mark.browser

SMALL = {"model.n_layers": 3, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2, "input.seq_len": 16}


def address(lang="en", base=SMALL, **shown):
    view = View(base=parse({}).with_values(base), shown=SWEEP.defaults | shown)
    return f"/sweep?{urlencode({**link.write(view, SWEEP), 'lang': lang})}"


def cells(visit: Visit):
    visit.settle()
    return np.array([[np.nan if value is None else value for value in row] for row in visit.chart(
        "const c = gd.data[0].customdata; const rows = c._inputArray ?? c;"
        "return Array.from(rows, row => Array.from(row, v => Number.isFinite(v) ? v : null))")])


def compute(visit: Visit, lang="en"):
    main = visit.page.get_by_test_id("stMain")
    buttons = [main.get_by_role("button", name=Words(lang)(f"sweep.{name}"), exact=True)
               for name in ("start", "go_on", "stop")]
    buttons[0].or_(buttons[1]).first.click()
    waited = 0
    while any(button.count() for button in buttons):  # one of them stands there as long as a cell is missing
        assert (waited := waited + 200) < 90_000, "the sweep took too long"
        visit.page.wait_for_timeout(200)
    visit.settle()


def engine(**changes):
    described = parse({}).with_values(SMALL | {"protocol.device": "cpu"} | changes)
    return Trace(tuple(train(described)))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_grid_is_computed_and_its_numbers_are_the_engines(visit: Visit, lang: str) -> None:
    seed = {"en": 1, "zh": 2}[lang]
    visit.open(address(lang, SMALL | {"protocol.seed": seed}, across="model.init_gain=0.5,2"))
    assert np.isnan(cells(visit)).all()
    compute(visit, lang)
    expected = [[drift(engine(**{"model.norm": norm, "model.init_gain": gain, "protocol.seed": seed})).growth
                 for gain in (0.5, 2.0)] for norm in ("layernorm", "none")]
    np.testing.assert_allclose(cells(visit), expected, rtol=1e-5)
    visit.open(address(lang, SMALL | {"protocol.seed": seed}, across="model.init_gain=0.5,2", outcome="entropy_norm"))
    np.testing.assert_allclose(cells(visit)[1, 1], OUTCOMES["entropy_norm"].read(engine(
        **{"model.norm": "none", "model.init_gain": 2.0, "protocol.seed": seed})), rtol=1e-5)


def test_a_cell_that_is_clicked_opens_its_run(visit: Visit) -> None:
    visit.open(address(base=SMALL | {"protocol.seed": 3}, across="model.n_layers=1,2", down=""))
    compute(visit)
    box = visit.page.locator(".driftscope-chart .nsewdrag").first.bounding_box()
    visit.page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 0.5 * box["height"])
    visit.page.wait_for_url(re.compile("cell=0.1"))
    visit.page.get_by_role("link", name="Open in: Drift").click()
    visit.page.wait_for_url(re.compile("/drift"))
    query = {name: values[0] for name, values in parse_qs(urlsplit(visit.page.url).query).items()}
    shown, notices = link.read(query)
    assert (shown.base.model.n_layers, shown.base.protocol.seed, shown.variants, notices) == (2, 3, (), [])


def test_a_sweep_that_is_stopped_goes_on_with_what_is_missing_also_in_another_browser(
        visit: Visit, chromium: Browser) -> None:
    wanted = address(base=SMALL | {"model.n_layers": 48}, across="protocol.seed=" + ",".join(map(str, range(40))),
                     down="")
    visit.open(wanted)
    visit.page.get_by_role("button", name="Compute the grid").click()
    stop = visit.page.get_by_test_id("stMain").get_by_role("button", name="Stop")
    stop.wait_for()
    while not np.isfinite(cells(visit)).any():
        visit.page.wait_for_timeout(200)
    stop.click()
    visit.page.get_by_role("button", name="Compute what is missing").wait_for(timeout=30_000)
    there = np.isfinite(cells(visit)).sum()
    assert there < 40
    other = chromium.new_context(locale="en-US")
    guest = Visit(other.new_page(), visit.address).open(wanted)
    assert np.isfinite(cells(guest)).sum() == there
    compute(guest)
    assert np.isfinite(cells(guest)).all() and guest.errors == []
    other.close()


def test_cells_that_do_not_go_together_are_said_and_the_others_computed(visit: Visit) -> None:
    visit.open(address(base=SMALL | {"protocol.seed": 4}, across="model.n_heads=2,3", down=""))
    expect(visit.page.get_by_text("Refused cells: 1")).to_be_visible()
    compute(visit)
    assert np.isfinite(cells(visit)).tolist() == [[True, False]]


def test_a_sweep_of_trainings_shows_what_they_learned_and_leads_to_the_live_page(visit: Visit) -> None:
    base = SMALL | {"protocol.steps": 5, "protocol.seed": 5}
    visit.open(address(base=base, across="protocol.lr=0.001,0.1", down="", outcome="loss_change", cell="0.1"))
    compute(visit)
    expected = [[OUTCOMES["loss_change"].read(engine(**{"protocol.steps": 5, "protocol.seed": 5, "protocol.lr": rate}))
                 for rate in (0.001, 0.1)]]
    np.testing.assert_allclose(cells(visit), expected, rtol=1e-4)
    visit.page.get_by_role("link", name="Open in: Live training").click()
    visit.page.wait_for_url(re.compile("/live"))
    visit.page.get_by_text("done, 5 updates").wait_for()


@pytest.mark.parametrize(("query", "said"), [
    ("across=nonsense", "Allowed: a field and its values"), ("down=x", "Allowed: nothing, or a field"),
    ("cell=a", "the numbers of a row and a column"), ("across=model.nonsense%3D1,2", "nonsense"),
    ("across=protocol.seed%3D" + ",".join(map(str, range(60))) + "&down=model.n_layers%3D1,2,3,4,5,6,7",
     "The grid has 420 cells"),
    ("across=model.norm%3Dlayernorm,layernorm&down=", "twice"),
    ("across=model.norm%3Dlayernorm", "two different ones"), ("cell=99.99", "Click a cell"),
    ("across=model.norm%3D<script>alert(1)</script>&down=", "Refused cells: 1"),
])
def test_a_bad_link_is_said_and_leaves_the_page_as_it_is(visit: Visit, query: str, said: str) -> None:
    visit.open(f"/sweep?lang=en&{query}")
    expect(visit.page.get_by_text(said).first).to_be_visible()
    assert visit.page.get_by_test_id("stException").count() == 0 and visit.errors == []


@pytest.mark.parametrize("path", sorted(axes.SUGGESTED))
def test_every_suggested_value_is_accepted(path: str) -> None:
    for value in axes.suggested(path):
        parse({}).with_values({path: axes.values_of(value)[0]})
