"""``pycuda.autoinit`` and ``pycuda.autoprimaryctx``: the device and a context of it."""

from __future__ import annotations

from tactix_tensorrt.cuda_stand_in.pycuda_driver import PycudaContext, PycudaDevice

device = PycudaDevice(0)
context: PycudaContext = device.retain_primary_context()
