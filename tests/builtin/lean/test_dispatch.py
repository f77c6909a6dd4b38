"""Plans that bring their runtime: embedded, handed over, refused where it is not trusted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix import BuilderFlag
from tactix.base import dims, errors
from tactix.base.dtypes import DType
from tactix.base.tensor import Element
from tactix.contracts.flavour import TempfileControlFlag
from tactix.plan import container
from tactix.plan.schema import Plan, Profile, TensorIO
from tactix_runtime import dispatch, envelope, lean_runtime
from tactix_ship.lean import wheel
from tactix_tools import arrays
from tactix_tools.cli import main

COMPATIBLE = BuilderFlag.VERSION_COMPATIBLE
NOWHERE, IN_FILES = TempfileControlFlag(0), TempfileControlFlag.ALLOW_TEMPORARY_FILES


def results(runtime: tactix.Runtime, saved: Any) -> list[bytes]:
    plan, feed, _ = saved
    found = runtime.deserialize(plan).create_execution_context().run(feed)
    return [y.tobytes() for y in found.values()]


def expected(saved: Any) -> list[bytes]:
    return [y.tobytes() for y in saved[2]]


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any], version: int = 0) -> bytes:
    """A plan's bytes with another header or format; not signed any more."""
    data = path.read_bytes()
    magic, own, signed, length, total, _ = container.PROLOGUE.unpack(
        data[: container.PROLOGUE.size]
    )
    end = container.PROLOGUE.size + length
    header = json.loads(data[container.PROLOGUE.size : end])
    change(header)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    start, old = container.align(container.PROLOGUE.size + len(text)), container.align(end + signed)
    total += start - old
    new = container.PROLOGUE.pack(
        magic, version or own, 0, len(text), total, hashlib.sha256(text).digest()
    )
    return (new + text).ljust(start, b"\0") + data[old:]


@pytest.fixture
def saved(built: Callable[..., Any]) -> Any:
    return built("mlp", COMPATIBLE)


@pytest.mark.parametrize("flavour", ["default", "dispatch", "lean"])
def test_every_flavour_gives_the_same_answer(flavour: str, saved: Any) -> None:
    assert results(tactix.Runtime(flavour=flavour), saved) == expected(saved)


def test_the_plan_holds_the_wheel(saved: Any, built: Callable[..., Any]) -> None:
    found = envelope.read(memoryview(saved[0].read_bytes()))
    assert (found.format, found.version) == (container.VERSION, tactix.__version__)
    assert found.runtime is not None
    assert "run/engine.py" in lean_runtime.unpack(found.runtime)
    for flags in ((), (COMPATIBLE, BuilderFlag.EXCLUDE_LEAN_RUNTIME)):
        without = envelope.read(memoryview(built("mlp", *flags)[0].read_bytes()))
        assert without.runtime is None


def test_leaving_out_what_no_plan_would_hold() -> None:
    with pytest.raises(errors.ConfigError, match="EXCLUDE_LEAN_RUNTIME"):
        tactix.BuilderConfig(flags={BuilderFlag.EXCLUDE_LEAN_RUNTIME}).check()


@pytest.mark.parametrize("registry", ["layers", "launchers", "devices", "allocators"])
def test_it_offers_what_the_built_ins_offer(registry: str) -> None:
    """Those for CUDA, too, which are imported when something asks for them. Plugins of TensorRT's
    programs need the builder's side.
    """
    package = lean_runtime.admit(
        lean_runtime.unpack(wheel.wheel()), TempfileControlFlag.ALLOW_IN_MEMORY_FILES, None
    )
    ours = tactix.Session(group="runtime", only=[], disable=["tactix.tensorrt"])
    theirs = package.Session()
    assert set(getattr(theirs, registry)) == set(getattr(ours, registry))
    assert len(getattr(theirs, registry)) > 1
    with pytest.raises(errors.PluginError, match=r"acme\.none@1"):
        getattr(theirs, registry)["acme.none@1"]


def test_the_runtime_at_a_path(built: Callable[..., Any], tmp_path: Path) -> None:
    saved = built("mlp", COMPATIBLE, BuilderFlag.EXCLUDE_LEAN_RUNTIME)
    runtime = tactix.Runtime()
    with pytest.raises(errors.PlanCompatibilityError, match="VERSION_COMPATIBLE"):
        tactix.Runtime(flavour="dispatch").deserialize(saved[0])
    for path in (wheel.write(tmp_path), tmp_path / "tactix_lean"):
        for name, content in lean_runtime.unpack(wheel.wheel()).items():
            (tmp_path / "tactix_lean" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tactix_lean" / name).write_bytes(content)
        assert results(runtime.load_runtime(path), saved) == expected(saved)
    assert runtime.flavour == "default"
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(errors.ConfigError, match="lean runtime"):
            runtime.load_runtime(wrong).deserialize(saved[0])


def test_temporary_files_where_memory_is_not_allowed(saved: Any, tmp_path: Path) -> None:
    runtime = tactix.Runtime(flavour="dispatch")
    runtime.tempfile_control_flags, runtime.temporary_directory = NOWHERE, str(tmp_path)
    files = {
        **lean_runtime.unpack(wheel.wheel()),
        "note.py": b"once = True",
    }  # content that no other test has loaded
    with pytest.raises(errors.ConfigError, match="neither files in memory nor"):
        lean_runtime.admit(files, NOWHERE, None)
    package = lean_runtime.admit(files, IN_FILES, str(tmp_path))
    assert Path(str(package.__file__)).is_relative_to(tmp_path)
    assert lean_runtime.admit(files, NOWHERE, None) is package
    found = package.load(str(saved[0])).create_execution_context().run(saved[1])
    assert [y.tobytes() for y in found.values()] == expected(saved)
    with pytest.raises(errors.ConfigError, match="temporary_directory"):
        lean_runtime.admit({**files, "note.py": b"twice = True"}, IN_FILES, str(tmp_path / "none"))


def test_the_guest_is_another_package(saved: Any) -> None:
    engine = tactix.Runtime(flavour="dispatch").deserialize(saved[0])
    top = type(engine).__module__.partition(".")[0]
    assert top.startswith("_tactix_lean_")
    assert not isinstance(engine, tactix.Engine)
    assert all(
        v.__name__.startswith(top)
        for n, v in list(sys.modules.items())
        if n.startswith(f"{top}.run")
    )
    again = tactix.Runtime(flavour="dispatch").deserialize(saved[0].read_bytes())
    assert type(again) is type(engine)


def test_guests_load_machine_code_apart(built: Callable[..., Any]) -> None:
    """Each has its own loader, and they load one after the other from files of the same number."""
    wheel_files = lean_runtime.unpack(wheel.wheel())
    for i, model in enumerate(("mlp", "lenet", "gru")):
        path, feed, want = built(model)
        package = lean_runtime.admit(
            {**wheel_files, "note.py": b"# %d" % i}, TempfileControlFlag.ALLOW_IN_MEMORY_FILES, None
        )
        found = package.load(path).create_execution_context().run(feed)
        assert [y.tobytes() for y in found.values()] == [y.tobytes() for y in want]


def test_its_errors_are_ours(saved: Any) -> None:
    recorder = tactix.ErrorRecorder()
    engine = tactix.Runtime(flavour="dispatch", error_recorder=recorder).deserialize(saved[0])
    (name,) = saved[1]
    with pytest.raises(errors.ShapeError, match="input") as e:
        engine(**{name: saved[1][name][:, :-1]})
    assert isinstance(e.value, ValueError)
    assert e.value.what
    with pytest.raises(errors.DTypeError):
        engine(**{name: saved[1][name].astype(np.float64)})
    assert recorder.num_errors() >= 1
    lean = sys.modules[type(engine).__module__.partition(".")[0]]
    with pytest.raises(errors.PlanFormatError):
        lean.load(b"nothing")
    error = sys.modules[f"{lean.__name__}.base.errors"].AllocationError("none", who="it", do="less")
    assert isinstance(error, MemoryError)
    assert isinstance(error, errors.AllocationError)
    assert str(error) == "it: none. less"


def test_settings_reach_the_lean_runtime(saved: Any) -> None:
    def tuned(header: dict[str, Any]) -> None:
        header["device"]["name"] = "another machine"

    data = rewritten(saved[0], tuned)
    runtime = tactix.Runtime(
        log := KeptLog(), flavour="dispatch", on_untrusted="allow", max_threads=1
    )
    runtime.deserialize(data)
    assert any("another machine" in line for line in log.lines)
    runtime.device = "nowhere"
    with pytest.raises(errors.PlanCompatibilityError, match="nowhere"):
        runtime.deserialize(data)
    with pytest.raises(errors.InvalidArgument, match="allocator"):
        tactix.Runtime(flavour="dispatch", allocator=object()).deserialize(saved[0])  # type: ignore[arg-type]


def test_nobody_trusts_it(saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path))
    with pytest.raises(errors.UntrustedPlan, match="bytes of Python"):
        tactix.Runtime(flavour="dispatch").deserialize(saved[0])
    with pytest.raises(errors.UntrustedPlan):
        tactix.Runtime(flavour="dispatch", on_untrusted="references").deserialize(saved[0])
    with pytest.raises(
        errors.UntrustedPlan
    ):  # a runtime that the user names; the plan's own code is another matter
        tactix.Runtime(flavour="lean").deserialize(saved[0])
    engine = tactix.Runtime(flavour="lean", on_untrusted="references").deserialize(saved[0])
    assert {s.artifact.launcher for s in engine.plan.steps} == {"tactix.numpy@1"}
    for got, want in zip(
        engine.create_execution_context().run(saved[1]).values(), saved[2], strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert results(tactix.Runtime(flavour="dispatch", on_untrusted="allow"), saved) == expected(
        saved
    )


def test_the_host_trusts_one_plan_alone(saved: Any) -> None:
    """What changes between the host's look and the other runtime's is not what the host trusts."""
    package = lean_runtime.admit(
        lean_runtime.unpack(wheel.wheel()), TempfileControlFlag.ALLOW_IN_MEMORY_FILES, None
    )
    digest = envelope.read(memoryview(saved[0].read_bytes())).seal.digest
    silent = {"log": lambda severity, text: None}
    assert package.open_plan(saved[0], {**silent, "vouched": digest, "strict": True})
    for other in (b"", digest[::-1]):
        with pytest.raises(errors.UntrustedPlan):
            package.open_plan(saved[0], {**silent, "vouched": other, "references": False})


def test_a_changed_runtime_is_no_runtime(saved: Any) -> None:
    data = bytearray(saved[0].read_bytes())
    at = bytes(data).index(b"PK\x03\x04")
    data[at + 2000] ^= 1
    with pytest.raises(errors.PlanFormatError, match="sha256"):
        tactix.Runtime(flavour="dispatch", on_untrusted="allow").deserialize(bytes(data))


def _lost(header: dict[str, Any]) -> None:
    del header["blobs"][envelope.LEAN]


def _outside(header: dict[str, Any]) -> None:
    header["blobs"][envelope.LEAN][0] = 1 << 40


def _negative(header: dict[str, Any]) -> None:
    header["blobs"][envelope.LEAN][1] = -1


def _odd(header: dict[str, Any]) -> None:
    header["blobs"][envelope.LEAN] = "x"


def _no_meta(header: dict[str, Any]) -> None:
    header["meta"] = 3


def _growing(header: dict[str, Any]) -> None:
    header["meta"]["x"] = [[]] * 200_000


def _deep(header: dict[str, Any]) -> None:
    for _ in range(300):
        header["meta"] = {"x": header["meta"]}


@pytest.mark.parametrize("change", [_lost, _outside, _negative, _odd, _no_meta, _growing, _deep])
def test_hostile_envelopes(change: Any, saved: Any) -> None:
    with pytest.raises(errors.PlanFormatError):
        envelope.read(memoryview(rewritten(saved[0], change)))


@pytest.mark.parametrize(
    "data", [b"", b"\x89tactix\n", b"\x89tactix\n" + bytes(56), bytes(200), b"x" * 64]
)
def test_what_is_no_plan(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.plan").write_bytes(data)
    for flavour in ("dispatch", "lean"):
        for source, words in ((data, None), (tmp_path / "no.plan", r"no\.plan: ")):
            with pytest.raises(errors.PlanFormatError, match=words):
                tactix.Runtime(flavour=flavour).deserialize(source)


@pytest.mark.parametrize("flavour", ["default", "dispatch", "lean"])
def test_what_is_no_file(flavour: str, tmp_path: Path) -> None:
    with pytest.raises(errors.PlanFormatError, match=re.escape(os.devnull)):
        tactix.Runtime(flavour=flavour).deserialize(os.devnull)
    with pytest.raises(errors.PlanFormatError, match="that is a folder"):
        tactix.Runtime(flavour=flavour).deserialize(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_wheel(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.whl").write_bytes(content)
    with pytest.raises((errors.PlanFormatError, errors.ConfigError)):
        tactix.Runtime().load_runtime(tmp_path / "no.whl").deserialize(b"")
    with pytest.raises((errors.PlanFormatError, errors.ConfigError), match=r"no\.whl: "):
        lean_runtime.files_at(tmp_path / "no.whl")


@pytest.mark.parametrize("flavour", ["lean", "dispatch"])
def test_a_plan_in_memory_is_not_handed_over(flavour: str, saved: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="in memory"):
        tactix.Runtime(flavour=flavour).load(container.load(saved[0]))


def _older(header: dict[str, Any]) -> None:
    header["meta"]["tactix"] = "77.0.0"


@pytest.fixture
def bare(built: Callable[..., Any]) -> Any:
    """A plan without the runtime that it may need."""
    return built("mlp", COMPATIBLE, BuilderFlag.EXCLUDE_LEAN_RUNTIME)


def test_another_format_is_told_with_its_cure(bare: Any) -> None:
    data = rewritten(bare[0], lambda header: None, version=container.VERSION + 1)
    with pytest.raises(
        errors.PlanFormatError, match=f"plan format {container.VERSION + 1}.*VERSION_COMPATIBLE"
    ):
        tactix.Runtime().deserialize(data)


def test_another_major_version_is_told_with_its_cure(bare: Any) -> None:
    data = rewritten(bare[0], _older)
    runtime = tactix.Runtime(on_untrusted="allow")
    with pytest.raises(errors.PlanCompatibilityError, match=r"77\.0\.0.*VERSION_COMPATIBLE") as e:
        runtime.deserialize(data)
    assert runtime.check(data) == [f"{e.value.reasons[0]}. {e.value.do}"]


def _become_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tactix, "__version__", "77.0.0")


def _become_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    later = container.VERSION + 1
    for module in (container, dispatch):
        monkeypatch.setattr(module, "VERSION", later)


@pytest.mark.parametrize("become", [_become_another_version, _become_another_format])
def test_a_plan_of_another_version_opens_by_itself(
    become: Callable[[pytest.MonkeyPatch], None], saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the runtime that it brings, from a file and from bytes."""
    wheel.wheel()  # of the version that this still is
    become(monkeypatch)
    for source in (saved[0], saved[0].read_bytes()):
        assert tactix.Runtime().check(source) == []
        engine = tactix.Runtime().deserialize(source)
        assert type(engine).__module__.startswith("_tactix_lean_")
        found = engine.create_execution_context().run(saved[1])
        assert [y.tobytes() for y in found.values()] == expected(saved)


@pytest.mark.parametrize("policy", ["refuse", "references"])
@pytest.mark.parametrize("version", [container.VERSION, container.VERSION + 1])
def test_a_plan_of_another_version_is_trusted_as_the_flavour_dispatch_does(
    version: int, policy: str, saved: Any
) -> None:
    """Before anything of it runs: its runtime is Python, which references cannot stand for."""
    data = rewritten(saved[0], _older, version=version)
    refused = []
    for flavour in ("default", "dispatch"):
        with pytest.raises(errors.UntrustedPlan, match="its lean runtime") as e:
            tactix.Runtime(flavour=flavour, on_untrusted=policy).deserialize(data)
        refused.append(str(e.value))
    assert refused[0] == refused[1]
    assert tactix.Runtime(on_untrusted=policy).check(data) == refused[:1]
    assert tactix.Runtime(on_untrusted="allow").check(data) == []


def test_a_damaged_plan_of_this_version_is_not_handed_over(saved: Any) -> None:
    data = rewritten(saved[0], lambda header: header.pop("steps"))
    with pytest.raises(errors.PlanFormatError, match="steps"):
        tactix.Runtime(on_untrusted="allow").deserialize(data)


def test_check_gives_all_reasons(
    saved: Any, bare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(header: dict[str, Any]) -> None:
        header["meta"]["tactix"] = "77.0.0"
        header["steps"][0]["artifact"]["launcher"] = "acme.none@1"
        header["steps"][0]["artifact"]["requires"] = ["cold_fusion"]

    monkeypatch.setenv("TACTIX_HOME", str(tmp_path))
    assert tactix.Runtime(on_untrusted="allow").check(saved[0]) == []
    assert tactix.Runtime().check(container.load(saved[0]))
    assert tactix.Runtime(on_untrusted="references").check(saved[0]) == []
    reasons = tactix.Runtime().check(rewritten(bare[0], broken))
    for part in ("not trusted", "cold_fusion", "77.0.0", "acme.none@1"):
        assert any(part in r for r in reasons), part
    assert len(reasons) == 4
    (reason,) = tactix.Runtime().check(b"nothing")
    assert "plan" in reason


def test_check(saved: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(saved[0])]) == 0
    out = capsys.readouterr().out
    assert "can run here" in out
    assert f"It holds the lean runtime of tactix {tactix.__version__}." in out
    newer = tmp_path / "newer.plan"
    newer.write_bytes(rewritten(saved[0], lambda header: header["meta"].update(tactix="0.9.0")))
    assert main(["check", str(newer), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["trust"]["outcome"] == "refused"
    assert main(["check", str(newer), "--json", "--untrusted", "allow"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["reasons"] == []
    assert any("built by tactix 0.9.0" in w for w in facts["warnings"])
    assert main(["check", str(newer), "--untrusted", "allow"]) == 0
    assert "- warning: plan" in capsys.readouterr().out
    other = tmp_path / "other.plan"
    other.write_bytes(rewritten(saved[0], lambda header: None, version=9))
    assert main(["check", str(other), "--json"]) == 5
    facts = json.loads(capsys.readouterr().out)
    assert facts["format"] == 9
    assert facts["lean_runtime"] is facts["runs_on_lean_runtime"] is True
    assert facts["trust"]["outcome"] == "refused"
    assert len(facts["reasons"]) == 1
    assert main(["check", str(other), "--untrusted", "allow"]) == 0
    assert "which is what runs it here" in capsys.readouterr().out
    other.write_bytes(b"\x89tactix\n")
    assert main(["check", str(other)]) == 5
    assert "cannot run here" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--flavour", "dispatch"], ["--flavour", "lean"]])
def test_run_with_a_flavour(
    options: list[str], saved: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(saved[0]), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["run", str(saved[0]), "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_the_tools_understand_what_a_lean_runtime_says() -> None:
    """What it says of its inputs is of its own classes: here of none that they know."""
    n = dims.sym("n")
    text = Element(DType.STRING, (2, None, n))
    inputs = (TensorIO("x", 0, DType.FP32, (3, n)), TensorIO("s", 1, DType.SEQUENCE, (), text),
              TensorIO("o", 2, DType.OPTIONAL, (), Element(DType.INT64, (n,))))  # fmt: skip
    ours = Plan("p", inputs, (), (Profile("", {"n": (1, 4, None)}),), (), ())
    theirs = SimpleNamespace(name="p", inputs=inputs, profiles=ours.profiles)
    options = {"inputs": None, "shapes": (), "seed": 1, "int_below": 5}
    want, got = arrays.feed(ours, options), arrays.feed(theirs, options)  # type: ignore[arg-type]
    assert want["x"].shape == got["x"].shape == (3, 4)
    assert repr(want) == repr(got)


def test_threads_share_one_lean_runtime(saved: Any) -> None:
    found: list[Any] = []

    def load() -> None:
        found.append(type(tactix.Runtime(flavour="dispatch").deserialize(saved[0])))

    workers = [threading.Thread(target=load) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(found) == 4
    assert len(set(found)) == 1
