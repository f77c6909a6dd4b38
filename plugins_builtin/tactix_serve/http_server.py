"""The Open Inference Protocol over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

import tactix
from tactix.base.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    EngineClosed,
    InvalidArgument,
    QueueFull,
    TactixError,
)
from tactix_serve import http_json, tracing
from tactix_serve.directory import ModelDescription, ModelNotFound
from tactix_serve.http_routes import (
    HttpAnswer,
    HttpRequest,
    HttpRoute,
    HttpRouter,
    as_json,
)
from tactix_serve.inference import EXTENSIONS, InferenceService, RequestTooLarge
from tactix_serve.metrics import CONTENT_TYPE
from tactix_serve.model_configuration import configuration
from tactix_serve.shared_memory import RegionState

STATUS: tuple[tuple[type[TactixError], int], ...] = (
    (ModelNotFound, 404),
    (RequestTooLarge, 413),
    (QueueFull, 503),
    (EngineClosed, 503),
    (DeadlineExceeded, 504),
    (InvalidArgument, 400),
    (DataError, 400),
    (ConfigError, 400),
)


def status_of(error: Exception) -> int:
    """The HTTP status that stands for an error."""
    return next((code for kind, code in STATUS if isinstance(error, kind)), 500)


class HttpFrontend:
    """The handlers, each told by its path."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service

    def app(self) -> HttpApplication:
        model, region = "/v2/models/{model}", "/v2/systemsharedmemory/region/{region}"
        routes = [HttpRoute("GET", "/v2/models/stats", self.statistics)]  # of all, before any name
        for base in (model, f"{model}/versions/{{version}}"):
            routes += [
                HttpRoute("POST", f"{base}/infer", self.infer),
                HttpRoute("GET", base, self.model_metadata),
                HttpRoute("GET", f"{base}/ready", self.model_ready),
                HttpRoute("GET", f"{base}/config", self.model_configuration),
                HttpRoute("GET", f"{base}/stats", self.statistics),
            ]
        routes += [
            HttpRoute("GET", "/v2", self.server_metadata),
            HttpRoute("GET", "/v2/health/live", self.live),
            HttpRoute("GET", "/v2/health/ready", self.ready),
            HttpRoute("GET", "/metrics", self.metrics),
            HttpRoute("POST", "/v2/repository/index", self.index),
            HttpRoute("GET", "/v2/systemsharedmemory/status", self.regions),
            HttpRoute("GET", f"{region}/status", self.regions),
            HttpRoute("POST", f"{region}/register", self.register),
            HttpRoute("POST", "/v2/systemsharedmemory/unregister", self.unregister),
            HttpRoute("POST", f"{region}/unregister", self.unregister),
        ]
        return HttpApplication(HttpRouter(routes))

    # -- health and metadata ----------------------------------------------------------------------

    async def live(self, request: HttpRequest) -> HttpAnswer:
        return as_json({"live": True})

    async def ready(self, request: HttpRequest) -> HttpAnswer:
        ready = self._service.ready
        return as_json({"ready": ready}, 200 if ready else 503)

    async def server_metadata(self, request: HttpRequest) -> HttpAnswer:
        named = {"name": "tactix", "version": tactix.__version__}
        return as_json({**named, "extensions": list(EXTENSIONS)})

    async def model_ready(self, request: HttpRequest) -> HttpAnswer:
        found = self._find(request)
        return as_json({"name": found.name, "ready": True})

    async def model_metadata(self, request: HttpRequest) -> HttpAnswer:
        found = self._find(request)
        return as_json(
            {
                "name": found.name,
                "versions": [found.version],
                "platform": found.platform,
                "inputs": http_json.metadata_rows(found.inputs),
                "outputs": http_json.metadata_rows(found.outputs),
            }
        )

    async def model_configuration(self, request: HttpRequest) -> HttpAnswer:
        return as_json(configuration(self._find(request)))

    async def statistics(self, request: HttpRequest) -> HttpAnswer:
        named = request.parameters
        name, version = named.get("model", ""), named.get("version", "")
        return as_json({"model_stats": await self._service.statistics(name, version)})

    async def index(self, request: HttpRequest) -> HttpAnswer:
        body = request.body
        asked = http_json.document(bytes(body)) if body.nbytes else {}
        rows = [r for r in self._service.directory.index() if r.ready or not asked.get("ready")]
        return as_json(
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

    async def metrics(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer([await self._service.metrics()], kind=CONTENT_TYPE)

    def _find(self, request: HttpRequest) -> ModelDescription:
        named = request.parameters
        return self._service.directory.find(named["model"], named.get("version", ""))

    # -- shared memory ----------------------------------------------------------------------------

    async def regions(self, request: HttpRequest) -> HttpAnswer:
        found = await self._service.regions(request.parameters.get("region", ""))
        rows = [
            {"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.size} for r in found
        ]
        return as_json(rows)

    async def register(self, request: HttpRequest) -> HttpAnswer:
        asked = http_json.document(bytes(request.body))
        key, offset, size = asked.get("key"), asked.get("offset", 0), asked.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
            do = 'Give {"key": text, "offset": bytes, "byte_size": bytes}'
            raise InvalidArgument("this registers no region", do=do)
        await self._service.register(RegionState(request.parameters["region"], key, offset, size))
        return as_json({})

    async def unregister(self, request: HttpRequest) -> HttpAnswer:
        await self._service.unregister(request.parameters.get("region", ""))
        return as_json({})

    # -- inference --------------------------------------------------------------------------------

    async def infer(self, request: HttpRequest) -> HttpAnswer:
        self._find(request)  # before what is wrong with the request itself
        coding = request.header("content-encoding") or "identity"
        if coding != "identity":
            what = f"content encoding {coding[:40]!r} is not taken"
            raise InvalidArgument(what, do="Send the request as it is")
        named = http_json.RequestHead(
            request.parameters["model"],
            request.parameters.get("version", ""),
            request.header(http_json.HEADER.lower()),
            request.headers() if tracing.traced() else {},
        )
        answer = await self._service.infer(http_json.parsed(named, request.body))
        content, behind = http_json.answered(answer)
        if not behind:
            return HttpAnswer([content])
        headers = {http_json.HEADER: str(len(content))}
        return HttpAnswer([content, *behind], kind="application/octet-stream", headers=headers)


@dataclass(frozen=True)
class HttpApplication:
    """The answer to a request. Errors are the protocol's JSON."""

    router: HttpRouter

    async def __call__(self, request: HttpRequest) -> HttpAnswer:
        handler, request.parameters, known = self.router.find(request.method, request.path)
        if handler is None:
            return _no_path(request, known)
        try:
            return await handler(request)
        except Exception as e:
            return error_answer(e)


def error_answer(error: Exception) -> HttpAnswer:
    """The protocol's, for what was raised."""
    if not isinstance(error, TactixError):
        return as_json({"error": f"the server failed: {type(error).__name__}: {error}"}, 500)
    status = status_of(error)
    again = {"Retry-After": "1"} if status == 503 else None
    return as_json({"error": str(error)}, status, again)


def _no_path(request: HttpRequest, known: bool) -> HttpAnswer:
    """``known``: for another method."""
    what = f"{request.method} is not for this path" if known else "no such path"
    return as_json({"error": f"{request.path}: {what}"}, 405 if known else 404)
