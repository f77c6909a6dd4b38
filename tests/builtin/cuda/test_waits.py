"""Kernels of artifacts that say so wait for others before they touch what these write, on
architectures that can.
"""

from __future__ import annotations

import re

import asked
import product_cases
import pytest
import simt
import tactic_cases
from hopper_cases import TABLE as HOPPER

from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.tactic import CompileContext, Reject
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")
WAIT = "griddepcontrol.wait"
TOUCHES = r"ld\.(?:volatile\.)?global|st\.(?:volatile\.)?global|(?:red|atom)\.global|cp\.async"


def entries(artifact: KernelArtifact, name: str) -> list[str]:
    """The PTX of every kernel."""
    from cuda.bindings import nvrtc as api

    assert isinstance(artifact.code, Source)
    _, program = api.nvrtcCreateProgram(
        nvrtc.unit_text(artifact.code).encode(), b"kernel.cu", 0, [], []
    )
    options = [f"--gpu-architecture={name.replace('sm', 'compute')}", *nvrtc.FLAGS, "-w"]
    (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    assert not int(status)
    _, size = api.nvrtcGetPTXSize(program)
    text = bytearray(size)
    api.nvrtcGetPTX(program, text)
    api.nvrtcDestroyProgram(program)
    return text.decode().split(".entry")[1:]


def made(case: simt.Case, name: str) -> KernelArtifact:
    offered = asked.variants(case.tactic, case.node, target(name))
    assert not isinstance(offered, Reject), offered.reason
    return asked.artifact(
        case.tactic, case.node, offered[0], CompileContext(target(name), dict(case.env))
    )


@pytest.mark.parametrize(
    "name", [*tactic_cases.TABLE, "gemv f16", "attention f16", "attention f32"]
)
def test_nothing_is_touched_before(name: str) -> None:
    table = {**tactic_cases.TABLE, **product_cases.TABLE}
    for text in entries(artifact := made(table[name]()[0], "sm_90"), "sm_90"):
        first = re.search(TOUCHES, text)
        assert artifact.params["waits"]
        assert WAIT in text
        assert first is None or text.index(WAIT) < first.start()


@pytest.mark.parametrize("name", ["few bits gemv f16", "few bits gemv bf16"])
def test_x_is_read_behind(name: str) -> None:
    """Its weights are asked for before, by copies. Reads of what is there from the start (``nc``)
    the assembler may move before the wait.
    """
    for case in product_cases.TABLE[name]()[::3]:
        for text in entries(made(case, "sm_90"), "sm_90"):
            first = re.search(r"ld\.global\S*", text)
            assert first is not None
            assert ".nc" not in first.group()
            assert text.index("cp.async") < text.index(WAIT) < first.start()


@pytest.mark.parametrize("name", HOPPER)
def test_kernels_of_hopper_wait(name: str) -> None:
    artifact = made(HOPPER[name]()[0], "sm_90a")
    assert artifact.params["waits"]
    assert all(WAIT in text for text in entries(artifact, "sm_90a"))


def test_earlier_architectures_cannot() -> None:
    case = product_cases.TABLE["attention f16"]()[0]
    assert not any(WAIT in text for text in entries(made(case, "sm_80"), "sm_80"))
