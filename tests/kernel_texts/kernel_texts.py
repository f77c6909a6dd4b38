#!/usr/bin/env python3
"""Five kernels as people read them: a fixed node, variant and target each, and the text in
``goldens``.

    python tests/kernel_texts/kernel_texts.py write

writes the goldens anew, so that a change of text is seen in review. Nothing is compiled; the
targets are stated, so that the texts are the same on every machine.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "builtin" / "tactics")]

import asked  # noqa: E402
from harness import fused, node  # noqa: E402

from tactix.base.dtypes import DType  # noqa: E402
from tactix.base.tensor import LINEAR, TensorSpec, blocked  # noqa: E402
from tactix.contracts.artifact import Source  # noqa: E402
from tactix.contracts.device import DeviceProperties  # noqa: E402
from tactix.contracts.graph import Node  # noqa: E402
from tactix.contracts.tactic import CompileContext, Tactic, Variant  # noqa: E402
from tactix_codegen.cuda.target import target  # noqa: E402
from tactix_cpu.features import LEVELS  # noqa: E402
from tactix_cpu.tactics.conv import direct  # noqa: E402
from tactix_cpu.tactics.matmul import gemm  # noqa: E402
from tactix_cpu.tactics.reduce import tactic as reduction  # noqa: E402
from tactix_cuda.tactics import attention  # noqa: E402
from tactix_cuda.tactics.hopper import gemm as hopper_gemm  # noqa: E402

GOLDENS = HERE / "goldens"
COMMAND = "python tests/kernel_texts/kernel_texts.py write"
LANES = 16

Make = Callable[[], Node]


def processor() -> DeviceProperties:
    """A processor of x86-64-v4: 512 bits, a second cache of 2 MiB, 4 cores."""
    features = LEVELS["x86-64-v4"][2]
    return DeviceProperties(
        "cpu", "x86-64-v4", features, 512, cores=4, facts={"arch": "x86_64", "l2": 2 << 20}
    )


@dataclass(frozen=True)
class KernelText:
    """``name``: of the golden. ``make``: gives the node, with constants where the tactic asks for
    them.
    """

    name: str
    make: Make
    tactic: Tactic
    variant: Variant
    device: DeviceProperties

    @property
    def golden(self) -> Path:
        return GOLDENS / self.name

    @functools.cached_property
    def source(self) -> Source:
        """What the tactic gives the compiler."""
        made = asked.artifact(
            self.tactic,
            self.make(),
            self.variant,
            CompileContext(self.device, {}, self.device.cores),
        )
        assert isinstance(made.code, Source)
        return made.code


def _zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def _dense(rows: int, depth: int, columns: int, dtype: str) -> Node:
    """relu(a b + c), b and c constant."""
    inputs = [
        _zeros(rows, depth, dtype=dtype),
        _zeros(depth, columns, dtype=dtype),
        _zeros(columns, dtype=dtype),
    ]
    layers = [("MatMul", (0, 1), {}), ("Add", (3, 2), {}), ("Relu", (4,), {})]
    return fused(inputs, layers, anchor=0, constants=(1, 2))


def _convolution() -> Node:
    """relu(conv(x) + bias), 3 x 3 with a border of zeros."""
    inputs = [_zeros(1, 64, 28, 28), _zeros(64, 64, 3, 3), _zeros(64)]
    layers = [("Convolution", (0, 1, 2), {"pads": (1, 1, 1, 1)}), ("Relu", (3,), {})]
    return fused(inputs, layers, anchor=0, constants=(1, 2))


def _attention() -> Node:
    q = TensorSpec(DType.FP16, (2, 8, 200, 64))
    return node("Attention", [q, q, q], scale=0.125)


def texts() -> Sequence[KernelText]:
    """All of them."""
    blocks = blocked(LANES)
    (of_gemm,), (of_conv,), (of_sum,) = gemm.tactics(), direct.tactics()[:1], reduction.tactics()
    (of_heads,), (of_hopper, *_) = attention.tactics(), hopper_gemm.tactics()
    flow = {
        "rows": 128,
        "cols": 128,
        "stages": 6,
        "teams": 2,
        "alternate": True,
        "splits": 1,
        "paired": False,
    }
    return (
        KernelText(
            "gemm.c",
            lambda: _dense(100, 512, 300, "float32"),
            of_gemm,
            Variant.of(rows=8, vectors=3, depth=0),
            processor(),
        ),
        KernelText(
            "convolution.c",
            _convolution,
            of_conv,
            Variant.of(
                [blocks, LINEAR, LINEAR], [blocks], rows=14, vectors=2, blocks=0, span=False
            ),
            processor(),
        ),
        KernelText(
            "reduction.c",
            lambda: node("ReduceMean", [_zeros(4, 197, 768)], axes=(-1,)),
            of_sum,
            Variant.of([LINEAR], [LINEAR]),
            processor(),
        ),
        KernelText(
            "attention.cu", _attention, of_heads, Variant.of(warps=4, keys=64), target("sm_80")
        ),
        KernelText(
            "hopper_product.cu",
            lambda: _dense(1000, 512, 768, "float16"),
            of_hopper,
            Variant.of(**flow),
            target("sm_90a"),
        ),
    )


def main(arguments: Sequence[str]) -> int:
    if list(arguments) != ["write"]:
        print(__doc__)
        return 2
    for text in texts():
        text.golden.write_text(text.source.text, encoding="utf-8")
        print(f"{text.golden.relative_to(HERE)}: {text.source.text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
