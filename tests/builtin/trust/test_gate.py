"""Which plans may run their machine code, and that nothing of a signed one can be changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from kept_log import KeptLog
from onnx import TensorProto, helper

import tactix
from tactix.base.error_recorder import ErrorRecorder
from tactix.base.errors import ConfigError, PlanFormatError, TactixError, UntrustedPlan
from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.trust import OnUntrusted
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.admission import code_steps
from tactix_tools import cli
from tactix_trust import trust_digest
from tactix_trust.store import LocalStore

Become = Callable[[str], Path]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WANT = X @ np.arange(15, dtype=np.float32).reshape(3, 5) + 1


def _machine_code(plan: Plan) -> bytes:
    (code,) = {s.artifact.code.blob for s in plan.steps if isinstance(s.artifact.code, Binary)}
    return code


def test_what_was_built_here_runs_here(path: Path) -> None:
    np.testing.assert_array_equal(tactix.load(path)(X), WANT)
    np.testing.assert_array_equal(tactix.load(path)(X), WANT)
    np.testing.assert_array_equal(tactix.load(path.read_bytes())(X), WANT)


def test_a_plan_in_memory_needs_nobody(plan: Plan, home: Become) -> None:
    np.testing.assert_array_equal(tactix.Runtime().load(plan)(X), WANT)
    assert not home("maker").exists()


def _named(path: Path, plan: Plan) -> tuple[str, ...]:
    """What a refusal, and the warning in its place, must hold."""
    code, digest = _machine_code(plan), container.load(path).seal.digest.hex()
    return (
        "small",
        "no key here knows",
        f"{len(plan.steps)} steps",
        plan.steps[0].name,
        "tactix.cpu.elf@1",
        f"{len(code)} bytes",
        hashlib.sha256(code).hexdigest(),
        "tactix keys trust",
        f"tactix trust {digest}",
        "on_untrusted='allow'",
        "--untrusted allow",
        "TACTIX_UNTRUSTED=allow",
        "on_untrusted='references'",
    )


@pytest.mark.parametrize("refusing", [{}, {"on_untrusted": "refuse"}])
def test_a_foreign_plan_is_refused_with_what_would_run_and_the_cures(
    path: Path, plan: Plan, home: Become, refusing: dict[str, str]
) -> None:
    home("other")
    recorder = ErrorRecorder()
    with pytest.raises(UntrustedPlan) as caught:
        tactix.load(path, error_recorder=recorder, **refusing)
    assert [part for part in _named(path, plan) if part not in str(caught.value)] == []
    assert recorder.num_errors() == 1


def test_a_foreign_plan_runs_on_references_with_one_warning(
    path: Path, plan: Plan, home: Become
) -> None:
    home("other")
    logger = KeptLog()
    engine = tactix.load(path, logger=logger, on_untrusted="references")
    np.testing.assert_array_equal(engine(X), WANT)
    assert engine.plan.meta["on_references"] is True
    (line,) = logger.warnings
    assert [part for part in _named(path, plan) if part not in line] == []
    assert [(s.artifact.launcher, s.artifact.code) for s in engine.plan.steps] == [
        ("tactix.numpy@1", None)
    ]


def test_an_unsigned_plan_is_foreign_even_to_its_maker(plan: Plan, tmp_path: Path) -> None:
    tactix.Runtime(sign=False).load(plan).save(tmp_path / "bare.plan")
    with pytest.raises(UntrustedPlan, match="it is not signed"):
        tactix.load(tmp_path / "bare.plan")


def test_a_decoded_plan_stays_foreign(path: Path, home: Become) -> None:
    """Neither loading it by hand nor changing it makes it one of this process."""
    home("other")
    loaded = container.load(path)
    for changed in (loaded, replace(loaded, name="renamed")):
        with pytest.raises(UntrustedPlan):
            tactix.Runtime().load(changed)


def test_allowed_code_runs(path: Path, home: Become, monkeypatch: pytest.MonkeyPatch) -> None:
    """By argument, by TensorRT's name, and by the environment where no argument says otherwise."""
    home("other")
    np.testing.assert_array_equal(tactix.load(path, on_untrusted="allow")(X), WANT)
    runtime = tactix.Runtime()
    runtime.engine_host_code_allowed = True
    np.testing.assert_array_equal(runtime.deserialize(path)(X), WANT)
    runtime.engine_host_code_allowed = False
    with pytest.raises(UntrustedPlan):
        runtime.deserialize(path)
    monkeypatch.setenv("TACTIX_UNTRUSTED", "allow")
    assert tactix.load(path).plan.seal is not None
    with pytest.raises(UntrustedPlan):
        tactix.load(path, on_untrusted="refuse")


def test_no_other_word_for_what_becomes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"on_untrusted is 'strict'\. Choose one of refuse, references, allow"
    ):
        tactix.Runtime(on_untrusted="strict")
    monkeypatch.setenv("TACTIX_UNTRUSTED", "yes")
    with pytest.raises(ConfigError, match="TACTIX_UNTRUSTED is 'yes'"):
        tactix.Runtime()
    with pytest.raises(ConfigError, match="'no'"):
        tactix.Runtime(on_untrusted="allow").on_untrusted = "no"  # type: ignore[assignment]


def test_machine_code_for_a_gpu_is_code() -> None:
    """Its launcher runs none on the host."""
    launchers: Any = tactix.Session(group="runtime").launchers
    artifact = KernelArtifact("tactix.cuda.cubin@1", code=Binary(b"cubin", "k"))
    step: Any = SimpleNamespace(artifact=artifact, plans=())
    plan: Any = SimpleNamespace(steps=(step,))
    assert not launchers["tactix.cuda.cubin@1"].host_code
    assert code_steps(plan, launchers) == [step]
    step.artifact = replace(artifact, code=None)
    assert code_steps(plan, launchers) == []


def test_what_loading_would_do(path: Path, plan: Plan, home: Become) -> None:
    loaded = container.load(path)
    assert tactix.Runtime().judge(plan).outcome == "runs"
    known = tactix.Runtime().judge(loaded)
    assert (known.code, known.outcome) == (True, "runs")
    assert known.trusted_by.startswith("signed by")
    home("other")
    found = {policy: tactix.Runtime(on_untrusted=policy).judge(loaded) for policy in OnUntrusted}
    assert {policy: v.outcome for policy, v in found.items()} == {
        "refuse": "refused",
        "references": "references",
        "allow": "runs",
    }
    assert {(v.trusted_by, v.code) for v in found.values()} == {("", True)}


def test_running_a_foreign_plan_does_not_launder_it(
    path: Path, home: Become, tmp_path: Path
) -> None:
    """Saved again it has its own signature, and is as foreign as before."""
    home("other")
    tactix.load(path, on_untrusted="allow").save(tmp_path / "copy.plan")
    assert (tmp_path / "copy.plan").read_bytes() == path.read_bytes()
    with pytest.raises(UntrustedPlan):
        tactix.load(tmp_path / "copy.plan")


def test_a_trusted_digest(plan: Plan, path: Path, home: Become, tmp_path: Path) -> None:
    home("other")
    trust_digest(container.load(path).seal.digest.hex().upper(), "from a colleague")
    np.testing.assert_array_equal(tactix.load(path)(X), WANT)
    other = replace(plan, name="other")
    container.save(other, tmp_path / "other.plan")
    with pytest.raises(UntrustedPlan):
        tactix.load(tmp_path / "other.plan")


def test_steps_of_bodies_are_seen() -> None:
    """A plan whose own steps run plugins' code alone, around a body with machine code."""
    launchers: Any = tactix.Session(group="runtime").launchers
    step = SimpleNamespace(
        artifact=SimpleNamespace(launcher="tactix.cpu.elf@1", host_code=False, code=None), plans=()
    )
    body = SimpleNamespace(steps=(step,))
    outer_step = SimpleNamespace(
        artifact=SimpleNamespace(launcher="tactix.control@1", host_code=False, code=None),
        plans=(body,),
    )
    outer: Any = SimpleNamespace(steps=(outer_step,))
    assert code_steps(outer, launchers) == [step]
    step.artifact.launcher = "tactix.numpy@1"
    assert code_steps(outer, launchers) == []
    step.artifact.launcher = "nobody.knows@1"
    assert code_steps(outer, launchers) == [step]
    step.artifact.launcher, step.artifact.host_code = "tactix.numpy@1", True
    assert code_steps(outer, launchers) == [step]


def test_a_plan_without_code_needs_nobody_and_says_so(tmp_path: Path) -> None:
    builder = tactix.Builder()
    network = builder.create_network("plain")
    network.mark_output(
        network.add_layer("tactix.Relu", [network.add_input("x", "f32", (3,))])[0], "y"
    )
    config = tactix.BuilderConfig(tactic_sources={"numpy"}, timing_cache=False, sign=False)
    builder.build(network, config).save(tmp_path / "plain.plan")
    assert container.load(tmp_path / "plain.plan").seal.signature == b""
    x = np.float32([-1, 0, 2])
    logger = KeptLog()
    np.testing.assert_array_equal(
        tactix.load(tmp_path / "plain.plan", logger=logger)(x), np.maximum(x, 0)
    )
    (line,) = logger.warnings
    assert "plan plain is not trusted: it brings no code" in line
    verdict = tactix.Runtime().judge(container.load(tmp_path / "plain.plan"))
    assert (verdict.trusted_by, verdict.code, verdict.outcome) == ("", False, "runs")
    container.save(
        container.load(tmp_path / "plain.plan"), tmp_path / "signed.plan", LocalStore().sign
    )
    tactix.load(tmp_path / "signed.plan", logger=logger)
    assert len(logger.warnings) == 1


# -- tampering -----------------------------------------------------------------------------------


def _small(plan: Plan) -> Plan:
    """The same with few bytes: what has the most, machine code, is cut to its first 200."""
    steps = [
        replace(s, artifact=replace(s.artifact, code=Binary(_machine_code(plan)[:200], "f")))
        for s in plan.steps
    ]
    return replace(plan, steps=tuple(steps), ledger={}, requirements=())


def test_every_changed_byte_of_a_signed_plan_is_refused(plan: Plan) -> None:
    data = bytearray(container.dump(_small(plan), LocalStore().sign))
    store = LocalStore()
    assert store.trusted_by(container.load(data).seal)
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        with pytest.raises((PlanFormatError, UntrustedPlan)):
            _opened(data, store)
        data[at] ^= 1 << at % 8
    assert _opened(data, store).name == "small"


def _opened(data: bytes | bytearray, store: LocalStore) -> Plan:
    """As a runtime does it, up to the point where code would be loaded."""
    plan = container.load(data, admit=store.trusted_by)
    if not store.trusted_by(plan.seal):
        raise UntrustedPlan("not trusted")
    return plan


def test_every_cut_of_a_signed_plan_is_refused(plan: Plan) -> None:
    data = container.dump(_small(plan), LocalStore().sign)
    for length in range(0, len(data), 7):
        with pytest.raises(PlanFormatError):
            container.load(data[:length])
    with pytest.raises(PlanFormatError):
        container.load(data + b"\0")


def _forged(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The plan with another signature section of the same length, whose own sha256 fits."""
    signed, length = (int.from_bytes(data[a:b], "little") for a, b in ((12, 16), (16, 24)))
    at = container.PROLOGUE.size + length
    content = change(data[at + 32 : at + signed])
    assert len(content) == signed - 32
    return data[:at] + hashlib.sha256(content).digest() + content + data[at + signed :]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            lambda s: s[:-4] + (b"00" if s[-4:-2] != b"00" else b"11") + s[-2:],
            UntrustedPlan,
            "does not fit the plan",
        ),
        (lambda s: s.replace(b"hmac-sha256", b"hmac-sha255"), PlanFormatError, "cannot be read"),
        (lambda s: s.replace(b'"value"', b'"volue"'), PlanFormatError, "cannot be read"),
        (lambda s: b"[" * len(s), PlanFormatError, "cannot be read"),
        (lambda s: b"\xff" + s[1:], PlanFormatError, "cannot be read"),
    ],
)
def test_forged_signatures(
    path: Path,
    change: Callable[[bytes], bytes],
    error: type[TactixError],
    words: str,
    tmp_path: Path,
) -> None:
    """They are refused before anything is decoded, allowed or not."""
    made = _forged(path.read_bytes(), change)
    (tmp_path / "forged.plan").write_bytes(made)
    for source, who in ((made, ""), (tmp_path / "forged.plan", r"forged\.plan: .*")):
        with pytest.raises(error, match=who + words):
            tactix.load(source, on_untrusted="allow")


def test_a_signature_is_of_one_header_alone(plan: Plan, path: Path) -> None:
    """Another plan with this one's signature is a forgery, also where host code is allowed."""
    own = container.load(path).seal
    made = container.dump(replace(plan, name="other"), lambda digest: own.signature)
    with pytest.raises(UntrustedPlan, match="does not fit the plan"):
        tactix.load(made, on_untrusted="allow")


def test_nothing_is_decoded_before_the_signature_fits(
    plan: Plan, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = container.load(path).seal
    made = container.dump(replace(plan, name="other"), lambda digest: own.signature)
    monkeypatch.setattr(container, "parse", lambda text: pytest.fail("decoded"))
    with pytest.raises(UntrustedPlan):
        tactix.load(made)


def test_weights_of_signed_plans_are_checked_unless_told_not_to(path: Path) -> None:
    data = bytearray(path.read_bytes())
    weights = next(b for b in container.load(path).buffers if b.kind == "weight" and b.nbytes >= 20)
    at = data.rindex(bytes(container.load(path).blobs[weights.blob]))
    data[at] ^= 1
    with pytest.raises(PlanFormatError, match="sha256"):
        tactix.load(data)
    assert tactix.load(data, verify=False)(X).shape == (2, 5)


# -- files that change while they are looked at --------------------------------------------------


def _in_place(path: Path, old: bytes, new: bytes) -> None:
    """Another writer has the file open, so no new file takes its place."""
    at = path.read_bytes().index(old)
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(new)


def test_header_and_code_of_a_loaded_plan_do_not_change_with_the_file(
    plan: Plan, path: Path
) -> None:
    code = _machine_code(plan)
    loaded = container.load(path)
    _in_place(path, code, bytes(len(code)))
    assert _machine_code(loaded) == code
    assert tactix.Runtime().judge(loaded).trusted_by


def test_what_is_signed_is_what_was_checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes the file after ``tactix sign`` has verified it."""
    weights = np.arange(15, dtype=np.float32).tobytes()
    changing = lambda output: _in_place(path, weights[4:8], b"\xff\xff\xff\x7e") or output  # noqa: E731
    monkeypatch.setattr("tactix_tools.source.output", changing)
    signed = path.with_name("signed.plan")
    assert cli.main(["sign", str(path), "-o", str(signed)]) == 0
    assert weights not in path.read_bytes()
    np.testing.assert_array_equal(tactix.load(signed)(X), WANT)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("flavour", ["default", "dispatch"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, flavour: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        PlanFormatError, match=r"pipe: that is no regular file\. Give the path of a plan's file"
    ):
        tactix.load(tmp_path / "pipe", flavour=flavour)
    for tool in ("run", "check", "inspect", "verify", "sign"):
        assert cli.main([tool, str(tmp_path / "pipe")]) in (2, 5)
    with pytest.raises(PlanFormatError, match="that is a folder"):
        tactix.load(tmp_path, flavour=flavour)


# -- the cache of load_or_build ------------------------------------------------------------------


def test_load_or_build_builds_again_what_is_not_trusted(
    tmp_path: Path, home: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), tmp_path / "m.onnx")

    def run() -> Any:
        options: dict[str, Any] = {"cache": tmp_path / "cache", "level": 0, "timing_cache": False}
        return tactix.load_or_build(tmp_path / "m.onnx", **options)(np.float32([-1, 0, 1]))

    run()
    (plan,) = (tmp_path / "cache").glob("*.plan")
    first, stamp = plan.read_bytes(), plan.stat().st_mtime_ns
    np.testing.assert_array_equal(run(), [0, 0, 1])
    assert plan.stat().st_mtime_ns == stamp
    assert capsys.readouterr().err == ""
    home("other")
    np.testing.assert_array_equal(run(), [0, 0, 1])
    assert plan.stat().st_mtime_ns != stamp
    assert "is built again: the plan is not trusted" in capsys.readouterr().err
    assert container.load(plan).seal.digest == container.load(first).seal.digest
    run()
    assert capsys.readouterr().err == ""


def _relu_or_scale(folder: Path, factor: float, name: str = "m") -> Path:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    w = helper.make_tensor("w", TensorProto.FLOAT, [3], [factor] * 3)
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w])), folder / f"{name}.onnx"
    )
    return folder / f"{name}.onnx"


CACHED: dict[str, Any] = {"level": 0, "timing_cache": False, "tactic_sources": {"numpy"}}


def _cached_plan(model: Path, folder: Path, **more: Any) -> Path:
    tactix.load_or_build(model, cache=folder, **{**CACHED, **more})
    (plan,) = folder.glob("*.plan")
    return plan


@pytest.mark.parametrize("other", ["model", "options"])
def test_load_or_build_takes_no_plan_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    """Though it is signed by the local key, and called as the right one."""
    model = _relu_or_scale(tmp_path, 2.0)
    plan = _cached_plan(model, tmp_path / "cache")
    made = plan.read_bytes()
    strange = _relu_or_scale(tmp_path, 3.0, "other") if other == "model" else model
    plan.write_bytes(_cached_plan(strange, tmp_path / "cache2", threads=3).read_bytes())
    assert (
        tactix.load_or_build(model, cache=tmp_path / "cache", **CACHED)(
            np.ones(3, np.float32)
        ).tolist()
        == [2.0] * 3
    )
    assert "is built again: it was built from something else" in capsys.readouterr().err
    assert plan.read_bytes() == made


def test_load_or_build_takes_no_plan_without_code_that_is_not_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With other weights, and all that the right one says of itself."""
    model = _relu_or_scale(tmp_path, 2.0)
    plan = _cached_plan(model, tmp_path / "cache")
    loaded = container.load(plan, private=True)
    blobs = {
        name: np.full(3, 5.0, np.float32).tobytes() if len(b) == 12 else b
        for name, b in loaded.blobs.items()
    }
    container.save(replace(loaded, blobs=blobs), plan)

    def run(**options: Any) -> Any:
        return tactix.load_or_build(model, cache=tmp_path / "cache", **CACHED, **options)(
            np.ones(3, np.float32)
        )[0]

    assert run(on_untrusted="allow") == 5.0
    assert run(on_untrusted="references") == 2.0
    assert "is built again: the plan is not trusted" in capsys.readouterr().err
    assert run() == 2.0
    assert capsys.readouterr().err == ""


NAME = "conv\x1b[2J\x1b]0;owned\x07\n[tactix] [E] forged\u202e\r[bold]"


def test_names_of_a_plan_are_text_to_terminals_and_logs(
    plan: Plan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everywhere: in logs, errors, and what tools print."""
    steps = tuple(replace(s, name=NAME) for s in plan.steps)
    path = tmp_path / "odd.plan"
    container.save(
        replace(plan, name=NAME, steps=steps, device={**plan.device, "name": NAME}), path
    )
    for policy in ("refuse", "references", "allow"):
        for tool in ("check", "run", "bench"):
            cli.main(
                [
                    tool,
                    str(path),
                    "--untrusted",
                    policy,
                    *(["--seconds", "10ms"] if tool == "bench" else []),
                ]
            )
    for tool in ("inspect", "explain", "verify", "refit"):
        cli.main([tool, str(path)])
    cli.main(["diff", str(path), str(path)])
    out, err = capfd.readouterr()
    assert "conv\\x1b[2J" in out
    assert "conv\\x1b[2J" in err
    for text in (out, err):
        assert not [line for line in text.splitlines() if not line.isprintable()]
        assert not [line for line in text.splitlines() if line.startswith("[tactix] [E]")]
