"""Tactics of kernel source: a function looks at an operation and gives the text of a body, C or
CUDA C++.

    @c_tactic("acme.gemm@1", implements="tactix.MatMul@1", knobs={"rows": (4, 8)})
    def gemm(op, rows):
        a, b = op.inputs
        if b.rank != 2 or {a.dtype, b.dtype} != {DType.FP32}:
            return Reject("a float32 matrix times a float32 matrix")
        return Kernel(BODY, sizes={"m": prod(a.shape[:-1]), "k": a.shape[-1], "n": b.shape[1]})

Names in the body: ``in0``, ``in1``... are the tensors that the layer reads, typed pointers to
row-major elements; ``TX_IN0(i)`` is one element as a number (16-bit floats are stored as
``uint16_t``). ``TX_STORE(i, value)`` gives element ``i`` of the result: whatever is fused behind
the layer (bias, residual, activation) is done there, by any kernel; further results of a layer with
several go by ``TX_STORE1(i, value)``... ``sizes`` are ``int64_t``, whether they are numbers or
follow from symbolic shapes. ``c_NAME`` are packed constants, ``scratch`` is the workspace. All
other names are the author's but those that begin with ``tx_``, ``TX_`` or ``_``. A body does not
run where the result has no element; where an input has none and the result has some, it does, with
sizes of 0.

C runs on ``nt`` threads that all call the body with their ``tid`` (``tx_split(total, grain, tid,
nt, &begin, &end)`` shares a range); CUDA by ``grid`` blocks of ``threads``.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Generic, TypeVar

from tactix.base.dims import Dim, Expr
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, PluginError
from tactix.base.tensor import Format, TensorSpec
from tactix.contracts.artifact import Arg, KernelArtifact, Packed, tensor_in, tensor_out
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant

MOST_VARIANTS = 64
Formats = tuple[Sequence[Format], Sequence[Format]]
LINEAR_ONLY: Sequence[Formats] = (((), ()),)
WORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "constexpr",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "not",
        "nullptr",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "typeof",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "size_t",
        "vf",
        "vi",
        "vm",
        "NULL",
        "NAN",
        "INFINITY",
        "blockIdx",
        "blockDim",
        "gridDim",
        "threadIdx",
        "warpSize",
    ]
)
"""Of C and CUDA C++, and types that every kernel's text uses: no names for sizes."""
TAKEN = re.compile(r"in\d+|scratch|tid|nt|c_\w+|(tx|TX)_\w*|_\w*")
"""What names in a body mean already, and those that generated text has."""


@dataclass(frozen=True)
class Kernel:
    """What an author gives. ``helpers``: functions and macros before the body, own names as
    ``TX_NAME(x)``.

    ``sizes``: integers that the body names. ``constants``: arrays made of constant inputs, see
    ``Operation.packed``.
    ``scratch``: bytes of workspace. ``grid``, ``threads``, ``shared``: blocks, threads of a block
    and bytes of dynamic shared memory, on a GPU. Raises PluginError for a name of sizes or
    constants that C does not take, or that means something in every body already.
    """

    body: str
    helpers: str = ""
    sizes: Mapping[str, Dim] = field(default_factory=dict)
    constants: Mapping[str, tuple[Packed, DType]] = field(default_factory=dict)
    scratch: Dim = 0
    grid: Dim = 1
    threads: int = 256
    shared: Dim = 0

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if not isinstance(size, (Integral, Expr)):
                raise PluginError(
                    f"the size {name!r} is {size!r:.80}",
                    why="sizes are integers, numbers or symbolic",
                    do="Write a number that is no integer into the body, as in f'{x}f'",
                )
            if why := _why_no_size(name):
                raise PluginError(
                    f"no name for a size: {name!r}",
                    why=why,
                    do="Rename it in sizes= and in the body",
                )
        for name in self.constants:
            if not re.fullmatch(r"\w+", name, re.ASCII):
                why = f"the body speaks of it as c_{name}, which is no name in C"
                raise PluginError(
                    f"no name for a constant: {name!r}", why=why, do="Rename it in constants="
                )


def _why_no_size(name: str) -> str:
    """Empty if an ``int64_t`` in the body can be called so."""
    if not (name.isascii() and name.isidentifier()):
        return "it is no name in C"
    if name in WORDS:
        return "it is a word of C or CUDA C++, or a type that every kernel uses"
    return "it means something in every body: see Kernel" if TAKEN.fullmatch(name) else ""


@dataclass(frozen=True)
class Follower:
    """A layer fused behind another: its key and attributes; at ``place`` of its inputs stands the
    result so far.

    ``other``: the node's given input that is its second one; -1 if it has none.
    """

    key: str
    attrs: Any
    place: int = 0
    other: int = -1


class Alias:
    """The type of ``ALIAS``."""


ALIAS = Alias()
"""What the function of a tactic gives where the result is the first input's memory, seen with
another shape.
"""


class Operation:
    """The layer that a tactic implements, as its author sees it.

    ``inputs``: specs of what the layer reads, None where absent; constants have ``const``.
    ``outputs``: specs of what it makes, before anything fused behind it. ``attrs``: the layer's.
    ``device``: properties. ``node``: all of it.
    """

    def __init__(self, node: Node, device: DeviceProperties, variant: Variant) -> None:
        body, anchor = node.body, node.anchor
        self.node, self.device, self.variant = node, device, variant
        layer = anchor or body.nodes[0]
        self.attrs, self.ids = layer.attrs, layer.inputs
        specs = node.specs
        self.inputs: tuple[Any, ...] = tuple(specs[i] if i >= 0 else None for i in self.ids)
        self.outputs: tuple[TensorSpec, ...] = tuple(specs[body.arity : body.arity + layer.outputs])

    @property
    def output(self) -> TensorSpec:
        """The first output's spec."""
        return self.outputs[0]

    def input(self, index: int) -> Arg:
        """The address of what the layer reads at ``index``."""
        return tensor_in(self.ids[index])

    def given(self, index: int) -> Arg:
        """The address of the node's given input: what is fused behind it reads these, too."""
        return tensor_in(index)

    def result(self, index: int = 0) -> Arg:
        """The address of the node's output."""
        return tensor_out(index)

    def followers(self) -> tuple[Follower, ...] | Reject:
        """What is fused behind the layer, as a chain: each follows the last, and reads at most one
        given input more.
        """
        body, out = self.node.body, []
        if self.node.is_fused and body.anchor != 0:
            return Reject("something comes before the layer")
        for index, n in enumerate(body.nodes[1:]):
            last = body.first_id(index)
            others = [i for i in n.inputs if i != last]
            if (
                len(n.inputs) - len(others) != 1
                or len(others) > 1
                or any(not 0 <= i < body.arity for i in others)
            ):
                return Reject("what follows is no chain of layers that read one given tensor each")
            out.append(Follower(n.layer.key, n.attrs, n.inputs.index(last), *others))
        return tuple(out) if len(body.results) == 1 else Reject("several results")

    def packed(self, index: int, *steps: tuple[str, Any]) -> tuple[Packed, DType]:
        """A constant input, taken through steps that ``Packed`` lists. Raises InvalidArgument if it
        is no constant.
        """
        spec = self.inputs[index]
        if spec is None or spec.const is None:
            raise InvalidArgument(
                f"input {index} of {self.node.name} is no constant", do="Return Reject for it"
            )
        kinds = [DType.of(what) for name, what in steps if name == "cast"]
        return Packed(self.ids[index], tuple(steps)), kinds[-1] if kinds else spec.dtype


Author = Callable[..., Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class AuthoredWork(Generic[Made]):
    """What an author's function gave for a node: ``made``, one for each of the ``variants`` that it
    takes.
    """

    node: Node
    variants: tuple[Variant, ...]
    made: tuple[Made, ...]

    def of(self, variant: Variant) -> Made:
        """What was made of a variant."""
        return self.made[self.variants.index(variant)]

    @classmethod
    def by_variant(cls, node: Node, taken: Sequence[tuple[Variant, Made]]) -> AuthoredWork[Made]:
        """Of what was made of each variant that is taken."""
        return cls(node, tuple(v for v, _ in taken), tuple(made for _, made in taken))


class AuthoredTactic(Tactic[AuthoredWork[Made]]):
    """A tactic of an author's function. ``space``: variants, all combinations of formats and knobs.

    Its ``source``, which ``config.tactic_sources`` switches, is its namespace. Raises PluginError
    for no variant, and for more than MOST_VARIANTS.
    """

    def __init__(
        self,
        key: str,
        implements: str | Sequence[str],
        author: Author,
        knobs: Mapping[str, Sequence[Any]],
        formats: Sequence[Formats],
        cost: Callable[..., float | None] | None,
    ) -> None:
        self.key, self.source, self.author, self._cost = key, key.partition(".")[0], author, cost
        self.implements = (implements,) if isinstance(implements, str) else tuple(implements)
        self.__doc__ = author.__doc__
        rows = itertools.product(
            formats, *([(k, v) for v in values] for k, values in knobs.items())
        )
        self.space = [Variant.of(*row[0], **dict(row[1:])) for row in rows]
        if not 0 < len(self.space) <= MOST_VARIANTS:
            raise PluginError(
                f"{len(self.space)} variants", who=key, do=f"Offer 1 to {MOST_VARIANTS}"
            )

    @property
    def written(self) -> object:
        return self.author

    def said(self, node: Node, device: DeviceProperties, variant: Variant) -> Any:
        """What the author's function gives for a variant."""
        return self.author(Operation(node, device, variant), **dict(variant.knobs))

    def variants(self, work: AuthoredWork[Made], device: DeviceProperties) -> Sequence[Variant]:
        return work.variants

    def cost(self, work: AuthoredWork[Made], variant: Variant, ctx: CompileContext) -> float | None:
        if self._cost is None:
            return None
        return self._cost(
            Operation(work.node, ctx.device, variant), dict(ctx.opt), **dict(variant.knobs)
        )


class KernelTactic(AuthoredTactic[Kernel | Alias]):
    """Made by ``c_tactic`` and ``cuda_tactic``."""

    def __init__(
        self,
        key: str,
        implements: str | Sequence[str],
        author: Author,
        *,
        device: str,
        knobs: Mapping[str, Sequence[Any]],
        formats: Sequence[Formats],
        requires: Sequence[str],
        by_signature: bool,
        cost: Callable[..., float | None] | None,
    ) -> None:
        super().__init__(key, implements, author, knobs, formats, cost)
        self.device, self.requires, self.by_signature = device, tuple(requires), by_signature

    def match(self, node: Node, device: DeviceProperties) -> AuthoredWork[Kernel | Alias] | Reject:
        if why := _why_not(node):
            return Reject(why)
        taken: list[tuple[Variant, Kernel | Alias]] = []
        reasons = ["formats other than linear cannot be fused behind"]
        for variant in self.space:
            if node.is_fused and not all(f.is_linear for f in (*variant.inputs, *variant.outputs)):
                continue
            made = self.made(node, device, variant)
            if isinstance(made, Reject):
                reasons.append(made.reason)
            elif isinstance(made, Alias) and node.is_fused:
                reasons.append("what is fused behind needs a kernel")
            else:
                taken.append((variant, made))
        return AuthoredWork.by_variant(node, taken) if taken else Reject(reasons[-1])

    def made(
        self, node: Node, device: DeviceProperties, variant: Variant
    ) -> Kernel | Alias | Reject:
        """What the author says. Raises PluginError for anything else."""
        said = self.said(node, device, variant)
        if isinstance(said, str):
            return Kernel(said)
        if not isinstance(said, Kernel | Alias | Reject):
            raise PluginError(
                f"{self.key} gave {said!r}",
                do="Return a Kernel, the text of its body, a Reject or ALIAS",
            )
        return said

    def compile(
        self, work: AuthoredWork[Kernel | Alias], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        from tactix_sdk import kernel_text

        kernel = work.of(variant)
        if isinstance(kernel, Alias):
            return KernelArtifact("", alias=True)
        write = kernel_text.cuda if self.device == "cuda" else kernel_text.c
        artifact: KernelArtifact = write(Operation(work.node, ctx.device, variant), kernel, ctx)
        return dataclasses.replace(
            artifact, requires=tuple(dict.fromkeys((*artifact.requires, *self.requires)))
        )


def _why_not(node: Node) -> str:
    """What stands in the way of any kernel text; empty if nothing does."""
    from tactix_sdk import kernel_text

    anchor = node.body.nodes[0] if node.anchor is None else node.anchor
    if node.is_fused and node.anchor is None:
        return "a group of pointwise layers"
    if node.is_fused and anchor.outputs > 1:
        return "something is fused behind a layer of several outputs"
    return kernel_text.why_not(node)


def c_tactic(
    key: str,
    implements: str | Sequence[str],
    *,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    formats: Sequence[Formats] = LINEAR_ONLY,
    requires: Sequence[str] = (),
    by_signature: bool = False,
    cost: Callable[..., float | None] | None = None,
) -> Callable[[Author], KernelTactic]:
    """A tactic for the CPU of a function ``(op, **knobs)`` that gives a Kernel, a body's text, a
    Reject or ALIAS.

    ``knobs``: choices by name; all combinations are measured. ``formats``: pairs of input and
    output formats, linear where none are said. ``requires``: device features such as ``avx512f``.
    ``by_signature``: see ``Tactic``.
    ``cost(op, sizes_of_symbols, **knobs)``: seconds, where the builder does not measure. Raises
    PluginError for more than MOST_VARIANTS combinations.
    """
    return _maker(key, implements, "cpu", knobs or {}, formats, requires, by_signature, cost)


def cuda_tactic(
    key: str,
    implements: str | Sequence[str],
    *,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    formats: Sequence[Formats] = LINEAR_ONLY,
    requires: Sequence[str] = (),
    by_signature: bool = False,
    cost: Callable[..., float | None] | None = None,
) -> Callable[[Author], KernelTactic]:
    """As ``c_tactic``, of CUDA C++ for one GPU kernel: header-free, as NVRTC takes it.
    ``requires``: ``sm_80``...
    """
    return _maker(key, implements, "cuda", knobs or {}, formats, requires, by_signature, cost)


def _maker(
    key: str,
    implements: str | Sequence[str],
    device: str,
    knobs: Mapping[str, Sequence[Any]],
    formats: Sequence[Formats],
    requires: Sequence[str],
    by_signature: bool,
    cost: Any,
) -> Callable[[Author], KernelTactic]:
    def wrap(author: Author) -> KernelTactic:
        return KernelTactic(
            key,
            implements,
            author,
            device=device,
            knobs=knobs,
            formats=formats,
            requires=requires,
            by_signature=by_signature,
            cost=cost,
        )

    return wrap
