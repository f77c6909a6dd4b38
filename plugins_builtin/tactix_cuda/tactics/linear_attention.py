"""LinearAttention in CUDA: a warp walks all steps with one column of a state in its registers.

Columns of a state do not depend on each other; those of a block are neighbours, and read the same
keys and queries. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import BLOCK, CudaArgs
from tactix_codegen.operations.linear_attention import (
    BETA,
    DECAY,
    STATE,
    K,
    LinearAttentionWork,
    Q,
    V,
    known_linear_attention,
)

_WARP = 32
_MOST = 512
"""Keys of a state at most: 16 of a column, and as many of a key, lie in a lane's registers."""
_STEP = 5e-7
"""Seconds that ``cost`` takes for a step, which waits for the one before. No measurement of it is
recorded.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaLinearAttentionTactic()]


class CudaLinearAttentionTactic(Tactic[LinearAttentionWork[int]]):
    """Every rule; f64, f32, f16 and bf16, linear; up to 512 keys."""

    key = "tactix.cuda_linear_attention@1"
    implements = ("tactix.LinearAttention@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> LinearAttentionWork[int] | Reject:
        found = known_linear_attention(node)
        if isinstance(found, LinearAttentionWork) and found.keys > _MOST:
            return Reject(f"a state of more than {_MOST} keys")
        return found

    def cost(
        self, work: LinearAttentionWork[int], variant: Variant, ctx: CompileContext
    ) -> float | None:
        seconds = text.traffic(work.node, variant, ctx)
        steps = text.known(work.node.given[Q].spec.shape[1], ctx)
        return None if seconds is None else seconds + steps * _STEP

    def compile(
        self, work: LinearAttentionWork[int], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _Columns(work).kernel(ctx)


class _Columns:
    """The text of one kernel. Lane ``lane`` has keys ``lane``, ``lane + 32`` and so on."""

    def __init__(self, work: LinearAttentionWork) -> None:
        self.work, self.node, self.args = work, work.node, CudaArgs(work.node)
        self.number = text.number_type(work.real)
        self.f = "" if work.real is DType.FP64 else "f"
        self.count = -(-work.keys // _WARP)
        batch = self.node.outputs[0].spec.shape[0]
        self.columns: Dim = batch * work.heads * work.values

    def kernel(self, ctx: CompileContext) -> KernelArtifact:
        args, work, each = self.args, self.work, BLOCK // _WARP
        names, sizes = ["b", "head", "column"], ["", str(work.heads), str(work.values)]
        steps, state = args.dim(self.node.outputs[0].spec.shape[1]), work.keys * work.values
        lines = [
            f"const int64_t unit = (int64_t)blockIdx.x * {each} + threadIdx.x / {_WARP};",
            f"if (unit >= {args.dim(self.columns)}) return;",
            f"const int lane = threadIdx.x % {_WARP};",
            text.decode("int64_t", "unit", names, sizes),
            f"const int64_t place = (b * {work.heads} + head) * {state} + column;",
            f"{self.number} state[{self.count}];",
            *self._lanes(f"state[r] = {self._first()};"),
            block(
                f"for (int64_t t = 0; t < {steps}; t++)",
                f"const int64_t step = b * {steps} + t;",
                *self._step(),
            ),
            *self._last(),
        ]
        grid = text.blocks(self.columns, each)
        held = [] if self.columns == 0 else lines
        return text.kernel(args, held, ctx, grid, more=("block.cuh",))

    def _lanes(self, *body: str) -> list[str]:
        """Over the keys ``i`` of a lane, number ``r``."""
        head = f"for (int r = 0; r < {self.count}; r++)"
        return ["#pragma unroll", block(head, f"const int i = lane + r * {_WARP};", *body)]

    def _element(self, source: int, place: str) -> str:
        """An element of one of the layer's inputs as a number."""
        index = self.work.places[source]
        spec = self.node.given[index].spec
        return text.element(spec.dtype, f"{self.args.input(index)}[{place}]")

    def _of_key(self, value: str) -> str:
        """``value``, or 0 behind the last key."""
        return value if self.work.keys % _WARP == 0 else f"i < {self.work.keys} ? {value} : 0"

    def _first(self) -> str:
        if STATE not in self.work.places:
            return "0"
        return self._of_key(self._element(STATE, f"place + i * {self.work.values}"))

    def _last(self) -> list[str]:
        dtype = self.node.outputs[1].spec.dtype
        target = f"{self.args.output(1)}[place + i * {self.work.values}]"
        store = f"{target} = {text.stored(dtype, 'state[r]')};"
        inside = "" if self.work.keys % _WARP == 0 else f"if (i < {self.work.keys}) "
        return self._lanes(f"{inside}{store}")

    def _sum(self, name: str, term: str) -> list[str]:
        """Declare the sum of a term over all keys, for all lanes."""
        return [
            f"{self.number} {name} = 0;",
            *self._lanes(f"{name} += {term};"),
            f"{name} = tx_reduce<{_WARP}, tx_sum>({name});",
        ]

    def _step(self) -> list[str]:
        """Scale the state, correct what is added by what it says of the key, add that, and read."""
        work, number = self.work, self.number
        of_head = f"(step * {work.heads} + head)"
        key = self._element(K, f"{of_head} * {work.keys} + i")
        lines = [
            f"{number} key[{self.count}];",
            *self._lanes(f"key[r] = {self._of_key(key)};"),
            f"{number} fresh = {self._element(V, f'{of_head} * {work.values} + column')};",
        ]
        if work.decays:
            lines += self._decay(of_head)
        if work.corrects:
            lines += self._sum("said", self._of_key("state[r] * key[r]"))
            lines.append("fresh -= said;")
            if BETA in work.places:
                one = self.node.given[work.places[BETA]].spec.shape[2] == 1
                lines.append(f"fresh *= {self._element(BETA, 'step' if one else of_head)};")
        return [*lines, *self._lanes("state[r] += fresh * key[r];"), *self._read()]

    def _decay(self, of_head: str) -> list[str]:
        """The decay is a logarithm, of a head or of each of its keys."""
        spec = self.node.given[self.work.places[DECAY]].spec
        if spec.shape[2] == self.work.heads:
            gate = f"exp{self.f}({self._element(DECAY, of_head)})"
            return [f"const {self.number} gate = {gate};", *self._lanes("state[r] *= gate;")]
        each = self._element(DECAY, f"{of_head} * {self.work.keys} + i")
        return self._lanes(f"state[r] *= {self._of_key(f'exp{self.f}({each})')};")

    def _read(self) -> list[str]:
        """Ask the state with the queries of the head."""
        work, dtype = self.work, self.node.outputs[0].spec.dtype
        scale = self.node.attrs.scale or work.keys**-0.5
        query = f"(step * {work.heads * work.shared} + head * {work.shared} + u)"
        asked = self._of_key(f"state[r] * {self._element(Q, f'{query} * {work.keys} + i')}")
        value = text.stored(dtype, f"read * ({self.number}){float(scale)!r}")
        store = f"{self.args.output(0)}[{query} * {work.values} + column] = {value};"
        return [
            block(
                f"for (int u = 0; u < {work.shared}; u++)",
                *self._sum("read", asked),
                f"if (lane == 0) {store}",
            )
        ]
