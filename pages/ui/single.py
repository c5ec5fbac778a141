"""The hand-outs of the pages that show one thing each: a row of scores, a worked tensor, a sweep.

It turns what a page was asked for into sections of a hand-out. No Streamlit here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.experiment import Experiment
from core.worked import worked
from pages.ui import dossier, origin, pitfall_cards, worksheet
from pages.ui.handout import Section
from pages.ui.handout_blocks import Drawn, Prose, Table
from pages.ui.softmax_link import Asked as Row
from pages.ui.tensor_link import Asked as Tensor
from pages.ui.text import Words, escaped
from pages.ui.views import softmax, tensor
from pages.ui.views.sweep import State, sweep_map


def softmax_row(asked: Row, t: Words) -> bytes:
    """Return the file of the softmax lab."""
    row = asked.row()
    measures = Table("", {t(f"softmax.measure_{name}"): [value] for name, value in softmax.measures(row).items()})
    first = Section(softmax.verdict(row, t), [measures])
    told = [Section(one.picture.label, [Prose(one.said), Drawn(one.picture)]) for one in softmax.told(asked, row, t)]
    return dossier.of_blocks(t("softmax.title"), [first, *told, origin.of_code(asked.program(), t)], t)


def worked_tensor(asked: Tensor, t: Words) -> bytes:
    """Return the file of the worked tensor."""
    sheet = worked(asked.norm, asked.tensor(), asked.dials())
    x = sheet.values("x")
    sections = [
        Section(t("tensor.steps", norm=t(f"norm.{asked.norm}"), place=asked.at), [
            Prose(t(f"tensor.about_{asked.norm}")), *worksheet.blocks(sheet, asked.entry, t),
            *map(Prose, tensor.remarks(asked, sheet, t)), Drawn(tensor.steps(sheet))]),
        Section(t("tensor.block"), [Prose(t("tensor.block_said")), Drawn(tensor.block(asked, sheet, t)),
                                    Drawn(tensor.pools(asked, sheet, t))]),
        Section(t("tensor.pitfalls"), [Prose(t("tensor.pitfalls_said")), *pitfall_cards.blocks(asked, x, t),
                                       Drawn(tensor.pitfalls(asked, x))]),
        origin.of_code(asked.program(), t)]
    return dossier.of_blocks(t("tensor.title"), sections, t)


def swept(found: Sequence[State], base: Experiment, axes: Mapping[str, Sequence[Any]], shown: Mapping[str, str],
          t: Words) -> bytes:
    """Return the file of a sweep, as far as it is computed. `axes`: field → values."""
    picture = sweep_map(found, shown, t)
    left = [f"- {escaped(one.cell.name)}{t('drift.colon')}{escaped(one.reason(t))}" for one in found if one.reason(t)]
    section = Section(picture.label, [Drawn(picture), Prose("\n".join(left))])
    return dossier.of_blocks(t("sweep.title"), [section, origin.of_grid(base, axes, t)], t)
