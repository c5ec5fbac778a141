"""Words: the same keys and placeholders in every language, and every key that a page uses exists."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

from core import tables, vocabulary
from pages.ui import fields, lesson_page, lessons
from pages.ui.text import LANGUAGES, TextError, Words, escaped, keys

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "pages").rglob("*.py"))
TABLES = {
    "norm": tables.NORMS,
    "placement": tables.PLACEMENTS,
    "init": tables.INITS,
    "site": vocabulary.SITES,
    "statistic": vocabulary.STATISTICS,
    "head": vocabulary.HEAD_MEASURES,
}


def placeholders(words: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(words) if field is not None}


def keys_used(path: Path) -> list[str]:
    """Keys written out in calls of a function named t: t("nav.home")."""
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    named_t = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "t" and call.args]
    first = [call.args[0] for call in named_t]
    return [arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


def test_all_languages_have_the_same_keys() -> None:
    english = set(keys("en"))
    for lang in LANGUAGES:
        assert set(keys(lang)) == english


@pytest.mark.parametrize("key", keys("en"))
def test_a_text_has_the_same_placeholders_in_all_languages_and_is_not_empty(key: str) -> None:
    for lang in LANGUAGES:
        assert keys(lang)[key].strip()
        assert placeholders(keys(lang)[key]) == placeholders(keys("en")[key])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_key_that_a_page_uses_exists(path: Path) -> None:
    assert [key for key in keys_used(path) if key not in keys("en")] == []


def test_every_table_that_names_keys_names_existing_ones() -> None:
    from pages.ui.component import PHRASES

    assert [key for key in PHRASES.values() if key not in keys("en")] == []


@pytest.mark.parametrize("table", TABLES)
def test_every_name_of_the_engine_has_words(table: str) -> None:
    assert [name for name in TABLES[table] if f"{table}.{name}" not in keys("en")] == []


def test_a_missing_key_is_an_error_that_names_key_and_language() -> None:
    with pytest.raises(TextError, match=re.escape("no text 'home.nonsense' in language 'zh' (assets/text/zh.toml)")):
        Words("zh")("home.nonsense")


def test_a_missing_value_is_an_error_that_names_it() -> None:
    with pytest.raises(TextError, match=r"text 'chart\.above' in language 'en' needs a value for 'name'"):
        Words("en")("chart.above")


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(TextError, match="no language 'fr'; there is en, zh"):
        Words("fr")


def test_chinese_keeps_the_terms_of_the_field() -> None:
    assert [key for key, words in keys("zh").items() if "变压器" in words] == []


TERMS = frozenset("""
LayerNorm RMSNorm BatchNorm GroupNorm InstanceNorm ScaleNorm DeepNorm DyT QK-Norm Pre-Norm Post-Norm Pre-RMSNorm Pre
Post peri-LN RMS NaN nan Inf inf nat nats ln log erf tanh sigmoid softmax Softmax one-hot One-hot logits key query
value KV QK diag pp nT max sqrt inv float bfloat int e- ms MiB GFLOP UTC CPU CUDA MPS kernel dropout Dropout keepdims
ValueError null true false Transformer MLP LSTM GRU BERT GPT- Llama Gemma OLMo Qwen ViT DeepNet I-BERT NN-LUT RoPE
LayerScale ReZero GELU ReLU SiLU SwiGLU GEGLU GeGLU ReGLU Adam AdamW SGD Welford Frobenius Xavier Kaiming LeCun Xiong
Ba Kiros Hinton Wu He Sun Kim Yu arXiv massive activations attention sink Chromium Driftscope Python PyTorch torch NumPy
JavaScript HTML JSON CSV Parquet PNG SVG PDF GIF netCDF xarray Page Up Down Esc Enter concat run eval mean
""".split())  # noqa: SIM905  a list of so many quoted words cannot be read
"""What stays in Latin letters among Chinese words: names, units, signs, and terms that the field does not translate."""

CODES = frozenset(["rezero", "ragged", "dynamic", "auto", "cpu", "cuda", "mps", "after", "clipping"])
"""Values of settings that are not among their options, and names of columns."""

APART = ("formula.", "link.form_")
"""Sections of what is no prose: formulas, and the values that an address may have."""

NO_PROSE = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\{[^}]*\}|\]\([^)]*\)|:material/\w+:|:\w+\[|<br>", re.DOTALL)


def latin(words: str) -> set[str]:
    return set(re.findall(r"[A-Za-z][A-Za-z'’-]+", NO_PROSE.sub(" ", words)))


def codes() -> set[str]:
    """Names and values of an experiment's settings, names of sites, statistics and measures: code wherever they stand.
    """
    found = {path.partition(".")[2] for path in fields.schemas()} | set(vocabulary.SITES) | set(vocabulary.STATISTICS)
    found |= {str(option) for path in fields.schemas() for option in fields.options(path)}
    return {part for name in found for part in [name, *re.split(r"[._]", name)]}


@pytest.mark.parametrize("key", [key for key in keys("zh") if not key.startswith(APART)])
def test_chinese_words_have_no_stray_english(key: str) -> None:
    assert latin(keys("zh")[key]) <= TERMS | CODES | codes()


@pytest.mark.parametrize("path", sorted(ROOT.glob("assets/lessons/*/zh.md")), ids=lambda path: path.parent.name)
def test_a_chinese_lesson_has_no_stray_english(path: Path) -> None:
    assert latin(path.read_text("utf-8")) <= TERMS


@pytest.mark.parametrize("name", lessons.names())
def test_a_chinese_dial_has_no_stray_english(name: str) -> None:
    one = lessons.lesson(name, "zh")
    for dial in one.dials:
        said = [lesson_page.said(dial, place, one, Words("zh")) for place in range(len(dial.values))]
        assert latin(" ".join([lesson_page.label(dial, one, Words("zh")), *said])) <= TERMS


def test_chinese_has_no_half_width_punctuation_between_chinese_characters() -> None:
    pattern = re.compile(r"[\u4e00-\u9fff][,;:!?()]|[,;:!?()][\u4e00-\u9fff]")
    assert [key for key, words in keys("zh").items() if pattern.search(words)] == []


@pytest.mark.parametrize("text", ["![](https://x.example/a.png)", "[a](b)", "<b>", "*x*", "`x`", ":red[x]", "$x$"])
def test_a_visitors_text_is_shown_as_it_is(text: str) -> None:
    shown = escaped(text)
    assert shown.replace("\\", "") == text
    assert shown != text


def test_no_words_of_the_pages_are_left_unused() -> None:
    code = "".join(path.read_text("utf-8") for path in Path("pages").rglob("*.py"))
    unused = [key for key in keys("en") if key.startswith(("drift.", "home.", "link.", "chart.", "refused.limit"))
              and not re.search(rf"[\"']{re.escape(key)}[\"']", code) and not key.startswith(DYNAMIC)]
    assert unused == []


DYNAMIC = ("drift.of", "drift.scale", "drift.site", "drift.stat", "drift.measure", "drift.weight", "drift.role",
           "drift.head", "drift.gate", "drift.moment", "drift.sequence", "drift.outcome", "drift.number",
           "drift.by", "drift.after", "drift.when", "drift.way", "drift.title", "home.title", "home.way_",
           "home.learn_", "home.closer_", "refused.limit_", "drift.exchange", "drift.sample", "drift.position",
           "drift.tokens", "drift.share", "drift.steps", "link.")
"""Keys that are put together from a table's names."""


@pytest.mark.parametrize(("key", "values", "said"), [
    ("place.block", {"site": "残差流（进入块）", "layer": 1}, "残差流（进入块，第 1 层）"),
    ("autopsy.gradient_of", {"place": "残差流（进入块，第 1 层）"}, "残差流（进入块，第 1 层）的梯度"),
    ("autopsy.gradient_of", {"place": "查询 q"}, "查询 q 的梯度"),
])
def test_chinese_words_join_without_a_second_bracket_or_a_space_behind_one(
        key: str, values: dict[str, object], said: str) -> None:
    assert Words("zh")(key, **values) == said


@pytest.mark.parametrize("name", [":material/delete:", ":smile:", ":+1:", ":red[x]"])
def test_a_visitors_text_leaves_nothing_that_streamlit_reads_as_an_icon_or_a_colour(name: str) -> None:
    left = escaped(name).replace("\\", "")
    assert not re.search(r":[\w+/]+:", left) and "[" not in escaped(name).replace("\\[", "")
    assert left.replace("\u2060", "") == name


def test_other_colons_stay_as_they_are() -> None:
    assert escaped("Seed: 5, 12:30") == "Seed\\: 5, 12\\:30"
