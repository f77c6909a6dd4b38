"""Where a server listens."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from tactix.base.errors import ConfigError


@dataclass(frozen=True)
class ListenAt:
    """``http``, ``grpc``: ports; 0 for any that is free, None for none. ``most``: bytes of a
    request. ``grace``: seconds that requests have when the server stops. ``shared``: other
    processes listen at the same ports, and the system shares connections out (SO_REUSEPORT).
    """

    host: str
    http: int | None
    grpc: int | None
    most: int
    grace: float
    shared: bool = False


@dataclass(frozen=True)
class Listening:
    """Ports that are served; None for none."""

    http: int | None
    grpc: int | None


def place(host: str, port: int) -> str:
    """As URLs have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(host: str, port: int, shared: bool = False) -> socket.socket:
    """With its protocol named: asyncio sends small answers at once on such sockets alone, and 40 ms
    later on others. It does not listen yet. Raises ConfigError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as e:
        listener.close()
        raise port_taken(place(host, port), str(e)) from None
    return listener


def check_free(at: ListenAt) -> None:
    """Before models are loaded, which takes long. Raises ConfigError for ports that are taken."""
    for port in filter(None, (at.http, at.grpc)):
        with bound(at.host, port) as alone:
            alone.listen()


@contextlib.contextmanager
def reserved(at: ListenAt) -> Iterator[Listening]:
    """The ports are this server's meanwhile, whichever of its processes listen there. Raises
    ConfigError for ports that are taken, by another server that shares its own, too.
    """
    with contextlib.ExitStack() as held:
        ports = [
            None if port is None else held.enter_context(_reserved(at.host, port)).getsockname()[1]
            for port in (at.http, at.grpc)
        ]
        yield Listening(*ports)


def _reserved(host: str, port: int) -> socket.socket:
    with bound(host, port) as alone:
        alone.listen()  # fails beside others, who share or not
        free = alone.getsockname()[1]
    return bound(host, free, shared=True)


def port_taken(where: str, why: str) -> ConfigError:
    """The error for a port that another one has."""
    return ConfigError(f"{where} cannot be served", why=why, do="Give another port or host")
