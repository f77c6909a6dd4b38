"""Packs that nobody enabled, and whose keys come before tactix's: they take part in nothing that
tactix does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tactix
from tactix.base.errors import ModelImportError, UntrustedPlan
from tactix.contracts.compiler import Compiler
from tactix.contracts.importer import Importer
from tactix.plan import container
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.session import Session

Become = Callable[[str], Path]


class Taking(Compiler):
    """A compiler of C that is never to be called, but for what it is."""

    key, language, launcher = "aaa.cc@1", "c", "tactix.cpu.elf@1"

    def available(self) -> str:
        return ""

    def identity(self) -> str:
        raise AssertionError("it was asked")

    compile = identity  # type: ignore[assignment]


def _raise(*_: Any) -> None:
    raise ValueError("bad magic")


class Failing(Importer):
    """It says what it claims, and loads nothing."""

    key = "aaa.any@1"

    def __init__(self, format: str, claims: Callable[[Any], bool]) -> None:
        self.format, self._claims = format, claims

    def claims(self, source: object) -> bool:
        return self._claims(source)

    def load(self, source: Any, network: Any, converters: Any) -> None:
        _raise()


class Pack:
    """``importer``: format, and what it claims; it fails to load anything."""

    def __init__(
        self, format: str = "onnx", claims: Callable[[Any], bool] = lambda source: True
    ) -> None:
        self.importer = Failing(format, claims)

    @hookimpl
    def tactix_importers(self) -> list[Any]:
        return [self.importer]

    @hookimpl
    def tactix_compilers(self) -> list[Any]:
        return [Taking()]

    @hookimpl
    def tactix_trust_stores(self) -> list[Any]:
        return [SimpleNamespace(key="aaa", trusted_by=lambda seal: "anything")]

    @hookimpl
    def tactix_devices(self) -> list[Any]:
        return [SimpleNamespace(key="aaa.cpu@1", kind="cpu", available=lambda: "it was asked")]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    nodes = [helper.make_node("Sigmoid", ["x"], ["y"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("enable", [(), ("aaa",)])
def test_models_and_sources_are_tactixs(model: Path, enable: tuple[str, ...]) -> None:
    """Its own importer and compiler come first even where the pack is enabled."""
    session = Session(plugins=[("aaa", Pack())])
    engine = tactix.build(model, session=session, enable=enable, level=0, timing_cache=False)
    assert engine(np.zeros(3, np.float32)).tolist() == [0.5] * 3
    assert engine.device.key == "tactix.cpu@1"
    assert (
        tactix.Runtime(session=session, device="cpu").load(engine.plan).device.key == "tactix.cpu@1"
    )


def test_it_trusts_nothing(path: Path, home: Become) -> None:
    home("other")
    session = Session("runtime", plugins=[("aaa", Pack())])
    with pytest.raises(UntrustedPlan, match=r"the trust store of aaa is not asked: .*--enable aaa"):
        tactix.load(path, session=session)
    session.enable("aaa")
    assert tactix.Runtime(session=session).judge(container.load(path)).trusted_by == "anything"


@pytest.mark.parametrize("claims", [lambda source: True, _raise])
def test_an_importer_that_fails_is_named(tmp_path: Path, claims: Any) -> None:
    (tmp_path / "m.aaa").write_bytes(b"AAA")
    session = Session(plugins=[("aaa", Pack("aaa", claims))])
    blame = r"importer aaa\.any@1 of plugin 'aaa'.*: the importer failed: ValueError: bad magic.*TACTIX_DISABLE=aaa"
    with pytest.raises(ModelImportError, match=blame):
        tactix.build(tmp_path / "m.aaa", session=session)
