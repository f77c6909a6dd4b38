"""The form of cuda-python's calls: a tuple of a status and of what the call gives."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from tactix_tensorrt.cuda_stand_in.machine import MACHINE
from tactix_tensorrt.cuda_stand_in.statuses import SUCCESS, CudaRefusal

P = ParamSpec("P")


@dataclass(frozen=True)
class CudaAnswers:
    """Makes calls give ``(status, value...)``. ``codes``: the type of the status; ``values``: how
    many values come with it, each None after a failure, which is logged.
    """

    codes: type[enum.IntEnum]
    values: int

    def __call__(self, call: Callable[P, object]) -> Callable[P, tuple[object, ...]]:
        @functools.wraps(call)
        def answered(*args: P.args, **named: P.kwargs) -> tuple[object, ...]:
            try:
                given = call(*args, **named)
            except CudaRefusal as e:
                MACHINE.refused(call.__name__, e)
                return (self.codes(e.status), *(None,) * self.values)
            return (self.codes(SUCCESS), *self._values(given))

        return answered

    def _values(self, given: object) -> tuple[object, ...]:
        if self.values == 1:
            return (given,)
        return given if isinstance(given, tuple) else ()
