"""What the attacks share: importing through the Builder, and what every refusal must say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tactix
from tactix.base.errors import ModelImportError

sys.path.insert(0, str(Path(__file__).parent))


def checked(e: tactix.TactixError) -> tactix.TactixError:
    """The error, if it tells enough."""
    assert e.what
    assert e.who or e.why or e.do
    return e


@pytest.fixture(scope="session")
def outcome(builder: tactix.Builder) -> Callable[[Any], Any]:
    """A function that imports; the network, or None if it was refused."""

    def imported(source: Any) -> Any:
        try:
            return builder.import_model(source)
        except ModelImportError as e:
            checked(e)
            return None

    return imported


@pytest.fixture(scope="session")
def builder() -> tactix.Builder:
    return tactix.Builder()


@pytest.fixture(scope="session")
def refusal(builder: tactix.Builder) -> Callable[[Any], tactix.TactixError]:
    """A function that imports what must be refused; the error, which says what failed, and who, why
    or what to do.
    """

    def refused(source: Any) -> tactix.TactixError:
        with pytest.raises(ModelImportError) as caught:
            builder.import_model(source)
        return checked(caught.value)

    return refused
