"""What models serve, as clients see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tactix.base.errors import TactixError
from tactix_serve.datatypes import TensorMetadata


class ModelNotFound(TactixError):
    """No model of that name and version serves."""


@dataclass(frozen=True)
class BatchLimits:
    """Of a model whose requests run together. ``max_batch``: rows that go together at most.
    ``window``: seconds that the first request of a batch waits for others at most. ``max_queue``:
    requests that wait before others are refused. ``timeout``: seconds after which a request that
    names none is given up; 0 for none.
    """

    max_batch: int
    window: float
    max_queue: int
    timeout: float


@dataclass(frozen=True)
class ModelDescription:
    """A version that serves. ``platform``: what runs it. ``inputs``, ``outputs``: what it takes and
    gives. ``batching``: None for one whose requests run one by one.
    """

    name: str
    version: str
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    batching: BatchLimits | None = None


@dataclass(frozen=True)
class ModelState:
    """A row of the repository's index. ``reason``: why a version is not served."""

    name: str
    version: str
    ready: bool
    reason: str = ""


@dataclass(frozen=True)
class ModelDirectory:
    """``serving``: by name. ``failed``: why a version could not be loaded, by name and version."""

    serving: Mapping[str, ModelDescription] = field(default_factory=dict)
    failed: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def find(self, name: str, version: str = "") -> ModelDescription:
        """What serves; ``version``: empty for any. Raises ModelNotFound."""
        found = self.serving.get(name)
        if found is None:
            failed = [why for (n, _), why in self.failed.items() if n == name]
            known = f"There are: {', '.join(sorted(self.serving)) or 'none'}"
            raise ModelNotFound(f"no model {name!r} serves", why="; ".join(failed), do=known)
        if version not in ("", found.version):
            what = f"version {version!r} of model {name!r} does not serve"
            raise ModelNotFound(what, do=f"Version {found.version} does")
        return found

    @property
    def ready(self) -> bool:
        """Whether every model that is in the folder serves in some version."""
        return bool(self.serving) and not {n for n, _ in self.failed} - self.serving.keys()

    def index(self) -> Sequence[ModelState]:
        """What serves, and what could not be loaded."""
        serving = [ModelState(v.name, v.version, True) for v in self.serving.values()]
        failed = [ModelState(n, v, False, why) for (n, v), why in self.failed.items()]
        return sorted([*serving, *failed], key=lambda s: (s.name, s.version))
