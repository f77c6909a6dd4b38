"""Between callers' arrays and a context: device memory is used where it lies, the host's goes
through pinned memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Bind
from tactix.run.arrays import as_input
from tactix_cuda.arrays import DeviceArray, Located, locate, on_device, stream_told
from tactix_cuda.pinned import StagingArea
from tactix_cuda.stream import SLEEPING, CudaEvent, CudaStream

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

Run = Callable[[list[int]], None]

LONG_WAIT = 0.5e-3
"""Seconds of a wait for the device after which the next one sleeps instead of asking again and
again. To be woken takes tens of microseconds, no measurement of which is on record; shorter runs
would notice them.
"""


class CudaExchange:
    """Of one context: memory to pass host arrays through, and the order of its runs in whatever
    streams they are.
    """

    def __init__(self, device: CudaDevice, allocator: Allocator) -> None:
        self._device, self._allocator = device, allocator
        self._stage = StagingArea(device, allocator)
        self._own: CudaStream | None = None
        self._last: tuple[CudaStream, CudaEvent] | None = None
        self._waited = 0.0  # seconds, for the last results of the host

    def run(
        self,
        inputs: Sequence[Any],
        given: Sequence[Any],
        stream: Any,
        bind: Bind,
        left_out: Collection[int] = (),
        out: Sequence[Any] = (),
    ) -> list[Any]:
        """See ``tactix.contracts.device.Exchange``. With an input in device memory, the outputs are
        DeviceArrays.

        That returns before the work is over, but for inputs of the host among them (which are
        copied), and for arrays of another stream than the one that it runs in: these are waited
        for, as nothing else keeps them.
        """
        with self._device.visited():
            if any(on_device(x) for x in given):
                return self._on_device(inputs, given, stream, bind)
            arrays = [as_input(io, x) for io, x in zip(inputs, given, strict=True)]
            results, run = bind([x.shape for x in arrays])
            return self._on_host(arrays, results, run, self._host_stream(stream), left_out, out)

    def locate(self, io: Any, given: Any) -> Located:
        """An array for ``set_tensor_address``, ready in the default stream. Raises InvalidArgument,
        DTypeError.
        """
        if not on_device(given):
            what = f"{io.name!r} needs an array in device memory, got a {type(given).__name__}"
            raise InvalidArgument(what, do="Move it there, or call run(), which copies")
        return locate(io, given, self._device, self._device.default_stream)

    def fetch(self, io: Any, given: Any) -> Any:
        """What lies on the device as a copy on the host; anything else as it is. Raises as
        ``locate``.
        """
        if not on_device(given):
            return given
        import numpy as np

        found = self.locate(io, given)
        out = np.empty(found.shape, io.dtype.numpy)
        self._device.copy_out(out, found.address)
        return out

    # -- arrays of the device ---------------------------------------------------------------------

    def _on_device(
        self, inputs: Sequence[Any], given: Sequence[Any], stream: Any, bind: Bind
    ) -> list[Any]:
        device = self._device
        there = [on_device(x) for x in given]
        queue = self._device_stream(
            stream, [x for x, here in zip(given, there, strict=True) if here]
        )
        taken = [
            locate(io, x, device, queue) if here else as_input(io, x)
            for io, x, here in zip(inputs, given, there, strict=True)
        ]
        results, run = bind([x.shape for x in taken])
        outputs = [
            DeviceArray(device, self._allocator, shape, dtype, queue) for shape, dtype in results
        ]
        hosted = [x for x in taken if not isinstance(x, Located)]
        places = iter(self._stage.place([x.nbytes for x in hosted]) if hosted else ())
        addresses = [x.address if isinstance(x, Located) else next(places) for x in taken]
        addresses += [y.address for y in outputs]
        try:
            self._submit(queue, lambda: self._send_and_run(hosted, run, addresses))
        finally:
            if hosted or any(x.stream != queue.handle for x in taken if isinstance(x, Located)):
                queue.synchronize()
        return outputs

    def _device_stream(self, stream: Any, arrays: Sequence[Any]) -> CudaStream:
        """What was asked for, else what this thread submits to, else the stream of the first array
        that tells one.
        """
        if stream is not None:
            return self._device.stream_of(stream)
        if self._device.local.stream is not None:
            return self._device.local.stream
        told = (stream_told(x, self._device) for x in arrays)
        return self._device.stream_of(next((s for s in told if s is not None), 0))

    def _send_and_run(self, hosted: Sequence[Any], run: Run, addresses: list[int]) -> None:
        if hosted:
            self._stage.send(hosted)
        run(addresses)

    # -- arrays of the host -----------------------------------------------------------------------

    def _on_host(
        self,
        arrays: Sequence[Any],
        results: Any,
        run: Run,
        queue: CudaStream,
        left_out: Collection[int],
        out: Sequence[Any],
    ) -> list[Any]:
        """Only outputs that are not left out are copied. All have memory of the device all the
        same, at addresses that do not hang on it: other ones would change the graph.
        """
        import numpy as np

        stage, clock = self._stage, [time.perf_counter()]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in results]
        addresses = stage.place([*(x.nbytes for x in arrays), *sizes])
        wanted = [i for i in range(len(results)) if i not in left_out]
        places = [len(arrays) + i for i in wanted]

        def there_and_back() -> None:
            stage.send(arrays)
            run(addresses)
            stage.receive(places)

        try:
            self._submit(queue, there_and_back)
        except BaseException:
            queue.synchronize()  # what fails may leave a copy under way
            raise
        clock.append(time.perf_counter())
        self._wait(queue)
        clock.append(time.perf_counter())
        outputs: list[Any] = [*out] or [None] * len(results)
        for i in wanted:
            outputs[i] = np.empty(*results[i]) if outputs[i] is None else outputs[i]
        stage.take([outputs[i] for i in wanted], places)
        clock.append(time.perf_counter())
        self._count(clock, sum(x.nbytes for x in arrays), sum(sizes[i] for i in wanted))
        return outputs

    def _wait(self, queue: CudaStream) -> None:
        """Until the run that was submitted last is over. Whether the thread sleeps meanwhile the
        last wait decides.
        """
        start = time.perf_counter()
        if self._waited > LONG_WAIT and self._last is not None:
            self._last[1].synchronize()
        else:
            queue.synchronize()
        self._waited = time.perf_counter() - start

    def _count(self, clock: Sequence[float], there: int, back: int) -> None:
        """``clock``: when work was submitted, waited for and taken, and the end."""
        began, submitted, waited, ended = clock
        self._device.count(
            host_runs=1,
            submit_seconds=submitted - began,
            wait_seconds=waited - submitted,
            take_seconds=ended - waited,
            to_device_bytes=there,
            to_host_bytes=back,
        )

    def _host_stream(self, stream: Any) -> CudaStream:
        if stream is not None:
            return self._device.stream_of(stream)
        self._own = self._own or self._device.create_stream()
        return self._device.local.stream or self._own

    # -- one run after the other ------------------------------------------------------------------

    def _submit(self, queue: CudaStream, work: Callable[[], None]) -> None:
        """In any stream, but behind the last run: they share memory."""
        device = self._device
        if self._last is not None and self._last[0].handle != queue.handle:
            queue.wait(self._last[1])
        queue.submit(work)
        event = self._last[1] if self._last is not None else CudaEvent(device, SLEEPING)
        event.record(queue)
        self._last = queue, event
