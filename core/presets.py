"""Named experiments: each entry is what differs from the default experiment.

Standard library and pydantic only. A preset's words (name and one sentence) are in ``assets/text``, under
``preset.<name>``.
"""

from __future__ import annotations

from typing import Any

from core.experiment import Experiment, parse
from core.fields import refusal

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "pre_layernorm": {},
    "pre_rmsnorm": {"model": {"norm": "rmsnorm"}},
    "no_norm": {"model": {"norm": "none"}},
    "post_layernorm": {"model": {"placement": "post"}},
    "sandwich_layernorm": {"model": {"placement": "sandwich"}},
    "deepnorm": {"model": {"placement": "post", "init": "deepnorm", "residual_alpha": "deepnorm"}},
    "exploding": {"model": {"norm": "none", "init": "kaiming"}},
    "vanishing": {"model": {"norm": "none", "residual": False}},
    "no_norm_scaled": {"model": {"norm": "none", "branch_scale": "inv_sqrt_2L"}},
    "rank_collapse": {"model": {"n_layers": 24, "sublayers": "attention", "residual": False, "causal": False,
                                "placement": "post"}},
    "float16_overflow": {"model": {"n_layers": 24, "norm": "none", "init": "kaiming"},
                         "protocol": {"dtype": "float16"}},
    "gpt2": {"model": {"n_layers": 12, "init": "gpt2", "activation": "gelu_tanh", "embed_std": 0.02, "pos_std": 0.01,
                       "tie_embeddings": True}},
    "batchnorm": {"model": {"norm": "batchnorm"}},
}


def preset(name: str) -> Experiment:
    """Return the experiment called `name`.

    Errors: ExperimentError naming the presets that exist.
    """
    if name not in PRESETS:
        raise refusal("preset", name, ", ".join(PRESETS))
    return parse(PRESETS[name])
