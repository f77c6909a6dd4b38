"""The generated CUDA tactics: every kernel of the table compiles, and its launch fits the device
and the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import asked
import harness as h
import pytest
from simt import Case
from tactic_cases import TABLE, TACTICS, real, whole

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.expr import Primitive
from tactix.contracts.tactic import CompileContext, Reject
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc
from tactix_sdk.scalar_layer import pointwise

GRID = 2**31 - 1


def artifacts(entries: Sequence[Case], architecture: str) -> list[tuple[Case, KernelArtifact]]:
    """Those of all variants of all entries, compiled twice to the same."""
    device, made = target(architecture), []
    for e in entries:
        offered = asked.variants(e.tactic, e.node, device)
        assert not isinstance(offered, Reject), offered.reason
        for v in offered:
            ctx = CompileContext(device, dict(e.env))
            artifact = asked.artifact(e.tactic, e.node, v, ctx)
            assert artifact.digest == asked.artifact(e.tactic, e.node, v, ctx).digest
            made.append((e, artifact))
    return made


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_compile(name):
    """For the older architecture, which has less, where both have one text."""
    if reason := nvrtc.why_missing():
        pytest.skip(reason)
    units: dict[str, str] = {}
    for architecture in ("sm_80", "sm_90"):
        unit = _unit([a.code for _, a in artifacts(TABLE[name](), architecture)])
        units.setdefault(unit, architecture)
    for unit, architecture in units.items():
        cubin = nvrtc.compile_text(unit, (f"--gpu-architecture={architecture}", *nvrtc.FLAGS), name)
        assert cubin[:4] == b"\x7fELF"


def _unit(sources: Sequence[Source]) -> str:
    """One translation unit of all kernels: texts shared between them once, every kernel under names
    of its own.
    """
    different = {s.digest: s for s in sources}.values()
    shared = dict.fromkeys(p for s in different for p in s.preludes)
    names = "#undef TX_ENTRY\n#undef TX_NAME\n#define TX_ENTRY k{0}\n#define TX_NAME(x) k{0}_##x\n"
    return "\n".join([*shared, *(names.format(i) + s.text for i, s in enumerate(different))])


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_launches_fit(name):
    for e, a in artifacts(TABLE[name](), "sm_90"):
        if a.alias:
            continue
        assert a.launcher == "tactix.cuda.cubin@1"
        assert a.requires == ("cubin_90",)
        (launch,) = a.launches
        (grid,), (block,) = (
            tuple(dims.evaluate(d, e.env) for d in s) for s in (launch.grid, launch.block)
        )
        assert 1 <= grid <= GRID
        assert block % 32 == 0
        assert 32 <= block <= 1024
        _check_parameters(a.code.text, [x.kind for x in launch.args], block)


def _check_parameters(text: str, kinds: Sequence[str], block: int) -> None:
    head = re.search(r"__launch_bounds__\((\d+)\) TX_ENTRY\((.*?)\) \{", " ".join(text.split()))
    assert head is not None
    assert int(head[1]) == block
    parameters = [p for p in head[2].split(", ") if p]
    assert ["scalar" if "*" not in p else "address" for p in parameters] == [
        "scalar" if k == "scalar" else "address" for k in kinds
    ]
    assert all(("const " in p) == (k != "output") for p, k in zip(parameters, kinds, strict=True))


def test_vectors_are_as_wide_as_alignment_allows():
    widths = {(4, 64): 8, (4, 12): 4, (4, 10): 2, (3, 7): 8, (3, 130): 2}
    for (rows, columns), v in widths.items():
        x = real(rows, columns, dtype="f16")
        nodes = [h.node("Relu", [x]), h.node("Add", [x, real(rows, 1, dtype="f16")])]
        texts = [
            asked.artifact(
                TACTICS["pointwise"], n, _first(n), CompileContext(target("sm_90"))
            ).code.text
            for n in nodes
        ]
        assert "tx_load_f16<8>" in texts[0]
        wanted = v if columns % 2 == 0 else 1
        assert (f"tx_load_f16<{wanted}>" in texts[1]) == (wanted > 1)


def _first(node):
    found = asked.variants(TACTICS["pointwise"], node, target("sm_90"))
    assert not isinstance(found, Reject)
    return found[0]


def test_primitives_need_a_text_for_cuda():
    cube = Primitive(
        "cube", 1, lambda x: x * x * x, (("c", "({0}*{0}*{0})"), ("cuda", "({0} * {0} * {0})"))
    )
    host = Primitive("host", 1, lambda x: x, (("c", "{0}"),))
    known = pointwise("test.Cube@1")(lambda x: cube(x))
    unknown = pointwise("test.Host@1")(lambda x: host(x))
    n = h.node(known, [real(40)])
    made = asked.artifact(TACTICS["pointwise"], n, _first(n), CompileContext(target("sm_90")))
    assert "a0[k] * a0[k] * a0[k]" in made.code.text
    found = asked.variants(TACTICS["pointwise"], h.node(unknown, [real(40)]), target("sm_90"))
    assert isinstance(found, Reject)
    assert "host" in found.reason


def test_a_view_has_nothing_to_launch():
    n = h.node("Reshape", [real(4, 6)], shape=(24,))
    made = asked.artifact(
        TACTICS["view"],
        n,
        asked.variants(TACTICS["view"], n, target("sm_90"))[0],
        CompileContext(target("sm_90")),
    )
    assert made.alias
    assert not made.launches


@pytest.mark.parametrize(
    ("tactic", "node", "reason"),
    [
        (
            "rows",
            lambda: h.node("LayerNormalization", [real(3, 4), real(4).astype("float64")]),
            "parameter",
        ),
        (
            "pool",
            lambda: h.node("MaxPool", [real(1, 2, 4, 4).astype("int32")], kernel_shape=(2, 2)),
            "i32",
        ),
        ("reduce", lambda: h.node("ReduceMax", [real(3, 4) > 0], axes=(0,)), "bool"),
        ("move", lambda: h.node("Pad", [real(3, 4)], pads=(1, 0, 0, 0), mode="reflect"), "reflect"),
        (
            "depthwise",
            lambda: h.node("Convolution", [real(1, 4, 5, 5), real(4, 4, 3, 3)], (1,)),
            "depthwise",
        ),
        (
            "depthwise",
            lambda: h.node("Convolution", [real(1, 4, 5, 5), real(4, 1, 3, 3)], group=4),
            "constant",
        ),
        (
            "unpool",
            lambda: h.node(
                "MaxUnpool", [real(1, 1, 3), whole(1, 1, 3)], kernel_shape=(2,), pads=(1, 1)
            ),
            "without a place",
        ),
    ],
)
def test_what_is_rejected(tactic, node, reason):
    found = asked.variants(TACTICS[tactic], node(), target("sm_90"))
    assert isinstance(found, Reject)
    assert reason in found.reason
