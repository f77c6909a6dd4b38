"""A model that is loaded first and parsed later: in between a program gives it weights."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import InvalidArgument, ModelImportError, TactixError
from tactix.base.spelling import did_you_mean
from tactix_tensorrt.api.parser_errors import ListingErrors

if TYPE_CHECKING:
    import onnx

HALF_BYTES = ("UINT4", "INT4", "FLOAT4E2M1")
"""Types of ONNX of which two elements share a byte."""


class LoadedModel:
    """Of a model's bytes. ``path``: its file, beside which weights may lie. Raises
    ModelImportError.
    """

    def __init__(self, model: bytes, path: str | None) -> None:
        import onnx

        try:
            self._proto = onnx.load_model_from_string(bytes(model))
        except Exception as e:  # protobuf's own
            raise ModelImportError("no model of ONNX", who="load_model_proto", why=str(e)) from e
        self._folder = str(Path(path).parent) if path else ""
        self._own = {t.name: t for t in self._proto.graph.initializer}

    def give(self, name: str, data: int, size: int) -> None:
        """Take ``size`` bytes at an address as an initializer. Raises InvalidArgument for a name or
        a size that is not the model's.
        """
        import onnx

        tensor = self._own.get(name)
        if tensor is None:
            do = did_you_mean(name, list(self._own), "Give one of the model's own")
            raise InvalidArgument(f"the model has no initializer {name!r}", do=do)
        wanted = bytes_of(tensor)
        if size != wanted:
            raise InvalidArgument(f"{size} bytes for {name!r}", why=f"the model has {wanted}")
        content = ctypes.string_at(data, size) if size else b""
        made = onnx.TensorProto(name=name, dims=tensor.dims, data_type=tensor.data_type)
        made.raw_data = content
        tensor.CopyFrom(made)

    def whole(self) -> onnx.ModelProto:
        """The model with all weights in it. Raises ModelImportError for files that are missing."""
        import onnx

        try:
            onnx.load_external_data_for_model(self._proto, self._folder)
        except (OSError, ValueError, onnx.checker.ValidationError) as e:
            do = "Give its path to load_model_proto, or every initializer"
            raise ModelImportError("weights are missing", why=str(e), do=do) from e
        return self._proto


def bytes_of(tensor: onnx.TensorProto) -> int:
    """What its elements take."""
    import onnx

    count: int = math.prod(tensor.dims)
    if onnx.TensorProto.DataType.Name(tensor.data_type) in HALF_BYTES:
        return -(-count // 2)
    itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return count * itemsize


class LoadsModels(ListingErrors):
    """What reads a model in steps, too."""

    _loaded: LoadedModel | None = None

    def load_model_proto(self, model: bytes, path: str | None = None) -> bool:
        """Load a model, to be parsed later. ``path``: its file, beside which weights may lie. False
        for what is none, and for a second one.
        """
        if self._loaded is not None:
            self._failed(InvalidArgument("a model is loaded already", do="Make another parser"))
            return False
        try:
            self._loaded = LoadedModel(model, path)
        except TactixError as e:
            self._failed(e)
            return False
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Take ``size`` bytes at an address of the host for an initializer of the loaded model;
        False for a name or a size that is not its own.
        """
        try:
            self._of_loaded().give(name, int(data), int(size))
        except TactixError as e:
            self._failed(e)
            return False
        return True

    def _of_loaded(self) -> LoadedModel:
        """Raises InvalidArgument without a model."""
        if self._loaded is None:
            raise InvalidArgument("no model is loaded", do="Call load_model_proto first")
        return self._loaded

    def _whole(self) -> onnx.ModelProto | None:
        """The loaded model with its weights; None without, which is an error of the parser's."""
        try:
            return self._of_loaded().whole()
        except TactixError as e:
            self._failed(e)
            return None
