"""Which rows of a result differ from the row that they must equal, found where they lie: of a large
result a copy to the host takes a hundred times as long as the kernel that made it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tactix.contracts.artifact import Binary
from tactix_cuda.driver import places_of

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice
    from tactix_cuda.modules import CudaKernel

THREADS = 256
PART = 1 << 14
"""Elements of a row that a block compares, 64 of each thread: rows of an image have millions, and a
batch has few rows.
"""
PTX = """
.version 6.4
.target sm_75
.address_size 64

.visible .entry {name}(
    .param .u64 made, .param .u64 twins, .param .u64 differ, .param .u64 width) {{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .{held} %a, %b;
  .reg .b64 %d<11>;
  ld.param.u64 %d0, [made];
  ld.param.u64 %d1, [twins];
  ld.param.u64 %d2, [differ];
  ld.param.u64 %d3, [width];
  mov.u32 %r0, %ctaid.x;  // the row
  mov.u32 %r1, %ctaid.y;  // the part of it
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d4, %r0, 4;
  add.u64 %d4, %d1, %d4;
  ld.global.u32 %r3, [%d4];  // the row that it must equal
  cvt.u64.u32 %d5, %r0;
  add.u64 %d2, %d2, %d5;  // where it is said that they differ
  mul.lo.u64 %d5, %d5, %d3;
  cvt.u64.u32 %d6, %r3;
  mul.lo.u64 %d6, %d6, %d3;
  mul.wide.u32 %d7, %r1, {part};
  add.u64 %d8, %d7, {part};
  min.u64 %d8, %d8, %d3;  // the end of the part
  cvt.u64.u32 %d9, %r2;
  add.u64 %d7, %d7, %d9;
next:
  setp.ge.u64 %p, %d7, %d8;
  @%p ret;
  add.u64 %d9, %d5, %d7;
  add.u64 %d10, %d6, %d7;
  mad.lo.u64 %d9, %d9, {size}, %d0;
  mad.lo.u64 %d10, %d10, {size}, %d0;
  ld.global.{loaded} %a, [%d9];
  ld.global.{loaded} %b, [%d10];
  add.u64 %d7, %d7, {threads};
  setp.eq.{held} %p, %a, %b;
  @%p bra next;
  mov.u32 %r4, 1;
  st.global.u8 [%d2], %r4;
  ret;
}}
"""
"""Arguments: addresses of the rows, of the number of each row's twin (uint32) and of a byte for
each row, which is set where they differ; and elements of a row. A grid of rows, and of parts of
one.
"""


def differing(
    device: CudaDevice, made: int, twins: int, differ: int, rows: int, row_bytes: int
) -> Any:
    """Numbers of the rows at the address ``made`` whose bits are not those of their twins.

    ``twins``: where the number of each row's twin lies (uint32); ``differ``: room for a byte of
    each row. What the stream has been given before comes first.
    """
    import numpy as np

    found = np.zeros(rows, np.uint8)
    if not row_bytes:
        return np.flatnonzero(found)
    size = next(n for n in (4, 2, 1) if row_bytes % n == 0)
    width = row_bytes // size
    values = np.array([made, twins, differ, width], np.int64)
    places = places_of(values)
    device.fill(differ, 0, rows)
    grid, block = (rows, -(-width // PART), 1), (THREADS, 1, 1)
    rest = (0, device.current().native, int(places.ctypes.data), 0)
    device.driver.call("cuLaunchKernel", _kernel(device, size).native, *grid, *block, *rest)
    device.copy_out(found, differ)
    return np.flatnonzero(found)


@functools.cache
def _kernel(device: CudaDevice, size: int) -> CudaKernel:
    """The kernel that compares elements of so many bytes; those of one are held in 16 bits, as
    registers are.
    """
    loaded = f"u{size * 8}"
    name, held = f"tx_twins_of_{loaded}", "u16" if size == 1 else loaded
    text = PTX.format(name=name, held=held, loaded=loaded, size=size, part=PART, threads=THREADS)
    return device.modules.kernel(Binary(text.encode() + b"\0", name))
