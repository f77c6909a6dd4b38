"""What a checkpoint, a file of safetensors, gives to the weights of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix_refit.recipe import Recipes, Weight, digest
from tactix_refit.tensor_file import FLOATS, TensorFile
from tactix_refit.weight_map import TensorOrigin, WeightMap, converted, without_ones

Array = Any

WIDER = {
    DType.BF16: {DType.FP32, DType.FP64},
    DType.FP16: {DType.FP32, DType.FP64},
    DType.FP32: {DType.FP64},
}
"""What dtypes have every number of one."""

MAP = "Make a map from the model and its own checkpoint (tactix refit-map), and give it (--map)"


@dataclass(frozen=True)
class Checkpoint:
    """An open file, and what is known of how a model's weights lie in one. Errors name the file.

    ``map``: None if the names of the model are those of the checkpoint.
    """

    file: TensorFile
    map: WeightMap | None

    def weights(self, recipes: Recipes) -> dict[str, Array]:
        """The content of every weight of the plan. Raises InvalidArgument for tensors that are
        missing, or that a build has built in and that differ, ShapeError, DTypeError.
        """
        self._check_unused()
        found = {n: self._weight(n, w) for n, w in recipes.weights.items() if self._has(n)}
        if lost := sorted(recipes.weights.keys() - found.keys()):
            shown = ", ".join(lost[:4]) + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
            what = f"{len(lost)} weights of the plan are no tensors of the checkpoint: {shown}"
            do = MAP if self.map is None else "Make the map of the model that the plan was built of"
            raise InvalidArgument(what, who=self.file.path, do=do)
        self._check_fixed(recipes)
        return found

    def _has(self, name: str) -> bool:
        if self.map is None:
            return name in self.file.tensors
        return name in self.map.weights or name in self.map.constants

    def _weight(self, name: str, weight: Weight) -> Array:
        if self.map is not None and name in self.map.constants:
            constant = self.map.constants[name]
            if (constant.dtype, constant.shape) != (weight.dtype, weight.shape):
                raise self._of_another_model(name)
            return constant.array()
        if self.map is not None:
            return self._mapped(name, self.map.weights[name], weight)
        stored = self.file.tensors[name]
        if stored.shape != weight.shape:
            raise self._misshapen(name, stored.shape, weight.shape)
        self._check_dtype(name, stored.dtype, weight.dtype)
        return converted(self.file.array(name), weight.dtype)

    def _mapped(self, name: str, origin: TensorOrigin, weight: Weight) -> Array:
        array = self._source(origin)
        if origin.dtype is not self.file.tensors[origin.tensor].dtype:
            self._check_dtype(origin.tensor, DType.of(array.dtype), weight.dtype)
        try:
            return origin.of(converted(array, weight.dtype)).reshape(weight.shape)
        except ValueError:
            raise self._of_another_model(name) from None

    def _source(self, origin: TensorOrigin) -> Array:
        """The tensor, of the shape that it had when the map was made. Raises InvalidArgument,
        ShapeError, DTypeError.
        """
        stored = self.file.tensors.get(origin.tensor)
        if stored is None:
            what = f"the checkpoint has no tensor {origin.tensor!r}"
            raise InvalidArgument(what, who=self.file.path, do="Give one of the same structure")
        if without_ones(stored.shape) != origin.shape:
            raise self._misshapen(origin.tensor, stored.shape, origin.shape)
        self._check_dtype(origin.tensor, stored.dtype, None)
        return self.file.array(origin.tensor)

    def _misshapen(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> ShapeError:
        what = f"{name!r} is {show(found)} in the checkpoint, {show(wanted)} in the model"
        do = MAP if self.map is None else "Give a checkpoint of the same structure"
        return ShapeError(what, who=self.file.path, do=do)

    def _of_another_model(self, name: str) -> InvalidArgument:
        why = f"{name!r} has another shape or dtype there"
        do = "Make the map of the model that the plan was built of"
        return InvalidArgument("the map is one of another model", why=why, do=do)

    def _check_dtype(self, name: str, found: DType | None, wanted: DType | None) -> None:
        """Raises DTypeError for what are no weights, and where numbers would be lost."""
        if found is None:
            raise DTypeError(
                f"{name!r} has no floating-point numbers of 16 bits or more", who=self.file.path
            )
        if wanted is not None and found is not wanted and wanted not in WIDER.get(found, ()):
            raise DTypeError(
                f"{name!r} is {found.value} in the checkpoint, {wanted.value} in the model",
                who=self.file.path,
                why="numbers would be lost",
                do="Convert it, as the export did",
            )

    # -- what would be wrong without a word -------------------------------------------------------

    def _check_unused(self) -> None:
        """Raises InvalidArgument where tensors came or changed that no weight of the model has."""
        if self.map is None:
            return
        used = {o.tensor for o in self.map.weights.values()}
        rest = [n for n, t in self.file.tensors.items() if t.dtype is not None and n not in used]
        for name in rest:
            constant = self.map.may_hold(math.prod(self.file.tensors[name].shape))
            if name not in self.map.unused:
                what = f"the model's own checkpoint has no tensor {name!r}"
                raise InvalidArgument(what, who=self.file.path, do="Leave it out of the file")
            if constant and digest(self.file.array(name)) != self.map.unused[name]:
                what = f"{name!r} differs, which no weight of the model is"
                why = f"the constant {constant!r} of the model may have been made of it"
                do = "Export and build the model again; if it is not so, leave it out of the file"
                raise InvalidArgument(what, who=self.file.path, why=why, do=do)

    def _check_fixed(self, recipes: Recipes) -> None:
        """Raises InvalidArgument where what the build has built in differs."""
        for name, sha256 in recipes.others.items():
            content = self._content(name)
            if content is not None and all(
                digest(converted(content, dtype)) != sha256 for dtype in FLOATS.values()
            ):
                what = f"{name!r} differs and cannot be replaced"
                why = recipes.fixed.get(name, "")
                raise InvalidArgument(what, who=self.file.path, why=why, do="Build the model")

    def _content(self, name: str) -> Array | None:
        """The elements of one of the model's constants, in order; None if no tensor is that."""
        if self.map is not None:
            origin = self.map.weights.get(name)
            return None if origin is None else origin.of(self._source(origin))
        stored = self.file.tensors.get(name)
        return self.file.array(name) if stored is not None and stored.dtype is not None else None
