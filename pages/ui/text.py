"""Every word a visitor reads, by key and language, from ``assets/text/<language>.toml``.

The file knows keys and placeholders. It does not know Streamlit, nor which language a visit has chosen: whoever speaks
holds a `Words`, so sessions in different threads never share a current language.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

LANGUAGES: dict[str, str] = {"en": "English", "zh": "中文"}
"""Each language in its own name; the first is the fallback of a visitor whose language we do not have."""

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "text"


_JOINS: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "zh": ((re.compile("）（"), "，"), (re.compile(r"(?<=[）”。，；：]) (?=[\u4e00-\u9fff])"), "")),
}
"""What becomes of the seams where words were put into words: one bracket, and no space beside full-width signs."""


class TextError(LookupError):
    """A key without words, or words whose placeholders were not all given."""


@cache
def _texts(lang: str) -> Mapping[str, str]:
    """Read one language's file as dotted key → words."""
    if lang not in LANGUAGES:
        raise TextError(f"no language {lang!r}; there is {', '.join(LANGUAGES)}")
    with (FOLDER / f"{lang}.toml").open("rb") as file:
        return MappingProxyType(dict(_flat(tomllib.load(file))))


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Walk nested tables: ``[nav] home = "Home"`` is ``nav.home``."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, str(value)


OWN = ("norm", "placement", "init")
"""Sections of names that somebody may add to."""


class Words:
    """The words of one language; calling it with a key gives the text: ``t = Words("zh"); t("nav.home")``."""

    def __init__(self, lang: str) -> None:
        self._texts = _texts(lang)
        self.lang = lang

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the words of `key` with its ``{placeholders}`` filled in; TextError names what is missing.

        A norm, placement or init of one's own, which has no words, is called by its name.
        """
        words = self._texts.get(key)
        if words is None and key.partition(".")[0] in OWN:
            return key.partition(".")[2]
        if words is None:
            raise TextError(f"no text {key!r} in language {self.lang!r} (assets/text/{self.lang}.toml)")
        try:
            said = words.format_map(values)
        except KeyError as missing:
            raise TextError(f"text {key!r} in language {self.lang!r} needs a value for {missing.args[0]!r}") from None
        for found, better in _JOINS.get(self.lang, ()) if values else ():
            said = found.sub(better, said)
        return said

    def __contains__(self, key: str) -> bool:
        return key in self._texts


def keys(lang: str) -> Mapping[str, str]:
    """Return every key of a language with its words, placeholders not filled in."""
    return _texts(lang)


def escaped(text: str) -> str:
    """Return a visitor's text with the signs of Markdown taken literally: a link must not write links on our page.

    In ``:material/delete:`` and ``:smile:`` a sign without width follows the colon: Streamlit looks for icons and emoji
    in what is left when the backslashes are gone.
    """
    broken = re.sub(r":(?=[\w/+-]+:)", ":\u2060", text)
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>()#+-.!|:$~" else sign for sign in broken)
