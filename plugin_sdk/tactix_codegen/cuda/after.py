"""The epilogue as a kernel of its own, over a product that a library has left in memory."""

from __future__ import annotations

from collections.abc import Callable

from tactix.base.dims import Dim, floordiv
from tactix.base.dtypes import DType
from tactix.contracts.artifact import Launch
from tactix.contracts.graph import Node
from tactix_codegen.c.text import ctype
from tactix_codegen.cuda import text
from tactix_codegen.cuda.entry import KernelEntry
from tactix_codegen.cuda.results import RowResults

THREADS = 256
_WIDEST = 16
"""Bytes of the product that a thread takes."""


def after(
    node: Node, dtype: DType, offset: Dim | None, rows: Callable[[KernelEntry], RowResults]
) -> tuple[str, Launch, KernelEntry]:
    """Text, launch and entry of the kernel.

    The product lies as rows of ``dtype`` at ``offset`` in the workspace; where that is None, in
    output 0, whose place the results take.
    """
    e = KernelEntry(node, THREADS)
    made = rows(e)
    width = min(made.width(), _WIDEST // dtype.itemsize)
    source = e.output(0) if offset is None else e.workspace(offset, ctype(dtype))
    groups, total = floordiv(made.n, width), made.count * floordiv(made.n, width)
    loads, lane = text.fetch(
        e, "product", f"{source} + row * {e.dim(made.n)} + col", dtype, 1, width
    )
    body = [
        f"const int64_t t = (int64_t)blockIdx.x * {THREADS} + threadIdx.x;",
        f"if (t >= {e.dim(total)}) return;",
        f"const int64_t row = t / {e.dim(groups)};",
        f"const int col = (int)(t % {e.dim(groups)}) * {width};",
        *loads,
        f"float v[{width}];",
        *text.lanes(width, f"v[k] = {lane};"),
        made.store(width),
    ]
    return e.kernel(*body), e.launch(text.blocks(total, THREADS)), e
