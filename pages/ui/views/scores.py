"""Two exams, two scales: the marks of a class in both, and where each student stands, with one student followed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from core.exams import Exam, better
from pages.ui import charts
from pages.ui.explain import number
from pages.ui.picture import Columns, Picture, Subject, Told
from pages.ui.text import Words
from pages.ui.views.depth import Shown

NAMES = ("a", "b")
"""Of the exams, as in the link."""

BREAK = "  \n"
"""Between sentences that each take a line."""

Exams = Mapping[str, Exam]


def scores(shown: Shown, t: Words) -> list[Told]:
    """The marks as they were given, and below them the z-scores, on one scale."""
    exams = {name: Exam(tuple(map(float, shown[name].split("_"))), float(shown[f"full_{name}"])) for name in NAMES}
    return [_marks(exams, shown, t), _zscores(exams, int(shown["who"]), t)]


def _marks(exams: Exams, shown: Shown, t: Words) -> Told:
    """Each exam on its own axis, with its full mark."""
    who = int(shown["who"])
    drawings = []
    for name, one in exams.items():
        exam, full = t(f"basics.exam_{name}"), shown[f"full_{name}"]
        title = t("basics.marks_axis", exam=exam)
        drawings.append(charts.Bars(np.array(one.marks), title, title,
                                    {t("basics.full_line", exam=exam, full=full): one.full}, who))
    frame = charts.Frame(t("basics.marks_title"), "", "", "linear", x_title=t("basics.student"))
    beyond = sum(int((one.shares > 1).sum()) for one in exams.values())
    picture = Picture("marks", charts.bars(drawings, frame, t), frame.title, Subject(extra=("mark_share",)),
                      partial(_table, exams), 520)
    given = {name: shown[name].split("_")[who] for name in NAMES} | {
        f"full_{name}": shown[f"full_{name}"] for name in NAMES} | {
        f"share_{name}": number(100 * float(one.shares[who])) for name, one in exams.items()}
    said = [t("basics.marks_said", who=who, **given), *([t("basics.beyond", count=beyond)] if beyond else [])]
    return Told(picture, BREAK.join(said))


def _zscores(exams: Exams, who: int, t: Words) -> Told:
    """Both exams in units of their own spread, on axes of the same length."""
    names = {name: t(f"basics.exam_{name}") for name in exams}
    titles = {name: t("basics.z_axis", exam=exam) for name, exam in names.items()}
    drawings = [charts.Bars(one.z, titles[name], titles[name], chosen=who) for name, one in exams.items()]
    frame = charts.Frame(t("basics.zscores_title"), "", "", "linear", x_title=t("basics.student"))
    picture = Picture("zscores", charts.bars(drawings, frame, t, common=True), frame.title,
                      Subject(extra=("z_score",)), partial(_table, exams), 520)
    alike = [t("basics.alike", exam=names[name]) for name, one in exams.items() if one.alike]
    higher = better(exams, who)
    compared = t("basics.better", who=who, exam=names[higher]) if higher else t("basics.better_none", who=who)
    said = [*(t("basics.z_said", exam=names[name], who=who, mean=number(one.mean, 4), std=number(one.std, 4),
                z=number(float(one.z[who]), 4)) for name, one in exams.items()),
            *(alike or [compared, t("basics.order")])]
    return Told(picture, BREAK.join(said))


def _table(exams: Exams) -> Columns:
    """Return a row a student; the smaller class has none for the last ones."""
    longest = max(len(one.marks) for one in exams.values())
    found: dict[str, list[object]] = {"student": list(range(longest))}
    for name, one in exams.items():
        for column, values in (("mark", one.marks), ("share", one.shares.tolist()), ("z", one.z.tolist())):
            found[f"{column}_{name}"] = [*values, *[None] * (longest - len(values))]
    return found
