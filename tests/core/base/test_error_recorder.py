from __future__ import annotations

import io
import threading

import pytest
from kept_log import KeptLog

from tactix.base.error_recorder import ErrorRecorder, Recorded, recording
from tactix.base.errors import ErrorCode, ExecutionError, InvalidArgument, ShapeError
from tactix.base.logger import Logger, Severity, checked_logger


class Thing(Recorded):
    def fail(self, error: BaseException) -> None:
        with recording(self):
            raise error


def recorded(r: ErrorRecorder) -> list[tuple[ErrorCode, str]]:
    return [(r.get_error_code(i), r.get_error_desc(i)) for i in range(r.num_errors())]


def test_errors_are_kept_in_order() -> None:
    r = ErrorRecorder()
    r.report_error(ErrorCode.INVALID_ARGUMENT, "first")
    r.report_error(ErrorCode.FAILED_EXECUTION, "second")
    assert recorded(r) == [
        (ErrorCode.INVALID_ARGUMENT, "first"),
        (ErrorCode.FAILED_EXECUTION, "second"),
    ]
    assert not r.has_overflowed()
    for index in (-1, 2):
        with pytest.raises(InvalidArgument, match=f"no error {index}: 2 are recorded"):
            r.get_error_code(index)
        with pytest.raises(InvalidArgument):
            r.get_error_desc(index)


def test_overflow_keeps_the_first_and_says_so() -> None:
    r = ErrorRecorder(capacity=2)
    for i in range(5):
        r.report_error(ErrorCode.INTERNAL_ERROR, str(i))
        assert r.has_overflowed() == (i >= 2)
    assert [d for _, d in recorded(r)] == ["0", "1"]
    r.clear()
    assert (r.num_errors(), r.has_overflowed()) == (0, False)
    r.report_error(ErrorCode.INTERNAL_ERROR, "again")
    assert [d for _, d in recorded(r)] == ["again"]
    with pytest.raises(InvalidArgument, match="for 0 errors"):
        ErrorRecorder(0)


def test_threads_lose_nothing() -> None:
    r = ErrorRecorder(capacity=900)

    def report(name: str) -> None:
        for i in range(250):
            r.report_error(ErrorCode.FAILED_EXECUTION, f"{name}{i}")

    threads = [threading.Thread(target=report, args=(c,)) for c in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert r.num_errors() == len({d for _, d in recorded(r)}) == 900
    assert r.has_overflowed()


def test_a_recorder_is_inherited_until_there_is_an_own_one() -> None:
    builder, engine, context = Thing(), Thing(), Thing()
    engine.inherit_recorder(builder)
    context.inherit_recorder(engine)
    assert context.error_recorder is None
    first, second = ErrorRecorder(), ErrorRecorder()
    builder.error_recorder = first
    assert engine.error_recorder is context.error_recorder is first
    engine.error_recorder = second
    assert context.error_recorder is second
    assert builder.error_recorder is first
    engine.error_recorder = None
    assert context.error_recorder is first


def test_an_empty_recorder_counts_as_one() -> None:
    class Sized(ErrorRecorder):
        def __len__(self) -> int:
            return self.num_errors()

    parent, child = Thing(), Thing()
    child.inherit_recorder(parent)
    parent.error_recorder, child.error_recorder = ErrorRecorder(), Sized()
    assert isinstance(child.error_recorder, Sized)


def test_an_error_is_reported_once_however_many_levels_it_passes() -> None:
    outer, inner = Thing(), Thing()
    outer.error_recorder = r = ErrorRecorder()
    inner.inherit_recorder(outer)
    error = ShapeError("3 and 4 do not broadcast", who="add1")
    with pytest.raises(ShapeError) as e, recording(outer), recording(outer):
        inner.fail(error)
    assert e.value is error
    assert recorded(r) == [(ErrorCode.INVALID_ARGUMENT, "add1: 3 and 4 do not broadcast")]
    with pytest.raises(ShapeError):
        inner.fail(ShapeError("another"))
    assert r.num_errors() == 2


def test_a_level_without_a_recorder_leaves_it_to_the_next() -> None:
    outer, inner = Thing(), Thing()
    outer.error_recorder = r = ErrorRecorder()
    with pytest.raises(ExecutionError), recording(outer):
        inner.fail(ExecutionError("step 3"))
    assert r.num_errors() == 1


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), ZeroDivisionError()])
def test_errors_of_others_pass_unreported(error: BaseException) -> None:
    thing = Thing()
    thing.error_recorder = r = ErrorRecorder()
    with pytest.raises(type(error)):
        thing.fail(error)
    with recording(thing):
        pass
    assert r.num_errors() == 0


def test_a_recorder_that_fails_hides_nothing() -> None:
    class Broken(ErrorRecorder):
        def report_error(self, code: ErrorCode, desc: str) -> None:
            raise OSError("disk full")

    thing = Thing()
    thing.error_recorder = Broken()
    with pytest.raises(ExecutionError, match="step 3") as e:
        thing.fail(ExecutionError("step 3"))
    assert "disk full" in e.value.__notes__[0]


def test_any_object_with_a_recorder_will_do() -> None:
    class Plain:
        error_recorder = ErrorRecorder()

    with pytest.raises(ShapeError), recording(Plain()):
        raise ShapeError("wrong")
    assert Plain.error_recorder.num_errors() == 1


class Rooted(Thing):
    def __init__(self, logger: Logger) -> None:
        self.logger = logger


def test_without_a_recorder_an_error_is_logged_once() -> None:
    stream = io.StringIO()
    outer, inner = Rooted(Logger(stream=stream)), Thing()
    inner.inherit_recorder(outer)
    with pytest.raises(ShapeError), recording(outer):
        inner.fail(ShapeError("3 and 4 do not broadcast", who="add1"))
    assert stream.getvalue() == "[tactix] [E] add1: 3 and 4 do not broadcast\n"
    outer.error_recorder = ErrorRecorder()
    with pytest.raises(ShapeError):
        inner.fail(ShapeError("another"))
    assert stream.getvalue().count("[E]") == 1


def test_the_facts_of_a_logged_error() -> None:
    log = KeptLog()
    with pytest.raises(ShapeError):
        Rooted(log).fail(ShapeError("odd", who="add1", do="Give even ones"))
    (event,) = log.named("error")
    assert log.of(Severity.ERROR) == ["add1: odd. Give even ones"]
    assert event.fields == {
        "error": "ShapeError",
        "code": "INVALID_ARGUMENT",
        "what": "odd",
        "who": "add1",
        "do": "Give even ones",
    }


def test_a_logger_that_nobody_gave_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ShapeError):
        Rooted(checked_logger(None)).fail(ShapeError("odd"))
    assert not capsys.readouterr().err


def test_a_logger_that_fails_hides_nothing() -> None:
    class Broken(Logger):
        def log(self, severity: Severity, msg: str) -> None:
            raise OSError("disk full")

    with pytest.raises(ShapeError, match="odd") as e:
        Rooted(Broken()).fail(ShapeError("odd"))
    assert "the logger failed, too: OSError('disk full')" in e.value.__notes__
