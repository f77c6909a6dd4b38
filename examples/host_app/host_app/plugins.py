"""The plugins of this application: tactix's own, and one object. Nothing is looked for, nothing else gets in."""

from tactix import Session
from tactix_builtin import plugin_build, plugin_runtime
from tactix_sdk import Layer, Scalar, hookimpl, pointwise, tanh


@pointwise("host_app.SoftLimit@1")
def soft_limit(x: Scalar, *, drive: float = 1.0) -> Scalar:
    """tanh(drive * x) / drive: quiet samples pass, loud ones stay below 1 / drive."""
    return tanh(x * drive) / drive


class Pack:
    """What the application adds."""

    TACTIX_NAMESPACE = "host_app"

    @hookimpl
    def tactix_layers(self) -> list[Layer]:
        return [soft_limit]


def session() -> Session:
    """A session of exactly these plugins; one that fails raises."""
    own = [("tactix", plugin_build), ("tactix", plugin_runtime)]
    return Session(plugins=[*own, Pack()], discover=False, strict=True)
