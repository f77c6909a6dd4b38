"""Operators of ``com.microsoft`` against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tactix.network.evaluate import evaluate

F32 = np.float32
RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def table(rows: int, half: int) -> Any:
    return RNG.uniform(-1, 1, (rows, half)).astype(F32)


PLACES = np.array([[3, 1, 0, 2, 5], [0, 1, 2, 3, 4]])
PACKED = RNG.integers(0, 256, (6, 3, 8)).astype(np.uint8)
SCALES = RNG.uniform(0.1, 1, 18).astype(F32)

CASES: list[tuple[str, list[Any], dict[str, Any], list[int], set[int]]] = [
    ("FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}, [0], set()),
    ("Gelu", [normal(3, 5)], {}, [0], set()),
    ("BiasGelu", [normal(3, 5), normal(5)], {}, [0], set()),
    ("FastGelu", [normal(3, 5), normal(5)], {}, [0], set()),
    ("FastGelu", [normal(3, 5)], {}, [0], set()),
    ("QuickGelu", [normal(3, 5)], {"alpha": 1.5}, [0], set()),
    ("SkipLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)], {}, [0, 3], set()),
    ("SkipSimplifiedLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8)], {"epsilon": 1e-5}, [0], set()),
    ("EmbedLayerNormalization",
     [np.array([[1, 4, 2]], np.int32), np.array([[0, 1, 1]], np.int32), normal(6, 8), normal(5, 8), normal(2, 8),
      normal(8), normal(8)], {}, [0, 1], set()),
    ("RotaryEmbedding", [normal(2, 5, 24), PLACES, table(8, 4), table(8, 4)], {}, [0], set()),
    ("RotaryEmbedding", [normal(2, 3, 5, 8), np.array([2]), table(8, 4), table(8, 4)], {"interleaved": 1}, [0], set()),
    ("MatMulNBits", [normal(4, 40), PACKED, SCALES], {"K": 40, "N": 6, "bits": 4, "block_size": 16}, [0], {1, 2}),
    ("MatMulNBits", [normal(4, 40), PACKED, SCALES, RNG.integers(0, 256, 12).astype(np.uint8)],
     {"K": 40, "N": 6, "bits": 4, "block_size": 16}, [0], {1, 2, 3}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arrays", "attrs", "outputs", "constants"), CASES, ids=[c[0] for c in CASES])
def test_agrees_with_onnx_runtime(
    op: str,
    arrays: list[Any],
    attrs: dict[str, Any],
    outputs: list[int],
    constants: set[int],
    imported: Any,
    model: Any,
) -> None:
    import onnxruntime as ort

    names = [f"o{i}" if i in outputs else "" for i in range(max(outputs) + 1)]
    node = onnx.helper.make_node(op, [f"i{i}" for i in range(len(arrays))], names, domain="com.microsoft", **attrs)
    feed = {f"i{i}": a for i, a in enumerate(arrays) if i not in constants}
    fixed = {f"i{i}": arrays[i] for i in constants}
    wanted = [n for n in names if n]
    proto = model([node], {k: (a.dtype, a.shape) for k, a in feed.items()}, wanted, fixed)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    got = evaluate(imported(proto), feed)
    for name, want in zip(wanted, session.run(wanted, feed), strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)
