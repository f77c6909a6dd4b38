"""The build stage of locks: a build by the file that ``tactix lock`` wrote."""

from __future__ import annotations

from typing import Any

from tactix.base.errors import LockError
from tactix.config import BuilderConfig
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part, Staged
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_lock import document, frozen


class LockStage(Staged):
    """Brings back the options and choices of a lock, and compares the plan with the locked one."""

    key = "tactix.lock"
    serves = frozenset({"frozen"})
    depth = 10

    def join(self, session: Session, config: BuilderConfig) -> Part:
        """Raises LockError, OSError."""
        return LockedBuild(session, config.frozen)


class LockedBuild(Part):
    """A build by one lock file. Raises LockError, OSError."""

    def __init__(self, session: Session, path: Any) -> None:
        self._session, self._path = session, path
        self._lock = document.read(path)

    def settings(self, config: BuilderConfig, network: NetworkDefinition) -> BuilderConfig:
        """The locked ones. Raises LockError that names what differs."""
        try:
            return frozen.settings(self._session, self._lock, network, config, who=str(self._path))
        except LockError as e:
            e.who = e.who or str(self._path)
            raise

    def plan(self, plan: Plan) -> Plan:
        """The plan itself. Raises LockError if it is another one than the locked."""
        frozen.compare(plan, self._lock, who=str(self._path))
        return plan
