"""What a pack must keep to, as named checks: for pytest a class of three lines, or ``tactix-sdk
check``.

    from tactix_sdk.testing import PackTests

    class TestAcme(PackTests):
        pack = "acme-swish"      # the installed distribution

Every check is one test. One that fails says what is wrong, and gives Python that shows it alone.
``skip`` names checks that a pack leaves out, and why; ``beyond`` tactics that no example reaches,
and why.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from tactix_sdk.testing import (
    bids,
    commands,
    compiling,
    flavouring,
    machines,
    meaning,
    memory,
    presenting,
    primitives,
    ranges,
    rewriting,
    running,
    shipping,
    sources,
    staging,
    static,
    trusting,
)
from tactix_sdk.testing.apart import CheckServer
from tactix_sdk.testing.report import (
    CHECKS,
    FAILED,
    NOTHING,
    PASSED,
    SKIPPED,
    Broken,
    Check,
    Outcome,
    ordered,
    outcome,
    outcomes,
    tried,
)
from tactix_sdk.testing.subject import Subject

__all__ = [
    "CHECKS", "FAILED", "NOTHING", "PASSED", "SKIPPED", "Broken", "Check", "Outcome", "PackTests",
    "Subject", "bids", "commands", "compiling", "flavouring", "machines", "meaning", "memory",
    "ordered", "outcome", "outcomes", "presenting", "primitives", "ranges", "rewriting", "running",
    "shipping", "sources", "staging", "static", "tried", "trusting",
]  # fmt: skip


@functools.cache
def _server() -> CheckServer:
    """One for all checks of all packs; it ends with this process."""
    server = CheckServer()
    atexit.register(server.close)
    return server


class PackTests:
    """Subclass it in a test module and name the ``pack``."""

    pack: ClassVar[str]
    skip: ClassVar[Mapping[str, str]] = {}
    beyond: ClassVar[Mapping[str, str]] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "check" in metafunc.fixturenames:
            metafunc.parametrize("check", ordered())

    def test_check(self, check: str) -> None:
        import pytest

        if check in self.skip:
            pytest.skip(self.skip[check])
        got = _server().outcome(check, Subject(self.pack, self.beyond))[0]
        if got.state in (NOTHING, SKIPPED):
            pytest.skip(f"{got.state}: {got.said}")
        shown = f"\n\nTo see it alone:\n\n{got.script}" if got.script else ""
        assert got.state == PASSED, f"{CHECKS[check].about}\n{got.said}{shown}"
