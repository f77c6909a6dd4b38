"""The networks: families of layers, examples of rules, small models, single nodes, random ones,
exported models.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from replay_quantized import quantized
from replay_targets import Target, session

from tactix.builder import Builder
from tactix.network.definition import NetworkDefinition

TESTS = Path(__file__).resolve().parents[1]
EXPORTED = (
    "mlp", "lenet", "resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b16", "unet32", "bert_base", "gpt2",
    "lstm_tagger", "gru_tagger", "dlrm",
)  # fmt: skip
"""Models of the benchmarks, which their authors' frameworks have exported: not in the repository.
"""
LARGE = ("resnet50", "mobilenet_v2", "bert_base")
"""Those of EXPORTED that are taken with Q/DQ, too."""
RANDOM = 30
NODE_TARGETS = ("x86-64-v4", "sm_90a")
"""What networks of one node are built for: they show what layers mean, others how kernels vary."""
ALL_VARIANTS, SOME_VARIANTS = 5, 3
"""Builder optimization levels: exported models have many nodes, so that four variants of a tactic
show enough.
"""
QUICK = ("family/product", "family/gather", "int8/family/product")


@dataclass(frozen=True)
class Network:
    """``load``: imports or makes it. ``only``: the precision if there is but one; none: those of
    the target.

    ``targets``: names of those that it is built for, all if none. ``level``: see ``Record``.
    """

    name: str
    load: Callable[[Builder], NetworkDefinition]
    only: str = ""
    targets: tuple[str, ...] = ()
    level: int = ALL_VARIANTS

    def precisions(self, target: Target) -> Sequence[str]:
        if self.targets and target.name not in self.targets:
            return ()
        return (self.only,) if self.only else target.precisions


FAMILIES = {
    "product": """(float[n, 24, 64] x) => (float[n, 24, 48] y, float[n, 24, 24] z)
        <float[64, 48] w, float[48] b> { p = MatMul (x, w) a = Add (p, b) y = Relu (a)
        t = Transpose <perm = [0, 2, 1]> (y) z = MatMul (y, t) }""",
    "convolution": """(float[n, 32, 28, 28] x) => (float[n, 32, 14, 14] y)
        <float[48, 32, 3, 3] w, float[48] b, float[48, 1, 5, 5] d, float[32, 48, 1, 1] p, float[32, 32, 3, 3] g> {
        c = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu (c)
        e = Conv <pads = [2, 2, 2, 2], strides = [2, 2], group = 48> (r, d)
        f = Conv (e, p) h = Conv <pads = [1, 1, 1, 1]> (f, g) y = Add (f, h) }""",
    "transposed_convolution": """(float[n, 16, 9, 9] x) => (float[n, 8, 19, 19] y)
        <float[16, 8, 3, 3] w, float[8] b> { c = ConvTranspose <strides = [2, 2]> (x, w, b) y = Sigmoid (c) }""",
    "attention": """(float[n, 4, s, 32] q, float[n, 4, s, 32] k, float[n, 4, s, 32] v) => (float[n, 4, s, 32] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (k) p = MatMul (q, t) r = Constant <value_float = 0.176776> ()
        m = Mul (p, r) a = Softmax <axis = -1> (m) y = MatMul (a, v) }""",
    "lstm": """(float[12, n, 20] x) => (float[12, 2, n, 32] y, float[2, n, 32] h)
        <float[2, 128, 20] w, float[2, 128, 32] r, float[2, 256] b> {
        y, h = LSTM <hidden_size = 32, direction = "bidirectional"> (x, w, r, b) }""",
    "gru": """(float[12, n, 20] x) => (float[12, 1, n, 48] y) <float[1, 144, 20] w, float[1, 144, 48] r> {
        y = GRU <hidden_size = 48, linear_before_reset = 1> (x, w, r) }""",
    "reduction": """(float[n, 6, 7, 33] x) => (float[n, 6, 1, 33] y, float[n, 6] z, int64[n, 6, 7] i) {
        a = Constant <value_ints = [2]> () b = Constant <value_ints = [2, 3]> ()
        y = ReduceMean (x, a) z = ReduceL2 <keepdims = 0> (x, b) i = ArgMax <axis = -1, keepdims = 0> (x) }""",
    "norm": """(float[n, 24, 64] x) => (float[n, 24, 64] y, float[n, 24, 64] z) <float[64] w, float[64] b> {
        y = LayerNormalization <axis = -1> (x, w, b) a = Add (x, y) s = Softmax <axis = 1> (a) z = Mul (s, a) }""",
    "group_norm": """(float[n, 16, 10, 10] x) => (float[n, 16, 10, 10] y) <float[16] w, float[16] b> {
        g = GroupNormalization <num_groups = 4> (x, w, b) i = InstanceNormalization (g, w, b) y = Relu (i) }""",
    "pool": """(float[n, 20, 15, 15] x) => (float[n, 20, 7, 7] y, float[n, 20, 1, 1] z) {
        m = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
        y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (m) z = GlobalAveragePool (x) }""",
    "resize": """(float[n, 8, 9, 11] x) => (float[n, 8, 18, 22] y, float[n, 8, 18, 22] z) {
        s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
        y = Resize <mode = "linear"> (x, , s) z = Resize <mode = "nearest"> (x, , s) }""",
    "gather": """(int64[n, s] i, float[n, 12] x, int64[n, 3] j) => (float[n, s, 40] y, float[n, 3] z, float[n, 12] u)
        <float[100, 40] w> { y = Gather (w, i) z = GatherElements <axis = 1> (x, j)
        e = Constant <value_floats = [1.0, 2.0, 3.0]> () f = Add (z, e)
        u = ScatterElements <axis = 1> (x, j, f) }""",
    "move": """(float[n, 6, 10] x, float[n, 4, 10] v) => (float[10, n, 10] y, float[n, 3, 5] z, float[n, 8, 12] p) {
        c = Concat <axis = 1> (x, v) y = Transpose <perm = [2, 0, 1]> (c)
        a = Constant <value_ints = [0, 0]> () b = Constant <value_ints = [6, 10]> ()
        d = Constant <value_ints = [1, 2]> () e = Constant <value_ints = [2, 2]> ()
        z = Slice (x, a, b, d, e) w = Constant <value_ints = [0, 1, 1, 0, 1, 1]> () p = Pad (x, w) }""",
    "selection": """(float[n, 50] x) => (float[n, 5] y, int64[n, 5] i, float[n, 50] c, int64[m, 2] z) {
        k = Constant <value_ints = [5]> () y, i = TopK (x, k)
        a = Constant <value_int = 1> () c = CumSum (x, a) t = NonZero (x) z = Transpose (t) }""",
    "pointwise": """(float[n, 33] x, float[33] v, int64[n, 33] k) => (float[n, 33] y, int64[n, 33] z) {
        a = Erf (x) b = Pow (a, v) g = Greater (b, v) c = Where (g, a, v) d = Tanh (c) y = Clip (d)
        f = Cast <to = 7> (y) z = Mod (k, k) }""",
}
"""Bodies of models in onnx's text form; initializers are given by their types, and filled with
fixed numbers.
"""

CONTROL = """<ir_version: 9, opset_import: ["" : 18]> control (float[n, 8] x) => (float[n, 8] y, float[n, 8] z) {
    times = Constant <value_int = 3> () go = Constant <value = bool {1}> ()
    y = Loop (times, go, x) <body = g (int64 i, bool c, float[n, 8] s) => (bool d, float[n, 8] t) {
        d = Identity (c) e = Exp (s) f = Constant <value_float = 0.25> () t = Mul (e, f) }>
    sum = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> () positive = Greater (sum, zero)
    z = If (positive) <then_branch = a () => (float[n, 8] p) { p = Relu (y) },
                       else_branch = b () => (float[n, 8] q) { q = Softmax <axis = 1> (y) }> }"""


@functools.cache
def networks(folder: Path | None, suite: bool = False) -> tuple[Network, ...]:
    """All that are there. ``folder``: of the exported models; ``suite``: onnx's own cases, too,
    slow to collect.
    """
    found = (
        *_families(),
        *_of_the_tests(),
        *_rules(),
        *_operators(),
        *_random(),
        *_exported(folder),
    )
    return (*found, *_suite()) if suite else found


def missing(folder: Path | None) -> list[str]:
    """Exported models that are not there."""
    return [name for name in EXPORTED if folder is None or not (folder / f"{name}.onnx").exists()]


def _families() -> Iterator[Network]:
    for name, body in FAMILIES.items():
        yield Network(f"family/{name}", partial(_imported, partial(_family, name, body)))
        if name in ("product", "convolution", "pool", "gather"):
            load = partial(_imported, partial(_lowered, partial(_family, name, body)))
            yield Network(f"int8/family/{name}", load, "int8")
    yield Network("family/control", partial(_imported, partial(onnx.parser.parse_model, CONTROL)))


def _of_the_tests() -> Iterator[Network]:
    for path in sorted((TESTS / "models").rglob("*.onnx")):
        yield Network(f"small/{path.stem}", partial(_imported, partial(str, path)))
        load = partial(_imported, partial(_lowered, partial(onnx.load, str(path))))
        yield Network(f"int8/small/{path.stem}", load, "int8")


def _random() -> Iterator[Network]:
    for seed in range(RANDOM):
        yield Network(f"random/{seed:02}", partial(_drawn, seed))


def _rules() -> Iterator[Network]:
    """The example of each rule, on which it fires. Names are those of rules without their pack's."""
    for key in sorted(session().rules, key=_own_name):
        yield Network(f"rule/{_own_name(key)}", partial(_example, _own_name(key)))


def _own_name(key: str) -> str:
    return key.partition(".")[2]


def _example(name: str, builder: Builder) -> NetworkDefinition:
    net = builder.create_network(name)
    rule = next(r for key, r in builder.session.rules.items() if _own_name(key) == name)
    rule.example(net)
    return net


def _operators() -> Iterator[Network]:
    """A node of each operator and option that the importer's tests know."""
    sys.path.insert(0, str(TESTS / "builtin" / "onnx_importer"))
    from onnx_operator_cases import CASES, arrays_of, one_node

    for i, case in enumerate(CASES):
        load = partial(_imported, lambda c=case: one_node(c, arrays_of(c), symbolic=not c.fixed))
        yield Network(f"operator/{i:03} {case.op}", load, "fp32", targets=NODE_TARGETS)


def _suite() -> Iterator[Network]:
    """onnx's own cases of single nodes, without those that say the same by other nodes."""
    sys.path.insert(0, str(TESTS / "onnx_suite"))
    from cases import collect

    for case in collect(("node",)):
        if "_expanded" not in case.name:
            load = partial(_imported, lambda c=case: c.model)
            yield Network(f"onnx/{case.name}", load, "fp32", targets=NODE_TARGETS)


def _exported(folder: Path | None) -> Iterator[Network]:
    lost = missing(folder)
    for name in (n for n in EXPORTED if n not in lost):
        path = str((folder or Path()) / f"{name}.onnx")
        yield Network(
            f"exported/{name}", partial(_imported, partial(str, path)), level=SOME_VARIANTS
        )
        if name in LARGE:
            load = partial(_imported, partial(_lowered, partial(onnx.load, path)))
            yield Network(f"int8/exported/{name}", load, "int8", level=SOME_VARIANTS)


def _imported(model: Callable[[], Any], builder: Builder) -> NetworkDefinition:
    return builder.import_model(model())


def _lowered(model: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    return quantized(model())


def _family(name: str, text: str) -> onnx.ModelProto:
    """The model; its initializers hold small numbers, the same for every run."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {name} {text}')
    rng = np.random.default_rng(0)
    read = {x for n in model.graph.node for x in n.input}
    for value in model.graph.value_info:
        if value.name in read and not any(value.name in n.output for n in model.graph.node):
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            array = (rng.standard_normal(shape) * 0.1).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return model


def _drawn(seed: int, builder: Builder) -> NetworkDefinition:
    """A random network of the property tests, drawn by Python's own generator.

    hypothesis would not do: what it draws depends on its version, and on constants in the code
    under test.
    """
    sys.path.insert(0, str(TESTS / "end_to_end"))
    import growers  # noqa: F401
    import movers  # noqa: F401
    import strategies

    rng = random.Random(seed)

    class Drawn(strategies.Grower):
        def int(self, low: int, high: int) -> int:
            return rng.randint(low, high)

        def permuted(self, count: int) -> tuple[int, ...]:
            return tuple(rng.sample(range(count), count))

    envs = [
        {"n": rng.choice((2, 1, 3, 5)), "s": rng.choice((4, 1, 7, 17, 2, 20))} for _ in range(2)
    ]
    names = [*sorted(strategies.KINDS), *strategies.OFTEN]
    with mock.patch.object(strategies, "builder", return_value=builder):
        grower = Drawn(lambda strategy: None, envs, seed)
        net: NetworkDefinition = strategies.grown(
            grower, rng.choices(names, k=rng.randint(3, 12))
        ).net
    return net
