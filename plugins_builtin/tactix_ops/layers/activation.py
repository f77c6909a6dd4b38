"""Activation functions: all pointwise. Formulas as in the ONNX operator set, in forms that do not
overflow.
"""

from __future__ import annotations

from tactix.contracts.expr import (
    Scalar,
    abs_,
    erf,
    exp,
    expm1,
    log1p,
    maximum,
    minimum,
    select,
    tanh,
)
from tactix.contracts.layer import Layer
from tactix_sdk.scalar_layer import pointwise

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875
_RSQRT_2 = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654


@pointwise("tactix.Relu@1", onnx="ai.onnx::Relu")
def relu(x: Scalar) -> Scalar:
    """``max(x, 0)``."""
    return maximum(x, 0.0)


@pointwise("tactix.LeakyRelu@1", onnx="ai.onnx::LeakyRelu")
def leaky_relu(x: Scalar, *, alpha: float = 0.01) -> Scalar:
    """``x`` above zero, else ``alpha x``."""
    return select(x < 0.0, alpha * x, x)


@pointwise("tactix.PRelu@1", onnx="ai.onnx::PRelu")
def prelu(x: Scalar, slope: Scalar) -> Scalar:
    """``x`` above zero, else ``slope x``; the slope broadcasts to ``x``."""
    return select(x < 0.0, slope * x, x)


@pointwise("tactix.ThresholdedRelu@1", onnx="ai.onnx::ThresholdedRelu")
def thresholded_relu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """``x`` above ``alpha``, else 0."""
    return select(x > alpha, x, 0.0)


@pointwise("tactix.Elu@1", onnx="ai.onnx::Elu")
def elu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """``x`` above zero, else ``alpha (exp(x) - 1)``."""
    return select(x < 0.0, alpha * expm1(x), x)


@pointwise("tactix.Selu@1", onnx="ai.onnx::Selu")
def selu(x: Scalar, *, alpha: float = _SELU_ALPHA, gamma: float = _SELU_GAMMA) -> Scalar:
    """``gamma x`` above zero, else ``gamma alpha (exp(x) - 1)``."""
    return gamma * select(x > 0.0, x, alpha * expm1(x))


@pointwise("tactix.Celu@1", onnx="ai.onnx::Celu")
def celu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """``x`` above zero, else ``alpha (exp(x / alpha) - 1)``."""
    return select(x < 0.0, alpha * expm1(x / alpha), x)


@pointwise("tactix.Sigmoid@1", onnx="ai.onnx::Sigmoid")
def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + exp(-x))``: where the exponential overflows, the quotient is its limit 0."""
    return 1.0 / (1.0 + exp(-x))


@pointwise("tactix.HardSigmoid@1", onnx="ai.onnx::HardSigmoid")
def hard_sigmoid(x: Scalar, *, alpha: float = 0.2, beta: float = 0.5) -> Scalar:
    """``alpha x + beta`` kept within [0, 1]."""
    return maximum(minimum(alpha * x + beta, 1.0), 0.0)


@pointwise("tactix.HardSwish@1", onnx="ai.onnx::HardSwish")
def hard_swish(x: Scalar) -> Scalar:
    """``x`` times ``x / 6 + 1/2`` kept within [0, 1]."""
    return x * maximum(minimum(x * (1 / 6) + 0.5, 1.0), 0.0)


@pointwise("tactix.Swish@1", onnx="ai.onnx::Swish")
def swish(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """``x sigmoid(alpha x)``."""
    return x / (1.0 + exp(-(x if alpha == 1.0 else alpha * x)))


@pointwise("tactix.Tanh@1", onnx="ai.onnx::Tanh")
def hyperbolic_tangent(x: Scalar) -> Scalar:
    """The hyperbolic tangent."""
    return tanh(x)


def _softplus(x: Scalar) -> Scalar:
    return maximum(x, 0.0) + log1p(exp(-abs_(x)))


@pointwise("tactix.Softplus@1", onnx="ai.onnx::Softplus")
def softplus(x: Scalar) -> Scalar:
    """``log(1 + exp(x))``."""
    return _softplus(x)


@pointwise("tactix.Softsign@1", onnx="ai.onnx::Softsign")
def softsign(x: Scalar) -> Scalar:
    """``x / (1 + |x|)``."""
    return x / (1.0 + abs_(x))


@pointwise("tactix.Mish@1", onnx="ai.onnx::Mish")
def mish(x: Scalar) -> Scalar:
    """``x tanh(log(1 + exp(x)))``."""
    return x * tanh(_softplus(x))


@pointwise("tactix.Gelu@1", onnx="ai.onnx::Gelu")
def gelu(x: Scalar, *, approximate: str = "none") -> Scalar:
    """``x`` times the normal distribution function; ``approximate="tanh"`` by Hendrycks and
    Gimpel's formula.
    """
    if approximate == "tanh":
        return 0.5 * x * (1.0 + tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + erf(x * _RSQRT_2))


@pointwise("tactix.Shrink@1", onnx="ai.onnx::Shrink")
def shrink(x: Scalar, *, lambd: float = 0.5, bias: float = 0.0) -> Scalar:
    """``x`` moved toward zero by ``bias`` outside [-lambd, lambd], 0 inside."""
    return select(x < -lambd, x + bias, select(x > lambd, x - bias, 0.0))


LAYERS: tuple[Layer, ...] = (
    relu,
    leaky_relu,
    prelu,
    thresholded_relu,
    elu,
    selu,
    celu,
    sigmoid,
    hard_sigmoid,
    hard_swish,
    swish,
    hyperbolic_tangent,
    softplus,
    softsign,
    mish,
    gelu,
    shrink,
)
