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

The namespace stands there once: keys are made of it and of functions' names. What is given as it
is, and the hooks that follow, are the core's, ``tactix.plugins.pack``; what makes layers, tactics
and converters of functions is here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from tactix.base.errors import PluginError
from tactix.contracts.layer import Layer
from tactix.contracts.tactic import Tactic
from tactix.plugins.identity import Key
from tactix.plugins.pack import BasePack, at_line
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
    from tactix.plugins.pack import GivenLayer
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


class Pack(BasePack):
    """What a pack provides, and what makes layers, tactics and converters of functions.

    Raises ConfigError for what is no namespace; methods as those of ``BasePack``.
    """

    _modules = BasePack._modules | {__name__}

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
        where = self._author()
        named = _checked_name("pointwise", name, where)

        def wrap(function: Callable[..., Scalar]) -> PointwiseLayer:
            with at_line(where):
                key = self._key(named or _camel(_name_of(function)), version)
                made = pointwise(key, onnx=onnx, commutative=commutative)(function)
            return self._register("layers", made, where)

        return wrap

    @overload
    def layer(self, given: GivenLayer, /) -> GivenLayer: ...

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
        name: str | Layer | Callable[[], Layer | Sequence[Layer]] = "",
        *,
        version: int = 1,
        onnx: str | tuple[str, ...] = (),
        infer: Callable[..., TensorSpec | Sequence[TensorSpec]] | None = None,
        examples: Sequence[Example] = (),
        takes_epilogue: bool = False,
    ) -> object:
        """A layer of its reference, as ``tactix_sdk.layer`` makes it, called as the function unless
        ``name`` says otherwise; its ``kernel`` adds kernels. Or an object of class Layer, or a
        function without parameters that gives one or a list.
        """
        where = self._author()
        if isinstance(name, Layer) or _takes_nothing(name):
            return self._register("layers", name, where)
        named = _checked_name("layer", name, where)

        def wrap(reference: Function) -> PackLayer:
            with at_line(where):
                key = self._key(named or _camel(_name_of(reference)), version)
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
        where = self._author()
        with at_line(where):
            make = _maker(language, options)

        def wrap(function: Function) -> Tactic:
            with at_line(where):
                key = self._key(name or f"{_name_of(function)}_{language}", version)
                made: Tactic = make(key, implements, **options)(function)
            if isinstance(made, NumpyTactic):
                self._register("launchers", made.launcher, where)
            return self._register("tactics", made, where)

        return wrap

    def onnx_converter(self, op: str, since: int = 1) -> Callable[[Function], Converter]:
        """A converter of a function ``(ctx, node)``, as ``tactix_sdk.onnx_converter`` makes it."""
        where = self._author()
        with at_line(where):
            make = onnx_converter(op, since)
        return lambda function: self._register("converters", make(function), where)

    def _key(self, name: str, version: int) -> str:
        return str(Key(self.TACTIX_NAMESPACE, name, version))


def _checked_name(method: str, name: object, where: str) -> str:
    """What was given as a layer's name. Raises PluginError for a function."""
    if not isinstance(name, str):
        do = f"Write @pack.{method}() above the function, or an object of class Layer in it"
        raise PluginError(f"{name!r:.80} is no name of a layer", who=where, do=do)
    return name


def _takes_nothing(given: object) -> bool:
    """Whether it is a function that gives layers; a layer's reference takes arrays."""
    return inspect.isfunction(given) and not inspect.signature(given).parameters


def _name_of(function: Function) -> str:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise PluginError(f"{function!r:.80} has no name", do="Write it with def, or give name=")
    return str(name)


def _camel(name: str) -> str:
    """``circular_pad`` as ``CircularPad``."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


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
