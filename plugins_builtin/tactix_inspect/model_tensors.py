"""Tensors that an ONNX model makes on the way, as ONNX Runtime computes them, in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tactix.base.errors import ConfigError

MOST = 1024
"""Tensors that one run gives."""

BUDGET = 256 << 20
"""Bytes that one run gives, as far as sizes are known."""

FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class SessionTerms:
    """Of a session of ONNX Runtime. ``provider``: what runs the nodes. ``threads``: of one node; 0
    leaves them to it. ``folder``: where the weights of a model that is given as bytes lie.
    ``optimised``: one that is not is sooner there.
    """

    provider: str = CPU
    threads: int = 0
    folder: str = ""
    optimised: bool = True


def runtime_session(model: str | bytes, terms: SessionTerms = SessionTerms()) -> Any:
    """An InferenceSession of a file or of bytes. Raises ConfigError where ONNX Runtime or its
    provider is not there.
    """
    try:
        import onnxruntime
    except ImportError as e:
        raise ConfigError("ONNX Runtime is not installed", do="pip install onnxruntime") from e
    known = onnxruntime.get_available_providers()
    if terms.provider not in known:
        do = f"It has: {', '.join(known)}. Other packages of ONNX Runtime bring others"
        raise ConfigError(f"ONNX Runtime has no {terms.provider} here", do=do)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if terms.threads:
        options.intra_op_num_threads, options.inter_op_num_threads = terms.threads, 1
    if not terms.optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if terms.folder:
        options.add_session_config_entry(FOLDER_OF_WEIGHTS, terms.folder)
    session = onnxruntime.InferenceSession(model, options, providers=[terms.provider])
    if terms.provider not in session.get_providers():  # it goes on without one that cannot start
        raise ConfigError(
            f"{terms.provider} cannot start here", do="Its libraries or its device are missing"
        )
    return session


NO_SIZES: Mapping[str, int] = {}


def pieces(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Names in groups that are computed together."""
    part, held = list[str](), 0
    for name in names:
        size = sizes.get(name, 0)
        if part and (len(part) == MOST or held + size > BUDGET):
            yield part
            part, held = [], 0
        part.append(name)
        held += size
    if part:
        yield part


class ModelTensors:
    """A model file, of which any tensors can be asked for.

    Raises ConfigError where ONNX Runtime is not there; what it raises for a model that it cannot
    load passes through.
    """

    def __init__(self, path: str, provider: str = CPU) -> None:
        self._path, self._provider = Path(path), provider
        self._model = onnx.load(path, load_external_data=False)
        self._outputs = [o.name for o in self._model.graph.output]

    @property
    def names(self) -> list[str]:
        """Every tensor that a node makes, in the order of the nodes."""
        return [x for n in self._model.graph.node for x in n.output if x]

    def values(
        self, feed: Mapping[str, Any], names: Sequence[str], sizes: Mapping[str, int] = NO_SIZES
    ) -> Iterator[tuple[str, Any]]:
        """Name and array of each, in the order that is asked for, in pieces of at most ``BUDGET``
        bytes; ``sizes``: bytes of tensors, as far as they are known.
        """
        for part in pieces(names, sizes):
            yield from zip(part, self._session(part).run(part, dict(feed)), strict=True)

    def _session(self, names: Sequence[str]) -> Any:
        """A session of the model that gives these tensors, too."""
        graph = self._model.graph
        del graph.output[len(self._outputs) :]
        graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in names if name not in self._outputs
        )
        folder = str(self._path.parent.resolve())
        terms = SessionTerms(self._provider, folder=folder, optimised=False)
        return runtime_session(self._model.SerializeToString(), terms)
