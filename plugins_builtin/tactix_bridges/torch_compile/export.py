"""A traced graph as an ONNX model, by torch's own exporter."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx
from torch._dynamo import convert_frame

from tactix_bridges.torch_compile.graph import Unsuited


@dataclass(frozen=True)
class TensorInput:
    """An input of a graph. ``example``: of a call; ``ranges``: lowest and highest size of each axis
    that varies from call to call, the others are as in the example.
    """

    name: str
    example: torch.Tensor
    ranges: dict[int, tuple[int, int]]


def write_model(module: fx.GraphModule, inputs: Sequence[TensorInput], path: Path) -> None:
    """Write the model of a module with these inputs; what is large goes into a file beside it.

    Raises Unsuited for what cannot be exported, or would not do the same as an ONNX model.
    """
    # Exporting changes what Dynamo looks at while it traces, in whatever thread.
    with convert_frame.compile_lock, _unheard():
        written = _converted(_program(module, inputs), [i.name for i in inputs])
        written.save(path)


def _program(module: fx.GraphModule, inputs: Sequence[TensorInput]) -> torch.export.ExportedProgram:
    dynamic = [dict.fromkeys(i.ranges, torch.export.Dim.DYNAMIC) for i in inputs]
    examples = tuple(i.example for i in inputs)
    try:
        shapes = _by_parameter(module, dynamic)
        program = torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)
        # Without a table it decomposes nothing; what a program writes to becomes a result.
        program = program.run_decompositions({})
    except Exception as e:
        raise Unsuited(f"torch.export refuses it: {_first_line(e)}") from e
    _check_effects(program)
    return program


def _by_parameter(
    module: fx.GraphModule, dynamic: Sequence[dict[int, object]]
) -> dict[str, dict[int, object]]:
    """What varies, by the names of the module's parameters."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return {node.target: axes for node, axes in zip(placeholders, dynamic, strict=True)}


def _check_effects(program: torch.export.ExportedProgram) -> None:
    """A model writes to nothing that it is given, and draws other random numbers than torch."""
    signature = program.graph_signature
    written = [*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values()]
    if written:
        raise Unsuited(f"it writes to what it is given: {', '.join(written)}")
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and _is_random(node, node.target):
            raise Unsuited(f"it draws random numbers: {node.target}")


def _is_random(node: fx.Node, operator: torch._ops.OpOverload) -> bool:
    """Operators with dropout inside draw none where that is off."""
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    given = dict(node.kwargs)
    for parameter, value in zip(operator._schema.arguments, node.args, strict=False):
        given[parameter.name] = value
    values = {
        p.name: given.get(p.name, p.default_value if p.has_default_value() else None)
        for p in operator._schema.arguments
    }
    off = [values[name] == 0 for name in ("p", "dropout_p", "dropout") if name in values]
    off += [not values[name] for name in ("train", "training") if name in values]
    return not any(off)


def _converted(
    program: torch.export.ExportedProgram, names: Sequence[str]
) -> torch.onnx.ONNXProgram:
    try:
        # Unoptimized: its folding of normalisations mixes dtypes, and tactix folds by itself.
        written = torch.onnx.export(
            program, (), dynamo=True, optimize=False, verbose=False, input_names=list(names)
        )
    except Exception as e:
        raise Unsuited(f"torch.onnx refuses it: {_cause(e)}") from e
    assert written is not None
    return written


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """The exporter warns of what does not concern who calls ``torch.compile``. Under the lock of
    ``write_model``, as filters are the whole process's.
    """
    loud = logging.getLogger("torch.onnx")
    level = loud.level
    loud.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loud.setLevel(level)


def _cause(error: BaseException) -> str:
    """The first of a row of errors, which the exporter hides behind its advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
