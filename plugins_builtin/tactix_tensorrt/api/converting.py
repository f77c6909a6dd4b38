"""Runs of an engine whose inputs and outputs a program has in other formats than tactix."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tactix.base.errors import InvalidArgument
from tactix_tensorrt.api.formats import Layout

if TYPE_CHECKING:
    import numpy as np

    from tactix.run.context import ExecutionContext

SET = "Call set_tensor_address"
Place = Callable[[str, int, int, tuple[int, ...]], int]


class Converted:
    """Tensors of one context that lie in other formats. ``layouts``: by name. ``dtypes``: of
    elements, by name. ``place``: gives an output of a size and shape an address, from its name and
    the address that is set. On the host alone.
    """

    def __init__(
        self,
        native: ExecutionContext,
        layouts: Mapping[str, Layout],
        dtypes: Mapping[str, np.dtype[np.generic]],
        place: Place,
    ) -> None:
        self._native, self._layouts, self._dtypes = native, layouts, dtypes
        self._place = place
        self.addresses = dict.fromkeys(layouts, 0)

    def __contains__(self, name: str) -> bool:
        return name in self._layouts

    def run(self, execute: Callable[[], bool], inputs: frozenset[str]) -> bool:
        """A run on linear copies. Raises InvalidArgument for a tensor without address or shape, and
        as the run.
        """
        arrays = {name: self._linear(name, name in inputs) for name in self._layouts}
        for name, array in arrays.items():
            self._native.set_tensor_address(name, array.ctypes.data)
        done = execute()
        for name in arrays.keys() - inputs:
            stored = self._layouts[name].pack(arrays[name])
            address = self._place(name, self.addresses[name], stored.nbytes, arrays[name].shape)
            if not address:
                raise InvalidArgument(f"tensor {name!r} has no address", do=SET)
            ctypes.memmove(address, stored.ctypes.data, stored.nbytes)
        return done

    def _linear(self, name: str, read: bool) -> np.ndarray:
        """What the engine runs on: an input's content, room for an output's."""
        import numpy as np

        known = self._native.get_tensor_shape(name)
        shape = [d for d in known if isinstance(d, int)]
        if len(shape) < len(known):
            why = "tensors of such shapes are linear"
            raise InvalidArgument(f"the shape of {name!r} is not known before the run", why=why)
        layout, dtype = self._layouts[name], self._dtypes[name]
        if not read:
            return np.empty(shape, dtype)
        if not self.addresses[name]:
            raise InvalidArgument(f"tensor {name!r} has no address", do=SET)
        stored = layout.storage_shape(shape)
        size = math.prod(stored) * dtype.itemsize
        raw = memoryview((ctypes.c_ubyte * size).from_address(self.addresses[name]))
        return layout.unpack(np.frombuffer(raw, np.uint8).view(dtype).reshape(stored), shape)
