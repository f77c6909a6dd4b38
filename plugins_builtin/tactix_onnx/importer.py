"""OnnxImporter: reads a model, then hands its graph over."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.errors import ModelImportError, TactixError
from tactix.contracts.importer import Importer

if TYPE_CHECKING:
    import onnx

    from tactix.network.definition import NetworkDefinition
    from tactix_onnx.survey import Survey
    from tactix_onnx.weights import WeightReader


LARGEST = (1 << 31) - 1
"""Most bytes of a model in one file: protobuf's own limit."""

AGAIN = "Export or download it again"
CHECK = "See whether onnx.checker.check_model accepts the model"


class OnnxImporter(Importer):
    """Reads ONNX models: a path, the bytes of a file, or a ModelProto."""

    key = "tactix.onnx@1"
    format = "onnx"

    @property
    def examples(self) -> list[tuple[str, bytes]]:
        """A product with weights, and what follows it."""
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper

        weights = numpy_helper.from_array(np.eye(3, 4, dtype=np.float32), "w")
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Clip", ["p"], ["y"]),
        ]
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
            for name, size in (("x", 3), ("y", 4))
        )
        graph = helper.make_graph(nodes, "example", [x], [y], [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        return [("example.onnx", model.SerializeToString())]

    def claims(self, source: Any) -> bool:
        """Whether it is a ModelProto, or begins as a serialized one does, or is a path that ends in
        ``.onnx``.
        """
        if isinstance(source, (str, Path)):
            return Path(source).suffix.lower() == ".onnx" or _looks_like_model(_first_bytes(source))
        if isinstance(source, (bytes, bytearray, memoryview)):
            return _looks_like_model(bytes(source[:2]))
        return type(source).__name__ == "ModelProto"

    def files(self, source: str | Path) -> list[Path]:
        """Those that weights of the model lie in, beside its own. Raises ModelImportError."""
        from tactix_onnx.wire import locations

        found = (Path(source).parent / name for name in locations(_bytes(source, shown(source))))
        return [path for path in found if os.path.isfile(path)]

    def load(self, source: Any, network: NetworkDefinition, converters: Any) -> None:
        """Fill the network.

        ``converters``: Converters, or a mapping whose values are Converters or sequences of them.
        Layers are those of the network. Raises ModelImportError for a model that is damaged,
        UnsupportedOperator with all nodes that no converter, layer or function body gives a
        meaning.
        """
        from tactix_onnx.survey import Survey
        from tactix_onnx.weights import WeightReader

        model, folder = read(source)
        weights = WeightReader(
            folder, not hasattr(source, "SerializeToString"), source if folder else None
        )
        fill(
            network,
            model,
            converters,
            weights,
            Survey(functools.partial(locate, source)),
            shown(source),
        )


def fill(
    network: NetworkDefinition,
    model: onnx.ModelProto,
    converters: Any,
    weights: WeightReader,
    survey: Survey,
    who: str,
) -> None:
    """A parsed model into the network. ``who``: what errors call it. Raises ModelImportError,
    UnsupportedOperator.
    """
    from tactix_onnx.catalog import Catalog
    from tactix_onnx.graph import import_model
    from tactix_onnx.wellformed import check_expansion

    try:
        catalog = Catalog(converters, network.layers.values(), model.functions)
        check_expansion(model, catalog)
        import_model(model, network, catalog, weights, survey)
    except ModelImportError as e:
        e.who, e.do = e.who or who, e.do or CHECK
        raise
    except Exception as e:
        why = str(e) if isinstance(e, TactixError) else f"{type(e).__name__}: {e}"
        raise ModelImportError("cannot be imported", who=who, why=why, do=CHECK) from e


def locate(source: Any, positions: Sequence[int]) -> Mapping[int, int]:
    """Bytes of the file at which nodes of the main graph begin; of a model in memory nothing is
    known.
    """
    from tactix_onnx.wire import node_offsets

    try:
        if isinstance(source, (str, Path)):
            with open(source, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return node_offsets(data, positions)
        return (
            {}
            if hasattr(source, "SerializeToString")
            else node_offsets(memoryview(source).cast("B"), positions)
        )
    except OSError:  # the file went away since it was read: positions among the nodes must do
        return {}


def shown(source: Any) -> str:
    """What an error calls the model."""
    if isinstance(source, (str, Path)):
        return str(source)
    return (
        f"{len(source)} bytes"
        if isinstance(source, (bytes, bytearray, memoryview))
        else type(source).__name__
    )


def _first_bytes(path: str | Path) -> bytes:
    """None of what is no file, or cannot be read: whoever loads it is told why."""
    if not os.path.isfile(path):
        return b""
    try:
        with open(path, "rb") as f:
            return f.read(2)
    except OSError:
        return b""


def _looks_like_model(head: bytes) -> bool:
    """A ModelProto as every exporter writes it: field 1, the IR version, comes first."""
    return len(head) == 2 and head[0] == 0x08 and 1 <= head[1] <= 64


def read(source: Any) -> tuple[onnx.ModelProto, Path | None]:
    """The model without its external data, and the folder for that; of a file without its large
    weights, too.

    Raises ModelImportError.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from tactix_onnx.wellformed import check
    from tactix_onnx.wire import check_count, without_weights

    if isinstance(source, onnx.ModelProto):
        check(source)
        return source, None
    who = shown(source)
    data = _bytes(source, who)
    model = onnx.ModelProto()
    try:
        check_count(data)
        model.ParseFromString(data if isinstance(data, bytes) else without_weights(data))
        check(model)
    except DecodeError as e:
        raise ModelImportError(
            "not an ONNX model", who=who, why=f"damaged or another format ({e})", do=AGAIN
        ) from e
    except ModelImportError as e:
        e.who = e.who or who
        raise
    return model, Path(source).parent if isinstance(source, (str, Path)) else None


def _bytes(source: Any, who: str) -> bytes | mmap.mmap:
    """The content, of a file that is not empty mapped; only if a model may be as large."""
    try:
        size = Path(source).stat().st_size if isinstance(source, (str, Path)) else len(source)
        if size > LARGEST:
            raise ModelImportError(
                "too large for an ONNX model",
                who=who,
                why=f"{size} bytes, the format ends at {LARGEST}",
                do="Export it with external data",
            )
        if not size or not isinstance(source, (str, Path)):
            return b"" if not size else bytes(source)
        with open(source, "rb") as f:
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise ModelImportError(
            "cannot read the file", who=who, why=str(e), do="Give a file that can be read"
        ) from e
