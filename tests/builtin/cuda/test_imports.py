"""What a process pays for CUDA that does not use it."""

from __future__ import annotations

import subprocess
import sys

TEXT = """
import sys
import tactix_cuda as cuda
import tactix_cublaslt, tactix_cudnn
found = {x.key for p in (cuda, tactix_cublaslt, tactix_cudnn) for x in p.launchers()}
assert {"tactix.cuda.cubin@1", "tactix.cuda.cublaslt@1", "tactix.cuda.cudnn@1", "tactix.cuda.host@1"} <= found, found
cuda.devices(), cuda.allocators()
parts = "cuda.library cuda.nvrtc cuda.caller_arrays cuda.arrays cuda.dlpack cuda.pinned cuda.tactics cublaslt.matmul"
parts = (parts + " cudnn.plan").split()
loaded = [p for p in parts if "tactix_" + p in sys.modules]
print(loaded + [m for m in ("numpy", "cuda", "tactix_cpu.tactics") if m in sys.modules])
"""


def test_offering_launchers_and_devices_imports_little() -> None:
    said = subprocess.run([sys.executable, "-c", TEXT], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "[]\n"
