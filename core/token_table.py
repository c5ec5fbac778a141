"""The tokens of a recorded step for a reader: where each stands, how it is written, and its size layer by layer.

Torch-free. It knows a Snapshot and that the source ``text`` reads bytes; it does not know how anything is drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.trace import F64, Snapshot

BYTE_SOURCE = "text"
"""The source whose tokens are bytes."""

PADDING = ""
"""How a position without a token is written."""

_CONTROL, _DELETE = 0x2400, "\u2421"  # Unicode has a picture for each control character
_BLANKS = {0x20: "·", 0x0A: "↵", 0x09: "→"}  # whose own pictures are missing from most fonts
_SUBSCRIPTS = "₁₂₃₄"


def place(snapshot: Snapshot, token: int) -> tuple[int, int]:
    """Return the sequence of a position of the flattened batch and its place there; (−1, −1) where B, T are unknown."""
    length = snapshot.batch_shape[1]
    return divmod(token, length) if length else (-1, -1)


def symbols(snapshot: Snapshot, source: str) -> list[str]:
    """Return how each kept token is written, in the order of the flattened batch; PADDING where there is none.

    `source`: as in ``input.source``. A byte of text that is a printable character is that character; a blank or control
    character is a sign for it (· ↵ →, else its picture); a byte of a longer character is the character and which byte
    of it (é₁ é₂); what is no text is its number (``\\xe9``). A token of another source is its number.
    """
    if source != BYTE_SOURCE:
        return [str(token) if token >= 0 else PADDING for token in snapshot.tokens.tolist()]
    length = max(snapshot.batch_shape[1], 1)
    starts = range(0, len(snapshot.tokens), length)
    return [written for start in starts for written in _sequence(snapshot.tokens[start:start + length])]


def symbol(snapshot: Snapshot, source: str, token: int) -> str:
    """Return how the token at a position of the flattened batch is written; PADDING where its id was not kept."""
    if not 0 <= token < len(snapshot.tokens):
        return PADDING
    length = max(snapshot.batch_shape[1], 1)
    start = token - token % length
    if source != BYTE_SOURCE:
        return str(snapshot.tokens[token]) if snapshot.tokens[token] >= 0 else PADDING
    return _sequence(snapshot.tokens[start:start + length])[token - start]


def columns(snapshot: Snapshot, source: str) -> dict[str, list[object]]:
    """Return the single tokens as columns of one length, ready for a file: a row for each kept position that is real.

    token, sequence, position, id and symbol (None where the model reads vectors), then the RMS in the stream:
    token_rms_embed, token_rms_0 … by layer, NaN where a token is not finite. Empty columns in detail standard.
    """
    real = np.flatnonzero(~padding(snapshot)).tolist()
    places = [place(snapshot, token) for token in real]
    written = symbols(snapshot, source)
    sizes = {f"token_rms_{'embed' if row == 0 else row - 1}": snapshot.token_rms[row, real].tolist()
             for row in range(len(snapshot.token_rms))}
    return {
        "token": real, "sequence": [sequence for sequence, _ in places],
        "position": [position for _, position in places],
        "id": [int(snapshot.tokens[token]) if written else None for token in real],
        "symbol": [written[token] if written else None for token in real], **sizes,
    }


def above_median(snapshot: Snapshot) -> F64:
    """Return each kept token's RMS over the median token's at the same layer, (L+1, M), as in `token_rms`.

    NaN where the token has no size, and in a layer whose median is 0.
    """
    ratios = np.full(snapshot.token_rms.shape, np.nan)
    for row, values in enumerate(snapshot.token_rms.astype(np.float64)):
        finite = values[~np.isnan(values)]
        if finite.size and np.median(finite) > 0:
            ratios[row] = values / np.median(finite)
    return ratios


def padding(snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return at which kept positions no token stands, (M,): by its id, or for vectors by having no size."""
    if len(snapshot.tokens):
        return snapshot.tokens[: snapshot.token_rms.shape[1]] < 0
    unsized: NDArray[np.bool_] = np.isnan(snapshot.token_rms).all(0)
    return unsized


def _sequence(ids: NDArray[np.int32]) -> list[str]:
    """Return how the bytes of one sequence are written."""
    values = ids.tolist()
    found: list[str] = []
    while len(found) < len(values):
        found += _next(values, len(found))
    return found


def _next(values: list[int], start: int) -> list[str]:
    """Return how the character that starts there is written, byte by byte."""
    first = values[start]
    if first < 0:
        return [PADDING]
    if first < 0x80:
        return [_ascii(first)]
    size = next((size for lead, size in _LONGER if first >= lead), 1)
    read = [value for value in values[start:start + size] if 0 <= value < 0x100]
    try:
        character = bytes(read).decode() if len(read) == size else ""
    except (UnicodeDecodeError, ValueError):
        character = ""
    if not character.isprintable() or len(character) != 1:
        return [f"\\x{first:02x}"]
    return [character + _SUBSCRIPTS[byte] for byte in range(size)]


_LONGER = ((0xF0, 4), (0xE0, 3), (0xC0, 2))
"""The least first byte of a character of UTF-8 → of how many bytes it is."""


def _ascii(value: int) -> str:
    if value == 0x7F:
        return _DELETE
    return _BLANKS.get(value) or (chr(value) if value > 0x20 else chr(_CONTROL + value))
