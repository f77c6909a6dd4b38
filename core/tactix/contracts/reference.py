"""Running a layer's reference: the one place where what it raises becomes an error of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

from tactix.base import dims
from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import DataError, ExecutionError, PluginError, TactixError, punctuated
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Attributes
from tactix.contracts.layer import Layer

SHOWN = 8
"""Scalars and vectors of up to so many elements are told with their content."""
REFUSALS = (ValueError, IndexError)
"""By these a reference says that it does not take such values; by others that it is broken."""
SPOKEN = (*REFUSALS, MemoryError)
"""What says in its own words what is wrong; of other exceptions the type is told, too."""


def computed(
    layer: Layer, attrs: Attributes, inputs: Sequence[Array | None], who: str = ""
) -> tuple[Array, ...]:
    """The layer's outputs by its reference, for attributes without symbols.

    ``who``: the node. Raises ExecutionError that names it, the layer, the inputs and the reason;
    DataError where the inputs' values are the reason.
    """
    try:
        return layer.reference(attrs, *inputs)
    except ExecutionError as e:
        e.who = e.who or who
        raise
    except Exception as e:
        kind = DataError if isinstance(e, REFUSALS) else ExecutionError
        raise failed(layer, inputs, e, who, kind) from e


def failed(
    layer: Layer,
    inputs: Sequence[object],
    e: Exception,
    who: str = "",
    kind: type[ExecutionError] = ExecutionError,
) -> ExecutionError:
    """The error of a reference that did not take these inputs."""
    why, do = str(e), ""
    if isinstance(e, TactixError):
        why, do = punctuated((e.who, e.what, e.why), ": "), e.do
    elif not isinstance(e, SPOKEN) or not why:
        why = f"{type(e).__name__}: {e}"
    why, given = why.removeprefix(f"{layer.key}: "), ", ".join(map(shown, inputs))
    told = punctuated((why, f"it was given {given}" if given else ""), "; ")
    return kind(f"{layer.key} failed", who=who, why=told, do=do)


def check_inferred(
    layer: Layer,
    specs: Sequence[TensorSpec],
    made: Sequence[object],
    env: Mapping[str, int],
    who: str = "",
) -> None:
    """Raises PluginError that names the layer where its reference gave something else than its
    ``infer`` says: every kernel would be blamed for that. Sizes that hang on symbols beside those
    of ``env`` may be any.
    """
    said = [
        f"output {i} is {shown(y)}, inference says {spec}"
        for i, (spec, y) in enumerate(zip(specs, made, strict=False))
        if not _is_inferred(spec, y, env)
    ]
    if len(specs) != len(made):
        said.append(f"it gives {len(made)} outputs, inference says {len(specs)}")
    if said:
        raise PluginError(
            "the reference disagrees with infer",
            who=punctuated((who, layer.key), ": "),
            why=punctuated(said, "; "),
            do="Mend whichever is wrong: `tactix-sdk check DIST -k layer-inference` shows it",
        )


def _is_inferred(spec: TensorSpec, y: object, env: Mapping[str, int]) -> bool:
    import numpy as np

    if spec.dtype.on_host or not isinstance(y, np.ndarray | np.generic):
        return True
    sizes = [
        dims.evaluate(d, env) if dims.symbols(d) <= set(env) else size
        for d, size in zip(spec.shape, y.shape, strict=False)
    ]
    is_shape = len(spec.shape) == y.ndim and tuple(sizes) == y.shape
    return is_shape and y.dtype == np.dtype(spec.dtype.numpy)


def shown(x: object) -> str:
    """An input in a few words: dtype and shape, and the content of a small one."""
    import numpy as np

    if x is None:
        return "nothing"
    if not isinstance(x, np.ndarray):
        return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, Sized) else "")
    try:
        text = f"{DType.of(x.dtype).value}{tuple(x.shape)}"
    except TactixError:
        text = f"{x.dtype}{tuple(x.shape)}"
    return (
        f"{text} {x.tolist()}"
        if x.ndim < 2 and x.size <= SHOWN and x.dtype.kind in "biuf"
        else text
    )
