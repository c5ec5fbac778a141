"""The experiment: one immutable, validated description of everything a result depends on.

Widgets, links, uploads, saved runs, the command line and the tests build the same object through `parse`. The file
knows names, ranges and which of them go together; it knows neither torch nor how anything is computed. ``{}`` is
the default experiment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core import rules
from core.fields import ExperimentError, one_of, sentence, within
from core.schedules import SCHEDULES
from core.tables import (
    ACTIVATIONS,
    FAMILIES,
    INITS,
    NORMS,
    OPTIMIZERS,
    PATTERNS,
    PLACEMENTS,
    POSITIONS,
    QK_NORMS,
    SOURCES,
)

ENGINE_VERSION = "1"
"""Raise it whenever the same experiment would give other numbers."""


@cache
def engine_version() -> str:
    """Return the engine's version with a digest of its source, so that no result outlives the code that made it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"{ENGINE_VERSION}+{digest.hexdigest()[:12]}"

LayerKey = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1, max_length=4_194_304, description="a text of 1 to 4194304 characters")]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda|cuda:[0-9]{1,3}|mps)$",
                              description="auto, cpu, cuda, cuda:N, mps")]
BranchScale = Annotated[str, one_of(("inv_sqrt_2L", "rezero", "layerscale"))]


@cache
def _torch_version() -> str:
    return version("torch")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Model(_Part):
    """The stack: sizes, norms and where they stand, initialization, residual stream, attention."""

    family: Annotated[str, one_of(FAMILIES)] = "transformer"
    n_layers: Annotated[int, within(1, 512)] = 12
    d_model: Annotated[int, within(8, 4096)] = 128
    n_heads: Annotated[int, within(1, 128)] = 4
    head_dim: Annotated[int, within(1, 4096)] | None = None
    n_kv_heads: Annotated[int, within(1, 128)] | None = None
    d_ff: Annotated[int, within(8, 16384)] | None = None
    activation: Annotated[str, one_of(ACTIVATIONS)] = "gelu"
    norm: Annotated[str, one_of(NORMS)] = "layernorm"
    placement: Annotated[str, one_of(PLACEMENTS)] = "pre"
    norm_eps: Annotated[float, within(0, 1)] = 1e-5
    norm_affine: bool = True
    norm_dtype: Annotated[str, one_of(("float32", "compute"))] = "float32"
    norm_cast: Annotated[str, one_of(("after", "before"))] = "after"
    norm_groups: Annotated[int, within(1, 4096)] = 4
    bn_padding: Annotated[str, one_of(("masked", "pooled"))] = "masked"
    bn_momentum: Annotated[float, within(0, 1)] = 0.1
    layer_norms: Annotated[dict[LayerKey, Annotated[str, one_of(NORMS)]], Field(description="layers")] = {}
    final_norm: bool | None = None
    residual: bool = True
    residual_alpha: Annotated[float, within(0, 10)] | Literal["deepnorm"] = 1.0
    branch_scale: Annotated[float, within(0, 10)] | BranchScale = 1.0
    layerscale_init: Annotated[float, within(0, 10)] = 0.1
    depth_scaling: Annotated[str, one_of(("none", "inv_sqrt_layer"))] = "none"
    init: Annotated[str, one_of(INITS)] = "xavier"
    init_std: Annotated[float, within(0, 1)] = 0.02
    init_gain: Annotated[float, within(0, 100)] = 1.0
    qk_gain: Annotated[float, within(0, 100)] = 1.0
    value_gain: Annotated[float, within(0, 100)] = 1.0
    output_gain: Annotated[float, within(0, 100)] = 1.0
    embed_std: Annotated[float, within(0, 10)] = 1.0
    pos_std: Annotated[float, within(0, 10)] = 0.02
    embed_scale: Annotated[float, within()] | None = None
    embed_norm: bool = False
    sublayers: Annotated[str, one_of(("both", "attention", "mlp"))] = "both"
    causal: bool = True
    pattern: Annotated[str, one_of(PATTERNS)] = "softmax"
    attention_scale: Annotated[float, within()] | Literal["1/K"] | None = None
    qk_norm: Annotated[str, one_of(QK_NORMS)] = "none"
    qk_norm_scope: Annotated[str, one_of(("head", "full"))] = "head"
    attn_softcap: Annotated[float, within(1, 1000)] | None = None
    final_softcap: Annotated[float, within(1, 1000)] | None = None
    positions: Annotated[str, one_of(POSITIONS)] = "learned"
    rope_theta: Annotated[float, within(above=0)] = 10000.0
    bias: bool = True
    tie_embeddings: bool = False
    dropout: Annotated[float, within(0, 0.9)] = 0.0


class Input(_Part):
    """What the stack reads: a real text, vectors, or generated tokens."""

    source: Annotated[str, one_of(SOURCES)] = "text"
    vocab: Annotated[int, within(2, 65536)] | None = None
    batch: Annotated[int, within(1, 1024)] = 8
    seq_len: Annotated[int, within(1, 16384)] = 64
    lengths: tuple[Annotated[int, within(1, 16384)], ...] | Literal["ragged"] | None = None
    feature_scales: tuple[Annotated[float, within()], ...] | None = None
    text: Text | None = None


class Protocol(_Part):
    """How it is run and watched: seed, precision, device, loss, training, what is recorded."""

    seed: Annotated[int, within(0, 2**32 - 1)] = 0
    dtype: Annotated[str, one_of(("float32", "bfloat16", "float16", "float64"))] = "float32"
    loss_scale: Annotated[float, within(above=0)] | Literal["dynamic"] | None = None
    device: Device = "auto"
    mode: Annotated[str, one_of(("train", "eval"))] = "train"
    attention: Annotated[str, one_of(("fused", "explicit"))] | None = None
    detail: Annotated[str, one_of(("standard", "full"))] | None = None
    loss: Annotated[str, one_of(("next_token", "projection"))] | None = None
    steps: Annotated[int, within(0, 100000)] = 0
    record_every: Annotated[int, within(1, 10000)] | Literal["log"] = 1
    optimizer: Annotated[str, one_of(OPTIMIZERS)] = "adamw"
    lr: Annotated[float, within(0, 1000)] = 1e-3
    betas: tuple[Annotated[float, within(0, below=1)], Annotated[float, within(0, below=1)]] = (0.9, 0.95)
    momentum: Annotated[float, within(0, below=1)] = 0.0
    weight_decay: Annotated[float, within(0)] = 0.0
    warmup: Annotated[int, within(0)] = 0
    schedule: Annotated[str, one_of(SCHEDULES)] = "constant"
    grad_clip: Annotated[float, within(above=0)] | None = None
    stop_on_nan: bool = True
    stop_on_inf: bool = True


class Experiment(_Part):
    """Everything a result depends on; build it with `parse`."""

    model: Model = Model()
    input: Input = Input()
    protocol: Protocol = Protocol()

    def resolved(self, device: str = "cpu") -> Experiment:
        """Return the canonical form: every null that stands for a value, and ``auto``, replaced by what it means.

        `device`: the kind ``auto`` stands for where the run takes place.
        """
        return Experiment.model_construct(
            model=Model.model_construct(**{**dict(self.model), **rules.resolve_model(self)}),
            input=Input.model_construct(**{**dict(self.input), **rules.resolve_input(self)}),
            protocol=Protocol.model_construct(**{**dict(self.protocol), **rules.resolve_protocol(self, device)}),
        )

    def canonical_json(self, device: str = "cpu") -> str:
        """Return the canonical form as JSON with sorted keys and no white space."""
        return json.dumps(self.resolved(device).model_dump(mode="json"), sort_keys=True, separators=(",", ":"),
                          ensure_ascii=False, allow_nan=False)

    def key(self, device: str = "cpu") -> str:
        """Return the run's key: SHA-256 (hex) over canonical JSON, engine version, torch version and device kind."""
        parts = (self.canonical_json(device), engine_version(), _torch_version(), device.partition(":")[0])
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def differences(self, base: Experiment | None = None) -> dict[str, Any]:
        """Return what differs from `base` (the default experiment), as dotted path → JSON value."""
        mine, other = self.paths(), (base or Experiment()).paths()
        return {path: value for path, value in mine.items() if value != other[path]}

    def shortened(self, device: str = "cpu") -> Experiment:
        """Return the shortest description of the same: fields that mean their default here are left to it.

        `device`: the kind ``auto`` stands for, as in `canonical_json`.
        """
        found, wanted = self, self.canonical_json(device)
        for path in (path for path in self.differences() if path in rules.RESOLVED):
            try:
                shorter = found.with_values({path: Experiment().paths()[path]})
            except ExperimentError:
                continue
            found = shorter if shorter.canonical_json(device) == wanted else found
        return found

    def paths(self) -> dict[str, Any]:
        """Return every field as dotted path → JSON value."""
        document = self.model_dump(mode="json")
        return {f"{part}.{field}": value for part, fields in document.items() for field, value in fields.items()}

    def with_values(self, values: Mapping[str, Any]) -> Experiment:
        """Return a checked copy with fields replaced; keys are dotted paths such as ``model.norm``."""
        document = self.model_dump(mode="json", exclude_unset=False)
        for path, value in values.items():
            set_path(document, path, value)
        return parse(document)


def parse(document: object) -> Experiment:
    """Return the checked experiment that a JSON document (text, or the objects it decodes to) describes.

    Errors: ExperimentError, one sentence that names the field, the value and what is allowed.
    """
    text = document if isinstance(document, (str, bytes)) else _encoded(document)
    try:
        experiment = Experiment.model_validate_json(text)
    except ValidationError as error:
        raise sentence(error, json_schema()) from None
    rules.check(experiment)
    return experiment


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the field that the dotted `path` names in a plain document, in place.

    Errors: ExperimentError when the path is not part.field.
    """
    part, _, field = path.partition(".")
    if not field or not isinstance(document.setdefault(part, {}), dict):
        raise ExperimentError(f"{path} is not a field; allowed: part.field, for instance model.norm")
    if not field.startswith("layer_norms."):
        document[part][field] = value
    elif isinstance(document[part].setdefault("layer_norms", {}), dict):
        document[part]["layer_norms"][field.partition(".")[2]] = value
    else:
        raise ExperimentError(f"{path} cannot be set where {part}.layer_norms is {document[part]['layer_norms']}; "
                              "allowed: an object of layers to norms")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an experiment."""
    return Experiment.model_json_schema()


def _encoded(document: object) -> str:
    try:
        return json.dumps(document)  # NaN and Infinity pass here, so that their field can be named
    except (TypeError, ValueError) as error:
        raise ExperimentError(f"the experiment is not JSON: {error}; allowed: an object of model, input, "
                              "protocol") from None
