"""What an experiment costs, from its description alone: parameters, operations, memory, bytes stored.

It knows the shapes of the stack, not torch. Parameters are exact; operations count the multiply-adds of the matrix
products (two operations each, backward twice the forward); memory and bytes stored are estimates on the high side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core import rules
from core.experiment import Experiment, Input, Model
from core.fields import ExperimentError
from core.tables import GATED_ACTIVATIONS, NORMS, PLACEMENTS, VECTOR_SOURCES, Norm
from core.vocabulary import HISTOGRAM_BINS, IDS_KEPT, SITES, STATISTICS, TOKENS_KEPT

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
SUBLAYERS = {"both": ("attention", "mlp"), "attention": ("attention",), "mlp": ("mlp",)}
FLOPS_PER_SECOND = {"float32": 6e10, "bfloat16": 6e10, "float16": 5e9, "float64": 3e10}
SECONDS_PER_LAYER = 0.02
SECONDS_PER_CHAIN = 1.7e-9
"""What one core computes; how long it takes to record one layer in detail full; and the stationary distribution of a
chain, per state cubed. Measured on 2 cores of 2024; they only decide whether a page runs at once or asks first."""


@dataclass(frozen=True)
class Cost:
    """An estimate: `flops` of all steps, both passes; `peak_bytes` while it runs; `stored_bytes` in the store.

    `seconds`: rough time on one core.
    """

    parameters: int
    flops: float
    peak_bytes: int
    stored_bytes: int
    seconds: float


def cost(experiment: Experiment) -> Cost:
    """Return the estimate for one run of `experiment`."""
    canonical = experiment.resolved()
    model, source, protocol = canonical.model, canonical.input, canonical.protocol
    count = parameters(canonical)
    tokens = source.batch * source.seq_len
    steps = protocol.steps + 1  # snapshot k is taken after k updates, from 0 on
    pairs = _pairs(model, source)
    matrix_flops = 2 * tokens * _matrix_entries(model, source) + 4 * pairs * (model.head_dim or 0)
    copies = 4 if protocol.steps and protocol.optimizer != "sgd" else 2
    written_out = pairs * 4 if protocol.attention == "explicit" else 0
    activations = (_saved_entries(model, source) + written_out) * BYTES[protocol.dtype]
    weights = count * copies * max(4, BYTES[protocol.dtype])
    recorded = steps if protocol.record_every == "log" else protocol.steps // protocol.record_every + 1
    flops = 3.0 * matrix_flops * steps
    seconds = flops / FLOPS_PER_SECOND[protocol.dtype] + recorded * model.n_layers * SECONDS_PER_LAYER
    if source.source == "markov":
        seconds += SECONDS_PER_CHAIN * (source.vocab or 0) ** 3
    return Cost(count, flops, activations + weights, recorded * _snapshot_bytes(model, source, protocol.dtype), seconds)


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

    Memory holds one variant at a time, so the largest counts; operations and stored bytes add up.
    Errors: ExperimentError with the estimate and the limit.
    """
    costs = [cost(experiment) for experiment in experiments]
    for name, limit in limits.items():
        values = [float(getattr(estimate, name)) for estimate in costs]
        total = max(values) if name in ("peak_bytes", "parameters") else sum(values)
        if total > limit:
            unit, scale, digits = _LIMIT_UNITS[name]
            needed, most = f"{total / scale:,.{digits}f}", f"{limit / scale:,.{digits}f}"
            raise ExperimentError(f"the experiment would need {needed} {unit}; allowed: up to {most} {unit}",
                                  f"limit_{name}", needed=needed, limit=most)


_LIMIT_UNITS = {"parameters": ("parameters", 1, 0), "flops": ("GFLOP", 1e9, 1),
                "peak_bytes": ("MiB of memory", 2**20, 0), "stored_bytes": ("MiB in the store", 2**20, 1)}
"""Field of Cost → its unit in sentences, how much of it one unit is, and the decimals shown."""


def _norm_parameters(model: Model, norm: Norm, width: int) -> int:
    return norm.always + (norm.vectors * width + norm.scalars if model.norm_affine else 0)


def _layer_parameters(model: Model, norm: Norm) -> int:
    sublayers = SUBLAYERS[model.sublayers]
    norms = len(sublayers) * len(PLACEMENTS[model.placement].slots) * _norm_parameters(model, norm, model.d_model)
    scales = {"rezero": 1, "layerscale": model.d_model}.get(str(model.branch_scale), 0) * len(sublayers)
    qk = _qk_norm_parameters(model) if "attention" in sublayers else 0
    return sum(rows * columns + (rows if model.bias else 0) for rows, columns in _matrices(model)) + norms + scales + qk


def _qk_norm_parameters(model: Model) -> int:
    heads = (1, 1) if model.qk_norm_scope == "head" else (model.n_heads, model.n_kv_heads or 0)
    return sum(_norm_parameters(model, NORMS[model.qk_norm], n * (model.head_dim or 0)) for n in heads)


def _matrices(model: Model) -> list[tuple[int, int]]:
    """Return (out, in) of each matrix of one block."""
    width, inner = model.d_model, model.d_ff or 0
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
    attends = "attention" in SUBLAYERS[model.sublayers]
    return model.n_layers * model.n_heads * source.batch * source.seq_len**2 if attends else 0


def _saved_entries(model: Model, source: Input) -> int:
    """Return about how many activation entries are alive at the end of the forward pass."""
    inner = (model.d_ff or 0) * (4 if model.activation in GATED_ACTIVATIONS else 3)
    logits = 0 if source.source in VECTOR_SOURCES else 3 * (source.vocab or 0)
    return source.batch * source.seq_len * (model.n_layers * (14 * model.d_model + inner) + logits)


def _snapshot_bytes(model: Model, source: Input, dtype: str) -> int:
    """Return about what one snapshot in detail full takes, the statistics compressed to a half, the tokens not."""
    sites = model.n_layers * sum(site.where == "block" for site in SITES.values())
    positions = source.batch * source.seq_len
    ids = 0 if source.source in VECTOR_SOURCES else min(positions, IDS_KEPT) * 4
    sizes = (model.n_layers + 1) * min(positions, TOKENS_KEPT) * max(4, BYTES[dtype])
    return 16_384 + 2 * sites * 8 * (len(STATISTICS) + len(HISTOGRAM_BINS) // 8) // 2 + ids + sizes
