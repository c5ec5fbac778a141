"""Where a norm is cast back, before γ or after: what the two orders make of the same token."""

from __future__ import annotations

import numpy as np

from core import norm_casts
from pages.ui import charts
from pages.ui.explain import number
from pages.ui.picture import Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown


def casts(shown: Shown, t: Words) -> list[Told]:
    """The difference of the two outputs, entry by entry, and the same in units of the last place."""
    found = norm_casts.casts(shown["narrow"], int(shown["entries"]), float(shown["gamma"]), int(shown["draw"]))
    title = t("precision.casts_title", format=shown["narrow"], gamma=number(float(shown["gamma"])))
    frame = charts.Frame(title, "", "", "linear", x_title=t("precision.entry"))
    drawings = [charts.Bars(found.apart, t("precision.before_after"), t("precision.before_after")),
                charts.Bars(found.places, t("precision.last_places"), t("precision.last_places"))]
    most = int(np.abs(found.apart).argmax())
    differ = int((found.apart != 0).sum())
    said = t("precision.casts_said" if differ else "precision.casts_same", count=differ, total=len(found.apart),
             most=number(float(np.abs(found.apart[most]))), places=number(float(np.abs(found.places).max())),
             entry=most, after=number(found.error(found.after)), before=number(found.error(found.before)),
             format=shown["narrow"])
    return [Told(Picture("casts", charts.bars(drawings, frame, t), title, Subject(extra=("cast_apart", "cast_places")),
                         lambda: {"entry": list(range(len(found.exact))), "exact": found.exact.tolist(),
                                  "after": found.after.tolist(), "before": found.before.tolist(),
                                  "apart": found.apart.tolist(), "last_places": found.places.tolist()}, 520), said)]
