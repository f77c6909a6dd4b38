"""What a node asks of cuBLASLt: the problem, its sizes, where operands come from, and the artifact
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Shape, prod
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import (
    Arg,
    KernelArtifact,
    Launch,
    Packed,
    Source,
    constant,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_codegen.c.epilogue import EpilogueOperand, anchor_spec
from tactix_codegen.c.tile import is_row_major
from tactix_codegen.cuda import results, text, window
from tactix_codegen.cuda.after import after
from tactix_codegen.cuda.entry import KernelEntry
from tactix_codegen.cuda.product import Matrix, product
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.target import required_features
from tactix_cublaslt import FUNCTION, LAUNCHER
from tactix_cublaslt.matmul import ALIGNMENT, SCRATCH, Problem
from tactix_cuda.library_epilogue import FoldedEpilogue, folded


@dataclass(frozen=True)
class MatmulWork:
    """``sizes``: batch, m, n, k. ``fold``: what the library does behind the product, None if a
    kernel does all.

    ``a``, ``b``: arguments for the operands; ``constants``: those that the build lays out.
    ``variant``: formats.
    ``rows``: where results go, for the kernel.
    """

    node: Node
    problem: Problem
    sizes: tuple[Dim, Dim, Dim, Dim]
    fold: FoldedEpilogue | None
    a: Arg
    b: Arg
    constants: Mapping[str, Packed]
    variant: Variant
    rows: Callable[[KernelEntry], RowResults]

    @property
    def is_folded(self) -> bool:
        """Whether there is no kernel behind the library's call."""
        return self.fold is not None

    @property
    def volume(self) -> Dim:
        return prod(self.sizes)


def work(node: Node, compute: str) -> MatmulWork | Reject:
    """The node as a product for the library, or why it is none."""
    anchor = node.anchor
    convolution = anchor is not None and anchor.layer.name.endswith("Convolution")
    found = _convolution(node) if convolution else _product(node)
    if isinstance(found, Reject):
        return found
    epi = found.rows(KernelEntry(node, 1)).epi
    if reason := results.why_not(epi):
        return Reject(reason)
    out = node.outputs[0].spec.dtype
    fold = folded(epi, out)
    if isinstance(fold, str) or not _can(node, fold, out):
        return replace(
            found, problem=replace(found.problem, compute=compute, out=anchor_spec(node).dtype)
        )
    constants = dict(found.constants)
    if fold.bias and node.given[fold.bias.index].const is not None:
        constants["bias"] = _row(fold.bias, out)
    problem = replace(
        found.problem,
        compute=compute,
        out=out,
        alpha=fold.alpha,
        beta=fold.beta,
        bias=fold.bias is not None,
        activation=fold.activation,
    )
    return replace(found, problem=problem, fold=fold, constants=constants)


def _can(node: Node, fold: FoldedEpilogue, out: DType) -> bool:
    """Whether the library can read the fold's operands as they lie, or as the build lays them."""
    bias, rest = fold.bias, fold.residual
    readable = bias is None or bias.dtype is out or node.given[bias.index].const is not None
    return readable and (rest is None or node.given[rest.index].const is None)


def _row(bias: EpilogueOperand, out: DType) -> Packed:
    cast: tuple[tuple[str, Any], ...] = () if bias.dtype is out else (("cast", out.value),)
    return Packed(bias.index, (*cast, ("reshape", (-1,))))


def _product(node: Node) -> MatmulWork | Reject:
    p = product(node)
    if isinstance(p, Reject):
        return p
    one_a, one_b = (_repeats(x, p.batch) for x in (p.a, p.b))
    if one_a is None or one_b is None:
        return Reject("an operand is repeated along some of the batch axes only")
    problem = Problem(p.dtype, p.dtype, "", p.a.turned, p.b.turned, one_a, one_b)
    sizes = (prod(p.batch), p.m, p.n, p.k)
    a, b = tensor_in(p.a.index), tensor_in(p.b.index)

    def rows(e: KernelEntry) -> RowResults:
        return RowResults(e, node, p.epi, p.lead, p.n)

    return MatmulWork(node, problem, sizes, None, a, b, {}, Variant(), rows)


def _repeats(x: Matrix, batch: Shape) -> bool | None:
    """Whether it is one matrix for the whole batch; None if for some of it."""
    if all(s == 0 for s in x.strides):
        return True
    last = next(s for d, s in reversed(list(zip(batch, x.strides))) if d != 1)
    return False if last == 1 and is_row_major(batch, x.strides) else None


def _convolution(node: Node) -> MatmulWork | Reject:
    win = window.window(node)
    if isinstance(win, Reject):
        return win
    if win.group != 1 or not win.is_pointwise:
        return Reject("the window is more than a pixel, or there are groups")
    formats = window.formats(win, NHWC)
    if isinstance(formats, Reject):
        return formats
    constants = {"w": Packed(win.w, (("reshape", (win.co, win.c)),))}
    variant = Variant.of(formats, (NHWC,) * len(node.outputs))

    def rows(e: KernelEntry) -> RowResults:
        return RowResults(e, node, win.epi, win.lead, win.co, window.pointers(win, e))

    problem = Problem(win.dtype, win.dtype, "", turned_b=True, one_a=False, one_b=True)
    sizes = (1, win.pixels, win.co, win.c)
    a, b = tensor_in(win.x), constant("w")
    return MatmulWork(node, problem, sizes, None, a, b, constants, variant, rows)


def artifact(
    w: MatmulWork, params: Mapping[str, Any], scratch: int, ctx: CompileContext
) -> KernelArtifact:
    """The call of the library, and the kernel behind it where there is one."""
    size = -(-(scratch + SCRATCH) // ALIGNMENT) * ALIGNMENT if scratch else 0
    batch, m, n, _ = w.sizes
    in_place = w.is_folded or w.problem.out is w.node.outputs[0].spec.dtype
    d = tensor_out() if in_place else workspace(size)
    places = (
        w.a,
        w.b,
        _residual(w) or d,
        d,
        _bias(w),
        workspace() if scratch else scalar(0),
    )
    call = Launch((*map(scalar, w.sizes), *places), (batch * m,), symbol=FUNCTION)
    made = KernelArtifact(
        LAUNCHER,
        (call,),
        None,
        size if in_place else size + batch * m * n * w.problem.out.itemsize,
        tuple(w.constants.items()),
        required_features(ctx.device),
        params,
    )
    if w.is_folded:
        return made
    kernel, launch, entry = after(w.node, w.problem.out, None if in_place else size, w.rows)
    code = Source("cuda_c", kernel, text.preludes(*entry.preludes()))
    constants = tuple({**w.constants, **entry.constants}.items())
    return replace(made, launches=(call, launch), code=code, constants=constants)


def _bias(w: MatmulWork) -> Arg:
    if w.fold is None or w.fold.bias is None:
        return scalar(0)
    return constant("bias") if "bias" in w.constants else tensor_in(w.fold.bias.index)


def _residual(w: MatmulWork) -> Arg | None:
    return None if w.fold is None or w.fold.residual is None else tensor_in(w.fold.residual.index)
