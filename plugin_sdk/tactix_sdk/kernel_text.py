"""From an author's Kernel to an artifact: arguments, macros for elements, and what is fused behind
as ``TX_STORE``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue
from tactix_codegen.c.scalar import Code, element, stored
from tactix_codegen.c.tile import row_offset
from tactix_codegen.cuda import scalar as cuda_scalar
from tactix_codegen.cuda import text as cuda_text

if TYPE_CHECKING:
    from tactix_sdk.kernel import Kernel, Operation

PREFIX = "tx_"
"""Of all names in generated text that an author does not know; his own may not begin so."""
Emit = Callable[[Epilogue, Callable[[EpilogueOperand], str]], Code]


def why_not(node: Node) -> str:
    """Why no kernel text can be written for a node; empty if it can."""
    if not c_text.has_ctype(*(v.spec.dtype for v in (*node.given, *node.outputs))):
        return "dtypes that C has no type for"
    if node.anchor is None:
        return ""
    epi = epilogue(node, vector=False)
    if isinstance(epi, Reject):
        return epi.reason
    return c_scalar.why_not_scalar(epi.results, epi.dtypes)


def c(op: Operation, kernel: Kernel, ctx: CompileContext) -> KernelArtifact:
    """The artifact of a C kernel."""
    args = c_text.Args(op.node, PREFIX)
    macros = _macros(op, args, _emit_c)
    return c_text.kernel(
        args,
        _body(op, kernel, args),
        ctx,
        helpers="\n".join((*macros, kernel.helpers)),
        workspace=kernel.scratch,
    )


def cuda(op: Operation, kernel: Kernel, ctx: CompileContext) -> KernelArtifact:
    """The artifact of a CUDA kernel."""
    args = cuda_text.CudaArgs(op.node, PREFIX)
    macros = _macros(op, args, _emit_cuda)
    helpers = "\n".join((*macros, kernel.helpers))
    made = cuda_text.kernel(
        args, _body(op, kernel, args), ctx, kernel.grid, threads=kernel.threads, helpers=helpers
    )
    launch = dataclasses.replace(made.launches[0], shared_bytes=kernel.shared)
    return dataclasses.replace(made, launches=(launch,), workspace=kernel.scratch)


def _body(op: Operation, kernel: Kernel, args: c_text.Args) -> list[str]:
    sizes = [f"const int64_t {name} = {args.dim(d)};" for name, d in kernel.sizes.items()]
    for name, (packed, dtype) in kernel.constants.items():
        args.constant(name, packed, dtype)
    own = [*sizes, *_inputs(op, kernel, args), *_scratch(kernel, args)]
    return [*_nothing_to_do(op, args), "{", *own, "{", kernel.body.strip("\n"), "}", "}"]


def _nothing_to_do(op: Operation, args: c_text.Args) -> list[str]:
    """Leave before the author's text where the result may have no element: he need not think of
    sizes of 0 there.
    """
    total: Dim = 0
    for v in op.node.outputs:
        total = total + v.spec.numel
    return [] if isinstance(total, int) and total else [f"if ({args.dim(total)} == 0) return;"]


def _scratch(kernel: Kernel, args: c_text.Args) -> list[str]:
    """The workspace under its name, where there is one or the text speaks of it: of no elements it
    has no bytes.
    """
    if kernel.scratch != 0:
        return [f"float* const scratch = {args.workspace()};"]
    return (
        ["float* const scratch = 0;"]
        if re.search(r"\bscratch\b", f"{kernel.helpers} {kernel.body}")
        else []
    )


def _inputs(op: Operation, kernel: Kernel, args: c_text.Args) -> list[str]:
    """The author's names of those inputs that the text speaks of: others need not be there in their
    raw form.
    """
    words = set(re.findall(r"\b(?:in|TX_IN)(\d+)\b", f"{kernel.helpers} {kernel.body}"))
    used = [i for i, number in enumerate(op.ids) if number >= 0 and str(i) in words]
    return [
        f"const {c_text.ctype(op.inputs[i].dtype)}* const in{i} = {args.input(op.ids[i])};"
        for i in used
    ]


def _macros(op: Operation, args: c_text.Args, emit: Emit) -> list[str]:
    """``TX_INi(i)`` for each input, ``TX_STORE(i, value)`` for the result, ``TX_STOREj`` where
    there are several.
    """
    reads = [
        _macro(f"TX_IN{i}(tx_i)", [f"({element(s.dtype, f'in{i}[tx_i]')})"])
        for i, s in enumerate(op.inputs)
        if s is not None
    ]
    epi = None if op.node.anchor is None else epilogue(op.node, vector=False)
    if len(op.outputs) > 1 or not isinstance(epi, Epilogue):
        plain = [
            _store(j, [f"{args.output(j)}[tx_at] = {stored(s.dtype, 'tx_v')};"], s.dtype)
            for j, s in enumerate(op.outputs)
        ]
        return [*reads, *plain]
    code = emit(epi, lambda o: element(o.dtype, f"{args.input(o.index)}[{_place(o, epi, args)}]"))
    puts = [
        f"{args.output(j)}[tx_at] = {stored(t, r)};"
        for j, (r, t) in enumerate(zip(code.results, code.dtypes, strict=True))
    ]
    return [*reads, _store(0, [*code.statements, *puts], op.output.dtype)]


def _place(operand: EpilogueOperand, epi: Epilogue, args: c_text.Args) -> str:
    return row_offset("tx_at", epi.shape, operand.strides, args)


def _store(output: int, statements: Sequence[str], dtype: Any) -> str:
    number = cuda_text.number_type(dtype)
    given = ["const int64_t tx_at = (tx_index);", f"const {number} tx_v = ({number})(tx_value);"]
    name = f"TX_STORE{output or ''}(tx_index, tx_value)"
    return _macro(name, ["do {", *given, *statements, "} while (0)"])


def _macro(head: str, lines: Sequence[str]) -> str:
    """A macro of the kernel that follows: the names are every kernel's."""
    text = " \\\n    ".join(part for line in lines for part in line.split("\n"))
    return f"#undef {head.partition('(')[0]}\n#define {head} \\\n    {text}"


def _emit_c(epi: Epilogue, place: Callable[[EpilogueOperand], str]) -> Code:
    return epi.emit(["tx_v"], place, "tx_e", scalar=True)


def _emit_cuda(epi: Epilogue, place: Callable[[EpilogueOperand], str]) -> Code:
    heads = [
        f"const {cuda_text.number_type(o.dtype)} tx_o{v} = {place(o)};"
        for v, o in epi.operands.items()
    ]
    leaves = dict.fromkeys(epi.accumulators, "tx_v") | {v: f"tx_o{v}" for v in epi.operands}
    code = cuda_scalar.emit(epi.results, leaves, epi.dtypes, "tx_e")
    return Code((*heads, *code.statements), code.results, code.dtypes)
