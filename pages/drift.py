"""The drift page: what happens to the numbers over depth, of a base and its variants, at initialization."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import DRIFT
from pages.ui.views import VIEWS

comparing.page(DRIFT, VIEWS)
