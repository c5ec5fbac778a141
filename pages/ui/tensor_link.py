"""What the worked tensor is asked for, as a link both ways: a tensor, a norm with its dials, and a chosen entry.

Reading never fails: what is refused is replaced and becomes a Notice. No Streamlit here, and no words.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from core.pools import Shape
from core.tables import NORMS
from core.worked import F64, WORKED, Dials
from pages.ui import tensor_text
from pages.ui.link import Notice
from pages.ui.softmax_link import Limits

CHOICES: Mapping[str, Sequence[str]] = {"norm": tuple(NORMS), "pool": ("all", "batch")}
"""`pool`: what batchnorm takes its statistics over, all of B·T, or B alone."""

NUMBERS: Mapping[str, Limits] = {"scale": Limits(1e-6, 1e6), "eps": Limits(0, 1), "groups": Limits(1, 16, whole=True)}

CUBE = "2_4_6_8~1_3_5_7~0_2_4_6~~-1_0_1_2~3_3_3_3~-2_-1_0_1"

MOST_NUMBERS = 16
"""Of γ and of β: at most so many."""


@dataclass(frozen=True)
class Asked:
    """The state of the page; the names are those of the query. `x`, `gamma`, `beta`: as an address writes them;
    `at`: sample, token and feature that are looked at."""

    x: str = CUBE
    scale: float = 1.0
    norm: str = "layernorm"
    eps: float = 1e-5
    groups: int = 2
    pool: str = "all"
    gamma: str = "1"
    beta: str = "0"
    at: str = "0.0.0"

    def write(self) -> dict[str, str]:
        """Return the query parameters; what is as by default is left out."""
        usual = asdict(Asked())
        return {name: tensor_text.said(value) if isinstance(value, float) else str(value)
                for name, value in asdict(self).items() if value != usual[name]}

    @property
    def written(self) -> F64:
        """The tensor (B, T, D) as it is written."""
        found, _ = tensor_text.unspelled(self.x)
        assert found is not None
        return found

    def tensor(self) -> F64:
        """Return the tensor (B, T, D), scaled."""
        return self.written * self.scale

    @property
    def entry(self) -> Shape:
        """Sample, token and feature that are looked at."""
        b, t, d = map(int, self.at.split("."))
        return b, t, d

    def dials(self) -> Dials:
        """Return how the norm is computed."""
        return Dials(self.eps, self.groups, self.pool == "batch", _listed(self.gamma), _listed(self.beta))

    def program(self) -> str:
        """Return Python that computes every step of the norm."""
        return ("from numpy import array, inf, nan\n\nfrom core.worked import Dials, worked\n\n"
                f"x = array({self.written.tolist()}) * {self.scale!r}  # (B, T, D)\n"
                f"sheet = worked({self.norm!r}, x, {self.dials()!r})\n"
                "for step in sheet.steps:\n    print(step.name, step.values.tolist())\n")


PARAMETERS = tuple(asdict(Asked()))

SEVEN = tensor_text.spelled((np.random.RandomState(7).randn(4, 8) * [0.01, 0.1, 1, 10, 100, 1000, 0.5, 2])[None])

PRESETS: Mapping[str, Asked] = {
    "cube": Asked(),
    "five": Asked("3_1_-2_8_5", groups=1),
    "four": Asked("2_-1_0.5_4", norm="rmsnorm"),
    "one_hot": Asked("1_0_0_0", norm="layernorm_unbiased"),
    "tiny": Asked("1_2_3_4", 1e-4, "layernorm_std_eps"),
    "rows": Asked(SEVEN),
    "square": Asked("2_4_6~1_3_5~0_2_7", groups=1),
}
"""Tensors to begin with: those of the lessons, and one in which a forgotten keepdims gives no error."""


def read(query: Mapping[str, str]) -> tuple[Asked, list[Notice]]:
    """Return what `query` asks for, and a notice for each part of it that was refused and replaced."""
    notices: list[Notice] = []
    found = dict[str, Any]()
    for name in PARAMETERS:
        if text := query.get(name, ""):
            value, notice = _READ[name](name, text)
            notices += [notice] if notice else []
            found |= {name: value} if notice is None else {}
    asked, more = settled(Asked(**found))
    return asked, notices + more


def settled(asked: Asked) -> tuple[Asked, list[Notice]]:
    """Return it with what does not fit the tensor's shape replaced, and a notice for each of these."""
    shape, notices = asked.written.shape, list[Notice]()
    for name, used in (("gamma", "1"), ("beta", "0")):
        count = len(_listed(getattr(asked, name)))
        if count not in (1, shape[2]):
            notices.append(Notice(f"tensor.refused_{name}", {"count": str(count), "width": str(shape[2]),
                                                              "used": used}))
            changed: dict[str, Any] = {name: used}
            asked = replace(asked, **changed)
    if shape[2] % asked.groups:
        fitting = max(group for group in divisors(shape[2]) if group < asked.groups)
        if WORKED[asked.norm].pool == "group":
            notices.append(Notice("tensor.refused_groups", {"width": str(shape[2]), "groups": str(asked.groups),
                                                            "used": str(fitting)}))
        asked = replace(asked, groups=fitting)
    last = [size - 1 for size in shape]
    if any(place > most for place, most in zip(asked.entry, last, strict=True)):
        notices.append(_choice("at", asked.at, f"0.0.0 … {'.'.join(map(str, last))}"))
        asked = replace(asked, at=Asked().at)
    return asked, notices


def divisors(width: int) -> list[int]:
    """Return into how many groups so many features split."""
    return [group for group in range(1, width + 1) if width % group == 0]


def listed_of(text: str) -> tuple[str | None, Notice | None]:
    """Return γ or β that a visitor wrote, as an address writes it, or why it is refused."""
    numbers, notice = tensor_text.numbers_of(text)
    if numbers is not None and len(numbers) > MOST_NUMBERS:
        return None, Notice("tensor.refused_count", {"count": str(len(numbers)), "limit": str(MOST_NUMBERS)})
    return None if numbers is None else "_".join(map(tensor_text.said, numbers)), notice


def _listed(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split("_")))


def _choice(name: str, text: str, allowed: str) -> Notice:
    usual = asdict(Asked())[name]
    used = tensor_text.said(usual) if isinstance(usual, float) else str(usual)
    return Notice("link.choice", {"name": name, "value": text[:60], "allowed": allowed, "used": used})


def _tensor(_name: str, text: str) -> tuple[str | None, Notice | None]:
    found, notice = tensor_text.unspelled(text)
    return None if found is None else tensor_text.spelled(found), notice


def _number(name: str, text: str) -> tuple[float | None, Notice | None]:
    limits = NUMBERS[name]
    found = limits.read(text)
    return found, _choice(name, text, f"{limits.low:g} … {limits.high:g}") if found is None else None


def _named(name: str, text: str) -> tuple[str | None, Notice | None]:
    return text, None if text in CHOICES[name] else _choice(name, text, ", ".join(CHOICES[name]))


def _numbers(_name: str, text: str) -> tuple[str | None, Notice | None]:
    return listed_of(text.replace("_", ","))


def _place(name: str, text: str) -> tuple[str | None, Notice | None]:
    known = re.fullmatch(r"[0-9]\.[0-9]\.[0-9]{1,2}", text)
    return text, None if known else _choice(name, text, "0.0.0 …")


_READ: Mapping[str, Callable[[str, str], tuple[Any, Notice | None]]] = {
    "x": _tensor, "scale": _number, "norm": _named, "eps": _number, "groups": _number, "pool": _named,
    "gamma": _numbers, "beta": _numbers, "at": _place,
}
"""Parameter → what reads it: the value, or why it is refused."""
