"""Writing C kernels: the argument list, dims as C text, blocks and loops, vector loads and stores
by dtype.

A kernel is one function over the native ABI: ``void TX_ENTRY(const int64_t* a, int tid, int nt)``.
``Args`` numbers the arguments and names each; ``kernel`` puts the declarations of those names
before the body and makes the artifact:

    args = Args(node)
    x, y = args.input(0), args.output(0)            # "x0", "y0"
    n = args.dim(node.outputs[0].spec.numel)        # "1024" or "d0"
    body = [split(n, grain=16), loop("i", "lo", "hi", f"{y}[i] = {x}[i];")]
    return kernel(args, body, ctx)

Every name is a typed pointer or an ``int64_t``; offsets between dims are computed as Dims in Python
and printed once.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InternalError, ShapeError
from tactix.contracts import artifact as art
from tactix.contracts.artifact import Arg, KernelArtifact, Launch, Packed, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.layout import folded

LAUNCHER = "tactix.cpu.elf@1"
_WORD = re.compile(r"\w+")
_MACRO = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
OTHER_CONTENT = "Give inputs of other content"
"""The cure for most of what kernels refuse."""
COMMENT = 96
"""Columns of comments in kernels."""

_CTYPES = {
    DType.FP64: "double", DType.FP32: "float", DType.FP16: "uint16_t", DType.BF16: "uint16_t",
    DType.INT64: "int64_t", DType.INT32: "int32_t", DType.INT16: "int16_t", DType.INT8: "int8_t",
    DType.UINT64: "uint64_t", DType.UINT32: "uint32_t", DType.UINT16: "uint16_t",
    DType.UINT8: "uint8_t", DType.BOOL: "uint8_t",
}  # fmt: skip


def ctype(dtype: DType) -> str:
    """The C type of a stored element; 16-bit floats as ``uint16_t``. Raises DTypeError."""
    if dtype not in _CTYPES:
        raise DTypeError(f"no C type for {dtype.value}")
    return _CTYPES[dtype]


def has_ctype(*dtypes: DType) -> bool:
    """Whether C kernels know all these dtypes."""
    return all(t in _CTYPES for t in dtypes)


@functools.cache
def prelude(name: str) -> str:
    """A prelude text of ``c/lib`` by file name."""
    return resources.files("tactix_codegen.c.lib").joinpath(name).read_text(encoding="utf-8")


def vector_preludes() -> tuple[str, ...]:
    """Types, masks, loads and stores; other dtypes; vector functions; scalar functions."""
    return tuple(prelude(n) for n in ("vec.h", "convert.h", "math.h", "scalar.h"))


class Args:
    """The argument list of one kernel. Each method returns a C name; asking twice gives the same
    name.

    ``input(i)``: ``x0``, pointer to the given input ``i``. ``output(j)``: ``y0``. ``constant(name,
    packed)``: ``c_name``. ``workspace(offset)``: ``w0``. ``dim(d)``: a literal, or ``d0`` for a
    symbolic one. ``prefix`` stands before all names but those of constants: for kernels whose body
    has names of its own.
    """

    def __init__(self, node: Node, prefix: str = "") -> None:
        self.node, self.prefix = node, prefix
        self.constants: dict[str, Packed] = {}
        self._args: dict[Arg, str] = {}
        self._types: dict[str, str] = {}
        self._sizes: dict[str, Dim] = {}
        self.refusals: list[tuple[str, str]] = []

    def element_type(self, dtype: DType) -> str:
        """The C type of a stored element. Raises DTypeError."""
        return ctype(dtype)

    def _add(self, arg: Arg, name: str, ctype_: str) -> str:
        if arg not in self._args:
            self._args[arg] = name
            self._types[name] = ctype_
        return self._args[arg]

    def input(self, index: int) -> str:
        """Typed pointer to the node's given input ``index``."""
        return self._add(
            art.tensor_in(index),
            f"{self.prefix}x{index}",
            f"const {self.element_type(self.node.given[index].spec.dtype)}*",
        )

    def output(self, index: int = 0) -> str:
        """Typed pointer to output ``index``."""
        kind = self.element_type(self.node.outputs[index].spec.dtype)
        return self._add(art.tensor_out(index), f"{self.prefix}y{index}", f"{kind}*")

    def bytes_in(self, index: int) -> str:
        """``const char*`` to the given input ``index``, for kernels that only move bytes."""
        return self._add(art.tensor_in(index), f"{self.prefix}x{index}", "const char*")

    def bytes_out(self, index: int = 0) -> str:
        """``char*`` to output ``index``."""
        return self._add(art.tensor_out(index), f"{self.prefix}y{index}", "char*")

    def constant(self, name: str, packed: Packed, dtype: DType = DType.FP32) -> str:
        """Pointer to a packed constant of that dtype."""
        self.constants[name] = packed
        return self._add(art.constant(name), f"c_{name}", f"const {ctype(dtype)}*")

    def workspace(self, offset: Dim = 0, ctype_: str = "float") -> str:
        """Pointer into the workspace, ``offset`` bytes from its start."""
        count = sum(a.kind == "workspace" for a in self._args)
        return self._add(art.workspace(offset), f"{self.prefix}w{count}", f"{ctype_}*")

    def dim(self, d: Dim) -> str:
        """A dim as C: a literal, or the name of a scalar argument."""
        if isinstance(d, int):
            return str(d)
        count = sum(a.kind == "scalar" for a in self._args)
        return self._add(art.scalar(d), f"{self.prefix}d{count}", "int64_t")

    def size(self, name: str, d: Dim) -> str:
        """``name`` itself, which the kernel declares as that dim: for sizes that readers should
        know by a name.

        Raises InternalError for a name that stands for another dim already.
        """
        if self._sizes.setdefault(name, d) != d:
            raise InternalError(
                f"{name} stands for {self._sizes[name]} and for {d}", who=self.node.name
            )
        self.dim(d)
        return name

    def fault(self) -> str:
        """Pointer to the record in which ``tx_index`` reports an index that is out of range."""
        return self._add(art.fault(), "fault", "int64_t*")

    def refuse(self, text: str, first: str, second: str = "0", do: str = OTHER_CONTENT) -> str:
        """Statement that makes the run fail with that text, where ``{0}`` and ``{1}`` stand for two
        integers, and a cure; ``move.h`` has what it calls.
        """
        if (text, do) not in self.refusals:
            self.refusals.append((text, do))
        reason = 2 + self.refusals.index((text, do))
        return f"tx_refuse({self.fault()}, {reason}, {first}, {second});"

    def tell(self, fresh: Mapping[str, str]) -> list[str]:
        """Statements that tell what the symbols among the dims of outputs stand for (see
        ``artifact.told``): C by the names of those that the inputs' shapes do not have.
        """
        told = self._add(art.told(), "told", "int64_t*")
        dims_of_outputs = dict.fromkeys(d for v in self.node.outputs for d in v.spec.shape)
        named = [(n, d) for d in dims_of_outputs if (n := dims.symbol_name(d))]
        return [f"{told}[{i}] = {fresh.get(n) or self.dim(d)};" for i, (n, d) in enumerate(named)]

    def phase(self, value: int = 0) -> str:
        """For kernels of several launches, see ``launches``: the name of the launch's number."""
        return self._add(Arg("phase", value), "phase", "int64_t")

    def declarations(self, text: str) -> list[str]:
        """One C declaration for each name that ``text`` uses, to stand at the head of the function.

        With a ``prefix`` one for each name: an author's macros may put them together.
        """
        sizes = self.size_declarations(text)
        used = set(_WORD.findall("\n".join([text, *sizes])))
        return [
            *(
                self._declaration(n, i)
                for i, n in enumerate(self._args.values())
                if self.prefix or n in used
            ),
            *sizes,
        ]

    def _declaration(self, name: str, index: int) -> str:
        kind = self._types[name]
        return (
            f"{kind} {name} = ({kind})a[{index}];"
            if kind.endswith("*")
            else f"const {kind} {name} = a[{index}];"
        )

    def size_declarations(self, text: str) -> list[str]:
        """Of the names that ``size`` gave and ``text`` uses: one enumeration of known ones, then
        the others.
        """
        used = set(_WORD.findall(text))
        sizes = {name: d for name, d in self._sizes.items() if name in used}
        known = ", ".join(f"{name} = {d}" for name, d in sizes.items() if isinstance(d, int))
        others = [
            f"const int64_t {name} = {self.dim(d)};"
            for name, d in sizes.items()
            if not isinstance(d, int)
        ]
        return [*([f"enum {{ {known} }};"] if known else []), *others]

    def launches(self, phases: int = 1, telling: int = 0) -> tuple[Launch, ...]:
        """One launch with the arguments in order; with ``phase`` used, one per phase, in order, a
        barrier between. The first ``telling`` phases tell sizes (``tell``): they get 0 for outputs
        and for what follows from these sizes.
        """
        return tuple(
            Launch(tuple(self._at_phase(a, p, p < telling) for a in self._args))
            for p in range(phases)
        )

    def _at_phase(self, arg: Arg, phase: int, telling: bool) -> Arg:
        if arg.kind == "phase":
            return art.scalar(phase)
        late = arg.kind == "output" or dims.symbols(arg.value) & fresh_symbols(self.node)
        return art.scalar(0) if telling and late else arg

    @staticmethod
    def sum(*terms: str) -> str:
        """``a + b + c`` without zeros."""
        return " + ".join(t for t in terms if t != "0") or "0"

    def offset(self, strides: Sequence[Dim], indices: Sequence[str]) -> str:
        """``i0 * stride0 + i1 * stride1`` as C, terms of stride 0 left out."""
        terms = []
        for s, i in zip(strides, indices, strict=True):
            if s != 0 and i != "0":
                terms.append(i if s == 1 else f"{i} * {self.dim(s)}")
        return " + ".join(terms) or "0"


def fresh_symbols(node: Node) -> frozenset[str]:
    """Symbols of output shapes that no input's shape has: only running tells them."""
    known = frozenset[str]().union(*(dims.symbols(d) for v in node.given for d in v.spec.shape))
    named = (dims.symbol_name(d) for v in node.outputs for d in v.spec.shape)
    return frozenset(n for n in named if n) - known


def times(count: int, size: str) -> str:
    """``count * size`` as C, without a factor 1; ``0`` for none."""
    return "0" if count == 0 else size if count == 1 else f"{count} * {size}"


def comment(text: str) -> str:
    """A comment of C, of as many lines as it needs."""
    lines = textwrap.wrap(text, COMMENT)
    return "/* " + "\n * ".join(lines) + (" */" if len(lines) == 1 else "\n */")


def indent(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else line for line in text.split("\n"))


def block(head: str, *body: str) -> str:
    """``head { body }`` over several lines; empty parts are left out."""
    return f"{head}{' ' * bool(head)}{{\n{indent(chr(10).join(b for b in body if b))}\n}}"


def choice(condition: str, then: Sequence[str], otherwise: Sequence[str]) -> str:
    """``if (condition) { then } else { otherwise }``."""
    return f"{block(f'if ({condition})', *then)} {block('else', *otherwise)}"


def loop(index: str, begin: str, end: str, *body: str, step: int | str = 1) -> str:
    """``for`` over an ``int64_t`` index from ``begin`` up to but not including ``end``."""
    increment = f"{index}++" if step == 1 else f"{index} += {step}"
    return block(f"for (int64_t {index} = {begin}; {index} < {end}; {increment})", *body)


def split(total: str, grain: int | str = 1, begin: str = "lo", end: str = "hi") -> str:
    """Declare this thread's part [begin, end) of ``total`` units, both multiples of ``grain``
    except the last end.
    """
    return f"int64_t {begin}, {end};\ntx_split({total}, {grain}, tid, nt, &{begin}, &{end});"


def at_most(threads: int) -> list[str]:
    """For kernels with room for so many threads: any more have nothing to do."""
    return [f"nt = nt < {threads} ? nt : {threads};", "if (tid >= nt) return;"]


def decode(index: str, names: Sequence[str], sizes: Sequence[str]) -> str:
    """Declare ``names`` as the row-major coordinates of the flat ``index`` in ``sizes``."""
    out, rest = [], index
    for k in range(len(names) - 1, 0, -1):
        out.append(
            f"const int64_t {names[k]} = {rest} % {sizes[k]}, q{names[k]} = {rest} / {sizes[k]};"
        )
        rest = f"q{names[k]}"
    return "\n".join([*out, *([f"const int64_t {names[0]} = {rest};"] if names else [])])


def load(dtype: DType, pointer: str, count: str = "") -> str:
    """A vector of ``TX_LANES`` elements at ``pointer``, or of the first ``count`` with zeros after
    them.

    Floats give ``vf``, 8- to 32-bit integers ``vi``, bool ``vm``.
    """
    return (
        f"tx_load_{dtype.value}({pointer})"
        if not count
        else f"tx_load_n_{dtype.value}({pointer}, {count})"
    )


def splat(dtype: DType, pointer: str) -> str:
    """The element at ``pointer`` in all lanes."""
    return f"tx_splat_{dtype.value}({pointer})"


def store(dtype: DType, pointer: str, value: str, count: str = "") -> str:
    """Statement that stores a vector (``vf``, ``vi``, ``vm`` as for ``load``), or its first
    ``count`` lanes.
    """
    if count:
        return f"tx_store_n_{dtype.value}({pointer}, {value}, {count});"
    return f"tx_store_{dtype.value}({pointer}, {value});"


def keep(dtype: DType, value: str, count: str) -> str:
    """A vector with zero after its first ``count`` lanes."""
    kind = "" if dtype.is_float else "_m" if dtype is DType.BOOL else "_i"
    return f"tx_keep{kind}({value}, {count})"


def vector_type(dtype: DType) -> str:
    """The C type of a loaded vector."""
    return "vf" if dtype.is_float else "vm" if dtype is DType.BOOL else "vi"


def kernel(
    args: Args,
    body: Iterable[str],
    ctx: CompileContext,
    *,
    helpers: str = "",
    preludes: tuple[str, ...] | None = None,
    workspace: Dim = 0,
    phases: int = 1,
    telling: int = 0,
    in_place: bool = False,
    straight: bool = False,
) -> KernelArtifact:
    """The artifact of a kernel whose function body is ``body``; ``helpers`` are C functions named
    ``TX_NAME(x)``; ``phases`` and ``telling`` as in ``Args.launches``; ``in_place``: whether output
    0 may be the memory of input 0 (``KernelArtifact.in_place``); ``straight`` as of ``Source``.
    """
    from tactix_codegen.c.target import required_features

    head = "void TX_ENTRY(const int64_t* a, int tid, int nt)"
    lines = list(body)
    macros = _MACRO.findall(helpers)
    text = folded(block(head, *args.declarations("\n".join([*macros, *lines])), *lines))
    whole = f"{folded(helpers)}\n{text}\n" if helpers else f"{text}\n"
    source = Source("c", whole, preludes or vector_preludes(), straight=straight)
    params: dict[str, object] = {}
    if args.refusals:
        params["refusals"] = [list(r) for r in args.refusals]
    if in_place:
        params["in_place"] = [[0, 0]]
    return KernelArtifact(
        launcher=LAUNCHER,
        launches=args.launches(phases, telling),
        code=source,
        workspace=workspace,
        constants=tuple(args.constants.items()),
        requires=required_features(ctx.device),
        params=params,
    )


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides in elements."""
    return tuple(dims.prod(shape[i + 1 :]) for i in range(len(shape)))


def broadcast_strides(shape: Sequence[Dim], out: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides in elements of a row-major tensor along the dims of the shape it broadcasts to; 0
    where it repeats.

    Raises ShapeError where that depends on the values of symbols.
    """
    for d, o in zip(shape, out[len(out) - len(shape) :], strict=True):
        if d != o and d != 1:
            raise ShapeError(f"whether {d} broadcasts to {o} is not known before running")
    return running_strides(shape, out)


def running_strides(shape: Sequence[Dim], out: Sequence[Dim]) -> tuple[Dim, ...]:
    """As ``broadcast_strides``; a dim of which only running tells whether it repeats has a stride
    that is 0 if it does.

    For kernels that take any number for a stride.
    """
    pad = len(out) - len(shape)
    own = zip(shape, contiguous_strides(shape), out[pad:], strict=True)
    return (*(0,) * pad, *(s * dims.along(d, o) for d, s, o in own))


def traffic(
    node: Node, variant: Variant, ctx: CompileContext, bandwidth: float = 8e9
) -> float | None:
    """Seconds to move the node's tensors once at ``bandwidth`` bytes/s, plus 1 us; None where a
    symbol has no value.
    """
    total: Dim = 0
    for i, v in enumerate(node.given):
        total = total + v.spec.nbytes(variant.input_format(i))
    for j, v in enumerate(node.outputs):
        total = total + v.spec.nbytes(variant.output_format(j))
    if not dims.symbols(total) <= set(ctx.opt):
        return None
    return 1e-6 + dims.evaluate(total, ctx.opt) / bandwidth


START = 1e-6
"""Seconds that any kernel is thought to need."""


def seconds(ctx: CompileContext, *costs: tuple[Dim, float]) -> float | None:
    """``START``, and for each of ``costs`` a number of things by the seconds that each takes; None
    where a symbol has no value.
    """
    if not all(dims.symbols(count) <= set(ctx.opt) for count, _ in costs):
        return None
    return START + sum(dims.evaluate(count, ctx.opt) * each for count, each in costs)
