"""A graph of torch that runs as an engine."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

import tactix
from tactix.base.errors import ConfigError, TactixError
from tactix.run.engine import Engine
from tactix_bridges.torch_compile.arrays import array_of, tensor_of
from tactix_bridges.torch_compile.check import check_numbers, check_shapes
from tactix_bridges.torch_compile.export import TensorInput, write_model
from tactix_bridges.torch_compile.graph import (
    InputKind,
    OutputKind,
    TracedGraph,
    Unsuited,
    expected_shapes,
    exported_module,
    sizes_module,
    varying_axes,
)
from tactix_bridges.torch_compile.options import BackendOptions

CHECKED_SIZES = 4
"""How many sizes of inputs are run by torch as well."""
MOST_SIZES = 1024
"""Of which it is kept that results had the right shapes; others are checked at each call."""

Sizes: TypeAlias = tuple[tuple[int, ...], ...]

Argument: TypeAlias = "torch.Tensor | int"


@dataclass(frozen=True)
class HeldWeight:
    """What an engine holds of a tensor, by which a change of it is seen. ``version`` counts what is
    written to it; tensors made in inference mode have none. ``address``: of its memory, which
    ``tensor.data = ...`` changes.
    """

    tensor: torch.Tensor
    version: int
    address: int

    @staticmethod
    def of(tensor: torch.Tensor) -> HeldWeight:
        return HeldWeight(tensor, _version(tensor), tensor.data_ptr())

    def is_still(self, tensor: torch.Tensor) -> bool:
        return (
            tensor is self.tensor
            and _version(tensor) == self.version
            and tensor.data_ptr() == self.address
        )


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class Built:
    """An engine, and the weights that it was built with, in the order of the graph's."""

    engine: Engine
    weights: tuple[HeldWeight, ...]


class CompiledGraph:
    """Is called like the graph. The first call builds, and so does the first one after a weight has
    changed. May be called from any thread.

    A graph that cannot be built is left to torch from then on, with a warning, or raises
    ConfigError where the caller wants that.
    """

    def __init__(self, graph: TracedGraph, options: BackendOptions) -> None:
        self._graph = graph
        self._options = options
        self._ranges = varying_axes(graph)
        self._sizes = sizes_module(graph)
        self._tensors = graph.of_kind(InputKind.TENSOR)
        self._weights = graph.of_kind(InputKind.WEIGHT)
        self._built: Built | None = None
        self._seen: set[Sizes] = set()
        self._left = False
        self._lock = threading.Lock()

    def __call__(self, *arguments: Argument) -> Sequence[object]:
        if self._left:
            return self._as_torch(arguments)
        built = self._built
        if built is None or not self._is_current(built, arguments):
            built = self._rebuilt(arguments)
            if built is None:
                return self._as_torch(arguments)
        try:
            return self._results(built.engine, arguments)
        except (Unsuited, TactixError) as e:
            # What torch refuses as well it tells better: its error is what the caller knows.
            results = self._as_torch(arguments)
            self._leave(e)
            return results

    def _leave(self, why: Exception) -> None:
        """From now on the graph is torch's. Raises ConfigError where the caller wants that."""
        self._left = True
        self._options.refuse_or_warn(str(why))

    def _as_torch(self, arguments: Sequence[Argument]) -> Sequence[object]:
        results: Sequence[object] = self._graph.module(*arguments)
        return results

    def _is_current(self, built: Built, arguments: Sequence[Argument]) -> bool:
        held = zip(self._weights, built.weights, strict=True)
        return all(weight.is_still(arguments[i]) for i, weight in held)

    # -- building ---------------------------------------------------------------------------------

    def _rebuilt(self, arguments: Sequence[Argument]) -> Built | None:
        """None where the graph is left to torch."""
        with self._lock:
            if self._built is not None and self._is_current(self._built, arguments):
                return self._built  # by another thread, meanwhile
            if self._built is not None:
                self._options.logger.warning(
                    "Weights of a compiled program have changed: its plan is built again"
                )
            try:
                # Not to be traced itself: exporting calls torch.
                self._built = torch._dynamo.disable(self._build)(arguments)
            except ConfigError:  # of what the caller said, not of the graph
                raise
            except (Unsuited, TactixError) as e:
                self._leave(e)
                return None
            self._options.logger.info(f"A graph of torch runs as {self._built.engine!r}")
            return self._built

    def _build(self, arguments: Sequence[Argument]) -> Built:
        weights = tuple(HeldWeight.of(t) for t in self._of(self._weights, arguments))
        with torch.no_grad(), tempfile.TemporaryDirectory(prefix="tactix-") as folder:
            path = Path(folder) / "torch_graph.onnx"
            inputs = self._inputs(arguments)
            write_model(exported_module(self._graph, arguments), inputs, path)
            return Built(self._engine(path, inputs), weights)

    def _engine(self, path: Path, inputs: Sequence[TensorInput]) -> Engine:
        options = {"threads": torch.get_num_threads(), **self._options.build}
        if any(i.ranges for i in inputs):
            options.setdefault("shapes", {i.name: _profile(i) for i in inputs})
        options["logger"] = self._options.logger
        cache = self._options.cache
        if cache is None:
            return tactix.build(path, **options)
        try:
            return tactix.load_or_build(path, cache=cache, **options)
        except OSError as e:
            do = "Give another folder as `cache`"
            raise ConfigError(f"no plans can be kept in {cache}", why=str(e), do=do) from e

    def _inputs(self, arguments: Sequence[Argument]) -> list[TensorInput]:
        tensors = self._of(self._tensors, arguments)
        return [
            TensorInput(f"x{i}", tensor, ranges)
            for i, (tensor, ranges) in enumerate(zip(tensors, self._ranges, strict=True))
        ]

    # -- running ----------------------------------------------------------------------------------

    @staticmethod
    def _of(indices: Sequence[int], arguments: Sequence[Argument]) -> list[torch.Tensor]:
        return [t for i in indices if isinstance(t := arguments[i], torch.Tensor)]

    def _results(self, engine: Engine, arguments: Sequence[Argument]) -> Sequence[object]:
        given = self._of(self._tensors, arguments)
        made = engine(*(array_of(t) for t in given))
        arrays = list(made.values()) if isinstance(made, dict) else [made]
        tensors = [tensor_of(a) for a in arrays]
        self._check_exported(arguments, tuple(tuple(t.shape) for t in given), tensors)
        made_tensors = iter(tensors)
        numbers = iter(() if self._sizes is None else self._sizes(*arguments))
        results = zip(self._graph.outputs, self._graph.fixed, strict=True)
        return [
            next(made_tensors)
            if kind is OutputKind.TENSOR
            else next(numbers)
            if kind is OutputKind.NUMBER
            else fixed
            for kind, fixed in results
        ]

    def _check_exported(
        self, arguments: Sequence[Argument], sizes: Sizes, made: Sequence[torch.Tensor]
    ) -> None:
        """The exporter may fix a size that varies: shapes of results are checked once for each new
        sizes of inputs, and numbers for the first ones. Raises Unsuited.
        """
        if sizes in self._seen:
            return
        expected = expected_shapes(self._graph, arguments)
        check_shapes(expected, made)
        if len(self._seen) < CHECKED_SIZES and any(self._ranges):
            wanted = self._as_torch(arguments)
            check_numbers(made, [t for t in wanted if isinstance(t, torch.Tensor)])
        if len(self._seen) < MOST_SIZES:
            self._seen.add(sizes)


def _profile(tensor: TensorInput) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Lowest, tuned for and highest shape."""
    shape = tuple(tensor.example.shape)
    low = tuple(tensor.ranges.get(axis, (n, n))[0] for axis, n in enumerate(shape))
    high = tuple(tensor.ranges.get(axis, (n, n))[1] for axis, n in enumerate(shape))
    return low, shape, high
