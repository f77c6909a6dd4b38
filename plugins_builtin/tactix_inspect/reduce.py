"""The smallest part of a model that a command still fails on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix_inspect.check_command import CheckCommand, CheckOutcome
from tactix_inspect.delta import Items, fewest
from tactix_inspect.model_tensors import ModelTensors
from tactix_inspect.submodel import FEW, WholeModel, cuts_of

INSIDE = 1 << 30
"""Bytes of weights up to which a candidate is one file."""


@dataclass(frozen=True)
class Progress:
    """``nodes``: of the smallest part so far, of ``whole``. ``tried``: how many parts were run;
    ``skipped``: that were no valid models. ``seconds``: since the first run.
    """

    nodes: int
    whole: int
    tried: int
    skipped: int
    seconds: float


class Spent(Exception):
    """The time that there was is over."""


class Reduction:
    """Of a model file, by a command. ``output``: where the smallest part so far always lies.

    ``told``: is called whenever a part was tried.
    """

    def __init__(
        self,
        path: str,
        output: str,
        check: CheckCommand,
        seconds: float | None = None,
        told: Callable[[Progress], None] = lambda p: None,
    ) -> None:
        self._path, self._output, self._check = path, output, check
        self._seconds, self._told = seconds, told
        self._tried = self._skipped = 0
        self._began, self._smallest, self._whole = time.monotonic(), 0, 0
        self.first: CheckOutcome | None = None
        self.last: CheckOutcome | None = None

    @property
    def progress(self) -> Progress:
        """So far."""
        seconds = time.monotonic() - self._began
        return Progress(self._smallest, self._whole, self._tried, self._skipped, seconds)

    def run(self, feed: Mapping[str, Any] | None = None) -> None:
        """``feed``: inputs of the whole model, by which ONNX Runtime tells the content of tensors
        that are cut; without them, or where it cannot run the model, types are what onnx infers.

        Raises InvalidArgument if the command does not fail on the whole model, or the file is no
        model; OSError. KeyboardInterrupt leaves the smallest part so far.
        """
        try:
            model = onnx.load(self._path)
        except Exception as e:  # protobuf raises its own
            raise InvalidArgument("that is no ONNX model", who=self._path, why=str(e)[:200]) from e
        self.first = self._check(self._path)
        if not self.first.failed:
            raise InvalidArgument(
                "the command does not fail on the whole model",
                who=self._path,
                why=self.first.what,
                do="Give a command that exits with another code than 0 where the fault is there",
            )
        self.last = self.first
        values = observed(self._path, feed) if feed is not None else {}
        whole = WholeModel(model, cuts_of(model, values.items()))
        self._whole = self._smallest = len(whole.nodes)
        with tempfile.TemporaryDirectory(prefix="tactix-reduce-") as folder:
            try:
                for items in fewest(self._whole, lambda kept: self._fails(whole, kept, folder)):
                    self._smallest = len(items)
            except Spent:
                pass

    def _fails(self, whole: WholeModel, kept: Items, folder: str) -> bool:
        if self._seconds is not None and time.monotonic() - self._began > self._seconds:
            raise Spent
        part = whole.part(kept)
        if part is None:
            self._skipped += 1
            return False
        path = str(Path(folder) / "candidate.onnx")
        _write(part, path)
        outcome = self._check(path)
        self._tried += 1
        assert self.first is not None
        fails = outcome.failed and outcome.timed_out == self.first.timed_out
        if fails:
            self.last, self._smallest = outcome, min(self._smallest, len(kept))
            _write(part, self._output)
        self._told(self.progress)
        return fails


def _write(model: onnx.ModelProto, path: str) -> None:
    """A model file; many bytes of weights lie beside it."""
    if model.ByteSize() <= INSIDE:
        with replacing(path) as f:
            f.write(model.SerializeToString())
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    Path(f"{path}.data").unlink(missing_ok=True)
    onnx.save(copy, path, save_as_external_data=True, location=f"{Path(path).name}.data")


def observed(path: str, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays that a model makes on the way, for their types; only small ones of integers keep what
    they hold. Empty where ONNX Runtime cannot run the model.
    """
    import numpy as np

    out: dict[str, Any] = {}
    try:
        tensors = ModelTensors(path)
        for name, x in tensors.values(feed, tensors.names):
            if isinstance(x, np.ndarray):
                small = x.dtype.kind in "iub" and x.size <= FEW
                out[name] = x if small else np.broadcast_to(np.zeros((), x.dtype), x.shape)
    except Exception:  # of as many kinds as there are operators that it does not know
        return {}
    return out
