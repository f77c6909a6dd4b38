from __future__ import annotations

import inspect

import pytest

from tactix.plugins import hookspecs
from tactix.plugins.hookspecs import (
    API,
    BUILD_GROUP,
    HOOKS,
    RUNTIME_GROUP,
    BuildHooks,
    RuntimeHooks,
)


def test_groups_carry_the_major() -> None:
    assert (f"tactix.build.v{API[0]}", f"tactix.runtime.v{API[0]}") == (BUILD_GROUP, RUNTIME_GROUP)


def test_doors() -> None:
    assert HOOKS["runtime"] == {
        "tactix_layers",
        "tactix_launchers",
        "tactix_devices",
        "tactix_allocators",
        "tactix_flavours",
        "tactix_trust_stores",
        "tactix_presenters",
    }
    assert HOOKS["build"] == {
        "tactix_layers",
        "tactix_importers",
        "tactix_converters",
        "tactix_rules",
        "tactix_tactics",
        "tactix_compilers",
        "tactix_calibrators",
        "tactix_build_stages",
        "tactix_tools",
    }


@pytest.mark.parametrize(
    "hook",
    [getattr(c, n) for c in (BuildHooks, RuntimeHooks) for n in sorted(hookspecs.hooks_of(c))],
)
def test_every_hook_is_documented_and_takes_nothing(hook: object) -> None:
    assert list(inspect.signature(hook).parameters) == ["self"]  # type: ignore[arg-type]
    assert "key" in (inspect.getdoc(hook) or "")
    assert str(inspect.signature(hook).return_annotation).startswith("list[")  # type: ignore[arg-type]
