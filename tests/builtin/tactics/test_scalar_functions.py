"""Every function of scalar expressions is everywhere where one is needed; messages say where it is
missing.
"""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Callable

import pytest

import tactix_sdk.scalar as sdk
from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.select import error_bounds
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import emit_vector, why_not_scalar, why_not_vector
from tactix_codegen.cuda.scalar import why_not
from tactix_codegen.numerics import numpy_table

FUNCTIONS = (*expr.UNARY, *expr.BINARY)
OPERATORS = frozenset({"neg", "add", "sub", "mul", "div", "lt", "le"})
"""Those that the SDK has as Python's."""
TYPES = (DType.FP32, DType.INT32, DType.BOOL)
PAGE = "docs/architecture.md, 'a new activation', names all places"
Why = Callable[[list[expr.Scalar], list[DType]], str]


def called(op: str) -> expr.Scalar:
    return expr.Scalar(op, tuple(expr.var(i) for i in range(1 + (op in expr.BINARY))), None)


def is_emitted(op: str, why: Why) -> bool:
    """Whether a table has a text of it for one of the types."""
    arity = len(called(op).args)
    return any(not why([called(op)], [t] * arity) for t in TYPES)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_it_has_a_meaning_and_texts(op: str) -> None:
    missing = {
        "tactix_codegen/numerics.py: numpy_table": op not in numpy_table(),
        "tactix_codegen/c/scalar_ops.py, or LIBM of c/scalar.py": not is_emitted(
            op, why_not_scalar
        ),
        "tactix_codegen/cuda/scalar.py": not is_emitted(op, why_not),
    }
    where = [place for place, is_missing in missing.items() if is_missing]
    assert not where, f"{op} is missing in {'; '.join(where)}. {PAGE}"


@pytest.mark.parametrize("op", FUNCTIONS)
def test_vectors_call_what_there_is(op: str) -> None:
    prelude = "\n".join(c_text.vector_preludes())
    node = called(op)
    for t in TYPES:
        types = [t] * len(node.args)
        if why_not_vector([node], types):
            continue
        code = emit_vector([node], ["x", "y"][: len(types)], types)
        for name in re.findall(r"\btx_\w+", " ".join((*code.statements, *code.results))):
            assert re.search(rf"\b{name}\b", prelude), (
                f"vectors of {t.value} call {name}, which tactix_codegen/c/lib/math.h lacks. {PAGE}"
            )


def test_authors_of_packs_have_all_of_them() -> None:
    given = set(OPERATORS)
    for name in sdk.__all__:
        function = getattr(sdk, name)
        if inspect.isfunction(function) and function not in (expr.cast, expr.select):
            arity = len(inspect.signature(function).parameters)
            given.add(function(*(expr.var(i) for i in range(arity))).op)
    assert set(FUNCTIONS) <= given, f"tactix_sdk/scalar.py lacks {set(FUNCTIONS) - given}. {PAGE}"


def test_a_new_one_counts_as_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expr, "OPS", expr.OPS | {"digamma"})
    again = runpy.run_path(str(error_bounds.__file__), run_name="error_bounds_again")
    assert "digamma" not in again["EXACT"]
    assert again["EXACT"] < expr.OPS
