"""Faults planted in a model or in its plan, each at one layer that a random number names."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.contracts.artifact import Source
from tactix.contracts.rule import P, Rule, any_of, const, literal, var
from tactix.pipeline.assembler import Assembler
from tactix_ops.rules.facts import again
from tactix_sdk import Pack

PRODUCTS = {"Conv": 1, "MatMul": 1, "Gemm": 1, "LSTM": 1}
"""Operators that multiply by constant weights, and which input these are."""
CANCELLED = 1024
"""How much larger than a tensor's usual magnitude is what is added and taken away again."""
BEYOND = 1.25 * 65504
"""A number that float16 does not hold."""
RUINED = 0.5
"""Relative error of the outputs from which on a plant counts; half of it is what the tool is to
reach, which the models' own layers do not need.
"""
KEPT = 0.05
"""What the plant may change in float32."""
SEQ = 64
"""Tokens of a text."""
IDS = 1000

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Planted:
    """``model``: for the tool. ``layer``: the culprit, by the model's name. ``tool``: what is to
    find it, and ``options`` of that.
    """

    model: Path
    plan: Path
    layer: str
    tool: str
    options: tuple[str, ...] = ()


class Model:
    """An ONNX file in memory, and where its copies go."""

    def __init__(self, path: Path, folder: Path, fault: str, seed: int) -> None:
        self.path, self.folder = path, folder
        self.proto = onnx.load(str(path))
        self.rng = random.Random(f"{seed} {path.stem} {fault}")
        graph = self.proto.graph
        self.weights = {t.name: t for t in graph.initializer}
        self.products = [
            n
            for n in graph.node
            if n.op_type in PRODUCTS and n.input[PRODUCTS[n.op_type]] in self.weights
        ]
        self.feed = _feed(graph, np.random.default_rng(seed))

    def fresh(self) -> Model:
        """As it is in the file."""
        other = Model.__new__(Model)
        other.__dict__.update(self.__dict__)
        other.proto = onnx.ModelProto()
        other.proto.CopyFrom(self.proto)
        return other

    def weight(self, node: Any) -> Any:
        return numpy_helper.to_array(self.weights[node.input[PRODUCTS[node.op_type]]])

    def node(self, name: str) -> tuple[int, Any]:
        """Its place and itself, in this copy."""
        return next((i, n) for i, n in enumerate(self.proto.graph.node) if n.name == name)

    def constant(self, name: str, array: Any) -> str:
        """A new constant; the name."""
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def save(self, name: str) -> Path:
        path = self.folder / f"{self.path.stem}.{name}.onnx"
        onnx.save(self.proto, str(path))
        return path

    def outputs(self, names: list[str] | None = None) -> list[Any]:
        """Of ONNX Runtime; of these tensors, if they are given."""
        proto = self.proto
        if names is not None:
            proto = onnx.ModelProto()
            proto.CopyFrom(self.proto)
            del proto.graph.output[:]
            proto.graph.output.extend(
                helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names
            )
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, self.feed))


def _feed(graph: Any, rng: Any) -> dict[str, Any]:
    known = {t.name for t in graph.initializer}
    out = {}
    for v in graph.input:
        if v.name in known:
            continue
        dims = v.type.tensor_type.shape.dim
        shape = [d.dim_value or (1 if i == 0 else SEQ) for i, d in enumerate(dims)]
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            out[v.name] = rng.standard_normal(shape, np.float32)
        elif "ids" in v.name and "type" not in v.name:
            out[v.name] = rng.integers(0, IDS, shape, np.int64)
        else:
            out[v.name] = np.full(shape, "mask" in v.name, np.int64)
    return out


# -- in the model: what fewer bits cannot hold ------------------------------------------------------


def cancellation(model: Model) -> Planted:
    """A product reads its input with a large number added, whose share of the result is taken away
    again: exact enough in float32, noise in bfloat16.
    """
    return _in_model(model, lambda size: CANCELLED * size, TensorProto.BFLOAT16, "bf16")


def overflow(model: Model) -> Planted:
    """So, with a number that is infinite in float16."""
    return _in_model(model, lambda size: BEYOND, TensorProto.FLOAT16, "fp16")


def _in_model(
    model: Model, offset: Callable[[float], float], narrow: int, precision: str
) -> Planted:
    """At the first layer, in a random order, where outputs are ruined by rounding that one tensor,
    and by nothing else: ONNX Runtime says so. ``offset``: what is added, by a tensor's usual size.
    """
    right = model.outputs()
    for node in model.rng.sample(model.products, len(model.products)):
        (x,) = model.outputs([node.input[0]])
        changed = model.fresh()
        size = float(np.sqrt(np.mean(np.square(x, dtype=float))))
        read = _shifted(changed, node.name, np.float32(offset(size)))
        exact = changed.outputs()
        tried = changed.fresh()
        _round(tried, node.name, read, narrow)
        if _error(exact, right) < KEPT and _error(tried.outputs(), right) > RUINED:
            path = changed.save(precision)
            plan = path.with_suffix(".plan")
            tactix.build(path, level=1).save(plan)
            options = ("--precision", precision, "--max-error", str(RUINED / 2))
            return Planted(path, plan, node.name, "precision", options)
    raise ValueError(f"no layer of {model.path} ruins its outputs")


def _error(got: list[Any], want: list[Any]) -> float:
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if b.dtype.kind == "f"]
    found = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs]
    return max(np.inf if np.isnan(e) else e for e in found)


def _shifted(model: Model, name: str, offset: Any) -> str:
    """What the layer reads from now on."""
    i, node = model.node(name)
    x, w = node.input[0], model.weight(node)
    (given,) = model.outputs([x])
    read = f"{x}/shifted {name}"
    node.input[0] = read
    shift = model.constant(f"{name}/shift", np.asarray(offset))
    added = helper.make_node("Add", [x, shift], [read], f"{name}/shifted")
    if node.op_type == "LSTM":
        _into_bias(model, node, -offset * w.astype(np.float64).sum(-1))
        model.proto.graph.node.insert(i, added)
        return read
    made, result = f"{node.output[0]}/with shift", node.output[0]
    node.output[0] = made
    share = _share(node, w, np.full(given.shape[:1] + given.shape[1:], offset, np.float32))
    k = model.constant(f"{name}/share", share)
    taken = helper.make_node("Sub", [made, k], [result], f"{name}/taken")
    model.proto.graph.node.insert(i + 1, taken)
    model.proto.graph.node.insert(i, added)
    return read


def _share(node: Any, w: Any, constant: Any) -> Any:
    """What a product makes of a constant tensor, without bias."""
    if node.op_type != "Conv":
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axis = 1 if attrs.get("transB") else 0
        return (attrs.get("alpha", 1.0) * constant.flat[0] * w.sum(axis, np.float64)).astype(
            np.float32
        )
    alone = helper.make_node("Conv", ["x", "w"], ["y"])
    alone.attribute.extend(node.attribute)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "w", "y")]
    graph = helper.make_graph([alone], "alone", infos[:2], infos[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {"x": constant, "w": w})[0]


def _into_bias(model: Model, node: Any, more: Any) -> None:
    """``more``: (directions, gates), of an LSTM."""
    before = numpy_helper.to_array(model.weights[node.input[3]]).astype(np.float64).copy()
    before[:, : more.shape[1]] += more
    node.input[3] = model.constant(f"{node.name}/bias", before.astype(np.float32))


def _round(model: Model, name: str, read: str, narrow: int) -> None:
    """Let the layer read its input rounded."""
    i, node = model.node(name)
    node.input[0] = f"{read}/rounded"
    for made in (
        helper.make_node("Cast", [f"{read}/narrow"], [f"{read}/rounded"], to=TensorProto.FLOAT),
        helper.make_node("Cast", [read], [f"{read}/narrow"], to=narrow),
    ):
        model.proto.graph.node.insert(i, made)


# -- in the plan ----------------------------------------------------------------------------------


def packing(model: Model) -> Planted:
    """Weights of a step lie a little further on than its kernel thinks."""
    plan = tactix.build(model.path, level=1).plan
    names = {n.name for n in model.products}
    steps = [
        (s, s.constants[name])
        for s in plan.steps
        for name, p in s.artifact.constants
        if p.index == 1 and names.intersection(s.info["origin"])  # type: ignore[call-overload]
    ]
    step, buffer = model.rng.choice(steps)
    stored = plan.buffers[buffer]
    wrong = np.roll(np.frombuffer(plan.blobs[stored.blob], np.uint8), 64 * 5)
    blob = f"{stored.blob} moved"
    buffers = list(plan.buffers)
    buffers[buffer] = replace(stored, blob=blob)
    changed = replace(plan, buffers=tuple(buffers), blobs={**plan.blobs, blob: wrong.data})
    (layer, *_) = [n for n in step.info["origin"] if n in names]  # type: ignore[attr-defined]
    return _saved(model, changed, layer, "packing")


WRONG = """
void TX_ENTRY(const int64_t* a, int tid, int nt) {{
    TX_NAME(right)(a, tid, nt);
    if (tid == 0) {{
        float* wrong = (float*)a[{place}];
        for (int i = 0; i < 16; i++) wrong[i] = wrong[i] * 1.25f + 0.25f;
    }}
}}
"""


def kernel(model: Model) -> Planted:
    """A kernel that makes sixteen numbers wrong, compiled into the plan."""
    names = {n.name for n in model.products}
    layer = model.rng.choice(sorted(names))
    before = Assembler._step

    def step(self: Any, n: Any, c: Any, inputs: Any, outputs: Any) -> None:
        code = c.artifact.code
        if layer in n.origin and isinstance(code, Source):
            (launch, *_) = c.artifact.launches
            place = [a.kind for a in launch.args].index("output")
            text = code.text.replace("void TX_ENTRY(", "static void TX_NAME(right)(")
            wrong = replace(code, text=text + WRONG.format(place=place))
            c = replace(c, artifact=replace(c.artifact, code=wrong))
        before(self, n, c, inputs, outputs)

    with mock.patch.object(Assembler, "_step", step):
        plan = tactix.build(model.path, level=1).plan
    return _saved(model, plan, layer, "kernel")


def rule(model: Model) -> Planted:
    """A pack's rule makes the weights of one layer a twentieth larger: kernel and reference of the
    step agree.
    """
    layer = model.rng.choice(sorted(n.name for n in model.products))
    fired: list[bool] = []

    def when(root: Any) -> bool:
        return not fired and layer in root.origin

    def larger(root: Any) -> Any:
        fired.append(True)
        x, w, *others = root.inputs
        return again(root, [x, literal(w.const * np.float32(1.05)), *others])

    roots = (P.tactix.Convolution, P.tactix.MatMul, P.tactix.Gemm, P.tactix.LSTM)
    pattern = any_of(*(p(var("x"), const("w")) for p in roots))
    pack = Pack("faulty")
    pack.rule(Rule("faulty.larger", pattern, larger, when, benefit=100))
    session = tactix.Session(plugins=[("faulty", pack)], enable=["faulty"])
    builder = tactix.Builder(session=session)
    network = builder.import_model(str(model.path))
    config = tactix.BuilderConfig(builder_optimization_level=1)
    plan = builder.build_plan(network, config)
    if not fired:
        raise ValueError(f"the rule did not touch {layer}")
    return _saved(model, plan, layer, "rule")


def _saved(model: Model, plan: Any, layer: str, name: str) -> Planted:
    path = model.folder / f"{model.path.stem}.{name}.plan"
    engine = tactix.Runtime().load(plan)
    engine.save(path)
    return Planted(model.path, path, layer, "layers", ("--model", str(model.path)))


PLANTS: Mapping[str, Callable[[Model], Planted]] = {
    "cancellation": cancellation,
    "overflow": overflow,
    "packing": packing,
    "kernel": kernel,
    "rule": rule,
}


@contextmanager
def planted(model: Path, fault: str, folder: Path, seed: int) -> Iterator[tuple[Planted, Arrays]]:
    """A fault and inputs; its files go afterwards."""
    folder = folder / f"{model.stem} {fault} {seed}"
    folder.mkdir(parents=True)
    try:
        known = Model(model, folder, fault, seed)
        yield PLANTS[fault](known), known.feed
    finally:
        shutil.rmtree(folder)
