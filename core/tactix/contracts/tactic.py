"""Tactic: one way to run a node on a device. It looks at a node once, offers variants and makes
artifacts; measuring is not its job.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar, cast

from tactix.base.errors import InvalidArgument
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node

Work = TypeVar("Work")
"""What a tactic has read off a node: a frozen dataclass of its own, or the node itself."""


Knob: TypeAlias = "bool | int | float | str | tuple[Knob, ...] | None"
"""What a variant may be told by."""


@dataclass(frozen=True)
class Reject:
    """Why a tactic cannot run a node: shown to the user when nothing can, and in the ledger."""

    reason: str


@dataclass(frozen=True)
class Variant:
    """A concrete choice: formats of given inputs and of outputs (short tuples are filled with
    linear), knobs.
    """

    inputs: tuple[Format, ...] = ()
    outputs: tuple[Format, ...] = ()
    knobs: tuple[tuple[str, Knob], ...] = ()

    @classmethod
    def of(
        cls, inputs: Sequence[Format] = (), outputs: Sequence[Format] = (), **knobs: Knob
    ) -> Variant:
        return cls(tuple(inputs), tuple(outputs), tuple(sorted(knobs.items())))

    def knob(self, name: str) -> Knob:
        return dict(self.knobs)[name]

    def number(self, name: str) -> int:
        """A knob that is a whole number. Raises InvalidArgument for one that is not."""
        value = self.knob(name)
        if not isinstance(value, int):
            raise InvalidArgument(f"the knob {name!r} is {value!r}, which is no whole number")
        return value

    def input_format(self, index: int) -> Format:
        return self.inputs[index] if index < len(self.inputs) else LINEAR

    def output_format(self, index: int) -> Format:
        return self.outputs[index] if index < len(self.outputs) else LINEAR

    @functools.cached_property
    def id(self) -> str:
        """Stable short name."""
        return hashlib.sha256(repr((self.inputs, self.outputs, self.knobs)).encode()).hexdigest()[
            :12
        ]

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        formats = "/".join(f.name for f in (*self.inputs, *self.outputs) if not f.is_linear)
        return (
            " ".join([*([formats] if formats else []), *(f"{k}={v}" for k, v in self.knobs)])
            or "default"
        )


@dataclass(frozen=True)
class CompileContext:
    """What a tactic may know when it makes code: the device and the shapes it will be tuned for."""

    device: DeviceProperties
    opt: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1


class Tactic(Generic[Work]):
    """Subclass it, set the class fields, give ``match`` and ``compile``, and ``variants`` where
    there is more than one. What ``match`` returns is handed to all the others, so that a node is
    analysed once.

    ``key``: ``namespace.name@version``. ``implements``: node kinds (an anchor's key,
    ``"pointwise"``, ``"*"``).
    ``device``: the device kind. ``source``: the family that ``config.tactic_sources`` switches.
    ``fallback``: it is asked only where no other tactic is left, or strangers' alone. ``produces``:
    its launcher runs steps by ``produce``, too: those whose output shapes only running tells, over
    Python objects, and with bodies.
    ``tells``: its kernels tell sizes of outputs (``artifact.told``), so that it is asked for nodes
    alone whose output shapes only running tells.
    ``by_signature``: it looks at dtypes, shapes and attributes, at no names, and of the content of
    constants at nothing but whether it is finite, so that its bids for a node hold for every other
    of the same signature; constants it packs by reference. ``crosses``: its steps run on the host
    beside a device with memory of its own, which the ledger tells. ``vendor``: its steps need a
    library of the device's maker in the very version that the build had; not asked under
    ``VERSION_COMPATIBLE``. ``breadth``: how many times as many variants are measured as the
    optimization level says, for those that need no compiling. ``numerics``: ``exact``; ``tf32``
    if it rounds float32 operands so, which builder flags gate; ``short_sums`` if it sums products
    of narrow operands in fewer bits than float32 has; ``int8_activations`` if it rounds
    activations to int8 in blocks, or less coarsely, where the layer permits it. The accuracy gate
    grants float16's budget to ``tf32`` and ``short_sums``, and one of its own to the last.
    ``requires``: features of the device without which it is not asked.
    ``beyond``: why no example of a layer that it implements reaches it, for the checks of packs.
    """

    key: str
    implements: tuple[str, ...] = ()
    device: str = "cpu"
    source: str = ""
    fallback: bool = False
    produces: bool = False
    tells: bool = False
    by_signature: bool = False
    crosses: bool = False
    vendor: bool = False
    breadth: int = 1
    numerics: str = "exact"
    requires: tuple[str, ...] = ()
    beyond: str = ""

    @property
    def written(self) -> object:
        """The class or the function that its author wrote, whose place messages tell."""
        return type(self)

    def offers(self, node: Node, device: DeviceProperties) -> Offer[Work] | Reject:
        """What it offers for a node, where the device has what the tactic requires."""
        if lacking := self.lacks(device):
            return Reject(f"the device has no {', '.join(lacking)}")
        if isinstance(work := self.match(node, device), Reject):
            return work
        found = self.variants(work, device)
        return found if isinstance(found, Reject) else Offer(self, work, tuple(found))

    def lacks(self, device: DeviceProperties) -> tuple[str, ...]:
        """What it requires and the device has not."""
        return tuple(f for f in self.requires if not device.has(f))

    def match(self, node: Node, device: DeviceProperties) -> Work | Reject:
        """All that the tactic wants to know of a node, or why it cannot run it; by default the node
        as it is. Must be pure.
        """
        return cast(Work, node)

    def variants(self, work: Work, device: DeviceProperties) -> Sequence[Variant] | Reject:
        """The choices for a node, best guess first; or why there is none. By default there is one,
        over linear tensors. Must be pure.
        """
        return [Variant()]

    def cost(self, work: Work, variant: Variant, ctx: CompileContext) -> float | None:
        """An estimate in seconds to prune and to choose by without measuring; None if unknown,
        infinite to withdraw.
        """
        return None

    def compile(self, work: Work, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        """The kernel as data. Must be deterministic."""
        raise NotImplementedError(f"{self.key}: compile")

    def __repr__(self) -> str:
        return f"<tactic {self.key}>"


@dataclass(frozen=True)
class Offer(Generic[Work]):
    """What a tactic offers for one node: its view of the node, and the variants, best guess
    first.
    """

    tactic: Tactic[Work]
    work: Work
    variants: tuple[Variant, ...]

    def cost(self, variant: Variant, ctx: CompileContext) -> float | None:
        """The tactic's estimate in seconds."""
        return self.tactic.cost(self.work, variant, ctx)

    def compile(self, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        """The kernel of a variant, as data."""
        return self.tactic.compile(self.work, variant, ctx)
