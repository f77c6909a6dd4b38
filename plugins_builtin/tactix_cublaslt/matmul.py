"""One product as cuBLASLt takes it: what is fixed as data, descriptors for some sizes, algorithms,
the call.

The library's matrices are column-major. A row-major matrix is a column-major one transposed, so
what is asked for is
``D^T = B^T A^T``: b comes first.
"""

from __future__ import annotations

import ctypes
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError, PlanFormatError
from tactix_cublaslt import library as lt
from tactix_cublaslt.library import CublasLt, Heuristic

ALIGNMENT = 16
"""Bytes that divide the address of every tensor."""
SCRATCH = 256
"""Bytes that divide the address of the library's workspace; otherwise a call is an invalid value.
"""
ASK = "cublasLtMatmulAlgoGetHeuristic"
SOME_BIAS = 1 << 12
"""An address that is never read: algorithms are offered for its alignment."""


@dataclass(frozen=True)
class Sizes:
    """Of a product of matrices (m, k) and (k, n), ``batch`` times."""

    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Problem:
    """Row-major ``d = activation(alpha a b + bias + beta c)``; all but the sizes.

    ``dtype``: of a and b; ``out``: of c, d and the bias, which has n elements. ``turned_a``: a lies
    as (k, m);
    ``turned_b``: b lies as (n, k). ``one_a``, ``one_b``: it is the same matrix for the whole batch.
    """

    dtype: DType
    out: DType
    compute: str = "float32"
    turned_a: bool = False
    turned_b: bool = False
    one_a: bool = False
    one_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: str = ""

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {
            "dtype": self.dtype.value,
            "out": self.out.value,
        }

    @classmethod
    def from_json(cls, j: object) -> Problem:
        """Raises PlanFormatError."""
        if not isinstance(j, Mapping):
            raise PlanFormatError("not a product of cuBLASLt", why=f"it is a {type(j).__name__}")
        try:
            made = cls(**{**j, "dtype": DType(j["dtype"]), "out": DType(j["out"])})
            known = made.dtype in lt.TYPES and made.out in lt.TYPES and made.compute in lt.COMPUTE
            if (
                known
                and made.activation in lt.EPILOGUES
                and all(type(x) is float for x in (made.alpha, made.beta))
            ):
                return made
        except (TypeError, KeyError, ValueError) as e:
            raise PlanFormatError("not a product of cuBLASLt", why=str(e)) from None
        raise PlanFormatError("not a product of cuBLASLt", why=str(dict(j)))

    @property
    def epilogue(self) -> int:
        return (lt.EPILOGUES[self.activation] | self.bias * lt.EPILOGUE_BIAS) or lt.EPILOGUE_DEFAULT


@dataclass(frozen=True)
class Algorithm:
    """``code``: the library's own 64 bytes; ``workspace``: bytes that it needs for the sizes it was
    asked for.
    """

    code: bytes
    workspace: int


class Matmul:
    """Descriptors of a problem at some sizes. Raises LibraryFailure, as all its functions do."""

    def __init__(self, library: CublasLt, problem: Problem, sizes: Sizes) -> None:
        self.library, self.problem, self.sizes = library, problem, sizes
        self.alpha, self.beta = c_float(problem.alpha), c_float(problem.beta)
        self.operation = self._operation()
        p, batch, m, n, k = problem, sizes.batch, sizes.m, sizes.n, sizes.k
        self.b = self._layout(
            p.dtype, k if p.turned_b else n, n if p.turned_b else k, 1 if p.one_b else batch
        )
        self.a = self._layout(
            p.dtype, m if p.turned_a else k, k if p.turned_a else m, 1 if p.one_a else batch
        )
        self.d = self._layout(p.out, n, m, batch)

    def _operation(self) -> c_void_p:
        p, made, call = self.problem, c_void_p(), self.library.call
        call("cublasLtMatmulDescCreate", byref(made), lt.COMPUTE[p.compute], lt.TYPES[DType.FP32])
        weakref.finalize(self, call, "cublasLtMatmulDescDestroy", made).atexit = False
        values: dict[int, Any] = {
            lt.DESC_TRANS_A: c_int(p.turned_b),
            lt.DESC_TRANS_B: c_int(p.turned_a),
            lt.DESC_EPILOGUE: c_int(p.epilogue),
        }
        if p.bias:
            values |= {lt.DESC_BIAS: c_uint64(SOME_BIAS), lt.DESC_BIAS_TYPE: c_int(lt.TYPES[p.out])}
        for key, value in values.items():
            call("cublasLtMatmulDescSetAttribute", made, key, byref(value), ctypes.sizeof(value))
        return made

    def _layout(self, dtype: DType, rows: int, columns: int, matrices: int) -> c_void_p:
        """Column-major matrices behind each other; one is repeated for the whole batch."""
        made, call = c_void_p(), self.library.call
        call("cublasLtMatrixLayoutCreate", byref(made), lt.TYPES[dtype], rows, columns, rows)
        weakref.finalize(self, call, "cublasLtMatrixLayoutDestroy", made).atexit = False
        if self.sizes.batch > 1:
            count, stride = c_int(self.sizes.batch), c_int64(rows * columns if matrices > 1 else 0)
            for key, value in ((lt.LAYOUT_BATCH, count), (lt.LAYOUT_STRIDE, stride)):
                call(
                    "cublasLtMatrixLayoutSetAttribute",
                    made,
                    key,
                    byref(value),
                    ctypes.sizeof(value),
                )
        return made

    def algorithms(self, count: int, workspace: int) -> list[Algorithm]:
        """Up to ``count`` that need no more workspace, the library's best guess first; none if it
        has none.
        """
        found, number, preference, call = (
            (Heuristic * count)(),
            c_int(),
            c_void_p(),
            self.library.call,
        )
        call("cublasLtMatmulPreferenceCreate", byref(preference))
        try:
            wanted = {lt.PREFER_WORKSPACE: c_size_t(workspace)}
            aligned = ctypes.c_uint32(ALIGNMENT)
            wanted |= dict.fromkeys(lt.PREFER_ALIGNMENTS, aligned)  # type: ignore[arg-type]
            for key, value in wanted.items():
                call(
                    "cublasLtMatmulPreferenceSetAttribute",
                    preference,
                    key,
                    byref(value),
                    ctypes.sizeof(value),
                )
            args = (
                self.library.handle,
                self.operation,
                self.b,
                self.a,
                self.d,
                self.d,
                preference,
                count,
            )
            status = self.library.status(ASK, *args, found, byref(number))
        finally:
            call("cublasLtMatmulPreferenceDestroy", preference)
        if status not in (0, lt.NOT_SUPPORTED):
            raise self.library.failure(ASK, status)
        return [
            Algorithm(bytes(h.algo), int(h.workspace))
            for h in found[: number.value]
            if h.state == 0
        ]

    def needs(self, code: bytes) -> int | None:
        """Bytes of workspace that an algorithm takes at these sizes; None if it cannot be used at
        them.
        """
        algo, result = (c_uint64 * 8).from_buffer_copy(code), Heuristic()
        matrices = (self.b, self.a, self.d, self.d)
        args = (self.library.handle, self.operation, *matrices, byref(algo), byref(result))
        return (
            int(result.workspace)
            if self.library.status("cublasLtMatmulAlgoCheck", *args) == 0
            else None
        )

    def run(self, code: Any, places: Sequence[int], workspace: int, stream: int) -> None:
        """Enqueue it; ``places``: addresses of a, b, c, d, the bias, the workspace; ``code``: 8
        words.
        """
        a, b, c, d, bias, scratch = places
        if self.problem.bias:
            address = c_uint64(bias)
            self.library.call(
                "cublasLtMatmulDescSetAttribute", self.operation, lt.DESC_BIAS, byref(address), 8
            )
        self.library.call(
            "cublasLtMatmul",
            self.library.handle,
            self.operation,
            byref(self.alpha),
            b,
            self.b,
            a,
            self.a,
            byref(self.beta),
            c,
            self.d,
            d,
            self.d,
            byref(code),
            -(-scratch // SCRATCH) * SCRATCH,
            workspace,
            stream,
        )


class Product:
    """A product of a plan: ``code`` is the algorithm for the sizes that it was tuned for."""

    def __init__(self, library: CublasLt, problem: Problem, code: bytes, workspace: int) -> None:
        self.library, self.problem, self.code, self.workspace = library, problem, code, workspace

    def bind(self, arguments: Sequence[int]) -> BoundProduct:
        """Where the algorithm does not take these sizes, the library's first choice for them does.

        It is given what it needs of the workspace, since it may clear what it gets. Raises
        ExecutionError if there is no algorithm.
        """
        matmul = Matmul(self.library, self.problem, Sizes(*arguments[:4]))
        needs = matmul.needs(self.code)
        if needs is not None and needs <= self.workspace:
            return BoundProduct(matmul, self.code, needs)
        others = matmul.algorithms(1, self.workspace)
        if not others:
            raise ExecutionError(f"{self.library.product.name} has no algorithm for {matmul.sizes}")
        return BoundProduct(matmul, others[0].code, others[0].workspace)


class BoundProduct:
    """At some sizes."""

    def __init__(self, matmul: Matmul, code: bytes, workspace: int) -> None:
        self.matmul, self.workspace = matmul, workspace
        self.code = (c_uint64 * 8).from_buffer_copy(code)

    def enqueue(self, arguments: Sequence[int], stream: int) -> None:
        """Behind the four sizes come the addresses of a, b, c, d, the bias, the workspace."""
        self.matmul.run(self.code, arguments[4:10], self.workspace, stream)
