"""What an experiment costs, from its description alone: parameters, operations, memory, bytes stored.

It knows the shapes of the stack, not torch. Parameters are exact; operations count the multiply-adds of the matrix
products (two operations each, backward twice the forward); memory and bytes stored are estimates on the high side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from core import rules
from core.experiment import Experiment, Input, Model, Protocol
from core.fields import ExperimentError
from core.schedules import recorded_steps
from core.tables import FAMILIES, GATED_ACTIVATIONS, NORMS, PLACEMENTS, VECTOR_SOURCES, Norm
from core.vocabulary import (
    HEAD_MEASURES,
    HEADS_STANDARD,
    HISTOGRAM_BINS,
    IDS_KEPT,
    SITES,
    STATISTICS,
    TIME_KEPT,
    TIME_STATISTICS,
    TOKENS_KEPT,
)

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
SUBLAYERS = {"both": ("attention", "mlp"), "attention": ("attention",), "mlp": ("mlp",)}
FLOPS_PER_SECOND = {"float32": 6e10, "bfloat16": 6e10, "float16": 5e9, "float64": 3e10}
SECONDS_PER_LAYER = {"full": 0.02, "standard": 0.004}
SECONDS_PER_STEP = 0.002
SECONDS_PER_TIME_STEP = 3.5e-4
SECONDS_PER_CHAIN = 1.7e-9
"""What one core computes; how long it takes to record one layer in each detail; what a step of a training takes beside
its operations, per layer; what a time step of a recurrent layer takes beside its operations, both passes; and the
stationary distribution of a chain, per state cubed. Measured on 2 cores of 2024;
they only decide whether a page runs at once or asks first, and what it says of the time."""

OPTIMIZER_STATES = {"adam": 2, "adamw": 2, "sgd": 1}
"""How many numbers an optimizer keeps for each parameter; sgd only with momentum."""


@dataclass(frozen=True)
class Cost:
    """An estimate: `flops` of all steps, both passes; `peak_bytes` while it runs; `stored_bytes` in the store.

    `seconds`: rough time on one core; `held_bytes`: the part of the peak that a training holds between its steps, while
    its variants play theirs; `recorded`: steps that are recorded.
    """

    parameters: int
    flops: float
    peak_bytes: int
    stored_bytes: int
    seconds: float
    held_bytes: int = 0
    recorded: int = 1


def cost(experiment: Experiment) -> Cost:
    """Return the estimate for one run of `experiment`."""
    canonical = experiment.resolved()
    model, source, protocol = canonical.model, canonical.input, canonical.protocol
    count = parameters(canonical)
    tokens = source.batch * source.seq_len
    steps = protocol.steps + 1  # snapshot k is taken after k updates, from 0 on
    pairs = _pairs(model, source)
    matrix_flops = 2 * tokens * _matrix_entries(model, source) + 4 * pairs * (model.head_dim or 0)
    written_out = pairs * 4 if protocol.attention == "explicit" else 0
    activations = (_saved_entries(model, source) + written_out) * BYTES[protocol.dtype]
    weights = count * max(4, BYTES[protocol.dtype])
    states = _optimizer_states(protocol)
    held = weights * (3 + states) if protocol.steps else 0  # the third: the weights before the update
    kept = weights * (1 + states) if protocol.steps else 0  # a checkpoint, in memory once more while it is made
    flops = 3.0 * matrix_flops * steps
    full, standard = _recorded(protocol)
    stored = full * _snapshot_bytes(model, source, protocol.dtype) + standard * _standard_bytes(model) + kept
    return Cost(count, flops, max(activations + (held or 2 * weights), held + 2 * kept), stored,
                _seconds(canonical, flops), held, full + standard)


def _optimizer_states(protocol: Protocol) -> int:
    without = protocol.optimizer == "sgd" and not protocol.momentum
    return 0 if without else OPTIMIZER_STATES[protocol.optimizer]


def _recorded(protocol: Protocol) -> tuple[int, int]:
    """Return how many steps are recorded in detail full, and how many in detail standard."""
    count = recorded_steps(protocol)
    full = {"full": count, "standard": 0}.get(protocol.detail or "", min(count, 2))
    return full, count - full


def _seconds(canonical: Experiment, flops: float) -> float:
    model, source, protocol = canonical.model, canonical.input, canonical.protocol
    full, standard = _recorded(protocol)
    recording = model.n_layers * (full * SECONDS_PER_LAYER["full"] + standard * SECONDS_PER_LAYER["standard"])
    chain = SECONDS_PER_CHAIN * (source.vocab or 0) ** 3 if source.source == "markov" else 0.0
    over_time = (protocol.steps + 1) * model.n_layers * source.seq_len * FAMILIES[model.family].recurrent
    return (flops / FLOPS_PER_SECOND[protocol.dtype] + recording + chain + over_time * SECONDS_PER_TIME_STEP
            + protocol.steps * model.n_layers * SECONDS_PER_STEP)


def parameters(canonical: Experiment) -> int:
    """Return the exact number of learned numbers of a canonical experiment's stack."""
    model, source = canonical.model, canonical.input
    per_layer = [_layer_parameters(model, NORMS[name]) for name in rules.layer_norms(canonical)]
    own_norm = _norm_parameters(model, NORMS[model.norm], model.d_model)
    total = sum(per_layer) + (own_norm if model.final_norm else 0)
    if source.source in VECTOR_SOURCES:
        return total
    vocabulary = (source.vocab or 0) * model.d_model
    positions = source.seq_len * model.d_model if model.positions == "learned" else 0
    return (total + vocabulary * (1 if model.tie_embeddings else 2) + positions
            + (own_norm if model.embed_norm else 0))


def check_limits(experiments: list[Experiment], limits: Mapping[str, float]) -> None:
    """Refuse what is over the limits; `limits` maps a field of Cost (``peak_bytes``, ``flops``…) to its largest value.

    Memory holds one variant's step at a time, so the largest counts, and what all trainings hold between their steps;
    operations and stored bytes add up.
    Errors: ExperimentError with the estimate and the limit.
    """
    costs = [cost(experiment) for experiment in experiments]
    for name, limit in limits.items():
        total = _together(costs, name)
        if total > limit:
            unit, scale, digits = _LIMIT_UNITS[name]
            needed, most = f"{total / scale:,.{digits}f}", f"{limit / scale:,.{digits}f}"
            raise ExperimentError(f"the experiment would need {needed} {unit}; allowed: up to {most} {unit}",
                                  f"limit_{name}", needed=needed, limit=most)


def _together(costs: Sequence[Cost], name: str) -> float:
    """Return a field of several estimates together."""
    values = [float(getattr(one, name)) for one in costs]
    if name == "peak_bytes":
        return max(one.peak_bytes - one.held_bytes for one in costs) + sum(one.held_bytes for one in costs)
    return max(values) if name == "parameters" else sum(values)


def together(costs: Sequence[Cost]) -> Cost:
    """Return the estimate of several runs that are asked for at once; of parameters and memory as in `check_limits`."""
    total = {one.name: _together(costs, one.name) for one in fields(Cost)}
    return Cost(**{name: value if name in ("flops", "seconds") else int(value)  # type: ignore[arg-type]
                   for name, value in total.items()})


_LIMIT_UNITS = {"parameters": ("parameters", 1, 0), "flops": ("GFLOP", 1e9, 1),
                "peak_bytes": ("MiB of memory", 2**20, 0), "stored_bytes": ("MiB in the store", 2**20, 1)}
"""Field of Cost → its unit in sentences, how much of it one unit is, and the decimals shown."""


def _norm_parameters(model: Model, norm: Norm, width: int) -> int:
    return norm.always + (norm.vectors * width + norm.scalars if model.norm_affine else 0)


def _layer_parameters(model: Model, norm: Norm) -> int:
    family, width = FAMILIES[model.family], model.d_model
    if family.recurrent:
        norms = sum(_norm_parameters(model, norm, times * width) for times in family.norms.values())
        return sum(rows * columns for rows, columns in _matrices(model)) + family.biases * width * model.bias + norms
    sublayers = SUBLAYERS[model.sublayers]
    norms = len(sublayers) * len(PLACEMENTS[model.placement].slots) * _norm_parameters(model, norm, model.d_model)
    scales = {"rezero": 1, "layerscale": model.d_model}.get(str(model.branch_scale), 0) * len(sublayers)
    qk = _qk_norm_parameters(model) if "attention" in sublayers else 0
    return sum(rows * columns + (rows if model.bias else 0) for rows, columns in _matrices(model)) + norms + scales + qk


def _qk_norm_parameters(model: Model) -> int:
    heads = (1, 1) if model.qk_norm_scope == "head" else (model.n_heads, model.n_kv_heads or 0)
    return sum(_norm_parameters(model, NORMS[model.qk_norm], n * (model.head_dim or 0)) for n in heads)


def _matrices(model: Model) -> list[tuple[int, int]]:
    """Return (out, in) of each matrix of one layer."""
    width, inner = model.d_model, model.d_ff or 0
    if FAMILIES[model.family].recurrent:
        return [(width, width)] * 2 * len(FAMILIES[model.family].gates)
    queries, keys = model.n_heads * (model.head_dim or 0), (model.n_kv_heads or 0) * (model.head_dim or 0)
    ways_in = 2 if model.activation in GATED_ACTIVATIONS else 1
    parts = {
        "attention": [(queries, width), (keys, width), (keys, width), (width, queries)],
        "mlp": [(inner, width)] * ways_in + [(width, inner)],
    }
    return [matrix for sublayer in SUBLAYERS[model.sublayers] for matrix in parts[sublayer]]


def _matrix_entries(model: Model, source: Input) -> int:
    head = 0 if source.source in VECTOR_SOURCES else (source.vocab or 0) * model.d_model
    return model.n_layers * sum(rows * columns for rows, columns in _matrices(model)) + head


def _pairs(model: Model, source: Input) -> int:
    """Return the number of (query, key) pairs over all layers and heads."""
    return model.n_layers * model.n_heads * source.batch * source.seq_len**2 if _attends(model) else 0


def _attends(model: Model) -> bool:
    return "attention" in SUBLAYERS[model.sublayers] and not FAMILIES[model.family].recurrent


def _sites(model: Model) -> int:
    """Return how many sites the layers of a stack have at most."""
    steps = FAMILIES[model.family].steps
    of_a_block = sum(site.where == "block" and not site.over_time for site in SITES.values())
    return model.n_layers * (len(steps) or of_a_block)


def _saved_entries(model: Model, source: Input) -> int:
    """Return about how many activation entries are alive at the end of the forward pass."""
    inner = (model.d_ff or 0) * (4 if model.activation in GATED_ACTIVATIONS else 3)
    logits = 0 if source.source in VECTOR_SOURCES else 3 * (source.vocab or 0)
    return source.batch * source.seq_len * (model.n_layers * (14 * model.d_model + inner) + logits)


def _standard_bytes(model: Model) -> int:
    """Return about what one snapshot in detail standard takes, compressed."""
    sites = _sites(model)
    numbers = (2 * sites * sum(one.detail == "standard" for one in STATISTICS.values())
               + model.n_layers * (4 * 20 + len(HEADS_STANDARD) * model.n_heads))
    return 8_192 + 4 * numbers


def _snapshot_bytes(model: Model, source: Input, dtype: str) -> int:
    """Return about what one snapshot in detail full takes, the statistics compressed to a half, the tokens not."""
    sites = _sites(model)
    positions = source.batch * source.seq_len
    ids = 0 if source.source in VECTOR_SOURCES else min(positions, IDS_KEPT) * 4
    sizes = (model.n_layers + 1) * min(positions, TOKENS_KEPT) * max(4, BYTES[dtype])
    heads = model.n_layers * model.n_heads * len(HEAD_MEASURES) if _attends(model) else 0
    over_time = model.n_layers * len(FAMILIES[model.family].steps) * 2 * len(TIME_STATISTICS) * max(4, BYTES[dtype])
    times = over_time * min(source.seq_len, TIME_KEPT)
    return 16_384 + (2 * sites * (len(STATISTICS) + len(HISTOGRAM_BINS) // 8) + heads) * 8 // 2 + ids + sizes + times
