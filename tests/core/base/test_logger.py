from __future__ import annotations

import io
import logging
import threading

import pytest

from tactix.base.errors import InvalidArgument
from tactix.base.logger import LogEvent, Logger, Once, Severity, checked_logger
from tactix_sdk.stdlib_logger import StdlibLogger


def test_severities_are_tensorrts() -> None:
    assert {s.name: int(s) for s in Severity} == {
        "INTERNAL_ERROR": 0,
        "ERROR": 1,
        "WARNING": 2,
        "INFO": 3,
        "VERBOSE": 4,
    }


@pytest.mark.parametrize("limit", list(Severity))
def test_only_what_is_bad_enough_is_written(limit: Severity) -> None:
    out = io.StringIO()
    logger = Logger(limit, out)
    logger.log(Severity.INTERNAL_ERROR, "broken")
    logger.error("wrong")
    logger.warning("odd")
    logger.info("done")
    logger.verbose("detail")
    lines = ["[I] broken", "[E] wrong", "[W] odd", "[I] done", "[V] detail"]
    assert out.getvalue().splitlines() == [f"[tactix] {x}" for x in lines[: limit + 1]]


def test_by_default_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger()
    logger.warning("odd")
    logger.info("done")
    captured = capsys.readouterr()
    assert captured.err == "[tactix] [W] odd\n"
    assert captured.out == ""


def test_an_override_gets_everything() -> None:
    got: list[tuple[Severity, str]] = []

    class Mine(Logger):
        def log(self, severity: Severity, msg: str) -> None:
            got.append((severity, msg))

    logger = Mine(Severity.ERROR)
    logger.verbose("detail")
    logger.error("wrong")
    assert got == [(Severity.VERBOSE, "detail"), (Severity.ERROR, "wrong")]


def test_lines_of_threads_do_not_mix() -> None:
    class Slow(io.StringIO):
        """Writes a character at a time."""

        def write(self, text: str) -> int:
            return sum(super(Slow, self).write(c) for c in text)

    out = Slow()
    logger = Logger(Severity.INFO, out)
    threads = [
        threading.Thread(target=lambda c=c: [logger.info(c * 40) for _ in range(50)])
        for c in "abcd"
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = out.getvalue().splitlines()
    assert len(lines) == 200
    assert set(lines) == {f"[tactix] [I] {c * 40}" for c in "abcd"}


def test_bridge_to_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    logger = StdlibLogger("tactix.test")
    with caplog.at_level(logging.DEBUG, "tactix.test"):
        for s in Severity:
            logger.log(s, f"{s.name} at 100%s")
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.CRITICAL, "INTERNAL_ERROR at 100%s"),
        (logging.ERROR, "ERROR at 100%s"),
        (logging.WARNING, "WARNING at 100%s"),
        (logging.INFO, "INFO at 100%s"),
        (logging.DEBUG, "VERBOSE at 100%s"),
    ]
    caplog.clear()
    with caplog.at_level(logging.ERROR, "tactix.test"):
        logger.warning("its own levels decide")
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "tactix.test"):
        StdlibLogger("tactix.test", Severity.ERROR).warning("or min_severity")
    assert not caplog.records


def test_once_tells_warnings_a_single_time_and_the_rest_as_often_as_it_comes() -> None:
    stream = io.StringIO()
    logger = Once(Logger(Severity.INFO, stream))
    for _ in range(3):
        logger.warning("beware")
        logger.error("beware")
        logger.info("done")
    assert stream.getvalue().count("[W] beware") == 1
    assert stream.getvalue().count("[E] beware") == 1
    assert stream.getvalue().count("[I] done") == 3


def test_who_hears_what() -> None:
    class Mine(Logger):
        def log(self, severity: Severity, msg: str) -> None: ...

    assert [s for s in Severity if Logger(Severity.INFO).hears(s)] == list(Severity)[:4]
    assert all(Mine(Severity.ERROR).hears(s) for s in Severity), "it filters by itself"
    replaced = Logger(Severity.ERROR)
    replaced.log = print  # type: ignore[method-assign, assignment]
    assert replaced.hears(Severity.VERBOSE)
    assert not Once(Logger()).hears(Severity.INFO)


EVENT = LogEvent("tactic", "conv1: acme", {"node": "conv1", "seconds": 1e-3})


def test_an_event_is_its_text_to_who_takes_texts() -> None:
    stream = io.StringIO()
    logger = Once(Logger(Severity.INFO, stream))
    logger.tell(Severity.INFO, EVENT)
    logger.tell(Severity.WARNING, EVENT)
    logger.tell(Severity.WARNING, EVENT)
    assert stream.getvalue() == "[tactix] [I] conv1: acme\n[tactix] [W] conv1: acme\n"


def test_pythons_logging_gets_the_facts_of_an_event(caplog: pytest.LogCaptureFixture) -> None:
    logger = StdlibLogger("tactix.test")
    with caplog.at_level(logging.INFO, "tactix.test"):
        assert logger.hears(Severity.INFO)
        assert not logger.hears(Severity.VERBOSE)
        logger.tell(Severity.INFO, EVENT)
        logger.tell(Severity.VERBOSE, EVENT)
        logger.info("done")
    first, second = caplog.records
    assert (first.getMessage(), first.__dict__["tactix_event"]) == ("conv1: acme", "tactic")
    assert (first.__dict__["node"], first.__dict__["seconds"]) == ("conv1", 1e-3)
    assert second.__dict__["tactix_event"] == "message"


def test_what_has_a_method_log_will_do() -> None:
    class Plain:
        def __init__(self) -> None:
            self.got: list[str] = []

        def log(self, severity: Severity, msg: str) -> None:
            self.got.append(msg)

    plain = Plain()
    logger = checked_logger(plain)
    logger.info("done")
    logger.tell(Severity.VERBOSE, EVENT)
    assert plain.got == ["done", "conv1: acme"]
    with pytest.raises(InvalidArgument, match="no logger"):
        checked_logger(3)  # type: ignore[arg-type]
