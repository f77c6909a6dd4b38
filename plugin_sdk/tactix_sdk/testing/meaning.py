"""Layers: what inference says and what the reference gives; the way through ONNX and through a plan's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tactix.contracts import attrs as attribute
from tactix.contracts.layer import Layer
from tactix.words import dims
from tactix.words.errors import ShapeError, TactixError
from tactix.words.tensor import TensorSpec
from tactix_sdk.testing.examples import examples_of, specs_of
from tactix_sdk.testing.report import Broken, NotHere, check, counted
from tactix_sdk.testing.subject import Subject

SEEDS = 3


def layers_of(subject: Subject) -> list[Layer]:
    found = list(subject.objects("layers"))
    if not found:
        raise NotHere("the pack has no layers")
    return found


def cases(layers: Sequence[Layer]) -> Iterator[tuple[Layer, Any, list[TensorSpec]]]:
    """Every layer with the attributes and input specs of each of its examples."""
    for layer in layers:
        for named, text in examples_of(layer):
            yield layer, layer.Attrs(**named), specs_of(text)


def script(layer: Layer, attrs: Any, specs: Sequence[TensorSpec], seed: int) -> str:
    """Python that runs one layer's reference alone."""
    shown = [f"TensorSpec(DType({s.dtype.value!r}), {tuple(s.shape)!r})" for s in specs]
    return f"""import numpy as np
from tactix.plugins.session import Session
from tactix_sdk import DType, TensorSpec
from tactix.contracts import attrs as attribute
layer = Session().layers[{layer.key!r}]
attrs = attribute.decode_fields(layer.Attrs, {attribute.encode_fields(attrs)!r})
specs = [{", ".join(shown)}]
arrays = layer.sample(attrs, specs, np.random.default_rng({seed}))
print(layer.infer(attrs, specs), [(y.dtype, y.shape) for y in layer.reference(attrs, *arrays)])
"""


@check("layer-inference")
def inference(subject: Subject) -> str:
    """References give the dtypes and shapes that inference says, and leave their inputs alone."""
    tried, bare = 0, [x.key for x in layers_of(subject) if not examples_of(x)]
    for layer, attrs, specs in cases(layers_of(subject)):
        for seed in range(SEEDS):
            _agree(layer, attrs, specs, seed)
            tried += 1
    if not tried:
        raise Broken(f"{bare[0]} has no example: give the layer ``examples``, a list of (attributes, 'f32 3 4; f32 5')")
    return f"{tried} runs" + (f"; without an example: {', '.join(bare)}" if bare else "")


def _agree(layer: Layer, attrs: Any, specs: Sequence[TensorSpec], seed: int) -> None:
    import numpy as np

    arrays = layer.sample(attrs, list(specs), np.random.default_rng(seed))
    kept = [x.copy() for x in arrays]
    given = layer.reference(attrs, *arrays)
    said = layer.infer(attrs, list(specs))
    env: dict[str, int] = {}
    for s, y in zip(said, given, strict=True):
        dims.learn(s.shape, y.shape, env)
    got, want = ([(str(y.dtype), y.shape) for y in given], [(str(s.dtype.numpy), s.at(env)) for s in said])
    if got != want:
        raise Broken(
            f"{layer.key} over {' '.join(map(str, specs))}: inference says {want}, the reference gives {got}",
            script(layer, attrs, specs, seed),
        )
    if not all(np.array_equal(x, k) for x, k in zip(arrays, kept, strict=True)):
        raise Broken(f"{layer.key}: the reference changes its inputs", script(layer, attrs, specs, seed))


@check("symbolic-shapes")
def symbolic(subject: Subject) -> str:
    """Inference over symbolic sizes says what it says over numbers; or it refuses with a ShapeError."""
    followed, refused = 0, set()
    for layer, attrs, specs in cases(layers_of(subject)):
        sizes = sorted({int(d) for s in specs for d in s.shape if int(d) > 1})  # type: ignore[arg-type]
        names = {n: dims.sym(f"s{n}") for n in sizes}
        open_ = [TensorSpec(s.dtype, tuple(names.get(d, d) for d in s.at({}))) for s in specs]
        try:
            said = layer.infer(attrs, list(open_))
        except (ShapeError, TactixError):
            refused.add(layer.key)
            continue
        env = {f"s{n}": n for n in sizes}
        want = layer.infer(attrs, list(specs))
        known = [s for s in said if all(dims.symbols(d) <= set(env) for d in s.shape)]
        if len(known) == len(said) and [s.at(env) for s in said] != [s.shape for s in want]:
            raise Broken(f"{layer.key}: {[str(s) for s in said]} over symbols, {[str(s) for s in want]} over numbers")
        followed += 1
    return counted(followed, "examples", f"; sizes must be known for {', '.join(sorted(refused))}" if refused else "")


@check("attributes")
def attributes(subject: Subject) -> str:
    """Attributes survive the JSON of a plan."""
    tried = 0
    for layer, attrs, _ in cases(layers_of(subject)):
        back = attribute.decode_fields(layer.Attrs, attribute.encode_fields(attrs))
        if back != attrs:
            raise Broken(f"{layer.key}: {attrs} comes back from a plan as {back}")
        tried += 1
    return counted(tried, "examples")


@check("onnx")
def onnx(subject: Subject) -> str:
    """An ONNX node of each operator that a layer stands for is imported, and means the layer."""
    tried = 0
    for layer, attrs, specs in cases(layers_of(subject)):
        for word in layer.imports:
            operator = word.partition(":")[2]
            if word.startswith("onnx:") and not operator.startswith("ai.onnx"):
                _import(subject, layer, attrs, specs, operator)
                tried += 1
    if not tried:
        raise NotHere("no layer stands for an operator of a domain of its own")
    return f"{tried} nodes"


def _import(subject: Subject, layer: Layer, attrs: Any, specs: Sequence[TensorSpec], operator: str) -> None:

    import numpy as np
    from onnx import helper

    from tactix import Builder
    from tactix_sdk.evaluate import evaluate

    domain, _, name = operator.partition("::")
    named = attribute.named(attrs)
    inputs = [f"x{i}" for i in range(len(specs))]
    node = helper.make_node(name, inputs, ["y"], "it", domain=domain, **{k: _plain(v) for k, v in named.items()})
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype.numpy)) for s in specs]
    given = zip(inputs, kinds, specs, strict=True)
    values = [helper.make_tensor_value_info(n, kind, s.at({})) for n, kind, s in given]
    (first, *_) = layer.infer(attrs, list(specs))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(first.dtype.numpy))
    graph = helper.make_graph([node], "one", values, [helper.make_tensor_value_info("y", kind, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    net = Builder(session=subject.session).import_model(model.SerializeToString())
    arrays = layer.sample(attrs, list(specs), np.random.default_rng(0))
    (got,) = evaluate(net, dict(zip(inputs, arrays, strict=True))).values()
    if not np.array_equal(got, layer.reference(attrs, *arrays)[0], equal_nan=got.dtype.kind == "f"):
        raise Broken(f"{operator}, imported, does not give what {layer.key} gives", script(layer, attrs, specs, 0))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
