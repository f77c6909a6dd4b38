"""Setting memory by a kernel, in PTX: the driver compiles it where there is no NVRTC."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tactix.contracts.artifact import Binary
from tactix_cuda.driver import places_of

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice
    from tactix_cuda.modules import CudaKernel

THREADS = 256
"""Of a block; each sets one byte. What is filled so are the counters of libraries' workspaces, of
few bytes, so one byte a thread is enough.
"""
PTX = """
.version 6.4
.target sm_75
.address_size 64

.visible .entry tx_fill(.param .u64 to, .param .u64 bytes, .param .u64 value, .param .u64 size) {
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .b64 %d<9>;
  ld.param.u64 %d0, [to];
  ld.param.u64 %d1, [bytes];
  ld.param.u64 %d2, [value];
  ld.param.u64 %d3, [size];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  cvt.u64.u32 %d4, %r3;
  setp.ge.u64 %p, %d4, %d1;
  @%p ret;
  rem.u64 %d5, %d4, %d3;
  cvt.u32.u64 %r4, %d5;
  shl.b32 %r4, %r4, 3;
  shr.u64 %d6, %d2, %r4;
  add.u64 %d7, %d0, %d4;
  st.u8 [%d7], %d6;
  ret;
}
"""
"""Arguments: an address, how many bytes, a value whose bytes are taken again and again, and how
many it has.
"""


@functools.cache
def kernel(device: CudaDevice) -> CudaKernel:
    """The kernel on a device."""
    return device.modules.kernel(Binary(PTX.encode() + b"\0", "tx_fill"))


def filling(device: CudaDevice, memset: Any) -> tuple[Any, Any]:
    """What the driver takes for a node that does what a memset of one row does, and the memory of
    its arguments.
    """
    import numpy as np

    size = memset.width * memset.elementSize
    values = np.array([int(memset.dst), size, memset.value, memset.elementSize], np.int64)
    places = places_of(values)
    params = device.driver.api.CUDA_KERNEL_NODE_PARAMS()
    params.func, params.kernelParams, params.sharedMemBytes = (
        kernel(device).native,
        int(places.ctypes.data),
        0,
    )
    params.gridDimX, params.gridDimY, params.gridDimZ = max(1, -(-size // THREADS)), 1, 1
    params.blockDimX, params.blockDimY, params.blockDimZ = THREADS, 1, 1
    return params, (values, places)
