"""What a pack's tactic fails with while it bids is in the log: who, for which node, why and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_log import KeptLog

import tactix
from tactix.plugins.session import Session
from tactix_sdk import Kernel, Pack, Tactic

HERE = Path(__file__)
LINES = HERE.read_text().split("\n")


def raises(op: Any) -> Any:
    return {}["rows"]  # raises


def gives_nothing(op: Any) -> None:
    return None


def reads_what_is_not_there(op: Any) -> Any:
    return op.no_such_thing  # reads_what_is_not_there


def takes_a_name(op: Any) -> Kernel:
    return Kernel("", sizes={"tid": 3})  # takes_a_name


class Misspelt(Tactic):
    key, implements = "acme.turn_c@1", ("acme.Turn@1",)

    def compil(self, *given: Any) -> Any:
        raise AssertionError("nobody calls it")


def line_of(text: str) -> int:
    (line,) = (i for i, t in enumerate(LINES, 1) if t.endswith(text))
    return line


CASES = {
    raises: ("  # raises", "KeyError: 'rows'"),
    gives_nothing: ("def gives_nothing(op: Any) -> None:", "gave None. Return a Kernel"),
    reads_what_is_not_there: ("  # reads_what_is_not_there", "has no attribute 'no_such_thing'"),
    takes_a_name: ("  # takes_a_name", "no name for a size: 'tid'"),
    Misspelt: ("class Misspelt(Tactic):", "NotImplementedError: acme.turn_c@1: compile"),
}


def warnings_of(written: Any) -> list[str]:
    """Of a build of a network of one layer with that tactic."""
    pack = Pack("acme")

    @pack.layer()
    def turn(x: Any) -> Any:
        return x[::-1]

    if isinstance(written, type):
        pack.tactic(written())
    else:
        turn.kernel("c")(written)
    log = KeptLog()
    builder = tactix.Builder(log, Session(plugins=[("acme", pack)], enable=["acme"]))
    net = builder.create_network("turned")
    net.mark_output(net.add_layer("acme.Turn", [net.add_input("x", "f32", (5,))], name="node")[0])
    builder.build_plan(net, tactix.BuilderConfig(timing_cache=False, threads=1))
    return list(log.warnings)


@pytest.mark.parametrize("written", CASES, ids=lambda w: w.__name__)
def test_the_log_names_tactic_node_reason_and_place(written: Any) -> None:
    line, reason = CASES[written]
    (told,) = (w for w in warnings_of(written) if w.startswith("acme."))
    place = f"{HERE}:{line_of(line)}"
    assert told.startswith(f"acme.turn_c@1 for node: {place}: its pack (given in process) failed: ")
    assert reason in told
