"""Where a norm is cast back to the narrow format: after γ was applied, or before. How far the two outputs lie apart.

Both are in use: after, as torch's kernels do, is one rounding of γ·n(x); before rounds n(x), then γ, then their
product. With γ = 1, as at initialization, they are the same bit for bit. Numbers only.

Shapes: n entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.formats import F64, FORMATS, rounded


@dataclass(frozen=True, eq=False)
class Casts:
    """The outputs of one token in the narrow format `name`, (n,) each; `exact`: without any rounding."""

    name: str
    exact: F64
    after: F64
    before: F64

    @property
    def apart(self) -> F64:
        """before − after, (n,)."""
        return self.before - self.after

    @property
    def places(self) -> F64:
        """The same in units of the last place of `after`, (n,)."""
        one = FORMATS[self.name]
        _, exponent = np.frexp(self.after)
        return np.asarray(self.apart / np.ldexp(1.0, np.maximum(exponent - 1, one.low) + 1 - one.digits))

    def error(self, output: F64) -> float:
        """Return the root mean square of `output` − exact."""
        return float(np.sqrt(np.square(output - self.exact).mean()))


def casts(name: str, n: int, spread: float, draw: int = 0) -> Casts:
    """Return RMSNorm outputs γ·x/rms(x), x ~ N(0, 1) and γ ~ N(1, spread²), both held in the format `name`.

    n(x) is in float32, as norms compute.
    """
    random = np.random.default_rng(draw)
    x, gain = rounded(random.standard_normal(n), name), 1 + spread * random.standard_normal(n)
    normed = rounded(x / np.sqrt(np.square(x).mean() + 1e-5), "float32")
    wide = rounded(gain, "float32")
    after = rounded(rounded(normed * wide, "float32"), name)
    before = rounded(rounded(normed, name) * rounded(wide, name), name)
    return Casts(name, normed * wide, after, before)
