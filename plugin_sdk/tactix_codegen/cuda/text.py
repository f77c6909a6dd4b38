"""Writing CUDA kernels: parameters, launch grids, index types, vector accesses.

A kernel is one ``__global__`` function whose parameters are the launch's arguments in order.
Tensors, constants and workspaces start at addresses that 16 divides; accesses of V elements follow
from that and from strides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import Arg, KernelArtifact, Launch, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import block
from tactix_codegen.cuda.target import required_features
from tactix_codegen.layout import folded

LAUNCHER = "tactix.cuda.cubin@1"
WAIT = "tx_wait_for_others();"
"""What a kernel begins with whose artifact has WAITS among its params."""
WAITS = {"waits": True}
BLOCK = 256
"""Threads of a block, unless a kernel says otherwise."""
BANDWIDTH = 3e12
"""Bytes per second that estimates assume."""
_WIDEST = 16
"""Bytes that one access moves at most."""
FP8 = (DType.FP8, DType.FP8E5M2)
"""Floats of 8 bits that kernels read and write (``fp8.cuh``); they are computed in float32."""


@functools.cache
def prelude(name: str) -> str:
    """A prelude text by file name: of ``c/lib`` where it is C, else of ``cuda/lib``."""
    if name.endswith(".h"):
        return c_text.prelude(name)
    return resources.files("tactix_codegen.cuda.lib").joinpath(name).read_text(encoding="utf-8")


def preludes(*more: str) -> tuple[str, ...]:
    """Types, 16-bit floats, functions of single numbers, vector accesses; then ``more``."""
    return tuple(map(prelude, ("base.cuh", "half.cuh", "scalar.h", "vector.cuh", *more)))


class CudaArgs(c_text.Args):
    """The argument list of a kernel as parameters of a ``__global__`` function."""

    def element_type(self, dtype: DType) -> str:
        return "uint8_t" if dtype in FP8 else super().element_type(dtype)

    def preludes(self) -> tuple[str, ...]:
        """Names of preludes that the node's dtypes need beside those of all kernels."""
        found = {s.dtype for s in self.node.specs}
        return ("fp8_convert.cuh", "fp8.cuh") if found & set(FP8) else ()

    def parameters(self) -> str:
        """The parameter list, one for each name given so far."""
        return ", ".join(f"{self._parameter(self._types[n])} {n}" for n in self._args.values())

    def _parameter(self, ctype: str) -> str:
        return f"{ctype} __restrict__" if ctype.endswith("*") else f"const {ctype}"

    def arguments(self) -> tuple[Arg, ...]:
        """The arguments in the parameters' order."""
        return tuple(self._args)


def kernel(
    args: CudaArgs,
    body: Iterable[str],
    ctx: CompileContext,
    grid: Dim,
    *,
    threads: int = BLOCK,
    helpers: str = "",
    more: Sequence[str] = (),
) -> KernelArtifact:
    """The artifact of a kernel of ``grid`` blocks (at least one is started) with that body."""
    head = f'extern "C" __global__ void __launch_bounds__({threads}) TX_ENTRY({args.parameters()})'
    lines = list(body)
    text = folded(block(head, *args.size_declarations("\n".join(lines)), WAIT, *lines))
    return KernelArtifact(
        launcher=LAUNCHER,
        launches=(Launch(args.arguments(), (dims.dmax(grid, 1),), (threads,)),),
        code=Source(
            "cuda_c",
            f"{helpers}\n{text}\n" if helpers else f"{text}\n",
            preludes(*args.preludes(), *more),
        ),
        constants=tuple(args.constants.items()),
        requires=required_features(ctx.device),
        params=WAITS,
    )


def struct(name: str, values: Mapping[str, int], about: Mapping[str, str], *functions: str) -> str:
    """A struct ``TX_NAME(name)`` of constants, which templates ask for; ``about``: what they are,
    by name.
    """
    lines = [
        f"static const int {k} = {v};{f'  // {about[k]}' if k in about else ''}"
        for k, v in values.items()
    ]
    return block(f"struct TX_NAME({name})", *lines, *functions) + ";\n"


def index_type(*counts: Dim) -> str:
    """The C type for positions below all those counts: ``int`` where they are known to be small."""
    small = all(isinstance(n, int) and n < 2**31 - 2**16 for n in counts)
    return "int" if small else "int64_t"


def flat(args: CudaArgs, kind: str, total: Dim) -> list[str]:
    """Declare ``t``, this thread's number, and leave where it is not below ``total``."""
    return [
        f"const {kind} t = ({kind})blockIdx.x * {BLOCK} + (int)threadIdx.x;",
        f"if (t >= {args.dim(total)}) return;",
    ]


def blocks(total: Dim, each: int = BLOCK) -> Dim:
    """Blocks of ``each`` threads for so many."""
    return dims.ceildiv(total, each)


def decode(kind: str, index: str, names: Sequence[str], sizes: Sequence[str]) -> str:
    """Declare ``names`` as the row-major coordinates of ``index``, of the C type ``kind``."""
    return c_text.decode(index, names, sizes).replace("const int64_t ", f"const {kind} ")


def divides(k: int, *values: Dim) -> bool:
    """Whether ``k`` divides all values, whatever the symbols are."""
    return all(dims.mod(v, k) == 0 for v in values)


def widest(dtype: DType) -> int:
    """Elements that one access moves at most."""
    return _WIDEST // dtype.itemsize


def vector_width(
    last: Dim, moves: Sequence[tuple[DType, Sequence[Dim]]], whole: bool = True
) -> int:
    """Neighbours along the last loop, of ``last`` steps, that a thread takes with accesses of up to
    16 bytes.

    ``moves``: dtype and strides of every operand. ``whole``: the loop's length must be a multiple
    of the width.
    """
    v = min((widest(t) for t, _ in moves), default=1)
    while v > 1 and not ((not whole or divides(v, last)) and all(_even(v, s) for _, s in moves)):
        v //= 2
    return max(v, 1)


def _even(v: int, strides: Sequence[Dim]) -> bool:
    return strides[-1] != 1 or divides(v, *strides[:-1])


def number_type(dtype: DType) -> str:
    """The C type that elements of a dtype are computed in."""
    return c_text.ctype(computed(dtype))


def computed(dtype: DType) -> DType:
    """What elements of a dtype are computed in."""
    return DType.FP32 if dtype in FP8 else c_scalar.WIDE.get(dtype, dtype)


def element(dtype: DType, place: str) -> str:
    """The stored element at an lvalue as a number."""
    return f"tx_from_{dtype.value}({place})" if dtype in FP8 else c_scalar.element(dtype, place)


def stored(dtype: DType, value: str) -> str:
    """A number as the stored element."""
    return f"tx_to_{dtype.value}({value})" if dtype in FP8 else c_scalar.stored(dtype, value)


def fetch(
    args: CudaArgs, name: str, place: str, dtype: DType, step: Dim, v: int
) -> tuple[list[str], str]:
    """Statements that load ``v`` elements, ``step`` apart, from the pointer ``place`` on; and lane
    ``k``'s text. Neighbours come by as many accesses as 16 bytes each take.
    """
    kind = number_type(dtype)
    if step == 0 or v == 1:
        return [f"const {kind} {name} = {element(dtype, f'*({place})')};"], name
    if step == 1:
        each = min(v, widest(dtype))
        loads = [f"tx_load_{dtype.value}<{each}>({name}, {place});"]
        for i in range(each, v, each):
            loads.append(f"tx_load_{dtype.value}<{each}>({name} + {i}, {place} + {i});")
        return [f"{kind} {name}[{v}];", *loads], f"{name}[k]"
    one = element(dtype, f"({place})[k * {args.dim(step)}]")
    return [f"{kind} {name}[{v}];", *lanes(v, f"{name}[k] = {one};")], f"{name}[k]"


def put(args: CudaArgs, name: str, place: str, dtype: DType, step: Dim, v: int) -> list[str]:
    """Statements that store the array ``name`` of ``v`` numbers from the pointer ``place`` on."""
    if step == 1:
        return [f"tx_store_{dtype.value}<{v}>({place}, {name});"]
    return lanes(v, f"({place})[k * {args.dim(step)}] = {stored(dtype, f'{name}[k]')};")


def lanes(v: int, *body: str) -> list[str]:
    """An unrolled loop over the ``v`` lanes ``k``."""
    return ["#pragma unroll", block(f"for (int k = 0; k < {v}; k++)", *body)]


def known(d: Dim, ctx: CompileContext, default: int = 1 << 30) -> int:
    """A dim at the shapes that the kernel is tuned for."""
    return dims.evaluate(d, ctx.opt) if dims.symbols(d) <= set(ctx.opt) else default


def traffic(node: Node, variant: Variant, ctx: CompileContext) -> float | None:
    """Seconds to move the node's tensors once, and to start a kernel."""
    return c_text.traffic(node, variant, ctx, BANDWIDTH)
