"""tactix's own packs pass the checks of any pack, each by itself."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import pytest

from tactix.plugins.loader import scan
from tactix.plugins.names import OWN
from tactix_sdk import errors
from tactix_sdk.testing import FAILED, PASSED, SKIPPED, Subject, ordered
from tactix_sdk.testing.apart import CheckServer

PARTS = sorted({f"{f.namespace}.{f.part}" for f in scan() if f.namespace == OWN})
CPU = f"{OWN}.cpu"
LIBRARIES = ("isolate",)
ALWAYS = ("import-light", "hooks", "deterministic")
"""Checks that every pack has something for."""
SHARED = (
    "tactic-reference",
    "tactic-shapes",
    "tactic-open-shapes",
    "lean-runtime",
    "artifact-round-trip",
    "tactic-not-a-number",
    "streams",
)
"""Checks that compile thousands of the processor's kernels. tests/builtin/tactics compares each of
its tactics with the reference at such shapes, so here each goes through one of these checks, or
through all of them where TACTIX_TESTS_FULL is set.
"""


@pytest.fixture(scope="module")
def server() -> Iterator[CheckServer]:
    """Of all parts: what takes longest is to import tactix."""
    made = CheckServer()
    yield made
    made.close()


@pytest.mark.parametrize("check", ordered())
@pytest.mark.parametrize("part", PARTS)
def test_a_built_in_pack_passes_every_check(part: str, check: str, server: CheckServer) -> None:
    """What cannot be tried here, as a GPU's kernels, is skipped; a pack of which nothing can, too."""
    found, _ = server.outcome(check, Subject(part, without=_left_out(part, check)))
    assert found.state != FAILED, found.said
    assert found.state == PASSED or check not in ALWAYS
    if found.state == SKIPPED:
        pytest.skip(found.said)


def _left_out(part: str, check: str) -> frozenset[str]:
    """Keys of tactics that go through another of SHARED."""
    if part != CPU or check not in SHARED or os.environ.get("TACTIX_TESTS_FULL"):
        return frozenset()
    keys = _tactics_of(part)
    return frozenset(keys) - frozenset(keys[SHARED.index(check) :: len(SHARED)])


@functools.cache
def _tactics_of(part: str) -> list[str]:
    """Keys, in order."""
    return sorted(t.key for t in Subject(part).objects("tactics"))


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_no_pack_that_could_be_checked(name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"no plugins of 'tactix\.isolate'"):
        Subject(f"{OWN}.{name}").found  # noqa: B018
