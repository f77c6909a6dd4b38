from __future__ import annotations

import inspect

import pytest

from tactix.base import errors
from tactix.base.errors import (
    ErrorCode,
    PlanCompatibilityError,
    PluginError,
    ShapeError,
    TactixError,
    punctuated,
)

KINDS = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, TactixError)]


@pytest.mark.parametrize(
    ("parts", "text"),
    [({}, "it failed"), ({"who": "conv1"}, "conv1: it failed"), ({"why": "3 != 4"}, "it failed: 3 != 4"),
     ({"do": "Try again"}, "it failed. Try again"),
     ({"who": "conv1", "why": "3 != 4", "do": "Try again"}, "conv1: it failed: 3 != 4. Try again")],
)  # fmt: skip
@pytest.mark.parametrize("kind", [k for k in KINDS if k is not PlanCompatibilityError])
def test_message_joins_what_is_given(
    kind: type[TactixError], parts: dict[str, str], text: str
) -> None:
    assert str(kind("it failed", **parts)) == text


@pytest.mark.parametrize(
    ("what", "why", "text"),
    [
        ("it failed.", "3 != 4.", "conv1: it failed: 3 != 4. Try again."),
        ("it failed:", "3 != 4;", "conv1: it failed: 3 != 4. Try again."),
        ("it failed.", "", "conv1: it failed. Try again."),
        ("it failed", "who knows?", "conv1: it failed: who knows? Try again."),
        ("it failed", "1, 2, ...", "conv1: it failed: 1, 2, ... Try again."),
        ("it failed", "two\nlines.\n", "conv1: it failed: two\nlines. Try again."),
    ],
)
def test_parts_read_well_with_and_without_a_stop_of_their_own(
    what: str, why: str, text: str
) -> None:
    assert str(TactixError(what, who="conv1:", why=why, do="Try again.")) == text


def test_texts_are_joined_by_one_mark() -> None:
    assert punctuated(["one.", "", "two; ", "three."], "; ") == "one; two; three."
    assert punctuated(["Do this.", "Do that"]) == "Do this. Do that"
    assert punctuated([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_code_and_says_what_it_is(kind: type[TactixError]) -> None:
    assert isinstance(kind.code, ErrorCode)
    assert kind.code is not ErrorCode.SUCCESS
    assert kind.__doc__


def test_python_can_catch_them_by_its_own_kinds() -> None:
    assert issubclass(ShapeError, ValueError)
    assert issubclass(errors.AllocationError, MemoryError)
    assert issubclass(errors.ConfigError, ValueError)


def test_plugin_errors_carry_the_plugin() -> None:
    e = PluginError(
        "gone", key="acme.A@1", dist="acme-trt", version="1.0", phase="import", do="Install it"
    )
    assert (e.key, e.dist, e.version, e.phase, e.do) == (
        "acme.A@1",
        "acme-trt",
        "1.0",
        "import",
        "Install it",
    )


def test_incompatible_plans_list_all_reasons() -> None:
    e = PlanCompatibilityError(
        "cannot run here", reasons=("no avx512f", "made by 2.0"), do="Build it again"
    )
    assert e.reasons == ("no avx512f", "made by 2.0")
    assert str(e) == "cannot run here: no avx512f; made by 2.0. Build it again"
    e = PlanCompatibilityError("cannot run here", reasons=("no avx512f.", "made by 2.0."))
    assert str(e) == "cannot run here: no avx512f; made by 2.0."
