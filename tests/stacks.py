"""Small stacks for the tests, and a look at everything their sites show."""

import torch

from core.corpus import batch
from core.experiment import parse
from core.model import build
from core.presets import preset
from core.sites import sites_of

SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
VECTORS = {"source": "gaussian", "seq_len": 6, "batch": 3}
TOKENS = {"source": "tokens", "seq_len": 6, "batch": 3}


def experiment(source=TOKENS, protocol=None, **model):
    return parse({"model": {**SMALL, **model}, "input": source, "protocol": protocol or {}})


def shrunk(name, layers=2, **changes):
    """A preset with its arrangement, but shallow, narrow and without padding."""
    whole = preset(name)
    narrow = {} if whole.input.feature_scales else {"model.d_model": 32, "model.n_heads": 4}
    return whole.with_values({"model.n_layers": min(layers, whole.model.n_layers), "input.batch": 2, "input.seq_len": 8,
                              "input.lengths": None, **narrow, **changes})


def watched(stack):
    """Hook every site of `stack`; return what they show, by path, filled at each forward pass."""
    seen = {}
    for (layer, name), site in sites_of(stack, len(stack.layers)).items():
        site.register_forward_hook(lambda _m, _i, y, key=(layer, name): seen.update({key: y}))
    return seen


def shown(description, stack=None, step=0):
    stack = stack or build(description)
    seen, data = watched(stack), batch(description, step)
    return stack, seen, stack(data.inputs, data.mask)


def with_random_constants(stack):
    """Move every bias, γ and β away from 0 and 1."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(stack.named_parameters()):
            if name.endswith("bias") or "norm" in name:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
                parameter.add_(0.2 * noise)
    return stack
