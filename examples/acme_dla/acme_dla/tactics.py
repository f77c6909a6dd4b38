"""Bids for the accelerator, and for the host beside it."""

from __future__ import annotations

from dataclasses import replace

from acme_dla.limits import LAYERS, seconds, why_not
from tactix.base.dims import evaluate
from tactix_ops.rules.sixteen import RULES
from tactix_ops.tactics.reference import ReferenceTactic
from tactix_sdk import (
    CompileContext,
    DeviceProperties,
    KernelArtifact,
    Node,
    Reject,
    Rule,
    Tactic,
    Variant,
)

KIND, SUBGRAPH, HOST = "dla", "acme_dla.subgraph@1", "acme_dla.host@1"


class AcceleratorTactic(Tactic[Node]):
    """Asked for every layer, so that each that it does not take has a reason. Artifacts say what to
    compute.
    """

    key = "acme_dla.accelerator@1"
    implements = ("*", *(f"tactix.{name}@1" for name in sorted(LAYERS)))
    device = KIND
    source = "acme_dla"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        why = why_not(node)
        return Reject(why) if why else node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float:
        return seconds(sum(evaluate(v.spec.nbytes(), {}) for v in (*node.given, *node.outputs)))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact(SUBGRAPH, params=node.meaning)


class HostTactic(ReferenceTactic):
    """Any layer by its numpy meaning, on the host, where the accelerator cannot."""

    key = "acme_dla.host@1"
    device = KIND
    source = "acme_dla"
    crosses = True

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return replace(super().compile(node, variant, ctx), launcher=HOST)


def stored_fp16() -> Rule:
    """A float32 network over float16 tensors, under ``BuilderFlag.FP16``: the rule that tactix has
    for GPUs.
    """
    (rule,) = (r for r in RULES if r.numerics == "fp16")
    return replace(rule, key="acme_dla.stored_fp16", device=KIND)
