"""Products, convolutions and attention: the kernels that a GPU would get run on the host, and are
right.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import asked
import numpy as np
import pytest
import simt
from product_cases import (
    BYTE_CONV,
    BYTE_GEMM,
    BYTES,
    CONV,
    FEW_BITS,
    FEW_BITS_GEMV,
    GEMM,
    TABLE,
    TF32_BUDGET,
    TF32_GEMM,
    bits_arrays,
    bits_of,
    byte_residual,
    epilogues,
    images,
    plain,
    real,
    whole,
)

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cuda.tactics import attention, tile


def few(case: simt.Case) -> simt.Case:
    """The best variant, and the best that cuts k, where the case does not say which."""
    if case.only is not None:
        return case
    offered = asked.variants(case.tactic, case.node, simt.DEVICE)
    assert not isinstance(offered, Reject), offered.reason
    cut = [
        v
        for v in offered
        if dict(v.knobs).get("split", 1) > 1 or dict(v.knobs).get("slices", 1) > 1
    ]
    return replace(case, only=[*offered[:1], *cut[:1]])


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    """Of bfloat16 and unsigned bytes every third: their texts differ from those of float16 and
    signed bytes in nothing but the type's name.
    """
    cases = TABLE[name]()
    as_others = name.endswith(("bf16", "u8"))
    simt.check_all([few(c) for c in (cases[::3] if as_others else cases)], tmp_path)


def every_tile(kind: str, splits: tuple[int, ...]) -> list[Variant]:
    return [Variant.of(**vars(t), split=s) for t in tile.tiles(kind, simt.DEVICE) for s in splits]


@pytest.mark.parametrize("kind", ["f16", "f32", "tf32"])
def test_every_tile(kind: str, tmp_path: Path) -> None:
    dtype, tactic = (
        ("f16", GEMM) if kind == "f16" else ("f32", TF32_GEMM if kind == "tf32" else GEMM)
    )
    case = plain(tactic, "MatMul", [real(dtype, 70, 200), real(dtype, 200, 72)], [1])
    simt.check_all([replace(case, only=every_tile(kind, (1, 2)))], tmp_path)


def test_every_tile_of_bytes(tmp_path: Path) -> None:
    """The two types in turns, as their texts differ in nothing but the type's name."""
    cases = []
    for first, dtype in enumerate(BYTES):
        arrays = [whole(dtype, 70, 1032), whole("i8", 1032, 72)]
        case = plain(BYTE_GEMM, "IntegerMatMul", arrays, [1])
        tiles = every_tile(dtype, (1,))[first::2]
        cases.append(replace(case, only=[*tiles, *every_tile(dtype, (2,))[first::2]]))
    simt.check_all(cases, tmp_path)


def test_sums_of_bytes_wrap(tmp_path: Path) -> None:
    """As the layer's do, with a bias at the end of int32."""
    x, w = np.full((3, 64), 255, np.uint8), np.full((64, 8), 127, np.int8)
    c = np.full(8, np.iinfo(np.int32).max - 255 * 127 * 64, np.int32)
    simt.check_all([few(plain(BYTE_GEMM, "IntegerMatMul", [x, w, c], [1, 2]))], tmp_path)


class Mutated(Tactic):
    """A tactic whose text is changed in one place."""

    def __init__(self, tactic: Tactic, old: str, new: str) -> None:
        self.tactic, self.old, self.new = tactic, old, new

    def variants(self, node: Node, device: Any) -> Any:
        return asked.variants(self.tactic, node, device)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        made = asked.artifact(self.tactic, node, variant, ctx)
        assert isinstance(made.code, Source)
        before = (*made.code.preludes, made.code.text)
        texts = [t.replace(self.old, self.new) for t in before]
        if texts == list(before):
            raise LookupError(self.old)
        return replace(made, code=replace(made.code, preludes=tuple(texts[:-1]), text=texts[-1]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tx_copy_wait<C::STAGES - 2>();", "tx_copy_wait<C::STAGES - 1>();"),
        ("- 2>();\n    __syncthreads();", "- 2>();"),
        ("if (row0 + r >= 37) return;", "if (row0 + r >= 36) return;"),
        ("ok[j] && s < left", "ok[j] && s + 16 < left"),
        ("i * 16 + m % 2 * 8 + r, step * 2 + m / 2", "i * 16 + m / 2 * 8 + r, step * 2 + m % 2"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = epilogues(GEMM, "f16", 37, 300, 50)[0]
    wrong = replace(few(case), tactic=Mutated(GEMM, old, new))
    with pytest.raises(AssertionError, match=r"times the budget|block"):
        simt.check_all([wrong], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row < left && k + e < C::K", "row < left - 1 && k + e < C::K"),
        ("tx_copy_wait<C::STAGES - 2>();", "tx_copy_wait<C::STAGES - 1>();"),
        ("float(1 << (C::BITS - 1)) - zero", "zero"),
        ("if (slot < SLOTS)", "if (slot < SLOTS - 1)"),
        ("(e + j) % 4 * 2 + (e + j) / 4", "e + j"),
    ],
)  # fmt: skip
def test_a_fault_of_few_bits_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = bits_of(bits_arrays("f16", 5, 300, 40, 4, 32, "u8", "f16"), 4, 32)
    assert case.arrays is not None
    case.arrays[0][:] += 1
    wrong = replace(few(case), tactic=Mutated(FEW_BITS, old, new))
    with pytest.raises(AssertionError, match=r"times the budget|block|wrote outside|no number"):
        simt.check_all([wrong], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("C::EVEN || k < C::K)", "k < C::K - 8)"),
        ("tx_copy_wait<C::STAGES - 1>();", "tx_copy_wait<C::STAGES>();"),
        ("-N::OFFSET - zero[i][j]", "-zero[i][j] + 1"),
        ("* C::SETS / 8 * 8 + g", "* 8 + g"),
        ("g == t + 4 * h ? BLANK", "g == t ? BLANK"),
        ("(p + C::STAGES) % C::PANELS;", "p;"),
        ("< BLANK / 4", "< 4"),
        ("__byte_perm(w[1], w[3], 0x5410)", "__byte_perm(w[0], w[2], 0x7632)"),
    ],
)  # fmt: skip
def test_a_fault_of_gemv_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    arrays = bits_arrays("f16", 1, 2104, 40, 4, 64, "u8", "f16")
    arrays[0][:] += 1
    case = bits_of(arrays, 4, 64, FEW_BITS_GEMV)
    only = [Variant.of(panels=2, slices=4, stages=3)]
    wrong = replace(case, tactic=Mutated(FEW_BITS_GEMV, old, new), only=only)
    with pytest.raises(AssertionError, match=r"times the budget|block|wrote outside|no number"):
        simt.check_all([wrong], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if (G::PAD == 0 || ok)", "if (true)"),
        ("tx_set<BYTES>(place, G::PAD)", "tx_set<BYTES>(place, G::PAD + 1)"),
        ("row + i * 16 + m % 2 * 8 + r, step * 2 + m / 2", "row + i * 16 + m / 2 * 8 + r, step * 2 + m % 2"),
    ],
)  # fmt: skip
def test_a_fault_of_bytes_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = byte_residual(BYTE_CONV, "u8", 7)
    wrong = replace(few(case), tactic=Mutated(BYTE_CONV, old, new))
    with pytest.raises(AssertionError, match=r"times the budget|block"):
        simt.check_all([wrong], tmp_path)


def test_bytes_without_packed_weights_are_left_to_others() -> None:
    given = simt.h.node("IntegerMatMul", [whole("i8", 4, 8), whole("i8", 8, 4)])
    assert isinstance(asked.variants(BYTE_GEMM, given, simt.DEVICE), Reject)
    alone = simt.h.node(
        "IntegerConvolution", [whole("u8", 1, 8, 5, 5), whole("i8", 8, 1, 3, 3)], [1], group=8
    )
    assert isinstance(asked.variants(BYTE_CONV, alone, simt.DEVICE), Reject)


def test_what_a_product_of_few_bits_leaves_to_others() -> None:
    x, *weights = bits_arrays("f32", 3, 96, 9, 4, 32)
    attrs = {"bits": 4, "block_size": 32}
    nodes = [
        simt.h.node("FewBitsMatMul", [x, *weights], [], **attrs),
        simt.h.node("FewBitsMatMul", [x.astype(np.float64), *weights], [1, 2], **attrs),
        simt.h.node("FewBitsMatMul", [x[:0], *weights], [1, 2], **attrs),
        bits_of(bits_arrays("f32", 3, 96, 9, 4, 16), 4, 16).node,
        bits_of(bits_arrays("f32", 3, 96, 9, 2, 32), 2, 32).node,
    ]
    for node in nodes:
        offered = asked.variants(FEW_BITS, node, simt.DEVICE)
        assert isinstance(offered, Reject)
        assert offered.reason


def test_plans_hold_few_bits_in_the_order_of_lanes() -> None:
    """As many bytes as the network has, where panels are whole."""
    arrays = bits_arrays("f16", 1, 512, 64, 4, 32, scales="f16")
    node = bits_of(arrays, 4, 32).node
    offered = asked.variants(FEW_BITS, node, simt.DEVICE)
    assert not isinstance(offered, Reject)
    made = asked.artifact(FEW_BITS, node, offered[0], CompileContext(simt.DEVICE))
    packed = [p.apply(arrays) for _, p in made.constants]
    assert sum(p.nbytes for p in packed) == arrays[1].nbytes + arrays[2].nbytes
    words = packed[0].reshape(2, 16, 32, 4, 4)  # panel, chunk, lane, column / 8, bytes
    assert (words[1, 3, 4 * 5 + 2, 1] == arrays[1][32 + 8 + 5, 3, 8:12]).all()


def test_what_gemv_leaves_to_others() -> None:
    x, *weights = bits_arrays("f16", 1, 96, 9, 4, 32)
    attrs = {"bits": 4, "block_size": 32}
    const = [TensorSpec(DType.of(a.dtype), a.shape, const=a) for a in weights]
    nodes = [
        simt.h.node("FewBitsMatMul", [x, *weights], [], **attrs),
        simt.h.node("FewBitsMatMul", [x.astype(np.float32), *weights], [1, 2], **attrs),
        simt.h.node("FewBitsMatMul", [x.repeat(2, 0), *weights], [1, 2], **attrs),
        simt.h.node(
            "FewBitsMatMul", [TensorSpec(DType.FP16, (dims.sym("n"), 96)), *const], **attrs
        ),
        bits_of(bits_arrays("f16", 1, 96, 9, 4, 16), 4, 16).node,
        bits_of(bits_arrays("f16", 1, 192, 9, 4, 96), 4, 96).node,
        bits_of(bits_arrays("bf16", 1, 96, 9, 8, 32), 8, 32).node,
    ]
    for node in nodes:
        offered = asked.variants(FEW_BITS_GEMV, node, simt.DEVICE)
        assert isinstance(offered, Reject)
        assert offered.reason


def test_plans_hold_few_bits_in_the_order_of_parts() -> None:
    """As many bytes as the network has, where panels and chunks are whole."""
    arrays = bits_arrays("f16", 1, 512, 32, 4, 32, scales="f16")
    node = bits_of(arrays, 4, 32).node
    offered = asked.variants(FEW_BITS_GEMV, node, simt.DEVICE)
    assert not isinstance(offered, Reject)
    made = asked.artifact(FEW_BITS_GEMV, node, offered[0], CompileContext(simt.DEVICE))
    packed = [p.apply(arrays) for _, p in made.constants]
    assert sum(p.nbytes for p in packed) == arrays[1].nbytes + arrays[2].nbytes
    words = packed[0].reshape(
        2, 2, 4, 8, 4, 2, 2, 4
    )  # panel, chunk, load, lane, part / 4, column / 8
    assert (words[1, 1, 3, 5, 2, 1, 0] == arrays[1][16 + 5, 8 + 4 + 2, 12:16]).all()
    scales = packed[1].reshape(2, 16, 8, 2)
    assert scales[1, 9, 3, 1] == arrays[2][16 + 8 + 3, 9]


def test_which_masks_are_causal() -> None:
    causal = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    assert attention.hidden_after(causal) == 0
    assert attention.hidden_after(np.triu(np.full((3, 5), -65504.0, np.float16), 3)[None]) == 2
    assert attention.hidden_after(np.zeros((5, 5), np.float32)) is None
    assert attention.hidden_after(causal.T) is None
    assert attention.hidden_after(np.full((5, 5), -np.inf, np.float32)) is None


def test_what_is_left_to_others() -> None:
    a, b = TensorSpec(DType.INT32, (4, 8)), TensorSpec(DType.INT32, (8, 4))
    assert isinstance(asked.variants(GEMM, simt.h.node("MatMul", [a, b]), simt.DEVICE), Reject)
    for image in (
        ((1, 8, 5, 5), 8, (3, 3), {"group": 8}),
        ((1, 6, 5, 5), 48, (3, 3), {"group": 2}),
    ):
        (grouped,) = images(CONV, "f16", [image])
        assert isinstance(asked.variants(CONV, grouped.node, simt.DEVICE), Reject)


def test_groups_of_columns_in_parts_of_k(tmp_path: Path) -> None:
    """Parts of k of a group are added up where its columns are; the other columns of a tile are
    nobody's.
    """
    (case,) = images(CONV, "f16", [((1, 144, 70), 144, (16,), {"group": 3, "pads": (8, 7)})])
    offered = asked.variants(CONV, case.node, simt.DEVICE)
    assert not isinstance(offered, Reject), offered.reason
    knobs = dict(offered[0].knobs)
    parts = [replace(offered[0], knobs=Variant.of(**{**knobs, "split": s}).knobs) for s in (2, 5)]
    simt.check_all([replace(case, only=parts)], tmp_path)
    assert TF32_BUDGET * 2e-5 < 5e-3


def test_estimates_grow_with_the_work_and_prefer_full_waves() -> None:
    ctx = CompileContext(simt.DEVICE)
    costs = []
    for m in (64, 4096, 65536):
        x, w = TensorSpec(DType.FP16, (m, 1024)), real("f16", 1024, 1024)
        node = simt.h.node("MatMul", [x, w], [1])
        offered = asked.variants(GEMM, node, simt.DEVICE)
        assert not isinstance(offered, Reject)
        assert len(offered) <= tile.OFFERED
        costs.append(asked.cost(GEMM, node, offered[0], ctx) or 0.0)
    assert costs == sorted(costs)
    assert costs[0] < costs[2] / 10
    small, large = (tile.tiles("f16", simt.DEVICE)[i] for i in (11, 0))
    assert tile.seconds(tile.ProductSizes(1, 196, 256, 1024), small, 1, simt.DEVICE) < tile.seconds(
        tile.ProductSizes(1, 196, 256, 1024), large, 1, simt.DEVICE
    )
