"""The pages that compare variants of a base, each one entry: what its links may say, and how its experiments start.

No Streamlit here, and no words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from core.experiment import Experiment, json_schema
from core.outcomes import OUTCOMES
from core.presets import preset
from core.roles import MEASURES
from core.vocabulary import EMBED, HEAD_MEASURES, PARAMETER_STATISTICS, SITES, STATISTICS

LAST = "last"
"""The last layer, however many there are; the newest step, however far a training is."""

ENDS = "ends"
"""The first, the middle and the last layer."""

DEPTH: Mapping[str, int] = json_schema()["$defs"]["Model"]["properties"]["n_layers"]
"""What the schema says of the number of layers."""


@dataclass(frozen=True)
class Form(Collection[str]):
    """Texts of one form, too many to list: a collection like any other, which yields examples."""

    pattern: str
    examples: tuple[str, ...]

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and re.fullmatch(self.pattern, text) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.examples)

    def __len__(self) -> int:
        return len(self.examples)


@dataclass(frozen=True)
class Place:
    """One page.

    `shown`: query parameter of what is shown → its values, `defaults` the one that is left out; `starts`: how a base
    differs from the preset of its name, in what that leaves as by default; `withheld`: fields that cannot be changed
    there; `at_hand`: fields of the base that stand above the charts, not among all settings; `most`: so many variants;
    `norms`: with the others of these a preset is compared by default.
    """

    name: str
    shown: Mapping[str, Collection[str]]
    defaults: Mapping[str, str]
    starts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    withheld: frozenset[str] = frozenset()
    at_hand: tuple[str, ...] = ()
    most: int = 6
    norms: tuple[str, ...] = ("layernorm", "none", "rmsnorm")

    @property
    def views(self) -> tuple[str, ...]:
        """The ways to look at what was measured, the landing view first."""
        return tuple(self.shown["view"])

    def origin(self, name: str) -> Experiment:
        """Return the experiment that the preset called `name` stands for on this page."""
        own = preset(name).differences()
        return preset(name).with_values({path: value for path, value in self.starts.items() if path not in own})


NOT_BUILT = frozenset({"model.family"})
"""Fields that have one value until the recurrent families are built."""

OF_TRAINING = frozenset({
    "protocol.steps", "protocol.record_every", "protocol.optimizer", "protocol.lr", "protocol.betas",
    "protocol.momentum", "protocol.weight_decay", "protocol.warmup", "protocol.schedule", "protocol.grad_clip",
})
"""Fields without a meaning where nothing is trained."""

ROLES = ("attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.o.weight", "mlp.in.weight", "mlp.gate.weight",
         "mlp.out.weight", "norm1.weight", "norm2.weight", "norm1_out.weight", "norm2_out.weight")
"""What a layer's weights are called in it."""

_MAP: dict[str, Collection[str]] = {
    "site": tuple(SITES), "stat": tuple(STATISTICS), "of": ("forward", "gradient"),
    "scale": ("log", "linear", "symlog"),
}
_MAP_DEFAULTS = {"site": "resid_post", "stat": "rms", "of": "forward", "scale": "log"}

DRIFT = Place(
    "drift",
    {"view": ("overview", "profile", "streams", "twins", "cosines", "quantiles", "exponents", "outliers", "text",
              "wiring"),
     **_MAP, "who": tuple(str(number) for number in range(7)),
     "layer": (LAST, *map(str, range(EMBED, DEPTH["maximum"])))},
    {"view": "overview", **_MAP_DEFAULTS, "who": "0", "layer": LAST},
    withheld=NOT_BUILT | OF_TRAINING)
"""One forward and backward pass at initialization. `who`: the variant that a view of a single one looks at, 0 the base;
`layer`: the one that a view of a single layer looks at."""

GRADIENTS = Place(
    "gradients",
    {"view": ("sites", "parameters", "clipping", "twins", "theory"), "site": _MAP["site"],
     "stat": tuple(name for name, one in STATISTICS.items() if one.gradient), "scale": _MAP["scale"],
     "who": tuple(str(number) for number in range(7)), "weight": tuple(MEASURES), "role": ROLES},
    {"view": "sites", "site": "resid_post", "stat": "rms", "scale": "log", "who": "0", "weight": "param_grad_norm",
     "role": "mlp.out.weight"},
    withheld=NOT_BUILT | OF_TRAINING - {"protocol.grad_clip"})
"""One forward and backward pass at initialization, read backward. A threshold of clipping can be set: it has a meaning
before the first update."""

ENTROPY = Place(
    "entropy",
    {"view": ("heads", "queries", "causes", "weights", "theory"), "measure": tuple(HEAD_MEASURES),
     "who": tuple(str(number) for number in range(7)), "layer": (LAST, *map(str, range(DEPTH["maximum"]))),
     "head": Form(r"[0-9]{1,3}", ("0", "3")), "sequence": Form(r"[0-9]{1,4}", ("0", "7"))},
    {"view": "heads", "measure": "entropy_norm", "who": "0", "layer": LAST, "head": "0", "sequence": "0"},
    withheld=NOT_BUILT | OF_TRAINING,
    at_hand=("model.qk_norm", "model.attn_softcap", "model.attention_scale", "model.pattern"))
"""The attention of every head in one pass at initialization; the embedding has none. `head`, `sequence`: whose weights
are looked at."""

LIVE = Place(
    "live",
    {"view": ("overview", "layers", "updates", "entropy", "autopsy"),
     **_MAP, "who": tuple(str(number) for number in range(4)),
     "at": Form(rf"{ENDS}|-?[0-9]{{1,3}}(\.-?[0-9]{{1,3}}){{0,7}}", (ENDS, "0", "0.5.11")),
     "measure": tuple(HEAD_MEASURES), "weight": PARAMETER_STATISTICS, "role": ROLES,
     "step": Form(rf"{LAST}|[0-9]{{1,6}}", (LAST, "0", "120"))},
    {"view": "overview", **_MAP_DEFAULTS, "who": "0", "at": ENDS, "measure": "entropy_norm", "weight": "update_ratio",
     "role": "mlp.out.weight", "step": LAST},
    starts=MappingProxyType({"protocol.steps": 200}), withheld=NOT_BUILT, most=3)
"""A training. `at`: the layers whose lines are drawn over steps; `step`: the one that the replay stands at."""

_AXIS = r"[a-z]+\.[a-z0-9_]+=[^\n]{1,1000}"

SWEEP = Place(
    "sweep",
    {"across": Form(_AXIS, ("model.n_layers=2,4,8",)),
     "down": Form(f"({_AXIS})?", ("", "model.norm=none")),
     "outcome": (*OUTCOMES, "site", "head"), **{name: _MAP[name] for name in ("site", "stat", "of")},
     "measure": tuple(HEAD_MEASURES), "cell": Form(r"([0-9]{1,3}\.[0-9]{1,3})?", ("", "0.2"))},
    {"across": "model.init_gain=0.5,1,1.5,2", "down": "model.norm=layernorm,none", "outcome": "growth",
     **{name: _MAP_DEFAULTS[name] for name in ("site", "stat", "of")}, "measure": "entropy_norm", "cell": ""},
    withheld=NOT_BUILT, most=0)
"""A grid over one field, or two, as ``field=value,value``: those `across` are the columns, those `down` the rows.

`outcome`: what a cell shows; site, stat and of, or measure, say which where it is ``site`` or ``head``; `cell`: the row
and the column that are looked at."""

BATCHNORM = Place(
    "batchnorm",
    {"view": ("leak", "batch", "lengths", "gap"), "exchange": ("token", "sample"),
     "sample": Form(r"[0-9]{1,4}", ("0", "3")), "position": Form(r"[0-9]{1,5}", ("0", "12")),
     "tokens": ("one", "all"), "share": tuple(str(10 * tenth) for tenth in range(1, 9)),
     "steps": ("20", "60", "200", "600"), "at": LIVE.shown["at"], "who": tuple(str(number) for number in range(7))},
    {"view": "leak", "exchange": "token", "sample": "2", "position": "8", "tokens": "one", "share": "50",
     "steps": "60", "at": ENDS, "who": "0"},
    starts=MappingProxyType({"model.n_layers": 6, "input.seq_len": 24}),
    withheld=NOT_BUILT | {"protocol.steps", "protocol.record_every"},
    norms=("layernorm", "rmsnorm", "none", "batchnorm"))
"""Whether a norm's numbers are its token's own. `exchange`: what is another, of the sequence `sample` the token at
`position`, or all; `tokens`: of each sequence of a batch; `share`: of padding, in percent; `steps`: of a training."""
