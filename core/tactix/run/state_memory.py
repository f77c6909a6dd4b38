"""The memory that a context reserves for states that grow, and how much of it is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tactix.base.dims import Env, Expr, evaluate, evaluate_shape, show, symbol_name, symbols
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.contracts.states import States
from tactix.plan.schema import Plan, TensorIO
from tactix.run.arrays import address_of

RESERVE = "Call reserve(length) first"


class StateMemory:
    """States of one context: arrays with room for ``room`` elements along their axes.

    They are made at the first run, when the other inputs have told their other dims. ``shapes`` of
    the inputs, ``addresses`` of inputs and outputs.
    """

    def __init__(self, plan: Plan, states: States, room: int) -> None:
        self.states, self.room = states, room
        kept = {p.input for p in states.pairs}
        self.fed = tuple(io for io in plan.inputs if io.name not in kept)
        self.kept = tuple(io for io in plan.inputs if io.name in kept)
        self.outputs = {p.output: p.input for p in states.pairs}
        self.arrays: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def after(self, fed: Sequence[Any], length: int) -> int:
        """How much will be filled after a run on these inputs; makes the arrays where there are
        none. Raises ShapeError for more than there is room for.
        """
        env = {self.states.length: length, self.states.room: self.room}
        for io, x in zip(self.fed, fed, strict=True):
            env.update((s, n) for d, n in zip(io.shape, x.shape) if (s := symbol_name(d)))
        if not self.arrays:
            self.arrays = {io.name: _empty(io, env) for io in self.kept}
            self.shapes = {name: x.shape for name, x in self.arrays.items()}
            self.addresses = {name: address_of(x) for name, x in self.arrays.items()}
            self.addresses |= {y: self.addresses[x] for y, x in self.outputs.items()}
        after = evaluate(self.states.after, _known(self.states.after, env))
        if after > self.room:
            why = f"{length} are filled, and the run adds {after - length}"
            do = "Reserve more, or set state_length to a smaller one"
            raise ShapeError(f"states have room for {self.room}", why=why, do=do)
        return after

    def view(self, name: str, length: int) -> Any:
        """What is filled of a state. Raises InvalidArgument."""
        pair = next((p for p in self.states.pairs if name in (p.input, p.output)), None)
        if pair is None:
            known = ", ".join(p.input for p in self.states.pairs)
            raise InvalidArgument(f"no state is named {name!r}", do=f"There are: {known}")
        if pair.input not in self.arrays:
            why = "their other dims are those of the first run's inputs"
            raise InvalidArgument("the states have no memory yet", why=why, do="Run once")
        return self.arrays[pair.input][(*[slice(None)] * pair.axis, slice(0, length))]


def _empty(io: TensorIO, env: Mapping[str, int]) -> Any:
    import numpy as np

    for d in io.shape:
        _known(d, env)
    return np.zeros(evaluate_shape(io.shape, env), io.dtype.numpy)


def _known(d: Any, env: Mapping[str, int]) -> Env:
    """``env``, if it has all symbols of a dim. Raises ShapeError."""
    if isinstance(d, Expr) and (missing := sorted(symbols(d) - env.keys())):
        raise ShapeError(f"no other input tells {missing[0]!r} of a state", why=show((d,)))
    return env
