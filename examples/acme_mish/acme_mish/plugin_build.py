from tactix_sdk import Layer, Scalar, exp, hookimpl, log1p, pointwise, tanh


@pointwise("acme.Mish@1", onnx="acme::Mish")
def mish(x: Scalar) -> Scalar:
    """Mish(x) = x * tanh(softplus(x)), after D. Misra (2019)."""
    return x * tanh(log1p(exp(x)))


@hookimpl
def tactix_layers() -> list[Layer]:
    return [mish]
