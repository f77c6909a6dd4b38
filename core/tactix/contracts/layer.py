"""Layer: what an operation means. Attribute schema, shape inference, numpy reference; for some a
scalar expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from tactix.base.arrays import Array
from tactix.base.dims import Dim
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.attrs import Attributes, Schema

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True)
class NoAttrs:
    """The schema of a layer without attributes."""


class Layer(Generic[Schema]):
    """An operation. Subclass it, set ``key``, and give ``infer`` and ``reference``.

    ``key``: ``namespace.Name@version``. ``Attrs``: a frozen dataclass whose fields are ints,
    floats, strings, bools, dims, dtypes or tuples of them. ``commutative``: the first two inputs
    may be swapped.
    ``takes_objects``: inputs may be sequences or optionals. ``takes_epilogue``: kernels hold each
    element of the one result in a register before it is stored, so that pointwise layers which read
    it may be computed there; tactics that cannot do so reject fused nodes. ``summarizes``: the one
    result sums up the one input, so that kernels that make that input may do it on the way; tactics
    that cannot do so reject such fused nodes, too. ``chains``: it may stand in one node with the
    layer that makes its first input and is not pointwise either, part of which kernels then hold in
    a cache; tactics that cannot do so reject such fused nodes, too. ``imports``: operators
    of model formats that mean this layer with attributes of the same names, as
    ``"onnx:domain::Op"``. ``beyond``: why no example of it can be written down, for the checks of
    packs. ``tables``: indices of inputs of which a run reads only what the other inputs point to.
    """

    key: str
    Attrs: type[Attributes] = NoAttrs
    commutative: bool = False
    takes_objects: bool = False
    takes_epilogue: bool = False
    summarizes: bool = False
    chains: bool = False
    imports: tuple[str, ...] = ()
    beyond: str = ""
    tables: tuple[int, ...] = ()

    def infer(self, attrs: Schema, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        """Specs of the outputs. Absent optional inputs are None. Raises ShapeError, DTypeError."""
        raise NotImplementedError(f"{self.key}: infer")

    def reference(self, attrs: Schema, *inputs: Array | None) -> tuple[Array, ...]:
        """The meaning: numpy arrays in, a tuple of numpy arrays out. Attributes hold ints where
        they held dims.
        """
        raise NotImplementedError(f"{self.key}: reference")

    @property
    def written(self) -> object:
        """The function that its author wrote for ``infer``, whose place messages tell."""
        return self.infer

    def operations(
        self, attrs: Schema, inputs: Sequence[TensorSpec | None], outputs: list[TensorSpec]
    ) -> Dim:
        """Multiplications, additions and functions of numbers that its meaning takes, a
        multiply-add being two; 0 where nobody counts them.
        """
        if not self.is_pointwise or not outputs:
            return 0
        every = expr.walk([self.scalar(attrs, len(inputs))])
        return outputs[0].numel * sum(s.op not in ("var", "const", "cast") for s in every)

    def bodies(self, attrs: Schema) -> tuple[object, ...]:
        """Networks that running the layer runs: branches, loops. A plan holds a plan of each in the
        layer's step.
        """
        return ()

    def sample(
        self, attrs: Schema, inputs: Sequence[TensorSpec | None], rng: Generator
    ) -> list[object]:
        """Random valid inputs of fixed shapes, for timing and for tests; override where values are
        constrained.
        """
        return [None if s is None else random_array(s, rng) for s in inputs]

    def races(self, attrs: Schema) -> bool:
        """Whether its kernels are run on samples, compared with the reference, and timed; else they
        are taken by estimate.
        """
        return True

    def draws(self, attrs: Schema) -> bool:
        """Whether runs on the same inputs give other results each time: random numbers without a
        seed. Kernels are right then if their numbers are distributed as the reference's.
        """
        return False

    @property
    def is_pointwise(self) -> bool:
        """Whether output elements depend on the input elements of the same (broadcast) position
        alone.
        """
        return False

    def scalar(self, attrs: Schema, arity: int) -> expr.Scalar:
        """The scalar expression of a pointwise layer with that many inputs."""
        raise InvalidArgument(f"{self.key} is not pointwise")

    @property
    def name(self) -> str:
        """The key without namespace and version."""
        return self.key.split("@")[0].split(".", 1)[1]

    def __repr__(self) -> str:
        return f"<layer {self.key}>"


def random_array(spec: TensorSpec, rng: Generator) -> Array:
    """Normal values for floats, small non-negative ones for integers, coin flips for booleans."""
    if spec.const is not None:
        known: Array = spec.const
        return known
    shape = tuple(int(d) for d in spec.shape)  # type: ignore[arg-type]
    if spec.dtype.is_float:
        return rng.standard_normal(shape, dtype="float32").astype(spec.dtype.numpy)
    high = 2 if spec.dtype.value == "bool" else 8
    return rng.integers(0, high, shape).astype(spec.dtype.numpy)
