"""A pack as one object, which its entry points name: ``acme = "acme_mish:pack"``.

    pack = Pack("acme")

    @pack.pointwise(onnx="acme::Mish")
    def mish(x):
        return x * tanh(log1p(exp(x)))

    @pack.layer(onnx="acme::CircularPad", infer=padded, takes_epilogue=True)
    def circular_pad(x, *, pads=()):
        ...

    @circular_pad.kernel("c")
    def on_cpu(op):
        return Kernel(BODY, sizes={...})

    @pack.launcher
    def blas():
        from acme.launcher import BlasLauncher
        return BlasLauncher()

The namespace stands there once: keys are made of it and of functions' names. The object has a hook
for each kind of thing that it was given, ``tactix_layers`` and so on, as a module with
``@hookimpl`` has: an entry point of the group ``tactix.runtime.v1`` takes what running needs from
it, one of ``tactix.build.v1`` the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tactix.base.errors import PluginError, TactixError
from tactix.contracts.layer import Layer
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import Tactic
from tactix.contracts.tool import Tool
from tactix.plugins.identity import Key, Provider
from tactix.plugins.names import check_namespace
from tactix.plugins.registry import KINDS
from tactix_sdk.host import FunctionLayer, NumpyTactic, numpy_tactic
from tactix_sdk.importing import onnx_converter
from tactix_sdk.kernel import c_tactic, cuda_tactic
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise
from tactix_sdk.triton import triton_tactic

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from tactix.base.tensor import TensorSpec
    from tactix.contracts.expr import Scalar
    from tactix.contracts.graph import Node
    from tactix.contracts.importer import Converter
    from tactix_sdk.host import Example
    from tactix_sdk.kernel import Formats

    class KernelOptions(TypedDict, total=False):
        """What ``c_tactic``, ``cuda_tactic``, ``triton_tactic`` and ``numpy_tactic`` take."""

        knobs: Mapping[str, Sequence[Any]]
        formats: Sequence[Formats]
        requires: Sequence[str]
        by_signature: bool
        cost: Callable[..., float | None]
        kernel: Callable[[], Any]
        fused: bool
        when: Callable[[Node], str]


Function = Callable[..., Any]
Given = TypeVar("Given")
AnyLayer = TypeVar("AnyLayer", bound=Layer)


LANGUAGES: Mapping[str, Function] = {
    "c": c_tactic,
    "cuda": cuda_tactic,
    "triton": triton_tactic,
    "numpy": numpy_tactic,
}
"""What makes a tactic of a function, by what the kernel is written in."""


class PackLayer(FunctionLayer):
    """Made by ``Pack.layer``."""

    pack: Pack

    def kernel(
        self, language: str, *, name: str = "", version: int = 1, **options: Unpack[KernelOptions]
    ) -> Callable[[Function], Tactic]:
        """A kernel for this layer, as ``Pack.kernel``; by default called as the layer's function
        and the language: ``acme.circular_pad_c@1``.
        """
        name = name or f"{self.function.__name__}_{language}"
        return self.pack.kernel(language, self.key, name=name, version=version, **options)


class Pack:
    """What a pack provides. Raises ConfigError for what is no namespace.

    Methods take an object, or a function without parameters that gives one or a list when a session
    first needs them: what it imports is not imported before, and each session has its own. Each
    gives back what it was given, so it may stand above a function. They raise PluginError, or
    InvalidArgument, with the author's file and line for what is no such object, a key of another
    namespace, and a key that the pack has already.
    """

    def __init__(self, namespace: str) -> None:
        with _at(_author()):
            self.TACTIX_NAMESPACE = check_namespace(namespace, own=True)
        self._given: dict[str, list[object]] = {}
        self._places: dict[tuple[str, str], str] = {}

    # -- made of functions ------------------------------------------------------------------------

    def pointwise(
        self,
        name: str = "",
        *,
        version: int = 1,
        onnx: str | tuple[str, ...] = (),
        commutative: bool = False,
    ) -> Callable[[Callable[..., Scalar]], PointwiseLayer]:
        """A pointwise layer of a function, as ``tactix_sdk.pointwise`` makes it; called as the
        function, ``tanh_shrink`` as ``acme.TanhShrink@1``, unless ``name`` says otherwise.
        """
        where = _author()
        _check_called("pointwise", name, where)

        def wrap(function: Callable[..., Scalar]) -> PointwiseLayer:
            with _at(where):
                key = self._key(name or _camel(_name_of(function)), version)
                made = pointwise(key, onnx=onnx, commutative=commutative)(function)
            return self._register("layers", made, where)

        return wrap

    @overload
    def layer(self, name: AnyLayer) -> AnyLayer: ...

    @overload
    def layer(
        self,
        name: str = "",
        *,
        version: int = 1,
        onnx: str | tuple[str, ...] = (),
        infer: Callable[..., TensorSpec | Sequence[TensorSpec]] | None = None,
        examples: Sequence[Example] = (),
        takes_epilogue: bool = False,
    ) -> Callable[[Function], PackLayer]: ...

    def layer(
        self,
        name: str | Layer = "",
        *,
        version: int = 1,
        onnx: str | tuple[str, ...] = (),
        infer: Callable[..., TensorSpec | Sequence[TensorSpec]] | None = None,
        examples: Sequence[Example] = (),
        takes_epilogue: bool = False,
    ) -> Layer | Callable[[Function], PackLayer]:
        """A layer of its reference, as ``tactix_sdk.layer`` makes it, called as the function unless
        ``name`` says otherwise; its ``kernel`` adds kernels. Or an object of class Layer.
        """
        where = _author()
        if isinstance(name, Layer):
            return self._register("layers", name, where)
        _check_called("layer", name, where)

        def wrap(reference: Function) -> PackLayer:
            with _at(where):
                key = self._key(name or _camel(_name_of(reference)), version)
                made = PackLayer.of(key, reference, onnx, infer, examples, takes_epilogue)
            made.pack = self
            return self._register("layers", made, where)

        return wrap

    def kernel(
        self,
        language: str,
        implements: str | Sequence[str],
        *,
        name: str = "",
        version: int = 1,
        **options: Unpack[KernelOptions],
    ) -> Callable[[Function], Tactic]:
        """A tactic of a function for layers of those keys, by default called as the function and
        the language: ``acme.matmul_c@1``.

        ``language``: ``c``, ``cuda``, ``triton`` or ``numpy``; options are those of ``c_tactic``,
        ``cuda_tactic``, ``triton_tactic`` and ``numpy_tactic``. The launcher of one in numpy goes
        with it. Raises PluginError for another language, or an option that it does not have.
        """
        where = _author()
        with _at(where):
            make = _maker(language, options)

        def wrap(function: Function) -> Tactic:
            with _at(where):
                key = self._key(name or f"{_name_of(function)}_{language}", version)
                made: Tactic = make(key, implements, **options)(function)
            if isinstance(made, NumpyTactic):
                self._register("launchers", made.launcher, where)
            return self._register("tactics", made, where)

        return wrap

    def onnx_converter(self, op: str, since: int = 1) -> Callable[[Function], Converter]:
        """A converter of a function ``(ctx, node)``, as ``tactix_sdk.onnx_converter`` makes it."""
        where = _author()
        with _at(where):
            make = onnx_converter(op, since)
        return lambda function: self._register("converters", make(function), where)

    def tool(self, command: Callable[[], object]) -> Tool:
        """A subcommand of a function that gives a click command when it is used.

        It is called as the function; the docstring is its line of help. Raises PluginError for one
        without.
        """
        where = _author()
        with _at(where):
            told = inspect.getdoc(command)
            if not told and sys.flags.optimize < 2:  # python -OO has taken it away
                who = f"tool {_name_of(command)!r}"
                raise PluginError("it has no docstring", who=who, do="Say in one line what it does")
        return self._register("tools", Tool(command.__name__, told or "", command), where)

    # -- given as they are ------------------------------------------------------------------------

    def rule(self, rule: Given) -> Given:
        """A ``Rule``; one whose key is a bare name gets the namespace in front of it."""
        return self._register("rules", _in_namespace(rule, self.TACTIX_NAMESPACE), _author())

    def tactic(self, tactic: Given) -> Given:
        """An object of a class of one's own: see ``Tactic``."""
        return self._register("tactics", tactic, _author())

    def converter(self, converter: Given) -> Given:
        """A ``Converter`` of whatever format."""
        return self._register("converters", converter, _author())

    def importer(self, importer: Given) -> Given:
        """See ``Importer``."""
        return self._register("importers", importer, _author())

    def compiler(self, compiler: Given) -> Given:
        """See ``Compiler``."""
        return self._register("compilers", compiler, _author())

    def calibrator(self, calibrator: Given) -> Given:
        """See ``Calibrator``."""
        return self._register("calibrators", calibrator, _author())

    def build_stage(self, stage: Given) -> Given:
        """See ``BuildStage``."""
        return self._register("build_stages", stage, _author())

    def launcher(self, launcher: Given) -> Given:
        """See ``Launcher``."""
        return self._register("launchers", launcher, _author())

    def device(self, device: Given) -> Given:
        """See ``Device``."""
        return self._register("devices", device, _author())

    def allocator(self, allocator: Given) -> Given:
        """See ``Allocator``."""
        return self._register("allocators", allocator, _author())

    def flavour(self, flavour: Given) -> Given:
        """See ``Flavour``."""
        return self._register("flavours", flavour, _author())

    def trust_store(self, store: Given) -> Given:
        """See ``TrustStore``."""
        return self._register("trust_stores", store, _author())

    # -- beneath ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<pack {self.TACTIX_NAMESPACE!r}>"

    def _key(self, name: str, version: int) -> str:
        return str(Key(self.TACTIX_NAMESPACE, name, version))

    def _register(self, kind: str, given: Given, where: str) -> Given:
        with _at(where):
            if not inspect.isfunction(given):
                self._claim(kind, given, where)
        if kind not in self._given:
            self._given[kind] = []
            setattr(self, f"tactix_{kind}", self._hook(kind))
        self._given[kind].append(given)
        return given

    def _claim(self, kind: str, given: object, where: str) -> None:
        """Raises PluginError for what is none of that kind, and for a key that is there already."""
        (entry,) = KINDS[kind].entries(self.TACTIX_NAMESPACE, Provider(), [given])
        if before := self._places.get((kind, entry.key)):
            raise PluginError(
                f"{KINDS[kind].noun} {entry.key!r} is there already",
                why=f"given at {before}",
                do="Give each its own name or version",
                key=entry.key,
            )
        self._places[kind, entry.key] = where

    def _hook(self, kind: str) -> Function:
        """What a session calls; there is one for what the pack was given alone, as a hook belongs
        to an entry-point group.
        """
        from tactix_sdk import hookimpl

        def hook() -> list[object]:
            return [o for given in self._given[kind] for o in self._objects(given)]

        marked: Function = hookimpl(hook)
        return marked

    def _objects(self, given: object) -> list[object]:
        if not inspect.isfunction(given):
            return [given]
        said = given()
        several = said if isinstance(said, (list, tuple)) else [said]
        return [_in_namespace(o, self.TACTIX_NAMESPACE) for o in several]


# -- what authors wrote, and where ---------------------------------------------------------------


def _author() -> str:
    """File and line from where this module was called."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Errors say where in the author's code they come from."""
    try:
        yield
    except TactixError as e:
        e.who = ": ".join(filter(None, (where, e.who)))
        raise


def _check_called(method: str, name: object, where: str) -> None:
    if not isinstance(name, str):
        do = f"Write @pack.{method}() above the function, or an object of class Layer in it"
        raise PluginError(f"{name!r:.80} is no name of a layer", who=where, do=do)


def _name_of(function: Function) -> str:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise PluginError(f"{function!r:.80} has no name", do="Write it with def, or give name=")
    return str(name)


def _camel(name: str) -> str:
    """``circular_pad`` as ``CircularPad``."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _in_namespace(thing: Given, namespace: str) -> Given:
    """A rule with the namespace in its key; anything else as it is."""
    if isinstance(thing, Rule) and "." not in thing.key:
        return dataclasses.replace(thing, key=f"{namespace}.{thing.key}")
    return thing


def _maker(language: str, options: Mapping[str, Any]) -> Function:
    """What makes tactics of functions in a language. Raises PluginError."""
    if language not in LANGUAGES:
        raise PluginError(
            f"no kernels in {language!r}", do=f"Write one of {', '.join(sorted(LANGUAGES))}"
        )
    make = LANGUAGES[language]
    try:
        inspect.signature(make).bind("", "", **options)
    except TypeError as e:
        raise PluginError(
            f"a kernel in {language!r} is not made so",
            why=str(e),
            do=f"Give what {make.__name__} takes beside the key and the layer",
        ) from e
    return make
