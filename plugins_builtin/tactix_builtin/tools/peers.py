"""Other ways to run an ONNX file, to compare with: ONNX Runtime, and the evaluators that define the operators."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tactix.words.errors import ConfigError, ExecutionError, TactixError

Arrays = Mapping[str, Any]
Runner = Callable[[Arrays], dict[str, Any]]


@contextlib.contextmanager
def answering(peer: str, model: str) -> Iterator[None]:
    """What a peer raises, of as many kinds as there are peers, becomes an ExecutionError."""
    try:
        yield
    except TactixError:
        raise
    except Exception as e:
        why, do = f"{type(e).__name__}: {e}"[:300], "Is the plan, if one was given, a plan of this model?"
        raise ExecutionError(f"{peer} cannot run the model on these inputs", who=model, why=why, do=do) from e


def has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def onnxruntime_session(path: str, threads: int = 0) -> Any:
    """An InferenceSession on the CPU with so many intra-op threads (0: its own choice). Raises ConfigError."""
    if not has_onnxruntime():
        raise ConfigError("ONNX Runtime is not installed", do="pip install onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnxruntime_runner(path: str) -> Runner:
    session = onnxruntime_session(path)
    names = [o.name for o in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, dict(arrays)), strict=True))


def reference_runner(path: str) -> Runner:
    """The reference evaluator of the onnx package: slow, and the word on what an operator means."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    names: Sequence[str] = evaluator.output_names
    return lambda arrays: dict(zip(names, evaluator.run(None, dict(arrays)), strict=True))


RUNNERS: dict[str, Callable[[str], Runner]] = {"onnxruntime": onnxruntime_runner, "reference": reference_runner}
