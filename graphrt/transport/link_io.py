"""The shell around a LinkMachine: moves its messages over a gRPC stream, on the loop thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from graphrt.core.errors import CancelledError, OpError, UnavailableError
from graphrt.transport.interface import Done, Request, Service
from graphrt.transport.link import BEAT, Answered, Called, GivenUp, LinkMachine, Posted
from graphrt.transport.loop import LoopThread

LINK_METHOD = "/graphrt.PeerService/Link"
_TICK = BEAT / 2


class Link:
    """One side of an open link. `call` and `post` are thread-safe.

    Attributes:
      error: why it is lost; None while it is open.
      owner: free for the service, which may know by it whose link it is.
    """

    def __init__(self, io: LoopThread, service: Service | None, name: str) -> None:
        self._io, self._service, self.name = io, service, name
        self.machine = LinkMachine(time.monotonic())
        self.error: OpError | None = None
        self.owner: Any = None
        self._waiting: dict[int, Done] = {}
        self._answering: dict[int, Request] = {}
        self._wake = asyncio.Event()
        self._is_woken = False
        self._tasks: list[asyncio.Task[Any]] = []

    # -- sending -----------------------------------------------------------------------------------

    def call(self, method: str, payload: Any, done: Done) -> Callable[[], None]:
        machine = self.machine
        number = machine.new_id()
        self._waiting[number] = done
        try:
            machine.call(number, method, payload)
        except OpError as error:  # too big
            self._answered(number, None, error)
        self._flush()
        if self.error is not None:
            self._answered(number, None, self.error)

        def cancel() -> None:
            if number in self._waiting:
                machine.give_up(number)
                self._flush()
                self._answered(number, None, CancelledError(None, None, f"the call {method} was cancelled"))

        return cancel

    def post(self, kind: int, payload: Any) -> None:
        if self.error is not None:
            raise self.error
        self.machine.post(kind, payload)
        self._flush()

    def _flush(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            if self._io.is_here:
                self._wake.set()
            else:
                self._io.soon(self._wake.set)

    def _answered(self, number: int, payload: Any, error: OpError | None) -> None:
        done = self._waiting.pop(number, None)
        if done is not None:
            done(payload, error)

    # -- moving ------------------------------------------------------------------------------------

    async def run(self, read: Callable[[], Awaitable[Any]], write: Callable[[bytes], Awaitable[Any]]) -> None:
        """Move messages until the link is lost. `read()` gives no bytes at its end."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._write(write)), loop.create_task(self._tick())]
        if self._service is not None:
            self._service.link_opened(self)
        reason: OpError = UnavailableError(None, None, f"the link to {self.name} was closed")
        reading = loop.create_task(self._read(read))
        self._tasks.append(reading)
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = None if task.cancelled() else task.exception()
                if isinstance(error, OpError):
                    reason = error
                elif error is not None:
                    reason = UnavailableError(None, None, f"the link to {self.name} was lost: {_text(error)}")
        finally:
            self.lose(reason)

    def lose(self, reason: OpError) -> None:
        """The link is over: every call that waits ends with `reason`, and what the other side waits for is
        cancelled."""
        if self.error is not None:
            return
        self.error = reason
        for task in self._tasks:
            task.cancel()
        while self._waiting:
            _, done = self._waiting.popitem()
            done(None, reason)
        answering, self._answering = list(self._answering.values()), {}
        for request in answering:
            request.cancel()
        if self._service is not None:
            self._service.link_lost(self)

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> None:
        machine, service = self.machine, self._service
        while True:
            message = await read()
            if message.__class__ is not bytes:
                return
            for event in machine.received(message, time.monotonic()):
                kind = event.__class__
                if kind is Answered:
                    self._answered(*event)
                elif service is None:
                    raise UnavailableError(None, None, "the other side calls, and nothing here answers")
                elif kind is Posted:
                    service.posted(event.kind, event.payload, self)
                elif kind is Called:
                    self._serve(service, event)
                elif kind is GivenUp:
                    request = self._answering.pop(event.id, None)
                    if request is not None:
                        request.cancel()

    def _serve(self, service: Service, event: Called) -> None:
        number, machine = event.id, self.machine

        def answer(message: Any, error: OpError | None) -> None:
            self._answering.pop(number, None)
            if self.error is None:
                if error is None:
                    try:
                        machine.answer(number, message)
                    except OpError as too_big:
                        error = too_big
                if error is not None:
                    machine.fail(number, error)
                self._flush()

        request = self._answering[number] = Request(event.method, event.payload, answer, self)
        service.handle(request)

    async def _write(self, write: Callable[[bytes], Awaitable[Any]]) -> None:
        machine, wake = self.machine, self._wake
        while True:
            await wake.wait()
            wake.clear()
            # A step's thread often sends several things at once: they leave together.
            await asyncio.sleep(0)
            # From here on a sender wakes again: what it queues before the queue is looked at is taken now.
            self._is_woken = False
            while (message := machine.next_message(time.monotonic())) is not None:
                await write(message)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            lost = self.machine.tick(time.monotonic())
            if lost is not None:
                raise UnavailableError(None, None, f"{self.name}: {lost.message}")
            if self.machine.has_outgoing:
                self._flush()


def _text(error: BaseException) -> str:
    details = getattr(error, "details", None)
    return (details() if callable(details) else None) or f"{type(error).__name__} {error}".strip()
