"""A plan as an ONNX model: a node for each step, which calls a function where layers are fused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import onnx
from onnx import helper

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts import region
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.layer import Layer
from tactix.contracts.region import REFORMAT, Body, BodyNode
from tactix.plan.schema import Plan, TensorIO
from tactix_inspect.onnx_export.call import LayerCall
from tactix_inspect.onnx_export.graph import CUSTOM, FUSED, IR_VERSION, Graph, Shared, value_info
from tactix_inspect.onnx_export.layers import write_body, write_layer
from tactix_inspect.onnx_export.storage import FileConstants, Storage
from tactix_runtime.references import on_references

FindLayer = Callable[[str], Layer]

LONGEST = 64
"""Characters of a function's name."""

LARGEST = 1 << 30
"""Bytes of weights that lie in the file itself; more lie beside it."""


@dataclass(frozen=True)
class Exported:
    """A plan's graph. ``strange``: layers that no ONNX operators mean, which are nodes of the
    domain ``tactix`` or of their pack, and how many there are. ``nbytes``: of its weights.
    """

    model: onnx.ModelProto
    strange: Mapping[str, int]
    nbytes: int

    @property
    def opset(self) -> int:
        """Of ONNX's own operators."""
        return int(self.model.opset_import[0].version)

    def save(self, path: str) -> None:
        """Writes the file; weights of more than ``LARGEST`` bytes to a second one, ``path.data``,
        to which the model refers from then on. Raises OSError.
        """
        if self.nbytes <= LARGEST:
            with replacing(path) as f:
                f.write(self.model.SerializeToString())
            return
        Path(f"{path}.data").unlink(missing_ok=True)  # onnx appends to one that is there
        onnx.save(
            self.model,
            path,
            save_as_external_data=True,
            location=f"{Path(path).name}.data",
            size_threshold=0,
        )


def exported(plan: Plan, find: FindLayer) -> Exported:
    """The network that a plan computes, after fusion.

    ``find``: a layer by its key. Weights that kernels hold in another form are taken back as
    ``on_references`` does. Raises PlanCompatibilityError for a stripped plan, AllocationError, and
    what ``find`` raises.
    """
    plan = _first_set(plan)
    kept = [s for p in plan.nested() for s in p.steps if _is_kept(s)]
    # nothing is run: what a GPU's step keeps of its meaning will do
    plain = on_references(replace(plan, device={**plan.device, "kind": "cpu"}), kept)
    shared, taken = Shared(), {io.name for io in (*plan.inputs, *plan.outputs)}
    weights, asked = FileConstants(taken), dict[str, str]()

    def unknown(symbol: str) -> str:
        return asked.setdefault(symbol, symbol)

    g = Graph(shared, taken, unknown)
    writer = PlanWriter(g, plain, plan, weights, find)
    writer.write([io.name for io in plan.inputs], [io.name for io in plan.outputs])
    inputs = [value_info(io.name, _spec(io)) for io in plan.inputs]
    inputs += [value_info(name, TensorSpec(DType.INT64, (1,))) for name in asked.values()]
    outputs = [value_info(io.name, _spec(io)) for io in plan.outputs]
    graph = helper.make_graph(
        g.nodes, plan.name or "plan", inputs, outputs, weights.tensors, value_info=writer.told
    )
    return Exported(_model(graph, shared), dict(shared.strange), _nbytes(weights))


def _first_set(plan: Plan) -> Plan:
    """Of a plan with kernels for each profile the plan of the first one."""
    sets = plan.kernel_sets
    if not sets:
        return plan
    return replace(plan.steps[0].plans[sets[0]], blobs=plan.blobs, device=plan.device)


def _is_kept(step: Step) -> bool:
    """Whether a step tells what it computes beside the code that does."""
    return isinstance(step.info.get("reference"), dict)


def _spec(io: TensorIO) -> TensorSpec:
    return TensorSpec(io.dtype, io.shape, element=io.element)


def _nbytes(weights: FileConstants) -> int:
    return sum(len(t.raw_data) for t in weights.tensors)


def _model(graph: onnx.GraphProto, shared: Shared) -> onnx.ModelProto:
    functions = list(shared.functions.values())
    opsets = shared.opsets()
    for f in functions:
        f.opset_import.extend(opsets)
    return helper.make_model(
        graph,
        functions=functions,
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="tactix",
    )


class PlanWriter:
    """Writes the steps of one plan, or of a body, into a graph.

    ``plain``: the plan with its weights as the layers read them; ``told``: names and types of what
    steps make.
    """

    def __init__(
        self, g: Graph, plain: Plan, plan: Plan, weights: FileConstants, find: FindLayer
    ) -> None:
        self._graph, self._plain, self._plan = g, plain, plan
        self._weights, self._find = weights, find
        self._storage = Storage(g, plain, weights)
        self._finals = {io.buffer: io for io in plan.outputs}
        self._final_names: Mapping[int, str] = {}
        self.told: list[onnx.ValueInfoProto] = []

    def write(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """All steps, between tensors of these names."""
        for io, name in zip(self._plan.inputs, inputs, strict=True):
            self._storage.put(io.buffer, name, io.shape)
            self._graph.know(name, _spec(io))
        named = list(zip(self._plan.outputs, outputs, strict=True))
        self._final_names = {io.buffer: name for io, name in named}
        for s, was in zip(self._plain.steps, self._plan.steps, strict=True):
            self._step(s, was)
        for io, name in named:
            found = self._storage.read(Operand(io.buffer, _spec(io), LINEAR))
            if found != name:
                self._graph.put("Identity", [found], [name])

    def _step(self, s: Step, was: Step) -> None:
        if s.plans:
            self._control(s, was)
            return
        meaning = was.info.get("reference") or s.artifact.params
        if not (isinstance(meaning, dict) and "layer" in meaning):
            self._opaque(s)
        elif meaning["layer"] == REFORMAT.key:
            name = self._storage.read(s.inputs[0])
            o = s.outputs[0]
            self._storage.put(o.buffer, name, o.spec.shape, o.format)
        else:
            self._layers(s, was, _body(s, meaning, self._find))

    def _layers(self, s: Step, was: Step, body: Body) -> None:
        """One node, or a call of a function."""
        inputs = [self._storage.read(o) for o in s.inputs]
        specs = [replace(o.spec, const=self._storage.array(o)) for o in s.inputs]
        before, g = self._graph.mark(), self._graph
        outputs = self._outputs(s)
        if len(body.nodes) == 1 and body.results == tuple(_made(body)):
            n = body.nodes[0]
            given = [inputs[i] if i >= 0 else "" for i in n.inputs]
            known = [specs[i] if i >= 0 else None for i in n.inputs]
            made = [o.spec for o in s.outputs]
            write_layer(
                LayerCall(
                    g, n.layer, n.attrs, tuple(given), tuple(known), tuple(outputs), tuple(made)
                )
            )
            own = [x for x in g.nodes[before.nodes :] if not _is_aside(x, g)]
            if len(own) == 1:
                _mark(own[0], was)
                self._hold(s, outputs)
                return
            g.back_to(before)
        f, symbols = self._function(body, specs)
        asked = [g.dim(sym(name)) for name in symbols]
        _mark(g.put(f.name, [*inputs, *asked], outputs, FUSED), was)
        self._hold(s, outputs)

    def _outputs(self, s: Step) -> list[str]:
        """Names of what a step makes: an output's own where the step writes it as it is."""
        makes = s.info.get("makes")
        hints = list(makes) if isinstance(makes, (list, tuple)) else []
        hints += [""] * (len(s.outputs) - len(hints))
        return [self._output(s, i, str(hint)) for i, hint in enumerate(hints[: len(s.outputs)])]

    def _output(self, s: Step, index: int, hint: str) -> str:
        o = s.outputs[index]
        io = self._finals.get(o.buffer)
        if io is not None and io.shape == o.spec.shape:
            return self._final_names[o.buffer]
        return self._graph.fresh(hint or self._plan.buffers[o.buffer].name)

    def _hold(self, s: Step, names: Sequence[str]) -> None:
        for o, name in zip(s.outputs, names, strict=True):
            element = self._finals[o.buffer].element if o.buffer in self._finals else None
            spec = replace(o.spec, element=o.spec.element or element)
            self._storage.put(o.buffer, name, spec.shape, o.format)
            self._graph.know(name, spec)
            if not spec.dtype.has_element and o.buffer not in self._finals:
                self.told.append(value_info(name, spec))

    def _opaque(self, s: Step) -> None:
        """A step that does not tell what it computes."""
        kind = str(s.info.get("kind", s.artifact.launcher))
        self._graph.shared.strange[kind] += 1
        inputs = [name for o in s.inputs if (name := self._storage.read(o))]
        outputs = self._outputs(s)
        _mark(self._graph.put(_word(kind), inputs, outputs, CUSTOM), s)
        self._hold(s, outputs)

    # -- functions -------------------------------------------------------------------------------

    def _function(
        self, body: Body, specs: Sequence[TensorSpec]
    ) -> tuple[onnx.FunctionProto, list[str]]:
        """A function of the body, and the symbols that it takes beside the body's inputs."""
        shared, wanted = self._graph.shared, dict[str, str]()
        inputs = [f"x{i}" for i in range(body.arity)]
        taken = set(inputs)

        def unknown(symbol: str) -> str:
            return wanted.setdefault(symbol, f"dim_{_word(symbol)}_{len(wanted)}")

        g = Graph(shared, taken, unknown)
        names = write_body(g, body, inputs, specs)
        outputs: list[str] = []
        for i in body.results:
            again = i < body.arity or names[i] in outputs
            outputs.append(g.one("Identity", names[i]) if again else names[i])
        title = _word("_".join(n.layer.name for n in body.nodes))[:LONGEST]
        made = helper.make_function(
            FUSED, "f", [*inputs, *wanted.values()], outputs, g.nodes, opset_imports=[]
        )
        key = made.SerializeToString(deterministic=True)
        shared.domains.add(FUSED)
        if key not in shared.functions:
            made.name = f"{title}_{len(shared.functions)}"
            shared.functions[key] = made
        return shared.functions[key], list(wanted)

    # -- bodies ----------------------------------------------------------------------------------

    def _control(self, s: Step, was: Step) -> None:
        params = s.artifact.params
        inputs = [self._storage.read(o) for o in s.inputs]
        kind = str(params.get("control", ""))
        if kind not in _CONTROL or params.get("batched"):
            self._opaque(s)
            return
        outputs = self._outputs(s)
        _mark(_CONTROL[kind](self, s, was, inputs, outputs), was)
        self._hold(s, outputs)

    def _if(
        self, s: Step, was: Step, inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.NodeProto:
        captures = cast(Sequence[Sequence[int]], s.artifact.params["captures"])
        branches = [
            self._branch(s, was, k, [inputs[1 + i] for i in captures[k]], []) for k in (0, 1)
        ]
        return self._graph.put(
            "If", inputs[:1], outputs, then_branch=branches[0], else_branch=branches[1]
        )

    def _loop(
        self, s: Step, was: Step, inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.NodeProto:
        states = int(str(s.artifact.params["states"]))
        own = [self._graph.fresh() for _ in range(2 + states)]
        body = self._branch(s, was, 0, [*own, *inputs[2 + states :]], own)
        return self._graph.put("Loop", inputs[: 2 + states], outputs, body=body)

    def _scan(
        self, s: Step, was: Step, inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.NodeProto:
        p = s.artifact.params
        axes: Sequence[int] = p["input_axes"]  # type: ignore[assignment]
        count = int(str(p["states"])) + len(axes)
        own = [self._graph.fresh() for _ in range(count)]
        body = self._branch(s, was, 0, [*own, *inputs[count:]], own)
        attrs: dict[str, Any] = {
            f"scan_{name}": list(p[name]) or None  # type: ignore[call-overload]
            for name in ("input_axes", "input_directions", "output_axes", "output_directions")
        }
        return self._graph.put(
            "Scan", inputs[:count], outputs, body=body, num_scan_inputs=len(axes), **attrs
        )

    def _branch(
        self, s: Step, was: Step, index: int, given: Sequence[str], own: Sequence[str]
    ) -> onnx.GraphProto:
        """A body as a graph; ``given``: what its inputs are, of which it declares its ``own``."""
        plain, plan, outer = s.plans[index], was.plans[index], self._graph
        g = outer.inner()
        writer = PlanWriter(g, plain, plan, self._weights, self._find)
        finals = [g.fresh(io.name) for io in plan.outputs]
        writer.write(given, finals)
        declared = [value_info(name, _spec(io)) for io, name in zip(plan.inputs, own)]
        results = [
            value_info(name, _spec(io)) for io, name in zip(plan.outputs, finals, strict=True)
        ]
        return helper.make_graph(g.nodes, plan.name or "body", declared, results)


_CONTROL = {"If": PlanWriter._if, "Loop": PlanWriter._loop, "Scan": PlanWriter._scan}


def _body(s: Step, meaning: Mapping[str, object], find: FindLayer) -> Body:
    """What a step computes. Raises InvalidArgument for a damaged plan."""
    try:
        layer, attrs = region.decode(meaning, find)
    except (KeyError, TypeError) as e:
        raise InvalidArgument("it does not tell what it computes", who=s.name) from e
    if isinstance(attrs, Body):
        return attrs
    n = len(s.inputs)
    single = BodyNode(s.name, layer, attrs, tuple(range(n)), len(s.outputs))
    return Body(n, (single,), tuple(range(n, n + len(s.outputs))))


def _made(body: Body) -> range:
    """Ids of what the one node of a body makes."""
    return range(body.arity, body.arity + body.nodes[0].outputs)


def _is_aside(node: onnx.NodeProto, g: Graph) -> bool:
    """Whether a node makes numbers that another takes as attributes."""
    return node.op_type == "Constant" or node.output[0] in g.sizes


TOLD = ("tactic", "variant", "source", "layers", "origin", "seconds")
"""Notes of a step that its node keeps."""


def _mark(node: onnx.NodeProto, s: Step) -> None:
    """The step's name, and what ran it, for people."""
    node.name = s.name
    for key in TOLD:
        if found := s.info.get(key):
            text = ", ".join(map(str, found)) if isinstance(found, (list, tuple)) else str(found)
            node.metadata_props.add(key=key, value=text)


def _word(text: str) -> str:
    """Letters, digits and underscores."""
    return re.sub(r"\W+", "_", text).strip("_") or "step"
