"""The server's side of gRPC: a port, every method of which goes to one Service as bytes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc
import grpc.aio

from graphrt.core.errors import InvalidArgumentError, OpError, UnavailableError
from graphrt.transport import security
from graphrt.transport.grpc_peer import MOST_UNARY, GrpcPeer, peers
from graphrt.transport.interface import Request, Service
from graphrt.transport.link_io import LINK_METHOD, Link
from graphrt.transport.loop import io_loop

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MOST_UNARY),
    ("grpc.max_receive_message_length", MOST_UNARY),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
]
# A status' text travels in headers, of which a peer takes 16 KB; a byte may need three there.
_MOST_DETAILS = 4_000
_CODES = {c.value[0]: c for c in grpc.StatusCode}
_BIND_TIMEOUT = 10.0
# Handlers that are kept: a stranger may name any number of methods.
_MOST_METHODS = 256


class GrpcTransport:
    """See interface.Transport."""

    def listen(self, address: str) -> GrpcListener:
        return GrpcListener(address)

    def peer(self, address: str) -> GrpcPeer:
        return peers.get(address)


class GrpcListener:
    """See interface.Listener. The port is bound at once, and answers from `start` on.

    Raises:
      UnavailableError: the address cannot be bound.
    """

    def __init__(self, address: str) -> None:
        self._io = io_loop()
        self._handler = _Handler()
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise InvalidArgumentError(None, None, f"a server's address is host:port, not '{address}'")
        security.warn_if_open(address)
        bound = self._io.run(self._bind(address), _BIND_TIMEOUT)
        self.address = f"{host}:{bound}"

    async def _bind(self, address: str) -> int:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handler,))
        credentials = security.server_credentials()
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise UnavailableError(None, None, f"cannot listen on {address}: {error}") from None
        if port == 0:
            raise UnavailableError(
                None, None, f"cannot listen on {address}: the address is in use, or not this machine's"
            )
        return port

    def start(self, service: Service) -> None:
        self._handler.target = service
        self._io.run(self._server.start(), _BIND_TIMEOUT)

    def stop(self, grace: float) -> None:
        """Stop listening; calls have `grace` seconds to end, links end now."""

        async def stop() -> None:
            for link in list(self._handler.links):
                link.lose(UnavailableError(None, None, "the server was stopped"))
            await self._server.stop(grace)

        if self._io.is_here:
            self._io.loop.create_task(stop())
        else:
            self._io.run(stop(), grace + _BIND_TIMEOUT)


class _Handler(grpc.GenericRpcHandler):
    """Answers every method. Nothing that waits here holds a thread: a call is a future."""

    def __init__(self) -> None:
        self.target: Service | None = None
        self.links: set[Link] = set()
        self._methods: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        found = self._methods.get(method)
        if found is None:
            found = (
                grpc.stream_stream_rpc_method_handler(self._link)
                if method == LINK_METHOD
                else grpc.unary_unary_rpc_method_handler(partial(self._unary, method))
            )
            if len(self._methods) < _MOST_METHODS:
                self._methods[method] = found
        return found

    async def _unary(self, method: str, payload: bytes, context: Any) -> Any:
        await self._admit(context)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle(message: Any, error: OpError | None) -> None:
            if not future.done():
                future.set_result((message, error))

        def answer(message: Any, error: OpError | None) -> None:
            if io_loop().is_here:
                settle(message, error)
            else:
                io_loop().soon(settle, message, error)

        request = Request(method, payload, answer)
        assert self.target is not None
        self.target.handle(request)
        try:
            message, error = await future
        except asyncio.CancelledError:
            request.cancel()
            raise
        if error is not None:
            await _abort(context, error)
        return b"".join(message) if isinstance(message, list) else bytes(message)

    async def _link(self, request_iterator: Any, context: Any) -> None:
        await self._admit(context)
        # The empty first message says that frames may come.
        await context.write(b"")
        link = Link(io_loop(), self.target, context.peer())
        self.links.add(link)
        try:
            await link.run(context.read, context.write)
        finally:
            self.links.discard(link)

    async def _admit(self, context: Any) -> None:
        if not security.is_admitted(context.invocation_metadata()):
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "this cluster asks for a token: set GRAPHRT_CLUSTER_TOKEN to the "
                "cluster's in every task and client",
            )


def _status(code: int) -> Any:
    return _CODES.get(code, grpc.StatusCode.UNKNOWN)


async def _abort(context: Any, error: OpError) -> None:
    text = error.message
    if len(text) > _MOST_DETAILS:
        text = text[:_MOST_DETAILS] + " … (cut off)"
    await context.abort(_status(error.error_code), text)
