"""The pages' scripts through Streamlit's own test harness: every page in every language, without a browser."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core import archive, service
from core.store import Store
from pages.ui import link
from pages.ui.link import View
from pages.ui.text import LANGUAGES, Words

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def computed(tmp_path_factory):
    """A store that holds the default comparison, as workers on a CPU would have left it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTSCOPE_STORE", f"sqlite:///{tmp_path_factory.mktemp('app') / 'store.db'}")
        store = Store()
        store.put_fact("device", "cpu")
        store.close()
        for variant in link.compared(View())[0]:
            archive.play(variant.experiment, keep=True)
        yield
        service.stop()


def opened(page, **query):
    at = AppTest.from_file(str(ROOT / "pages" / "ui" / "shell.py"), default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.run()
    if page != "home":
        at.switch_page(str(ROOT / "pages" / f"{page}.py"))
        for name, value in query.items():
            at.query_params[name] = value
        at.run()
    return at


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("page", ["home", "drift"])
def test_every_page_runs_in_every_language_and_draws_three_lines(page, lang):
    at = opened(page, lang=lang)
    assert not at.exception
    assert not at.error
    chart = json.loads(at.get("bidi_component")[-1].proto.json)  # on the drift page the map stands above it
    assert [line["name"] for line in chart["figure"]["data"]] == [Words(lang)(f"norm.{norm}") for norm in
                                                                  ("layernorm", "none", "rmsnorm")]


@pytest.mark.parametrize("key", ["view", "of"])
def test_a_control_that_holds_nothing_stands_for_its_default(key):
    at = opened("drift", lang="en")
    at.session_state[key] = None  # as after a message that the browser sent for another page
    at.run()
    assert not at.exception
    assert any("figure" in one.proto.json for one in at.get("bidi_component"))


@pytest.mark.parametrize("query", [{"layers": "5000"}, {"norm": "x"}, {"x": "1.AAAA"}, {"stat": "nope"}])
def test_a_bad_link_becomes_a_notice_and_the_default_picture(query):
    at = opened("drift", lang="en", **query)
    assert not at.exception
    assert len(at.warning) == 1
    assert next(iter(query.values())) in at.warning[0].value.replace("\\", "")
