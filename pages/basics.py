"""The first experiments, of numbers alone: marks of two exams, and a copy of a copy."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import BASICS
from pages.ui.views import BASICS_VIEWS

comparing.page(BASICS, BASICS_VIEWS)
