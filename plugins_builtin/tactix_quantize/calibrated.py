"""Products of a network whose inputs have known ranges, of which builds try mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tactix.contracts.build_stage import Lowered
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix_quantize.insert import ProductConstants, constants_of, insert
from tactix_quantize.numbers import NarrowNumbers, NarrowScale
from tactix_quantize.points import Points, Wishes, points


@dataclass(frozen=True)
class CalibratedProducts:
    """``scales``: of tensors by name; ``constants``: of products by name, from before other stages
    had the network, in the ``numbers`` of 8 bits that they read; ``wide``: why other products are
    floats in every mixture.
    """

    scales: Mapping[str, NarrowScale]
    constants: Mapping[str, ProductConstants]
    wide: Mapping[str, str]
    wishes: Wishes
    numbers: NarrowNumbers

    @classmethod
    def of(
        cls,
        places: Points,
        scales: Mapping[Value, NarrowScale],
        wishes: Wishes,
        numbers: NarrowNumbers,
    ) -> CalibratedProducts:
        """``places``: those of known ranges."""
        return cls(
            {v.name: scale for v, scale in scales.items()},
            {p.node.name: constants_of(p, numbers) for p in places.products},
            places.wide,
            wishes,
            numbers,
        )

    def lowered(
        self, network: NetworkDefinition, stays: Callable[[str], str]
    ) -> Lowered[NetworkDefinition]:
        """A copy whose products read 8 bits, but for those that stay and need not read them."""
        net = network.copy()
        scales = {v: self.scales[v.name] for v in net.values if v.name in self.scales}

        def wide(node: Node) -> str:
            forced = self.wishes.forces(node)
            return self.wide.get(node.name, "") or ("" if forced else stays(node.name))

        places = points(net, wide, self.numbers)
        made = insert(net, places, scales, lambda p: self.constants[p.node.name])
        fixed = (p.node for p in places.products)
        obeyed = frozenset(n.name for n in fixed if self.wishes.forces(n))
        return Lowered(net, made, places.wide, obeyed)
