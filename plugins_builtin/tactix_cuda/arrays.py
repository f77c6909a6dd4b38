"""Arrays in device memory: those that callers give, by DLPack or the CUDA array interface, and
those they get.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, TactixError
from tactix.contracts.allocator import Allocator, allocated
from tactix_cuda import dlpack
from tactix_cuda.memory import ALIGNMENT
from tactix_cuda.stream import LEGACY, CudaStream, callers_stream, handle_of

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

UNKNOWN = -1
"""A taker that does not tell its stream."""


def on_device(given: Any) -> bool:
    """Whether it says that it lies in a CUDA device's memory."""
    ask = getattr(given, "__dlpack_device__", None)
    if ask is not None:
        return int(ask()[0]) in (dlpack.CUDA, dlpack.MANAGED)
    return hasattr(given, "__cuda_array_interface__")


def ordinal_told(given: Any, device: CudaDevice) -> int:
    """The CUDA device in whose memory an array says that it lies; -1 for none. ``device``: any."""
    ask = getattr(given, "__dlpack_device__", None)
    if ask is not None:
        kind, ordinal = ask()
        return int(ordinal) if int(kind) in (dlpack.CUDA, dlpack.MANAGED) else -1
    told = getattr(given, "__cuda_array_interface__", None)
    if told is None or not (address := int(told["data"][0])):
        return -1
    with device.visited():
        return device.ordinal_of(address)


@dataclass(frozen=True)
class Located:
    """An array of the caller's. ``owner``: keeps the memory; ``stream``: the caller's, None where
    nobody tells it.
    """

    address: int
    shape: tuple[int, ...]
    owner: Any
    stream: int | None


def stream_told(given: Any, device: CudaDevice) -> int | None:
    """The stream that whoever gives an array works in."""
    if isinstance(given, DeviceArray):
        return given.stream.handle
    return callers_stream(given, device.ordinal)


def locate(io: Any, given: Any, device: CudaDevice, stream: CudaStream) -> Located:
    """A device array as an input or output (a ``TensorIO``), once the stream waits for what makes
    it.

    Raises InvalidArgument for another device, for what is not contiguous or not aligned;
    DTypeError.
    """
    try:
        shares = hasattr(given, "__dlpack__")
        found = (
            _by_dlpack(io, given, device, stream)
            if shares
            else _by_interface(io, given, device, stream)
        )
    except TactixError:
        raise
    except Exception as e:  # whatever the other library raises
        what = f"{io.name!r} cannot be taken from a {type(given).__module__}.{type(given).__name__}"
        do = (
            "Give a plain array: detach() a tensor that needs a gradient, "
            "resolve_conj() a conjugate"
        )
        raise InvalidArgument(what, why=str(e), do=do) from e
    if found.address % device.alignment:
        why = f"it starts at {found.address:#x}"
        do = "Copy it, as x.clone() or x.copy() do, or slice at other elements"
        raise InvalidArgument(
            f"{io.name!r} does not start at a multiple of {device.alignment} bytes", why=why, do=do
        )
    return found


def _by_dlpack(io: Any, given: Any, device: CudaDevice, stream: CudaStream) -> Located:
    _check_ordinal(io, int(given.__dlpack_device__()[1]), device)
    capsule = given.__dlpack__(stream=stream.handle or LEGACY)
    address, shape, strides, (code, bits, lanes) = dlpack.read(capsule)
    if dlpack.CODES.get(io.dtype) != (code, bits) or lanes != 1:
        _refuse_dtype(io, dlpack.NAMES.get((code, bits), f"a type of {bits} bits with code {code}"))
    _check_order(io, shape, strides, 1)
    return Located(address, shape, capsule, stream_told(given, device))


def _by_interface(io: Any, given: Any, device: CudaDevice, stream: CudaStream) -> Located:
    """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""
    told: dict[str, Any] = given.__cuda_array_interface__
    address, shape = int(told["data"][0]), tuple(told["shape"])
    if address:
        _check_ordinal(io, device.ordinal_of(address), device)
    if told["typestr"] != io.dtype.numpy.str:
        _refuse_dtype(io, told["typestr"])
    _check_order(io, shape, told.get("strides"), io.dtype.itemsize)
    theirs = told.get("stream")
    if theirs is not None:
        theirs = handle_of(theirs)
        stream.follow(device.stream_of(theirs))
    return Located(address, shape, given, theirs)


def _check_ordinal(io: Any, ordinal: int, device: CudaDevice) -> None:
    if ordinal != device.ordinal:
        what = f"{io.name!r} lies on CUDA device {ordinal}"
        do = f"Move it, as x.to('cuda:{device.ordinal}') does"
        raise InvalidArgument(what, why=f"the engine runs on device {device.ordinal}", do=do)


def _refuse_dtype(io: Any, got: str) -> None:
    do = f"Convert it, as x.to(torch.{io.dtype.numpy}) or x.astype({str(io.dtype.numpy)!r}) do"
    raise DTypeError(f"{io.name!r} is {io.dtype.value}, got {got}", do=do)


def _check_order(io: Any, shape: tuple[int, ...], strides: Sequence[int] | None, unit: int) -> None:
    """``strides`` in multiples of ``unit``; those of axes of one element mean nothing."""
    if strides is None or 0 in shape:
        return
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != unit:
            why = f"its shape is {show(shape)} with strides {show(tuple(strides))}"
            do = "Copy it, as x.contiguous() or cupy.ascontiguousarray(x) do"
            raise InvalidArgument(f"{io.name!r} is not contiguous", why=why, do=do)
        unit *= n


class DeviceArray:
    """A contiguous result in device memory: ``torch.from_dlpack(y)`` and ``cupy.asarray(y)`` take
    it without a copy.

    ``address``, ``shape``, ``dtype``. It is made by the work that ``stream`` has by now, which
    nobody has waited for: DLPack and the CUDA array interface order who takes it behind, and
    ``numpy()`` waits. The memory is there as long as this object or what was made of it, and goes
    back in the order of the streams that used it.
    """

    def __init__(
        self,
        device: CudaDevice,
        allocator: Allocator,
        shape: tuple[int, ...],
        dtype: Any,
        stream: CudaStream,
    ) -> None:
        self.device, self.shape, self.dtype, self.stream = device, shape, DType.of(dtype), stream
        self.address = allocated(allocator, max(1, self.nbytes), ALIGNMENT, stream.handle or LEGACY)
        self._readers: dict[int, CudaStream] = {}
        weakref.finalize(
            self, _release, device, allocator, self.address, stream, self._readers
        ).atexit = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self) -> Any:
        """A copy on the host."""
        import numpy as np

        out = np.empty(self.shape, self.dtype.numpy)
        with self.device.visited():
            self.stream.submit(lambda: self.device.copy_out(out, self.address))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array in device memory cannot be one of the host without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.ordinal

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """``stream``: that of the taker, which waits for the result; None and 1 are the default
        one, -1 waits not.

        Raises BufferError for a copy, for another device, and for a dtype that DLPack has not.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a result lies where it lies: numpy() copies it to the host")
        capsule = dlpack.make(self, self.address, self.shape, self.dtype, self.device.ordinal)
        if stream == -1:
            self._readers[UNKNOWN] = self.stream
        else:
            taker = self.device.stream_of(0 if stream is None else stream)
            with self.device.visited():
                taker.follow(self.stream)
            self._readers[taker.handle] = taker
        return capsule

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        import numpy as np

        kind = self.dtype.numpy
        if np.dtype(kind.str) != kind:
            raise AttributeError(
                f"the CUDA array interface has no {self.dtype.value}: take it by DLPack"
            )
        self._readers[UNKNOWN] = self.stream
        place = {"data": (self.address if self.size else 0, False), "strides": None}
        return {
            "shape": self.shape,
            "typestr": kind.str,
            **place,
            "version": 3,
            "stream": self.stream.handle or LEGACY,
        }

    def __repr__(self) -> str:
        return f"<device array {self.dtype.value}{show(self.shape)} on cuda:{self.device.ordinal}>"


def _release(
    device: CudaDevice,
    allocator: Allocator,
    address: int,
    stream: CudaStream,
    readers: Mapping[int, CudaStream],
) -> None:
    """Behind what streams that took the array have by now; behind all if one is not known."""
    # after a fatal error there is nothing left to give back
    with contextlib.suppress(TactixError), device.visited():
        if UNKNOWN in readers:
            allocator.deallocate(address)
            return
        for reader in readers.values():
            stream.follow(reader)
        allocator.deallocate(address, stream.handle or LEGACY)
