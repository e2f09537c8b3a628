"""Peers in this process, called directly: the transport of tests, and of clusters within one process.

Messages are joined to bytes as a socket would, so what passes here passes there; an answer comes on the
thread that gives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from graphrt.core.errors import (
    AlreadyExistsError,
    CancelledError,
    DeadlineExceededError,
    OpError,
    UnavailableError,
)
from graphrt.transport.interface import Buffers, Done, Request, Service
from graphrt.transport.loop import io_loop


def _joined(message: Buffers) -> bytes:
    return b"".join(message) if isinstance(message, list) else bytes(message)


class InProcessTransport:
    """A network of its own: addresses are any text."""

    def __init__(self) -> None:
        self.listeners: dict[str, InProcessListener] = {}
        self._lock = threading.Lock()
        self._next_port = 1

    def listen(self, address: str) -> InProcessListener:
        with self._lock:
            host, _, port = address.rpartition(":")
            if port == "0":
                address = f"{host}:{self._next_port}"
                self._next_port += 1
            if address in self.listeners:
                raise AlreadyExistsError(None, None, f"{address} is listened on already")
            made = self.listeners[address] = InProcessListener(self, address)
            return made

    def peer(self, address: str) -> InProcessPeer:
        return InProcessPeer(self, address)


class _Link:
    """The one link of a peer to a listener."""

    owner: Any = None

    def __init__(self, name: str) -> None:
        self.name = name


class InProcessListener:
    """See interface.Listener."""

    def __init__(self, network: InProcessTransport, address: str) -> None:
        self._network, self.address = network, address
        self.service: Service | None = None
        self.open_calls: set[_Call] = set()
        self.links: set[_Link] = set()

    def start(self, service: Service) -> None:
        self.service = service

    def stop(self, grace: float) -> None:
        self._network.listeners.pop(self.address, None)
        gone = UnavailableError(None, None, f"the server at {self.address} was stopped")
        for call in list(self.open_calls):
            call.finish(None, gone)
        for link in list(self.links):
            self.drop(link)

    def drop(self, link: _Link) -> None:
        if link in self.links:
            self.links.discard(link)
            if self.service is not None:
                self.service.link_lost(link)


class _Call:
    def __init__(self, listener: InProcessListener, done: Done) -> None:
        self._listener = listener
        self._done: Done | None = done
        self._lock = threading.Lock()
        self.request: Request | None = None
        self.timer: Callable[[], None] | None = None

    def finish(self, message: Any, error: OpError | None) -> None:
        with self._lock:
            done, self._done = self._done, None
        if done is None:
            return
        self._listener.open_calls.discard(self)
        if self.timer is not None:
            self.timer()
        done(_joined(message) if error is None else None, error)

    def give_up(self, error: OpError) -> None:
        if self._done is not None:
            self.finish(None, error)
            if self.request is not None:
                self.request.cancel()


class InProcessPeer:
    """See interface.Peer."""

    is_graphrt: bool | None = True

    def __init__(self, network: InProcessTransport, address: str) -> None:
        self._network, self.address = network, address
        self.heard = 0.0
        self._link: tuple[InProcessListener, _Link] | None = None

    def _listener(self) -> InProcessListener:
        found = self._network.listeners.get(self.address)
        if found is None or found.service is None:
            raise UnavailableError(None, None, f"nobody listens at {self.address}")
        self.heard = time.monotonic()
        if self._link is None or self._link[0] is not found:
            link = _Link(f"in-process to {self.address}")
            self._link = found, link
            found.links.add(link)
            found.service.link_opened(link)
        return found

    def call(
        self,
        method: str,
        request: Buffers,
        done: Done,
        timeout: float | None = None,
        wait_for_server: bool = False,
    ) -> Callable[[], None]:
        try:
            listener = self._listener()
        except UnavailableError as error:
            done(None, error)
            return lambda: None
        call = _Call(listener, done)
        listener.open_calls.add(call)
        if timeout is not None:
            late = DeadlineExceededError(
                None, None, f"{self.address} did not answer {method} within {timeout:.1f} s"
            )
            call.timer = io_loop().later(timeout, lambda: call.give_up(late))
        assert listener.service is not None and self._link is not None
        call.request = Request(method, memoryview(_joined(request)), call.finish, self._link[1])
        listener.service.handle(call.request)
        return lambda: call.give_up(CancelledError(None, None, f"the call {method} was cancelled"))

    def post(self, kind: int, message: Buffers, failed: Callable[[OpError], None]) -> None:
        try:
            listener = self._listener()
        except UnavailableError as error:
            failed(error)
            return
        assert listener.service is not None and self._link is not None
        listener.service.posted(kind, memoryview(_joined(message)), self._link[1])

    def release(self) -> None:
        if self._link is not None:
            (listener, link), self._link = self._link, None
            listener.drop(link)


network = InProcessTransport()
