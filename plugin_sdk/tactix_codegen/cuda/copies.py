"""Strided copies in CUDA: what all layers that only move elements come down to, any number of them
in one launch.

Blocks are dealt out to the copies in order. Runs go in accesses of up to 16 bytes, two loops that
swap go through tiles in shared memory, anything else element by element.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c.copy import Copy
from tactix_codegen.c.space import collapse
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import BLOCK, CudaArgs


def kernel(
    args: CudaArgs, copies: Sequence[Copy], width: int, ctx: CompileContext
) -> KernelArtifact:
    """One kernel for all copies of elements of ``width`` bytes."""
    writers = [_writer(args, c, width) for c in copies if 0 not in c.sizes]
    body = ["int64_t b = blockIdx.x;"]
    for w in writers:
        size = args.dim(w.blocks)
        body += [block(f"if (b < {size})", *w.text(), "return;"), f"b -= {size};"]
    return text.kernel(args, body, ctx, sum((w.blocks for w in writers), 0))


def element_type(width: int) -> str:
    """The C type that moves so many bytes."""
    return "tx_bytes16" if width == 16 else f"uint{8 * width}_t"


class _Copy:
    """The text of one copy: a thread for each ``each`` neighbouring elements of the target."""

    def __init__(self, args: CudaArgs, copy: Copy, width: int) -> None:
        self.args, self.copy, self.width = args, copy, width
        self.space = collapse(copy.sizes, (copy.source_strides, copy.target_strides))
        self.filled = copy.source < 0
        self.each = self._elements_of_a_thread()
        self.kind = text.index_type(dims.prod(copy.sizes), *self._reach())
        self.threads: Dim = dims.prod(self.space.sizes[:-1]) * dims.floordiv(
            self.space.sizes[-1], self.each
        )
        self.blocks: Dim = text.blocks(self.threads)

    def _reach(self) -> list[Dim]:
        """Elements of the tensors on both sides: offsets stay below."""
        source = [] if self.filled else [self.args.node.given[self.copy.source].spec.numel]
        return [*source, self.args.node.outputs[self.copy.target].spec.numel]

    def _elements_of_a_thread(self) -> int:
        """The widest run that all rows and both sides begin at multiples of."""
        source, target = self.space.strides
        runs = target[-1] == 1 and (self.filled or source[-1] == 1)
        places = [*target[:-1], self.copy.target_offset, self.space.sizes[-1]]
        places += [] if self.filled else [*source[:-1], self.copy.source_offset]
        each = 16 // self.width if runs else 1
        while not text.divides(each, *places):
            each //= 2
        return each

    def _bases(self) -> list[str]:
        e = element_type(self.width)
        target = self.args.bytes_out(self.copy.target)
        heads = [f"{e}* y = ({e}*){target} + {self.args.dim(self.copy.target_offset)};"]
        if not self.filled:
            source = self.args.bytes_in(self.copy.source)
            offset = self.args.dim(self.copy.source_offset)
            heads.append(f"const {e}* x = (const {e}*){source} + {offset};")
        return heads

    def text(self) -> list[str]:
        names = [f"i{i}" for i in range(len(self.space.sizes))]
        sizes = [self.args.dim(s) for s in self.space.sizes[:-1]]
        sizes.append(self.args.dim(dims.floordiv(self.space.sizes[-1], self.each)))
        body = [
            *self._bases(),
            text.decode(self.kind, "t", [*names[:-1], "u"], sizes),
            f"const {self.kind} {names[-1]} = u * {self.each};",
            self._move(names),
        ]
        return [
            f"const {self.kind} t = ({self.kind})b * {BLOCK} + (int)threadIdx.x;",
            block(f"if (t < {self.args.dim(self.threads)})", *body),
        ]

    def _move(self, names: Sequence[str]) -> str:
        vector = element_type(self.width * self.each)
        q = f"*({vector}*)(y + ({self.args.offset(self.space.strides[1], names)}))"
        if not self.filled:
            return (
                f"{q} = *(const {vector}*)(x + ({self.args.offset(self.space.strides[0], names)}));"
            )
        one = f"0x{self.copy.value:x}ULL"
        word = sum(self.copy.value << 8 * i for i in range(0, 8, self.width))
        if self.width * self.each == 16:
            return f"{q} = tx_bytes16{{{{0x{word:x}ULL, 0x{word:x}ULL}}}};"
        word &= (1 << 8 * self.width * self.each) - 1
        return f"{q} = ({vector}){one if self.each == 1 else f'0x{word:x}ULL'};"


class _Swap(_Copy):
    """Tiles of two loops: the source moves by one along ``swapped``, the target along the last."""

    def __init__(self, args: CudaArgs, copy: Copy, width: int, swapped: int) -> None:
        super().__init__(args, copy, width)
        self.swapped, self.last = swapped, len(self.space.sizes) - 1
        self.tile = 64 if width <= 2 else 32
        self.outer = [i for i in range(self.last) if i != swapped]
        self.tiles = [dims.ceildiv(self.space.sizes[i], self.tile) for i in (swapped, self.last)]
        self.blocks = dims.prod([*(self.space.sizes[i] for i in self.outer), *self.tiles])

    def text(self) -> list[str]:
        e, n = element_type(self.width), self.tile
        outer = [f"i{i}" for i in self.outer]
        sizes = [
            self.args.dim(s) for s in (*(self.space.sizes[i] for i in self.outer), *self.tiles)
        ]
        a, b = (self.args.dim(self.space.sizes[i]) for i in (self.swapped, self.last))
        source, target = (
            [s[i] for i in (*self.outer, k)]
            for s, k in zip(self.space.strides, (self.last, self.swapped), strict=True)
        )
        x, y = self.args.offset(source, [*outer, "c"]), self.args.offset(target, [*outer, "d"])
        rows = f"for (int r = threadIdx.x / {n}; r < {n}; r += {BLOCK // n})"
        return [
            *self._bases(),
            f"__shared__ {e} tile[{n}][{n + max(1, 4 // self.width)}];",
            f"const {self.kind} p = ({self.kind})b;",
            text.decode(self.kind, "p", [*outer, "ta", "tb"], sizes),
            f"const int l = threadIdx.x % {n};",
            block(
                rows,
                f"const {self.kind} c = tb * {n} + r, f = ta * {n} + l;",
                f"if (c < {b} && f < {a}) tile[r][l] = x[({x}) + f];",
            ),
            "__syncthreads();",
            block(
                rows,
                f"const {self.kind} d = ta * {n} + r, g = tb * {n} + l;",
                f"if (d < {a} && g < {b}) y[({y}) + g] = tile[l][r];",
            ),
        ]


def _writer(args: CudaArgs, copy: Copy, width: int) -> _Copy:
    space = collapse(copy.sizes, (copy.source_strides, copy.target_strides))
    source, target = space.strides
    if copy.source >= 0 and source[-1] not in (0, 1) and target[-1] == 1:
        for i in range(len(source) - 2, -1, -1):
            if source[i] == 1:
                return _Swap(args, copy, width, i)
    return _Copy(args, copy, width)
