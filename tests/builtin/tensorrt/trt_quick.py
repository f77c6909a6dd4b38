"""Quick plugins as programs write them, over numpy; a process defines each once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tactix_tensorrt import api as trt
from tactix_tensorrt.api import plugin as trtp


@trtp.register("t::add")
def add_desc(x: trtp.TensorDesc, amount: int) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("t::add")
def add(x, amount, outputs, stream):
    assert stream == 0
    np.asarray(outputs[0])[...] = np.asarray(x) + amount


@trtp.register("t::add_")
def add_in_place_desc(x: trtp.TensorDesc, amount: float) -> trtp.TensorDesc:
    return x.aliased()


@trtp.impl("t::add_")
def add_in_place(x, amount: float, outputs, stream):
    assert x.data_ptr == outputs[0].data_ptr
    np.asarray(x)[...] += amount


@trtp.register("t::non_zero")
def non_zero_desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    upper = x.shape_expr[0] * x.shape_expr[1]
    size = trtp.size_tensor(upper // 2, upper)
    return trtp.from_shape_expr((size.expr(), 2), dtype=trt.int32), size


@trtp.impl("t::non_zero")
def non_zero(x, outputs, stream):
    found = np.argwhere(np.asarray(x))
    assert outputs[0].is_data_dependent
    with pytest.raises(ValueError, match="aliased"):
        np.asarray(outputs[0])
    np.asarray(outputs[0].aliased(found.shape))[...] = found
    np.asarray(outputs[1])[...] = len(found)


@trtp.register("t::circ_pad")
def circ_pad_desc(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    out = x.like()
    for i in range(len(pads) // 2):
        out.shape_expr[x.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
    return out


@trtp.autotune("t::circ_pad")
def circ_pad_tune(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]):
    assert x.has_shape
    choice = trtp.AutoTuneCombination()
    choice.pos([0, 1], "FP32|FP16")
    choice.tactics([1, 2])
    return [choice]


@trtp.impl("t::circ_pad")
def circ_pad(x, pads: npt.NDArray[np.int32], outputs, stream, tactic: int):
    assert tactic in (1, 2)
    widths = [(0, 0)] * x.ndim
    for i in range(len(pads) // 2):
        widths[x.ndim - i - 1] = (pads[2 * i], pads[2 * i + 1])
    for _ in range(1 if tactic == 2 else 200):
        np.asarray(outputs[0])[...] = np.pad(np.asarray(x), widths, "wrap")


@trtp.register("t::both")
def both_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("t::both")
def both(x, outputs, stream):
    np.asarray(outputs[0])[...] = 2 * np.asarray(x)


@trtp.aot_impl("t::both")
def both_kernel(x, outputs, tactic):
    raise AssertionError("there is no GPU")


@trtp.register("t::kernel")
def kernel_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.aot_impl("t::kernel")
def kernel(x, outputs, tactic):
    raise AssertionError("there is no GPU")
