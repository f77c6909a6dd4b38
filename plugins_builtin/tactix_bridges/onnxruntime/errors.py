"""ONNX Runtime's names of errors, for programs that catch them."""

from __future__ import annotations

from tactix.base import errors


class Fail(errors.TactixError, RuntimeError):
    """What ONNX Runtime calls an error without a class of its own."""


class InvalidArgument(errors.InvalidArgument, Fail):
    """An input or output that the model does not have, or an array that does not suit it."""


class NoSuchFile(Fail, FileNotFoundError):
    """The model is not there."""


class InvalidProtobuf(errors.ModelImportError, Fail):
    """The file is no model."""


def as_ours(error: errors.TactixError, kind: type[Fail]) -> Fail:
    """The same error under ONNX Runtime's name."""
    return kind(error.what, who=error.who, why=error.why, do=error.do)
