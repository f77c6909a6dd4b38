"""The acme pack: one activation for tactix."""

from tactix_sdk import Pack, Scalar, exp, log1p, tanh

pack = Pack("acme")


@pack.pointwise(onnx="acme::Mish")
def mish(x: Scalar) -> Scalar:
    """Mish(x) = x * tanh(softplus(x)), after D. Misra (2019)."""
    return x * tanh(log1p(exp(x)))
