"""Branches: layers at their bounds, and what lies between them as a branch of tactix's.

Only what hangs on an input of the branch is left out where it is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix.network.definition import NetworkDefinition
from tactix_tensorrt.api.enums import LayerType
from tactix_tensorrt.api.layer import ILayer
from tactix_tensorrt.api.layers.bounds import BoundLayer, Construct, results_of
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.scope import Inner, Results, inside_of
from tactix_tensorrt.api.tensor import ITensor

if TYPE_CHECKING:
    from tactix.contracts.graph import Value


class IIfConditionalBoundaryLayer(BoundLayer):
    """``conditional``: whose bound it is; None of what a parser read."""

    TYPE = LayerType.CONDITION

    @property
    def conditional(self) -> IIfConditional | None:
        return self.owner if isinstance(self.owner, IIfConditional) else None


class IConditionLayer(IIfConditionalBoundaryLayer):
    """Which branch is taken."""

    TYPE = LayerType.CONDITION
    OUTPUTS = 0

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return []


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """Its input, for layers of either branch."""

    TYPE = LayerType.CONDITIONAL_INPUT

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.input(0)]


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """Input 0 if the condition holds, else input 1."""

    TYPE = LayerType.CONDITIONAL_OUTPUT

    @property
    def reads(self) -> Sequence[ITensor]:
        return self.conditional.tensors if self.conditional else super().reads

    @property
    def before(self) -> Sequence[ITensor]:
        return []

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [results_of(emit, self)[self]]


class IIfConditional(Construct):
    """Layers of which a condition chooses; ``add_*`` give the bounds of what lies inside."""

    KIND = "branch"

    def set_condition(self, condition: ITensor) -> IConditionLayer:
        return self.bound(IConditionLayer, [condition])

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer:
        return self.bound(IIfConditionalInputLayer, [input])

    def add_output(
        self, true_subgraph_output: ITensor, false_subgraph_output: ITensor
    ) -> IIfConditionalOutputLayer:
        given = [true_subgraph_output, false_subgraph_output]
        return self.bound(IIfConditionalOutputLayer, given)

    # -- towards tactix ---------------------------------------------------------------------------

    def lowered(self, emit: Lowering) -> Results:
        """What its output layers give. Raises NetworkError."""
        from tactix_ops.layers.control import Bodies  # numpy comes with it

        conditions = [t for c in self.of(IConditionLayer) for t in c.reads]
        if not conditions:
            raise emit.refuse("it has no condition", "Call set_condition")
        outputs = self.of(IIfConditionalOutputLayer)
        branches = [self._branch(emit, i) for i in range(2)]
        captured = list(dict.fromkeys(v for b in branches for v in b.captured))
        where = tuple(tuple(captured.index(v) for v in b.captured) for b in branches)
        networks = tuple(b.native for b in branches)
        pairs = zip(outputs, *(n.outputs for n in networks), strict=True)
        specs = tuple(self._either(emit, o, a.spec, b.spec) for o, a, b in pairs)
        condition = emit.value(conditions[-1])
        bodies = Bodies(networks, specs)
        made = emit.all("If", [condition, *captured], bodies=bodies, captures=where)
        return dict(zip(outputs, made, strict=True))

    def _branch(self, emit: Lowering, which: int) -> Inner:
        """A body that gives the outputs."""
        label = f"{self.label} {('then', 'else')[which]}"
        net = NetworkDefinition(emit.scope.native.layers, f"{self.name or self.label}/{label}")
        outputs = self.of(IIfConditionalOutputLayer)
        first = self.of(IIfConditionalInputLayer)
        inside = inside_of(self.layers, [x.outputs[0] for x in first], set(outputs))
        scope = Inner(emit.scope, net, inside | set(first), label)
        for i, o in enumerate(outputs):
            value = Lowering(scope, o).input(which)
            net.mark_output(value, f"{i}:{value.name}")
        return scope

    def _either(self, emit: Lowering, output: ILayer, a: TensorSpec, b: TensorSpec) -> TensorSpec:
        """What fits the result of either branch, as it is outside."""
        if a.dtype is not b.dtype or a.rank != b.rank:
            do = "Cast or reshape one of them"
            raise NetworkError(f"its branches give {a} and {b}", who=output.name, do=do)
        from tactix_ops.layers.control import either, visible

        known, symbol = emit.scope.known_symbols(), emit.symbol(f"{output.name} of")
        a, b = (visible(s, known, f"{symbol} {i}") for i, s in enumerate((a, b)))
        return replace(a, shape=either(a.shape, b.shape, symbol))
