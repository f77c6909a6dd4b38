"""Raises TypeError, as the bindings do, where a program gives what the type hints do not say.

The hints of what ``tensorrt`` has are the one table of what it takes: ``check_types`` puts a check
before each public method, setter and function of it, and tells ``Sealed`` objects and layers'
``Attribute`` what their attributes take. Names in hints that no public class has are tactix's own,
and nothing is checked of them. What programs implement is left as it is.

As the bindings convert it, an integer is what has ``__index__`` or ``__int__`` and is no float, a
float is what becomes one and is no text, bytes are what has a buffer, and sequences are lists,
tuples and arrays. Members of enumerations stand for themselves alone.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from tactix_tensorrt.api.callbacks import Implemented
from tactix_tensorrt.api.layer import Attribute
from tactix_tensorrt.api.logger import IErrorRecorder, ILogger, Logger
from tactix_tensorrt.api.sealed import Check, Sealed
from tactix_tensorrt.api.values import Weights
from tactix_tensorrt.levels import API

if TYPE_CHECKING:
    Names = Mapping[str, object]
    Takes = Callable[[object], bool]

_CONSTRUCTED = "Builder Logger OnnxParser OnnxParserRefitter PluginField Refitter Runtime Weights"
CONSTRUCTED = frozenset(_CONSTRUCTED.split())
"""What programs construct, so that their arguments are looked at."""


LISTS = (list, tuple)
"""Made once: each call asks."""


class Array:
    """Stands for numpy's arrays in hints, so that numpy need not be imported."""


class Unsigned:
    """Stands for integers that are not below 0 in hints."""


ALIASES = {"Array": Array, "Numbers": Weights | Array | None, "Unsigned": Unsigned}
"""Of types, in hints."""


def check_types(public: Names) -> None:
    """Let all of a module's public classes and functions take what their hints say alone."""
    classes = {n: c for n, c in public.items() if isinstance(c, type) and n[0] != "_"}
    names = {**classes, **ALIASES}
    for cls in classes.values():
        if cls.__module__.startswith(API) and not _of_programs(cls):
            _check_class(cls, names, frozenset(classes.values()))
    for name, found in public.items():
        if inspect.isfunction(found) and name[0] != "_":
            public[name] = checked(name, found, names)  # type: ignore[index]


def _of_programs(cls: type) -> bool:
    """Whether programs implement it, or it is plain values."""
    return cls is not Logger and issubclass(
        cls, Implemented | ILogger | IErrorRecorder | Enum | list | bytes
    )


def _check_class(cls: type, names: Names, public: frozenset[type]) -> None:
    """Its own members, and those of bases that are not public."""
    own = [c for c in cls.__mro__ if c.__module__.startswith(API)]
    own = [c for c in own if c is cls or c not in public]
    found = {**names, **_variables(cls)}
    for name, member in {n: m for c in reversed(own) for n, m in vars(c).items()}.items():
        if isinstance(member, Attribute):
            member.check = _attribute(cls, name, member.default, found)
        elif _is_checked(cls, name):
            made = _checked_member(name, member, found)
            if made is not member:
                setattr(cls, name, made)
    if issubclass(cls, Sealed):
        cls._checks = _attributes(cls, found)


def _is_checked(cls: type, name: str) -> bool:
    made = name == "__init__" and cls.__name__ in CONSTRUCTED
    return name[0] != "_" or name == "__getitem__" or made


def _checked_member(name: str, member: object, names: Names) -> object:
    if inspect.isfunction(member):
        return checked(name, member, names)
    if isinstance(member, property) and member.fset is not None:
        return property(member.fget, checked(name, member.fset, names), doc=member.__doc__)
    return member


def _variables(cls: type) -> dict[str, object]:
    """What type variables of its bases stand for, by name."""
    found: dict[str, object] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        variables = getattr(get_origin(base), "__parameters__", ())
        found |= {v.__name__: a for v, a in zip(variables, get_args(base), strict=True)}
    return found


# -- calls ----------------------------------------------------------------------------------------


class Signature:
    """What a function takes; read from its hints when it is first called."""

    def __init__(self, name: str, function: Callable[..., object], names: Names) -> None:
        self._name, self._names = name, names
        self._function = inspect.unwrap(function)

    @functools.cached_property
    def by_name(self) -> dict[str, Takes | None]:
        parameters = inspect.signature(self._function).parameters.values()
        scope = self._function.__globals__
        return {
            p.name: _taken_by(_resolved(p.annotation, scope, self._names))
            for p in parameters
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }

    @functools.cached_property
    def in_order(self) -> tuple[Takes | None, ...]:
        return tuple(self.by_name.values())

    def takes(self, kwargs: Mapping[str, object]) -> bool:
        """Arguments by name; of names that are none Python tells."""
        tests = ((self.by_name.get(name), given) for name, given in kwargs.items())
        return all(takes is None or takes(given) for takes, given in tests)

    def refuse(self, args: Sequence[object], kwargs: Mapping[str, object]) -> TypeError:
        """What is wrong, with what was given and what there should be."""
        given = [*zip(self.by_name, args, strict=False), *kwargs.items()]
        tests = self.by_name
        wrong = ((n, x) for n, x in given if (takes := tests.get(n)) and not takes(x))
        name, value = next(wrong)
        invoked = [f"{x!r:.80}" for x in args] + [f"{n}={x!r:.80}" for n, x in kwargs.items()]
        shown = self._shown()
        wanted = str(shown.parameters[name].annotation)
        taken = str(shown).replace("'", "")
        return _refusal(self._name, taken, invoked, f"{name}: {_told(value, wanted)}")

    def _shown(self) -> inspect.Signature:
        """The function's, in which type variables are what they stand for."""
        found = inspect.signature(self._function)
        meant = {p: self._names.get(str(p.annotation)) for p in found.parameters.values()}
        parameters = [
            p.replace(annotation=known.__name__) if isinstance(known, type) else p
            for p, known in meant.items()
        ]
        return found.replace(parameters=parameters)


def _refusal(name: str, taken: str, invoked: Sequence[str], wrong: str) -> TypeError:
    kind = "constructor" if name == "__init__" else "function"
    return TypeError(
        f"{name}(): incompatible {kind} arguments. The following argument types are supported:\n"
        f"    1. {taken}\n\nInvoked with: {', '.join(invoked)}\n{wrong}"
    )


def _told(value: object, wanted: str) -> str:
    """What a value is not; of None, which methods give that failed, where to look."""
    what = f"{value!r:.60} is no {wanted}"
    if isinstance(value, LISTS):
        what += f", but holds {', '.join(sorted({type(x).__name__ for x in value}))}"
    given = value if isinstance(value, LISTS) else [value]
    missing = any(x is None for x in given)
    return f"{what}. See in the log why a call gave None" if missing else what


def checked(name: str, function: Callable[..., Any], names: Names) -> Callable[..., Any]:
    """The function, which raises TypeError for arguments that its hints do not say."""
    signature = Signature(name, function, names)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for takes, given in zip(signature.in_order, args, strict=False):
            if takes is not None and not takes(given):
                raise signature.refuse(args, kwargs)
        if kwargs and not signature.takes(kwargs):
            raise signature.refuse(args, kwargs)
        return function(*args, **kwargs)

    return call


# -- attributes -----------------------------------------------------------------------------------


def _attributes(cls: type, names: Names) -> dict[str, Check]:
    """Of its plain attributes, by annotations, else by what is there at first."""
    found: dict[str, Check] = {}
    for owner in reversed([c for c in cls.__mro__ if issubclass(c, Sealed)]):
        plain = {n for n, x in vars(owner).items() if isinstance(x, int | float | str | Enum)}
        for name in sorted(n for n in plain | _noted(owner).keys() if n[0] != "_"):
            found[name] = _attribute(owner, name, vars(owner).get(name), names)
    return found


def _attribute(cls: type, name: str, default: object, names: Names) -> Check:
    """Raises TypeError for what an attribute is not."""
    owner = next(c for c in cls.__mro__ if name in vars(c) or name in _noted(c))
    noted = _noted(owner).get(name)
    hint = _resolved(noted, vars(sys.modules[owner.__module__]), names) if noted else type(default)
    (hint,) = get_args(hint) if get_origin(hint) is Attribute else (hint,)
    takes = _taken_by(hint)
    text = noted or type(default).__name__
    text = text[10:-1] if text.startswith("Attribute[") else text

    def check(value: object) -> None:
        if takes is not None and not takes(value):
            taken = f"({name}: {text}) -> None"
            raise _refusal(name, taken, [f"{value!r:.80}"], f"{name}: {_told(value, text)}")

    return check


def _noted(cls: type) -> dict[str, str]:
    found: dict[str, str] = vars(cls).get("__annotations__", {})
    return found


# -- hints ----------------------------------------------------------------------------------------


def _resolved(hint: object, scope: Names, names: Names) -> object:
    """What a hint says; ``object`` where it has names of tactix's own."""
    if not isinstance(hint, str):
        return object if hint is inspect.Parameter.empty else hint
    try:
        return eval(hint, {**scope, **names})  # of this package's own text
    except NameError:
        return object


def _taken_by(hint: object) -> Takes | None:
    """Whether a value is what a hint says; None where it says nothing."""
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return None
    if hint in PLAIN:
        return PLAIN[hint]  # type: ignore[index]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_taken_by(h) for h in inner])
    if origin in (Sequence, list, tuple):
        return _all_of(_taken_by(inner[0]))
    if origin is Iterable:
        return _is_iterable
    return _instances(hint) if isinstance(hint, type) else None


def _instances(cls: type) -> Takes:
    return lambda x: isinstance(x, cls)


def _any_of(every: Sequence[Takes | None]) -> Takes | None:
    tests = [takes for takes in every if takes is not None]
    return (lambda x: any(takes(x) for takes in tests)) if len(tests) == len(every) else None


def _all_of(takes: Takes | None) -> Takes:
    def all_of(x: Any) -> bool:
        listed = isinstance(x, LISTS) or _is_sequence(x)
        return listed and (takes is None or all(map(takes, x)))

    return all_of


def _is_sequence(x: object) -> bool:
    """Whether it is one that is neither list nor tuple, such as an array."""
    cls = type(x)
    if isinstance(x, str | bytes | bytearray | Mapping) or getattr(x, "ndim", 1) == 0:
        return False
    return hasattr(cls, "__getitem__") and hasattr(cls, "__len__")


def _is_iterable(x: object) -> bool:
    return hasattr(type(x), "__iter__") and not isinstance(x, str | bytes)


def _is_int(x: object) -> bool:
    if type(x) is int:
        return True
    if isinstance(x, Enum):
        return False
    try:
        operator.index(x)  # type: ignore[arg-type]
    except TypeError:  # a handle, such as of a stream
        return hasattr(type(x), "__int__") and not hasattr(type(x), "__float__")
    return True


def _is_unsigned(x: Any) -> bool:
    return _is_int(x) and int(x) >= 0


def _is_float(x: object) -> bool:
    if type(x) is float:
        return True
    if not hasattr(type(x), "__float__") and not _is_int(x):
        return False
    try:
        float(x)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _is_bool(x: object) -> bool:
    if type(x) is bool:
        return True
    return hasattr(type(x), "__bool__") and not hasattr(type(x), "__len__")


def _has_buffer(x: object) -> bool:
    try:
        memoryview(x)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _is_array(x: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ndarray | numpy.generic)


PLAIN: Mapping[object, Takes] = {
    bool: _is_bool,
    int: _is_int,
    float: _is_float,
    bytes: _has_buffer,
    Array: _is_array,
    Unsigned: _is_unsigned,
    type(None): lambda x: x is None,
    None: lambda x: x is None,
}
"""Whether a value is, to the bindings, one of these."""
