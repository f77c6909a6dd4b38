"""A runner of tactix's engines for Polygraphy's ``Comparator``. It alone needs Polygraphy."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from polygraphy import util
from polygraphy.common import TensorMetadata
from polygraphy.datatype import DataType

from tactix.base.dims import Dim, Expr, evaluate, symbols

if TYPE_CHECKING:
    from tactix.base.arrays import Array
    from tactix.plan.schema import Profile
    from tactix.run.engine import Engine

    class BaseRunner:
        """What of Polygraphy's is used here."""

        inference_time: float

        def __init__(self, name: str | None = None, prefix: str | None = None) -> None: ...

else:
    from polygraphy.backend.base import BaseRunner


class TactixRunner(BaseRunner):
    """Runs an engine, or what a callable gives, such as ``lambda: tactix.build("model.onnx")``,
    without TensorRT's API in between.
    """

    def __init__(self, engine: Engine | Callable[[], Engine], name: str | None = None) -> None:
        super().__init__(name=name, prefix="tactix-runner")
        self._engine = engine

    def activate_impl(self) -> None:
        from tactix.run.engine import Engine

        self.engine = self._engine if isinstance(self._engine, Engine) else self._engine()
        self.context = self.engine.create_execution_context()

    def get_input_metadata_impl(self) -> TensorMetadata:
        """Names, dtypes and shapes of inputs: a size by its name where the first profile leaves it
        open.
        """
        out, profiles = TensorMetadata(), self.engine.profiles[:1]
        for io in self.engine.inputs:
            shape = [_size(d, profiles[0]) if profiles else d for d in io.shape]
            named = [d if isinstance(d, int) else str(d) for d in shape]
            out.add(io.name, DataType.from_dtype(io.dtype.numpy, "numpy"), named)
        return out

    def infer_impl(self, feed_dict: Mapping[str, Array]) -> OrderedDict[str, Array]:
        """Outputs by name, for arrays of numpy or tensors of torch. Raises TactixError."""
        feeds = {name: util.array.to_numpy(x) for name, x in feed_dict.items()}
        start = time.perf_counter()
        outputs = self.context.run(feeds)
        self.inference_time = time.perf_counter() - start
        return OrderedDict(outputs)

    def deactivate_impl(self) -> None:
        self.context.close()
        del self.context, self.engine


def _size(dim: Dim, profile: Profile) -> Dim:
    """A size that the profile fixes."""
    if not isinstance(dim, Expr):
        return dim
    ranges = {s: profile.dims.get(s, (None, None, None)) for s in symbols(dim)}
    low = {s: r[0] for s, r in ranges.items() if r[0] is not None and r[0] == r[2]}
    return evaluate(dim, low) if len(low) == len(ranges) else dim
