"""Decorators that define quick plugins, and the operators that they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tactix_tensorrt import device
from tactix_tensorrt.api.enums import QuickPluginCreationRequest, TensorRTPhase
from tactix_tensorrt.api.plugin_fields import PluginField, PluginFieldCollection
from tactix_tensorrt.api.plugin_registry import get_plugin_registry
from tactix_tensorrt.api.plugins import IPluginCreatorV3Quick, IPluginV3
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.quick.fields import declared, fields_of, values_of
from tactix_tensorrt.quick.signatures import Signature, attributes_of, registered
from tactix_tensorrt.quick.template import QuickKernelPlugin, QuickPlugin

F = TypeVar("F", bound=Callable[..., Any])
Request = QuickPluginCreationRequest

RESERVED = ("", "trt", "tensorrt", "std")
"""Namespaces that no plugin has."""

Creation = Callable[..., "tuple[list[ITensor], list[ITensor], IPluginV3]"]
"""Of a request, or of none: inputs, shape inputs and the plugin, for ``add_plugin``."""


@dataclass(frozen=True)
class Task:
    """A function of a plugin. ``attributes``: those that it takes; ``tactic``: whether it is told
    which.
    """

    function: Callable[..., Any]
    attributes: tuple[str, ...]
    tactic: bool = False


@dataclass
class PluginDef:
    """A plugin by its functions. Called with tensors and attributes it gives what ``add_plugin``
    takes.
    """

    namespace: str
    name: str
    register: Callable[..., Any]
    signature: Signature
    impl: Task | None = None
    aot_impl: Task | None = None
    autotune: Task | None = None
    creator: QuickCreator | None = field(default=None, repr=False)

    @property
    def plugin_id(self) -> str:
        return f"{self.namespace}::{self.name}"

    def offer(self) -> QuickCreator:
        """Its creator, which is registered from now on."""
        if self.creator is None:
            self.creator = QuickCreator(self)
            get_plugin_registry().register_creator(self.creator, self.namespace)
        return self.creator

    def __call__(self, *tensors: ITensor, **attributes: object) -> Creation:
        """Raises ValueError for other tensors or attributes than it was registered with."""
        own = self.signature
        if wrong := [t for t in tensors if not isinstance(t, ITensor)]:
            raise ValueError(f"Expected ITensor but got input of type {type(wrong[0])}")
        if len(tensors) != len(own.tensors) or {*attributes} != {*own.attributes}:
            expected = ", ".join([*own.tensors, *(f"{n}=" for n in own.attributes)])
            got = ", ".join(["tensor"] * len(tensors) + [f"{n}=" for n in attributes])
            raise ValueError(f"Unexpected schema ({got}) received. Expected ({expected}).")
        fields, creator = fields_of(own.attributes, attributes), self.offer()

        def create(request: Request = Request.UNKNOWN) -> tuple[Any, Any, IPluginV3]:
            how = (fields, TensorRTPhase.BUILD, request)
            return [*tensors], [], creator.create_plugin(self.name, self.namespace, *how)

        return create


class QuickCreator(IPluginCreatorV3Quick):
    """Makes one quick plugin."""

    plugin_version = "1"

    def __init__(self, definition: PluginDef) -> None:
        super().__init__()
        self._definition = definition
        self.name, self.plugin_namespace = definition.name, definition.namespace
        self.field_names = declared(definition.signature.attributes)

    def create_plugin(
        self,
        name: str,
        namespace: str,
        fields: PluginFieldCollection | Sequence[PluginField],
        phase: TensorRTPhase,
        request: Request = Request.UNKNOWN,
    ) -> IPluginV3:
        """Raises ValueError for what the plugin has not, and for a kernel without a GPU."""
        own = self._definition
        values = values_of(own.signature.attributes, fields)
        compiled = phase is TensorRTPhase.BUILD and _is_compiled(own, request)
        return QuickKernelPlugin(own, values) if compiled else QuickPlugin(own, values)


def _is_compiled(own: PluginDef, request: Request) -> bool:
    """Whether its kernels are compiled in the build. Raises ValueError."""
    aot = _wanted(own, request)
    if not aot or device.chosen() == "cuda":
        return aot
    if own.impl is None:
        raise ValueError(
            f"there is no GPU for the kernels of {own.plugin_id}'s aot_impl: define a function of "
            "tensorrt.plugin.impl that runs on the host"
        )
    return False


def _wanted(own: PluginDef, request: Request) -> bool:
    """Which implementation is asked for: True for kernels. Raises ValueError where it is not there,
    and where nothing says which of two.
    """
    there = {True: own.aot_impl is not None, False: own.impl is not None}
    strict = {Request.STRICT_AOT: True, Request.STRICT_JIT: False}
    if request in strict:
        if not there[strict[request]]:
            name = "aot_impl" if strict[request] else "impl"
            raise ValueError(f"{own.plugin_id} has no function of tensorrt.plugin.{name}")
        return strict[request]
    if all(there.values()):
        if request is Request.UNKNOWN:
            raise ValueError(
                f"{own.plugin_id} has both AOT and JIT implementations: set "
                "NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS or "
                "PREFER_JIT_PYTHON_PLUGINS, or give aot= to add_plugin"
            )
        return request is Request.PREFER_AOT
    if not any(there.values()):
        raise ValueError(f"{own.plugin_id} has neither an AOT nor a JIT implementation")
    return there[True]


class PluginNamespace:
    """Plugins of one namespace, as attributes."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> PluginDef:
        raise AttributeError(f"namespace {self._namespace!r} has no plugin {name!r}")

    def __repr__(self) -> str:
        return f"PluginNamespace({self._namespace!r})"


class Operators:
    """Namespaces of plugins, as attributes."""

    def __getattr__(self, name: str) -> PluginNamespace:
        raise AttributeError(f"no plugin has the namespace {name!r}")

    def add(self, own: PluginDef) -> None:
        """Raises ValueError for a name that is taken."""
        namespace = vars(self).setdefault(own.namespace, PluginNamespace(own.namespace))
        if own.name in vars(namespace):
            raise ValueError(f"{own.plugin_id} is defined already")
        setattr(namespace, own.name, own)


op = Operators()
_DEFINED: dict[str, PluginDef] = {}


def register(plugin_id: str, lazy_register: bool = False) -> Callable[[F], F]:
    """Above a function ``(tensors..., attributes...) -> outputs`` of descriptions of tensors.

    ``plugin_id``: ``namespace::name``. ``lazy_register``: its creator is registered when the
    operator is first called. Raises ValueError for what is no such function or name.
    """

    def decorate(function: F) -> F:
        namespace, _, name = plugin_id.partition("::")
        if not name or "." in plugin_id or namespace in RESERVED:
            raise ValueError(
                f"{plugin_id!r} is no name of a plugin: write namespace::name, without dots, and "
                f"none of these namespaces: {', '.join(RESERVED[1:])}"
            )
        own = PluginDef(namespace, name, function, registered(function))
        op.add(own)
        _DEFINED[plugin_id] = own
        if not lazy_register:
            own.offer()
        return function

    return decorate


def impl(plugin_id: str) -> Callable[[F], F]:
    """Above a function ``(tensors..., attributes..., outputs, stream[, tactic])`` that computes the
    outputs. Attributes that it leaves out are not kept in plans.
    """

    def decorate(function: F) -> F:
        own = _defined(plugin_id)
        names = attributes_of(function, own.signature, ["outputs", "stream"], ["tactic"])
        own.impl = Task(function, names, "tactic" in inspect.signature(function).parameters)
        return function

    return decorate


def aot_impl(plugin_id: str) -> Callable[[F], F]:
    """Above a function ``(tensors..., attributes..., outputs, tactic)`` that gives a kernel: its
    name, its PTX, KernelLaunchParams, and SymIntExprs of numbers between its pointers.
    """

    def decorate(function: F) -> F:
        own = _defined(plugin_id)
        names = attributes_of(function, own.signature, ["outputs", "tactic"])
        own.aot_impl = Task(function, names, True)
        return function

    return decorate


def autotune(plugin_id: str) -> Callable[[F], F]:
    """Above a function ``(tensors..., attributes..., outputs)`` that gives a list of
    AutoTuneCombination.
    """

    def decorate(function: F) -> F:
        own = _defined(plugin_id)
        own.autotune = Task(function, attributes_of(function, own.signature, ["outputs"]))
        return function

    return decorate


def _defined(plugin_id: str) -> PluginDef:
    """Raises ValueError for one that is not registered."""
    if plugin_id not in _DEFINED:
        raise ValueError(
            f"Plugin {plugin_id} is not registered: use tensorrt.plugin.register first"
        )
    return _DEFINED[plugin_id]
