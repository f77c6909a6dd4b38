"""Convolutions of fixed sizes, channels last, with bias, residual and relu by cuDNN. Knob ``rank``: which guess."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace

from tactix.contracts.artifact import KernelArtifact, Launch, Packed, Source, constant, scalar, tensor_in, tensor_out
from tactix.contracts.artifact import workspace as scratch
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import evaluate, prod, symbols
from tactix.words.dtypes import DType
from tactix.words.tensor import NHWC
from tactix_builtin.cuda.cudnn import FUNCTION, LAUNCHER
from tactix_builtin.cuda.cudnn.compiler import LANGUAGE
from tactix_builtin.cuda.cudnn.convolution import Convolution, Graph, Guess
from tactix_builtin.cuda.cudnn.library import Cudnn, cudnn
from tactix_builtin.cuda.library_tactic import LibraryTactic
from tactix_builtin.cuda.tactics import window
from tactix_builtin.cuda.tactics.folded import Folded, folded
from tactix_builtin.cuda.tactics.window import Window
from tactix_builtin.cuda.target import required_features

GUESSES = 8
WORKSPACE = 64 << 20
"""Bytes that an engine may want."""
UNMEASURED = 1e-3
"""Seconds that an engine is thought to take: some cannot be made, which only measuring tells."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudnnTactic()]


class CudnnTactic(LibraryTactic[Cudnn]):
    """float16 and bfloat16, summed in float32, constant weights. ``library``: None for the device that is here."""

    key = "tactix.cudnn@1"
    implements = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    source = "cudnn"
    name = "cuDNN"
    find = staticmethod(cudnn)

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        found = _convolution(node)
        if isinstance(found, Reject):
            return found
        what, win, _ = found
        formats = window.formats(node, win, NHWC)
        if isinstance(formats, Reject):
            return formats
        if reason := self.why_not(device):
            return Reject(reason)
        fit = [r for r, guess in enumerate(self._guesses(what)) if guess.workspace <= WORKSPACE]
        offered = [replace(Variant.of(formats, (NHWC,)), knobs=(("rank", r),)) for r in fit]
        return offered or Reject("cuDNN has no engine for it")

    def _guesses(self, what: Convolution) -> tuple[Guess, ...]:
        return guesses(self.library(), what)

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return UNMEASURED * (1 + 1e-3 * int(variant.knob("rank")))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        found = _convolution(node)
        assert not isinstance(found, Reject)
        (what, win, fold), rank = found, int(variant.knob("rank"))
        guess = self._guesses(what)[rank]
        group = win.c // win.group
        axes = (("reshape", (win.co, group, *win.kernel)), ("transpose", (0, 2, 3, 1)))
        constants = {"w": Packed(win.w, axes)}
        bias, rest = scalar(0), scalar(0)
        if fold.bias:
            constants["bias"] = Packed(fold.bias.index, (("cast", what.dtype), ("reshape", (-1,))))
            bias = constant("bias")
        if fold.residual:
            rest = tensor_in(fold.residual.index)
        places = (
            tensor_in(win.x),
            constant("w"),
            bias,
            rest,
            tensor_out(),
            scratch() if guess.workspace else scalar(0),
        )
        told = json.loads(what.to_text())
        text = json.dumps({"convolution": told, "rank": rank, "compiles": guess.compiles}, sort_keys=True)
        params = {"version": list(self.library().version), "convolution": told}
        return KernelArtifact(
            LAUNCHER, (Launch(places, (1,), symbol=FUNCTION),), Source(LANGUAGE, text), guess.workspace,
            tuple(constants.items()), required_features(ctx.device), params,
        )  # fmt: skip


@functools.lru_cache(4096)
def guesses(library: Cudnn, what: Convolution) -> tuple[Guess, ...]:
    """The library's first guesses. Raises LibraryFailure."""
    return Graph(library, what).guesses(GUESSES)


def _convolution(node: Node) -> tuple[Convolution, Window, Folded] | Reject:
    win = window.window(node)
    if isinstance(win, Reject):
        return win
    out = node.outputs[0].spec.dtype
    if win.dtype not in (DType.FP16, DType.BF16) or out is not win.dtype:
        return Reject("float16 or bfloat16 with results of the same dtype")
    if symbols(prod((win.n, *win.size, *win.out))):
        return Reject("plans of cuDNN are for fixed sizes")
    fold = folded(win.epi, out)
    if isinstance(fold, str):
        return Reject(f"the epilogue is not one of cuDNN's: {fold}")
    rest = fold.residual
    given_bias = fold.bias is not None and node.given[fold.bias.index].const is None
    const_rest = rest is not None and node.given[rest.index].const is not None
    if fold.alpha != 1 or (rest and fold.beta != 1) or fold.activation == "gelu" or given_bias or const_rest:
        return Reject("the epilogue is not a constant bias, a given residual and relu")
    w = (win.co, win.c // win.group, *win.kernel)
    x, y = (tuple(evaluate(d, {}) for d in s) for s in ((win.n, win.c, *win.size), (win.n, win.co, *win.out)))
    parts = {"bias": fold.bias is not None, "residual": rest is not None, "relu": fold.activation == "relu"}
    places = {"strides": win.strides, "dilations": win.dilations, "begins": win.begins, "ends": win.ends}
    return Convolution(win.dtype.value, x, w, y, **places, **parts), win, fold  # type: ignore[arg-type]
