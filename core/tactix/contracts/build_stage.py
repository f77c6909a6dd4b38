"""Build stage: what a flag or an option adds to a build.

The builder knows the steps of a build and no stage by name: it asks those that serve what a
configuration asks for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tactix.base.arrays import Array
from tactix.base.tensor import TensorSpec
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import Tactic

Session = TypeVar("Session")
Config = TypeVar("Config")
Network = TypeVar("Network")
Plan = TypeVar("Plan")

Content = Callable[[Callable[[], Array]], tuple[str, Array, TensorSpec]]
"""From what makes an array to the name, the bytes and the spec of a stored constant."""


@dataclass(frozen=True)
class Lowered(Generic[Network]):
    """A network in which nodes have a lower precision, which no rule has seen yet.

    ``made``: by the name of each such node those of the nodes in its place, of which one may have
    the same; ``stays``: why others kept their precision; ``fixed``: nodes of ``made`` that must
    not stay, as their precision is wished.
    """

    network: Network
    made: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stays: Mapping[str, str] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()


class BuildPart(Generic[Config, Network, Plan]):
    """What a stage does in one build; as it stands, nothing. The methods are called in this order.

    ``racing`` and ``constants`` count for every network in the model, the bodies of branches and
    loops among them, the first for every mixture of precisions that is tried, too, as ``lower``,
    which never sees bodies; the others are called once.
    """

    lowering: str = ""
    """What the trace calls the work of ``lower``; empty for a part that lowers nothing."""

    def settings(self, config: Config, network: Network) -> Config:
        """The configuration to build by. What it asks for beside the given one brings further
        stages in.
        """
        return config

    def tactics(self, tactics: Sequence[Tactic]) -> list[Tactic]:
        """The tactics that may bid, of those that the configuration allows."""
        return list(tactics)

    def network(self, network: Network) -> Network:
        """The network to build, verified. The caller's stays as it is: give a copy."""
        return network

    def rules(self, rules: Sequence[Rule]) -> list[Rule]:
        """The rules that may fire, of those that the configuration allows."""
        return list(rules)

    def lower(self, network: Network, stays: Callable[[str], str]) -> Lowered[Network]:
        """A copy with a lower precision where the part knows one, but for nodes for whose name
        ``stays`` has a reason: the build tries several mixtures, of which the fastest counts.
        """
        return Lowered(network)

    def racing(self) -> AbstractContextManager[None]:
        """Entered while tactics bid and are measured."""
        return nullcontext()

    def constants(self, stored: Content) -> Content:
        """How constants are stored. Threads call it at once."""
        return stored

    def plan(self, plan: Plan) -> Plan:
        """The finished plan."""
        return plan


class BuildStage(ABC, Generic[Session, Config, Network, Plan]):
    """``key``: ``namespace.name``. ``serves``: what brings it into a build: values of
    ``BuilderFlag``, or names of options that are set (``BuilderConfig.requests``).

    ``depth``: stages lie in each other, from 0 outside; equal ones by key. The outer ones come
    first where a build begins (settings, tactics, network, rules) and last where it ends
    (constants, plan).

    Frozen and shared by builds: what one build needs to keep is in its part. One of a pack is not
    asked until the user enables it, and then after tactix's own that serve the same.
    """

    key: str
    serves: frozenset[str]
    depth: int = 100

    @abstractmethod
    def join(self, session: Session, config: Config) -> BuildPart[Config, Network, Plan]:
        """Its part in one more build. ``config``: as the settings of the outer stages left it."""
