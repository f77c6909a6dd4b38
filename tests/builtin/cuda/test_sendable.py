"""Every candidate of ours goes to the process of trials, and has the same constants there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hopper_cases
import numpy as np
import product_cases
import pytest
import simt
import tactic_cases

from tactix.contracts.artifact import Packed
from tactix.plugins.session import Session
from tactix_isolate.graph_bytes import LARGE, GraphReader, GraphWriter

TABLES = {"tactics": tactic_cases.TABLE, "products": product_cases.TABLE}


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(group="build")


def cases(name: str) -> Iterator[simt.Case]:
    """One of each group."""
    if name == "hopper":
        for make in hopper_cases.TABLE.values():
            yield replace(next(iter(make())), device=hopper_cases.DEVICE)
        return
    for make in TABLES[name].values():
        yield next(iter(make()))


@pytest.mark.parametrize("name", [*TABLES, "hopper"])
def test_candidates_are_the_same_there(name: str, session: Session, tmp_path: Path) -> None:
    for case in cases(name):
        writer, arrays = GraphWriter(tmp_path, case.node), dict[str, Any]()
        node, env = GraphReader(writer.written((case.node, dict(case.env))), session, arrays).load()
        assert env == dict(case.env)
        assert [v.spec for v in node.outputs] == [v.spec for v in case.node.outputs]
        given = [v.spec.const for v in case.node.given]
        for variant, artifact in simt._artifacts(case):
            content = writer.written((artifact, variant))
            there, its_variant = GraphReader(content, session, arrays).load()
            assert its_variant == variant
            assert there.digest == artifact.digest
            assert_same(artifact.constants, there.constants, given)
        writer.close()
    assert not list(tmp_path.iterdir())


def assert_same(
    own: Sequence[tuple[str, Packed]], there: Sequence[tuple[str, Packed]], given: Sequence[Any]
) -> None:
    for (name, p), (its_name, q) in zip(own, there, strict=True):
        a, b = p.apply(given), q.apply(given)
        assert (name, a.dtype, a.shape) == (its_name, b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def test_an_array_of_several_candidates_is_one_there(session: Session, tmp_path: Path) -> None:
    """So the device has it once."""
    node = next(cases("tactics")).node
    shared = np.arange(LARGE, dtype=np.int64)
    calls = []

    def pack(given: Sequence[Any]) -> Any:
        calls.append(1)
        return shared + 1

    writer, arrays = GraphWriter(tmp_path, node), dict[str, Any]()
    sent: list[Mapping[str, Packed]] = [
        {"whole": Packed(-1, array=shared), "made": Packed(-1, array=pack)} for _ in range(2)
    ]
    a, b = (GraphReader(writer.written(x), session, arrays).load() for x in sent)
    for name in ("whole", "made"):
        assert a[name].array is b[name].array
    assert (a["made"].array == shared + 1).all()
    assert len(calls) == 1
    a["whole"].array[0] = 7  # its own memory: nothing of the build's changes
    assert shared[0] == 0
