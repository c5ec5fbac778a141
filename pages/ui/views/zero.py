"""Sizes that may be exactly 0: drawn over powers of ten, with 0 as a place of its own below them.

It knows charts and their axes, not what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pages.ui.charts import Frame
from pages.ui.text import Words

NOTHING_ELSE = (-0.08, 1.0)
"""The range of an axis on which all is 0: nothing is seen but that."""


def drawn(draw: Callable[[Frame, Words], go.Figure], values: Sequence[NDArray[np.floating]], frame: Frame,
          t: Words) -> go.Figure:
    """Draw sizes (none below 0) on the scale that fits `values`, all that is drawn; 0 is called “exactly 0” there."""
    together = np.concatenate([np.empty(0), *map(np.ravel, values)])
    seen = together[np.isfinite(together)]
    if not (seen > 0).any():
        figure = draw(replace(frame, y_scale="linear"), t)
        only = {"tickvals": [0.0], "ticktext": [t("batchnorm.exactly_zero")], "range": NOTHING_ELSE, "autorange": False}
        return figure.update_layout(yaxis=only) if seen.size else figure
    if (seen > 0).all():
        return draw(replace(frame, y_scale="log"), t)
    figure = draw(replace(frame, y_scale="symlog"), t)
    axis = figure.layout.yaxis
    ticks = [(at, text) for at, text in zip(axis.tickvals, axis.ticktext, strict=True) if at >= 0]
    said = [t("batchnorm.exactly_zero") if at == 0 else text for at, text in ticks]
    return figure.update_layout(yaxis={"tickvals": [at for at, _ in ticks], "ticktext": said})
