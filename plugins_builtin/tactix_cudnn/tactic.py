"""What cuDNN bids for: its guesses for a node's work are variants. Knob ``rank``: which guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tactix.contracts.artifact import Arg, KernelArtifact, Launch, Packed, scalar
from tactix.contracts.artifact import workspace as scratch
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.cuda.target import required_features
from tactix_cuda.library_tactic import LibraryTactic
from tactix_cudnn import FUNCTION, LAUNCHER
from tactix_cudnn.compiler import source
from tactix_cudnn.graph import CudnnWork, Guess, guesses
from tactix_cudnn.library import Cudnn, cudnn

WORKSPACE = 64 << 20
"""Bytes that an engine may want: a bound for the memory of a context, not a measured threshold."""
UNMEASURED = 1e-3
"""Seconds that an engine is thought to take: some cannot be made, which only measuring tells."""


def tactics() -> list[Tactic]:
    """The tactics of this package."""
    from tactix_cudnn.attention_tactic import CudnnAttentionTactic
    from tactix_cudnn.convolution_tactic import CudnnConvolutionTactic

    return [CudnnConvolutionTactic(), CudnnAttentionTactic()]


@dataclass(frozen=True)
class Request:
    """A node's work. ``places``: arguments for the tensors of its binding. ``variant``: formats."""

    what: CudnnWork
    places: tuple[Arg, ...]
    constants: Mapping[str, Packed] = field(default_factory=dict)
    variant: Variant = field(default_factory=Variant)


class CudnnTactic(LibraryTactic[Request, Cudnn]):
    """``most``: how many guesses are asked for. ``library``: None for the device that is here."""

    source = "cudnn"
    name = "cuDNN"
    find = staticmethod(cudnn)
    most: int

    def request(self, node: Node) -> Request | Reject:
        """What the library is asked for, or why it is not."""
        raise NotImplementedError(f"{self.key}: request")

    def match(self, node: Node, device: DeviceProperties) -> Request | Reject:
        asked = self.request(node)
        if isinstance(asked, Reject):
            return asked
        reason = self.why_not(device)
        return Reject(reason) if reason else asked

    def variants(self, asked: Request, device: DeviceProperties) -> Sequence[Variant] | Reject:
        fit = [
            r for r, guess in enumerate(self._guesses(asked.what)) if guess.workspace <= WORKSPACE
        ]
        offered = [replace(asked.variant, knobs=(("rank", r),)) for r in fit]
        return offered or Reject("cuDNN has no engine for it")

    def _guesses(self, what: CudnnWork) -> tuple[Guess, ...]:
        return guesses(self.library(), what, self.most)

    def cost(self, asked: Request, variant: Variant, ctx: CompileContext) -> float:
        return UNMEASURED * (1 + 1e-3 * variant.number("rank"))

    def compile(self, asked: Request, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        rank = variant.number("rank")
        guess = self._guesses(asked.what)[rank]
        places = (*asked.places, scratch() if guess.workspace else scalar(0))
        params = {"version": list(self.library().version), **asked.what.binding.to_json()}
        code = source(asked.what, rank, guess.compiles)
        return KernelArtifact(
            LAUNCHER,
            (Launch(places, (1,), symbol=FUNCTION),),
            code,
            guess.workspace,
            tuple(asked.constants.items()),
            required_features(ctx.device),
            params,
        )
