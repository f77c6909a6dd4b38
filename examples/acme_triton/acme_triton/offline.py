"""Triton as a compiler of cubins, without a GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tactix_sdk.errors import CompilerError


@dataclass(frozen=True)
class Sealed:
    """A kernel of Triton as the driver takes it: machine code, its name, bytes of shared memory, threads of a block."""

    cubin: bytes
    name: str
    shared: int
    threads: int


def why_missing() -> str:
    """Empty if Triton can be imported, else why not."""
    try:
        import triton  # noqa: F401
    except ImportError as e:
        return f"Triton is not installed ({e}); `pip install acme-triton[triton]` installs it"
    return ""


@functools.lru_cache(1024)
def compiled(dtype: str, constants: tuple[tuple[str, Any], ...], warps: int, stages: int, capability: int) -> Sealed:
    """``matmul`` for elements of ``fp16`` or ``bf16`` and a compute capability such as 90. Raises CompilerError."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from acme_triton.kernels import matmul

    values = dict(constants)
    kinds = dict.fromkeys(("a", "b", "bias", "rest", "y"), f"*{dtype}") | {"m": "i64"}
    signature = {n: kinds.get(n, "constexpr") for n in matmul.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(matmul.arg_names) if n in kinds and n != "m"}
    source = ASTSource(matmul, signature, constexprs=values, attrs=aligned)
    options = {"num_warps": warps, "num_stages": stages}
    try:
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as e:  # whatever Triton's passes and the assembler raise
        raise CompilerError("Triton failed", who=f"matmul {values}", why=repr(e)) from e
    about = made.metadata
    if about.global_scratch_size or about.profile_scratch_size:
        raise CompilerError("the kernel wants scratch memory, which its tactic does not give")
    return Sealed(made.asm["cubin"], about.name, int(about.shared), 32 * int(about.num_warps))
