"""Names, factories and words together: every entry of every table can be loaded, and be said in every language."""

import pytest

from core import tables
from core.presets import PRESETS, preset
from core.vocabulary import HEAD_MEASURES, SITES, STATISTICS
from pages.ui import link
from pages.ui.text import LANGUAGES, Words

TABLES = {name: table for name, table in vars(tables).items() if isinstance(table, dict) and name.isupper()}
ENTRIES = [(table, name) for table, entries in TABLES.items() for name in entries]
THEMSELVES = ("PLACEMENTS", "INITS")
"""Tables whose entries are the things themselves."""
WORDS = {"norm": tables.NORMS, "placement": tables.PLACEMENTS, "init": tables.INITS, "preset": PRESETS,
         "preset_help": PRESETS, "site": SITES, "site_help": SITES, "statistic": STATISTICS, "head": HEAD_MEASURES,
         "what": {**STATISTICS, **HEAD_MEASURES}, "formula": {**STATISTICS, **HEAD_MEASURES}}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, name in ENTRIES if table not in THEMSELVES])
def test_every_entry_names_something_that_can_be_loaded(table, name):
    assert tables.load(TABLES[table], name) is not None


@pytest.mark.parametrize("name", tables.INITS)
def test_what_shapes_an_inits_draws_can_be_loaded(name):
    assert not tables.INITS[name].shape or callable(tables.fetch(tables.INITS[name].shape))


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_names_are_lower_case_identifiers(table, name):
    assert name.isidentifier()
    assert name == name.lower()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("section", "name"), [(section, name) for section, table in WORDS.items() for name in table])
def test_every_name_has_its_words(lang, section, name):
    assert Words(lang)(f"{section}.{name}")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_unit_has_its_words(lang):
    units = {entry.unit for entry in (*STATISTICS.values(), *HEAD_MEASURES.values()) if entry.unit}
    assert all(f"axis.{unit}" in Words(lang) for unit in units)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_an_experiment_and_is_compared_with_others(name):
    assert preset(name).key()
    assert len(link.compared(link.View(name, preset(name), link.default_variants(name)))[0]) >= 3
