"""The entropy page: what attention does with its scores, head by head, why, and what theory says of it."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import ENTROPY
from pages.ui.views import ENTROPY_VIEWS

comparing.page(ENTROPY, ENTROPY_VIEWS)
