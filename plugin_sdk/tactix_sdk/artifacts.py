"""The pieces of a KernelArtifact: code, launches, arguments, packed constants."""

from tactix.contracts.artifact import (
    Arg,
    Binary,
    KernelArtifact,
    Launch,
    Packed,
    Source,
    constant,
    fault,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)

__all__ = [
    "Arg", "Binary", "KernelArtifact", "Launch", "Packed", "Source", "constant", "fault", "scalar",
    "tensor_in", "tensor_out", "workspace",
]  # fmt: skip
