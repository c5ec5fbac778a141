"""What goes together in an experiment, and what its nulls stand for.

`check` refuses combinations that no single field could refuse; the `resolve_…` functions say what a null or
``auto`` means, which makes the canonical form. No torch here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.fields import ExperimentError, refusal
from core.tables import FAMILIES, INITS, NORMS, PLACEMENTS, VECTOR_SOURCES

if TYPE_CHECKING:
    from core.experiment import Experiment

TEXT_VOCAB = 256
GENERATED_VOCAB = {"tokens": 256, "markov": 32}
MARKOV_VOCAB = 2048
"""The most states of a chain: it has vocab² transition probabilities, and its entropy takes vocab³ operations."""

TEXT_HASH = "sha256:"
"""What the canonical form's ``input.text`` starts with: the content hash stands for the text."""


def layer_norms(experiment: Experiment) -> tuple[str, ...]:
    """Return the name of each layer's norm, overrides applied, layers 0 … L−1."""
    model = experiment.model
    return tuple(model.layer_norms.get(layer, model.norm) for layer in range(model.n_layers))


def is_recurrent(experiment: Experiment) -> bool:
    """Say whether the stack reads one time step after another, and has neither attention nor branches."""
    return FAMILIES[experiment.model.family].recurrent


def attends(experiment: Experiment) -> bool:
    """Say whether any layer has an attention."""
    return not is_recurrent(experiment) and experiment.model.sublayers != "mlp"


def norms_in_use(experiment: Experiment) -> frozenset[str]:
    """Return the names of all norms that the stack really has, "none" left out."""
    model = experiment.model
    whole_stack = {model.norm} if resolve_model(experiment)["final_norm"] or model.embed_norm else set()
    return frozenset({*layer_norms(experiment), *whole_stack} - {"none"})


def without_effect(family: str) -> frozenset[str]:
    """Return the fields that change nothing in a stack of this family."""
    found = FAMILIES[family]
    of_attention = {"protocol.attention"} if found.recurrent else set()
    return frozenset({f"model.{name}" for name in found.unused} | of_attention)


RESOLVED = frozenset({
    *(f"model.{name}" for name in ("placement", "head_dim", "n_kv_heads", "d_ff", "final_norm", "embed_norm",
                                   "embed_scale", "attention_scale")),
    *(path for family in FAMILIES for path in without_effect(family)),
    "input.vocab", *(f"protocol.{name}" for name in ("device", "attention", "detail", "loss")),
})
"""The fields whose canonical value may differ from the one in the description: `resolve_…` return them and the text."""


def resolve_model(experiment: Experiment) -> dict[str, Any]:
    """Return the model fields whose canonical value differs in kind from what may stand in the description."""
    model, family = experiment.model, FAMILIES[experiment.model.family]
    around = {"embed_norm": model.embed_norm and model.norm != "none",
              "embed_scale": 1.0 if model.embed_scale is None else model.embed_scale}
    if family.recurrent:  # none of the published ones ends in a norm
        return {**family.unused, **around, "final_norm": bool(model.final_norm) and model.norm != "none"}
    placement = "pre" if set(layer_norms(experiment)) == {"none"} else model.placement
    head_dim = model.head_dim or model.d_model // model.n_heads
    scales = {None: head_dim**-0.5, "1/K": 1 / head_dim}
    final_norm = PLACEMENTS[placement].final_norm if model.final_norm is None else model.final_norm
    return {
        "placement": placement,
        "head_dim": head_dim,
        "n_kv_heads": model.n_kv_heads or model.n_heads,
        "d_ff": model.d_ff or 4 * model.d_model,
        "final_norm": final_norm and model.norm != "none",
        **around,
        "attention_scale": scales.get(model.attention_scale, model.attention_scale),  # type: ignore[arg-type]
    }


def resolve_input(experiment: Experiment) -> dict[str, Any]:
    """Return the input fields in canonical form: the vocabulary (None for vectors) and the text by its hash."""
    source = experiment.input
    vocab = source.vocab or GENERATED_VOCAB.get(source.source, TEXT_VOCAB)
    return {"vocab": None if source.source in VECTOR_SOURCES else vocab, "text": text_hash(source.text)}


def resolve_protocol(experiment: Experiment, device: str) -> dict[str, Any]:
    """Return the protocol fields in canonical form; `device` is the kind that ``auto`` stands for."""
    model, protocol = experiment.model, experiment.protocol
    written_out = model.attn_softcap is not None or model.pattern != "softmax"
    predicts = model.causal and experiment.input.source not in VECTOR_SOURCES
    attention = protocol.attention or ("explicit" if written_out else "fused")
    return {
        "device": device if protocol.device == "auto" else protocol.device,
        "attention": None if is_recurrent(experiment) else attention,
        "detail": protocol.detail or ("full" if protocol.steps == 0 else None),
        "loss": protocol.loss or ("next_token" if predicts else "projection"),
    }


def text_hash(text: str | None) -> str | None:
    """Return the content hash that stands for a visitor's own text; a hash stays what it is."""
    if text is None or text.startswith(TEXT_HASH):
        return text
    return TEXT_HASH + hashlib.sha256(text.encode()).hexdigest()


def check(experiment: Experiment) -> None:
    """Refuse what does not go together.

    Errors: ExperimentError, one sentence with the field, what came and what is allowed.
    """
    for rule in (*(OF_RECURRENT if is_recurrent(experiment) else OF_BLOCKS), *RULES):
        rule(experiment)


def _heads(experiment: Experiment) -> None:
    model = experiment.model
    if model.head_dim is None and model.d_model % model.n_heads:
        raise refusal("model.n_heads", model.n_heads,
                      f"a divisor of model.d_model ({model.d_model}), or set model.head_dim",
                      "divisor", of="model.d_model", size=model.d_model)
    if model.n_kv_heads and model.n_heads % model.n_kv_heads:
        raise refusal("model.n_kv_heads", model.n_kv_heads, f"a divisor of model.n_heads ({model.n_heads})",
                      "divisor", of="model.n_heads", size=model.n_heads)
    if model.positions == "rotary" and resolve_model(experiment)["head_dim"] % 2:
        size = resolve_model(experiment)["head_dim"]
        raise refusal("model.positions", "rotary", f"rotary with an even head dimension only (here {size})",
                      "even_head_dim", size=size)


def _norms(experiment: Experiment) -> None:
    model = experiment.model
    beyond = [layer for layer in model.layer_norms if layer >= model.n_layers]
    if beyond:
        raise refusal("model.layer_norms", beyond[0], f"layers 0 to {model.n_layers - 1}", "layers",
                      last=model.n_layers - 1)
    if "groupnorm" in norms_in_use(experiment) and model.d_model % model.norm_groups:
        raise refusal("model.norm_groups", model.norm_groups, f"a divisor of model.d_model ({model.d_model})",
                      "divisor", of="model.d_model", size=model.d_model)


def _depth_scaling(experiment: Experiment) -> None:
    model = experiment.model
    if model.depth_scaling != "none" and not PLACEMENTS[model.placement].scales_depth:
        fitting = " or ".join(name for name, placement in PLACEMENTS.items() if placement.scales_depth)
        raise refusal("model.depth_scaling", model.depth_scaling,
                      f"none with placement {model.placement}; inv_sqrt_layer needs {fitting}", "depth_scaling")


def _batchnorm_has_tokens(experiment: Experiment) -> None:
    if experiment.protocol.mode == "train" and "batchnorm" in norms_in_use(experiment) and _tokens(experiment) < 2:
        raise ExperimentError("model.norm is \"batchnorm\" with one token in all (input.batch × input.seq_len); its "
                              "variance over tokens is zero by construction; allowed: two tokens or more, or "
                              "protocol.mode eval", "one_token")


def _tokens(experiment: Experiment) -> int:
    source = experiment.input
    if isinstance(source.lengths, tuple) and experiment.model.bn_padding == "masked":
        return sum(source.lengths)
    return source.batch * source.seq_len


def _source(experiment: Experiment) -> None:
    source, width = experiment.input, experiment.model.d_model
    if source.source == "text" and source.vocab not in (None, TEXT_VOCAB):
        raise refusal("input.vocab", source.vocab, "null or 256 for text, which is read as bytes", "text_vocab")
    if source.source in VECTOR_SOURCES and source.vocab is not None:
        raise refusal("input.vocab", source.vocab, f"null: the source {source.source} gives vectors, not tokens",
                      "only_null")
    if source.source == "scaled" and len(source.feature_scales or ()) != width:
        raise refusal("input.feature_scales", source.feature_scales, f"a list of model.d_model ({width}) numbers",
                      "scales", size=width)
    if source.source != "scaled" and source.feature_scales is not None:
        raise refusal("input.feature_scales", list(source.feature_scales), f"null with source {source.source}",
                      "only_null")
    if source.source != "text" and source.text is not None:
        raise refusal("input.text", source.text, f"null with source {source.source}", "only_null")


def _markov(experiment: Experiment) -> None:
    source = experiment.input
    if source.source == "markov" and (source.vocab or 0) > MARKOV_VOCAB:
        raise refusal("input.vocab", source.vocab, f"2 to {MARKOV_VOCAB} states for markov", "states",
                      limit=MARKOV_VOCAB)


def _lengths(experiment: Experiment) -> None:
    source = experiment.input
    if not isinstance(source.lengths, tuple):
        return
    if len(source.lengths) != source.batch:
        raise refusal("input.lengths", list(source.lengths), f"input.batch ({source.batch}) whole numbers, or ragged",
                      "lengths_count", size=source.batch)
    if max(source.lengths) > source.seq_len:
        raise refusal("input.lengths", max(source.lengths), f"lengths up to input.seq_len ({source.seq_len})",
                      "lengths_limit", size=source.seq_len)


def _attention(experiment: Experiment) -> None:
    model, protocol = experiment.model, experiment.protocol
    if protocol.attention == "fused" and model.attn_softcap is not None:
        raise refusal("protocol.attention", "fused", "explicit or null with model.attn_softcap", "fused")
    if protocol.attention == "fused" and model.pattern != "softmax":
        raise refusal("protocol.attention", "fused", f"explicit or null with model.pattern {model.pattern}",
                      "fused")


def _loss(experiment: Experiment) -> None:
    model, protocol = experiment.model, experiment.protocol
    if protocol.loss == "next_token" and not model.causal:
        raise refusal("protocol.loss", "next_token", "projection or null where model.causal is false",
                      "next_token")
    if protocol.loss == "next_token" and experiment.input.source in VECTOR_SOURCES:
        raise refusal("protocol.loss", "next_token", f"projection or null with source {experiment.input.source}",
                      "next_token")


def _per_token(experiment: Experiment) -> None:
    over_tokens = sorted(name for name in norms_in_use(experiment) if NORMS[name].over_tokens)
    if over_tokens:
        fitting = ", ".join(name for name, norm in NORMS.items() if not norm.over_tokens)
        raise refusal("model.norm", over_tokens[0],
                      f"{fitting} with model.family {experiment.model.family}, whose norms act at each time step, on "
                      "each token alone", "norm_over_tokens", family=experiment.model.family)


def _without_branches(experiment: Experiment) -> None:
    model = experiment.model
    if INITS[model.init].of_branches:
        fitting = ", ".join(name for name, init in INITS.items() if not init.of_branches)
        raise refusal("model.init", model.init, f"{fitting} with model.family {model.family}, which has no branches to "
                      "scale", "init_of_branches", family=model.family)


def _forward_in_time(experiment: Experiment) -> None:
    model = experiment.model
    if not model.causal:
        raise refusal("model.causal", False, f"true with model.family {model.family}, which reads one time step after "
                      "another", "causal_in_time", family=model.family)


Rule = Callable[["Experiment"], None]

RULES: tuple[Rule, ...] = (_norms, _source, _markov, _lengths, _batchnorm_has_tokens, _loss)

OF_BLOCKS: tuple[Rule, ...] = (_heads, _depth_scaling, _attention)
"""Those of a stack of blocks, with attention and branches."""

OF_RECURRENT: tuple[Rule, ...] = (_per_token, _without_branches, _forward_in_time)
