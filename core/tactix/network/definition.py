"""NetworkDefinition: layers and tensors of a model, built by hand or by an importer.

In: layer names, attributes, arrays. Out: a checked graph whose tensors have a dtype and a symbolic
shape.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_not
from typing import Any

from tactix.base.dims import Assumption, Dim, substitute, sym, symbol_name, symbols
from tactix.base.dtypes import DType
from tactix.base.error_recorder import Recorded, recorded
from tactix.base.errors import (
    InvalidArgument,
    NetworkError,
    PluginError,
    TactixError,
    punctuated,
)
from tactix.base.places import place_of_failure
from tactix.base.tensor import Element, TensorSpec
from tactix.contracts.attrs import symbols_in
from tactix.contracts.graph import Node, Value
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of
from tactix.contracts.states import States
from tactix.plugins.names import OWN

Use = tuple[Node, int]


@dataclass(frozen=True)
class ModelTensor:
    """A tensor of a model: the name of the node that makes it, and what it is in the network, which
    may be an input, a constant or what another node makes.
    """

    node: str
    value: Value


class NetworkDefinition(Recorded):
    """A graph of layers. ``layers``: the layers that ``add_layer`` may name, by key.

    ``read``: names of constants whose content the importer has built into attributes. ``origins``:
    names of constants that it computed, with the result that each was. ``model_tensors``: what
    nodes of a model's main graph make, by the model's names. ``demands``: what the
    importer takes for granted about symbols, and the node for which it does. ``wanted``: shapes of
    inputs that the caller builds for, None where a size is open; an importer takes them for inputs
    of which the model tells no rank, and for vectors whose length may be one. ``reshaped``: shapes
    that inputs have in place of the model's, by name; None where the model's size stays if it is
    open, and becomes open if it is not, a str names an open one. ``remarks``: what
    an importer warns of, and of what of the model it is true. ``states``: inputs and outputs that
    are one tensor, which grows; None for most networks. Errors go to the recorder of the builder
    that made it, or its own. ``presented``: what makes its picture for a notebook, None where
    nothing does.
    """

    def __init__(self, layers: Mapping[str, Layer], name: str = "") -> None:
        self.layers, self.name = layers, name
        self.inputs: list[Value] = []
        self.constants: list[Value] = []
        self.limits: dict[str, int] = {}
        self.remarks: dict[str, str] = {}
        self.demands: dict[Assumption, str] = {}
        self.wanted: dict[str, tuple[int | None, ...]] = {}
        self.reshaped: dict[str, tuple[Dim | str | None, ...]] = {}
        self.states: States | None = None
        self.presented: Callable[[object], str | None] | None = None
        self.read: set[str] = set()
        self.origins: dict[str, Value] = {}
        self.model_tensors: dict[str, ModelTensor] = {}
        self._outputs: dict[str, Value] = {}
        self._output_names: dict[Value, list[str]] = {}
        self._position: dict[Node, float] = {}
        self._names: set[str] = set()
        self._count: dict[str, int] = {}
        self._short: dict[str, Layer] = {}
        self._order: tuple[list[object], tuple[Node, ...]] = ([], ())

    # -- building ---------------------------------------------------------------------------------

    @recorded
    def add_input(
        self,
        name: str,
        dtype: Any,
        shape: Sequence[Dim | str | None],
        element: Element | None = None,
    ) -> Value:
        """A tensor that the caller gives. A str names a symbolic dim; None or -1 makes one called
        ``name_axis``.

        ``element``: what a sequence or optional holds.
        """
        if not name or name in {v.name for v in self.inputs}:
            what = f"input name {name!r} is {'taken' if name else 'empty'}"
            raise InvalidArgument(what, do="Give each input its own")
        dims = tuple(self._dim(d, f"{name}_{i}") for i, d in enumerate(shape))
        spec = TensorSpec(DType.of(dtype), dims, element=element)
        value = Value(self._unique(name), spec, called=(name,))
        self.inputs.append(value)
        return value

    @staticmethod
    def call(value: Value, *names: str) -> None:
        """Note that a tensor is one that the model calls so, beside the names that it has."""
        value.called = tuple(dict.fromkeys((*value.called, *names)))

    @staticmethod
    def rename(value: Value, *names: str) -> None:
        """As ``call``, in place of the names that it has: none for what is no tensor of the
        model any more.
        """
        value.called = names

    def limit(self, symbol: str, highest: int) -> None:
        """Note that the network takes no larger value of a symbol: a table that it indexes ends
        there.
        """
        self.limits[symbol] = min(highest, self.limits.get(symbol, highest))

    def fix(self, symbol: str, size: int) -> None:
        """Inputs' dims of that name become an integer, which they must be, unless a layer hangs on
        the symbol already.
        """
        described = ((n.attrs, *(v.spec for v in n.outputs)) for n in self._position)
        if any(symbol in symbols_in(d) for d in described):
            return
        for v in self.inputs:
            shape = tuple(substitute(d, {symbol: size}) for d in v.spec.shape)
            v.spec = replace(v.spec, shape=shape)

    def demand(self, assumption: Assumption, who: str) -> None:
        """Note what must hold for the network to mean what its model does; a run where it does not
        is refused.
        """
        self.demands.setdefault(assumption, who)

    @staticmethod
    def _dim(d: Dim | str | None, fresh: str) -> Dim:
        if d is None or (isinstance(d, int) and d == -1):
            return sym(fresh)
        if isinstance(d, int) and d < -1:
            raise InvalidArgument(
                f"a dimension cannot be {d}", do="Use -1 or None for one that is not fixed"
            )
        return sym(d) if isinstance(d, str) else d

    @recorded
    def add_constant(self, array: Any, name: str = "") -> Value:
        """A tensor whose content is known; the array is not copied and must not change."""
        import numpy as np

        a = array if hasattr(array, "__array_function__") else np.asarray(array)
        if DType.of(a.dtype).on_host:
            raise InvalidArgument("a constant of text", do="Add a tactix.Text layer")
        value = Value(
            self._unique(name or "constant"), TensorSpec(DType.of(a.dtype), a.shape, const=a)
        )
        self.constants.append(value)
        return value

    @recorded
    def add_layer(
        self,
        layer: str | Layer,
        inputs: Sequence[Value | None],
        name: str = "",
        origin: Sequence[str] = (),
        attrs: Any = None,
        position: float | None = None,
        specs: Sequence[TensorSpec] | None = None,
        **fields: Any,
    ) -> tuple[Value, ...]:
        """Append a layer and infer its outputs, unless ``specs`` tells them already.

        Raises InvalidArgument, ShapeError, DTypeError naming the layer.
        """
        found = self.find_layer(layer)
        unique = self._unique(name or found.name.lower())
        node = Node(
            unique,
            found,
            attrs if attrs is not None else attributes_of(found, fields),
            inputs,
            (),
            origin,
        )
        specs = self._infer(node) if specs is None else specs
        single = len(specs) == 1
        node.outputs = tuple(
            Value(unique if single else f"{unique}:{i}", s, node, i) for i, s in enumerate(specs)
        )
        self._position[node] = len(self._position) if position is None else position
        return node.outputs

    @recorded
    def mark_output(self, value: Value, name: str = "") -> None:
        """Make a tensor an output of the network, under its own name unless another is given."""
        key = name or value.name
        if key in self._outputs:
            raise InvalidArgument(
                f"output name {key!r} is taken", do="Give each output its own name"
            )
        self._outputs[key] = value
        self._output_names.setdefault(value, []).append(key)

    @recorded
    def unmark_output(self, name: str) -> None:
        """Let the network no longer give the output of that name. Raises InvalidArgument."""
        if name not in self._outputs:
            known = ", ".join(self._outputs)
            raise InvalidArgument(f"no output is named {name!r}", do=f"There are: {known}")
        value = self._outputs.pop(name)
        self._output_names[value].remove(name)
        if not self._output_names[value]:
            del self._output_names[value]

    def find_layer(self, layer: str | Layer) -> Layer:
        """A layer by key, or by ``namespace.Name`` (its highest version). Raises the registry's
        error.
        """
        if isinstance(layer, Layer):
            return layer
        if "@" in layer:
            return self.layers[layer]
        if layer not in self._short:
            versions = [k for k in self.layers if k.split("@")[0] == layer]
            if not versions:
                return self.layers[f"{layer}@1"]  # a registry explains what is missing
            self._short[layer] = self.layers[max(versions, key=lambda k: int(k.split("@")[1]))]
        return self._short[layer]

    @staticmethod
    def _infer(node: Node) -> list[TensorSpec]:
        specs = [None if v is None else v.spec for v in node.inputs]
        try:
            return _specs(node.layer.infer(node.attrs, specs))
        except TactixError as e:
            e.add_note(
                f"in layer {node.name!r} ({node.layer.key}) of {', '.join(str(s) for s in specs)}"
            )
            raise
        except Exception as e:
            raise _infer_failed(node, specs, e) from e

    def _unique(self, name: str) -> str:
        out = name
        while out in self._names:
            self._count[name] = self._count.get(name, 0) + 1
            out = f"{name}_{self._count[name]}"
        self._names.add(out)
        return out

    # -- reading ----------------------------------------------------------------------------------

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(self._outputs.values())

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(self._outputs)

    def is_output(self, value: Value) -> bool:
        """Whether the network gives the tensor to the caller."""
        return value in self._output_names

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes that outputs need, producers first, else in order of adding. Raises NetworkError on
        a cycle.
        """
        read = self._read_for_order()
        if len(read) != len(self._order[0]) or any(map(is_not, read, self._order[0])):
            self._order = read, self._ordered()
        return self._order[1]

    def _read_for_order(self) -> list[object]:
        """All that the order of the nodes follows from: as long as it is the same, so is that."""
        out: list[object] = [*self._outputs.values(), self.states, *(v.spec for v in self.inputs)]
        for n in self._position:
            outputs = n.outputs
            if len(outputs) == 1:  # of most: a tuple is quicker than a list beside it
                out += (n, n.inputs, n.attrs, outputs, outputs[0].spec)
            else:
                out += (n, n.inputs, n.attrs, outputs, *[v.spec for v in outputs])
        return out

    def _ordered(self) -> tuple[Node, ...]:
        needed = self._needed()
        waiting = {n: len(before) for n, before in needed.items()}
        users: dict[Node, list[Node]] = {n: [] for n in needed}
        for n, before in needed.items():
            for p in before:
                users[p].append(n)
        ready = [(self._position[n], n.name, n) for n, k in waiting.items() if not k]
        heapq.heapify(ready)
        out: list[Node] = []
        while ready:
            n = heapq.heappop(ready)[2]
            out.append(n)
            for u in users[n]:
                waiting[u] -= 1
                if not waiting[u]:
                    heapq.heappush(ready, (self._position[u], u.name, u))
        if len(out) != len(needed):
            stuck = sorted(n.name for n, k in waiting.items() if k)
            raise NetworkError("the layers form a cycle", who=", ".join(stuck[:5]))
        return tuple(out)

    def _needed(self) -> dict[Node, set[Node]]:
        """What outputs need: each node with those that must run before it."""
        definers = self.definers()
        seen: dict[Node, set[Node]] = {}
        stack = [v.producer for v in self._outputs.values() if v.producer is not None]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen[n] = {v.producer for v in n.given if v.producer is not None}
                if definers:
                    seen[n] |= {definers[s] for s in symbols_in(n.attrs) & definers.keys()} - {n}
                stack += seen[n]
        return seen

    def definers(self) -> dict[str, Node]:
        """Symbols that only running tells, with the nodes that tell them."""
        known, out = set(self.symbols()), {}
        for n in self._position:
            for s in (
                s
                for v in n.outputs
                for d in v.spec.shape
                if (s := symbol_name(d)) and s not in known
            ):
                known.add(s)
                if not any(
                    s in symbols(d) for v in n.given for d in v.spec.shape
                ) and s not in symbols_in(n.attrs):
                    out[s] = n
        return out

    def users(self) -> dict[Value, list[Use]]:
        """Where each tensor is read, as (node, input index)."""
        out: dict[Value, list[Use]] = {}
        for n in self.nodes:
            for i, v in enumerate(n.inputs):
                if v is not None:
                    out.setdefault(v, []).append((n, i))
        return out

    @property
    def values(self) -> Iterator[Value]:
        """Inputs, and what all layers give, needed or not."""
        yield from self.inputs
        for n in self._position:
            yield from n.outputs

    def position(self, node: Node) -> float:
        """Where the node stands in the order of adding."""
        return self._position[node]

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in the inputs' shapes and of those that the caller tells, sorted."""
        named = {s for v in self.inputs for d in v.spec.shape for s in symbols(d)}
        return tuple(sorted(named | self.told))

    @property
    def told(self) -> frozenset[str]:
        """Symbols that no shape gives a value: the caller tells it."""
        return frozenset() if self.states is None else frozenset({self.states.length})

    def _repr_html_(self) -> str | None:
        return self.presented(self) if self.presented else None

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    # -- rewiring (for tactix.fuse) ---------------------------------------------------------------

    def redirect_output(self, old: Value, new: Value) -> None:
        """Outputs that were ``old`` become ``new``; their names stay."""
        if old is not new and (names := self._output_names.pop(old, None)):
            self._outputs.update(dict.fromkeys(names, new))
            self._output_names.setdefault(new, []).extend(names)

    def replace_output(self, name: str, new: Value) -> None:
        """Let the output of that name be another tensor."""
        names = self._output_names.pop(old := self._outputs[name])
        if rest := [k for k in names if k != name]:
            self._output_names[old] = rest
        self._outputs[name] = new
        self._output_names.setdefault(new, []).append(name)

    def redirect_uses(self, old: Value, new: Value) -> None:
        """Let every node that reads ``old`` read ``new``."""
        for node, i in self.users().get(old, []):
            node.inputs = (*node.inputs[:i], new, *node.inputs[i + 1 :])

    def discard(self, node: Node) -> None:
        """Forget a node that nothing reads."""
        self._position.pop(node, None)

    def free_name(self, name: str) -> None:
        """Let the next layer take a name whose holder is about to leave."""
        self._names.discard(name)

    def copy(self) -> NetworkDefinition:
        """An independent network of new nodes over the same layers, attributes and arrays."""
        out = NetworkDefinition(self.layers, self.name)
        out.presented = self.presented
        new: dict[Value, Value] = {
            v: Value(v.name, v.spec, called=v.called) for v in (*self.inputs, *self.constants)
        }
        out.inputs = [new[v] for v in self.inputs]
        out.constants = [new[v] for v in self.constants]
        for n in self.nodes:
            node = Node(
                n.name,
                n.layer,
                n.attrs,
                [None if v is None else new[v] for v in n.inputs],
                (),
                n.origin,
            )
            node.outputs = tuple(Value(v.name, v.spec, node, v.index, v.called) for v in n.outputs)
            new.update(zip(n.outputs, node.outputs, strict=True))
            out._position[node] = self._position[n]
        out._outputs = {k: new[v] for k, v in self._outputs.items()}
        out._output_names = {new[v]: list(names) for v, names in self._output_names.items()}
        out._names, out._count, out.limits = set(self._names), dict(self._count), dict(self.limits)
        out.states = self.states
        out.read, out.origins, out.demands = set(self.read), dict(self.origins), dict(self.demands)
        out.model_tensors = {
            name: ModelTensor(t.node, new[t.value])
            for name, t in self.model_tensors.items()
            if t.value in new
        }
        return out


def inner_networks(node: Node) -> list[NetworkDefinition]:
    """The networks that running a node's layer runs: branches, loops."""
    bodies = node.layer.bodies(node.attrs)
    return [body for body in bodies if isinstance(body, NetworkDefinition)]


def weight_bytes(network: NetworkDefinition) -> int:
    """Bytes of the constants that a run reads whole, in bodies of branches and loops, too."""
    nodes = network.nodes
    read = {
        v: v.const.nbytes
        for node in nodes
        for i, v in enumerate(node.inputs)
        if v is not None and v.const is not None and i not in node.layer.tables
    }
    bodies = (body for node in nodes for body in inner_networks(node))
    return sum(read.values()) + sum(map(weight_bytes, bodies))


def _specs(made: object) -> list[TensorSpec]:
    """What ``infer`` gave. Raises TypeError for anything but specs."""
    if not (isinstance(made, list | tuple) and all(isinstance(s, TensorSpec) for s in made)):
        raise TypeError(f"it gave {made!r:.80}, which is no list of TensorSpec")
    return list(made)


def _infer_failed(node: Node, specs: Sequence[TensorSpec | None], e: Exception) -> TactixError:
    """The error of a layer's ``infer`` that is none of tactix's; of a pack's it tells where."""
    what = f"cannot infer its outputs from {', '.join(map(str, specs))}"
    key, who = node.layer.key, f"{node.name} ({node.layer.key})"
    namespace, reason = key.partition(".")[0], f"{type(e).__name__}: {e}"
    if namespace == OWN:  # the model may be wrong in a way that nobody thought of
        return NetworkError(what, who=who, why=reason)
    place = place_of_failure(e, node.layer.written)
    why = punctuated((f"infer of the pack {namespace} failed", place, reason), ": ")
    do = "Mend it: `tactix-sdk check DIST -k layer-inference` shows it; or report it to its author"
    return PluginError(what, key=key, who=who, why=why, do=do)
