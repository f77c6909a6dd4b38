"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc

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
from tactix_serve import tracing
from tactix_serve.datatypes import NAMES, OBJECTS
from tactix_serve.directory import ModelNotFound
from tactix_serve.http_json import refuse_sequences, region_slice, time_limit
from tactix_serve.inference import (
    EXTENSIONS,
    InferenceAnswer,
    InferenceRequest,
    InferenceService,
    InputTensor,
    OutputTensor,
    RequestTooLarge,
    WantedOutput,
    stopped,
)
from tactix_serve.messages import PACKAGE, Rpc, protocol
from tactix_serve.model_configuration import configuration
from tactix_serve.shared_memory import RegionState

SERVICE = f"{PACKAGE}.GRPCInferenceService"

STATUS: tuple[tuple[type[TactixError], grpc.StatusCode], ...] = (
    (ModelNotFound, grpc.StatusCode.NOT_FOUND),
    (RequestTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (QueueFull, grpc.StatusCode.UNAVAILABLE),
    (EngineClosed, grpc.StatusCode.UNAVAILABLE),
    (DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (DataError, grpc.StatusCode.INVALID_ARGUMENT),
    (ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
)

CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", OBJECTS: "bytes_contents",
}  # fmt: skip
"""Where a message has the elements of a datatype; the others come raw."""


QUIET, TURNS = 0.1, 5
"""A server that stops waits for so many seconds without a request, so many times at most."""


def status_of(error: Exception) -> grpc.StatusCode:
    """The status that stands for an error."""
    internal = grpc.StatusCode.INTERNAL
    return next((code for kind, code in STATUS if isinstance(error, kind)), internal)


class GrpcFrontend:
    """Methods by their names in the protocol."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._made = protocol().messages
        self._asked = 0
        self._idle = set[asyncio.Task[Any]]()  # those of streams that wait for a request

    def server(self, most: int, shared: bool = False) -> grpc.aio.Server:
        """One that listens nowhere yet. ``most``: bytes of a request. ``shared``: others may listen
        at its port, too.
        """
        options = [
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", int(shared)),
        ]
        server = grpc.aio.server(options=options)
        handlers = {rpc.name: self._handler(rpc) for rpc in protocol().methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server

    async def stop(self, server: grpc.aio.Server, grace: float) -> None:
        """Requests that run have ``grace`` seconds, when the service takes no more. Streams that
        wait for a request end.

        What gRPC has read, but not handed out, when its server stops ends as CANCELLED, which tells
        no client to ask another one. So that is handed out before, and refused.
        """
        for stream in list(self._idle):
            stream.cancel()
        for _ in range(TURNS):
            before = self._asked
            await asyncio.sleep(QUIET)
            if self._asked == before:
                break
        await server.stop(grace)

    def _handler(self, rpc: Rpc) -> Any:
        method = getattr(self, rpc.name)
        request, response = self._made[rpc.request], self._made[rpc.response]

        async def call(asked: Any, context: Any) -> Any:
            self._asked += 1
            try:
                return await method(asked, context)
            except TactixError as e:
                await context.abort(status_of(e), str(e))
            except Exception as e:
                told = f"the server failed: {type(e).__name__}: {e}"
                await context.abort(grpc.StatusCode.INTERNAL, told)

        make = (
            grpc.stream_stream_rpc_method_handler
            if rpc.streams
            else grpc.unary_unary_rpc_method_handler
        )
        return make(
            method if rpc.streams else call,
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )

    # -- health and metadata ----------------------------------------------------------------------

    async def ServerLive(self, asked: Any, context: Any) -> Any:
        return self._made["ServerLiveResponse"](live=True)

    async def ServerReady(self, asked: Any, context: Any) -> Any:
        return self._made["ServerReadyResponse"](ready=self._service.ready)

    async def ModelReady(self, asked: Any, context: Any) -> Any:
        try:
            self._service.directory.find(asked.name, asked.version)
        except ModelNotFound:
            return self._made["ModelReadyResponse"](ready=False)
        return self._made["ModelReadyResponse"](ready=True)

    async def ServerMetadata(self, asked: Any, context: Any) -> Any:
        named = {"name": "tactix", "version": tactix.__version__}
        return self._made["ServerMetadataResponse"](**named, extensions=EXTENSIONS)

    async def ModelMetadata(self, asked: Any, context: Any) -> Any:
        found = self._service.directory.find(asked.name, asked.version)
        out = self._made["ModelMetadataResponse"](
            name=found.name, versions=[found.version], platform=found.platform
        )
        for rows, tensors in ((out.inputs, found.inputs), (out.outputs, found.outputs)):
            for t in tensors:
                rows.add(name=t.name, datatype=t.datatype, shape=t.shape)
        return out

    async def ModelConfig(self, asked: Any, context: Any) -> Any:
        found = self._service.directory.find(asked.name, asked.version)
        return self._made["ModelConfigResponse"](config=configuration(found))

    async def ModelStatistics(self, asked: Any, context: Any) -> Any:
        found = await self._service.statistics(asked.name, asked.version)
        return self._made["ModelStatisticsResponse"](model_stats=found)

    async def RepositoryIndex(self, asked: Any, context: Any) -> Any:
        out = self._made["RepositoryIndexResponse"]()
        for r in self._service.directory.index():
            if r.ready or not asked.ready:
                state = "READY" if r.ready else "UNAVAILABLE"
                out.models.add(name=r.name, version=r.version, state=state, reason=r.reason)
        return out

    # -- shared memory ----------------------------------------------------------------------------

    async def SystemSharedMemoryStatus(self, asked: Any, context: Any) -> Any:
        out = self._made["SystemSharedMemoryStatusResponse"]()
        for r in await self._service.regions(asked.name):
            row = out.regions[r.name]
            row.name, row.key, row.offset, row.byte_size = r.name, r.key, r.offset, r.size
        return out

    async def SystemSharedMemoryRegister(self, asked: Any, context: Any) -> Any:
        region = RegionState(asked.name, asked.key, asked.offset, asked.byte_size)
        await self._service.register(region)
        return self._made["SystemSharedMemoryRegisterResponse"]()

    async def SystemSharedMemoryUnregister(self, asked: Any, context: Any) -> Any:
        await self._service.unregister(asked.name)
        return self._made["SystemSharedMemoryUnregisterResponse"]()

    # -- inference --------------------------------------------------------------------------------

    async def ModelInfer(self, asked: Any, context: Any) -> Any:
        """A client that goes away cancels its request, as gRPC cancels this coroutine."""
        headers = dict[str, str]()
        if tracing.traced():
            told = context.invocation_metadata() or ()
            headers = {k: v for k, v in told if isinstance(v, str)}
        request = _request(asked, context.time_remaining(), headers)
        return self._response(await self._service.infer(request))

    async def ModelStreamInfer(self, asked: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests; an error is an answer, too."""
        async for request in self._requests(asked, context):
            out = self._made["ModelStreamInferResponse"]()
            try:
                answer = await self._service.infer(_request(request, None, {}))
                out.infer_response.CopyFrom(self._response(answer))
            except asyncio.CancelledError:
                raise
            except Exception as e:
                out.error_message = str(e) or repr(e)
                out.infer_response.id = request.id
            yield out

    async def _requests(self, asked: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Those of a stream, until the service takes no more."""
        task, coming = asyncio.current_task(), aiter(asked)
        assert task is not None
        while not self._service.stopping:
            self._idle.add(task)
            try:
                request = await anext(coming)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                if self._service.stopping:
                    break
                raise
            finally:
                self._idle.discard(task)
            self._asked += 1
            yield request
        error = stopped()
        await context.abort(status_of(error), str(error))

    def _response(self, answer: InferenceAnswer) -> Any:
        out = self._made["ModelInferResponse"](
            model_name=answer.model, model_version=answer.version, id=answer.id
        )
        for output in answer.outputs:
            m = output.metadata
            row = out.outputs.add(name=m.name, datatype=m.datatype, shape=output.shape)
            if output.wanted.region is None:
                out.raw_output_contents.append(bytes(output.content))
            else:
                _note_region(row, output)
        return out


def _note_region(row: Any, output: OutputTensor) -> None:
    place = output.wanted.region
    assert place is not None
    row.parameters["shared_memory_region"].string_param = place.region
    row.parameters["shared_memory_offset"].int64_param = place.offset
    row.parameters["shared_memory_byte_size"].int64_param = output.size


def _request(asked: Any, remaining: float | None, carrier: Mapping[str, str]) -> InferenceRequest:
    """Raises InvalidArgument."""
    parameters = _parameters(asked.parameters)
    refuse_sequences(parameters)
    limits = [] if remaining is None or not math.isfinite(remaining) else [max(0.0, remaining)]
    if (told := time_limit(parameters)) is not None:
        limits.append(told)
    return InferenceRequest(
        asked.model_name,
        asked.model_version,
        _inputs(asked.inputs, [memoryview(x) for x in asked.raw_input_contents]),
        [_output(x) for x in asked.outputs],
        asked.id,
        min(limits, default=None),
        carrier=carrier,
    )


def _inputs(given: Sequence[Any], raw: list[memoryview]) -> list[InputTensor]:
    """Raw contents are those of the inputs that lie in no region, in order."""
    if not given:
        raise InvalidArgument("the request has no inputs")
    out, own, left = list[InputTensor](), bool(raw), iter(raw)
    for x in given:
        region = region_slice(_parameters(x.parameters))
        named = (x.name, x.datatype, tuple(x.shape))
        if region is not None:
            out.append(InputTensor(*named, region=region))
        elif own:
            content = next(left, None)
            if content is None:
                raise InvalidArgument(f"input {x.name!r} has no raw content")
            out.append(InputTensor(*named, content=content))
        else:
            out.append(InputTensor(*named, values=_values(x)))
    if next(left, None) is not None:
        raise InvalidArgument("there are more raw contents than inputs")
    return out


def _values(x: Any) -> list[object]:
    if x.datatype not in CONTENTS:
        known = x.datatype in NAMES.values()
        do = "Give it raw" if known else f"There are: {', '.join(sorted(NAMES.values()))}"
        raise InvalidArgument(f"input {x.name!r} has no contents of {x.datatype!r}", do=do)
    found = list(getattr(x.contents, CONTENTS[x.datatype]))
    if x.datatype != OBJECTS:
        return found
    try:
        return [t.decode() for t in found]
    except UnicodeDecodeError as e:
        raise InvalidArgument(f"input {x.name!r} is no text", why=str(e)) from None


def _output(asked: Any) -> WantedOutput:
    parameters = _parameters(asked.parameters)
    if parameters.get("classification"):
        raise InvalidArgument("classification is not served", do="Ask for the scores")
    return WantedOutput(asked.name, True, region_slice(parameters))


def _parameters(given: Any) -> dict[str, object]:
    out = dict[str, object]()
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is not None:
            out[name] = getattr(value, kind)
    return out
