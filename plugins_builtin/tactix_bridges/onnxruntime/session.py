"""Sessions: a model, built when the session is made and kept for the next process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tactix
from tactix.base import errors
from tactix.base.cache_folder import cache_folder
from tactix.base.dims import Dim, symbol_name
from tactix.base.dtypes import DType
from tactix.base.logger import Logger, Severity
from tactix.base.spelling import did_you_mean
from tactix.plan.container import MAGIC
from tactix.plan.schema import TensorIO
from tactix.run.engine import Engine
from tactix_bridges.onnxruntime.errors import (
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    as_ours,
)
from tactix_bridges.onnxruntime.options import (
    PREFIX,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from tactix_bridges.onnxruntime.providers import DEVICES, Provider, chosen
from tactix_bridges.onnxruntime.values import IOBinding

ONNX_NAMES = {
    DType.FP64: "double", DType.FP32: "float", DType.FP16: "float16", DType.BF16: "bfloat16",
    DType.FP8: "float8e4m3fn", DType.FP8E5M2: "float8e5m2", DType.FP8FNUZ: "float8e4m3fnuz",
    DType.FP8E5M2FNUZ: "float8e5m2fnuz", DType.INT64: "int64", DType.INT32: "int32",
    DType.INT16: "int16", DType.INT8: "int8", DType.INT4: "int4", DType.UINT64: "uint64",
    DType.UINT32: "uint32", DType.UINT16: "uint16", DType.UINT8: "uint8", DType.UINT4: "uint4",
    DType.BOOL: "bool", DType.COMPLEX64: "complex64", DType.COMPLEX128: "complex128",
    DType.STRING: "string",
}  # fmt: skip
"""What ONNX Runtime calls elements of tensors."""

LOUDEST = {0: Severity.VERBOSE, 1: Severity.INFO, 3: Severity.ERROR, 4: Severity.INTERNAL_ERROR}
"""By ONNX Runtime's severity; warnings for others."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output. ``type``: such as ``tensor(float)``; ``shape``: numbers, and names or
    None for sizes that are open.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """What the model's file says of itself, as far as a plan keeps it: its name."""

    graph_name: str
    producer_name: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class InferenceSession:
    """An engine with ONNX Runtime's methods. ``path_or_bytes``: of an ONNX model, which is built,
    or of a plan.

    Built plans are kept in the user's cache folder (``TACTIX_CACHE_DIR``), or where the
    configuration entry ``tactix.cache`` says. Raises NoSuchFile, InvalidArgument, and what
    ``tactix.build`` and ``tactix.load`` raise.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        self._options = sess_options or SessionOptions()
        self._providers = chosen(providers)
        try:
            self._engine = _engine_of(path_or_bytes, self._options, DEVICES[self._providers[0]])
        except errors.ModelImportError as e:
            raise as_ours(e, InvalidProtobuf) from e
        self._inputs = [_node_arg(io) for io in self._engine.inputs]
        names = self._engine.plan.model_names
        self._outputs = [replace(_node_arg(io), name=names[io.name]) for io in self._engine.outputs]

    @property
    def engine(self) -> Engine:
        """What runs."""
        return self._engine

    # -- facts ------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(self._engine.name)

    # -- running ----------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The named outputs, all of them for None. Raises InvalidArgument for names that are none
        and inputs that are missing, and what a call of an engine raises.
        """
        expected, names = [i.name for i in self._inputs], [o.name for o in self._outputs]
        wanted = list(output_names) if output_names else names
        _check_names(input_feed, expected, "input")
        _check_names(wanted, names, "output")
        if missing := [name for name in expected if name not in input_feed]:
            raise InvalidArgument(f"inputs are missing: {', '.join(missing)}")
        try:
            made = self._engine({name: _array(value) for name, value in input_feed.items()})
        except errors.InvalidArgument as e:
            raise as_ours(e, InvalidArgument) from e
        if len(names) == 1:
            return [made for _ in wanted]
        own = {name: io.name for name, io in zip(names, self._engine.outputs, strict=True)}
        return [made[own[name]] for name in wanted]

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound. Raises as ``run``."""
        iobinding.take(self.run(iobinding.output_names, iobinding.inputs, run_options))

    def check_input(self, name: str) -> None:
        """Raises InvalidArgument for a name that is none."""
        _check_names([name], [i.name for i in self._inputs], "input")

    def check_output(self, name: str) -> None:
        """Raises InvalidArgument for a name that is none."""
        _check_names([name], [o.name for o in self._outputs], "output")

    def io_binding(self) -> IOBinding:
        return IOBinding(self)


def _check_names(given: Iterable[str], known: Sequence[str], what: str) -> None:
    for name in given:
        if name not in known:
            do = did_you_mean(name, known, f"There are: {', '.join(known)}")
            raise InvalidArgument(f"no {what} is named {name!r}", do=do)


def _array(value: Any) -> Any:
    """ONNX Runtime's values hold arrays."""
    return value.numpy() if hasattr(value, "ortvalue_from_numpy") else value


def _node_arg(io: TensorIO) -> NodeArg:
    return NodeArg(io.name, _type_of(io), [_size(d) for d in io.shape])


def _type_of(io: TensorIO) -> str:
    name = ONNX_NAMES.get(io.dtype)
    return f"tensor({name})" if name is not None else io.dtype.value


def _size(dim: Dim) -> int | str | None:
    return dim if isinstance(dim, int) else symbol_name(dim)


# -- building ---------------------------------------------------------------------------------


def _engine_of(source: Any, options: SessionOptions, device: str) -> Engine:
    logger = Logger(LOUDEST.get(options.log_severity_level, Severity.WARNING))
    threads = max(0, options.intra_op_num_threads)
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        if data.startswith(MAGIC):
            return tactix.load(data, logger=logger, max_threads=threads)
        return _built_from_bytes(data, options, device, logger)
    if not isinstance(source, (str, os.PathLike)):
        what = f"a model is a path or bytes, not {type(source).__name__}"
        raise InvalidArgument(what, do="Serialize it: model.SerializeToString()")
    path = Path(source)
    if not path.is_file():
        raise NoSuchFile(f"no such file: {path}")
    if _begins_as_plan(path):
        return tactix.load(path, logger=logger, max_threads=threads)
    return _built(path, options, device, logger)


NUMBERS = {"level": int, "threads": int, "budget": float, "trial_budget": float}
"""Options of a build that are no text."""


def _begins_as_plan(path: Path) -> bool:
    with open(path, "rb") as f:
        return f.read(len(MAGIC)) == MAGIC


def _built_from_bytes(data: bytes, options: SessionOptions, device: str, logger: Logger) -> Engine:
    with tempfile.TemporaryDirectory(prefix="tactix-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        try:
            return _built(path, options, device, logger)
        except errors.TactixError as e:
            e.who = e.who.replace(str(path), "the model in memory")  # the caller has no such file
            raise


def _built(path: Path, options: SessionOptions, device: str, logger: Logger) -> Engine:
    said = dict(options.build_entries)
    cache = said.pop("cache", "") or cache_folder() / "sessions"
    build: dict[str, Any] = {name: _value(name, text) for name, text in said.items()}
    build.setdefault("level", _level(options))
    if options.intra_op_num_threads > 0:
        build["threads"] = options.intra_op_num_threads
    return tactix.load_or_build(path, cache=cache, device=device, logger=logger, **build)


def _level(options: SessionOptions) -> int:
    """Of a build: nothing is measured where the program wants no optimizations."""
    plain = options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
    return 0 if plain else tactix.BuilderConfig().builder_optimization_level


def _value(name: str, text: str) -> object:
    """Raises InvalidArgument for a number that is none."""
    try:
        return NUMBERS[name](text) if name in NUMBERS else text
    except ValueError as e:
        raise InvalidArgument(f"{PREFIX}{name} is {text!r}", do="Give a number") from e
