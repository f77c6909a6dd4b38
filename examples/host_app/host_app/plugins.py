"""The plugins of this application: tactix's own, and one object. Nothing is looked for, nothing
else gets in.
"""

from tactix import Session
from tactix_cpu.plugin import pack as cpu
from tactix_onnx.plugin import pack as onnx
from tactix_ops.plugin import pack as ops
from tactix_runtime.plugin import pack as runtime
from tactix_sdk import Pack, Scalar, tanh
from tactix_trust.plugin import pack as trust

pack = Pack("host_app")


@pack.pointwise()
def soft_limit(x: Scalar, *, drive: float = 1.0) -> Scalar:
    """tanh(drive * x) / drive: quiet samples pass, loud ones stay below 1 / drive."""
    return tanh(x * drive) / drive


def session() -> Session:
    """A session of exactly these plugins; one that fails raises."""
    return Session(plugins=[cpu, onnx, ops, runtime, trust, pack], discover=False, strict=True)
