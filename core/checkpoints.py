"""Checkpoints: everything a training needs to go on as if it had never stopped, as safetensors, never pickled.

Random numbers are not among it: every draw belongs to the seed and a name. The file knows tensors by name; it does not
know where a checkpoint is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or belongs to another model."""


def to_bytes(model: nn.Module, optimizer: Optimizer, facts: Mapping[str, Any]) -> bytes:
    """Return parameters, buffers, the optimizer's state and JSON-able `facts` as one safetensors file."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for place, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{place}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return save(whole, {"facts": json.dumps(dict(facts))})


def restore(content: bytes, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Put a checkpoint's tensors into `model` and `optimizer`, in place; return its facts.

    Errors: CheckpointError when it cannot be read, or does not fit.
    """
    try:
        tensors, facts = load(content), _facts(content)
        model.load_state_dict(_under("model.", tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for path, tensor in _under("optimizer.", tensors).items():
            place, _, name = path.partition(".")
            state.setdefault(int(place), {})[name] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"the checkpoint cannot be used: {' '.join(str(error).split())[:300]}") from error
    return facts


def _facts(content: bytes) -> dict[str, Any]:
    """Return the JSON that stands in the file's header, which starts with its length in eight bytes."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, Any] = json.loads(json.loads(content[8:8 + length])["__metadata__"]["facts"])
    return found


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
