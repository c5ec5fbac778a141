"""The BatchNorm page: who else's numbers a norm reads, measured: other tokens, the batch, padding, running averages."""

from __future__ import annotations

from pages.ui import comparing
from pages.ui.places import BATCHNORM
from pages.ui.views.batchnorm import BATCHNORM_VIEWS

comparing.page(BATCHNORM, BATCHNORM_VIEWS)
