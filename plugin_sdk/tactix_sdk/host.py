"""Tactics and layers of Python functions over numpy arrays (numpy, Numba, anything that takes and
gives arrays).

    @numpy_tactic("acme.softsign@1", implements="acme.Softsign@1")
    def softsign(x):
        return x / (1 + abs(x))

Such a tactic is tried and timed in a process of its own, so it stands in a module, at the top
level. A plan whose step it won runs the function, so the pack must be there at run time (or
embedded in the plan): its launcher, ``softsign.launcher``, belongs into the hook
``tactix_launchers`` of the group ``tactix.runtime.v1``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from numbers import Integral
from pickle import PicklingError
from typing import Any, Self

from tactix.base.dims import Env, Expr
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, PluginError
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.attrs import named
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step, StepBody
from tactix.contracts.layer import Layer, NoAttrs
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_sdk.scalar_layer import imports_of, schema_of

Function = Callable[..., Any]
Example = tuple[dict[str, Any], str]


class _Replaced(Layer):
    """A layer whose arrays are computed by an author's function."""

    def __init__(self, layer: Layer, function: Function) -> None:
        self.key, self.Attrs, self._function = layer.key, layer.Attrs, function

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return _several(self._function(*inputs, **named(attrs)))


def _several(result: Any) -> tuple[Any, ...]:
    import numpy as np

    return tuple(map(np.asarray, result if isinstance(result, tuple) else (result,)))


class FunctionLauncher(Launcher):
    """Runs steps by the references of their layers, but that of the layers a tactic implements by
    its function.
    """

    host_code = False

    def __init__(self, key: str, layers: Sequence[str], function: Function) -> None:
        self.key, self.layers, self.function = key, tuple(layers), function

    def __reduce__(self) -> Any:
        """To another process as the name of its tactic, which stands where its name is."""
        return _launcher_of, _name_of(self.function)

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for params that are no layer, or a layer that is not there."""
        return _numpy().link(steps, self._with_function(ctx))

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """As that of numpy. Raises ExecutionError."""
        return _numpy().produce(step, env, values, bodies, self._with_function(ctx))

    def _with_function(self, ctx: LinkContext) -> LinkContext:
        def find(key: str) -> Layer:
            layer = ctx.layer(key)
            return _Replaced(layer, self.function) if key in self.layers else layer

        return dataclasses.replace(ctx, layer=find)


def _name_of(function: Function) -> tuple[str, str]:
    """Module and name, by which another process finds what the function was made into. Raises
    PicklingError.
    """
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<locals>" in name:
        raise PicklingError(
            f"{name} of {module} cannot be imported: put it into a module, at its top level"
        )
    return module, name


def _named_so(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def _launcher_of(module: str, name: str) -> Launcher:
    launcher: Launcher = _named_so(module, name).launcher
    return launcher


def _numpy() -> Launcher:
    from tactix_sdk.numpy_launcher import NumpyLauncher

    return NumpyLauncher()


class NumpyTactic(Tactic[Node]):
    """Made by ``numpy_tactic``; what is fused behind the layer runs on its references.
    ``launcher``: for the run.
    """

    produces = True

    def __init__(
        self, key: str, implements: str | Sequence[str], function: Function, when: Function | None
    ) -> None:
        self.key, self.function, self.when, self.__doc__ = key, function, when, function.__doc__
        self.implements = (implements,) if isinstance(implements, str) else tuple(implements)
        self.source = key.partition(".")[0]
        self.launcher = FunctionLauncher(key.replace("@", "_python@"), self.implements, function)

    @property
    def written(self) -> object:
        return self.function

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        reason = self.when(node) if self.when else ""
        return Reject(reason) if reason else node

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact(self.launcher.key, params=node.meaning)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)


def numpy_tactic(
    key: str, implements: str | Sequence[str], *, when: Callable[[Node], str] | None = None
) -> Callable[[Function], NumpyTactic]:
    """A tactic for the CPU of a function ``(*arrays, **attributes)`` that gives an array or a tuple
    of arrays.

    Absent inputs are None. ``when(node)``: why it does not take a node; empty if it does.
    """
    return lambda function: NumpyTactic(key, implements, function, when)


def _is_spec(s: Any) -> bool:
    """Whether it has a dtype, and sizes that are whole numbers from 0 on or follow from symbols."""
    if not (isinstance(s, TensorSpec) and isinstance(s.dtype, DType)):
        return False
    return all(isinstance(d, Expr) or (isinstance(d, Integral) and d >= 0) for d in s.shape)


class FunctionLayer(Layer):
    """Made by ``layer``: a reference over numpy arrays and a rule of shapes."""

    def __init__(
        self,
        key: str,
        reference: Function,
        infer: Function | None,
        attrs: Any,
        imports: tuple[str, ...],
        examples: Sequence[Example],
        takes_epilogue: bool = False,
    ) -> None:
        self.key, self.Attrs, self.imports, self.__doc__ = key, attrs, imports, reference.__doc__
        self.takes_epilogue = takes_epilogue
        self.function, self._infer, self.examples = reference, infer, examples

    @classmethod
    def of(
        cls,
        key: str,
        reference: Function,
        onnx: str | tuple[str, ...],
        infer: Function | None,
        examples: Sequence[Example],
        takes_epilogue: bool,
    ) -> Self:
        """As ``layer`` makes it. Raises InvalidArgument, PluginError."""
        parameters = inspect.signature(reference).parameters.values()
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        if infer is None and len(keywords) == len(parameters):
            raise PluginError(
                "nothing tells what it gives",
                who=key,
                why="it reads no tensor whose dtype and shape could be the result's",
                do="Give infer=",
            )
        attrs, imports = schema_of(key, keywords) if keywords else NoAttrs, imports_of(key, onnx)
        return cls(key, reference, infer, attrs, imports, examples, takes_epilogue)

    def __reduce__(self) -> Any:
        """To another process by its name."""
        return _named_so, _name_of(self.function)

    @property
    def written(self) -> object:
        return self._infer or self.function

    def infer(self, attrs: Any, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        if self._infer is None:
            if not inputs or inputs[0] is None:
                raise InvalidArgument(f"{self.key} needs its first input")
            return [inputs[0].plain()]
        said = self._infer(*inputs, **named(attrs))
        made = list(said) if isinstance(said, list | tuple) else [said]
        if wrong := [s for s in made if not _is_spec(s)]:
            raise TypeError(f"{wrong[0]!r} is no TensorSpec of a DType and of sizes")
        return made

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return _several(self.function(*inputs, **named(attrs)))


def layer(
    key: str,
    *,
    onnx: str | tuple[str, ...] = (),
    infer: Callable[..., TensorSpec | Sequence[TensorSpec]] | None = None,
    examples: Sequence[Example] = (),
    takes_epilogue: bool = False,
) -> Callable[[Function], FunctionLayer]:
    """Make a layer of its reference: positional parameters are arrays or None, keyword-only ones
    attributes.

    ``infer(*specs, **attributes)``: specs of the outputs, whose dims may be symbolic; by default
    the first input's.
    ``onnx``: operators of these attributes that it stands for. ``examples``: attributes by name and
    input specs, as ``({"axis": 1}, "f32 3 4; i64 2")``, on which the checks of
    ``tactix_sdk.testing`` try it. ``takes_epilogue``: pointwise layers behind it become part of its
    kernels, which store by ``TX_STORE``. Raises InvalidArgument for an attribute without a default,
    PluginError for an operator that is not written ``domain::Op``, and for a reference that reads
    nothing without ``infer``.
    """

    return lambda reference: FunctionLayer.of(key, reference, onnx, infer, examples, takes_epilogue)
