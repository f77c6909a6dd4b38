"""Layers: what inference says and what the reference gives; the way through ONNX and through a
plan's JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base import dims
from tactix.base.errors import TactixError
from tactix.base.tensor import TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of
from tactix_sdk.testing.examples import examples_of, specs_of, wrong_examples
from tactix_sdk.testing.report import Broken, NothingToRun, check, counted, for_each, together
from tactix_sdk.testing.subject import Subject

SEEDS = 3


def layers_of(subject: Subject) -> list[Layer]:
    found = list(subject.objects("layers"))
    if not found:
        raise NothingToRun("the pack has no layers")
    return found


@dataclass(frozen=True)
class Example:
    """A layer, attributes of it, and its inputs' specs."""

    layer: Layer
    attrs: Any
    specs: list[TensorSpec]

    @property
    def key(self) -> str:
        """The layer's."""
        return self.layer.key

    @property
    def about(self) -> str:
        return f"{self.key} over {' '.join(map(str, self.specs))}"

    def sample(self, seed: int) -> Sequence[Any]:
        """Random inputs."""
        import numpy as np

        return self.layer.sample(self.attrs, list(self.specs), np.random.default_rng(seed))


def cases(layers: Sequence[Layer]) -> Iterator[Example]:
    """Every example of every layer."""
    for layer in layers:
        for named, text in examples_of(layer):
            yield Example(layer, attributes_of(layer, named), specs_of(text))


def script(example: Example, seed: int) -> str:
    """Python that runs one layer's reference alone."""
    layer, attrs = example.layer, example.attrs
    shown = [f"TensorSpec(DType({s.dtype.value!r}), {tuple(s.shape)!r})" for s in example.specs]
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
    together([Broken(why) for x in layers_of(subject) for why in wrong_examples(x)])
    bare = [x for x in layers_of(subject) if not examples_of(x)]
    tried = for_each(
        cases(layers_of(subject)),
        lambda example: sum(_agree(example, seed) for seed in range(SEEDS)),
    )
    if not tried:
        if all(x.beyond for x in bare):
            raise NothingToRun("; ".join(f"{x.key}: {x.beyond}" for x in bare))
        raise Broken(
            f"{bare[0].key} has no example: give the layer ``examples``, "
            "a list of (attributes, 'f32 3 4; f32 5')"
        )
    keys = ", ".join(x.key for x in bare)
    return f"{tried} runs" + (f"; without an example: {keys}" if bare else "")


def _agree(example: Example, seed: int) -> int:
    """One run. Raises Broken."""
    import numpy as np

    layer, attrs, specs, arrays = example.layer, example.attrs, example.specs, example.sample(seed)
    kept = [x.copy() for x in arrays]
    given = layer.reference(attrs, *arrays)
    said = layer.infer(attrs, list(specs))
    env: dict[str, int] = {}
    for s, y in zip(said, given, strict=True):
        dims.learn(s.shape, y.shape, env)
    got, want = (
        [(str(y.dtype), y.shape) for y in given],
        [(str(s.dtype.numpy), s.at(env)) for s in said],
    )
    if got != want:
        raise Broken(
            f"{example.about}: inference says {want}, the reference gives {got}",
            script(example, seed),
        )
    if not all(np.array_equal(x, k) for x, k in zip(arrays, kept, strict=True)):
        raise Broken(f"{layer.key}: the reference changes its inputs", script(example, seed))
    return 1


@check("symbolic-shapes")
def symbolic(subject: Subject) -> str:
    """Inference over symbolic sizes says what it says over numbers; or it refuses with a
    ShapeError.
    """
    refused = set[str]()

    def follow(example: Example) -> int:
        try:
            return _follow(example)
        except TactixError:
            refused.add(example.key)
            return 0

    followed = for_each(cases(layers_of(subject)), follow)
    return counted(
        followed,
        "examples",
        f"; sizes must be known for {', '.join(sorted(refused))}" if refused else "",
    )


def _follow(example: Example) -> int:
    """One example. Raises Broken, and TactixError where inference refuses symbols."""
    layer, attrs, specs = example.layer, example.attrs, example.specs
    sizes = sorted({int(d) for s in specs for d in s.shape if int(d) > 1})  # type: ignore[arg-type]
    names = {n: dims.sym(f"s{n}") for n in sizes}
    open_ = [TensorSpec(s.dtype, tuple(names.get(d, d) for d in s.at({}))) for s in specs]
    said = layer.infer(attrs, list(open_))
    env = {f"s{n}": n for n in sizes}
    want = layer.infer(attrs, list(specs))
    known = [s for s in said if all(dims.symbols(d) <= set(env) for d in s.shape)]
    if len(known) == len(said) and [s.at(env) for s in said] != [s.shape for s in want]:
        raise Broken(
            f"{layer.key}: {[str(s) for s in said]} over symbols, "
            f"{[str(s) for s in want]} over numbers"
        )
    return 1


@check("attributes")
def attributes(subject: Subject) -> str:
    """Attributes survive the JSON of a plan."""
    return counted(for_each(cases(layers_of(subject)), _comes_back), "examples")


def _comes_back(example: Example) -> int:
    """One example. Raises Broken."""
    back = attribute.decode_fields(example.layer.Attrs, attribute.encode_fields(example.attrs))
    if back != example.attrs:
        raise Broken(f"{example.key}: {example.attrs} comes back from a plan as {back}")
    return 1


@check("onnx")
def onnx(subject: Subject) -> str:
    """An ONNX node of each operator that a layer stands for is imported, and means the layer."""

    def imports(example: Example) -> int:
        found = [w.removeprefix("onnx:") for w in example.layer.imports if w.startswith("onnx:")]
        own = [op for op in found if not op.startswith("ai.onnx")]
        for operator in own:
            _import(subject, example, operator)
        return len(own)

    tried = for_each(cases(layers_of(subject)), imports)
    if not tried:
        raise NothingToRun("no layer stands for an operator of a domain of its own")
    return f"{tried} nodes"


def _import(subject: Subject, example: Example, operator: str) -> None:
    """Raises Broken."""
    import numpy as np
    from onnx import helper

    from tactix import Builder
    from tactix_sdk.evaluate import evaluate

    layer, attrs, specs = example.layer, _held_by_onnx(example.attrs), example.specs
    domain, _, name = operator.partition("::")
    named = attribute.named(attrs)
    inputs = [f"x{i}" for i in range(len(specs))]
    node = helper.make_node(
        name, inputs, ["y"], "it", domain=domain, **{k: _plain(v) for k, v in named.items()}
    )
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype.numpy)) for s in specs]
    given = zip(inputs, kinds, specs, strict=True)
    values = [helper.make_tensor_value_info(n, kind, s.at({})) for n, kind, s in given]
    (first, *_) = layer.infer(attrs, list(specs))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(first.dtype.numpy))
    graph = helper.make_graph(
        [node], "one", values, [helper.make_tensor_value_info("y", kind, None)]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    net = Builder(session=subject.session).import_model(model.SerializeToString())
    arrays = example.sample(0)
    (got,) = evaluate(net, dict(zip(inputs, arrays, strict=True))).values()
    want = np.asarray(layer.reference(attrs, *arrays)[0])
    if not np.array_equal(got, want, equal_nan=got.dtype.kind == "f"):
        told = f"{operator}, imported, does not give what {layer.key} gives: {_apart(got, want)}"
        raise Broken(told, script(example, 0))


def _apart(got: Any, want: Any) -> str:
    """How two arrays differ."""
    import numpy as np

    kinds = [f"{a.dtype.name}{list(a.shape)}" for a in (got, want)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} for {kinds[1]}"
    if got.dtype.kind not in "fiu":
        return f"{np.count_nonzero(got != want)} of {got.size} elements differ"
    with np.errstate(invalid="ignore"):  # of infinities
        far = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return f"they differ by up to {np.nanmax(far, initial=0):.3g}"


def _held_by_onnx(attrs: Any) -> Any:
    """The attributes as a node of ONNX holds them, whose floats are float32."""
    return replace(attrs, **{k: _float32(v) for k, v in attribute.named(attrs).items()})


def _float32(value: Any) -> Any:
    import numpy as np

    if isinstance(value, tuple):
        return tuple(map(_float32, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
