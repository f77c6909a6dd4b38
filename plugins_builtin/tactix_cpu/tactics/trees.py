"""TreeEnsemble in C: rows of samples walk trees in step, so that loads of one wait beside others'.

Nodes lie in one table, of which leaves lead to themselves: a walk ends where nothing moves any
more. Sums are kept in float64, tree after tree, as the layer has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_ops.layers.trees import MODES, check_trees

SECONDS_A_WALK = 1.5e-8
"""Of a sample through a tree of some eight levels. No measurement of it is on record."""
ROWS = 64
"""Samples that go through one tree before the next: its nodes stay in the first cache."""
X, FEATURE, MODE, SPLIT, YES, NO, MISSING, ROOTS, LEAF, TARGET, WEIGHT, SET, MEMBER = range(13)
"""The layer's inputs."""
TESTS = ("v <= s", "v < s", "v >= s", "v > s", "v == s", "v != s")
"""By mode: whether it holds for value ``v`` and split ``s``."""
IN_SET, END = MODES.index("BRANCH_MEMBER"), MODES.index("LEAF")


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [TreeEnsembleTactic()]


@dataclass(frozen=True)
class TreeWork:
    """``real``: the dtype that values and splits are compared in. ``modes``: what nodes ask.

    ``missing``: whether any asks for NaN. ``last``: the highest feature. ``single``: every sum is
    of one number for each leaf, and of one target.
    """

    node: Node
    real: DType
    modes: tuple[int, ...]
    missing: bool
    last: int
    single: bool

    @property
    def keeps_tests(self) -> bool:
        """Whether nodes say what they ask, as it is not the same of all."""
        return len(self.modes) > 1 or self.missing


class TreeEnsembleTactic(Tactic[TreeWork]):
    """Constant trees over floats; every mode and aggregate."""

    key = "tactix.c_trees@1"
    implements = ("tactix.TreeEnsemble@1",)
    source = "c"

    def match(self, node: Node, device: DeviceProperties) -> TreeWork | Reject:
        x, *tables = (v.spec for v in node.given)
        if node.is_fused or not x.dtype.is_float or not c_text.has_ctype(x.dtype):
            return Reject("this kernel takes samples of floats, and no epilogue")
        if any(t.const is None for t in tables) or len(node.given) not in (SET, MEMBER + 1):
            return Reject("this kernel takes constant trees")
        given = [None, *(v.array for v in node.given[1:])]
        if (why := _why_not(given, node.attrs.targets)) is not None:
            return why
        return _work(node, given)

    def cost(self, work: TreeWork, variant: Variant, ctx: CompileContext) -> float | None:
        trees = work.node.given[ROOTS].spec.numel
        walks = work.node.given[X].spec.shape[0] * trees
        return c_text.seconds(ctx, (walks, SECONDS_A_WALK))

    def compile(self, work: TreeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        body = _samples(args, work, threads)
        room = ROWS * work.node.attrs.targets * 8 * threads
        return c_text.kernel(
            args,
            body,
            ctx,
            helpers=_node_type(work),
            preludes=c_copy.preludes(),
            workspace=room,
        )


# -- what the tables say ---------------------------------------------------------------------------


def _why_not(given: Sequence[Array | None], targets: int) -> Reject | None:
    """Why the kernel must not walk these trees, if so: it looks at no number again."""
    tables = [np.asarray(x) for x in given]
    count = len(tables[MODE])
    inner = tables[MODE] != END
    inside = (
        (tables[ROOTS], count),
        (tables[YES][inner], count),
        (tables[NO][inner], count),
        (tables[LEAF], count),
        (tables[TARGET], targets),
        (tables[FEATURE][inner], 1 << 31),
    )
    if count == 0 or any(((x < 0) | (x >= n)).any() for x, n in inside):
        return Reject("a tree names what is not there")
    if ((tables[MODE] < 0) | (tables[MODE] > END)).any():
        return Reject("a node asks what no mode is")
    try:
        check_trees(tables[MODE], tables[YES], tables[NO])
    except InvalidArgument as e:
        return Reject(e.what)
    return None


def _work(node: Node, given: Sequence[Array | None]) -> TreeWork | Reject:
    tables = [np.asarray(x) for x in given]
    inner = tables[MODE] != END
    asked = tables[FEATURE][inner]
    last = int(asked.max()) if len(asked) else 0
    features = node.given[X].spec.shape[1]
    if isinstance(features, int) and features <= last:
        return Reject(f"a tree asks for feature {last} of {features}")
    modes = tuple(sorted({int(m) for m in tables[MODE][inner]}))
    if IN_SET in modes and len(given) <= SET:
        return Reject("nodes ask for sets that are not there")
    compared = [v.spec.dtype for k, v in enumerate(node.given) if k in (X, SPLIT, MEMBER)]
    single = node.attrs.targets == 1 and node.attrs.aggregate in ("SUM", "AVERAGE")
    missing = bool(tables[MISSING][inner].any())
    real = DType.FP64 if DType.FP64 in compared else DType.FP32
    return TreeWork(node, real, modes, missing, last, single)


def _node_fields(work: TreeWork) -> list[tuple[str, str, str]]:
    """Of a node: name, C type and numpy's."""
    fields = [(name, "int32_t", "<i4") for name in ("feature", "yes", "no")]
    fields += [("test", "int32_t", "<i4")] if work.keeps_tests or work.real is DType.FP64 else []
    return [*fields, ("split", c_text.ctype(work.real), f"<f{work.real.itemsize}")]


def _node_type(work: TreeWork) -> str:
    fields = " ".join(f"{kind} {name};" for name, kind, _ in _node_fields(work))
    return f"typedef struct {{ {fields} }} TX_NAME(node);\n" + (
        _AMONG.replace("REAL", c_text.ctype(work.real)) if IN_SET in work.modes else ""
    )


_AMONG = """
TX_INLINE int TX_NAME(among)(const REAL* members, int64_t first, int64_t end, REAL v) {
    int found = 0;
    for (int64_t i = first; i < end; i++) found |= members[i] == v;
    return found;
}
"""


def _packed_nodes(work: TreeWork, given: Sequence[Array]) -> Array:
    """The table of nodes as bytes; leaves lead to themselves, and look at feature 0."""
    mode, count = given[MODE], len(given[MODE])
    inner, own = mode != END, np.arange(count)
    made = np.zeros(count, [(name, kind) for name, _, kind in _node_fields(work)])
    made["feature"] = np.where(inner, given[FEATURE], 0)
    made["yes"] = np.where(inner, given[YES], own)
    made["no"] = np.where(inner, given[NO], own)
    made["split"] = given[SPLIT]
    if work.keeps_tests:
        made["test"] = mode + 8 * (given[MISSING] & inner)
    return made.view(np.uint8)


def _sums(given: Sequence[Array], targets: int) -> tuple[Array, Array]:
    """Places ``leaf * targets + target`` in order, each once, and the sums of their weights."""
    flat = given[LEAF].astype(np.int64) * targets + given[TARGET].astype(np.int64)
    places, which = np.unique(flat, return_inverse=True)
    sums = np.zeros(len(places))
    np.add.at(sums, which.reshape(-1), given[WEIGHT].astype(np.float64))
    return places, sums


def _begins(owners: Array, nodes: int) -> Array:
    """Where the entries of each node begin, and the last ones end; owners are in order."""
    return np.searchsorted(owners, np.arange(nodes + 1)).astype(np.int32)


# -- text ------------------------------------------------------------------------------------------


def _samples(args: Args, work: TreeWork, threads: int) -> list[str]:
    """Every thread has samples, and walks some of them at a time through all trees."""
    targets = work.node.attrs.targets
    args.size("TARGETS", targets)
    args.size("FEATURES", work.node.given[X].spec.shape[1])
    args.size("TREES", work.node.given[ROOTS].spec.numel)
    total = f"{args.workspace(0, 'double')} + tid * ROWS * TARGETS"
    aggregate = work.node.attrs.aggregate
    start = {"MIN": "INFINITY", "MAX": "-INFINITY"}.get(aggregate, "0")
    group = [
        "const int64_t n = hi - first < ROWS ? hi - first : ROWS;",
        loop("i", "0", "n * TARGETS", f"total[i] = {start};"),
        comment("Pairs of a tree and a sample, trees outside: LANES of them walk in step."),
        "int64_t tree = 0, row = 0;",
        loop("pair", "0", "TREES * n", *_walk(args, work), step="LANES"),
        *_results(args, work),
    ]
    return [
        f"enum {{ ROWS = {ROWS}, LANES = 16 }};",
        *c_text.at_most(threads),
        c_text.split(args.size("SAMPLES", work.node.given[X].spec.shape[0])),
        *_guarded(args, work),
        f"const TX_NAME(node)* const nodes = (const TX_NAME(node)*){_table(args, work)};",
        f"double* const total = {total};",
        loop("first", "lo", "hi", *group, step="ROWS"),
    ]


def _guarded(args: Args, work: TreeWork) -> list[str]:
    """Features that only running tells may be too few."""
    if isinstance(work.node.given[X].spec.shape[1], int):
        return []
    report = f"tx_report({args.fault()}, {work.last}, FEATURES);"
    return [block(f"if (FEATURES <= {work.last})", f"if (lo < hi) {report}", "return;")]


def _table(args: Args, work: TreeWork) -> str:
    packed = Packed(-1, array=lambda given: _packed_nodes(work, given))
    return args.constant("nodes", packed, DType.UINT8)


def _walk(args: Args, work: TreeWork) -> list[str]:
    x = args.input(X)
    dtype, real = work.node.given[X].spec.dtype, c_text.ctype(work.real)
    roots = args.constant("roots", Packed(ROOTS, (("cast", DType.INT32),)), DType.INT32)
    begin = [
        f"place[l] = tree < TREES ? {roots}[tree] : place[0];",
        "sample[l] = tree < TREES ? row : row0;",
        f"at[l] = {x} + (first + sample[l]) * FEATURES;",
        "if (++row == n) { row = 0; tree++; }",
    ]
    step = [
        "const TX_NAME(node) here = nodes[place[l]];",
        f"const {real} v = {c_scalar.element(dtype, 'at[l][here.feature]')}, s = here.split;",
        f"const int32_t next = {_holds(args, work)} ? here.yes : here.no;",
        "moved |= next != place[l];",
        "place[l] = next;",
    ]
    return [
        "int32_t place[LANES];",
        "int64_t sample[LANES];",
        f"const {c_text.ctype(dtype)}* at[LANES];",
        "const int64_t row0 = row;",
        loop("l", "0", "LANES", *begin),
        "int moved;",
        f"{block('do', 'moved = 0;', loop('l', '0', 'LANES', *step))} while (moved);",
        "const int64_t count = TREES * n - pair < LANES ? TREES * n - pair : LANES;",
        loop("l", "0", "count", *_leaf(args, work)),
    ]


def _holds(args: Args, work: TreeWork) -> str:
    """Whether what a node asks holds for its value."""
    if not work.keeps_tests:
        return f"({_test(args, work, work.modes[0])})" if work.modes else "0"
    asked = "0"
    for mode in reversed(work.modes):
        asked = f"(here.test & 7) == {mode} ? {_test(args, work, mode)} : {asked}"
    return f"(({asked}) || (here.test > 7 && v != v))"


def _test(args: Args, work: TreeWork, mode: int) -> str:
    if mode != IN_SET:
        return TESTS[mode]
    nodes = work.node.given[MODE].spec.numel
    assert isinstance(nodes, int)

    def ordered(given: Sequence[Array]) -> Array:
        return np.argsort(given[SET], kind="stable")

    begins = Packed(-1, array=lambda given: _begins(given[SET][ordered(given)], nodes))
    members = Packed(-1, array=lambda given: given[MEMBER][ordered(given)].astype(work.real.numpy))
    first = args.constant("sets", begins, DType.INT32)
    listed = args.constant("members", members, work.real)
    own = f"{first}[place[l]], {first}[place[l] + 1]"
    return f"TX_NAME(among)({listed}, {own}, v)"


def _leaf(args: Args, work: TreeWork) -> list[str]:
    """What a leaf says is added to, or compared with, what other trees said of the sample."""
    targets, aggregate = work.node.attrs.targets, work.node.attrs.aggregate
    nodes = work.node.given[MODE].spec.numel
    assert isinstance(nodes, int)
    if work.single:
        dense = Packed(-1, array=lambda given: _dense(given, nodes))
        return [f"total[sample[l]] += {args.constant('values', dense, DType.FP64)}[place[l]];"]

    def begins(given: Sequence[Array]) -> Array:
        return _begins(_sums(given, targets)[0] // targets, nodes)

    first = args.constant("leaves", Packed(-1, array=begins), DType.INT32)
    target = args.constant(
        "targets",
        Packed(-1, array=lambda given: (_sums(given, targets)[0] % targets).astype(np.int32)),
        DType.INT32,
    )
    weight = args.constant(
        "weights", Packed(-1, array=lambda given: _sums(given, targets)[1]), DType.FP64
    )
    better = {"MIN": "w < *own ? w : *own", "MAX": "w > *own ? w : *own"}
    return [
        loop(
            "e",
            f"{first}[place[l]]",
            f"{first}[place[l] + 1]",
            f"double* const own = total + sample[l] * TARGETS + {target}[e];",
            f"const double w = {weight}[e];",
            f"*own = {better.get(aggregate, '*own + w')};",
        )
    ]


def _dense(given: Sequence[Array], nodes: int) -> Array:
    """What each node says of the one target."""
    values = np.zeros(nodes)
    np.add.at(values, given[LEAF].astype(np.int64), given[WEIGHT].astype(np.float64))
    return values


def _results(args: Args, work: TreeWork) -> list[str]:
    dtype = work.node.outputs[0].spec.dtype
    value = {
        "SUM": "total[i]",
        "AVERAGE": "total[i] / (double)(TREES > 1 ? TREES : 1)",
    }.get(work.node.attrs.aggregate, "isfinite(total[i]) ? total[i] : 0")
    narrow = "float" if dtype in c_scalar.WIDE else c_text.ctype(dtype)
    store = c_scalar.stored(dtype, f"({narrow})({value})")
    return [loop("i", "0", "n * TARGETS", f"{args.output()}[first * TARGETS + i] = {store};")]
