"""What the programs share: engines of models, and CUDA's status looked at."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.WARNING)
Range = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Lowest shape, the one to tune for, highest."""


def arguments(about: str | None) -> argparse.Namespace:
    """``model``: an ONNX file; ``output``: an .npz file for what was computed; ``level``: of the builder."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, help="write inputs and outputs to this .npz file")
    parser.add_argument(
        "--level", type=int, default=3, help="the builder's optimization level, 0 to 5"
    )
    return parser.parse_args()


def build(
    model: Path, level: int, profiles: Sequence[dict[str, Range]] = (), flags: Sequence[Any] = ()
) -> trt.ICudaEngine:
    """Parse a model and build its engine. Raises RuntimeError with the parser's errors."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    parse(network, model)
    return build_network(builder, network, level, profiles, flags)


def parse(network: trt.INetworkDefinition, model: Path) -> None:
    """Raises RuntimeError with the parser's errors."""
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse_from_file(str(model)):
        raise RuntimeError("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))


def build_network(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    level: int,
    profiles: Sequence[dict[str, Range]] = (),
    flags: Sequence[Any] = (),
) -> trt.ICudaEngine:
    """Raises RuntimeError if there is no engine; the log has said why."""
    config = builder.create_builder_config()
    config.builder_optimization_level = level
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    for flag in flags:
        config.set_flag(flag)
    for shapes in profiles:
        profile = builder.create_optimization_profile()
        for name, (low, opt, high) in shapes.items():
            profile.set_shape(name, low, opt, high)
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("no engine was built")
    return trt.Runtime(LOGGER).deserialize_cuda_engine(plan)


def check(result: tuple[Any, ...]) -> Any:
    """What a call of cuda-python gave, without its status. Raises RuntimeError."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA: {status}")
    return values[0] if values else None
