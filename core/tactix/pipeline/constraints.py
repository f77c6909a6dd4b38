"""What must hold between symbols for a network's shapes to make sense, and sizes for which it does.

Shapes of inputs with symbols of their own say nothing of each other until a layer adds them, or
until a mask is as long as a past and a present together. Layers note such demands as they infer
(``dims.assume``); broadcasts are demands of themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from tactix.base.dims import Assumption, Expr, assumptions, evaluate, operations, symbols
from tactix.base.errors import TactixError
from tactix.contracts.attrs import symbols_in
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition

ROUNDS = 8
"""How often all demands are looked at: mending one may break another."""
FARTHEST = 4096
"""How far from a size one is looked for that meets a demand, where that is no linear equation."""

Sizes = dict[str, int]


def demands(net: NetworkDefinition) -> dict[Assumption, str]:
    """What a network asks of its symbols, in the order of the nodes, and the first node that asks
    it.
    """
    found: dict[Assumption, str] = {}
    for n in net.nodes:
        if _is_fixed(n):
            continue
        with assumptions() as noted:
            n.layer.infer(n.attrs, [None if v is None else v.spec for v in n.inputs])
        for d in chain.from_iterable(v.spec.shape for v in n.outputs):
            noted += (Assumption(a, "bcast", b) for a, b in operations(d, "bcast"))
        found = dict.fromkeys(noted, n.name) | found
    return {a: who for a, who in (net.demands | found).items() if not a.certain}


def _is_fixed(node: Node) -> bool:
    """Whether no symbol is in its shapes, nor in what it is told: then it asks nothing of any."""
    for v in (*node.given, *node.outputs):
        spec = v.spec
        if any(isinstance(d, Expr) for d in (*spec.shape, *(spec.value or ()))):
            return False
    return not symbols_in(node.attrs)


def settled(
    net: NetworkDefinition, sizes: Mapping[str, int], free: Mapping[str, int | None]
) -> Sizes:
    """The sizes, those of ``free`` symbols changed where a demand asks for it; none above the
    number beside it.

    Of several symbols that could give way the one goes that fewest tensors have. What cannot be met
    stays unmet.
    """
    known = dict(sizes)
    asked = [a for a in demands(net) if a.symbols <= known.keys()]
    uses = Counter(
        s for n in net.nodes for v in n.outputs for d in v.spec.shape for s in symbols(d)
    )
    for _ in range(ROUNDS):
        broken = [a for a in asked if not a.holds(known)]
        if not broken:
            break
        for a in broken:
            giving = sorted(a.symbols & free.keys(), key=lambda s: (uses[s], s))
            found = (_mended(a, known, s, free[s]) for s in giving)
            known.update(next((f for f in found if f), {}))
    return known


def _mended(a: Assumption, sizes: Sizes, symbol: str, most: int | None) -> Sizes:
    """Another size of a symbol with which the demand holds; empty if none is near."""
    for size in _candidates(a, sizes, symbol):
        if 1 <= size <= (size if most is None else most) and a.holds({**sizes, symbol: size}):
            return {symbol: size}
    return {}


def _candidates(a: Assumption, sizes: Sizes, symbol: str) -> Iterator[int]:
    """What solves the demand as a linear equation, then what is near, larger before smaller."""
    now = sizes[symbol]

    def gap(size: int) -> int:
        env = {**sizes, symbol: size}
        return evaluate(a.left, env) - evaluate(a.right, env)

    try:
        here, slope = gap(now), gap(now + 1) - gap(now)
        if slope:
            yield now - here // slope
    except TactixError:  # one side is a broadcast that does not hold itself
        pass
    for step in range(1, FARTHEST):
        yield now + step
        yield now - step
