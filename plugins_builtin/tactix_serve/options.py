"""What a server is told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tactix.base.errors import InvalidArgument
from tactix_serve.ports import ListenAt

HIGHEST_PORT = 65535


@dataclass(frozen=True)
class ServerOptions:
    """``http``, ``grpc``: ports; 0 for any that is free, None for none. ``poll``: seconds between
    two looks at the folder. ``most``: bytes of a request. ``grace``: seconds that requests have
    when the server stops. ``cache``: folder for plans of models. Raises InvalidArgument.
    """

    models: Path
    cache: Path
    host: str = "127.0.0.1"
    http: int | None = 8000
    grpc: int | None = 8001
    poll: float = 2.0
    most: int = 64 << 20
    grace: float = 30.0
    shared_memory: bool = False

    def __post_init__(self) -> None:
        if not self.models.is_dir():
            do = "Give a folder with NAME/VERSION/model.plan or model.onnx"
            raise InvalidArgument(f"there is no folder {self.models}", do=do)
        if self.http is None and self.grpc is None:
            raise InvalidArgument("nothing is to be served", do="Give a port for HTTP or gRPC")
        for port in (self.http, self.grpc):
            if port is not None and not 0 <= port <= HIGHEST_PORT:
                raise InvalidArgument(f"port {port}", do=f"Give 0 to {HIGHEST_PORT}")
        if not 0 < self.poll < math.inf:
            raise InvalidArgument(f"--poll of {self.poll} s", do="Give more than 0")
        if not 0 <= self.grace < math.inf:
            raise InvalidArgument(f"--grace of {self.grace} s", do="Give 0 or more")
        if self.most < 1:
            raise InvalidArgument(f"--max-request-bytes of {self.most}", do="Give 1 or more")

    def listen_at(self, shared: bool = False) -> ListenAt:
        """``shared``: beside other processes."""
        return ListenAt(self.host, self.http, self.grpc, self.most, self.grace, shared)
