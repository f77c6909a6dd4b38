"""Along one axis in CUDA: ArgMax, ArgMin, Hardmax, CumSum, CumProd, LpNormalization, LRN; a warp
for each line.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, float_literal, stored
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import BLOCK, CudaArgs

NAMES = ("ArgMax", "ArgMin", "Hardmax", "CumSum", "CumProd", "LpNormalization", "LRN")
WARPS = BLOCK // 32
"""Lines of a block."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [LinesTactic()]


class LinesTactic(Tactic[Node]):
    """Any dtype of up to 64 bits, any axis, symbolic dims."""

    key = "tactix.cuda_lines@1"
    implements = tuple(f"tactix.{n}@1" for n in NAMES)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x = node.given[0].spec
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype) or x.rank == 0:
            return Reject(f"no lines of {x} in CUDA")
        if node.layer.name in ("LpNormalization", "LRN") and not x.dtype.is_float:
            return Reject(f"no norms of {x.dtype.value}")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        w = _Writer(CudaArgs(node))
        write = {
            "Hardmax": w.hard,
            "CumSum": w.running,
            "CumProd": w.running,
            "LpNormalization": w.normal,
            "LRN": w.local,
        }
        body = write.get(node.layer.name, w.arg)()
        return text.kernel(w.args, body, ctx, w.blocks, more=("lines.cuh",))


def wide_type(dtype: DType) -> str:
    """The C type that holds every number of the dtype and orders them alike."""
    if dtype.is_float:
        return "double" if dtype is DType.FP64 else "float"
    return "uint64_t" if dtype is DType.UINT64 else "int64_t"


class _Writer:
    """The text of one kernel. Names: ``line``; ``j`` along it; ``base``: element 0 of the line in
    x.
    """

    def __init__(self, args: CudaArgs) -> None:
        self.args, self.node = args, args.node
        self.spec = self.node.given[0].spec
        self.axis = getattr(self.node.attrs, "axis", 1) % self.spec.rank
        self.outer = dims.prod(self.spec.shape[: self.axis])
        self.inner = dims.prod(self.spec.shape[self.axis + 1 :])
        self.n, self.step = args.dim(self.spec.shape[self.axis]), args.dim(self.inner)
        self.blocks: Dim = text.blocks(self.outer * self.inner, WARPS)
        self.wide = wide_type(self.spec.dtype)

    def _lines(self) -> list[str]:
        lines, step = self.args.dim(self.outer * self.inner), self.step
        return [
            f"const int64_t line = (int64_t)blockIdx.x * {WARPS} + (int)threadIdx.x / 32;",
            f"if (line >= {lines}) return;",
            f"const int64_t base = line / {step} * {self.n} * {step} + line % {step};",
            f"const auto x = [&](int64_t j) {{ return {self._x('j')}; }};",
        ]

    def _x(self, j: str) -> str:
        at = f"{self.args.input(0)}[base + ({j}) * {self.step}]"
        return f"({self.wide}){element(self.spec.dtype, at)}"

    def _best(self, largest: bool, last: bool) -> str:
        return f"tx_best<{str(largest).lower()}, {self.wide}>({self.n}, {str(last).lower()}, x)"

    def arg(self) -> list[str]:
        found = self._best(self.node.layer.name == "ArgMax", self.node.attrs.select_last_index)
        put = f"if (threadIdx.x % 32 == 0) {self.args.output(0)}[line] = at;"
        return [*self._lines(), f"const int64_t at = {found};", put]

    def hard(self) -> list[str]:
        one = stored(self.spec.dtype, "(j == at ? 1.0f : 0.0f)")
        put = f"{self.args.output(0)}[base + j * {self.step}] = {one};"
        loop = f"for (int64_t j = threadIdx.x % 32; j < {self.n}; j += 32)"
        return [*self._lines(), f"const int64_t at = {self._best(True, False)};", f"{loop} {put}"]

    def running(self) -> list[str]:
        a, is_sum = self.node.attrs, self.node.layer.name == "CumSum"
        op = f"{'tx_added' if is_sum else 'tx_multiplied'}<{self.wide}>"
        turned = f"{self.n} - 1 - j" if a.reverse else "j"
        y, exclusive = self.args.output(0), str(a.exclusive).lower()
        put = f"{y}[base + ({turned}) * {self.step}]"
        value = stored(self.spec.dtype, "sum")
        return [
            *self._lines(),
            f"tx_scan<{op}>({self.n}, ({self.wide}){0 if is_sum else 1}, {exclusive},",
            f"    [&](int64_t j) {{ return x({turned}); }},",
            f"    [&](int64_t j, {self.wide} sum) {{ {put} = {value}; }});",
        ]

    def normal(self) -> list[str]:
        """LpNormalization: every lane sums a part of the line."""
        f = "" if self.wide == "double" else "f"
        plain = self.node.attrs.p == 1
        term, norm = (f"fabs{f}(x(j))", "norm") if plain else ("x(j) * x(j)", f"sqrt{f}(norm)")
        walk = f"for (int64_t j = threadIdx.x % 32; j < {self.n}; j += 32)"
        y = f"{self.args.output(0)}[base + j * {self.step}]"
        part = stored(self.spec.dtype, f"(whole != 0 ? x(j) / whole : ({self.wide})0)")
        return [
            *self._lines(),
            f"{self.wide} norm = 0;",
            f"{walk} norm += {term};",
            "for (int o = 16; o; o /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, o);",
            f"const {self.wide} whole = {norm};",
            f"{walk} {y} = {part};",
        ]

    def local(self) -> list[str]:
        """LRN: squares of the channels around each."""
        a = self.node.attrs
        before = (a.size - 1) // 2
        power = f"pow{'' if self.wide == 'double' else 'f'}"
        alpha, beta, bias = (
            f"({self.wide}){float_literal(v)}" for v in (a.alpha / a.size, a.beta, a.bias)
        )
        around = [
            f"{self.wide} sum = 0;",
            f"for (int64_t i = j - {before}; i < j - {before} + {a.size}; i++)",
            f"    if (i >= 0 && i < {self.n}) sum += x(i) * x(i);",
            f"const {self.wide} y = x(j) / {power}({bias} + {alpha} * sum, {beta});",
            f"{self.args.output(0)}[base + j * {self.step}] = {stored(self.spec.dtype, 'y')};",
        ]
        return [
            *self._lines(),
            block(f"for (int64_t j = threadIdx.x % 32; j < {self.n}; j += 32)", *around),
        ]
