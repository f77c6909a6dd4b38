"""What a program says about the tactics of a build, as tactix's selector: libraries that it leaves
out, how many to time, and an algorithm selector.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import NetworkError
from tactix_tensorrt.api.callbacks import (
    IAlgorithm,
    IAlgorithmContext,
    IAlgorithmIOInfo,
    IAlgorithmSelector,
    IAlgorithmVariant,
)
from tactix_tensorrt.api.enums import DataType, TacticSource
from tactix_tensorrt.api.values import FROM_NATIVE, Dims

if TYPE_CHECKING:
    from tactix.base.tensor import Format, TensorSpec
    from tactix.contracts.graph import Node
    from tactix.plan.schema import Plan
    from tactix.select.enumerate import Candidate

LIBRARIES = {"cublaslt": ("CUBLAS", "CUBLAS_LT"), "cudnn": ("CUDNN",)}
"""Families of tactics that call NVIDIA's libraries, and the sources of TensorRT that stand for
them."""

Names = tuple[str, str, str]
"""A node, its tactic and its variant, as a plan's steps tell them."""


def left_out(sources: int) -> frozenset[str]:
    """Families that a mask of TacticSource leaves out."""
    known = TacticSource.__members__
    return frozenset(
        family
        for family, names in LIBRARIES.items()
        if names[0] in known and not any(sources & known[n].mask for n in names if n in known)
    )


class Selection:
    """tactix's selector for one build. ``most``: how many candidates of a node may race, all for
    -1; ``selector``: the program's.
    """

    def __init__(
        self, families: frozenset[str], most: int, selector: IAlgorithmSelector | None
    ) -> None:
        self._families, self._most, self._selector = families, most, selector
        self._known: dict[Names, tuple[IAlgorithmContext, IAlgorithm]] = {}

    def select(self, node: Node, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Raises NetworkError for what the program's selector fails with or gives."""
        found = [c for c in candidates if c.tactic.source not in self._families]
        if self._most > 0:
            found = sorted(found, key=lambda c: c.estimate or 0.0)[: self._most]
        return found if self._selector is None else self._asked(self._selector, node, found)

    def _asked(
        self, selector: IAlgorithmSelector, node: Node, candidates: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        context = _context(node)
        choices = [_algorithm(node, c) for c in candidates]
        for c, choice in zip(candidates, choices, strict=True):
            self._known[node.name, c.tactic.key, str(c.variant)] = context, choice
        try:
            return [candidates[i] for i in selector.select_algorithms(context, choices)]
        except Exception as e:  # the program's code
            what = f"select_algorithms fails with {type(e).__name__}"
            raise NetworkError(what, who=node.name, why=str(e)) from e

    def report(self, plan: Plan) -> None:
        """Tell the program's selector what the plan has."""
        if self._selector is None:
            return
        names = [
            (s.name, str(s.info.get("tactic")), str(s.info.get("variant"))) for s in plan.steps
        ]
        told = [self._known[n] for n in names if n in self._known]
        self._selector.report_algorithms([c for c, _ in told], [a for _, a in told])


def _context(node: Node) -> IAlgorithmContext:
    shapes = [[_sizes(v.spec)] * 3 for v in (*node.given, *node.outputs)]
    return IAlgorithmContext(node.name, shapes, len(node.given))


def _algorithm(node: Node, c: Candidate) -> IAlgorithm:
    inputs = [(v.spec, c.variant.input_format(i)) for i, v in enumerate(node.given)]
    outputs = [(v.spec, c.variant.output_format(i)) for i, v in enumerate(node.outputs)]
    variant = IAlgorithmVariant(_number(c.tactic.key), _number(str(c.variant)))
    infos = [_info(spec, fmt) for spec, fmt in (*inputs, *outputs)]
    return IAlgorithm(variant, infos, c.estimate)


def _info(spec: TensorSpec, fmt: Format) -> IAlgorithmIOInfo:
    strides, step = [], 1
    for n in reversed(_sizes(spec)):
        strides.append(step)
        step *= max(n, 1)
    blocked = fmt.lanes > 1
    return IAlgorithmIOInfo(
        FROM_NATIVE.get(spec.dtype, DataType.FLOAT),
        Dims(strides[::-1]),
        1 if blocked else -1,
        fmt.lanes if blocked else -1,
    )


def _sizes(spec: TensorSpec) -> Dims:
    """-1 where it is open."""
    return Dims([d if isinstance(d, int) else -1 for d in spec.shape])


def _number(name: str) -> int:
    """The same in every process."""
    return zlib.crc32(name.encode())
