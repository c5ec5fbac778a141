"""What the stack reads: batches of a real text, of vectors, or of generated tokens, each a pure function of its number.

Batch k depends on the input fields, the seed and k, and on no model field but the width that vectors must have: two
models that are compared read the same. The file does not know what is done with a batch.

Shapes: B batch, T positions, D = d_model, V = vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.experiment import Experiment
from core.fields import refusal
from core.inits import generator
from core.rules import TEXT_HASH, text_hash
from core.tables import SOURCES, load

Texts = Mapping[str, str] | Callable[[str], str | None]
"""Where a visitor's own text is found by its content hash."""


class Batch(NamedTuple):
    """One batch on the CPU.

    `inputs`: tokens (B, T) int64, or vectors (B, T, D) float32; `targets`: the next token at each position (B, T), None
    for vectors; `mask`: (B, T), true at real tokens, which come first; None where all are real. Padding is 0.
    """

    inputs: Tensor
    targets: Tensor | None
    mask: Tensor | None

    def to(self, device: torch.device) -> Batch:
        """Return the batch on `device`."""
        return Batch(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]


def batch(experiment: Experiment, step: int, texts: Texts | None = None) -> Batch:
    """Return batch number `step` of `experiment`.

    `texts`: gives the text that ``input.text`` names by its hash. Errors: ExperimentError when it does not have it.
    """
    source = load(SOURCES, experiment.input.source)
    drawn: Tensor = source(experiment, generator(experiment.protocol.seed, f"batch.{step}"), texts)
    mask = _mask(experiment)
    if drawn.is_floating_point():
        return Batch(_padded(drawn, mask), None, mask)
    return Batch(_padded(drawn[:, :-1].contiguous(), mask), _padded(drawn[:, 1:].contiguous(), mask), mask)


def with_own_text(experiment: Experiment, texts: Texts | None) -> Experiment:
    """Return `experiment` with the text itself where ``input.text`` names it by its hash: found and checked once.

    Errors: as `batch`.
    """
    given = experiment.input.text
    if given is None:
        return experiment
    source = experiment.input.model_copy(update={"text": _own_text(given, texts)})
    return experiment.model_copy(update={"input": source})


def lengths(experiment: Experiment) -> tuple[int, ...] | None:
    """Return the number of real tokens of each sequence, the same in every batch; None where all are full.

    ragged: between ⌈T/2⌉ and T from the seed, one sequence at least full.
    """
    given, longest = experiment.input.lengths, experiment.input.seq_len
    if not isinstance(given, str):
        return given
    draws = torch.randint(math.ceil(longest / 2), longest + 1, (experiment.input.batch,),
                          generator=generator(experiment.protocol.seed, "lengths"))
    draws[draws.argmax()] = longest
    return tuple(int(length) for length in draws)


def text(experiment: Experiment, random: torch.Generator, texts: Texts | None) -> Tensor:
    """Return windows of T + 1 bytes (B, T + 1) from anywhere in the text, which repeats when it is shorter."""
    source = experiment.input
    content = _bytes(_own_text(source.text, texts) if source.text else None)
    window = source.seq_len + 1
    starts = torch.randint(max(len(content) - window + 1, 1), (source.batch, 1), generator=random)
    places = (starts + torch.arange(window)) % len(content)
    return content[places].long()


def gaussian(experiment: Experiment, random: torch.Generator, _texts: Texts | None) -> Tensor:
    """Return N(0, 1) vectors (B, T, D)."""
    source = experiment.input
    return torch.randn(source.batch, source.seq_len, experiment.model.d_model, generator=random)


def scaled(experiment: Experiment, random: torch.Generator, _texts: Texts | None) -> Tensor:
    """Return N(0, 1) vectors (B, T, D), each feature times its entry of ``feature_scales``."""
    return gaussian(experiment, random, None) * torch.tensor(experiment.input.feature_scales, dtype=torch.float32)


def tokens(experiment: Experiment, random: torch.Generator, _texts: Texts | None) -> Tensor:
    """Return uniform, independent tokens (B, T + 1)."""
    source = experiment.input
    return torch.randint(_vocab(experiment), (source.batch, source.seq_len + 1), generator=random)


def markov(experiment: Experiment, random: torch.Generator, _texts: Texts | None) -> Tensor:
    """Return stationary runs (B, T + 1) of the order-1 chain that the seed draws."""
    source = experiment.input
    rows, stationary = _chain(experiment.protocol.seed, _vocab(experiment))
    uniform = torch.rand(source.batch, source.seq_len + 1, generator=random, dtype=torch.float64).numpy()
    cumulative, state = rows.cumsum(1), _sampled(stationary.cumsum()[None], uniform[:, 0])
    states = [state]
    for place in range(1, source.seq_len + 1):
        state = _sampled(cumulative[state], uniform[:, place])
        states.append(state)
    return torch.from_numpy(np.stack(states, 1))


def conditional_entropy(experiment: Experiment) -> float:
    """Return the markov source's −Σ π_i Σ P_ij ln P_ij in nats: the least next-token loss a model can reach."""
    rows, stationary = _chain(experiment.protocol.seed, _vocab(experiment))
    terms = rows * np.log(np.where(rows > 0, rows, 1))
    return float(-stationary @ terms.sum(1))


def _own_text(given: str, texts: Texts | None) -> str:
    """Return the text itself where ``input.text`` holds its hash."""
    if not given.startswith(TEXT_HASH):
        return given
    find = texts if callable(texts) else (texts or {}).get
    found = find(given)
    if found is None or text_hash(found) != given:
        raise refusal("input.text", given, "the text itself, or the hash of a text that is handed in with it")
    return found


@lru_cache(maxsize=4)
def _bytes(own: str | None) -> Tensor:
    """Return the text's UTF-8 bytes; without a text of one's own, CPython's documentation of its topics."""
    if own is None:
        from pydoc_data.topics import topics

        own = "\n".join(topics[name] for name in sorted(topics))
    return torch.frombuffer(bytearray(own.encode()), dtype=torch.uint8)


@lru_cache(maxsize=4)
def _chain(seed: int, vocab: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the chain's transition rows (V, V), each Dirichlet(0.1), and its stationary distribution (V,)."""
    rows = np.random.default_rng(generator(seed, "markov").initial_seed()).dirichlet(np.full(vocab, 0.1), vocab)
    return rows, stationary_distribution(rows)


def stationary_distribution(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return π (V,) with π = π·P, Σπ = 1, without subtractions, so exact for chains that hardly mix too.

    Source: Grassmann, Taksar, Heyman 1985. Errors: none for rows (V, V) of positive probabilities.
    """
    reduced, vocab = rows.copy(), len(rows)
    for last in range(vocab - 1, 0, -1):
        reduced[:last, last] /= reduced[last, :last].sum()
        reduced[:last, :last] += np.outer(reduced[:last, last], reduced[last, :last])
    weights = np.ones(vocab)
    for state in range(1, vocab):
        weights[state] = weights[:state] @ reduced[:state, state]
    share: NDArray[np.float64] = weights / weights.sum()
    return share


def _sampled(cumulative: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each uniform number the state whose interval of its cumulative row holds it."""
    states: NDArray[np.int64] = (cumulative <= uniform[:, None]).sum(1).clip(max=cumulative.shape[1] - 1)
    return states


def _vocab(experiment: Experiment) -> int:
    return experiment.resolved().input.vocab or 0


def _mask(experiment: Experiment) -> Tensor | None:
    """Return (B, T), true at real tokens; None where all are real."""
    real = lengths(experiment)
    return None if real is None else torch.arange(experiment.input.seq_len) < torch.tensor(real)[:, None]


def _padded(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, T, …) with 0 at the padding."""
    if mask is None:
        return x
    return x.masked_fill(~mask.view(*mask.shape, *[1] * (x.dim() - 2)), 0)
