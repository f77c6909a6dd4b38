"""Tactics of Triton functions. Triton compiles without a GPU; a plan gets the cubin, and neither
Triton nor the pack.

    def matmul():  # imported when it is compiled, so that the pack loads without Triton
        from acme.kernels import matmul
        return matmul

    @triton_tactic(
        "acme.matmul@1", implements="tactix.MatMul@1", kernel=matmul, knobs={"rows": (64, 128)}
    )
    def product(op, rows):
        a, b = op.inputs
        ...
        return Call(
            {"a": op.input(0), "b": op.input(1), "y": op.result(), "m": a.shape[0]},
            constants={"BM": rows}, grid=ceildiv(a.shape[0], rows), warps=4, stages=3,
        )

``arguments`` are pointers, dims, or ``None`` for a pointer that the kernel does not read;
``constants`` are its ``tl.constexpr``. What is fused behind a layer is not added by itself: the
function looks at ``op.node`` and takes it (``fused=True``), or such nodes are left to others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import CompilerError, PluginError
from tactix.contracts.artifact import Arg, Binary, KernelArtifact, Launch, scalar
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_sdk.kernel import LINEAR_ONLY, AuthoredTactic, AuthoredWork

LAUNCHER = "tactix.cuda.cubin@1"
_KINDS = {
    DType.FP64: "*fp64", DType.FP32: "*fp32", DType.FP16: "*fp16", DType.BF16: "*bf16",
    DType.INT64: "*i64", DType.INT32: "*i32", DType.INT16: "*i16", DType.INT8: "*i8",
    DType.UINT8: "*u8", DType.BOOL: "*i1",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One launch. ``arguments`` by the kernel's names: an ``Arg``, a dim (``i64``), or None for a
    null pointer.
    """

    arguments: Mapping[str, Arg | Dim | None]
    constants: Mapping[str, Any] = field(default_factory=dict)
    grid: Dim = 1
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Sealed:
    """A kernel of Triton as the driver takes it: machine code, its name, bytes of shared memory,
    threads of a block.
    """

    cubin: bytes
    name: str
    shared: int
    threads: int


def why_missing() -> str:
    """Empty if Triton can be imported, else why not."""
    try:
        import triton  # noqa: F401
    except ImportError as e:
        return f"Triton is not installed ({e}); `pip install triton` installs it"
    return ""


class TritonTactic(AuthoredTactic[Call]):
    """Made by ``triton_tactic``: for NVIDIA devices of compute capability 8.0 and newer."""

    device = "cuda"

    def __init__(
        self,
        key: str,
        implements: str | Sequence[str],
        author: Callable[..., Any],
        kernel: Callable[[], Any],
        knobs: Mapping[str, Sequence[Any]],
        fused: bool,
        cost: Callable[..., float | None] | None,
    ) -> None:
        super().__init__(key, implements, author, knobs, LINEAR_ONLY, cost)
        self.kernel, self.fused = kernel, fused

    def match(self, node: Node, device: DeviceProperties) -> AuthoredWork[Call] | Reject:
        if node.is_fused and not self.fused:
            return Reject("something is fused behind the layer")
        said = [(v, self.made(node, device, v)) for v in self.space]
        taken = [(v, call) for v, call in said if isinstance(call, Call)]
        if not taken:
            return next(call for _, call in said if isinstance(call, Reject))
        if why := why_missing():
            return Reject(why)
        if not device.has(feature(device)):
            return Reject(f"Triton's code needs {feature(device)}")
        return AuthoredWork.by_variant(node, taken)

    def made(self, node: Node, device: DeviceProperties, variant: Variant) -> Call | Reject:
        """What the author says. Raises PluginError."""
        call = self.said(node, device, variant)
        if not isinstance(call, Call | Reject):
            raise PluginError(f"{self.key} gave {call!r}", do="Return a Call or a Reject")
        return call

    def compile(
        self, work: AuthoredWork[Call], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        """Raises CompilerError."""
        call = work.of(variant)
        kinds = {name: _kind(work.node, arg) for name, arg in call.arguments.items()}
        capability = int(ctx.device.facts["capability"])
        constants = tuple(call.constants.items())
        sealed = compiled(
            self.kernel, tuple(kinds.items()), constants, call.warps, call.stages, capability
        )
        given = [call.arguments[n] for n in self.kernel().arg_names if n in call.arguments]
        arguments = [a if isinstance(a, Arg) else scalar(0 if a is None else a) for a in given]
        scratch = (
            scalar(0),
            scalar(0),
        )  # Triton's own last two parameters: global and profile scratch, not used
        launch = Launch(
            (*arguments, *scratch), (call.grid,), (sealed.threads,), shared_bytes=sealed.shared
        )
        code = Binary(sealed.cubin, sealed.name)
        return KernelArtifact(LAUNCHER, (launch,), code, requires=(feature(ctx.device),))


def _kind(node: Node, arg: Arg | Dim | None) -> str:
    """Triton's word for an argument's type."""
    if not isinstance(arg, Arg):
        return "*fp32" if arg is None else "i64"
    specs = node.given if arg.kind == "input" else node.outputs
    return _KINDS[specs[arg.index].spec.dtype]


def feature(device: DeviceProperties) -> str:
    """What a device must have to load the code: Triton compiles for 9.0 and newer with what only
    that one has.
    """
    capability = int(device.facts["capability"])
    return f"cubin_{capability}{'a' if capability >= 90 else ''}"


@functools.lru_cache(1024)
def compiled(
    kernel: Callable[[], Any],
    kinds: tuple[tuple[str, str], ...],
    constants: tuple[tuple[str, Any], ...],
    warps: int,
    stages: int,
    capability: int,
) -> Sealed:
    """The kernel for arguments of those types and a compute capability such as 90. Raises
    CompilerError.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, given = kernel(), dict(kinds)
    signature = {n: given.get(n, "constexpr") for n in function.arg_names}
    pointers = [i for i, n in enumerate(function.arg_names) if given.get(n, "").startswith("*")]
    aligned = {(i,): [["tt.divisibility", 16]] for i in pointers}
    try:
        source = ASTSource(function, signature, constexprs=dict(constants), attrs=aligned)
        made = triton.compile(
            source,
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": warps, "num_stages": stages},
        )
    except Exception as e:  # whatever Triton's passes and the assembler raise
        raise CompilerError(
            "Triton failed", who=f"{function.__name__} {dict(constants)}", why=repr(e)
        ) from e
    about = made.metadata
    if about.global_scratch_size or about.profile_scratch_size:
        raise CompilerError(
            "the kernel wants scratch memory, which its tactic does not give", who=function.__name__
        )
    return Sealed(made.asm["cubin"], about.name, int(about.shared), 32 * int(about.num_warps))


def triton_tactic(
    key: str,
    implements: str | Sequence[str],
    *,
    kernel: Callable[[], Any],
    knobs: Mapping[str, Sequence[Any]] | None = None,
    fused: bool = False,
    cost: Callable[..., float | None] | None = None,
) -> Callable[[Callable[..., Any]], TritonTactic]:
    """A tactic for CUDA of a function ``(op, **knobs)`` that gives a Call or a Reject.

    ``kernel()`` gives the ``triton.jit`` function. ``fused``: it takes what is fused behind the
    layer, too.
    ``cost(op, sizes_of_symbols, **knobs)``: seconds, where the builder does not measure.
    """
    return lambda author: TritonTactic(key, implements, author, kernel, knobs or {}, fused, cost)
