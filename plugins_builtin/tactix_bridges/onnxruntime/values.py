"""Arrays that a session takes and gives, and what binds them to names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix_bridges.onnxruntime.errors import InvalidArgument

if TYPE_CHECKING:
    from tactix_bridges.onnxruntime.session import InferenceSession

Array = np.ndarray[Any, np.dtype[Any]]


class OrtValue:
    """An array in the memory of the host."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Array, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """The array itself, without a copy. Raises InvalidArgument for another device."""
        if device_type != "cpu":
            raise InvalidArgument(f"no values on {device_type!r}", do="Give 'cpu'")
        return OrtValue(np.asarray(numpy_obj))

    def numpy(self) -> Array:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True


class IOBinding:
    """Inputs and outputs of a session by name, for ``run_with_iobinding``."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._made: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Raises InvalidArgument for a name that is none."""
        self._session.check_input(name)
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Raises InvalidArgument for a name that is none."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        """A new array at each run. Raises InvalidArgument for another device, or a name that is
        none.
        """
        self._session.check_output(name)
        if device_type != "cpu":
            raise InvalidArgument(f"no outputs on {device_type!r}", do="Give 'cpu'")
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An array that each run fills. Raises InvalidArgument for a name that is none."""
        self._session.check_output(name)
        self._outputs[name] = ortvalue.numpy()

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run."""
        return [OrtValue(array) for array in self._made]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Of the last run."""
        return list(self._made)

    @property
    def inputs(self) -> Mapping[str, Array]:
        return self._inputs

    @property
    def output_names(self) -> Sequence[str]:
        """Of what is bound. Raises InvalidArgument where nothing is."""
        if not self._outputs:
            raise InvalidArgument("no output is bound", do="Call bind_output for each wanted one")
        return list(self._outputs)

    def take(self, made: Sequence[Any]) -> None:
        """What a run gave, in the order of the bound outputs. Raises InvalidArgument where a bound
        array does not suit it.
        """
        self._made = []
        for array, (name, bound) in zip(made, self._outputs.items(), strict=True):
            if bound is not None:
                _fill(name, bound, array)
            self._made.append(array if bound is None else bound)


def _fill(name: str, bound: Array, array: Array) -> None:
    if (bound.shape, bound.dtype) != (array.shape, array.dtype):
        have = f"{bound.dtype} {bound.shape}"
        raise InvalidArgument(
            f"output {name!r} is {array.dtype} {array.shape}", why=f"it is bound to {have}"
        )
    bound[...] = array
