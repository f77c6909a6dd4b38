"""OnnxImporter: reads a model, then hands its graph over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.words.errors import ModelImportError

if TYPE_CHECKING:
    import onnx

    from tactix.network.definition import NetworkDefinition


class OnnxImporter:
    """Reads ONNX models: a path, the bytes of a file, or a ModelProto."""

    key = "tactix.onnx@1"
    format = "onnx"

    def claims(self, source: Any) -> bool:
        """Whether it is a ModelProto, or begins as a serialized one does, or is a path that ends in ``.onnx``."""
        if isinstance(source, (str, Path)):
            path = Path(source)
            return path.suffix.lower() == ".onnx" or (path.is_file() and _looks_like_model(_first_bytes(path)))
        if isinstance(source, (bytes, bytearray, memoryview)):
            return _looks_like_model(bytes(source[:2]))
        return type(source).__name__ == "ModelProto"

    def load(self, source: Any, network: NetworkDefinition, converters: Any) -> None:
        """Fill the network.

        ``converters``: Converters, or a mapping whose values are Converters or sequences of them. Layers are those of
        the network. Raises ModelImportError for a model that is damaged, UnsupportedOperator with all nodes that no
        converter, layer or function body gives a meaning.
        """
        from tactix_builtin.onnx_importer.catalog import Catalog
        from tactix_builtin.onnx_importer.graph import import_model
        from tactix_builtin.onnx_importer.weights import Weights

        model, folder = read(source)
        weights = Weights(folder, owned=not hasattr(source, "SerializeToString"))
        import_model(model, network, Catalog(converters, network.layers.values(), model.functions), weights)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as f:
        return f.read(2)


def _looks_like_model(head: bytes) -> bool:
    """A ModelProto as every exporter writes it: field 1, the IR version, comes first."""
    return len(head) == 2 and head[0] == 0x08 and 1 <= head[1] <= 64


def read(source: Any) -> tuple[onnx.ModelProto, Path | None]:
    """The model without its external data, and the folder for that. Raises ModelImportError."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if isinstance(source, onnx.ModelProto):
        return source, None
    who = str(source) if isinstance(source, (str, Path)) else f"{len(source)} bytes"
    try:
        data = Path(source).read_bytes() if isinstance(source, (str, Path)) else bytes(source)
    except OSError as e:
        raise ModelImportError("cannot read the file", who=who, why=str(e)) from e
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as e:
        raise ModelImportError("not an ONNX model", who=who, why=f"damaged or another format ({e})") from e
    if not model.HasField("graph") or not model.opset_import:
        raise ModelImportError("not an ONNX model", who=who, why="it has no graph or imports no operator set")
    return model, Path(source).parent if isinstance(source, (str, Path)) else None
