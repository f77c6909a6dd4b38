"""An application with an engine inside: it smooths and softly limits audio."""

from host_app.limiter import Limiter

__all__ = ["Limiter"]
