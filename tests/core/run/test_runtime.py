"""Which plans are let in, and what is said of the others."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tactix
from tactix.base.error_recorder import ErrorRecorder
from tactix.base.errors import (
    ConfigError,
    InvalidArgument,
    PlanCompatibilityError,
    PlanFormatError,
    PluginError,
)
from tactix.base.logger import Logger
from tactix.contracts.launcher import MOST_THREADS
from tactix.plan import container
from tactix.plan.schema import Requirement
from tactix.run.runtime import Runtime, default_threads


def test_threads_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACTIX_NUM_THREADS", raising=False)
    assert default_threads() >= 1
    monkeypatch.setenv("TACTIX_NUM_THREADS", "3")
    assert Runtime().max_threads == 3
    assert Runtime(max_threads=5).max_threads == 5
    assert Runtime(max_threads=0).max_threads == 3
    for text in ("0", "two", "-1", "256", "9" * 5000):
        monkeypatch.setenv("TACTIX_NUM_THREADS", text)
        with pytest.raises(ConfigError, match="TACTIX_NUM_THREADS"):
            Runtime()
    monkeypatch.delenv("TACTIX_NUM_THREADS")
    assert default_threads(1000) == MOST_THREADS


@pytest.mark.parametrize("threads", [-1, MOST_THREADS + 1, 10**20, 1.5])
def test_threads_have_a_range(threads: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"1 to {MOST_THREADS}, or 0 for all"):
        Runtime(max_threads=threads)
    with pytest.raises(InvalidArgument, match=f"1 to {MOST_THREADS}, or 0 for all"):
        Runtime(max_threads=1).max_threads = threads


def test_devices_are_named_by_text() -> None:
    with pytest.raises(InvalidArgument, match="device is 3"):
        Runtime(device=3)  # type: ignore[arg-type]
    for wrong in (3, [3], [""]):
        with pytest.raises(InvalidArgument, match="devices are"):
            Runtime().devices = wrong  # type: ignore[assignment]


def test_an_unknown_flavour_is_told_at_once_where_there_is_a_session() -> None:
    with pytest.raises(PluginError, match="no_such"):
        Runtime(session=tactix.Session(plugins=(), discover=False), flavour="no_such")


def test_a_missing_layer_or_launcher_is_told_with_its_pip_line(sample: Any) -> None:
    plan = replace(
        sample.plan(),
        requirements=(
            Requirement("test.MatMul@1", "acme-layers", "2.1"),
            Requirement("tactix.numpy@1", "tactix", "0.1.0"),
        ),
    )
    session = sample.session(layers={})
    with pytest.raises(
        PlanCompatibilityError, match=r"test.MatMul@1'.*pip install acme-layers==2.1"
    ) as e:
        Runtime(session=session).load(plan)
    assert [r.split("'")[1] for r in e.value.reasons] == ["test.MatMul@1", "test.ScaleAdd@1"]
    session = sample.session(launchers={})
    with pytest.raises(PlanCompatibilityError, match=r"tactix.numpy@1'.*pip install tactix==0.1.0"):
        Runtime(session=session).load(plan)


def test_another_device_features_or_version(sample: Any, session: Any) -> None:
    plan = sample.plan()
    odd = replace(plan.steps[0], artifact=replace(plan.steps[0].artifact, requires=("quantum",)))
    cases = {
        "cuda": replace(plan, device={"kind": "cuda"}),
        "quantum": replace(plan, steps=(odd, *plan.steps[1:])),
        "99.0": replace(plan, meta={"tactix": "99.0"}),
    }
    recorder = ErrorRecorder()
    for word, changed in cases.items():
        with pytest.raises(PlanCompatibilityError, match=word) as e:
            Runtime(session=session, error_recorder=recorder).load(changed)
        assert len(e.value.reasons) == 1
    assert recorder.num_errors() == 3


def test_the_device_can_be_named_by_key_or_kind(sample: Any, session: Any) -> None:
    for name in ("", "cpu", "tactix.cpu@1"):
        assert Runtime(session=session, device=name).load(sample.plan()).device.kind == "cpu"
    with pytest.raises(PlanCompatibilityError, match="'npu'"):
        Runtime(session=session, device="npu").load(sample.plan())
    with pytest.raises(PluginError, match="no allocator 'pool'"):
        Runtime(session=session, allocator="pool").load(sample.plan())


def test_soft_differences_are_logged(sample: Any, session: Any) -> None:
    out = io.StringIO()
    plan = replace(
        sample.plan(), device={"kind": "cpu", "name": "abacus"}, meta={"tactix": "0.0.1"}
    )
    Runtime(Logger(stream=out), session).load(plan)
    assert "abacus" in out.getvalue()
    assert "0.0.1" in out.getvalue()


def test_damage_is_recorded(session: Any, sample: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    data = bytearray(container.dump(sample.plan()))
    data[-1] ^= 1  # in the weights
    path.write_bytes(data)
    recorder = ErrorRecorder()
    runtime = Runtime(session=session, error_recorder=recorder)
    runtime.deserialize(path)
    with pytest.raises(PlanFormatError):
        runtime.deserialize(path, verify=True)
    with pytest.raises(PlanFormatError):
        runtime.deserialize(b"junk")
    with pytest.raises(FileNotFoundError):
        runtime.deserialize(tmp_path / "none.plan")
    assert recorder.num_errors() == 2


@pytest.mark.parametrize("given", [5, None, object()])
def test_what_is_no_allocator_is_refused_at_once(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"allocator is .*\. Give a key, or an object"):
        Runtime(allocator=given)
    runtime = Runtime()
    with pytest.raises(InvalidArgument, match="allocator is"):
        runtime.allocator = given
    assert runtime.allocator == ""
