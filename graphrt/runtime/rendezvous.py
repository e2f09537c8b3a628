"""Rendezvous: where the tensors of one step meet their receivers.

A send never blocks; a receive is a callback, called when the tensor is there; an abort hands every waiter,
now and later, the first error. `RendezvousState` is the decision table as a pure machine (events in,
instructions out); `Rendezvous` is that under a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from graphrt.core.errors import AbortedError, OpError

Done = Callable[[Any, bool, OpError | None], None]


class Deliver(NamedTuple):
    """Call `done(value, is_dead, error)`."""

    done: Done
    value: Any
    is_dead: bool
    error: OpError | None


class RendezvousState:
    """Values that wait for a receiver and receivers that wait for a value, by key."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, bool]] = {}
        self.waiting: dict[str, tuple[Done, float]] = {}
        self.taken: set[str] = set()
        self.error: OpError | None = None

    def on_send(self, key: str, value: Any, is_dead: bool) -> list[Deliver]:
        """Raises AbortedError where the key was sent before in this step."""
        if self.error is not None:
            return []
        if key in self.taken or key in self.values:
            raise AbortedError(None, None, f"the tensor '{key}' was sent twice in one step")
        waiter = self.waiting.pop(key, None)
        if waiter is not None:
            self.taken.add(key)
            return [Deliver(waiter[0], value, is_dead, None)]
        self.values[key] = value, is_dead
        return []

    def on_recv(self, key: str, done: Done, now: float) -> list[Deliver]:
        if self.error is not None:
            return [Deliver(done, None, False, self.error)]
        if key in self.values:
            value, is_dead = self.values.pop(key)
            self.taken.add(key)
            return [Deliver(done, value, is_dead, None)]
        if key in self.taken or key in self.waiting:
            error = AbortedError(None, None, f"the tensor '{key}' was asked for twice in one step")
            return [Deliver(done, None, False, error)]
        self.waiting[key] = done, now
        return []

    def on_abort(self, error: OpError) -> list[Deliver]:
        """The first error stays; every waiter gets it."""
        if self.error is None:
            self.error = error
        waiters, self.waiting = list(self.waiting.values()), {}
        self.values.clear()
        return [Deliver(done, None, False, self.error) for done, _ in waiters]

    def awaited(self) -> list[tuple[str, float]]:
        """(key, since when) of every receiver that waits."""
        return [(key, since) for key, (_, since) in self.waiting.items()]


class Rendezvous:
    """The rendezvous of one step in one process; callbacks run on the thread that brings the value."""

    def __init__(self) -> None:
        self._state = RendezvousState()
        self._lock = threading.Lock()

    def send(self, key: str, value: Any, is_dead: bool = False) -> None:
        with self._lock:
            todo = self._state.on_send(key, value, is_dead)
        _carry_out(todo)

    def recv(self, key: str, done: Done) -> None:
        with self._lock:
            todo = self._state.on_recv(key, done, time.monotonic())
        _carry_out(todo)

    def abort(self, error: OpError) -> None:
        with self._lock:
            todo = self._state.on_abort(error)
        _carry_out(todo)

    def awaited(self) -> list[tuple[str, float]]:
        with self._lock:
            return self._state.awaited()

    def forget_waiter(self, key: str) -> None:
        """Whoever waits for `key` has gone: it may be asked for again."""
        with self._lock:
            self._state.waiting.pop(key, None)

    @property
    def is_empty(self) -> bool:
        """True where no value waits to be taken, and nobody for a value."""
        state = self._state
        return not state.values and not state.waiting


def _carry_out(instructions: list[Deliver]) -> None:
    for done, value, is_dead, error in instructions:
        done(value, is_dead, error)


def make_key(
    send_device: str, incarnation: int, recv_device: str, tensor_name: str, frame_iteration: str = "0:0"
) -> str:
    """TensorFlow's key: the incarnation as 16 hexadecimal digits (of its unsigned form)."""
    return (
        f"{send_device};{incarnation & 0xFFFFFFFFFFFFFFFF:016x};{recv_device};{tensor_name};{frame_iteration}"
    )


class ParsedKey(NamedTuple):
    send_device: str
    incarnation: int
    recv_device: str
    tensor_name: str
    frame_iteration: str


def parse_key(key: str) -> ParsedKey:
    """The parts of a key. Raises InvalidArgumentError where it is malformed."""
    from graphrt.core.errors import InvalidArgumentError

    parts = key.split(";")
    if len(parts) != 5 or len(parts[1]) != 16 or not all(c in "0123456789abcdef" for c in parts[1]):
        raise InvalidArgumentError(
            None,
            None,
            f"malformed rendezvous key {key!r}: it is "
            "send_device;16 hex digits;recv_device;tensor_name;frame:iteration",
        )
    return ParsedKey(parts[0], int(parts[1], 16), *parts[2:])
