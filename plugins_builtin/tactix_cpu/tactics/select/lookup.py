"""Lookup in C: the keys go into a table of places that their bits lead to."""

from __future__ import annotations

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, comment, loop

ENTERED, FOUND = 6e-9, 4e-9
"""Seconds to enter a key, and to look one up, where the table is in the first cache. No measurement
of them is on record.
"""
SPARE = 2
"""Places of the table for each key, so that a walk to a free one is short."""

_HELPERS = """/* The bits that are compared: zeros are one number, and so is all that is none. */
static inline uint64_t TX_NAME(bits)(double v) {
    uint64_t u;
    v = v == 0 ? 0 : v != v ? (double)NAN : v;
    memcpy(&u, &v, 8);
    return u;
}
/* Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): the fraction of a product with
   the golden ratio. */
static inline int64_t TX_NAME(place)(uint64_t bits, int64_t places) {
    const uint64_t mixed = (bits ^ bits >> 32) * 0x9e3779b97f4a7c15ULL;
    return (int64_t)((unsigned __int128)mixed * (uint64_t)places >> 64);
}"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [LookupTactic()]


class LookupTactic(Tactic[Node]):
    """Keys of all numbers, values of 1, 2, 4 or 8 bytes."""

    key = "tactix.c_lookup@1"
    implements = ("tactix.Lookup@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, keys, values, _ = (v.spec for v in node.given)
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if x.dtype is not keys.dtype or not c_text.has_ctype(x.dtype):
            return Reject(f"no {x.dtype.value} among keys of {keys.dtype.value} in C")
        if not c_copy.movable(values.dtype):
            return Reject(f"no values of {values.dtype.value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        x, keys = (v.spec for v in node.given[:2])
        found = FOUND / max(1, ctx.threads)
        return c_text.seconds(ctx, (keys.numel, ENTERED), (x.numel, found))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        x, keys, values = (v.spec for v in node.given[:3])
        places: Dim = SPARE * keys.numel + 1
        args.size("PLACES", places)
        args.size("KEYS", keys.numel)
        table = args.workspace(0, "int64_t")
        kind = f"uint{8 * values.dtype.itemsize}_t"
        of = [f"((const {kind}*){args.bytes_in(i)})" for i in (2, 3)]
        entered = block(
            f"if ({args.phase()} == 0)",
            "if (tid) return;",
            comment("Places hold numbers of keys, from 1 on; the first of equal keys counts."),
            loop("at", "0", "PLACES", f"{table}[at] = 0;"),
            loop(
                "k",
                "0",
                "KEYS",
                *_walk(args, x.dtype, f"{args.input(1)}[k]", table),
                f"if (!{table}[at]) {table}[at] = k + 1;",
            ),
            "return;",
        )
        looked = [
            *_walk(args, x.dtype, f"{args.input(0)}[i]", table),
            f"const int64_t found = {table}[at];",
            f"(({kind}*){args.bytes_out()})[i] = found ? {of[0]}[found - 1] : {of[1]}[0];",
        ]
        body = [
            entered,
            c_text.split(args.size("COUNT", x.numel), 16),
            loop("i", "lo", "hi", *looked),
        ]
        return c_text.kernel(
            args,
            body,
            ctx,
            helpers=_HELPERS,
            preludes=c_copy.preludes(),
            workspace=places * DType.INT64.itemsize,
            phases=2,
        )


def _walk(args: Args, dtype: DType, own: str, table: str) -> list[str]:
    """Declare ``at``: the place of that number's key, or the free one that it would have."""
    other = _bits(dtype, f"{args.input(1)}[{table}[at] - 1]")
    return [
        f"const uint64_t bits = {_bits(dtype, own)};",
        "int64_t at = TX_NAME(place)(bits, PLACES);",
        f"while ({table}[at] && {other} != bits) at = at + 1 == PLACES ? 0 : at + 1;",
    ]


def _bits(dtype: DType, place: str) -> str:
    value = element(dtype, place)
    return f"TX_NAME(bits)({value})" if dtype.is_float else f"(uint64_t){value}"
