"""Scalar expressions over numpy arrays: what they mean, for references."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar, result_dtype, walk


def evaluate(s: Scalar, inputs: Sequence[Any]) -> Any:
    """The numpy meaning over broadcast arrays; the result has ``result_dtype``."""
    import numpy as np

    dtypes = [DType.of(x.dtype) for x in inputs]
    wide = [
        array(x).astype(np.float32) if t.is_float and t.bits < 32 else x
        for x, t in zip(inputs, dtypes, strict=True)
    ]
    table = numpy_table()
    memo: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for n in walk([s]):
            memo[id(n)] = _evaluate_node(n, [memo[id(a)] for a in n.args], wide, table)
    return array(memo[id(s)]).astype(result_dtype(s, dtypes).numpy)


def array(x: Any) -> Any:
    """``np.asarray``, but what numpy's functions take as an array stays what it is."""
    import numpy as np

    return x if hasattr(x, "__array_function__") else np.asarray(x)


def _evaluate_node(
    n: Scalar, args: list[Any], inputs: Sequence[Any], table: dict[str, Callable[..., Any]]
) -> Any:
    if n.op == "var":
        return inputs[n.index]
    if n.op == "const":
        return n.number
    if n.op == "primitive":
        return n.primitive.numpy(*args)
    if n.op == "cast":
        return _cast(args[0], n.dtype)
    return table[n.op](*args)


def _cast(x: Any, dtype: DType) -> Any:
    import numpy as np

    x = array(x)
    if dtype in (DType.UINT32, DType.UINT64) and x.dtype.kind == "f":
        return _unsigned(x).astype(dtype.numpy)
    y = x.astype(dtype.numpy)
    return y.astype(np.float32) if dtype.is_float and dtype.bits < 32 else y


def _unsigned(x: Any) -> Any:
    """The truncated numbers modulo 2^64; what int64 cannot hold, as it is or without 2^63, is its
    lowest number.

    So has it ONNX Runtime on x86 (cvttss2si); numpy leaves it to the machine.
    """
    import numpy as np

    half = 2.0**63
    x = np.asarray(x, np.float64)
    large = x >= half
    x = np.where(large, x - half, x)
    inside = (x >= -half) & (x < half)
    whole = np.where(inside, np.where(inside, x, 0).astype(np.int64), np.iinfo(np.int64).min)
    return np.where(large, whole.view(np.uint64) ^ np.uint64(1 << 63), whole.view(np.uint64))


@functools.cache
def numpy_table() -> dict[str, Callable[..., Any]]:
    """Vocabulary to numpy functions."""
    import numpy as np

    def div(a: Any, b: Any) -> Any:
        kind = np.result_type(a, b).kind
        if kind not in "iu":
            return a / b
        q = np.floor_divide(a, b)
        return (
            q + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(q.dtype)
            if kind == "i"
            else q
        )

    def power(a: Any, b: Any) -> Any:
        wide = (
            np.power(np.asarray(a, np.float64), b)
            if array(a).dtype.kind in "iu"
            else np.power(a, b)
        )
        return wide.astype(array(a).dtype)

    return {
        "neg": np.negative,
        "abs": np.abs,
        "exp": np.exp,
        "expm1": np.expm1,
        "log": np.log,
        "log1p": np.log1p,
        "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "erf": _erf,
        "tanh": np.tanh,
        "sin": np.sin,
        "cos": np.cos,
        "floor": np.floor,
        "ceil": np.ceil,
        "round": np.rint,
        "trunc": np.trunc,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "not": np.logical_not,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "bitnot": np.invert,
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": div,
        "pow": power,
        "min": np.minimum,
        "max": np.maximum,
        "mod": np.mod,
        "fmod": np.fmod,
        "lt": np.less,
        "le": np.less_equal,
        "eq": np.equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
        "bitand": np.bitwise_and,
        "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor,
        "shl": np.left_shift,
        "shr": np.right_shift,
        "select": np.where,
    }


def _erf(x: Any) -> Any:
    """erf by W. J. Cody's rational approximations (Math. Comp. 23, 1969), to 1e-15 in float64."""
    import numpy as np

    a = np.asarray(x)
    t = np.abs(a.astype(np.float64))
    small, large = np.minimum(t, 0.5), np.maximum(t, 4.0)
    y = small * _ratio(small**2, _ERF_SMALL)
    mid = np.clip(t, 0.46875, 4.0)
    tail = 1 - np.exp(-mid * mid) * _ratio(mid, _ERF_MID)
    z = 1 / large**2
    far = 1 - np.exp(-large * large) / large * (0.5641895835477563 - z * _ratio(z, _ERF_FAR))
    out = np.where(t <= 0.46875, y, np.where(t <= 4.0, tail, far))
    return np.where(np.isnan(t), np.nan, np.copysign(out, a)).astype(
        a.dtype if a.dtype.kind == "f" else np.float64
    )


def _ratio(x: Any, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    import numpy as np

    top, bottom = coefficients
    return np.polyval(top, x) / np.polyval(bottom, x)


_ERF_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (
        1.0,
        2.36012909523441209e1,
        2.44024637934444173e2,
        1.28261652607737228e3,
        2.84423683343917062e3,
    ),
)
_ERF_MID = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_ERF_FAR = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242,
        1.87295284992346725,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)
