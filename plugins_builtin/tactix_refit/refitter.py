"""Refitter: other weights for an engine that runs, or for a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.base.error_recorder import ErrorRecorder, Recorded, recorded, recording
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.admission import signer_of
from tactix.run.engine import Engine
from tactix_refit import recipe
from tactix_refit.checkpoint import Checkpoint
from tactix_refit.engine import RefittableEngine
from tactix_refit.replay import Replay
from tactix_refit.tensor_file import TensorFile
from tactix_refit.weight_map import WeightMap

Array = Any


class Refitter(Recorded):
    """Gives an engine or a plan that was built with ``BuilderFlag.REFIT`` other weights.

    ``target``: an engine, whose contexts give the new answers from their next run on; or a plan,
    its file or its bytes: then ``plan`` is the one with the new weights. ``threads``: 0 for all
    cores. ``session``: plugins, by default all.
    ``fixed``: constants of the model that cannot be replaced, with the reason. ``error_recorder``:
    by default the engine's.

    Weights that a stored constant was made of together must be given together, as a plan keeps only
    what came of them. One refitter is used by one thread at a time. Raises InvalidArgument for a
    plan without recipes, PlanFormatError.
    """

    def __init__(
        self,
        target: Engine | Plan | str | Path | bytes,
        threads: int = 0,
        session: Session | None = None,
        error_recorder: ErrorRecorder | None = None,
    ) -> None:
        self.error_recorder = error_recorder
        self.inherit_recorder(target)
        with recording(self):
            self._open(target, threads, session)

    def _open(
        self, target: Engine | Plan | str | Path | bytes, threads: int, session: Session | None
    ) -> None:
        self._session = session or Session()
        self._engine = target if isinstance(target, Engine) else None
        if not isinstance(target, Engine | Plan | str | Path | bytes | bytearray | memoryview):
            why = "an engine of the default flavour can be, or a plan, its file or its bytes"
            raise InvalidArgument(f"{type(target).__name__} objects cannot be refitted", why=why)
        loaded = target.plan if isinstance(target, Engine) else target
        self._plan = (
            loaded
            if isinstance(loaded, Plan)
            else container.load(loaded, verify=True, private=True)
        )
        self._seal = None if isinstance(loaded, Plan) else self._plan.seal
        self._recipes = recipe.read(self._plan)
        if self._engine is not None and not isinstance(self._engine, RefittableEngine):
            why = "its flavour cannot, or it streams weights"
            raise InvalidArgument(
                "this engine cannot be refitted",
                who=self._engine.name,
                why=why,
                do="Refit the plan",
            )
        self._threads = threads or os.cpu_count() or 1
        self._replay = Replay(self._plan, self._recipes)
        self._given: dict[str, Array] = {}
        self._changed: set[str] = set()
        self.fixed: Mapping[str, str] = self._recipes.fixed

    @property
    def plan(self) -> Plan:
        """With the weights of the last ``refit``."""
        return self._plan if self._engine is None else self._engine.plan

    # -- names ------------------------------------------------------------------------------------

    def get_all_weights(self) -> list[str]:
        """Names of the weights that can be given, sorted."""
        return sorted(self._recipes.weights)

    def get_missing_weights(self) -> list[str]:
        """Names of those that ``refit`` still needs, beside those that were set."""
        return sorted(
            frozenset().union(*(self._recipes.of(b) for b in self._affected())) - self._given.keys()
        )

    def get_weights_prototype(self, name: str) -> TensorSpec:
        """dtype and shape. Raises InvalidArgument."""
        return self._known(name).spec

    def _known(self, name: str) -> recipe.Weight:
        if name in self._recipes.weights:
            return self._recipes.weights[name]
        if name in self.fixed:
            raise InvalidArgument(
                f"{name!r} cannot be replaced", why=self.fixed[name], do="Build the model again"
            )
        known = self.get_all_weights()
        shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        raise InvalidArgument(f"no weight is named {name!r}", do=f"There are: {shown or 'none'}")

    # -- weights ----------------------------------------------------------------------------------

    @recorded
    def set_named_weights(self, name: str, weights: Any) -> None:
        """An array of the weight's dtype and shape; it is not copied, and must stay as it is until
        ``refit`` is done.

        Raises InvalidArgument, DTypeError, ShapeError.
        """
        self._given[name] = self._fitting(name, weights)
        self._changed.add(name)

    def _fitting(self, name: str, weights: Any) -> Array:
        """The array, if the weight may be so."""
        weight = self._known(name)
        array = np.asarray(weights)
        if array.dtype != weight.dtype.numpy:
            raise DTypeError(
                f"weight {name!r} is {weight.dtype.value}, got {array.dtype}",
                do="Convert it with astype",
            )
        if array.shape != weight.shape:
            raise ShapeError(f"weight {name!r} is {show(weight.shape)}, got {show(array.shape)}")
        if weight.finite and not _finite(array):
            raise InvalidArgument(
                f"weight {name!r} is not finite everywhere",
                why="the plan was built for such weights",
            )
        if weight.sha256 and recipe.digest(array) != weight.sha256:
            raise InvalidArgument(
                f"weight {name!r} is another one", why="the plan was built with REFIT_IDENTICAL"
            )
        return array

    def get_named_weights(self, name: str) -> Array | None:
        """What was set; None if nothing was. Raises InvalidArgument."""
        self._known(name)
        return self._given.get(name)

    def unset_named_weights(self, name: str) -> None:
        """Forget what was set. Raises InvalidArgument."""
        self._known(name)
        self._given.pop(name, None)
        self._changed.discard(name)

    # -- refitting --------------------------------------------------------------------------------

    def _affected(self) -> list[str]:
        """Constants that are to be made: of weights that were set since the last time, or that are
        not there yet.
        """
        missing = self.plan.stripped
        return [
            b
            for b in self._recipes.constants
            if b in missing or self._recipes.of(b) & self._changed
        ]

    @recorded
    def refit(self) -> None:
        """Make all constants of what was set. After an error everything is as it was.

        Weights stay set, for later constants that are made of them, too. Raises InvalidArgument
        naming weights that are missing, PlanFormatError, AllocationError.
        """
        if missing := self.get_missing_weights():
            shown = ", ".join(missing[:8]) + (
                f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            )
            why = "what the plan keeps is made of them, too"
            raise InvalidArgument(f"{len(missing)} weights are missing", why=why, do=f"Set {shown}")
        wanted = self._affected()
        if isinstance(self._engine, RefittableEngine):
            with self._engine.refitted(self._sizes(self._recipes.constants), wanted) as (out, made):
                self._replay.run(wanted, self._given, out, self._threads, made)
        else:
            out = {b: np.empty(n, np.uint8) for b, n in self._sizes(wanted).items()}
            self._replay.run(wanted, self._given, out, self._threads)
            fresh = {b: a.data for b, a in out.items()}
            self._plan = replace(self._plan, blobs={**self._plan.blobs, **fresh})
        self._changed.clear()

    def _sizes(self, blobs: Any) -> dict[str, int]:
        return {b: self._recipes.terms[self._recipes.constants[b]].nbytes for b in blobs}

    @recorded
    def refit_from_onnx(self, model: str | Path | bytes) -> None:
        """Set and refit all weights from a model of the same structure, a file or its bytes: all of
        them or none.

        Raises as ``set_named_weights`` and ``refit``, ModelImportError.
        """
        from tactix.builder import Builder

        found = dict(recipe.constants_of(Builder(session=self._session).import_model(model)))
        who = "" if isinstance(model, bytes) else str(model)
        self._compare(found, who)
        self._refit_all({name: found[name] for name in self._recipes.weights}, who)

    @recorded
    def refit_from_safetensors(
        self, checkpoint: str | Path, weight_map: WeightMap | str | Path | None = None
    ) -> None:
        """Set and refit all weights from a file of safetensors: all of them or none.

        ``weight_map``: which tensor each weight is (``weight_map.map_of``, ``tactix refit-map``),
        or its file; without it weights are the tensors of their names. Numbers are widened where
        the weight is wider.

        Raises as ``set_named_weights`` and ``refit``; InvalidArgument, ShapeError and DTypeError
        for tensors that are missing or do not fit; ConfigError without the library safetensors.
        """
        known = WeightMap.load(weight_map) if isinstance(weight_map, str | Path) else weight_map
        with TensorFile(checkpoint) as file:
            found = Checkpoint(file, known).weights(self._recipes)
        self._refit_all(found, str(checkpoint))

    def _refit_all(self, found: Mapping[str, Array], who: str) -> None:
        """Set these weights and refit; after an error all is as it was, and ``who`` is named."""
        try:
            fitting = {name: self._fitting(name, array) for name, array in found.items()}
        except InvalidArgument as e:
            e.who = e.who or who
            raise
        before = dict(self._given), set(self._changed)
        self._given |= fitting
        self._changed |= fitting.keys()
        try:
            self.refit()
        except BaseException:
            self._given, self._changed = before
            raise

    def _compare(self, found: Mapping[str, Array], who: str) -> None:
        """Raises InvalidArgument for a model that lacks weights, or in which more than weights
        differs.
        """
        if lost := sorted(self._recipes.weights.keys() - found.keys()):
            what = f"the model has no weight {lost[0]!r}" + (
                f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            )
            raise InvalidArgument(what, who=who, do="Give a model of the structure that was built")
        for name, sha256 in self._recipes.others.items():
            if name not in found or recipe.digest(found[name]) != sha256:
                what, why = (
                    f"{name!r} differs and cannot be replaced",
                    self.fixed.get(name, "it is no floating-point weight"),
                )
                raise InvalidArgument(what, who=who, why=why, do="Build the model")

    @recorded
    def save(self, path: str | Path) -> None:
        """Write the plan file: of an engine as that saves it; of a file or bytes signed, if they
        were trusted here.

        Raises UntrustedPlan for a forged signature, ConfigError, OSError.
        """
        if self._engine is not None:
            self._engine.save(path)
        else:
            container.save(self._plan, path, signer_of(self._session) if self.trusted else None)

    @property
    def trusted(self) -> bool:
        """Whether the file, or the bytes, that were given are trusted. Raises UntrustedPlan,
        ConfigError.
        """
        return self._seal is not None and bool(self._session.trusted_by(self._seal))


EXPONENTS = {DType.FP16: 0x7C00, DType.BF16: 0x7F80}
"""Infinity as bits: what is more, without the sign, is no number."""


def _finite(array: Array) -> bool:
    """Whether all elements are; a sum tells it fast, but may overflow, and is slow in 16 bits."""
    if (infinity := EXPONENTS.get(DType.of(array.dtype))) is not None:
        largest = (int(array.view(kind).max(initial=0)) for kind in (np.int16, np.uint16))
        return all(
            n < least for n, least in zip(largest, (infinity, 0x8000 + infinity), strict=True)
        )
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
