"""Names that nothing provides are told, with what may have been meant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tactix
from tactix.contracts.rule import P, Rule, any_of, var
from tactix.plugins.unresolved import unresolved

x = var("x")


@pytest.fixture(scope="module")
def session() -> tactix.Session:
    return tactix.Session()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (P.tactix.Rleu(x), "names the layer 'tactix.Rleu', which nobody provides. Did you"),
        (P.tactix.Mul(x, P.tactix.Sigmiod(x)), "names the layer 'tactix.Sigmiod'"),
        (any_of(P.tactix.Relu(x), P.tactix.Tnah(x)), "names the layer 'tactix.Tnah'"),
        (
            P.tactix.Softmax(x, axes=1),
            "names the attribute 'axes' of tactix.Softmax, which has none such. Did you mean",
        ),
        (
            P.tactix.Relu(x, zzz=1),
            "names the attribute 'zzz' of tactix.Relu, which has none such. It has: none",
        ),
    ],
)
def test_a_rules_names(session: tactix.Session, pattern: Any, words: str) -> None:
    rule = Rule("acme.r", pattern, lambda x: x)
    (told,) = unresolved(session.layers, [rule], [])
    assert words in told
    assert told.startswith("rule acme.r (")
    assert "test_unresolved.py" in told


def test_a_tactics_layers(session: tactix.Session) -> None:
    tactic: Any = SimpleNamespace(
        key="acme.t@1", implements=("tactix.Rleu@1", "tactix.Relu@1", "*", "pointwise")
    )
    (told,) = unresolved(session.layers, [], [tactic])
    assert told.startswith(
        "tactic acme.t@1 implements 'tactix.Rleu@1', which nobody provides. Did you mean 'tactix.Relu"
    )


def test_the_built_in_ones_all_exist(session: tactix.Session) -> None:
    assert list(unresolved(session.layers, session.active_rules(), session.active_tactics())) == []
