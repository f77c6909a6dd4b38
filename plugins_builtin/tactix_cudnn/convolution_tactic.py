"""Convolutions of fixed sizes, channels last, with bias, residual and relu by cuDNN."""

from __future__ import annotations

from tactix.base.dims import evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import Packed, constant, tensor_in, tensor_out
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject, Variant
from tactix_codegen.cuda import window
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.library_epilogue import FoldedEpilogue, folded
from tactix_cudnn.convolution import CudnnConvolution
from tactix_cudnn.tactic import CudnnTactic, Request


class CudnnConvolutionTactic(CudnnTactic):
    """float16 and bfloat16, summed in float32, constant weights.

    Of the library's guesses, of which it has some 40 for a plain convolution, eight are asked for:
    those that are compiled take half a second each (docs/cuda.md).
    """

    key = "tactix.cudnn@1"
    implements = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    most = 8

    def request(self, node: Node) -> Request | Reject:
        found = _convolution(node)
        if isinstance(found, Reject):
            return found
        what, win, fold = found
        formats = window.formats(win, NHWC)
        if isinstance(formats, Reject):
            return formats
        axes = (("reshape", (win.co, win.c // win.group, *win.kernel)), ("transpose", (0, 2, 3, 1)))
        constants, places = {"w": Packed(win.w, axes)}, [tensor_in(win.x), constant("w")]
        if fold.bias:
            constants["bias"] = Packed(fold.bias.index, (("cast", what.dtype), ("reshape", (-1,))))
            places.append(constant("bias"))
        if fold.residual:
            places.append(tensor_in(fold.residual.index))
        return Request(what, (*places, tensor_out()), constants, Variant.of(formats, (NHWC,)))


def _convolution(node: Node) -> tuple[CudnnConvolution, ConvolutionWindow, FoldedEpilogue] | Reject:
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
    if (
        fold.alpha != 1
        or (rest and fold.beta != 1)
        or fold.activation == "gelu"
        or given_bias
        or const_rest
    ):
        return Reject("the epilogue is not a constant bias, a given residual and relu")
    w = (win.co, win.c // win.group, *win.kernel)
    x, y = (
        tuple(evaluate(d, {}) for d in s)
        for s in ((win.n, win.c, *win.size), (win.n, win.co, *win.out))
    )
    parts = {
        "bias": fold.bias is not None,
        "residual": rest is not None,
        "relu": fold.activation == "relu",
    }
    places = {
        "strides": win.strides,
        "dilations": win.dilations,
        "begins": win.begins,
        "ends": win.ends,
    }
    made = CudnnConvolution(win.dtype.value, x, w, y, **places, **parts)  # type: ignore[arg-type]
    return made, win, fold
