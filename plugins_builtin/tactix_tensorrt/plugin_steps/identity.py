"""Which plugin a step runs, and what it was told: what a plan keeps of it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tactix.base.errors import ExecutionError
from tactix_tensorrt.api.built_in_plugins import BuiltInCreator
from tactix_tensorrt.api.enums import PluginFieldType, QuickPluginCreationRequest, TensorRTPhase
from tactix_tensorrt.api.plugin_fields import PluginField, PluginFieldCollection
from tactix_tensorrt.api.plugin_registry import get_plugin_registry
from tactix_tensorrt.api.plugins import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3Quick,
)
from tactix_tensorrt.plugin_steps.calling import called


@dataclass(frozen=True)
class Identity:
    """What a creator is found by."""

    name: str
    version: str
    namespace: str

    def __str__(self) -> str:
        place = f" of namespace {self.namespace}" if self.namespace else ""
        return f"plugin {self.name} version {self.version}{place}"

    def creator(self) -> IPluginCreatorInterface:
        """The one that is registered. Raises ExecutionError."""
        registry = get_plugin_registry()
        found = registry.get_creator(self.name, self.version, self.namespace)
        if found is None:
            there = registry.all_creators
            own = [c for c in there if not isinstance(c, BuiltInCreator)]
            known = sorted(f"{c.name} {c.plugin_version}" for c in own)
            known += ["TensorRT's own"] if len(own) < len(there) else []
            told = ", ".join(known) or "none"
            why = f"no creator of it is registered in this process; registered: {told}"
            do = "Import what defines it, and call get_plugin_registry().register_creator first"
            raise ExecutionError("the plugin is missing", who=str(self), why=why, do=do)
        return found


@dataclass(frozen=True)
class Saved:
    """A plugin as data. ``fields``: name, number of the type, and content of each; of a plugin
    before version 3 one without a name, its own bytes.
    """

    identity: Identity
    fields: Sequence[tuple[str, int, bytes]] = field(default=())

    @classmethod
    def of_fields(cls, identity: Identity, fields: Sequence[PluginField]) -> Saved:
        kept = [(f.name, int(f.type), b"" if f.data is None else f.data.tobytes()) for f in fields]
        return cls(identity, tuple(kept))

    def to_json(self) -> dict[str, object]:
        identity = self.identity
        return {
            "plugin": [identity.name, identity.version, identity.namespace],
            "fields": [[n, t, base64.b64encode(c).decode()] for n, t, c in self.fields],
        }

    @classmethod
    def from_json(cls, j: dict[str, object]) -> Saved:
        """Raises ExecutionError for what ``to_json`` does not write."""
        try:
            name, version, namespace = (str(x) for x in j["plugin"])  # type: ignore[attr-defined]
            fields = [
                (str(n), int(t), base64.b64decode(c, validate=True))
                for n, t, c in j["fields"]  # type: ignore[attr-defined]
            ]
        except (KeyError, TypeError, ValueError) as e:
            raise ExecutionError("the plan tells no plugin", why=repr(e)) from None
        return cls(Identity(name, version, namespace), tuple(fields))

    @property
    def digest(self) -> str:
        """Equal for plugins that are equal as data."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return f"{self.identity} {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def collection(self) -> PluginFieldCollection:
        return PluginFieldCollection(
            PluginField(name, content, PluginFieldType(kind)) for name, kind, content in self.fields
        )

    def create(self, name: str) -> object:
        """The plugin for a run, by its creator. ``name``: the layer's. Raises ExecutionError."""
        creator, who = self.identity.creator(), str(self.identity)
        if isinstance(creator, IPluginCreator):
            data = self.fields[0][2] if self.fields else b""
            return _made(who, called(who, creator, "deserialize_plugin", name, data))
        return _of_fields(self.identity, creator, name, self.collection(), (TensorRTPhase.RUNTIME,))


def made_for_a_build(
    identity: Identity,
    creator: IPluginCreatorInterface,
    fields: PluginFieldCollection,
    request: QuickPluginCreationRequest,
) -> object:
    """A plugin of fields that a model gives. Raises ExecutionError."""
    if isinstance(creator, IPluginCreator):
        name = identity.name
        return _made(str(identity), called(str(identity), creator, "create_plugin", name, fields))
    quick = isinstance(creator, IPluginCreatorV3Quick)
    how = (TensorRTPhase.BUILD, request) if quick else (TensorRTPhase.BUILD,)
    return _of_fields(identity, creator, identity.name, fields, how)


def _of_fields(
    identity: Identity,
    creator: IPluginCreatorInterface,
    name: str,
    fields: PluginFieldCollection,
    how: Sequence[object],
) -> object:
    """A plugin of version 3. ``how``: the phase, and what else its creator is told."""
    given: tuple[object, ...] = (name, fields)
    if isinstance(creator, IPluginCreatorV3Quick):
        given = (identity.name, identity.namespace, fields)
    return _made(str(identity), called(str(identity), creator, "create_plugin", *given, *how))


def _made(who: str, plugin: object) -> object:
    if plugin is None:
        raise ExecutionError("its creator gave no plugin", who=who)
    return plugin
