"""The precision page: what a number format does to a norm, of one stack in several formats and of numbers alone."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import PRECISION
from pages.ui.views import PRECISION_VIEWS

comparing.page(PRECISION, PRECISION_VIEWS)
