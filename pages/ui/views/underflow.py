"""What becomes too small for float16: zeros and subnormal entries site by site, and what a loss scale would save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core import float16_range, verdicts
from core.drift import THRESHOLDS, Verdict
from core.experiment import Experiment
from core.trace import F64, Snapshot, Trace
from core.vocabulary import SITES
from pages.ui import charts, theme
from pages.ui.cache import Measured
from pages.ui.charts.curves import Curve, Drawing
from pages.ui.explain import number
from pages.ui.picture import Picture, Subject
from pages.ui.text import Words
from pages.ui.views.depth import Shown
from pages.ui.views.tokens import focus

ROW_PX, AROUND_PX = 30, 190
PARTS = {"exact_zero": "zero_frac", "too_small": "subnormal_frac16"}
"""Part of a bar, ``precision.*`` in words → the statistic."""

LOST, GONE, BEYOND = (theme.Style(theme.BELOW_COLOR), theme.Style(theme.ABOVE_COLOR, "12px,6px"),
                      theme.Style(theme.WARNING_COLOR, "2px,4px"))
MOST = 40
"""Loss scales up to 2 to this power are drawn."""


def underflow(measured: Sequence[Measured], shown: Shown, t: Words) -> list[Picture]:
    """The shares of zeros and of subnormal entries, a bar a site; below it what loss scales would save."""
    one, snapshot = focus(measured, shown)
    return [_bars(one, snapshot, shown["of"] == "gradient", t), _scales(one, snapshot, t)]


def judge(trace: Trace, experiment: Experiment, shown: Shown) -> list[Verdict]:
    """Which numbers float16 loses: of what is shown, then of the other pass."""
    gradient = shown["of"] == "gradient"
    return [verdicts.float16_range(trace, experiment, of) for of in (gradient, not gradient)]


def _bars(one: Measured, snapshot: Snapshot, gradient: bool, t: Words) -> Picture:
    """Return a bar a site: the shares in the layer where they are largest together."""
    group = snapshot.measured(gradient)
    worst = _worst(snapshot, np.sum([group[name] for name in PARTS.values()], axis=0)) if group else {}
    sites, rows = list(worst), list(worst.values())
    parts = [charts.Part(t(f"precision.{name}"), group[statistic][rows] if rows else np.empty(0))
             for name, statistic in PARTS.items()]
    said = [_said([float(part.values[place]) for part in parts], snapshot.layout.sites[row], t)
            for place, row in enumerate(rows)]
    hovers = [f"{t(f'site.{site}')} ({site})<br>" + "<br>".join(
        f"{part.name} <b>{number(100 * float(part.values[place]))} %</b>" for part in parts)
              for place, site in enumerate(sites)]
    title = t("precision.underflow_title", variant=one.name,
              of=t("drift.of_gradient" if gradient else "drift.of_forward"))
    frame = charts.Frame(title, "share", "", "linear", x_title=t("precision.share"))
    figure = charts.levels(charts.Levels(sites, parts, said, hovers), frame, t) if sites else None
    return Picture("underflow", figure, title, Subject(tuple(PARTS.values()), tuple(sites), gradient),
                   lambda: {t("drift.site"): sites, t("chart.layer"): [snapshot.layout.sites[row][0] for row in rows],
                            **{("grad_" if gradient else "") + statistic: part.values.tolist()
                               for part, statistic in zip(parts, PARTS.values(), strict=True)}},
                   AROUND_PX + ROW_PX * max(len(sites), 4),
                   () if sites else (t("overview.no_gradient" if gradient else "overview.not_observed"),),
                   variant=one.name)


def _worst(snapshot: Snapshot, shares: F64) -> dict[str, int]:
    """Return the row of each site's layer with the largest share, in the sites' order; a site without one is missing.
    """
    found: dict[str, int] = {}
    for site in SITES:
        _, rows = snapshot.layout.rows(site)
        seen = [row for row in rows if not np.isnan(shares[row])]
        if seen:
            found[site] = max(seen, key=lambda row: float(shares[row]))
    return found


def _said(shares: Sequence[float], place: tuple[int, str], t: Words) -> str:
    """Say how large the parts are together, and in which layer."""
    where = f" · {t('chart.layer')} {place[0]}" if SITES[place[1]].where == "block" else ""
    return f"{number(100 * sum(shares))} %{where}"


def _scales(one: Measured, snapshot: Snapshot, t: Words) -> Picture:
    """Return what float16 loses of the gradients at the worst site, over the loss scale."""
    found = float16_range.scaled(snapshot)
    title = t("precision.scales_title", variant=one.name)
    subject = Subject(("subnormal_frac16",), (), True, ("log2_hist", "loss_scale_saves"))
    if found is None:
        why = "drift.not_full" if "gradients" not in snapshot.histograms else "overview.no_gradient"
        return Picture("scales", None, title, subject, dict, remarks=(t(why),), variant=one.name)
    scales, lines = found.scales[:MOST + 1], {"below": (found.below, LOST), "gone": (found.gone, GONE),
                                              "beyond": (found.beyond, BEYOND)}
    curves = [Curve(t(f"precision.{name}"), scales, values[:MOST + 1], style, name)
              for name, (values, style) in lines.items()]
    limit = Curve(t("precision.lost_limit", limit=number(100 * THRESHOLDS["lost_share16"])), scales,
                  np.full(len(scales), THRESHOLDS["lost_share16"]), theme.Style(theme.OTHER_COLOR, "4px,4px"), "limit")
    frame = charts.Frame(title, "", "", "linear", x_title=t("precision.loss_scale"))
    drawing = Drawing([*curves, limit], t("precision.worst_share"), t("axis.share"))
    return Picture("scales", charts.curves([drawing], frame, t, log=True), title, subject,
                   lambda: {"loss_scale": scales.tolist(),
                            **{name: values[:MOST + 1].tolist() for name, (values, _) in lines.items()}},
                   430, variant=one.name)
