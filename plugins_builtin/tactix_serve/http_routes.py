"""Requests, answers and paths of HTTP: no more than the protocol needs, as each of its requests
passes here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

PARAMETER = "{"
"""What begins a part of a path that stands for any name."""


class HttpRequest:
    """A whole one. ``path``: without what follows a question mark. ``parameters``: what the parts
    of the path are, by their names in the route.
    """

    def __init__(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: memoryview
    ) -> None:
        self.method, self.path, self.body = method, path, body
        self.parameters: Mapping[str, str] = {}
        self._headers = headers

    def header(self, name: str) -> str | None:
        """``name``: in small letters."""
        found = self._headers.get(name.encode())
        return None if found is None else found.decode("latin-1")

    def headers(self) -> dict[str, str]:
        return {k.decode("latin-1"): v.decode("latin-1") for k, v in self._headers.items()}


@dataclass(frozen=True)
class HttpAnswer:
    """``content``: in parts, which are sent one after the other."""

    content: Sequence[bytes | memoryview]
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] | None = None


def as_json(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    """An answer in JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return HttpAnswer([text.encode("utf-8", "replace")], status, headers=headers)


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


@dataclass(frozen=True)
class HttpRoute:
    """``path``: parts in braces are names that the handler gets."""

    method: str
    path: str
    handler: Handler


class HttpRouter:
    """The handler of a path and a method."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._routes: dict[int, list[tuple[list[str], HttpRoute]]] = {}
        for route in routes:
            parts = route.path.split("/")
            self._routes.setdefault(len(parts), []).append((parts, route))

    def find(self, method: str, path: str) -> tuple[Handler | None, dict[str, str], bool]:
        """The handler, None if there is none; parts of the path by name; and whether there is one
        for another method.
        """
        given = path.removesuffix("/").split("/")
        method, known = "GET" if method == "HEAD" else method, False
        for parts, route in self._routes.get(len(given), ()):
            named = _matched(parts, given)
            if named is None:
                continue
            if route.method == method:
                return route.handler, named, True
            known = True
        return None, {}, known


def _matched(parts: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    named = dict[str, str]()
    for part, text in zip(parts, given, strict=True):
        if part[:1] == PARAMETER and text:
            named[part[1:-1]] = text
        elif part != text:
            return None
    return named
