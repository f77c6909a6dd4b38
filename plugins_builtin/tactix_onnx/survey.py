"""What of a model cannot be imported, node by node.

A refused node does not end the walk: where the file declares the shapes of its outputs, what reads
them is looked at, too, so that one error tells all. Nothing of it costs anything as long as no node
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tactix.base.dtypes import DType
from tactix.base.errors import (
    ModelImportError,
    ModelNode,
    TactixError,
    UnsupportedOperator,
    punctuated,
)
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value

if TYPE_CHECKING:
    import onnx

SHOWN = 200
"""So many refused nodes are named in an error."""

CURES = 5
"""Of so many it is told what to do."""

KEPT = 10_000
"""So many are remembered."""

LONGEST = 300
"""Longest name of a node in a message, in characters."""

BARE = "cannot be imported"
"""What errors say that have more to tell only in their reason."""

LOST = Value("", TensorSpec(DType.FP32, ()))
"""Stands for an output of a refused node whose shape is not known."""

Locate = Callable[[Sequence[int]], Mapping[int, int]]
"""Positions of nodes in the main graph to their bytes in the file."""


class Unreached(Exception):
    """A tensor was asked for that a refused node would have made."""


@dataclass(frozen=True)
class Refusal:
    """A node that cannot be imported. ``index``: its position in its graph, which is the main one
    if ``graph`` is "".

    ``offset``: of its first byte in the file; None if it is not known. ``what``, ``why`` and
    ``do``: as errors have.
    """

    node: str
    operator: str
    opset: int
    index: int
    graph: str
    what: str
    why: str = ""
    do: str = ""
    supported: bool = True
    offset: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells nodes apart: both branches of an If may have one of this number and name."""
        return self.node, self.operator, self.index

    @property
    def place(self) -> str:
        graph = f"the body of {short(self.graph)!r}" if self.graph else "the graph"
        at = f"number {self.index} of {graph}"
        at += "" if self.offset is None else f", byte {self.offset} of the file"
        return f"node {short(self.node)!r} ({self.operator}, opset {self.opset}), {at}"

    @property
    def reason(self) -> str:
        if not self.why or self.what == BARE:
            return self.why or self.what
        return f"{self.what}: {self.why}"


def short(name: str) -> str:
    """The name without its middle where it is long: names are punctuated as functions nest."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}...{name[-half:]}"


class Survey:
    """Collects refusals. ``locate``: where in the file nodes are. ``count``: of all, those not kept
    included.

    ``infer``: types of tensors by name, beyond those that the file declares; asked for once, when
    one is needed.
    ``unreached``: nodes that could not be looked at.
    """

    def __init__(
        self,
        locate: Locate | None = None,
        infer: Callable[[], Mapping[str, onnx.TypeProto]] | None = None,
    ) -> None:
        self.count = self.unreached = 0
        self._locate, self._infer = locate, infer
        self._kept: dict[tuple[str, str, int], Refusal] = {}
        self._unknown: dict[tuple[str, str, int], Refusal] = {}
        self._cause: ModelImportError | None = None
        self._inferred: Mapping[str, onnx.TypeProto] | None = None
        self._declared: dict[int, tuple[onnx.GraphProto, dict[str, onnx.TypeProto]]] = {}

    # -- collecting -------------------------------------------------------------------------------

    def expect(self, r: Refusal) -> None:
        """Note a node whose operator nothing provides, before the walk gets to it."""
        if len(self._unknown) < KEPT:
            self._unknown[r.key] = r

    @property
    def expecting(self) -> bool:
        """Whether such nodes are ahead."""
        return bool(self._unknown)

    def is_unknown(self, r: Refusal) -> bool:
        """Whether a node is one of them; from now on it is refused."""
        found = self._unknown.pop(r.key, None)
        if found is not None:
            self._add(found)
        return found is not None

    def refuse(self, r: Refusal, error: Exception) -> None:
        """Note that a node was refused with an error."""
        self._add(_explained(r, error))
        if self.count == 1:
            self._cause = _as_import_error(error)

    def _add(self, r: Refusal) -> None:
        """Bodies of loops are walked several times: their nodes count once."""
        if r.key in self._kept:
            return
        self.count += 1
        self._cause = None
        if len(self._kept) < KEPT:
            self._kept[r.key] = r

    # -- shapes behind a refused node -------------------------------------------------------------

    def type_of(
        self, graph: onnx.GraphProto | None, name: str, main: bool
    ) -> onnx.TypeProto | None:
        """The type of a tensor as its graph declares it, or in the main one as ``infer`` tells."""
        if graph is not None and id(graph) not in self._declared:
            known = (*graph.value_info, *graph.output)
            types = {v.name: v.type for v in known if v.type.tensor_type.HasField("shape")}
            self._declared[id(graph)] = (
                graph,
                types,
            )  # the graph is kept, so that no other one gets its id
        found = self._declared[id(graph)][1].get(name) if graph is not None else None
        if found is None and main and self._infer is not None:
            self._inferred = self._infer() if self._inferred is None else self._inferred
            found = self._inferred.get(name)
        return found

    # -- telling ----------------------------------------------------------------------------------

    def refusals(self) -> list[Refusal]:
        """All that were found, with places in the file; those of nodes not reached come last."""
        for r in list(self._unknown.values()):
            self.is_unknown(r)
        found = list(self._kept.values())
        wanted = [r.index for r in found if not r.graph]
        places = self._locate(wanted) if self._locate is not None and wanted else {}
        return [r if r.graph else replace(r, offset=places.get(r.index)) for r in found]

    def finish(self) -> None:
        """Raises what was found: one node's error, or UnsupportedOperator that lists all."""
        found = self.refusals()
        if not found:
            return
        skipped = (
            f"nodes behind, which could not be looked at: {self.unreached}"
            if self.unreached
            else ""
        )
        if self._cause is not None:
            raise _about(_placed(self._cause, found[0], skipped), found)
        told = [f"{r.place}: {r.reason}" for r in found[:SHOWN]]
        told += [f"and {self.count - SHOWN} more"] if self.count > SHOWN else []
        told += [skipped] if skipped else []
        more = "`tactix inspect MODEL` looks further" if skipped else ""
        cures = [*dict.fromkeys(r.do for r in found if r.do)][:CURES]
        do = punctuated((*cures, more))
        whole = UnsupportedOperator(_headline(found, self.count), why=punctuated(told, "; "), do=do)
        raise _about(whole, found)


def _about(e: ModelImportError, found: Sequence[Refusal]) -> ModelImportError:
    """The error, which tells programs of the nodes, too."""
    e.nodes = [
        ModelNode(r.index, r.node, r.operator.rpartition("::")[2], f"{r.place}: {r.reason}")
        for r in found
    ]
    return e


def _headline(found: Sequence[Refusal], count: int) -> str:
    nodes = "1 node" if count == 1 else f"{count} nodes"
    if any(r.supported for r in found):
        return f"{nodes} cannot be imported"
    return f"no installed plugin provides the operator of {nodes}"


def _as_import_error(error: Exception) -> ModelImportError:
    if isinstance(error, ModelImportError):
        return error
    why, do = f"{type(error).__name__}: {error}", ""
    if isinstance(error, TactixError):
        why, do = punctuated((error.who, error.what, error.why), ": "), error.do
    out = ModelImportError(BARE, why=why, do=do)
    out.__cause__ = error
    return out


def _explained(r: Refusal, error: Exception) -> Refusal:
    e = _as_import_error(error)
    return replace(r, what=f"{_part(e, r)}{e.what}", why=e.why, do=e.do)


def _part(e: ModelImportError, r: Refusal) -> str:
    """What of the node an error is about, if not all of it."""
    return "" if not e.who or e.who.startswith(f"node {r.node!r}") else f"{e.who}: "


def _placed(e: ModelImportError, r: Refusal, skipped: str) -> ModelImportError:
    """The error, naming the node's place, and what of the node it was about."""
    part = _part(e, r)
    e.who = f"{part[:-2]} of {r.place}" if part else r.place
    if skipped:
        e.add_note(skipped)
    return e
