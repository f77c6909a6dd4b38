"""Ranges of the symbols from the shapes that a configuration's profiles give."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from tactix.base.dims import Expr, evaluate, show, symbol_name, symbols
from tactix.base.errors import ConfigError, ShapeError
from tactix.config import BuilderConfig, OptimizationProfile
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.constraints import settled
from tactix.plan.schema import Profile

DEFAULT_LENGTHS = (128, 64, 32, 16, 8, 4, 2)
"""What to tune for along a symbolic axis that is not the first, when no profile says; the first is
a batch of 1.
"""

LARGEST = (1 << 24) - 1
"""Most elements of a tensor at sizes that nobody asked for: builds hold such tensors, and their
references.
"""

UNKNOWN_LENGTH = 16
"""What to tune for where only running tells."""


MOST_DOUBLINGS = 12

Range = tuple[int, int, int | None]


def ranges(net: NetworkDefinition, config: BuilderConfig) -> list[Profile]:
    """One Profile per configured one, or one that takes any size. Raises ConfigError."""
    return [_from(net, p) for p in config.profiles] or [Profile("default", _open(net))]


def with_unknown(net: NetworkDefinition, opt: Mapping[str, int]) -> dict[str, int]:
    """``opt`` with a guess for each symbol that only running tells, and for the room of states.

    Guesses fit together: what two parts of a network tell of one length, each by data of its own,
    may have to be the same, or 160 times the other.
    """
    found = {s for v in net.values for d in v.spec.shape for s in symbols(d)}
    unknown = sorted(found - opt.keys())
    sizes = {**dict.fromkeys(unknown, UNKNOWN_LENGTH), **opt}
    if unknown:
        sizes = settled(net, sizes, dict.fromkeys(unknown))
    if net.states is not None:
        sizes[net.states.room] = evaluate(net.states.after, sizes)
    return sizes


def with_room(net: NetworkDefinition, profile: Profile) -> Profile:
    """The profile with any room for the states of a network, tuned for what a run fills of it."""
    if net.states is None:
        return profile
    opt = with_unknown(net, {s: r[1] for s, r in profile.dims.items()})
    room = net.states.room
    return Profile(profile.name, {**profile.dims, room: (0, opt[room], None)})


def _open(net: NetworkDefinition, given: Mapping[str, Range] | None = None) -> dict[str, Range]:
    """Ranges that take any size, but the given ones; tuned for sizes that make sense and are not
    too large.

    The longest of DEFAULT_LENGTHS is taken with which no tensor has more than LARGEST elements.
    """
    fixed = dict(given or {})
    made: dict[str, Range] = {}
    for length in DEFAULT_LENGTHS:
        if not (made := _of_length(net, length) | fixed):
            break
        made = _without_empty(net, made, fixed)
        free = {s: r[2] for s, r in made.items() if s not in fixed}
        sizes = settled(net, {s: r[1] for s, r in made.items()}, free)
        made = {s: (r[0], sizes[s], r[2]) for s, r in made.items()}
        if _most_elements(net, sizes) <= LARGEST:
            break
    return made


def _of_length(net: NetworkDefinition, length: int) -> dict[str, Range]:
    """Any size, tuned for a batch of 1, for a state that grows by 1, and for ``length`` along other
    axes, as far as the network goes.
    """
    dims: dict[str, Range] = {}
    steps = _steps(net)
    for v in net.inputs:
        for axis, d in enumerate(v.spec.shape):
            if name := symbol_name(d):
                high = net.limits.get(name)
                single = axis == 0 or name in steps
                opts = [1 if single else length, *([high] if high is not None else [])]
                opts += [dims[name][1]] if name in dims else []
                dims[name] = (0, min(opts), high)
    return dims


def _steps(net: NetworkDefinition) -> frozenset[str]:
    """Symbols by which a state grows from run to run: an output has the shape of an input but along
    one axis, which is longer by such a symbol. Decoders of text run once with a prompt, and then a
    token at a time. Where either of two inputs may be what grows, none of them is said to.
    """
    shapes = {v.spec.shape for v in net.inputs}
    found = set()
    for after in {v.spec.shape for v in net.outputs}:
        for before in (s for s in shapes if len(s) == len(after)):
            grown = [(a, b - a) for a, b in zip(before, after) if a != b]
            if len(grown) == 1:
                found.add((symbol_name(grown[0][0]), symbol_name(grown[0][1])))
    return frozenset(step for state, step in found if state and step and (step, state) not in found)


def _most_elements(net: NetworkDefinition, sizes: Mapping[str, int]) -> int:
    """Of the largest tensor whose size follows from these; 0 if there is none."""
    found = {v.spec.numel for v in (*net.inputs, *(v for n in net.nodes for v in n.outputs))}
    most = 0
    for d in (d for d in found if isinstance(d, Expr) and symbols(d) <= sizes.keys()):
        with contextlib.suppress(ShapeError):  # what cannot be met is for the build to tell
            most = max(most, evaluate(d, sizes))
    return most


def _without_empty(
    net: NetworkDefinition, ranges: dict[str, Range], fixed: Mapping[str, Range]
) -> dict[str, Range]:
    """The ranges, free ones tuned for more where else a tensor would have no elements: windows must
    fit.
    """
    out = dict(ranges)
    found = {d for n in net.nodes for v in n.outputs for d in v.spec.shape if isinstance(d, Expr)}
    for d in sorted((d for d in found if symbols(d) <= out.keys()), key=str):
        for k in range(MOST_DOUBLINGS):
            more = {
                s: (out[s][0], out[s][1] << k * (s not in fixed), out[s][2]) for s in symbols(d)
            }
            try:
                enough = evaluate(d, {s: r[1] for s, r in more.items()}) > 0
            except ShapeError:  # what does not broadcast is settled later
                break
            if enough:
                out.update({s: r for s, r in more.items() if r[2] is None or r[1] <= r[2]})
                break
    return out


def _from(net: NetworkDefinition, profile: OptimizationProfile) -> Profile:
    inputs = {v.name: v for v in net.inputs}
    dims: dict[str, Range] = {}
    given: dict[str, str] = {}
    for name, rows in profile.shapes.items():
        if name not in inputs:
            raise ConfigError(
                f"the profile sets {name!r}", why=f"the inputs are {', '.join(inputs) or 'none'}"
            )
        shape = inputs[name].spec.shape
        who, why = f"the profile of {name!r}", f"the input is {show(shape)}"
        if len(shape) != len(rows[0]):
            raise ConfigError(f"{who} has {len(rows[0])} dimensions", why=why)
        for d, low, opt, high in zip(shape, *rows, strict=True):
            if isinstance(d, int) and (low, opt, high) != (d, d, d):
                raise ConfigError(f"{who} changes a fixed dimension {d}", why=why)
            if symbol := symbol_name(d):
                if high > net.limits.get(symbol, high):
                    raise ConfigError(
                        f"{who} goes to {high}",
                        why=f"the network takes at most {net.limits[symbol]}",
                    )
                if symbol in given and dims[symbol] != (low, opt, high):
                    raise ConfigError(
                        f"the profiles of {given[symbol]!r} and {name!r} disagree on {symbol!r}"
                    )
                dims[symbol], given[symbol] = (low, opt, high), name
    return Profile("profile", _open(net, dims))
