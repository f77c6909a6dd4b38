"""Random networks for hypothesis, with inputs for several shapes and how exact their outputs can
be.

A Grower adds layers whose attributes and inputs are drawn (``growers.py`` and ``movers.py`` have a
function a kind). Every layer is run at once by its reference: on plain numbers, and several times
on numbers disturbed by a few units in the last place. How far those runs fall apart is what
rounding may do to a tensor; a layer that makes it large, or that overflows, is dropped. A tensor is
*exact* if every correct implementation gives the same bits; only such ones go into layers that jump
(Floor, comparisons, ArgMax), and those of 16 bits that are correctly rounded *once*: kernels may
keep more of them than the network does, but not where a jump or a cast to another type shows it.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tactix
from tactix.base.dims import Dim, evaluate, evaluate_shape, sym, symbol_name
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value, run_node
from tactix.network.definition import NetworkDefinition
from tactix.select.accuracy import BUDGET
from tactix_sdk.show import show

Array = Any
Arrays = list[Array]

F32, F64, F16, BF16 = DType.FP32, DType.FP64, DType.FP16, DType.BF16
I32, I64, I8, U8, BOOL = DType.INT32, DType.INT64, DType.INT8, DType.UINT8, DType.BOOL
FLOATS, INTS = (F32, F64, F16, BF16), (I32, I64, I8, U8)
NUMBERS, ALL = FLOATS + INTS, (*FLOATS, *INTS, BOOL)
FRESH = (*(F32,) * 10, F64, F16, BF16, I32, I64, I8, U8, BOOL)

ROUNDING = {F64: 1e-15, F32: 5e-7, F16: 1e-3, BF16: 8e-3}
"""Relative error of a layer's inputs and of its outputs in a disturbed run."""
RUNS = 3
SLACK = 8.0
"""Allowed error in units of the largest departure of the disturbed runs."""
MOST_ELEMENTS, LARGEST, WORST = 12000, 1e4, 0.05
DIMS: tuple[int | str, ...] = (3, "n", 2, 1, "s", 5, 7, 4, 16, 17, 33, 8)

JUMPS = frozenset(("Floor", "Ceil", "Round", "Sign"))
EXACT = frozenset((
    "Neg", "Abs", "Relu", "Min", "Max", "Clip", "Where", "Floor", "Ceil", "Round", "Sign", "Cast", "Mod", "Transpose",
    "Reshape", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Pad", "Tile", "MaxPool",
    "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Hardmax", "Shape", "Fill", "Dims", "ThresholdedRelu", "Shrink",
    "ScatterElements",
))  # fmt: skip
"""Layers that keep exact tensors exact."""
ONCE = frozenset(("Add", "Sub", "Mul", "Div"))
"""Layers that round correctly: of exact tensors in 16 bits they make the same bits, where that
rounding shows.
"""


class Unfit(Exception):
    """The layer that was to be added does not suit."""


@functools.cache
def builder() -> tactix.Builder:
    """One session for all tests: its plugins are loaded once."""
    return tactix.Builder()


class Grower:
    """A network that grows. ``envs``: values of the symbols; ``known``: beside each, what every
    tensor holds.
    """

    def __init__(
        self,
        draw: Callable[[Any], Any],
        envs: Sequence[dict[str, int]],
        seed: int,
        types: Sequence[DType] = FRESH,
    ) -> None:
        self.draw, self.envs, self.types = draw, [dict(e) for e in envs], types
        self.net: NetworkDefinition = builder().create_network("random")
        self.rng = np.random.default_rng(seed)
        self.pool: list[Value] = []
        self.exact: set[Value] = set()
        self.once: set[Value] = set()
        self.shown: set[Value] = set()
        self.known: list[dict[Value, Arrays]] = [{} for _ in envs]

    # -- drawing ----------------------------------------------------------------------------------

    def int(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.int(0, len(options) - 1)]

    def permuted(self, count: int) -> tuple[int, ...]:
        """The numbers below ``count`` in any order."""
        return tuple(self.draw(st.permutations(range(count))))

    def flag(self, chance: int = 2) -> bool:
        """True once in ``chance`` times."""
        return self.int(0, chance - 1) == chance - 1

    def dim(self) -> Dim:
        d = 0 if self.flag(40) else self.one(DIMS)
        return sym(d) if isinstance(d, str) else d

    def shape(self, low: int, high: int) -> tuple[Dim, ...]:
        out: list[Dim] = []
        for _ in range(self.int(low, high)):
            d = self.dim()
            out.append(d if self.fits((*out, d)) else 1)
        return tuple(out)

    # -- sizes ------------------------------------------------------------------------------------

    def sizes(self, d: Dim) -> list[int]:
        """The dim's value in each environment."""
        return [evaluate(d, e) for e in self.envs]

    def least(self, d: Dim) -> int:
        return min(self.sizes(d))

    def fits(self, shape: Sequence[Dim]) -> bool:
        """Whether the shape is one, and small, in every environment."""
        shapes = [evaluate_shape(shape, e) for e in self.envs]
        return all(min(s, default=0) >= 0 and np.prod(s) <= MOST_ELEMENTS for s in shapes)

    def maybe_one(self, n: int) -> Dim:
        """A symbol that is 1 or ``n``: whether it broadcasts is only known when shapes are set."""
        for e in self.envs:
            e.setdefault(f"u{n}", n if self.flag() else 1)
        return sym(f"u{n}")

    # -- tensors ----------------------------------------------------------------------------------

    def fresh(
        self, dtype: DType, shape: Sequence[Dim], constant: bool = False, fill: Any = None
    ) -> Value:
        """A new input, or a constant if the shape has no symbols and it shall be one; ``fill(rng,
        shape)`` makes it.
        """
        shape = tuple(shape)
        if not self.fits(shape):
            raise Unfit
        make = fill or functools.partial(numbers, dtype=dtype)
        if constant and all(isinstance(d, int) for d in shape):
            array = np.asarray(make(self.rng, shape)).astype(dtype.numpy)
            value = self.net.add_constant(array)
            arrays = [array] * len(self.envs)
        else:
            value = self.net.add_input(f"x{len(self.net.inputs)}", dtype, shape)
            made = [np.asarray(make(self.rng, evaluate_shape(shape, e))) for e in self.envs]
            arrays = [a.astype(dtype.numpy) for a in made]
        for known, array in zip(self.known, arrays, strict=True):
            known[value] = [array] * (RUNS + 1)
        self.exact.add(value)
        return value

    def take(
        self,
        dtypes: Sequence[DType] = ALL,
        low: int = 0,
        high: int = 5,
        exact: bool = False,
        when: Callable[[Value], bool] = lambda v: True,
        new: Callable[[DType], Value] | None = None,
    ) -> Value:
        """A tensor of the pool that suits, latest first, or a new one."""
        known = self.exact | self.once if exact else set(self.pool)
        fit = [
            v for v in reversed(self.pool) if v.spec.dtype in dtypes and low <= v.spec.rank <= high
        ]
        found = [v for v in fit if v in known and when(v)]
        index = self.int(0, len(found) + len(found) // 4)
        if index < len(found):
            return found[index]
        dtype = self.one([t for t in self.types if t in dtypes] or dtypes)
        made = new(dtype) if new else self.fresh(dtype, self.shape(low, high))
        if not when(made):
            raise Unfit
        self.pool.append(made)
        return made

    def add(self, layer: str, inputs: Sequence[Value | None], **attrs: Any) -> tuple[Value, ...]:
        """Add a layer and run it. Raises Unfit where the result is too large, not finite, or mostly
        rounding error.
        """
        out = self.net.add_layer(f"tactix.{layer}", inputs, **attrs)
        if not all(self.fits(v.spec.shape) for v in out):
            raise Unfit
        node = out[0].producer
        assert node is not None
        self._judge(layer, node)
        for env, known in zip(self.envs, self.known, strict=True):
            self._run(node, env, known)
        self.pool += out
        return out

    def _judge(self, layer: str, node: Node) -> None:
        """Note which results are exact, and which are correctly rounded once."""
        same = layer in EXACT and all(v in self.exact for v in node.given)
        self.exact.update(v for v in node.outputs if same or not v.spec.dtype.is_float)
        if same or not all(v in self.exact | self.once for v in node.given):
            return
        kinds = {v.spec.dtype for v in (*node.given, *node.outputs)}
        if layer in (JUMPS | {"Cast"}) and (layer in JUMPS or len(kinds) > 1):
            self.exact.update(node.outputs)
        elif layer in EXACT or (
            layer in ONCE and all(v in self.exact for v in node.given) and kinds <= {F16, BF16}
        ):
            self.once.update(v for v in node.outputs if v not in self.exact)

    def _run(self, node: Node, env: dict[str, int], known: dict[Value, Arrays]) -> None:
        runs = [run(node, [None if v is None else known[v][0] for v in node.inputs], env)]
        for v, array in zip(node.outputs, runs[0], strict=True):
            check_spec(v, array, env)
        for i in range(1, RUNS + 1):
            if all(v in self.exact for v in node.outputs):
                runs.append(runs[0])
                continue
            rough = [None if v is None else disturbed(known[v][i], self.rng) for v in node.inputs]
            runs.append([disturbed(y, self.rng) for y in run(node, rough, env)])
        for v, arrays in zip(node.outputs, zip(*runs, strict=True), strict=True):
            known[v] = list(arrays)
            if not is_sound(known[v]):
                raise Unfit

    def finish(self) -> Case:
        """Mark what nothing reads, and some more, as outputs."""
        given = {symbol_name(d) for v in self.net.inputs for d in v.spec.shape}
        if lost := [s for s in self.envs[0] if s not in given]:
            self.fresh(F32, [sym(s) for s in lost])
        read = {v for v in self.pool if v.producer for v in v.producer.given}
        for v in self.pool:
            if (v.producer is not None and v not in read) or v in self.shown or self.flag(5):
                self.net.mark_output(v, f"y{len(self.net.outputs)}")
        outputs = dict(zip(self.net.output_names, self.net.outputs, strict=True))
        feeds = [{v.name: known[v][0] for v in self.net.inputs} for known in self.known]
        slack = [{k: spread(known[v]) for k, v in outputs.items()} for known in self.known]
        return Case(self.net, self.envs, feeds, slack)


class Case:
    """A network, inputs by name for each of ``envs``, and beside them what rounding does to each
    output.
    """

    def __init__(
        self,
        net: NetworkDefinition,
        envs: list[dict[str, int]],
        feeds: list[dict[str, Array]],
        slack: list[dict[str, float]],
    ) -> None:
        self.net, self.envs, self.feeds, self.slack = net, envs, feeds, slack

    def __repr__(self) -> str:
        return f"\n{show(self.net)}\nat {self.envs}\n"


# -- numbers -------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normal floats; whole numbers of both signs where there are any."""
    if dtype.is_float:
        return rng.standard_normal(shape) * rng.choice([1.0, 1.0, 3.0])
    if dtype is BOOL:
        return rng.integers(0, 2, shape)
    return rng.integers(-9 if dtype.is_signed_int else 0, 10, shape)


def disturbed(x: Array, rng: np.random.Generator) -> Array:
    """Every float a few units in the last place off."""
    dtype = DType.of(x.dtype)
    if not dtype.is_float:
        return x
    wide = x.astype(np.float64)
    return (wide * (1 + rng.uniform(-1, 1, x.shape) * ROUNDING[dtype])).astype(x.dtype)


def run(node: Node, inputs: Arrays, env: dict[str, int]) -> Arrays:
    """The node's reference; what it warns of is judged by its results."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return [np.asarray(y) for y in run_node(node, inputs, env)]


def inside(
    net: NetworkDefinition, feed: Mapping[str, Array], env: dict[str, int]
) -> dict[Value, Array]:
    """What every tensor of the network holds."""
    known: dict[Value, Array] = {v: feed[v.name] for v in net.inputs} | {
        v: v.const for v in net.constants
    }
    for n in net.nodes:
        known.update(
            zip(
                n.outputs,
                run(n, [None if v is None else known[v] for v in n.inputs], env),
                strict=True,
            )
        )
    return known


def check_spec(v: Value, array: Array, env: dict[str, int]) -> None:
    """What inference says of a tensor must hold for what the reference makes."""
    where = f"{v.producer} {v.spec} at {env}"
    assert array.shape == v.spec.at(env), f"{where}: the reference gives {array.shape}"
    assert DType.of(array.dtype) is v.spec.dtype, f"{where}: the reference gives {array.dtype}"
    if v.spec.value is not None:
        assert [evaluate(d, env) for d in v.spec.value] == array.ravel().tolist(), (
            f"{where}: {v.spec.value}"
        )


def spread(arrays: Arrays) -> float:
    """The largest departure of the disturbed runs from the plain one."""
    plain, *rough = (a.astype(np.float64) for a in arrays)
    return max((float(np.abs(r - plain).max(initial=0)) for r in rough), default=0.0)


def is_sound(arrays: Arrays) -> bool:
    """Whether a tensor is finite, of moderate size, and not mostly rounding error."""
    plain = arrays[0]
    if not DType.of(plain.dtype).is_float:
        return True
    if not all(np.isfinite(a.astype(np.float64)).all() for a in arrays):
        return False
    largest = float(np.abs(plain.astype(np.float64)).max(initial=0))
    return largest <= LARGEST and spread(arrays) <= WORST * max(largest, 1e-3)


def error(got: Array, want: Array, slack: float) -> float:
    """How far a result is off, in units of what its dtype's budget and rounding inside the network
    allow.
    """
    dtype = DType.of(want.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if dtype not in BUDGET:
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return float("inf")
    scale = float(np.abs(b[finite]).max(initial=1e-3))
    return float(np.abs(a[finite] - b[finite]).max(initial=0)) / (
        BUDGET[dtype] * scale + SLACK * slack
    )


# -- strategies ----------------------------------------------------------------------------------


@st.composite
def environments(draw: Callable[[Any], Any], count: int = 2) -> list[dict[str, int]]:
    """Values of n, which may be 0, and of s."""
    return [
        {
            "n": draw(st.sampled_from([2, 1, 3, 0, 5])),
            "s": draw(st.sampled_from([4, 1, 7, 17, 2, 20])),
        }
        for _ in range(count)
    ]


KINDS: dict[str, Callable[[Grower], None]] = {}
"""Growers by name; importing ``growers`` and ``movers`` fills it."""
OFTEN = (
    "convolution",
    "pool",
    "reduction",
    "matmul",
    "binary",
    "convolution",
    "layer_norm",
    "concat",
    "transpose",
)


@st.composite
def networks(
    draw: Callable[[Any], Any],
    low: int = 3,
    high: int = 12,
    only: Sequence[str] = (),
    types: Sequence[DType] = FRESH,
) -> Case:
    """A network of ``low`` to ``high`` layers (and what they need), most of them reading what
    others made.

    ``types``: of new tensors, as often as they are named.
    """
    g = Grower(draw, draw(environments()), draw(st.integers(0, 2**16)), types)
    names = only or [*KINDS, *OFTEN]
    return grown(g, (draw(st.sampled_from(names)) for _ in range(draw(st.integers(low, high)))))


def grown(g: Grower, kinds: Iterable[str]) -> Case:
    """The network with layers of these KINDS, but those that do not fit."""
    for kind in kinds:
        with contextlib.suppress(Unfit):
            KINDS[kind](g)
    if not any(v.producer for v in g.pool):
        g.add("Relu", [g.fresh(F32, (sym("n"), 3))])
    return g.finish()
