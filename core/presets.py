"""Named experiments: each entry is what differs from the default experiment, and the groups that a menu shows them in.

Standard library and pydantic only. A preset's words (name and a sentence or two) are in ``assets/text`` under
``preset.<name>`` and ``preset_help.<name>``, a group's under ``preset_group.<name>``. Links name presets: an entry is
never renamed.

The architectures are faithful in structure, at a size that runs at once: depth 12 and width 128 unless the structure
says otherwise, with the originals' ratios of d_ff to width, of query to key heads and of all heads to width. Initial
weights are the originals' too, so that N(0, 0.02) is smaller in proportion here than at full width. Dropout is left
out.
"""

from __future__ import annotations

from typing import Any

from core.experiment import Experiment, parse
from core.fields import refusal

Document = dict[str, dict[str, Any]]

_ROOT = 128**0.5
_ENCODER = {"placement": "post", "causal": False, "activation": "relu", "positions": "sinusoidal",
            "embed_std": 1 / _ROOT, "embed_scale": _ROOT}
"""What the original Transformer's encoder and DeepNet share: N(0, 1/D) embeddings times √D."""

_DECODER = {"norm": "rmsnorm", "positions": "rotary", "bias": False, "init": "normal", "embed_std": 0.02}
"""What decoders of today share."""

_RECURRENT = {"n_layers": 4}
"""As deep as recurrent stacks usually are at most."""

_GROUPED: dict[str, dict[str, Document]] = {
    "basics": {
        "pre_layernorm": {},
        "pre_rmsnorm": {"model": {"norm": "rmsnorm"}},
        "post_layernorm": {"model": {"placement": "post"}},
        "sandwich_layernorm": {"model": {"placement": "sandwich"}},
        "branch_layernorm": {"model": {"placement": "branch"}},
        "deepnorm": {"model": {"placement": "post", "init": "deepnorm", "residual_alpha": "deepnorm"}},
    },
    "causes": {
        "no_norm": {"model": {"norm": "none"}},
        "exploding": {"model": {"norm": "none", "init": "kaiming"}},
        "no_norm_torch_default": {"model": {"norm": "none", "init": "torch_default"}},
        "no_norm_scaled": {"model": {"norm": "none", "branch_scale": "inv_sqrt_2L"}},
        "no_softmax": {"model": {"norm": "none", "pattern": "uniform"}},
        "no_mixing": {"model": {"norm": "none", "pattern": "identity"}},
        "vanishing": {"model": {"norm": "none", "residual": False}},
        "rank_collapse": {"model": {"n_layers": 24, "sublayers": "attention", "residual": False, "causal": False,
                                    "placement": "post"}},
        "deep_post": {"model": {"n_layers": 48, "placement": "post"}, "input": {"batch": 4}},
    },
    "norms": {
        "batchnorm": {"model": {"norm": "batchnorm"}},
        "batchnorm_two_tokens": {"model": {"norm": "batchnorm"}, "input": {"batch": 1, "seq_len": 2}},
        "batchnorm_padding": {"model": {"norm": "batchnorm", "bn_padding": "pooled"}, "input": {"lengths": "ragged"}},
        "batchnorm_eval": {"model": {"norm": "batchnorm"}, "protocol": {"mode": "eval"}},
        "std_eps_small_scale": {"model": {"norm": "layernorm_std_eps", "embed_std": 1e-4, "pos_std": 0.0}},
    },
    "attention": {
        "saturated_softmax": {"model": {"qk_gain": 10.0}},
        "uniform_softmax": {"model": {"qk_gain": 0.0}},
    },
    "precision": {
        "float16_overflow": {"model": {"norm": "none", "init": "kaiming"}, "input": {"batch": 2},
                             "protocol": {"dtype": "float16"}},
        "bfloat16_range": {"model": {"norm": "none", "init": "kaiming"}, "input": {"batch": 2},
                           "protocol": {"dtype": "bfloat16"}},
        "float16_naive_norm": {"model": {"norm_dtype": "compute"},
                               "input": {"source": "scaled", "feature_scales": [300.0] * 128, "batch": 2},
                               "protocol": {"dtype": "float16"}},
        "massive_feature": {"input": {"source": "scaled", "feature_scales": [1000.0] + [1.0] * 127}},
    },
    "recurrent": {
        "lstm_plain": {"model": {**_RECURRENT, "family": "lstm", "norm": "none"}},
        "lstm_layernorm": {"model": {**_RECURRENT, "family": "lstm"}},
        "lstm_deep": {"model": {"family": "lstm"}},
        "gru_plain": {"model": {**_RECURRENT, "family": "gru", "norm": "none"}},
        "gru_layernorm": {"model": {**_RECURRENT, "family": "gru"}},
    },
    "architectures": {
        "transformer": {"model": {**_ENCODER, "n_layers": 6, "tie_embeddings": True}},
        "bert": {"model": {"placement": "post", "causal": False, "embed_norm": True, "norm_eps": 1e-12,
                           "init": "normal", "embed_std": 0.02, "tie_embeddings": True}},
        "gpt2": {"model": {"n_layers": 12, "init": "gpt2", "activation": "gelu_tanh", "embed_std": 0.02,
                           "pos_std": 0.01, "tie_embeddings": True}},
        "llama": {"model": {**_DECODER, "norm_cast": "before", "n_kv_heads": 1, "d_ff": 448, "activation": "swiglu",
                            "rope_theta": 500_000.0}},
        "gemma2": {"model": {**_DECODER, "d_model": 144, "head_dim": 32, "n_kv_heads": 2, "norm_eps": 1e-6,
                             "placement": "sandwich", "activation": "geglu", "embed_scale": 12.0,
                             "tie_embeddings": True, "attn_softcap": 50.0, "final_softcap": 30.0}},
        "olmo2": {"model": {**_DECODER, "norm_eps": 1e-6, "placement": "branch", "d_ff": 344, "activation": "swiglu",
                            "rope_theta": 500_000.0, "qk_norm": "rmsnorm", "qk_norm_scope": "full"}},
        "qwen3": {"model": {**_DECODER, "norm_eps": 1e-6, "norm_cast": "before", "n_kv_heads": 1, "d_ff": 384,
                            "activation": "swiglu", "rope_theta": 1_000_000.0, "qk_norm": "rmsnorm"}},
        "vit": {"model": {"causal": False, "norm_eps": 1e-6}, "input": {"source": "gaussian"}},
        "deepnet": {"model": {**_ENCODER, "n_layers": 48, "init": "deepnorm", "residual_alpha": "deepnorm"},
                    "input": {"batch": 4}},
    },
}

PRESETS: dict[str, Document] = {name: entry for group in _GROUPED.values() for name, entry in group.items()}
"""Every preset in the order of a menu."""

GROUPS: dict[str, tuple[str, ...]] = {name: tuple(group) for name, group in _GROUPED.items()}
"""Group → its presets, in the order of PRESETS."""


def preset(name: str) -> Experiment:
    """Return the experiment called `name`.

    Errors: ExperimentError naming the presets that exist.
    """
    if name not in PRESETS:
        raise refusal("preset", name, ", ".join(PRESETS))
    return parse(PRESETS[name])
