"""The recorder: reads every site of a model forward and backward, and leaves no trace.

    with Recorder(model) as recorder:
        recorder.begin(mask)
        loss = …forward…
        loss.backward()
        snapshot = recorder.snapshot(0, float(loss))

Hooks return nothing and work on detached tensors without drawing random numbers, so outputs, loss and gradients are bit
for bit what they are without it. What passes a site is measured at once; no tensor of the model is kept beyond the
block it passes. Between `snapshot` and the next `begin` the hooks do nothing. The file knows hooks and their lifetime;
what is measured is in `core.record`.

Shapes: B batch, T positions, H heads, K head dimension.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.hooks import RemovableHandle

from core.parameters import layer_of, parameter_measures
from core.record import Record
from core.rows import RealTokens
from core.sites import Heads, sites_of
from core.statistics import is_full
from core.trace import FORWARD, GRADIENT, Layout, Snapshot
from core.vocabulary import SITES, STREAMS

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")


class RecorderError(RuntimeError):
    """The recorder cannot see what it is asked to record; an empty record is never returned instead."""


class Recorder:
    """Records the steps of `model`, a module with Sites, while its ``with`` block runs.

    `detail`: standard or full. `gradients`: None records those that autograd computes; True asks for them, and their
    absence is an error; False leaves them out. `residual`: False for a model whose branches are added to no stream,
    which has no branch_ratio.
    Errors: RecorderError when the model was compiled or has no site; ValueError for another detail.
    """

    def __init__(self, model: nn.Module, detail: str = "full", gradients: bool | None = None,
                 residual: bool = True) -> None:
        self._full = is_full(detail)
        self._model, self._gradients, self._residual = model, gradients, residual
        modules = dict(model.named_modules())
        _check_readable(modules)
        self._n_layers = _depth(modules)
        self._modules = sites_of(model, self._n_layers)
        if not self._modules:
            raise RecorderError(f"{type(model).__name__} has no site; allowed: a model with Site modules in a "
                                "ModuleDict named sites (core.sites)")
        self._sites = tuple(self._modules)
        self._attentions = {int(found[1]): module for path, module in modules.items()
                            if isinstance(module, Heads) and (found := _LAYER.search(path))}
        self._parameters = dict(model.named_parameters())
        self._names = tuple((layer_of(name, self._n_layers), name) for name in self._parameters)
        self._n_heads = 0
        self._handles: list[RemovableHandle] = []
        self._on_tensors: list[RemovableHandle] = []
        self._entered: dict[int, Tensor] = {}
        self._last: _Passed | None = None
        self._record: Record | None = None
        self._loss_scale = 1.0

    def __enter__(self) -> Recorder:
        """Attach the hooks. Errors: RecorderError when they are attached already."""
        if self._handles:
            raise RecorderError("this recorder is attached already; allowed: one with block at a time")
        for row, module in enumerate(self._modules.values()):
            self._handles.append(module.register_forward_hook(self._site_hook(row)))
        for layer, heads in self._attentions.items():
            self._handles.append(heads.register_forward_pre_hook(self._heads_hook(layer), with_kwargs=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Detach every hook and forget the step, whatever happened."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._clear()

    def begin(self, mask: Tensor | None = None, loss_scale: float = 1.0, detail: str | None = None,
              tokens: Tensor | None = None) -> None:
        """Begin a step: the next forward and backward pass are recorded, and nothing of an earlier one is left.

        `mask`: (B, T), true at real tokens; None where all are. `loss_scale`: what the loss is multiplied with before
        the backward pass; gradients are divided by it, in float32 or wider, before anything is measured. `detail`: of
        this step alone. Errors: RecorderError outside the with block, and when gradients are asked for without
        autograd; ValueError for another detail.
        """
        if not self._handles:
            raise RecorderError("begin() outside the with block; allowed: inside `with Recorder(model) as recorder`")
        if self._gradients and not torch.is_grad_enabled():
            raise RecorderError("gradients were asked for, but autograd is off; allowed: gradients=None or False, or "
                                "a step without no_grad")
        self._clear()
        self._loss_scale = loss_scale
        causal = {layer: heads.causal for layer, heads in self._attentions.items()}
        full = self._full if detail is None else is_full(detail)
        self._record = Record(self._sites, causal, full, RealTokens(mask), tokens)

    def snapshot(self, step: int, loss: float) -> Snapshot:
        """Return what the step showed, and end it. Call it before gradients are unscaled, clipped or cleared.

        Parameters' gradients are read here, divided by the loss scale. Errors: RecorderError without `begin`, when no
        site was seen, and when gradients were asked for and none came.
        """
        record = self._record
        if record is None:
            raise RecorderError("snapshot() without begin(); allowed: begin(), a forward pass, snapshot()")
        if not record.has(FORWARD):
            raise RecorderError("no site was seen since begin(); allowed: a forward pass of the very model that the "
                                "recorder was given, not compiled")
        if self._gradients and not record.has(GRADIENT):
            raise RecorderError("gradients were asked for and none came; allowed: a backward pass before snapshot()")
        scale = self._loss_scale
        self._n_heads = max(self._n_heads, record.n_heads)
        measured = parameter_measures(list(self._parameters.values()), scale)
        self._clear()
        return record.snapshot(step, loss, self.layout, measured, self._residual)

    @property
    def layout(self) -> Layout:
        """What the rows of a snapshot stand for; the number of heads is known from the first snapshot on."""
        return Layout(self._n_layers, self._n_heads, self._sites, self._names)

    def _clear(self) -> None:
        """Forget the step."""
        for handle in self._on_tensors:
            handle.remove()
        self._on_tensors.clear()
        self._entered.clear()
        self._last = self._record = None

    def _site_hook(self, row: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _arguments: Any, x: Any) -> None:
            if self._record is None:
                return
            if isinstance(x, tuple):
                self._pass_steps(self._record, row, x)
            elif isinstance(x, Tensor) and x.is_floating_point():
                self._pass(self._record, row, x)

        return hook

    def _heads_hook(self, layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, arguments: Any, named: Any) -> None:
            if self._record is not None and isinstance(module, Heads):
                q, k, mask = _queries_keys(*arguments, **named)
                with _plainly(q):
                    self._record.attend(layer, q, k, mask, module)

        return hook

    def _pass(self, record: Record, row: int, x: Tensor) -> None:
        """Record that `x` passed the site of this row, and listen for its gradient."""
        layer, name = self._sites[row]
        self._check_first(record, row)
        source = self._source(row, x)
        if source is None:
            record.observe(FORWARD, row, x)
            self._last = _Passed(weakref.ref(x), _version(x), [row])
            if x.requires_grad and self._gradients is not False:
                self._on_tensors.append(x.register_hook(self._gradient_hook(self._last.rows)))  # type: ignore[no-untyped-call]
        else:
            record.same(FORWARD, row, source[0])
            source.append(row)
        self._stream(record, layer, name, x)

    def _pass_steps(self, record: Record, row: int, steps: tuple[Tensor, ...]) -> None:
        """Record that time steps passed the site of this row, (B, D) each, as the one tensor (B, T, D) that they make.

        So is their gradient: that of each time step comes in its own time, and is measured with all others.
        """
        layer, name = self._sites[row]
        self._check_first(record, row)
        x = torch.stack([step.detach() for step in steps], 1)
        record.observe(FORWARD, row, x)
        self._last = None
        if self._gradients is not False and all(step.requires_grad for step in steps):
            self._on_tensors.append(register_multi_grad_hook(steps, self._steps_hook(row)))
        self._stream(record, layer, name, x)

    def _check_first(self, record: Record, row: int) -> None:
        if record.has(FORWARD, row):
            layer, name = self._sites[row]
            raise RecorderError(f"site {name} of layer {layer} was passed twice in one step; allowed: one forward pass "
                                "after each begin(), without recomputation")

    def _source(self, row: int, x: Tensor) -> list[int] | None:
        """Return the rows of the site before when the very same tensor passed it, to be read alike; else None."""
        last = self._last
        if last is None or last.tensor() is not x or last.version != _version(x):
            return None
        mine, other = (SITES[self._sites[place][1]] for place in (row, last.rows[0]))
        return last.rows if (mine.shape, mine.cosine) == (other.shape, other.cosine) else None

    def _stream(self, record: Record, layer: int, name: str, x: Tensor) -> None:
        """Compare the stream where it leaves a block with where it entered; it is held in between, and no longer."""
        if name in ("embed", *STREAMS):
            record.leaves(layer, x)
        if name == "resid_pre":
            self._entered[layer] = x.detach()
        elif name == "resid_post" and layer in self._entered:
            before = self._entered.pop(layer)
            if before.shape == x.shape:
                record.through(layer, before, x)

    def _gradient_hook(self, rows: list[int]) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            record = self._record
            if record is None:
                return
            record.observe(GRADIENT, rows[-1], self._unscaled(gradient))
            for row in rows[-2::-1]:
                record.same(GRADIENT, row, rows[-1])

        return hook

    def _steps_hook(self, row: int) -> Callable[[Sequence[Tensor | None]], None]:
        def hook(gradients: Sequence[Tensor | None]) -> None:
            if self._record is not None:
                some = next(one for one in gradients if one is not None)
                whole = [torch.zeros_like(some) if one is None else one for one in gradients]
                self._record.observe(GRADIENT, row, self._unscaled(torch.stack(whole, 1)))

        return hook

    def _unscaled(self, gradient: Tensor) -> Tensor:
        """Return the gradient divided by the loss scale, in float32 or wider; itself when the scale is 1."""
        if self._loss_scale == 1.0:
            return gradient
        return gradient.detach().to(torch.promote_types(gradient.dtype, torch.float32)) / self._loss_scale


class _Passed(NamedTuple):
    """The tensor that passed a site last, weakly, its version then, and the rows that it passed at."""

    tensor: weakref.ref[Tensor]
    version: int
    rows: list[int]


def _version(x: Tensor) -> int:
    """Return the number of times `x` was changed in place; −1 in inference mode, which does not count."""
    return -1 if x.is_inference() else x._version


def _plainly(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast does not narrow matrix products; nothing else that is measured has any."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else _NOTHING


_NOTHING = nullcontext()


def _queries_keys(q: Tensor, k: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the arguments of Heads.forward, however they were given."""
    return q, k, mask


def _depth(modules: Iterable[str]) -> int:
    """Return the number of layers, one more than the highest ``layers.N``."""
    found = [int(match[1]) for path in modules if (match := _LAYER.search(path))]
    return max(found, default=-1) + 1


def _check_readable(modules: Mapping[str, nn.Module]) -> None:
    """Refuse a model whose hooks would be passed over in silence."""
    for path, module in modules.items():
        if hasattr(module, "_orig_mod") or module.__dict__.get("_compiled_call_impl") is not None:
            raise RecorderError(f"{path or 'the model'} is compiled (torch.compile), which passes over hooks; allowed: "
                                "the model before it is compiled")
