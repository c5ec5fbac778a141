"""Every number in the prose of a lesson is what the engine computes, rounded as it is written."""

import re
import tomllib

import lesson_numbers_01_05
import lesson_numbers_06_10
import lesson_numbers_11_15
import pytest

from pages.ui import lessons

NUMBERS = lesson_numbers_01_05.NUMBERS | lesson_numbers_06_10.NUMBERS | lesson_numbers_11_15.NUMBERS
FOLDERS = sorted(path for path in lessons.FOLDER.iterdir() if path.is_dir())
SAID = {path.name: tomllib.loads((path / "lesson.toml").read_text("utf-8")).get("numbers", {}) for path in FOLDERS}
CASES = [(folder, name) for folder, said in SAID.items() for name in said]
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read(text):
    """A number as prose writes it, and half of its last digit: how far it may be rounded."""
    plain = text.replace("\u202f", "").replace("−", "-").replace("∞", "inf")
    mantissa, _, power = plain.partition("·10")
    scale = 10.0 ** int(power.translate(SUPERSCRIPTS) or 0)
    digits = len(mantissa.partition(".")[2])
    return float(mantissa) * scale, 0.5 * 10.0**-digits * scale


def test_every_number_has_its_computation_and_none_is_computed_for_nothing():
    assert {folder: set(said) for folder, said in SAID.items() if said} == {
        folder: set(found) for folder, found in NUMBERS.items()}


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_a_number_in_a_lesson_is_the_engines(folder, name):
    said, half = read(SAID[folder][name])
    assert float(NUMBERS[folder][name]()) == pytest.approx(said, abs=half * (1 + 1e-9), rel=0)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_number_is_said_in_both_languages(folder):
    for lang in ("en", "zh"):
        used = set(re.findall(r"\{([a-z]\w*)\}", (folder / f"{lang}.md").read_text("utf-8")))
        assert set(SAID[folder.name]) <= used


@pytest.mark.parametrize(("text", "value", "half"), [
    ("0.43", 0.43, 0.005), ("1\u202f052", 1052.0, 0.5), ("−1.468", -1.468, 0.0005), ("1.7·10⁻⁵", 1.7e-5, 5e-7),
    ("5.5·10⁶", 5.5e6, 5e4), ("∞", float("inf"), 0.5)])
def test_a_number_is_read_as_it_is_written(text, value, half):
    assert read(text) == pytest.approx((value, half))
