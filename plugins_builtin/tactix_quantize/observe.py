"""Ranges of a network's tensors, by running it as it is, in floats.

Tensors to look at become outputs of plans that are chosen by estimates, as their speed matters
little; so many of them in one plan that a batch of all of them takes a bounded amount of memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dims import evaluate, symbol_name
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.logger import Logger
from tactix.builder import Builder
from tactix.config import BuilderConfig
from tactix.contracts.graph import Value
from tactix.network.definition import NetworkDefinition
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.run.link import device_of

MEMORY = 256 << 20
"""Bytes of observed tensors that one plan gives, unless a single one is larger."""
Batch = Mapping[str, Array]


class Tensors:
    """Runs a network and gives the content of chosen tensors, batch by batch.

    ``config``: of the build that asks; its device is run on if it is here, else the processor.
    """

    def __init__(
        self,
        session: Session,
        network: NetworkDefinition,
        values: Sequence[Value],
        config: BuilderConfig,
    ) -> None:
        self._builder = Builder(session.logger, session)
        self._network, self._config = network, _plain(session, config)
        self._values = values
        self._engines: list[Engine] = []

    def of(self, batch: Batch) -> Iterator[tuple[str, Array]]:
        """Name and content of every tensor, of inputs first. Raises what building and running
        raise.
        """
        inputs = {v.name for v in self._network.inputs}
        for v in self._values:
            if v.name in inputs:
                yield v.name, batch[v.name]
        inner = [v for v in self._values if v.name not in inputs]
        if inner and not self._engines:
            self._engines = [self._engine(group) for group in self._groups(inner, batch)]
        for engine in self._engines:
            context = engine.create_execution_context()
            found = context.infer([batch[io.name] for io in engine.inputs])
            yield from zip((io.name for io in engine.outputs), found, strict=True)

    def _groups(self, values: Sequence[Value], batch: Batch) -> list[list[Value]]:
        """Tensors in order, as many together as memory allows."""
        groups: list[list[Value]] = [[]]
        sizes, used = sizes_of(self._network, batch), 0
        for v in values:
            size = _bytes(v, sizes)
            if groups[-1] and used + size > MEMORY:
                groups.append([])
                used = 0
            groups[-1].append(v)
            used += size
        return groups

    def _engine(self, values: Iterable[Value]) -> Engine:
        net = self._network.copy()
        for name in net.output_names:
            net.unmark_output(name)
        inside = {v.name: v for v in net.values}
        for v in values:
            net.mark_output(inside[v.name])
        return self._builder.build(net, self._config)


class Seen:
    """Counts of values by tensor: of those that are not finite, and of all others but zero."""

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._useful: Counter[str] = Counter()

    def add(self, name: str, values: Array) -> None:
        finite = np.isfinite(values)
        lost = values.size - int(np.count_nonzero(finite))
        self._all[name] += values.size
        self._lost[name] += lost
        self._useful[name] += int(np.count_nonzero(values)) - lost

    def tell(self, logger: Logger) -> None:
        """Warn of what ranges cannot come from. Raises InvalidArgument where no value is finite."""
        if (lost := self._lost.total()) and lost == self._all.total():
            do = "Give samples of finite numbers, on which the float model gives such"
            raise InvalidArgument("no value that calibration sees is finite", do=do)
        broken = [f"{n} ({k} of {self._all[n]})" for n, k in self._lost.items() if k]
        if broken:
            told = f"values that are not finite are left out: {', '.join(broken[:3])}"
            logger.warning(f"{told}. Give samples on which the float model gives finite values")
        empty = [n for n, k in self._useful.items() if not k and self._lost[n] < self._all[n]]
        if empty:
            logger.warning(
                f"samples tell no range of {len(empty)} tensors, which are zero in all of them: "
                f"{', '.join(empty[:3])}. Give samples on which they are not"
            )


def _plain(session: Session, config: BuilderConfig) -> BuilderConfig:
    """A build of floats on the same device, chosen by estimates."""
    here = not device_of(session, config.device).available()
    return BuilderConfig(
        builder_optimization_level=0,
        device=config.device if here else "cpu",
        threads=config.threads,
        enabled=set(config.enabled),
        sign=False,
    )


def sizes_of(network: NetworkDefinition, batch: Batch) -> dict[str, int]:
    """The symbols of the inputs' shapes at this batch."""
    return {
        name: n
        for v in network.inputs
        for d, n in zip(v.spec.shape, batch[v.name].shape, strict=True)
        if (name := symbol_name(d)) is not None
    }


def _bytes(v: Value, sizes: Mapping[str, int]) -> int:
    """Of one tensor; none where only running tells."""
    try:
        return evaluate(v.spec.nbytes(), sizes)
    except ShapeError:
        return 0
