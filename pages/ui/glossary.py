"""The glossary: every site, statistic and measure by its name, with what it is and its formula, in one language.

The words are those that charts say of themselves (`pages.ui.explain`), so a term is explained once. It draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core.vocabulary import SITES, STATISTICS
from pages.ui import explain
from pages.ui.text import Words, keys

SECTIONS = ("site", "statistic", "extra")
"""Kinds of terms, in words ``glossary.<kind>``."""

MOST_LETTERS = 80


@dataclass(frozen=True)
class Term:
    """One term. `code`: its name in tables, links and code; `said`: what it is; `formula`: empty for a site."""

    kind: str
    code: str
    name: str
    said: str
    formula: str = ""

    def has(self, asked: str) -> bool:
        """Return whether what is searched for stands in it, whatever its case."""
        return asked.lower() in f"{self.code} {self.name} {self.said} {self.formula}".lower()


def terms(t: Words) -> list[Term]:
    """Return all terms, by kind and then by name."""
    found = [*_sites(t), *_statistics(t), *_extras(t)]
    return sorted(found, key=lambda term: (SECTIONS.index(term.kind), term.kind != "site" and term.name.casefold()))


def _sites(t: Words) -> Iterator[Term]:
    for name, site in SITES.items():
        yield Term("site", name, t(f"site.{name}"), f"{t(f'site_help.{name}')} {t('glossary.shape', shape=site.shape)}")


def _statistics(t: Words) -> Iterator[Term]:
    for name in STATISTICS:
        yield Term("statistic", name, t(f"statistic.{name}"), explain.defined(name, t), t(f"formula.{name}"))


def _extras(t: Words) -> Iterator[Term]:
    for key in keys(t.lang):
        section, _, name = key.partition(".")
        if section == "extra":
            yield Term("extra", name, t(key), t(f"what.{name}"), t(f"formula.{name}"))
