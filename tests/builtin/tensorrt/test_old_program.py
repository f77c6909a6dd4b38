"""A program as it was written against TensorRT 8, with bindings and their indices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
parser = trt.OnnxParser(network, logger)
assert parser.parse_from_file(sys.argv[1])
config = builder.create_builder_config()
config.max_workspace_size = 1 << 28
config.builder_optimization_level = 0
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
config.add_optimization_profile(profile)
engine = builder.build_engine(network, config)
context = engine.create_execution_context()
x = np.ones((2, 3, 8, 8), np.float32)
bindings, arrays = [], {}
for binding in engine:
    index = engine.get_binding_index(binding)
    if engine.binding_is_input(binding):
        assert engine.get_binding_shape(index) == (-1, 3, 8, 8)
        assert context.set_binding_shape(index, x.shape)
        arrays[binding] = x
    else:
        shape = context.get_binding_shape(index)
        arrays[binding] = np.empty(shape, trt.nptype(engine.get_binding_dtype(index)))
    bindings.append(arrays[binding].ctypes.data)
assert len(engine) == engine.num_bindings == 2
assert context.execute_async_v2(bindings, 0)
first = arrays["y"].copy()
arrays["y"][:] = 0
assert context.execute_v2(bindings)
assert np.array_equal(first, arrays["y"])
print(first[0].tolist() == first[1].tolist(), first.any())
"""


def test_a_program_with_bindings_runs_at_level_8_6(tmp_path: Path, model: bytes) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "model.onnx").write_bytes(model)
    command = [sys.executable, "-m", "tactix_tensorrt", "--level", "8.6", "program.py"]
    run = subprocess.run(
        [*command, "model.onnx"],
        cwd=tmp_path,
        env={**os.environ, "TACTIX_TENSORRT_DEVICE": "cpu"},
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == ["True", "True"], run.stderr
