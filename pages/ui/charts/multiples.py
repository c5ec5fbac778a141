"""Small multiples: lines over depth in one facet a group, all on the same axes, so that groups compare at sight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from pages.ui.charts import facets, marks
from pages.ui.charts.axes import axis_for
from pages.ui.charts.lines import line_of
from pages.ui.charts.marks import MAX_TRACES, Frame, Part, Series, Text

Groups = Mapping[str, Sequence[Series]]
"""Title of a facet → its lines; those with the same key look alike and have one entry in the legend."""


def multiples(groups: Groups, frame: Frame, t: Text) -> go.Figure:
    """Draw each group's lines in a facet of its own.

    Errors: ValueError for an unknown scale or more than 60 traces.
    """
    every = [one for lines in groups.values() for one in lines]
    last = max((int(one.layers.max()) for one in every if one.layers.size), default=0)
    figure = facets.facets(list(groups), last, frame, marks.notes(every, frame.y_scale == "log", t), t)
    traces = list(_traces(groups, figure, frame, t))
    if len(traces) > MAX_TRACES:
        raise ValueError(f"small multiples have at most {MAX_TRACES} traces, these are {len(traces)}: draw fewer lines")
    figure.add_traces(traces)
    return figure if any(np.isfinite(one.values).any() for one in every) else marks.say_nothing(figure, t)


def _traces(groups: Groups, figure: go.Figure, frame: Frame, t: Text) -> Iterator[Part]:
    """Give the facets their axes, and yield each line, with its triangles where it has gaps."""
    values = [one.values for lines in groups.values() for one in lines]
    axis, named = axis_for(frame.y_scale, np.concatenate([marks.nothing(), *values])), set[str]()
    facets.value_axes(figure, len(groups), axis, frame.y_title)
    edges = facets.gap_axes(figure, len(groups))
    for index, (title, lines) in enumerate(groups.items()):
        x, y = facets.axes_of(index, len(groups))
        for row, one in enumerate(lines):
            line = line_of(one, axis, len(lines) - row - 1, frame, t)
            yield line | {"xaxis": x, "yaxis": y, "uid": f"{line['uid']}f{index}", "showlegend": one.key not in named,
                          "hovertemplate": f"{marks.literal(title)}<br>{line['hovertemplate']}"}
            named.add(one.key)
            gaps = ~axis.has_place(one.values)
            if gaps.any() or one.in_part.any():
                told = marks.triangles(one, gaps, row, marks.hover(one, frame, t), t, edges[index])
                yield told | {"uid": f"{told['uid']}f{index}"}
