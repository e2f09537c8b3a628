"""The client's side of gRPC: one channel an address, shared by all in the process that reach it.

The first call finds out what is there: a graphrt server opens a link, over which all further calls go;
another one says that it knows no such method, and gets plain unary calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from graphrt.core.errors import (
    CancelledError,
    DeadlineExceededError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
    from_code,
)
from graphrt.transport import security
from graphrt.transport.interface import Buffers, Done
from graphrt.transport.link import MAX_PAYLOAD
from graphrt.transport.link_io import LINK_METHOD, Link
from graphrt.transport.loop import LoopThread, io_loop

CONNECT_TIMEOUT = 20.0
# What protobuf can hold, where nothing lower is asked for.
MOST_UNARY = min((1 << 31) - 1, MAX_PAYLOAD)
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MOST_UNARY),
    ("grpc.max_receive_message_length", MOST_UNARY),
    ("grpc.enable_http_proxy", 0),
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.optimization_target", "throughput"),
    ("grpc.lb_policy_name", "pick_first"),
]


class GrpcPeer:
    """See interface.Peer."""

    def __init__(self, address: str, released: Callable[[GrpcPeer], bool]) -> None:
        self.address = address
        self.is_graphrt: bool | None = None
        self._heard = 0.0
        self._released = released
        self._io: LoopThread = io_loop()
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        self._link: Link | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def heard(self) -> float:
        link = self._link
        return max(self._heard, link.machine.heard) if link is not None else self._heard

    # -- calls -------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        request: Buffers,
        done: Done,
        timeout: float | None = None,
        wait_for_server: bool = False,
    ) -> Callable[[], None]:
        link = self._link
        if link is not None and link.error is None and timeout is None:
            return link.call(method, request, done)
        call = _Call(done)
        self._io.soon(self._begin, call, method, request, timeout, wait_for_server)
        return lambda: self._io.soon(call.cancel)

    def post(self, kind: int, message: Buffers, failed: Callable[[OpError], None]) -> None:
        link = self._link
        if link is not None and link.error is None:
            try:
                link.post(kind, message)
                return
            except OpError as error:
                failed(error)
                return
        self._io.soon(self._post_later, kind, message, failed)

    def _post_later(self, kind: int, message: Buffers, failed: Callable[[OpError], None]) -> None:
        async def send() -> None:
            try:
                link = await self._connected(False, CONNECT_TIMEOUT)
                if link is None:
                    raise UnimplementedError(
                        None, None, f"{self.address} is not a graphrt server: it takes no posts"
                    )
                link.post(kind, message)
            except OpError as error:
                failed(error)

        self._keep(self._io.loop.create_task(send()))

    def _begin(self, call: _Call, method: str, request: Buffers, timeout: float | None, wait: bool) -> None:
        if call.done is None:
            return
        call.task = self._io.loop.create_task(self._run(call, method, request, timeout, wait))
        self._keep(call.task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(
        self, call: _Call, method: str, request: Buffers, timeout: float | None, wait: bool
    ) -> None:
        began = time.monotonic()
        try:
            link = await self._connected(wait, timeout)
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
            if link is not None:
                answer = await self._over_link(link, method, request, left)
            else:
                answer = await self._unary(method, request, left)
        except asyncio.CancelledError:
            call.finish(
                None, CancelledError(None, None, f"the call {method} to {self.address} was cancelled")
            )
        except TimeoutError:
            call.finish(
                None,
                DeadlineExceededError(
                    None,
                    None,
                    f"{self.address} did not answer {method.rpartition('/')[2]} within {timeout:.1f} s",
                ),
            )
        except OpError as error:
            call.finish(None, error)
        except Exception as error:  # whatever gRPC raises: the caller is told in any case
            call.finish(
                None,
                UnavailableError(None, None, f"{method} to {self.address}: {type(error).__name__}: {error}"),
            )
        else:
            call.finish(answer, None)

    async def _over_link(self, link: Link, method: str, request: Buffers, timeout: float | None) -> Any:
        future: asyncio.Future[Any] = self._io.loop.create_future()

        def done(answer: Any, error: OpError | None) -> None:
            # On the loop: links answer there.
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(answer)

        cancel = link.call(method, request, done)
        try:
            return await asyncio.wait_for(future, timeout)
        except (asyncio.CancelledError, TimeoutError):
            cancel()
            raise

    async def _unary(self, method: str, request: Buffers, timeout: float | None) -> Any:
        stub = self._methods.get(method)
        if stub is None:
            stub = self._methods[method] = self._channel.unary_unary(method)
        message = b"".join(request) if isinstance(request, list) else bytes(request)
        if len(message) > MOST_UNARY:
            raise ResourceExhaustedError(
                None,
                None,
                f"{method} of {len(message)} bytes: {self.address} is not a graphrt server, and takes "
                "messages of up to 2 GB",
            )
        try:
            answer = await stub(message, timeout=timeout, metadata=security.metadata())
        except grpc.aio.AioRpcError as error:
            raise self._as_error(error) from None
        self._heard = time.monotonic()
        return answer

    def _as_error(self, error: Any) -> OpError:
        code = error.code().value[0]
        text = error.details() or f"gRPC status {error.code().name}"
        return from_code(code, f"{self.address}: {text}" if code == 14 else text)

    # -- connecting --------------------------------------------------------------------------------

    async def _connected(self, wait: bool, timeout: float | None) -> Link | None:
        """The open link; None where the server is not a graphrt one.

        Raises:
          UnavailableError: nobody answers at the address (with `wait`, until the time is over).
        """
        if self.is_graphrt is False and self._channel is not None:
            return None
        began = time.monotonic()
        while True:
            link = self._link
            if link is not None and link.error is None:
                return link
            if self._opening is None:
                self._opening = self._io.loop.create_task(self._open())
                self._opening.add_done_callback(self._opened)
            left = None if timeout is None else timeout - (time.monotonic() - began)
            try:
                # A caller that gives up does not take the attempt away from others.
                return await asyncio.wait_for(asyncio.shield(self._opening), left)
            except TimeoutError:
                raise self._absent(began) from None
            except UnavailableError as error:
                if not wait:
                    raise
                if left is not None and left <= 0.2:
                    raise UnavailableError(
                        None, None, f"{error.message} (tried for {time.monotonic() - began:.1f} s)"
                    ) from None
                await asyncio.sleep(0.1)

    def _absent(self, began: float) -> UnavailableError:
        return UnavailableError(
            None, None, f"nobody answered at {self.address} within {time.monotonic() - began:.1f} s"
        )

    def _opened(self, task: asyncio.Task[Any]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # those who wait for it have it

    async def _open(self) -> Link | None:
        if self._channel is None:
            credentials = security.channel_credentials()
            options = OPTIONS + security.tls_name_options()
            self._channel = (
                grpc.aio.insecure_channel(self.address, options)
                if credentials is None
                else grpc.aio.secure_channel(self.address, credentials, options)
            )
        stream = self._channel.stream_stream(LINK_METHOD)(metadata=security.metadata())
        try:
            # The server's first headers say that it takes the stream.
            await asyncio.wait_for(stream.initial_metadata(), CONNECT_TIMEOUT)
            first = await asyncio.wait_for(stream.read(), CONNECT_TIMEOUT)
            if first is grpc.aio.EOF:
                raise await self._ended(stream)
        except grpc.aio.AioRpcError as error:
            return self._refused(self._as_error(error))
        except TimeoutError:
            stream.cancel()
            raise UnavailableError(
                None, None, f"nobody answered at {self.address} within {CONNECT_TIMEOUT:.1f} s"
            ) from None
        except OpError as error:
            return self._refused(error)
        self.is_graphrt = True
        link = Link(self._io, None, self.address)
        self._link = link
        self._keep(self._io.loop.create_task(self._carry(link, stream)))
        return link

    async def _ended(self, stream: Any) -> OpError:
        code = await stream.code()
        return from_code(code.value[0], f"{self.address}: {await stream.details() or code.name}")

    def _refused(self, error: OpError) -> None:
        if not isinstance(error, UnimplementedError):
            raise error
        self.is_graphrt = False
        self._heard = time.monotonic()
        return None

    async def _carry(self, link: Link, stream: Any) -> None:
        async def read() -> Any:
            return await stream.read()

        try:
            await link.run(read, stream.write)
        finally:
            stream.cancel()

    # -- the end -----------------------------------------------------------------------------------

    def release(self) -> None:
        if self._released(self):
            self._io.soon(lambda: self._io.loop.create_task(self._close()))

    async def _close(self) -> None:
        gone = UnavailableError(None, None, f"the connection to {self.address} was closed here")
        if self._link is not None:
            self._link.lose(gone)
        current = asyncio.current_task()
        for task in list(self._running):
            if task is not current:
                task.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._channel is not None:
            await self._channel.close(None)


class _Call:
    """A call that goes through the loop: its `done` is called once."""

    __slots__ = ("done", "task")

    def __init__(self, done: Done) -> None:
        self.done: Done | None = done
        self.task: asyncio.Task[Any] | None = None

    def finish(self, answer: Any, error: OpError | None) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(answer, error)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        else:
            self.finish(None, CancelledError(None, None, "the call was cancelled"))


class _Pool:
    """The peers of this process, by address, with how many use each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[GrpcPeer, int]] = {}

    def get(self, address: str) -> GrpcPeer:
        with self._lock:
            held = self._held.get(address)
            peer, uses = held if held is not None else (GrpcPeer(address, self._drop), 0)
            self._held[address] = peer, uses + 1
            return peer

    def _drop(self, peer: GrpcPeer) -> bool:
        """True where that was its last use."""
        with self._lock:
            held = self._held.get(peer.address)
            if held is None or held[0] is not peer:
                return False
            if held[1] > 1:
                self._held[peer.address] = peer, held[1] - 1
                return False
            del self._held[peer.address]
            return True

    def __len__(self) -> int:
        return len(self._held)


peers = _Pool()
