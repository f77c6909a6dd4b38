"""Compiling strangers' sources: what fails is found, and keeps nobody else out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tactix.base.errors import CompilerError, ToolchainError
from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Tactic, Variant
from tactix.plugins.identity import Provider
from tactix.select.compile import joined
from tactix.select.enumerate import Candidate
from tactix_cuda.bench import CudaBench

DEVICE = DeviceProperties("cpu", "some processor")


class Texts:
    """A toolchain for which ``bad`` is no text, and ``clash`` may stand in one text only."""

    def compile(
        self, artifacts: Iterable[KernelArtifact], device: DeviceProperties
    ) -> Mapping[str, Binary]:
        sources = [a.code for a in artifacts if isinstance(a.code, Source)]
        if any("bad" in s.text for s in sources) or sum("clash" in s.text for s in sources) > 1:
            raise CompilerError("no", why="it is bad")
        blob = " ".join(sorted(s.text for s in sources)).encode()
        return {s.digest: Binary(blob, s.text) for s in sources}


def candidate(text: str, namespace: str = "acme") -> Candidate:
    tactic = Tactic()
    tactic.key = f"{namespace}.{text.split()[0]}@1"
    return Candidate(tactic, Variant(), KernelArtifact("x", code=Source("t", text)), None)


@pytest.mark.parametrize(
    ("texts", "out"),
    [
        (["a", "b", "c"], []),
        (["a", "bad", "c"], ["bad"]),
        (["bad"], ["bad"]),
        (["bad 1", "bad 2", "c", "bad 3", "e"], ["bad 1", "bad 2", "bad 3"]),
        (["clash 1", "b", "clash 2", "clash 3"], ["clash 2", "clash 3"]),
    ],
)
def test_all_that_can_be_linked_with_each_other_are(texts: list[str], out: list[str]) -> None:
    apart, own = [candidate(t) for t in texts], candidate("own", "tactix")
    made = joined(Texts(), [own.artifact], apart, DEVICE, lambda c: f"{c.title} of them")  # type: ignore[arg-type]
    rejected = [t for t, c in zip(texts, apart, strict=True) if c.status == "rejected"]
    assert rejected == out
    assert all(
        "of them does not compile: no: it is bad" in c.reason
        for c in apart
        if c.status == "rejected"
    )
    fine = {c.artifact.code.digest for c in apart if c.status == "open"}  # type: ignore[union-attr]
    assert fine <= made.keys()


@pytest.mark.parametrize("texts", [["a"], ["bad"], ["a", "bad"], ["bad 1", "bad 2"]])
def test_on_a_gpu_a_pack_that_does_not_compile_keeps_nobody_out(texts: list[str]) -> None:
    bench = CudaBench.__new__(CudaBench)
    apart, own = [candidate(t) for t in texts], candidate("own", "tactix")
    bench.strangers = {c.tactic.key: Provider("acme-pack", "2.0") for c in apart}
    toolchain: Any = Texts()
    made = bench.compile(toolchain, [own, *apart], DEVICE)
    fine = {c.artifact.code.digest for c in (own, *apart) if c.status == "open"}  # type: ignore[union-attr]
    assert fine == made.keys() & fine
    assert own.artifact.code.digest in fine  # type: ignore[union-attr]
    assert all(("acme-pack 2.0" in c.reason) == ("bad" in c.title) for c in apart)


def test_own_code_that_does_not_compile_costs_nobody_else_anything() -> None:
    bench = CudaBench.__new__(CudaBench)
    bad, fine, other = candidate("bad", "tactix"), candidate("own", "tactix"), candidate("a")
    bench.strangers = {other.tactic.key: Provider("acme-pack", "2.0")}
    made = bench.compile(Texts(), [bad, other, fine], DEVICE)  # type: ignore[arg-type]
    assert [c.status for c in (bad, fine, other)] == ["rejected", "open", "open"]
    assert {c.artifact.code.digest for c in (fine, other)} <= made.keys()  # type: ignore[union-attr]


class Told(Texts):
    """One that names what it does not take, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def compile(
        self, artifacts: Iterable[KernelArtifact], device: DeviceProperties
    ) -> Mapping[str, Binary]:
        self.calls += 1
        known = list(artifacts)
        try:
            return super().compile(known, device)
        except CompilerError as e:
            texts = [a.code for a in known if isinstance(a.code, Source) and "bad" in a.code.text]
            e.failed = {s.digest: f"{s.text} is meant" for s in texts}
            raise


def test_whom_the_compiler_names_is_out_at_once() -> None:
    toolchain, texts = Told(), [f"{'bad' if i % 3 else 'fine'} {i}" for i in range(30)]
    added = [candidate(t) for t in texts]
    joined(toolchain, (), added, DEVICE, lambda c: c.title)  # type: ignore[arg-type]
    assert [c.status == "rejected" for c in added] == ["bad" in t for t in texts]
    assert all(f"{t} is meant" in c.reason for t, c in zip(texts, added, strict=True) if "bad" in t)
    assert toolchain.calls == 2


def test_a_toolchain_that_does_not_work_is_an_error() -> None:
    class Broken(Texts):
        def compile(self, artifacts: Any, device: Any) -> Mapping[str, Binary]:
            raise ToolchainError("objects cannot be kept")

    with pytest.raises(ToolchainError):
        joined(Broken(), (), [candidate("a"), candidate("b")], DEVICE, str)  # type: ignore[arg-type]
