"""What could not be parsed, and why."""

from __future__ import annotations

from tactix.base.errors import ModelImportError, ModelNode, TactixError, UnsupportedOperator
from tactix_tensorrt.api.enums import ErrorCode
from tactix_tensorrt.api.logger import ILogger, Reporting

NO_NODE = ModelNode(-1, "", "")


class ParserError:
    """Why a node of a model could not be parsed, or the model, whose node has number -1 and no
    name. ``text``: in place of the whole error's.
    """

    def __init__(self, error: TactixError, node: ModelNode = NO_NODE, text: str = "") -> None:
        self._text, self._node = text or str(error), node
        unsupported = isinstance(error, UnsupportedOperator)
        self._code = ErrorCode.UNSUPPORTED_NODE if unsupported else ErrorCode.INVALID_GRAPH

    def code(self) -> ErrorCode:
        return self._code

    def desc(self) -> str:
        return self._text

    def file(self) -> str:
        return "tactix_onnx"

    def func(self) -> str:
        return "import_model"

    def line(self) -> int:
        return 0

    def node(self) -> int:
        return self._node.index

    def node_name(self) -> str:
        return self._node.name

    def node_operator(self) -> str:
        return self._node.operator

    def local_function_stack(self) -> list[str]:
        return []

    def local_function_stack_size(self) -> int:
        return 0

    def __str__(self) -> str:
        node = self._node
        about = f"In node {node.index} with name: {node.name} and operator: {node.operator}"
        return f"{about}: {self._text}"

    __repr__ = __str__


def _each(error: TactixError) -> list[ParserError]:
    """One for each node; that of a single one has the whole text."""
    nodes = error.nodes if isinstance(error, ModelImportError) else ()
    alone = len(nodes) == 1
    return [ParserError(error, n, "" if alone else n.told) for n in nodes] or [ParserError(error)]


class ListingErrors(Reporting):
    """What reads models, and keeps the errors of those that it could not read."""

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        self._errors: list[ParserError] = []

    def _failed(self, error: TactixError) -> None:
        """Keep an error for each of its nodes, log it as a whole, and tell the recorder."""
        self._errors += _each(error)
        self.fail(error)

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def clear_errors(self) -> None:
        self._errors.clear()
