"""RemoteTask: another task of the cluster as a master's session knows it. And `gather`, which waits for
several calls at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from graphrt.core.device_names import parse as parse_device
from graphrt.core.errors import AbortedError, DeadlineExceededError, InternalError, OpError, UnavailableError
from graphrt.core.registry import OpDef
from graphrt.protos import worker_pb2
from graphrt.runtime.devices import AcceleratorDevice
from graphrt.transport.tensors import parse

WORKER = "/tensorflow.WorkerService/"
# How long a step waits for a task that nobody has reached yet, where its session sets no timeout.
CONNECT_TIMEOUT = 60.0
_REPORT_EVERY = 10.0
_STATUS_TIMEOUT = 5.0
_log = logging.getLogger("graphrt")


class RemoteDevice:
    """A device of another task, as the compiler asks of it."""

    def __init__(self, name: str, kind: str, memory_limit: int, incarnation: int) -> None:
        self.name, self.type, self.memory_limit, self.incarnation = name, kind, memory_limit, incarnation
        self.index = parse_device(name).index or 0

    def supports(self, op_def: OpDef, dtypes: list[Any] | None = None) -> bool:
        if self.type == "CPU":
            return True
        return AcceleratorDevice.supports(self, op_def, dtypes)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{self.name}>"


class RemoteTask:
    """See the module.

    Attributes:
      name: '/job:ps/replica:0/task:0'; address: 'host:port'.
      devices: None until the task was reached.
      lost: why no step of the session can use it any more: it was restarted.
      has_session: CreateWorkerSession was done.
    """

    def __init__(self, name: str, address: str, transport: Any) -> None:
        self.name, self.address = name, address
        self._transport = transport
        self._peer: Any = None
        self.devices: list[RemoteDevice] | None = None
        self.lost: OpError | None = None
        self.has_session = False

    @property
    def peer(self) -> Any:
        if self._peer is None:
            self._peer = self._transport.peer(self.address)
        return self._peer

    @property
    def is_graphrt(self) -> bool:
        return bool(self._peer is not None and self._peer.is_graphrt)

    @property
    def incarnation(self) -> int:
        return self.devices[0].incarnation if self.devices else 0

    def presumed(self) -> list[RemoteDevice]:
        """Its devices, or the one that every task has where nobody asked it yet."""
        return self.devices or [RemoteDevice(f"{self.name}/device:CPU:0", "CPU", 0, 0)]

    def learn(self, status: Any) -> None:
        """Take its devices from a GetStatus answer."""
        found = parse(worker_pb2.GetStatusResponse, status).device_attributes
        devices = [
            RemoteDevice(d.name, d.device_type, d.memory_limit, d.incarnation)
            for d in found
            if d.device_type in ("CPU", "GPU") and d.name.startswith(self.name + "/")
        ]
        if not devices:
            names = ", ".join(d.name for d in found) or "none"
            raise UnavailableError(
                None,
                None,
                f"{self.address} is not {self.name}: its devices are {names}. Is the cluster the same "
                "at every task?",
            )
        self.devices = devices

    def explain_lost(self, error: OpError, then: Callable[[OpError], None]) -> None:
        """Find out whether a task that does not know a graph was restarted; `then` gets what to report."""

        def told(answer: Any, failure: OpError | None) -> None:
            if failure is None:
                found = parse(worker_pb2.GetStatusResponse, answer).device_attributes
                now = found[0].incarnation if found else 0
                if now != self.incarnation:
                    self.lost = AbortedError(
                        None,
                        None,
                        f"{self.name} at {self.address} was restarted: its incarnation was "
                        f"{self.incarnation}, and is {now} now. Its variables are gone: make a new session, "
                        "and "
                        "initialise or restore them",
                    )
                    then(self.lost)
                    return
            then(error)

        self.peer.call(WORKER + "GetStatus", b"", told, _STATUS_TIMEOUT)

    def unavailable(self, error: OpError, what: str) -> UnavailableError:
        return UnavailableError(None, None, f"{self.name} at {self.address} {what}: {error.message}")

    def release(self) -> None:
        if self._peer is not None:
            peer, self._peer = self._peer, None
            peer.release()


Begin = Callable[[Callable[[Any, OpError | None], None]], Any]


def gather(calls: list[tuple[str, Begin]], timeout: float) -> list[tuple[Any, OpError | None]]:
    """Begin calls and wait for all answers: (answer, error) of each.

    Args:
      calls: (what is awaited and from whom, function that begins it with a `done`).
      timeout: seconds; an answer that is missing then is a DeadlineExceededError.
    """
    answers: list[tuple[Any, OpError | None] | None] = [None] * len(calls)
    turn = threading.Semaphore(0)

    def settle(i: int, answer: Any, error: OpError | None) -> None:
        if answers[i] is None:
            answers[i] = answer, error
            turn.release()

    began = time.monotonic()
    for i, (_, begin) in enumerate(calls):
        begin(lambda answer, error, i=i: settle(i, answer, error))
    missing = len(calls)
    while missing:
        left = timeout - (time.monotonic() - began)
        if left <= 0:
            break
        if turn.acquire(timeout=min(left, _REPORT_EVERY)):
            missing -= 1
        else:
            waited = time.monotonic() - began
            for (what, _), answer in zip(calls, answers):
                if answer is None:
                    _log.warning("waiting for %s for %.0f s", what, waited)
    for i, (what, _) in enumerate(calls):
        settle(i, None, DeadlineExceededError(None, None, f"waited {timeout:.1f} s for {what}"))
    if any(a is None for a in answers):
        raise InternalError(None, None, "a call has neither an answer nor an error")
    return answers  # type: ignore[return-value]


def first_error(answers: list[tuple[Any, OpError | None]]) -> None:
    """Raise the first error among answers."""
    for _, error in answers:
        if error is not None:
            raise error
