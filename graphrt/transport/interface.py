"""The transport: what the cluster asks of whatever moves its messages.

A `Peer` is a server elsewhere; a `Service` is what a server answers with. Nothing here waits: `call` returns
at once, and its `done` is called once, on whatever thread brings the answer. `done` and handlers must be
short, or hand on to a thread. Messages are bytes, or lists of buffers that are sent as if they were joined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from graphrt.core.errors import OpError

Buffers = bytes | bytearray | memoryview | list[Any]
# done(answer, None) or done(None, error)
Done = Callable[[Any, OpError | None], None]


class Peer(Protocol):
    """A server, by its address. Thread-safe.

    Attributes:
      address: 'host:port'.
      is_graphrt: it takes posts; None until it has answered once.
      heard: time.monotonic() of the last sign of life; 0.0 before any.
    """

    address: str
    is_graphrt: bool | None
    heard: float

    def call(
        self,
        method: str,
        request: Buffers,
        done: Done,
        timeout: float | None = None,
        wait_for_server: bool = False,
    ) -> Callable[[], None]:
        """Begin a call.

        Args:
          method: as '/tensorflow.WorkerService/RunGraph'.
          timeout: seconds until it ends with DeadlineExceededError; None has no end but the peer's loss.
          wait_for_server: keep trying while nobody listens, where it would be an UnavailableError.
        Returns:
          What cancels the call: `done` then gets a CancelledError, if it had nothing yet.
        """
        ...

    def post(self, kind: int, message: Buffers, failed: Callable[[OpError], None]) -> None:
        """Send a message that has no answer, to a graphrt peer. Messages arrive in order, each once, or the
        link is lost.

        Args:
          kind: one byte, told to the service.
          failed: called where it cannot be sent.
        """
        ...

    def release(self) -> None:
        """Give up this use of the peer; the last one closes it."""
        ...


class Request:
    """A call that a service answers: `reply` or `fail`, once, from any thread.

    Attributes:
      method: as in Peer.call; payload: the message, a buffer.
      link: identifies the caller's link: calls of one link come from one process. None where the caller has
        none.
    """

    __slots__ = ("method", "payload", "link", "_answer", "_cancelled", "is_cancelled")

    def __init__(self, method: str, payload: Any, answer: Done, link: Any = None) -> None:
        self.method, self.payload, self.link, self._answer = method, payload, link, answer
        self._cancelled: Callable[[], None] | None = None
        self.is_cancelled = False

    def reply(self, message: Buffers) -> None:
        self._answer(message, None)

    def fail(self, error: OpError) -> None:
        self._answer(None, error)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` where the caller gives up or is lost; at once where it has."""
        self._cancelled = callback
        if self.is_cancelled:
            callback()

    def cancel(self) -> None:
        """The transport says that nobody waits for the answer."""
        self.is_cancelled = True
        if self._cancelled is not None:
            self._cancelled()


class Service(Protocol):
    """What answers at a server. Its methods run on the transport's thread."""

    def handle(self, request: Request) -> None: ...

    def posted(self, kind: int, message: Any, link: Any) -> None: ...

    def link_opened(self, link: Any) -> None: ...

    def link_lost(self, link: Any) -> None: ...


class Listener(Protocol):
    """A server's open port. `address` is 'host:port' with the port that was bound."""

    address: str

    def start(self, service: Service) -> None: ...

    def stop(self, grace: float) -> None: ...


class Transport(Protocol):
    """A way to listen and to reach peers."""

    def listen(self, address: str) -> Listener: ...

    def peer(self, address: str) -> Peer: ...
