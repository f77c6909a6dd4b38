"""Programs' plugins of TensorRT as layers of tactix: a layer, a tactic, and launchers that call
them with addresses.
"""

from __future__ import annotations

LAYER = "tactix.TensorRTPlugin@1"
HOST, CUDA = "tactix.tensorrt_plugin@1", "tactix.cuda_tensorrt_plugin@1"
"""Keys of the launchers and of the tactics, for a processor and for a GPU."""
KERNELS = "tactix.cuda_tensorrt_kernel@1"
"""The tactic's of kernels that plugins compile."""
