"""The Open Inference Protocol over HTTP."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import tactix
from tactix.base.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineClosed,
    InvalidArgument,
    QueueFull,
    TactixError,
)
from tactix_serve import http_json
from tactix_serve.inference import EXTENSIONS, InferenceRequest, InferenceService, RequestTooLarge
from tactix_serve.repository import LoadedVersion, ModelNotFound

Handler = Callable[[Request], Awaitable[Response]]

STATUS: tuple[tuple[type[TactixError], int], ...] = (
    (ModelNotFound, 404),
    (RequestTooLarge, 413),
    (QueueFull, 503),
    (EngineClosed, 503),
    (DeadlineExceeded, 504),
    (InvalidArgument, 400),
    (ConfigError, 400),
)
CLOSED_BY_CLIENT = 499
"""nginx's status for a request that its client gave up; nobody reads it."""


def status_of(error: Exception) -> int:
    """The HTTP status that stands for an error."""
    return next((code for kind, code in STATUS if isinstance(error, kind)), 500)


def _told(handler: Handler) -> Handler:
    """Errors as the protocol's JSON."""

    @functools.wraps(handler)
    async def call(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=CLOSED_BY_CLIENT)
        except TactixError as e:
            retry = {"Retry-After": "1"} if status_of(e) == 503 else {}
            return JSONResponse({"error": str(e)}, status_of(e), headers=retry)
        except Exception as e:
            return JSONResponse({"error": f"the server failed: {type(e).__name__}: {e}"}, 500)

    return call


class HttpFrontend:
    """The handlers, each told by its path. ``most``: bytes of a request."""

    def __init__(self, service: InferenceService, most: int) -> None:
        self._service, self._most = service, most

    def app(self) -> Starlette:
        get: dict[str, Handler] = {
            "/v2": self.server_metadata,
            "/v2/health/live": self.live,
            "/v2/health/ready": self.ready,
            "/metrics": self.metrics,
            "/v2/systemsharedmemory/status": self.regions,
            "/v2/systemsharedmemory/region/{region}/status": self.regions,
        }
        post: dict[str, Handler] = {
            "/v2/repository/index": self.index,
            "/v2/systemsharedmemory/region/{region}/register": self.register,
            "/v2/systemsharedmemory/unregister": self.unregister,
            "/v2/systemsharedmemory/region/{region}/unregister": self.unregister,
        }
        for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            get |= {base: self.model_metadata, f"{base}/ready": self.model_ready}
            post[f"{base}/infer"] = self.infer
        routes = [Route(path, _told(h), methods=["GET"]) for path, h in get.items()]
        routes += [Route(path, _told(h), methods=["POST"]) for path, h in post.items()]
        failures = {404: _no_path, 405: _no_path}
        return Starlette(routes=routes, exception_handlers=failures)  # type: ignore[arg-type]

    # -- health and metadata ----------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = self._service.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def server_metadata(self, request: Request) -> Response:
        named = {"name": "tactix", "version": tactix.__version__}
        return JSONResponse({**named, "extensions": list(EXTENSIONS)})

    async def model_ready(self, request: Request) -> Response:
        found = self._find(request)
        return JSONResponse({"name": found.name, "ready": True})

    async def model_metadata(self, request: Request) -> Response:
        found = self._find(request)
        return JSONResponse(
            {
                "name": found.name,
                "versions": [found.version],
                "platform": found.model.platform,
                "inputs": http_json.metadata_rows(found.model.inputs),
                "outputs": http_json.metadata_rows(found.model.outputs),
            }
        )

    async def index(self, request: Request) -> Response:
        body = await self._body(request)
        asked = http_json.document(bytes(body)) if body.nbytes else {}
        rows = [r for r in self._service.repository.index() if r.ready or not asked.get("ready")]
        return JSONResponse(
            [
                {
                    "name": r.name,
                    "version": r.version,
                    "state": "READY" if r.ready else "UNAVAILABLE",
                    "reason": r.reason,
                }
                for r in rows
            ]
        )

    async def metrics(self, request: Request) -> Response:
        self._service.update_metrics()
        found = self._service.metrics
        return Response(found.text(), headers={"Content-Type": found.content_type})

    def _find(self, request: Request) -> LoadedVersion:
        path = request.path_params
        return self._service.repository.find(path["model"], path.get("version", ""))

    # -- shared memory ----------------------------------------------------------------------------

    async def regions(self, request: Request) -> Response:
        found = self._service.shared_memory.regions(request.path_params.get("region", ""))
        rows = [
            {"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.size} for r in found
        ]
        return JSONResponse(rows)

    async def register(self, request: Request) -> Response:
        asked = http_json.document(bytes(await self._body(request)))
        key, offset, size = asked.get("key"), asked.get("offset", 0), asked.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
            do = 'Give {"key": text, "offset": bytes, "byte_size": bytes}'
            raise InvalidArgument("this registers no region", do=do)
        self._service.shared_memory.register(request.path_params["region"], key, offset, size)
        return JSONResponse({})

    async def unregister(self, request: Request) -> Response:
        self._service.shared_memory.unregister(request.path_params.get("region", ""))
        return JSONResponse({})

    # -- inference --------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        """A client that goes away cancels its request."""
        self._find(request)  # before what is wrong with the request itself
        path = request.path_params
        coding = request.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            what = f"content encoding {coding[:40]!r} is not taken"
            raise InvalidArgument(what, do="Send the request as it is")
        body = await self._body(request)
        header = request.headers.get(http_json.HEADER)
        asked = http_json.parsed(path["model"], path.get("version", ""), body, header)
        return await self._until_gone(request, replace(asked, carrier=request.headers))

    async def _until_gone(self, request: Request, asked: InferenceRequest) -> Response:
        work = asyncio.ensure_future(self._service.infer(asked))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            content, behind = http_json.answered(work.result())
        finally:
            work.cancel()
            gone.cancel()
        if not behind:
            return Response(content, media_type="application/json")
        headers = {http_json.HEADER: str(len(content))}
        whole = b"".join((content, *behind))
        return Response(whole, media_type="application/octet-stream", headers=headers)

    async def _body(self, request: Request) -> memoryview:
        """Raises RequestTooLarge before more than allowed is held."""
        told = request.headers.get("Content-Length", "")
        if told.isascii() and told.isdigit() and int(told) > self._most:
            raise self._too_large(int(told))
        parts, size = list[bytes](), 0
        async for part in _stream(request):
            size += len(part)
            if size > self._most:
                raise self._too_large(size)
            parts.append(part)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def _too_large(self, size: int) -> RequestTooLarge:
        what, why = f"a request of {size} bytes", f"the server takes {self._most}"
        return RequestTooLarge(what, why=why, do="Start it with a larger --max-request-bytes")


def _stream(request: Request) -> AsyncIterator[bytes]:
    return request.stream()


async def _disconnected(request: Request) -> None:
    """Until the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _no_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "no such path" if status == 404 else f"{request.method} is not for this path"
    return JSONResponse({"error": f"{request.url.path}: {what}"}, status)
