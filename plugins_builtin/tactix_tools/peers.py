"""Other ways to run an ONNX file, to compare with: ONNX Runtime, and the evaluators that define the
operators.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tactix.base.errors import ExecutionError, ModelImportError, TactixError
from tactix_inspect.model_tensors import CPU, SessionTerms, runtime_session
from tactix_onnx.order import subgraphs

Arrays = Mapping[str, Any]
Runner = Callable[[Arrays], dict[str, Any]]


OURS = "Is the plan, if one was given, a plan of this model?"
OTHERS = "Operators of packs need --against tactix-reference"
OTHERS_WITH_LAYERS = (
    "Operators of packs need --against tactix-reference, without --layers: tensors on the way are "
    "compared with ONNX Runtime alone, and steps with their references by tactix debug layers"
)


NO_MODEL = ("InvalidProtobuf", "DecodeError")
"""Classes of the errors by which ONNX Runtime and the onnx package refuse a file."""


@contextlib.contextmanager
def answering(peer: str, model: str, do: str = OTHERS) -> Iterator[None]:
    """What a peer raises, of as many kinds as there are peers, becomes an ExecutionError, or a
    ModelImportError for what is no model. ``do``: the cure.
    """
    try:
        yield
    except TactixError:
        raise
    except Exception as e:
        why = f"{type(e).__name__}: {e}"[:300]
        if type(e).__name__ in NO_MODEL:
            what, do = "not an ONNX model: damaged or another format", "Export or download it again"
            raise ModelImportError(what, who=model, why=why, do=do) from e
        raise ExecutionError(
            f"{peer} cannot run the model on these inputs", who=model, why=why, do=f"{OURS} {do}"
        ) from e


def has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def onnxruntime_runner(path: str, provider: str = CPU) -> Runner:
    session = runtime_session(path, SessionTerms(provider))
    names = [o.name for o in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, dict(arrays)), strict=True))


def reference_runner(path: str) -> Runner:
    """The reference evaluator of the onnx package: slow, and the word on what an operator means."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    names: Sequence[str] = evaluator.output_names
    return lambda arrays: dict(zip(names, evaluator.run(None, dict(arrays)), strict=True))


CONTRIBUTED = ("com.microsoft", "com.ms.internal.nhwc", "com.microsoft.nchwc")
"""Domains of operators that ONNX Runtime has beside ONNX's."""


def custom_operators(path: str) -> list[str]:
    """Operators of a model, as ``domain::Op``, that neither ONNX, ONNX Runtime nor the model itself
    defines.

    Of a file that is no ONNX model, none.
    """
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # protobuf raises its own; other formats are the importers' business
        return []
    defined = {(f.domain, f.name) for f in model.functions}
    bodies = [model.graph.node, *(f.node for f in model.functions)]
    used = {(n.domain, n.op_type) for body in bodies for n in _nodes(body)} - defined
    return sorted(f"{domain}::{op}" for domain, op in used if not _is_known(domain, op))


def _nodes(body: Iterable[Any]) -> Iterator[Any]:
    """Nodes, and those of their subgraphs."""
    for node in body:
        yield node
        for graph in subgraphs(node):
            yield from _nodes(graph.node)


def _is_known(domain: str, op: str) -> bool:
    from onnx import defs

    plain = "" if domain == "ai.onnx" else domain
    return plain == "" or domain in CONTRIBUTED or defs.has(op, plain)


RUNNERS: dict[str, Callable[[str], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "reference": reference_runner,
}
