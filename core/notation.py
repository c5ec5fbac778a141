"""Notation: formulas that are written by computing with them, as LaTeX and as plain Unicode at once.

A `Formula` knows +, −, ·, / and how firmly it binds, so that brackets stand where they must. The file knows how things
are written; it does not know what they mean. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

SUM, PRODUCT, ATOM = range(3)
"""How firmly a formula binds."""


@dataclass(frozen=True)
class Formula:
    """One formula, as LaTeX and as plain text. `each`: a product with it is taken feature by feature."""

    latex: str
    plain: str
    binds: int = ATOM
    each: bool = False

    def __add__(self, other: Formula) -> Formula:
        return Formula(f"{self.latex} + {other.latex}", f"{self.plain} + {other.plain}", SUM)

    def __sub__(self, other: Formula) -> Formula:
        right = other.within(PRODUCT)
        return Formula(f"{self.latex} - {right.latex}", f"{self.plain} − {right.plain}", SUM)

    def __mul__(self, other: Formula) -> Formula:
        left, right = self.within(PRODUCT), other.within(PRODUCT)
        latex, plain = (r"\odot", " ⊙ ") if self.each else (r"\cdot", "·")
        return Formula(f"{left.latex} {latex} {right.latex}", f"{left.plain}{plain}{right.plain}", PRODUCT)

    def __truediv__(self, other: Formula) -> Formula:
        left, right = self.within(PRODUCT), other.within(ATOM)
        return Formula(rf"\frac{{{self.latex}}}{{{other.latex}}}", f"{left.plain}/{right.plain}", PRODUCT)

    def __matmul__(self, other: Formula) -> Formula:
        left, right = self.within(PRODUCT), other.within(ATOM)
        return Formula(rf"{left.latex}\,{right.latex}", f"{left.plain} {right.plain}", PRODUCT)

    def within(self, binds: int) -> Formula:
        """Return it in brackets, unless it binds as firmly as `binds`."""
        if self.binds >= binds:
            return self
        return Formula(_bracketed(self.latex), f"({self.plain})")


@dataclass(frozen=True)
class Line:
    """One line, ``name = formula``."""

    name: Formula
    formula: Formula

    @property
    def latex(self) -> str:
        """The line as LaTeX."""
        return f"{self.name.latex} = {self.formula.latex}"

    @property
    def plain(self) -> str:
        """The line as plain text."""
        return f"{self.name.plain} = {self.formula.plain}"


def symbol(latex: str, plain: str | None = None, each: bool = False) -> Formula:
    """Return a letter."""
    return Formula(latex, latex if plain is None else plain, ATOM, each)


def word(name: str) -> Formula:
    """Return a name in upright letters."""
    escaped = name.replace("_", r"\_")
    return Formula(rf"\mathrm{{{escaped}}}", name)


def number(value: float) -> Formula:
    """Return a number with four figures, a whole one with all, very large and small ones as a power of ten."""
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    power = int(exponent)
    if value == 0 or -4 < power < 6:
        digits = f"{value:.0f}" if value == round(value) or power > 3 else f"{value:.4g}"
        return Formula(digits, digits.replace("-", "−"))
    digits = f"{float(mantissa):g}"
    head = ("", "") if digits == "1" else (rf"{digits} \cdot ", f"{digits}·")
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return Formula(rf"{head[0]}10^{{{power}}}", f"{head[1]}10{raised}", PRODUCT)


def call(name: Formula | str, *arguments: Formula) -> Formula:
    """Return name(arguments)."""
    head = word(name) if isinstance(name, str) else name
    latex, plain = (", ".join(getattr(one, kind) for one in arguments) for kind in ("latex", "plain"))
    return Formula(f"{head.latex}{_bracketed(latex)}", f"{head.plain}({plain})")


def root(x: Formula) -> Formula:
    """Return √x."""
    return Formula(rf"\sqrt{{{x.latex}}}", f"√{x.within(ATOM).plain}")


def square(x: Formula) -> Formula:
    """Return x²."""
    base = x.within(ATOM)
    return Formula(f"{base.latex}^2", f"{base.plain}²")


def _bracketed(latex: str) -> str:
    """Return LaTeX in brackets, which grow only where what they hold is tall: growing ones set themselves apart."""
    tall = any(sign in latex for sign in (r"\frac", r"\sqrt", "^"))
    return rf"\left({latex}\right)" if tall else f"({latex})"
