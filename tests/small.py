"""Links to pages with a small stack, and what is waited for on them."""

from __future__ import annotations

from urllib.parse import urlencode

from browser import Visit

from pages.ui import link
from pages.ui.link import View
from pages.ui.places import LIVE, Place

SMALL = {"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2, "input.batch": 2, "input.seq_len": 8}
TRAINED = LIVE.origin("pre_layernorm").with_values({**SMALL, "protocol.steps": 4})


def at(place: Place, **shown: str) -> str:
    """Return the link to a page that compares a small stack with one without a norm."""
    base = place.origin("pre_layernorm").with_values(
        {path: value for path, value in SMALL.items() if path not in place.withheld})
    view = View("pre_layernorm", base, ({"model.norm": "none"},) if place.most else (), {**place.defaults, **shown})
    return f"{place.name}?{urlencode(link.write(view, place))}"


def drawn(visit: Visit, charts: int) -> None:
    """Wait until so many charts are painted and the page has come to rest."""
    visit.page.wait_for_function(
        "count => [...document.querySelectorAll('.driftscope-chart')].filter(one => one._fullLayout).length >= count",
        arg=charts)
    visit.settle()
