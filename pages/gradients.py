"""The gradients page: what comes back, of a base and its variants: sites, parameters, clipping, at initialization."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import GRADIENTS
from pages.ui.views import GRADIENT_VIEWS

comparing.page(GRADIENTS, GRADIENT_VIEWS)
