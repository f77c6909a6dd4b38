"""OnnxParser: a model into a network; what fails is in its errors."""

from __future__ import annotations

import mmap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import ModelImportError, NetworkError, TactixError
from tactix_tensorrt import levels
from tactix_tensorrt.api.config import IBuilderConfig
from tactix_tensorrt.api.enums import OnnxParserFlag
from tactix_tensorrt.api.flags import Flagged
from tactix_tensorrt.api.loaded_model import LoadsModels
from tactix_tensorrt.api.logger import ILogger
from tactix_tensorrt.api.network import INetworkDefinition
from tactix_tensorrt.api.plugin_nodes import PluginNodes, plugin_names
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    import onnx

    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.tensor import ITensor


PARSER_VERSION = 100
"""Of TensorRT's parser, 0.1.0, as its header NvOnnxParser.h has it."""


def get_nv_onnx_parser_version() -> int:
    """As TensorRT's 0.1.0: major, minor and patch, two digits each."""
    return PARSER_VERSION


class Subgraph:
    """Nodes of a model that follow each other, and whether tactix has them."""

    def __init__(self, nodes: list[int], supported: bool) -> None:
        self.nodes, self.supported = nodes, supported


@at_this_level
class OnnxParser(Flagged[OnnxParserFlag], LoadsModels):
    """Fills one network. ``flags``: a mask of OnnxParserFlag; none of them changes what tactix
    reads, but what is for a DLA alone fails where there is none.
    """

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        super().__init__(logger)
        if levels.current() != "8.6":
            self.flags = OnnxParserFlag.NATIVE_INSTANCENORM.mask
        self.network = network
        self._subgraphs: list[Subgraph] = []
        self._config: IBuilderConfig | None = None

    # -- parsing ----------------------------------------------------------------------------------

    def parse(self, model: bytes, path: str | None = None) -> bool:
        """A model's bytes. ``path``: its file, beside which weights may lie. False if it fails."""
        content = bytes(model)
        return self._take(path if path and _holds(Path(path), content) else content)

    def parse_from_file(self, model: str) -> bool:
        return self._take(str(model))

    def parse_with_weight_descriptors(self, model: bytes, path: str | None = None) -> bool:
        return self.parse(model, path)

    def parse_model_proto(self) -> bool:
        """What was loaded, with the weights that were given. False if it fails."""
        model = self._whole()
        return model is not None and self._take(model)

    def _take(self, source: str | bytes | onnx.ModelProto) -> bool:
        net = self._read(source)
        if net is None:
            return False
        try:
            self._check_device(net)
            self.network.adopt(net, partial(PluginNodes(self.network).read, source))
        except TactixError as e:
            self._failed(e)
            return False
        return True

    def _check_device(self, net: NetworkDefinition) -> None:
        """Raises NetworkError where the program asks what a DLA can run: nothing is one."""
        asked = OnnxParserFlag.__members__.get(
            "REPORT_CAPABILITY_DLA"
        )  # TensorRT 8 has no such flag
        if asked is None or not self.get_flag(asked):
            return
        first = next(iter(net.nodes), None)
        what = f"DLA validation failed for layer: {first.name if first else 'none'}"
        do = "There is no DLA: Leave REPORT_CAPABILITY_DLA out"
        raise NetworkError(what, do=do)

    def _read(self, source: str | bytes | onnx.ModelProto) -> NetworkDefinition | None:
        try:
            return PluginNodes(self.network).read(source)
        except (ModelImportError, TactixError) as e:
            self._failed(e)
            return None

    def get_layer_output_tensor(self, name: str, i: int) -> ITensor | None:
        """Output ``i`` of the layer that a node of that name became; None if none did."""
        found = (layer for layer in self.network.layers if layer.name == name)
        return next((layer.get_output(i) for layer in found), None)

    # -- what it is told --------------------------------------------------------------------------

    def set_builder_config(self, builder_config: IBuilderConfig) -> bool:
        self._config = builder_config
        return True

    def get_used_vc_plugin_libraries(self) -> list[str]:
        return []

    # -- what is supported ------------------------------------------------------------------------

    def supports_operator(self, op_name: str) -> bool:
        """Whether tactix has an operator of ONNX's own, or a plugin of that name is there."""
        return ("ai.onnx", op_name) in self._operators() or op_name in plugin_names()

    def supports_model(
        self, model: bytes, path: str | None = None
    ) -> tuple[bool, list[tuple[list[int], bool]]]:
        """Whether all of a model is supported, and which nodes are."""
        whole = self.supports_model_v2(model, path)
        return whole, [(s.nodes, s.supported) for s in self._subgraphs]

    def supports_model_v2(self, model: bytes, path: str | None = None) -> bool:
        """As ``supports_model``; ``get_subgraph_nodes`` tells the rest."""
        import onnx
        from google.protobuf.message import DecodeError

        try:
            parsed = onnx.load_model_from_string(bytes(model))
        except DecodeError as e:
            self._failed(ModelImportError("no model of ONNX", why=str(e)))
            self._subgraphs = []
            return False
        whole = self._read(path if path and Path(path).is_file() else parsed) is not None
        nodes = range(len(parsed.graph.node))
        self._subgraphs = [Subgraph([*nodes], True)] if whole else self._parts(parsed)
        return whole

    @property
    def num_subgraphs(self) -> int:
        return len(self._subgraphs)

    def is_subgraph_supported(self, index: int) -> bool:
        return self._subgraphs[index].supported

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return self._subgraphs[index].nodes

    def _operators(self) -> set[tuple[str, str]]:
        """Domains and names of the operators that the packs in use have."""
        session = self.network.builder.native.session
        names = [c.op for c in session.active_converters() if c.format == "onnx"]
        names += [
            i.removeprefix("onnx:") for layer in session.layers.values() for i in layer.imports
        ]
        parts = (name.split("@")[0].partition("::") for name in names)
        return {(domain, op) for domain, _, op in parts}

    def _parts(self, model: onnx.ModelProto) -> list[Subgraph]:
        """Runs of nodes by whether their operators are there."""
        known = self._operators() | {(f.domain, f.name) for f in model.functions}
        plugins = plugin_names()
        out: list[Subgraph] = []
        for i, node in enumerate(model.graph.node):
            own = (node.domain or "ai.onnx", node.op_type) in known
            supported = own or node.op_type in plugins
            if out and out[-1].supported is supported:
                out[-1].nodes.append(i)
            else:
                out.append(Subgraph([i], supported))
        return out


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has that content; it is mapped, not read as a whole."""
    if not path.is_file() or path.stat().st_size != len(content):
        return False
    if not content:
        return True
    with (
        open(path, "rb") as f,
        mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        return view == content
