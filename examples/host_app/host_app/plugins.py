"""The plugins of this application: tactix's own, and one object. Nothing is looked for, nothing
else gets in.
"""

from tactix import Session
from tactix_cpu import plugin as cpu
from tactix_onnx import plugin as onnx
from tactix_ops import plugin as ops
from tactix_runtime import plugin as runtime
from tactix_sdk import Pack, Scalar, tanh
from tactix_trust import plugin as trust

pack = Pack("host_app")


@pack.pointwise()
def soft_limit(x: Scalar, *, drive: float = 1.0) -> Scalar:
    """tanh(drive * x) / drive: quiet samples pass, loud ones stay below 1 / drive."""
    return tanh(x * drive) / drive


def session() -> Session:
    """A session of exactly these plugins; one that fails raises."""
    own = [("tactix", plugin) for plugin in (cpu, onnx, ops, runtime, trust)]
    return Session(plugins=[*own, pack], discover=False, strict=True)
