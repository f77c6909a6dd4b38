"""Bidding: how many variants of a tactic are asked for, and what is said of the others."""

from __future__ import annotations

import pytest

from tactix.base.tensor import LINEAR, NHWC, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.expr import maximum
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix.network.definition import NetworkDefinition
from tactix.select.enumerate import LEVEL_VARIANTS, LISTED, Terms, bid
from tactix_sdk.scalar_layer import PointwiseLayer

RELU = PointwiseLayer("t.Relu@1", lambda x: maximum(x, 0.0))
CTX = CompileContext(DeviceProperties("cpu", "any"))
OFFERED = 20


class Ranks(Tactic):
    """As libraries are: many guesses, and nothing to compile."""

    key = "t.ranks@1"
    implements = ("pointwise",)

    def variants(self, node: Node, device: DeviceProperties) -> list[Variant]:
        return [Variant(knobs=(("rank", r),)) for r in range(OFFERED)]

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact("x")


def relu() -> Node:
    net = NetworkDefinition({RELU.key: RELU})
    (y,) = net.add_layer("t.Relu", [net.add_input("x", "f32", (3,))])
    net.mark_output(y)
    return net.nodes[0]


def test_a_tactic_is_not_asked_where_a_feature_is_missing_that_it_requires() -> None:
    class Wide(Ranks):
        key = "t.wide@1"
        requires = ("wide", "wider")

        def variants(self, node: Node, device: DeviceProperties) -> list[Variant]:
            assert device.has(*self.requires)
            return [Variant()]

    wide = CompileContext(DeviceProperties("cpu", "any", frozenset({"wide"})))
    bids = bid(relu(), [Ranks(), Wide()], wide, Terms(level=0))
    assert [c.tactic.key for c in bids.candidates] == ["t.ranks@1"]
    assert ("t.wide@1", "the device has no wider") in bids.rejections
    widest = CompileContext(DeviceProperties("cpu", "any", frozenset({"wide", "wider"})))
    assert [c.tactic.key for c in bid(relu(), [Wide()], widest, Terms()).candidates] == ["t.wide@1"]


@pytest.mark.parametrize("level", sorted(LEVEL_VARIANTS))
@pytest.mark.parametrize("breadth", [1, 2])
def test_a_level_says_how_many_variants_of_a_tactic_bid(level: int, breadth: int) -> None:
    tactic = Ranks()
    tactic.breadth = breadth
    bids = bid(relu(), [tactic], CTX, Terms(level=level))
    asked = min(OFFERED, LEVEL_VARIANTS[level] * breadth)
    assert [c.variant.knob("rank") for c in bids.candidates] == list(range(asked))
    assert [why for _, why in bids.rejections] == ["not asked at this optimization level"] * (
        OFFERED - asked
    )


@pytest.mark.parametrize("level", [0, 1])
def test_of_every_combination_of_formats_the_best_variant_bids(level: int) -> None:
    class Formats(Ranks):
        def variants(self, node: Node, device: DeviceProperties) -> list[Variant]:
            formats = (blocked(8), LINEAR, NHWC)
            return [Variant.of([f], [f], rank=r) for r in range(3) for f in formats]

    asked = [c.variant for c in bid(relu(), [Formats()], CTX, Terms(level=level)).candidates]
    assert {v.input_format(0) for v in asked} == {blocked(8), LINEAR, NHWC}
    assert [v.knob("rank") for v in asked] == [0, 0, 0]


def test_of_a_tactic_with_any_number_of_variants_some_are_asked_at_every_level() -> None:
    class Endless(Ranks):
        def variants(self, node: Node, device: DeviceProperties) -> list[Variant]:
            return [Variant(knobs=(("rank", r),)) for r in range(10_000)]

    told: list[str] = []
    bids = bid(relu(), [Endless()], CTX, Terms(level=5, warn=told.append))
    assert len(bids.candidates) == LEVEL_VARIANTS[5]
    assert len(bids.rejections) == LISTED
    assert told == [
        f"t.ranks@1 offers 10000 variants for relu: the first {LEVEL_VARIANTS[5]} are asked. "
        "Its author should offer fewer"
    ]
