"""Shadow mode: which requests are looked at, what that costs the served path, what is told."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.base.errors import (
    AllocationError,
    InvalidArgument,
    PluginError,
    ShapeError,
)
from tactix.base.logger import Severity
from tactix.contracts.shadow import DriftReport, OutputDrift, ShadowOptions, StepDrift
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix_inspect.agreement import Agreement
from tactix_inspect.shadowing.facts import CheckedRequest, LookedAt
from tactix_inspect.shadowing.messages import read, receive, send, write
from tactix_inspect.shadowing.process import ReferenceServer, Steps
from tactix_inspect.shadowing.references import ReferenceProcess, Started
from tactix_inspect.shadowing.ring import SampleRing
from tactix_inspect.shadowing.sampling import sample_ends
from tactix_inspect.shadowing.served import ShadowedEngine, shadow

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
PATIENCE = 60.0
ALL: Mapping[str, Any] = {"load": 1.0, "pause": 0.0, "queue": 1000}
"""So that every sample is checked."""


class Fake:
    """References that say what they are told, once ``gate`` is open. ``wrong``: whether outputs
    depart. They are served by a thread in place of a process.
    """

    def __init__(self, wrong: bool = False, steps: tuple[StepDrift, ...] = ()) -> None:
        self.wrong, self.steps = wrong, steps
        self.gate, self.closed = threading.Event(), False
        self.taken: list[bytes] = []
        self.seen: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
        self.failure: Exception | None = None
        self.gate.set()

    def plan(self, content: bytes, tolerance: float) -> None:
        self.taken.append(content)

    def check(self, inputs: Mapping[str, Any], got: Mapping[str, Any]) -> CheckedRequest:
        self.gate.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        self.seen.append(copy.deepcopy((inputs, got)))
        row = Agreement("logits", "references", 0.5, 0.25, 0.9, 3 * self.wrong)
        return CheckedRequest((row,), 0.125)

    def look(self, inputs: Mapping[str, Any], following: Steps) -> LookedAt:
        while following() is not None:
            pass
        return LookedAt(self.steps, 0.25)

    def start(self, samples: SampleRing, heard: int) -> Started:
        ours, theirs = socket.socketpair()
        pipe = os.fdopen(os.dup(heard), "rb", 0)
        there, here = (s.makefile("rwb", 0) for s in (theirs, ours))
        served = ReferenceServer(self, samples, pipe, there, there)

        def serve() -> None:
            with theirs, pipe:
                served.serve()
                theirs.shutdown(socket.SHUT_RDWR)

        def end() -> None:
            self.closed = True
            self.gate.set()
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=serve, daemon=True).start()
        return Started(here, here, 0, lambda: None, end)


def built(log: KeptLog, session: Session, **options: Any) -> Engine:
    """Without compiling, which may not be possible here."""
    return tactix.build(
        DIGITS,
        logger=log,
        session=session,
        builder_optimization_level=0,
        tactic_sources={"numpy", "view"},
        **options,
    )


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


@pytest.fixture(scope="module")
def log() -> KeptLog:
    return KeptLog()


@pytest.fixture(scope="module")
def engine(log: KeptLog, session: Session) -> Engine:
    return built(log, session)


Shadowed = Callable[..., ShadowedEngine]


@pytest.fixture
def shadowed(engine: Engine, session: Session) -> Iterator[Shadowed]:
    """Shadows the engine, until the test is over."""
    made: list[ShadowedEngine] = []

    def begin(references: Fake, rate: float = 1.0, **options: Any) -> ShadowedEngine:
        chosen = ShadowOptions(rate, **{**ALL, **options})
        process = ReferenceProcess(references.start)
        made.append(shadow(engine, session, chosen, process))
        return made[-1]

    yield begin
    for s in made:
        s.close()


# -- which ----------------------------------------------------------------------------------------


def gaps(rate: float, seed: int, count: int = 2000) -> list[int]:
    ends = list(itertools.islice(sample_ends(rate, seed), count))
    return [b - a for a, b in itertools.pairwise((0, *ends))]


def test_gaps_keep_the_rate_and_are_those_of_their_seed() -> None:
    assert gaps(0.01, 3) == gaps(0.01, 3)
    assert gaps(0.01, 3) != gaps(0.01, 4)
    assert 98 < sum(gaps(0.01, 3)) / 2000 < 102
    assert {50, 150} >= {min(gaps(0.01, 3)), max(gaps(0.01, 3))}
    assert set(gaps(1.0, 0)) == {1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0.0}, "rate is 0.0. Give a share"),
        ({"rate": 1.5}, "rate is 1.5"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"load": 0.0}, "load is 0.0"),
        ({"pause": -1.0}, "a pause of -1.0"),
        ({"rate": "x"}, "rate is 'x'"),
        ({"pause": None}, "a pause of None"),
        ({"seed": 0.5}, "seed is 0.5. Give an integer"),
        ({"on_drift": 3}, "on_drift is 3. Give a function"),
        ({"queue": 0}, "no queue of 0"),
        ({"queue": 10**6}, "no queue of 1000000"),
        ({"looks": -1}, "no -1 looks"),
        ({"queue_bytes": 0}, "no room"),
        ({"queue_bytes": 1 << 20, "queue": 4000}, "each of 4000 requests has a share of 1048576"),
    ],
)
def test_options_make_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        ShadowOptions(**options)


def test_the_same_requests_are_taken_for_the_same_seed(shadowed: Shadowed) -> None:
    taken = []
    for _ in range(2):
        fake = Fake()
        s = shadowed(fake, rate=0.1, seed=5)
        for k in range(60):
            s(X * k)
        assert s.drain(PATIENCE)
        taken.append([float(inputs["image"].max()) for inputs, _ in fake.seen])
        assert s.stats().requests == 60
        assert s.stats().sampled == len(fake.seen) == s.stats().checked
    assert taken[0] == taken[1]
    assert 3 <= len(taken[0]) <= 12


# -- the served path ------------------------------------------------------------------------------


def test_it_answers_as_the_engine_does(shadowed: Shadowed, engine: Engine) -> None:
    s = shadowed(Fake())
    want = engine(X)
    for got in (s(X), s(image=X), s({"image": X}), s(X.tolist())):
        assert np.array_equal(got, want)
    assert s.num_io_tensors == engine.num_io_tensors
    assert s.plan is engine.plan
    assert repr(s) == f"<shadowed {engine!r}>"
    with pytest.raises(ShapeError):
        s(X[:, :, :3])
    with pytest.raises(AttributeError):
        _ = s.nothing_of_the_kind
    assert s.drain(PATIENCE)
    assert s.stats().checked == 4, "what fails is no sample"


def test_an_engine_that_is_not_shadowed_knows_nothing_of_it(engine: Engine) -> None:
    assert type(engine).__call__ is Engine.__call__
    assert not [name for name in vars(engine) if "shadow" in name]


def test_samples_are_copies(shadowed: Shadowed, engine: Engine) -> None:
    fake, x = Fake(), X.copy()
    fake.gate.clear()
    s = shadowed(fake)
    want = engine(x).copy()
    answer = s(x)
    x[...] = 9
    answer[...] = 9
    fake.gate.set()
    assert s.drain(PATIENCE)
    ((inputs, outputs),) = fake.seen
    assert np.array_equal(inputs["image"], X)
    assert np.array_equal(outputs["logits"], want)


def test_what_has_no_room_is_dropped_and_counted(shadowed: Shadowed) -> None:
    fake = Fake()
    fake.gate.clear()
    s = shadowed(fake, queue=3)
    for _ in range(20):
        s(X)
    stats = s.stats()
    assert (stats.sampled, stats.dropped) == (20, 17)
    fake.gate.set()
    assert s.drain(PATIENCE)
    for _ in range(2):  # in places that have been taken before
        s(X)
    assert s.drain(PATIENCE)
    assert (s.stats().checked, s.stats().dropped) == (5, 17)


def test_a_request_that_is_too_large_is_dropped(shadowed: Shadowed) -> None:
    s = shadowed(Fake(), queue=2, queue_bytes=3 * 1024)
    s(X)
    s(np.tile(X, (8, 1, 1, 1)))
    assert s.drain(PATIENCE)
    assert (s.stats().checked, s.stats().dropped) == (1, 1)


def test_memory_that_is_not_there_is_a_typed_error(engine: Engine) -> None:
    with pytest.raises(AllocationError, match="no memory for requests of shadow mode"):
        engine.shadow(queue_bytes=1 << 80)


def test_no_thread_wakes_while_answers_are_right(shadowed: Shadowed) -> None:
    """The interpreter's lock stays with the served path: nothing is said until something departs."""
    fake = Fake()
    s = shadowed(fake)
    s(X)
    assert s.drain(PATIENCE)
    said: list[object] = []
    process = s._worker._references
    told, process.told = process.told, lambda: said.append(0) or told()  # type: ignore
    for _ in range(20):
        s(X)
    assert s.drain(PATIENCE)
    assert s.stats().checked == 21
    assert not said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_serves_on_and_looks_at_nothing(shadowed: Shadowed, engine: Engine) -> None:
    fake = Fake()
    s = shadowed(fake)
    s(X)
    assert s.drain(PATIENCE)
    want = engine(X)
    with s._calls._lock, s._worker._lock:  # as if another thread were there
        child = os.fork()
        if child == 0:
            right = np.array_equal(s(X), want) and s.stats().state == "closed"
            s.close()
            os._exit(0 if right and "forked" in s.stats().error else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    s(X)
    assert s.drain(PATIENCE)
    assert (s.stats().state, s.stats().checked, s.stats().requests) == ("running", 2, 2)


@pytest.mark.parametrize("bounds", [{"load": 0.001}, {"pause": 60.0}])
def test_references_rest_between_checks(shadowed: Shadowed, bounds: dict[str, Any]) -> None:
    """Of 0.125 s that one takes, or of a pause, the next waits for the end."""
    fake = Fake()
    s = shadowed(fake, **bounds)
    s(X)
    s(X)
    assert not s.drain(0.2)
    assert s.stats().checked == 1
    s.close()
    assert s.stats().state == "closed"


def test_several_threads_share_one(shadowed: Shadowed) -> None:
    s = shadowed(Fake(), rate=0.5)
    threads = [threading.Thread(target=lambda: [s(X) for _ in range(10)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert s.drain(PATIENCE)
    assert 8 <= s.stats().checked <= 30
    assert s.stats().requests <= 40


# -- what is told ---------------------------------------------------------------------------------


def test_a_departure_is_told_with_the_step(shadowed: Shadowed, log: KeptLog) -> None:
    got: list[DriftReport] = []
    step = StepDrift("conv2d + relu", "acme.conv@1", 0.5, 7)
    s = shadowed(Fake(wrong=True, steps=(step,)), on_drift=got.append)
    before = len(log.named("drift"))
    for _ in range(5):
        s(X)
    assert s.drain(PATIENCE)
    assert [r.request for r in got] == [1, 2, 3, 4, 5]
    first = got[0]
    assert (first.steps, first.note, first.stats.departed) == ((step,), "", 1)
    assert first.outputs == (OutputDrift("logits", 0.25, 3),)
    assert "output 'logits' by 0.25 of its largest magnitude" in first.text
    assert first.text.endswith("steps: conv2d + relu")
    stats = s.stats()
    assert (stats.checked, stats.departed, stats.by_step) == (5, 5, {"conv2d + relu": 5})
    assert stats.seconds == 5 * (0.125 + 0.25)
    told = log.named("drift")[before:]
    assert [e.fields["departed"] for e in told] == [1, 2, 4], "not a line for each"
    assert "Take the engine out of service" in told[0].text
    assert told[0].text in log.of(Severity.WARNING)


def test_where_no_step_departs_by_itself_that_is_said(shadowed: Shadowed) -> None:
    got: list[DriftReport] = []
    s = shadowed(Fake(wrong=True), on_drift=got.append)
    s(X)
    assert s.drain(PATIENCE)
    assert "roundings add up" in got[0].note


def test_an_answer_that_does_not_come_again_is_said(
    shadowed: Shadowed, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[DriftReport] = []
    s = shadowed(Fake(wrong=True), on_drift=got.append)
    monkeypatch.setattr(s._calls._own, "infer", lambda given: [engine(*given) + 1], raising=False)
    s(X)
    assert s.drain(PATIENCE)
    assert "run again the engine gives other outputs" in got[0].note


def test_only_so_many_are_looked_at_step_by_step(shadowed: Shadowed) -> None:
    got: list[DriftReport] = []
    s = shadowed(Fake(wrong=True), on_drift=got.append, looks=1)
    for _ in range(6):
        s(X)
    assert s.drain(PATIENCE)
    looked = [not r.note.startswith("not looked at") for r in got]
    assert looked == [True, True, False, True, False, False], "the 1st, 2nd, 4th, 8th ..."


def test_a_callback_that_raises_is_logged(shadowed: Shadowed, log: KeptLog) -> None:
    def broken(report: DriftReport) -> None:
        raise ValueError("no pager")

    s = shadowed(Fake(wrong=True), on_drift=broken)
    s(X)
    s(X)
    assert s.drain(PATIENCE)
    assert s.stats().departed == 2
    assert any("on_drift raised ValueError('no pager')" in text for text in log.warnings)


def test_a_callback_may_close(shadowed: Shadowed) -> None:
    s = shadowed(Fake(wrong=True), on_drift=lambda report: s.close())
    s(X)
    assert s.drain(PATIENCE)
    assert s.stats().state == "closed"


def test_references_that_fail_end_the_looking_and_not_the_serving(
    shadowed: Shadowed, log: KeptLog
) -> None:
    fake = Fake()
    fake.failure = MemoryError("no room")
    s = shadowed(fake)
    s(X)
    assert s.drain(PATIENCE)
    assert s.stats().state == "failed"
    assert s.stats().error == "the references failed: MemoryError: no room"
    assert any("no request of digits is looked at any more" in text for text in log.warnings)
    s(X)
    assert s.stats().dropped == 1


def test_a_shadow_that_nobody_has_any_more_ends(engine: Engine, session: Session) -> None:
    fake = Fake()
    s = shadow(engine, session, ShadowOptions(1.0), ReferenceProcess(fake.start))
    s(X)
    assert s.drain(PATIENCE)
    del s
    gc.collect()
    assert fake.closed


# -- what can be shadowed -------------------------------------------------------------------------


def test_what_is_no_engine_is_refused(session: Session) -> None:
    with pytest.raises(InvalidArgument, match="a str cannot be shadowed"):
        shadow("digits.plan", session, ShadowOptions())  # type: ignore[arg-type]


def test_refitting_gives_references_the_new_weights(log: KeptLog, session: Session) -> None:
    from tactix_refit.refitter import Refitter

    engine = built(log, session, flags={tactix.BuilderFlag.REFIT})
    fake = Fake()
    process = ReferenceProcess(fake.start)
    with shadow(engine, session, ShadowOptions(1.0, **ALL), process) as s:
        s(X)
        assert s.drain(PATIENCE)
        refitter = Refitter(engine)
        name = min(
            refitter.get_all_weights(), key=lambda n: refitter.get_weights_prototype(n).shape
        )
        for n in [name, *refitter.get_missing_weights()]:
            spec = refitter.get_weights_prototype(n)
            refitter.set_named_weights(n, np.ones(spec.at({}), spec.dtype.numpy))
        for n in refitter.get_missing_weights():
            spec = refitter.get_weights_prototype(n)
            refitter.set_named_weights(n, np.ones(spec.at({}), spec.dtype.numpy))
        refitter.refit()
        s(X)
        s(X)
        assert s.drain(PATIENCE)
        assert len(fake.taken) == 2
        assert s.stats().sampled == 3
        assert s.stats().checked == 2, "one may have run on the weights of before"


def test_an_engine_shadows_itself(engine: Engine) -> None:
    with engine.shadow(0.5, seed=3, load=0.5) as s:
        assert np.array_equal(s(X), engine(X))
    assert s.stats().requests == 1
    with pytest.raises(InvalidArgument, match="rate is 7"):
        engine.shadow(7)


def test_a_runtime_loads_engines_that_are_shadowed(engine: Engine, session: Session) -> None:
    s = tactix.Runtime(session=session, flavour="shadow").load(engine.plan)
    assert isinstance(s, ShadowedEngine)
    assert np.array_equal(s(X), engine(X))
    assert s.error_log is not None, "errors go where the runtime's go"
    s.close()


def test_without_the_pack_that_is_said(log: KeptLog, tmp_path: Path, engine: Engine) -> None:
    engine.save(tmp_path / "digits.plan")
    alone = Session(group="runtime", disable=["inspect"])
    loaded = tactix.Runtime(session=alone, on_untrusted="allow").deserialize(
        tmp_path / "digits.plan"
    )
    with pytest.raises(PluginError, match="no flavour in use shadows engines"):
        loaded.shadow()


# -- the process ----------------------------------------------------------------------------------


SENT = {"a": np.arange(12.0).reshape(3, 4).T, "b": np.zeros((0, 3), np.int8), "c": ["text"]}


def is_what_was_sent(got: Any) -> bool:
    alike = np.array_equal(got["a"], SENT["a"]) and got["a"].dtype == np.float64
    return alike and got["b"].shape == (0, 3) and got["c"] == ["text"]


def test_messages_keep_arrays(tmp_path: Path) -> None:
    with open(tmp_path / "told", "w+b", buffering=0) as stream:
        send(stream, ("check", SENT))
        send(stream, None)
        stream.seek(0)
        name, got = receive(stream)  # type: ignore[misc]
        assert name == "check"
        assert is_what_was_sent(got)
        assert receive(stream) is None
        with pytest.raises(EOFError):
            receive(stream)


def test_messages_in_memory_are_used_where_they_lie() -> None:
    memory = np.zeros(1024, np.uint8)
    assert write(memoryview(memory), SENT)
    got: Any = read(memoryview(memory))
    assert is_what_was_sent(got)
    assert np.shares_memory(got["a"], memory)
    assert not write(memoryview(memory)[:256], SENT), "no room"


def spoil(engine: Engine) -> str:
    """Other weights in the memory of a live engine; the name of the step that reads them."""
    step = next(s for s in engine.plan.steps if "conv2d_2" in s.name)
    weight = next(o.buffer for o in step.inputs if engine.plan.buffers[o.buffer].blob)
    content = np.frombuffer(engine.plan.blobs[engine.plan.buffers[weight].blob], np.uint8)
    ctypes.memset(content.ctypes.data + content.nbytes // 2, 0, content.nbytes // 4)
    return step.name


def test_weights_that_change_in_memory_are_found(log: KeptLog, session: Session) -> None:
    engine, got = built(log, session), []
    references = ReferenceProcess()
    with shadow(engine, session, ShadowOptions(0.5, got.append, **ALL), references) as s:
        for _ in range(6):
            s(X)
        assert s.drain(PATIENCE)
        before = s.stats()
        assert (before.state, before.departed) == ("running", 0)
        assert before.checked >= 2
        assert before.seconds > 0
        name = spoil(engine)
        for _ in range(6):
            s(X)
        assert s.drain(PATIENCE)
        after = s.stats()
        assert after.departed == after.checked - before.checked > 0
        assert after.by_step == {name: after.departed}
    assert [[d.step for d in r.steps] for r in got] == [[name]] * after.departed
    assert got[0].steps[0].outside > 0


def test_a_process_that_dies_is_told(log: KeptLog, session: Session, engine: Engine) -> None:
    references = ReferenceProcess()
    with shadow(engine, session, ShadowOptions(1.0, **ALL), references) as s:
        s(X)
        assert s.drain(PATIENCE)
        assert s.stats().checked == 1
        assert references.pid not in (0, os.getpid())
        os.kill(references.pid, 9)
        s(X)
        assert s.drain(PATIENCE)
        assert s.stats().state == "failed"
        assert "the process that runs references is gone" in s.stats().error
        assert np.array_equal(s(X), engine(X))


def test_without_a_process_that_is_told(
    monkeypatch: pytest.MonkeyPatch, session: Session, engine: Engine
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with engine.shadow(1.0) as s:
        s(X)
        assert s.drain(PATIENCE)
        assert s.stats().state == "failed"
        assert "no process to run references in" in s.stats().error
