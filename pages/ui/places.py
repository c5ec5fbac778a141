"""The pages that compare variants of a base, each one entry: what its links may say, and how its experiments start.

No Streamlit here, and no words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from core.bench import AXES, FIELDS
from core.experiment import Experiment, json_schema
from core.fixed_point import ROOTS
from core.outcomes import OUTCOMES
from core.presets import preset
from core.ranking import BY_ALARMS, CRITERIA
from core.roles import MEASURES
from core.tables import FAMILIES
from core.variances import ARITHMETICS
from core.vocabulary import EMBED, HEAD_MEASURES, PARAMETER_STATISTICS, SITES, STATISTICS, TIME_STATISTICS

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
    differs from the preset of its name, in what that leaves as by default, and in what is withheld; `withheld`: fields
    that cannot be changed there; `at_hand`: fields of the base that stand above the charts, not among all settings;
    `most`: so many variants; `norms`: with the others of these a preset is compared by default.
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
        """Return the experiment that the preset called `name` stands for on this page.

        What is withheld stands as the page starts it, even where the preset says another.
        """
        own = preset(name).differences().keys() - self.withheld
        return preset(name).with_values({path: value for path, value in self.starts.items() if path not in own})


OF_TRAINING = frozenset({
    "protocol.steps", "protocol.record_every", "protocol.optimizer", "protocol.lr", "protocol.betas",
    "protocol.momentum", "protocol.weight_decay", "protocol.warmup", "protocol.schedule", "protocol.grad_clip",
})
"""Fields without a meaning where nothing is trained."""

ROLES = ("attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.o.weight", "mlp.in.weight", "mlp.gate.weight",
         "mlp.out.weight", "norm1.weight", "norm2.weight", "norm1_out.weight", "norm2_out.weight",
         *dict.fromkeys(f"{gate}.{letter}.weight" for family in FAMILIES.values() for gate in family.gates
                        for letter in "xh"),
         *dict.fromkeys(f"{norm}.weight" for family in FAMILIES.values() for norm in family.norms))
"""What a layer's weights are called in it."""

_MAP: dict[str, Collection[str]] = {
    "site": tuple(SITES), "stat": tuple(STATISTICS), "of": ("forward", "gradient"),
    "scale": ("log", "linear", "symlog"),
}
_MAP_DEFAULTS = {"site": "resid_post", "stat": "rms", "of": "forward", "scale": "log"}

LAYERS = (LAST, *map(str, range(DEPTH["maximum"])))

_TIME: dict[str, Collection[str]] = {"gate": tuple(name for name, site in SITES.items() if site.over_time),
                                     "moment": TIME_STATISTICS, "depth": LAYERS}
_TIME_DEFAULTS = {"gate": "hidden", "moment": "rms", "depth": LAST}
"""What a view over time shows: which gate or state, which statistic at each time step, of which layer."""

DRIFT = Place(
    "drift",
    {"view": ("overview", "profile", "streams", "twins", "cosines", "quantiles", "exponents", "outliers", "text",
              "time", "wiring"),
     **_MAP, **_TIME, "who": tuple(str(number) for number in range(7)),
     "layer": (LAST, *map(str, range(EMBED, DEPTH["maximum"])))},
    {"view": "overview", **_MAP_DEFAULTS, **_TIME_DEFAULTS, "who": "0", "layer": LAST},
    withheld=OF_TRAINING)
"""One forward and backward pass at initialization. `who`: the variant that a view of a single one looks at, 0 the base;
`layer`: the one that a view of a single layer looks at."""

GRADIENTS = Place(
    "gradients",
    {"view": ("sites", "parameters", "clipping", "twins", "time", "theory"), "site": _MAP["site"], **_TIME,
     "stat": tuple(name for name, one in STATISTICS.items() if one.gradient), "scale": _MAP["scale"],
     "who": tuple(str(number) for number in range(7)), "weight": tuple(MEASURES), "role": ROLES},
    {"view": "sites", "site": "resid_post", "stat": "rms", "scale": "log", "who": "0", "weight": "param_grad_norm",
     "role": "mlp.out.weight", **_TIME_DEFAULTS},
    withheld=OF_TRAINING - {"protocol.grad_clip"})
"""One forward and backward pass at initialization, read backward. A threshold of clipping can be set: it has a meaning
before the first update."""

ENTROPY = Place(
    "entropy",
    {"view": ("heads", "queries", "causes", "weights", "theory"), "measure": tuple(HEAD_MEASURES),
     "who": tuple(str(number) for number in range(7)), "layer": LAYERS,
     "head": Form(r"[0-9]{1,3}", ("0", "3")), "sequence": Form(r"[0-9]{1,4}", ("0", "7"))},
    {"view": "heads", "measure": "entropy_norm", "who": "0", "layer": LAST, "head": "0", "sequence": "0"},
    withheld=OF_TRAINING,
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
    starts=MappingProxyType({"protocol.steps": 200}), most=3)
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
    most=0)
"""A grid over one field, or two, as ``field=value,value``: those `across` are the columns, those `down` the rows.

`outcome`: what a cell shows; site, stat and of, or measure, say which where it is ``site`` or ``head``; `cell`: the row
and the column that are looked at."""

_NAMES = {axis: "|".join(known) for axis, known in AXES.items()}

NORM_BENCH = Place(
    "norms",
    {"view": ("overlay", "multiples", "ranking", "costs"),
     **{axis: Form(f"({names})(,({names}))*", (next(iter(AXES[axis])), ",".join(list(AXES[axis])[:2])))
        for axis, names in _NAMES.items()},
     "number": ("stream", "gradient", "cosine", "entropy"), "scale": _MAP["scale"],
     "after": ("0", "20", "50", "100", "200", "500"), "when": ("start", "end"),
     "by": (BY_ALARMS, *CRITERIA), "way": ("forward", "backward")},
    {"view": "overlay", "norms": "layernorm,rmsnorm,batchnorm,none", "placements": "pre,post", "inits": "xavier",
     "scalings": "plain", "number": "stream", "scale": "log", "after": "0", "when": "start", "by": BY_ALARMS,
     "way": "forward"},
    starts=MappingProxyType({"input.batch": 4, "input.seq_len": 32}),
    withheld=FIELDS | {"protocol.steps", "protocol.record_every"}, most=0,
    at_hand=("model.layer_norms", "model.norm_eps", "model.norm_dtype", "model.norm_affine"))
"""Norms, placements, inits and residual scalings of one base, all combined: each axis of the bench as names joined by
commas.

`number`: what small multiples show; `after`: so many steps of training, 0 for none; `when`: the step that is looked at;
`by`: what the ranking goes by; `way`: the pass whose costs are drawn."""

HALVES = ("float16", "bfloat16")
"""The formats that runs are compared in with float32."""

RATIOS = ("0", *(f"{digit * 10**power:g}".replace("+0", "") for power in range(8) for digit in (1, 2, 5)), "1e8")
"""μ/σ of the data whose variance is taken."""

_LABS: dict[str, Collection[str]] = {
    "arithmetic": tuple(ARITHMETICS), "ratio": RATIOS, "sigma": ("0.001", "0.01", "0.1", "1", "10", "100", "300"),
    "entries": ("16", "64", "128", "256", "512"), "draw": tuple(map(str, range(10))),
    "bits": tuple(map(str, range(2, 9))), "fraction": tuple(map(str, range(9))), "root": tuple(ROOTS),
    "quantum": ("0.002", "0.005", "0.01", "0.02", "0.03", "0.05", "0.1", "0.2", "0.5", "1", "2"),
    "narrow": HALVES, "gamma": ("0", "0.02", "0.1", "0.3", "1"),
    "value": Form(r"-?[0-9]{1,12}(\.[0-9]{0,12})?(e[+-]?[0-9]{1,2})?", ("66246", "255.875", "6e-8")),
}
_LAB_DEFAULTS = {"arithmetic": "float16", "ratio": "10", "sigma": "1", "entries": "256", "draw": "0", "bits": "8",
                 "fraction": "4", "root": "newton", "quantum": "0.03", "narrow": "bfloat16", "gamma": "0.1",
                 "value": "66246"}

PRECISION = Place(
    "precision",
    {"view": ("headroom", "underflow", "silent", "difference", "variance", "integer", "casts", "ruler"), **_MAP,
     "who": tuple(str(number) for number in range(7)), "format": (*HALVES, "float32"), **_LABS},
    {"view": "headroom", **_MAP_DEFAULTS, "who": "0", "format": "float16", **_LAB_DEFAULTS},
    starts=MappingProxyType({"protocol.dtype": "float32"}), withheld=OF_TRAINING | {"protocol.dtype"},
    at_hand=("model.norm_dtype", "model.norm_cast", "model.init_gain", "protocol.loss_scale"), most=0)
"""The same stack in several number formats, at initialization: the views say which. The last four views are of numbers
alone, without a model. `format`: whose largest number is the measure; `entries`, `draw`: of drawn data; `ratio`,
`sigma`: their μ/σ and σ; `quantum`: a step of whole numbers, in σ; `narrow`, `gamma`: of a norm's output; `value`: the
number on the ruler."""

BATCHNORM = Place(
    "batchnorm",
    {"view": ("leak", "batch", "lengths", "gap"), "exchange": ("token", "sample"),
     "sample": Form(r"[0-9]{1,4}", ("0", "3")), "position": Form(r"[0-9]{1,5}", ("0", "12")),
     "tokens": ("one", "all"), "share": tuple(str(10 * tenth) for tenth in range(1, 9)),
     "steps": ("20", "60", "200", "600"), "at": LIVE.shown["at"], "who": tuple(str(number) for number in range(7))},
    {"view": "leak", "exchange": "token", "sample": "2", "position": "8", "tokens": "one", "share": "50",
     "steps": "60", "at": ENDS, "who": "0"},
    starts=MappingProxyType({"model.n_layers": 6, "input.seq_len": 24}),
    withheld=frozenset({"protocol.steps", "protocol.record_every"}),
    norms=("layernorm", "rmsnorm", "none", "batchnorm"))
"""Whether a norm's numbers are its token's own. `exchange`: what is another, of the sequence `sample` the token at
`position`, or all; `tokens`: of each sequence of a batch; `share`: of padding, in percent; `steps`: of a training."""

_MARK = r"[0-9]{1,6}(\.[0-9]{1,3})?"

_MARKS = rf"{_MARK}(_{_MARK}){{0,11}}"

_FULL = Form(rf"(?=.*[1-9]){_MARK}", ("100", "7.5"))

BASICS = Place(
    "basics",
    {"view": ("scores", "copies"), "a": Form(_MARKS, ("61_120_75_98", "7.5")),
     "full_a": _FULL, "b": Form(_MARKS, ("40_80_55_62", "0_0")), "full_b": _FULL,
     "who": Form(r"[0-9]|1[01]", ("0", "1")),
     "gain": ("0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "1", "1.05", "1.1", "1.25", "1.5", "1.75", "2"),
     "depth": ("8", "16", "24", "48", "96"), "width": ("16", "64", "128", "256"), "draw": _LABS["draw"]},
    {"view": "scores", "a": "61_120_75_98", "full_a": "150", "b": "40_80_55_62", "full_b": "100", "who": "1",
     "gain": "1.25", "depth": "24", "width": "128", "draw": "0"},
    withheld=frozenset(preset("pre_layernorm").paths()), most=0)
"""Numbers alone, without any model. `a`, `b`: the marks of a class in two exams, joined by underscores, `full_a`,
`full_b` the most that each gives, `who` the place of the student who is followed; `gain`, `depth`, `width`: of matrices
in a row, `draw` their random numbers."""

PLACES: Mapping[str, Place] = {one.name: one for one in (
    DRIFT, GRADIENTS, ENTROPY, LIVE, SWEEP, NORM_BENCH, PRECISION, BATCHNORM, BASICS)}
"""Name → place."""
