"""Which layers must stay float for a model to be as good as it was, to a given drop.

What a layer loses by itself is measured on stored activations: its result from rounded inputs and
weights beside its result from floats. Layers are left float in the order of that, as many as it
takes, found by bisection; then each of them is tried as integers again, the least sensitive first.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import AccuracyError, BuildCancelled, InvalidArgument
from tactix.contracts.graph import run_node
from tactix.network.definition import NetworkDefinition
from tactix_quantize import feeds
from tactix_quantize.calibrate import Observer
from tactix_quantize.model import FloatModel
from tactix_quantize.observe import Tensors, sizes_of
from tactix_quantize.points import WeightedProduct

Batch = Mapping[str, Array]
Metric = Callable[[Sequence[Batch], Sequence[Batch]], float]
"""From outputs and inputs of all batches to how good a model is; more is better."""
ACTIVATIONS = 2
"""Batches on which layers are looked at one by one."""
NEGLIGIBLE = 1e-30
"""Added to energies, so that a layer without results has no loss."""


@dataclass(frozen=True)
class TriedLayers:
    """A model with these layers float. ``drop``: of the metric, from the float model's."""

    wide: tuple[str, ...]
    drop: float


@dataclass(frozen=True)
class AccuracyTrade:
    """``losses``: noise by signal of every layer alone, the most sensitive first; ``trials``: in
    their order, the first with no layer float; ``best``: the one with the fewest whose drop is
    allowed.
    """

    metric: float
    losses: Mapping[str, float]
    trials: tuple[TriedLayers, ...]
    best: TriedLayers


def script_metric(path: str) -> Metric:
    """The function ``metric`` of a script, whose prints go to stderr: stdout is the report's.
    Raises InvalidArgument.
    """
    try:
        with redirect_stdout(sys.stderr):
            found = runpy.run_path(path).get("metric")
    except (Exception, SystemExit) as e:  # the script is the user's
        raise InvalidArgument("the script fails", who=path, why=f"{type(e).__name__}: {e}") from e
    if not callable(found):
        do = "Define metric(outputs, inputs) there: lists of dicts of arrays to a float"
        raise InvalidArgument("the script has no function metric", who=path, do=do)

    def metric(outputs: Sequence[Batch], inputs: Sequence[Batch]) -> float:
        try:
            with redirect_stdout(sys.stderr):
                return float(found(outputs, inputs))
        except (Exception, SystemExit) as e:
            why = f"{type(e).__name__}: {e}"
            raise InvalidArgument("metric fails", who=path, why=why) from e

    return metric


def signal_kept(wanted: Sequence[Batch]) -> Metric:
    """One less the energy of the noise as a share of that of the outputs, of the output that loses
    most.
    """

    def metric(outputs: Sequence[Batch], inputs: Sequence[Batch]) -> float:
        return 1 - max(
            _energy(
                found[name].astype(np.float64) - one[name] for found, one in _pairs(outputs, wanted)
            )
            / (_energy(one[name] for one in wanted) + NEGLIGIBLE)
            for name in wanted[0]
        )

    return metric


def _copies(batches: Sequence[Batch]) -> list[Batch]:
    return [{name: x.copy() for name, x in batch.items()} for batch in batches]


def _pairs(a: Sequence[Batch], b: Sequence[Batch]) -> Iterator[tuple[Batch, Batch]]:
    return zip(a, b, strict=True)


def _energy(arrays: Iterator[Array]) -> float:
    return float(sum(np.square(x.astype(np.float64)).sum() for x in arrays))


class AccuracyControl:
    """Finds the fewest layers to leave float. ``data``: can be read again; see ``Calibration``."""

    def __init__(self, model: FloatModel, data: object, by: Observer) -> None:
        self._model, self._data, self._by = model, data, by
        self._batches = list(feeds.batches(data, model.network.inputs))
        self._trials: list[TriedLayers] = []

    def search(self, allowed: float, metric: Metric | None = None) -> AccuracyTrade:
        """Raises AccuracyError if all layers in floats drop more, which a metric that is no
        function of its arguments may; BuildCancelled.
        """
        floats = self._outputs(self._model.network)
        metric = metric or signal_kept(floats)
        best = self._measured(metric, floats)
        losses = self._losses()

        def drop(wide: Collection[str]) -> float:
            trial = TriedLayers(tuple(wide), best - self._metric(metric, wide))
            self._trials.append(trial)
            return trial.drop

        self._by.monitor.phase("accuracy", 0)
        chosen = self._fewest(list(losses), lambda wide: drop(wide) <= allowed)
        self._by.monitor.finish("accuracy")
        found = next(t for t in self._trials if t.wide == chosen)
        return AccuracyTrade(best, losses, tuple(self._trials), found)

    def _fewest(
        self, layers: list[str], good: Callable[[Collection[str]], bool]
    ) -> tuple[str, ...]:
        """Of layers in the order of their losses."""
        if good(()):
            return ()
        low, high = 0, len(layers)  # low is not enough, high is taken to be
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if good(tuple(layers[:middle])) else (middle, high)
        chosen = tuple(layers[:high])
        if high == len(layers) and not good(chosen):
            why = "the metric drops more than that with all layers in floats"
            raise AccuracyError("no choice of layers is good enough", why=why, do="Allow more")
        for name in reversed(chosen[:-1]):
            without = tuple(n for n in chosen if n != name)
            if good(without):
                chosen = without
        return chosen

    def _metric(self, metric: Metric, wide: Collection[str]) -> float:
        if self._by.monitor.cancelled():
            raise BuildCancelled("the search for layers was stopped")
        self._by.monitor.step("accuracy", len(self._trials), f"{len(wide)} layers in floats")
        return self._measured(metric, self._outputs(self._model.quantized_network(wide)))

    def _measured(self, metric: Metric, outputs: Sequence[Batch]) -> float:
        """The metric, which may change what it is given. Raises InvalidArgument for no number."""
        found = metric(_copies(outputs), _copies(self._batches))
        if not np.isfinite(found):
            do = "Let it give a finite number for these data"
            raise InvalidArgument(f"the metric is {found}", do=do)
        return found

    def _outputs(self, network: NetworkDefinition) -> list[Batch]:
        tensors = Tensors(
            self._by.session, network, list(dict.fromkeys(network.outputs)), self._by.config
        )
        named = list(zip(network.output_names, network.outputs, strict=True))
        found = (dict(tensors.of(batch)) for batch in self._batches)
        return [{name: one[v.name] for name, v in named} for one in found]

    # -- layers one by one ------------------------------------------------------------------------

    def _losses(self) -> dict[str, float]:
        """Noise by signal of every layer, the most sensitive first."""
        names = set(self._model.layers())
        products = [p for p in self._model.points().products if p.node.name in names]
        tensors = Tensors(
            self._by.session,
            self._model.network,
            list(dict.fromkeys(p.activation for p in products)),
            self._by.config,
        )
        readers: dict[str, list[WeightedProduct]] = {}
        for p in products:
            readers.setdefault(p.activation.name, []).append(p)
        noise, signal = dict.fromkeys(names, 0.0), dict.fromkeys(names, NEGLIGIBLE)
        for batch in self._batches[:ACTIVATIONS]:
            env = sizes_of(self._model.network, batch)
            for name, x in tensors.of(batch):
                for p in readers[name]:
                    wanted, found = self._alone(p, x, env)
                    noise[p.node.name] += _energy(iter([found - wanted]))
                    signal[p.node.name] += _energy(iter([wanted]))
        losses = {name: noise[name] / signal[name] for name in names}
        return dict(sorted(losses.items(), key=lambda item: (-item[1], item[0])))

    def _alone(self, p: WeightedProduct, x: Array, env: Mapping[str, int]) -> tuple[Array, Array]:
        """The layer's result from floats, and from 8 bits."""
        rest = [None if v is None else v.array for v in p.node.inputs[2:]]
        made = self._model.numbers.weights(p.weights.array, p.axis)
        shape = [-1 if i == p.axis else 1 for i in range(made.stored.ndim)]
        weights = made.stored.astype(np.float32) * made.scales.reshape(shape)
        rounded = self._model.numbers.rounded(x, self._model.scales[p.activation])
        plain = run_node(p.node, [x, p.weights.array, *rest], env)[0]
        return plain, run_node(p.node, [rounded, weights, *rest], env)[0]
