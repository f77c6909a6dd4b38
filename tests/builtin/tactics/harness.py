"""Runs CPU tactics on small nodes through the native ABI and compares them with the layers' numpy
references.

``check(node, tactic)`` compiles every variant, runs each with 1 and 2 threads, and asserts that the
outputs match within the dtype's budget, that padding lanes are zero, and that nothing outside the
outputs was touched. Every buffer is 64-byte aligned and ends at a page that faults when touched;
outputs start as 0xFF bytes (NaN for floats).

``check_all([Case(...), ...])`` does it for many nodes with one call of the compiler.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asked
import numpy as np
import pytest

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts import region
from tactix.contracts.artifact import Binary, KernelArtifact, Launch
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.contracts.layer import Layer
from tactix.contracts.region import FUSED, STRUCTURAL, Body, BodyNode
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.target import other_architecture
from tactix_cpu.compiler import QUICK, CCompiler
from tactix_cpu.device import CpuDevice
from tactix_cpu.features import LEVELS
from tactix_cpu.levels import target

BUDGETS = {DType.FP64: 1e-12, DType.FP32: 1e-5, DType.FP16: 2e-3, DType.BF16: 1.6e-2}
"""Largest error relative to the largest finite reference value; integers and bool must be equal."""
ABSOLUTE = 1e-7
"""Error that is always allowed for floats."""
V3, V4 = (tuple(sorted(LEVELS[level][2])) for level in ("x86-64-v3", "x86-64-v4"))
EXTRAS = {"avx512_vnni", "avx512_bf16", "avx512vbmi"}


def devices() -> list[DeviceProperties]:
    """CPU targets that this machine can run, the widest first; TACTIX_CPU_FEATURES takes the wider
    ones away.

    Their names: ``v4`` (with extras that are here), ``v3``, ``v2``, ``armv8``.
    TACTIX_TEST_TARGET=armv8 leaves that one alone, emulated where this machine is another.
    """
    here = CpuDevice().properties().features
    wanted = os.environ.get("TACTIX_TEST_TARGET")
    assert wanted in (None, "armv8"), (
        f"TACTIX_TEST_TARGET={wanted}: TACTIX_CPU_FEATURES holds this machine back"
    )
    levels = (
        [wanted] if wanted else sorted((x for x in LEVELS if here >= LEVELS[x][2]), reverse=True)
    )
    found = []
    for level in levels:
        more = EXTRAS & here if level == "x86-64-v4" else frozenset[str]()
        made = target(level)
        found.append(
            replace(
                made, name=level.removeprefix("x86-64-"), features=made.features | more, cores=2
            )
        )
    return found or [DeviceProperties("cpu", "generic", frozenset(), 128, cores=2)]


NATIVE = devices()[0]
FULL = "TACTIX_TESTS_FULL"
"""The variable that has kernels compiled as measured builds do; tests/masks.py sets it."""
PLAIN = replace(QUICK, flags=(*QUICK.flags, "-O0", "-fno-sanitize=undefined"), units=1)
"""Kernels that run a few times: without any optimization, and so that preludes are read once. Two of
these files took 65 seconds of the processor in place of 124 with ``QUICK``, with which builds that
measure nothing compile. test_targets.py compiles kernels of every tactic with every optimization.
(Ziglang's compiler would look for undefined behaviour then.)
"""
COMPILER = CCompiler() if os.environ.get(FULL) else CCompiler(effort=PLAIN)


def lacking(*features: str) -> str:
    """Why a kernel that uses these features of the processor cannot run here; empty if it can."""
    here = CpuDevice().properties()
    missing = [f for f in features if not here.has(f)]
    return f"this processor has no {', '.join(missing)}" if missing else ""


def needs(*features: str) -> pytest.MarkDecorator:
    """A mark for tests that run kernels which use these features of the processor."""
    return pytest.mark.skipif(
        bool(lacking(*features)), reason=lacking(*features) or "they are there"
    )


def layer(name: str) -> Layer:
    """A built-in layer by name: ``layer("Softmax")``."""
    from tactix_ops.layers import all_layers

    key = name if "@" in name else f"tactix.{name}@1"
    return next(x for x in (*all_layers(), *STRUCTURAL) if x.key == key)


def opened(*arrays: Any) -> tuple[list[TensorSpec], dict[str, int]]:
    """What describes the arrays where all their axes are symbols, each of its own; and the sizes."""
    names = [[f"axis_{i}_{k}" for k in range(a.ndim)] for i, a in enumerate(arrays)]
    specs = [spec(a, shape) for a, shape in zip(arrays, names, strict=True)]
    sizes = (dict(zip(n, a.shape, strict=True)) for n, a in zip(names, arrays, strict=True))
    return specs, {k: size for each in sizes for k, size in each.items()}


def spec(x: Any, shape: Sequence[Any] | None = None) -> TensorSpec:
    """The spec of an array, or of a spec itself; ``shape`` may name symbols: ``("batch", 3)``."""
    if isinstance(x, TensorSpec):
        return x
    given = (
        x.shape if shape is None else tuple(dims.sym(d) if isinstance(d, str) else d for d in shape)
    )
    return TensorSpec(DType.of(x.dtype), tuple(given))


def node(
    name: str | Layer, inputs: Sequence[Any], constants: Sequence[int] = (), **attrs: Any
) -> Node:
    """A node of a layer over arrays or TensorSpecs (None: absent); ``constants``: indices of
    constant inputs.
    """
    op = layer(name) if isinstance(name, str) else name
    specs = [None if x is None else spec(x) for x in inputs]
    for i in constants:
        specs[i] = TensorSpec(DType.of(inputs[i].dtype), inputs[i].shape, const=inputs[i])
    values = [None if s is None else Value(f"in{i}", s) for i, s in enumerate(specs)]
    made = op.Attrs(**attrs)
    out = [Value(f"out{j}", s) for j, s in enumerate(op.infer(made, specs))]
    return Node(op.name.lower(), op, made, values, out)


def quotients(dtype: str) -> tuple[Any, Any]:
    """Numerators and denominators of an integer type, zeros and the lowest number by -1 among them."""
    t = DType(dtype).numpy
    low, high = np.iinfo(t).min, np.iinfo(t).max
    less = -1 if low else high
    a = np.array([7, less, 0, low, high, 5, low, 3, less, 9], t)
    b = np.array([0, 0, 0, less, 0, 2, 0, less, low, 4], t)
    return np.tile(a, 7), np.tile(b, 7)


def fused(
    inputs: Sequence[Any],
    nodes: Sequence[tuple[str, Sequence[int], Mapping[str, Any]]],
    results: Sequence[int] | None = None,
    anchor: int | None = None,
    constants: Sequence[int] = (),
) -> Node:
    """A fused node over arrays or specs. Each of ``nodes`` is (layer name, value ids, attributes),
    -1 for an absent input.

    Ids: 0..n-1 are the inputs, then each node's outputs in order; ``results`` is the last one if
    not given.
    """
    specs: list[Any] = [spec(x) for x in inputs]
    for i in constants:
        specs[i] = TensorSpec(DType.of(inputs[i].dtype), inputs[i].shape, const=inputs[i])
    body_nodes, known = [], list(specs)
    for k, (name, ids, attrs) in enumerate(nodes):
        op = layer(name)
        made = op.Attrs(**attrs)
        out = op.infer(made, [known[i] if i >= 0 else None for i in ids])
        body_nodes.append(BodyNode(f"{op.name.lower()}{k}", op, made, tuple(ids), len(out)))
        known += out
    body = Body(len(specs), tuple(body_nodes), tuple(results or (len(known) - 1,)), anchor)
    values = [Value(f"in{i}", s) for i, s in enumerate(specs)]
    outs = [Value(f"out{j}", s) for j, s in enumerate(FUSED.infer(body, specs))]
    return Node(body.title, FUSED, body, values, outs)


@dataclass
class Case:
    """A node, a tactic, and inputs (random ones if None). ``budget`` replaces the dtype's;
    ``only``: these variants.
    """

    node: Node
    tactic: Tactic
    arrays: Sequence[Any] | None = None
    env: Mapping[str, int] = field(default_factory=dict)
    budget: float | None = None
    device: DeviceProperties = NATIVE
    nt: Sequence[int] = (1, 2)
    only: Sequence[Variant] | None = None
    seed: int = 0


def check(
    node: Node, tactic: Tactic, arrays: Sequence[Any] | None = None, **options: Any
) -> list[Variant]:
    """Check every variant of one node; see Case for the options. Returns the variants."""
    return check_all([Case(node, tactic, arrays, **options)])[0]


def check_all(cases: Sequence[Case]) -> list[list[Variant]]:
    """Check many cases with one call of the compiler per device. Returns the variants of each."""
    made = [_compile(c) for c in cases]
    for device in {id(c.device): c.device for c in cases}.values():
        if other_architecture(device):
            import emulated

            emulated.check_all(
                [x for x in zip(cases, made, strict=True) if x[0].device is device], device
            )
            continue
        mine = [
            item
            for c, items in zip(cases, made, strict=True)
            if c.device is device
            for item in items
        ]
        native = [a for _, a in mine if a.code is not None]
        binaries = COMPILER.compile([a.code for a in native], device) if native else []
        symbols = {id(a): b for a, b in zip(native, binaries, strict=True)}
        library = _library(binaries[0]) if binaries else None
        for c, items in zip(cases, made, strict=True):
            if c.device is device:
                _check_case(c, items, library, symbols)
    return [[v for v, _ in items] for items in made]


def _compile(case: Case) -> list[tuple[Variant, KernelArtifact]]:
    offered = asked.variants(case.tactic, case.node, case.device)
    assert not isinstance(offered, Reject), offered.reason
    assert offered, "no variants and no reason"
    ctx = CompileContext(case.device, dict(case.env), max(case.nt))
    out = []
    for v in case.only or offered:
        made, again = (
            asked.artifact(case.tactic, case.node, v, ctx),
            asked.artifact(case.tactic, case.node, v, ctx),
        )
        assert made.digest == again.digest, "compile is not deterministic"
        out.append((v, made))
    return out


def _library(binary: Binary) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as f:
        f.write(binary.blob)
    library = ctypes.CDLL(f.name)
    os.unlink(f.name)
    return library


def _check_case(case: Case, items: Any, library: Any, symbols: Mapping[int, Binary]) -> None:
    arrays = arrays_of(case)
    expected = reference(case.node, arrays, case.env)
    for variant, artifact in items:
        for nt in case.nt:
            where = f"{case.node.name} {variant} nt={nt} {case.device.name}"
            run = Run(case.node, variant, artifact, learned(case, expected))
            function = getattr(library, symbols[id(artifact)].symbol)
            got = run(function, arrays, nt, where)
            assert not run.reported, f"{where}: reported an index"
            for j, (g, e) in enumerate(zip(got, expected, strict=True)):
                compare(g, np.asarray(e), case.budget, f"{where} output {j}")


def learned(case: Case, expected: Sequence[Any]) -> dict[str, int]:
    """The sizes of a case, and those that only running tells."""
    env = dict(case.env)
    for v, e in zip(case.node.outputs, expected, strict=True):
        dims.learn(v.spec.shape, np.shape(e), env)
    return env


def arrays_of(case: Case) -> list[Any]:
    """The given inputs, or random ones."""
    n = case.node
    if case.arrays is not None:
        return list(case.arrays)
    specs = [
        None
        if v is None
        else TensorSpec(v.spec.dtype, v.spec.at(dict(case.env)), const=v.spec.const)
        for v in n.inputs
    ]
    made = n.layer.sample(n.attrs, specs, np.random.default_rng(case.seed))
    return [x for x in made if x is not None]


def reference(n: Node, arrays: Sequence[Any], env: Mapping[str, int]) -> list[Any]:
    """The numpy outputs of a node; ``arrays`` are the given inputs."""
    if n.is_fused:
        known = n.body.run(list(arrays), env)
        return [known[i] for i in n.body.results]
    left = iter(arrays)
    args = [None if v is None else next(left) for v in n.inputs]
    return list(n.layer.reference(attribute.resolve_fields(n.attrs, env), *args))


def compare(got: Any, expected: Any, budget: float | None, where: str) -> None:
    """Assert equality within the dtype's budget; NaN and infinities must stand at the same places."""
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, not {expected.shape}"
    t = DType.of(expected.dtype)
    assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, not {expected.dtype}"
    if not t.is_float:
        np.testing.assert_array_equal(got, expected, err_msg=where)
        return
    g, e = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    np.testing.assert_array_equal(g[~finite], e[~finite], err_msg=where)
    if finite.any():
        limit = (BUDGETS.get(t, 0.0) if budget is None else budget) * np.abs(
            e[finite]
        ).max() + ABSOLUTE
        error = np.nan_to_num(np.abs(g[finite] - e[finite]), nan=np.inf)
        assert error.max() <= limit, (
            f"{where}: error {error.max()} over {limit} at {np.argmax(error)}"
        )


class Buffer:
    """Memory of ``size`` bytes that starts 64-byte aligned and ends, rounded up to 64, at an
    inaccessible page.
    """

    def __init__(self, size: int, fill: int = 0xFF) -> None:
        page = mmap.PAGESIZE
        self.size, padded = size, -(-size // 64) * 64
        pages = -(-(padded + 64) // page)
        self._map = mmap.mmap(-1, (pages + 1) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(start + pages * page), ctypes.c_size_t(page), 0) == 0
        self._offset = pages * page - padded
        self._bytes = np.frombuffer(self._map, np.uint8, pages * page)
        self._bytes[:] = fill
        self._fill = fill
        self.address = start + self._offset

    def array(self, dtype: Any, shape: Sequence[int]) -> Any:
        """The content as an array."""
        return self._bytes[self._offset : self._offset + self.size].view(dtype).reshape(shape)

    def image(self) -> tuple[Any, int]:
        """Its bytes with those around it, whole pages, and where among them it starts."""
        return self._bytes, self._offset

    def intact(self) -> bool:
        """Whether the bytes before and behind still hold the fill."""
        before, behind = self._bytes[: self._offset], self._bytes[self._offset + self.size :]
        return bool((before == self._fill).all() and (behind == self._fill).all())


class Run:
    """One artifact with its buffers."""

    def __init__(
        self, n: Node, variant: Variant, artifact: KernelArtifact, env: Mapping[str, int]
    ) -> None:
        self.node, self.variant, self.artifact, self.env = n, variant, artifact, dict(env)
        self.workspace = Buffer(dims.evaluate(artifact.workspace, self.env), 0xA5)
        self.fault = Buffer(5 * 8, 0)  # the record, and the flag
        named = dict.fromkeys(d for v in n.outputs for d in v.spec.shape if dims.symbol_name(d))
        self.sizes = [dims.evaluate(d, self.env) for d in named]
        self.told = Buffer(8 * len(self.sizes))
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.constants: dict[str, Buffer] = {}

    def __call__(self, function: Any, arrays: Sequence[Any], nt: int, where: str = "") -> list[Any]:
        """Run all launches with ``nt`` threads one after the other; returns the outputs, linear."""
        self.fill(arrays)
        for launch in self.artifact.launches:
            values = self.arguments(launch)
            call(function, (ctypes.c_int64 * max(1, len(values)))(*values), nt)
        return self.results(arrays, where)

    def results(self, arrays: Sequence[Any], where: str) -> list[Any]:
        """The outputs, linear, after a run on these inputs; nothing else may have changed."""
        if any(a.kind == "told" for x in self.artifact.launches for a in x.args):
            found = self.told.array(np.int64, (-1,)).tolist()
            assert found == self.sizes or self.reported, f"{where}: told {found}, not {self.sizes}"
        for name, b in self.buffers().items():
            assert b.intact(), f"{where}: wrote outside {name}"
        for i, (b, x) in enumerate(zip(self.inputs, arrays, strict=True)):
            packed = self.variant.input_format(i).pack(x)
            assert packed.tobytes() == b.array(np.uint8, (-1,)).tobytes(), (
                f"{where}: wrote to input {i}"
            )
        return [self.output(j, where) for j in range(len(self.outputs))]

    @property
    def reported(self) -> bool:
        """Whether the kernel found an index that is out of range."""
        return bool(self.fault.array(np.int64, (5,))[4])

    def buffers(self) -> dict[str, Buffer]:
        out = {f"input {i}": b for i, b in enumerate(self.inputs)}
        out |= {f"output {j}": b for j, b in enumerate(self.outputs)}
        return {
            **out,
            **self.constants,
            "the workspace": self.workspace,
            "the record of faults": self.fault,
            "the sizes": self.told,
        }

    def fill(self, arrays: Sequence[Any]) -> None:
        """Inputs and constants packed into fresh buffers; outputs of 0xFF."""
        given = self.node.given
        self.inputs = [
            _buffer_of(self.variant.input_format(i).pack(np.asarray(x)))
            for i, x in enumerate(arrays)
        ]
        self.outputs = []
        for j, v in enumerate(self.node.outputs):
            size = dims.evaluate(v.spec.nbytes(self.variant.output_format(j)), self.env)
            self.outputs.append(Buffer(size))
        for name, packed in self.artifact.constants:
            self.constants[name] = _buffer_of(packed.apply([v.const for v in given]))

    def arguments(
        self, launch: Launch, at: Callable[[Buffer], int] = lambda b: b.address
    ) -> list[int]:
        """The launch's arguments; ``at`` tells where a buffer lies."""
        values = []
        for a in launch.args:
            if a.kind == "scalar":
                values.append(dims.evaluate(a.value, self.env))
            elif a.kind == "workspace":
                values.append(at(self.workspace) + dims.evaluate(a.value, self.env))
            elif a.kind == "told":
                values.append(at(self.told))
            elif a.kind == "fault":
                values.append(at(self.fault))
                self.fault.array(np.int64, (5,))[3] = values[-1] + 32
            elif a.kind == "constant":
                values.append(at(self.constants[a.name]))
            else:
                values.append(at({"input": self.inputs, "output": self.outputs}[a.kind][a.index]))
        return values

    def output(self, j: int, where: str) -> Any:
        """Output ``j`` as a linear array, its padding lanes checked."""
        v, fmt = self.node.outputs[j], self.variant.output_format(j)
        shape = v.spec.at(self.env)
        stored = self.outputs[j].array(
            v.spec.dtype.numpy, [int(d) for d in fmt.storage_shape(shape)]
        )  # type: ignore[arg-type]
        linear = np.array(fmt.unpack(stored, shape))
        if fmt.lanes > 1:
            again = fmt.pack(linear)
            assert not stored.view(np.uint8)[again.view(np.uint8) != stored.view(np.uint8)].any(), (
                f"{where}: padding lanes of output {j} are not zero"
            )
        return linear


def _buffer_of(array: Any) -> Buffer:
    b = Buffer(array.nbytes)
    b.array(np.uint8, (-1,))[:] = np.frombuffer(array.tobytes(), np.uint8)
    return b


def call(function: Any, arguments: Any, nt: int) -> None:
    """Call a kernel for each thread number, the last first: they must not depend on each other."""
    for tid in reversed(range(nt)):
        function(arguments, tid, nt)


def encode_and_back(n: Node) -> Any:
    """A node's layer and attributes through the plan's JSON."""
    return region.decode(region.encode(n.layer, n.attrs), layer)
