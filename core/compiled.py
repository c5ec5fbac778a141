"""How a loop over entries is compiled: by Numba, for the dtypes it is meant for, and kept on disk for later processes.

What is compiled is kept beside the source, or where that cannot be written in the user's cache folder, or in
NUMBA_CACHE_DIR. It is renewed when the loop's own file changes, and only then. So a loop stands in one file with the
loops it calls and reads no constant of another file: such values are arguments. The file knows the compiler; it does
not know what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])

ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})
"""Sums may be taken in any order, which is what lets several entries be added at once. Nothing is assumed of entries,
NaN and Inf least of all."""

AS_WRITTEN = frozenset({"contract"})
"""A product and a sum may be rounded once; the order is that of the source."""


def compiled(*signatures: str, freedom: frozenset[str] = ANY_ORDER) -> Callable[[Loop], Loop]:
    """Return the decorator that compiles a loop at once for these Numba signatures, and for no others.

    Without any it is compiled into the loops that call it. One thread, the interpreter let go meanwhile; a division by
    zero gives Inf or NaN.
    """
    def made(loop: Loop, kept: bool) -> Loop:
        decorate: Any = numba.njit(list(signatures) or None, cache=kept, nogil=True, error_model="numpy",
                                   fastmath=set(freedom))
        return cast(Loop, decorate(loop))

    def decorate(loop: Loop) -> Loop:
        try:
            return made(loop, kept=bool(signatures))
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return made(loop, kept=False)  # no folder can be written to: every process compiles for itself

    return decorate
