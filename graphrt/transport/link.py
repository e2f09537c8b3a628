"""A link: calls, answers and posts of two graphrt processes as frames on one stream. The decisions, without a
socket.

What is sent is queued as frames and leaves in messages that hold as many as are waiting; a payload above
`PIECE` travels in pieces, between which small frames pass, so a big tensor never delays a step's control.
Silence is a loss: each side sends a sign of life every `BEAT` seconds, and gives the link up after `SILENCE`
without any.

A frame: kind (1 byte; with CONTINUED, a further piece), 3 empty, id (4), length of its head (4), length of
this piece (4), length of the whole payload (8), the head, the piece; head and piece are filled up to 16
bytes, so that a tensor is aligned where it arrives. Integers are little-endian."""

from __future__ import annotations

import itertools
import os
import struct
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from graphrt.core.errors import OpError, ResourceExhaustedError, UnavailableError, from_code

PIECE = 1 << 20
BEAT = 10.0
SILENCE = 30.0
# What a message may carry, in bytes: GRAPHRT_MAX_MESSAGE_BYTES, or 64 GiB.
MAX_PAYLOAD = int(os.environ.get("GRAPHRT_MAX_MESSAGE_BYTES") or 1 << 36)
CALL, ANSWER, POST, CANCEL, LIFE = 1, 2, 3, 4, 5
CONTINUED = 0x80
_HEADER = struct.Struct("<BxxxIIIQ")
_ALIGN = 16
_LIMIT = 1 << 32
# Larger payloads are copied once, when they leave.
_JOINED_UP_TO = 1 << 14


class Called(NamedTuple):
    """The other side calls."""

    id: int
    method: str
    payload: Any


class Answered(NamedTuple):
    """A call of ours is answered."""

    id: int
    payload: Any
    error: OpError | None


class Posted(NamedTuple):
    kind: int
    payload: Any


class GivenUp(NamedTuple):
    """The other side does not wait for call `id` any more."""

    id: int


Event = Called | Answered | Posted | GivenUp


class LinkMachine:
    """One side of a link. Sending is thread-safe; taking messages in and out is for one thread.

    Attributes:
      heard: when the last message came.
    """

    def __init__(self, now: float) -> None:
        self.heard = now
        self._said = now
        self._ids = itertools.count(1)
        self._small: deque[tuple[int, list[Any]]] = deque()
        self._bulk: deque[_Outgoing] = deque()
        self._incoming: dict[tuple[int, int], _Incoming] = {}

    # -- sending -----------------------------------------------------------------------------------

    def new_id(self) -> int:
        """A number for a call; it is known before anything can answer it."""
        return next(self._ids) % _LIMIT

    def call(self, number: int, method: str, payload: Any) -> None:
        self._queue(CALL, number, method.encode(), payload)

    def answer(self, number: int, payload: Any) -> None:
        self._queue(ANSWER, number, b"", payload)

    def fail(self, number: int, error: OpError) -> None:
        self._queue(ANSWER, number, bytes((error.error_code,)) + error.message.encode(), b"")

    def post(self, kind: int, payload: Any) -> None:
        self._queue(POST, self.new_id(), bytes((kind,)), payload)

    def give_up(self, number: int) -> None:
        self._queue(CANCEL, number, b"", b"")

    def _queue(self, kind: int, number: int, head: bytes, payload: Any) -> None:
        buffers = payload if payload.__class__ is list else [payload]
        total = sum([len(b) for b in buffers])
        if total > MAX_PAYLOAD:
            raise ResourceExhaustedError(
                None,
                None,
                f"a message of {total} bytes is more than GRAPHRT_MAX_MESSAGE_BYTES allows ({MAX_PAYLOAD})",
            )
        if total <= PIECE:
            frame = _frame(kind, number, head, buffers, total, total)
            if total <= _JOINED_UP_TO:
                # Its buffers are free from here on.
                frame = [b"".join(frame)]
            self._small.append((_HEADER.size + len(head) + total, frame))
        else:
            self._bulk.append(_Outgoing(kind, number, head, buffers, total))

    @property
    def has_outgoing(self) -> bool:
        return bool(self._small or self._bulk)

    def next_message(self, now: float) -> bytes | None:
        """What to write next: all small frames up to a piece's size, and a piece of the payload whose turn it
        is."""
        small, frames, size = self._small, [], 0
        while small and size < PIECE:
            length, frame = small.popleft()
            frames += frame
            size += length
        if self._bulk and size < PIECE:
            outgoing = self._bulk.popleft()
            frames += outgoing.piece()
            if not outgoing.is_done:
                self._bulk.append(outgoing)
        if not frames:
            return None
        self._said = now
        return frames[0] if len(frames) == 1 else b"".join(frames)

    # -- receiving ---------------------------------------------------------------------------------

    def received(self, message: bytes, now: float) -> list[Event]:
        """What a message says, in order.

        Raises:
          UnavailableError: it is not a message of a link; the link is to be given up.
        """
        self.heard = now
        view = memoryview(message)
        events: list[Event] = []
        at = 0
        try:
            while at < len(view):
                kind, number, head_size, piece_size, total = _HEADER.unpack_from(view, at)
                at += _HEADER.size
                head = bytes(view[at : at + head_size])
                at += head_size
                at += -at % _ALIGN
                piece = view[at : at + piece_size]
                at += piece_size
                at += -at % _ALIGN
                if at > len(view) or piece_size > total:
                    raise ValueError("a frame's lengths are wrong")
                if total > MAX_PAYLOAD:
                    raise ValueError(
                        f"a message of {total} bytes, where GRAPHRT_MAX_MESSAGE_BYTES allows {MAX_PAYLOAD}"
                    )
                if kind & CONTINUED or piece_size < total:
                    complete = self._assemble(
                        kind & ~CONTINUED, number, head, piece, total, bool(kind & CONTINUED)
                    )
                    if complete is None:
                        continue
                    kind, head, piece = kind & ~CONTINUED, complete.head, memoryview(complete.buffer)
                if kind != LIFE:
                    events.append(_event(kind, number, head, piece))
        except (struct.error, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise UnavailableError(
                None, None, f"the link carries something else than frames: {error}"
            ) from None
        except MemoryError:
            raise ResourceExhaustedError(None, None, f"no memory for a message of {total} bytes") from None
        return events

    def _assemble(
        self, kind: int, number: int, head: bytes, piece: Any, total: int, is_continued: bool
    ) -> _Incoming | None:
        key = (kind, number)
        if is_continued:
            incoming = self._incoming[key]
        else:
            incoming = self._incoming[key] = _Incoming(head, total)
        incoming.add(piece)
        if incoming.missing:
            return None
        return self._incoming.pop(key)

    # -- signs of life -----------------------------------------------------------------------------

    def tick(self, now: float) -> UnavailableError | None:
        """Called every few seconds: queues a sign of life where nothing was said for a while. The error where
        the other side has been silent for too long."""
        if now - self.heard > SILENCE:
            return UnavailableError(None, None, f"nothing was heard for {now - self.heard:.1f} s")
        if now - self._said >= BEAT and not self.has_outgoing:
            self._queue(LIFE, 0, b"", b"")
        return None


def _frame(kind: int, number: int, head: bytes, buffers: list[Any], size: int, total: int) -> list[Any]:
    """The buffers of a frame that carries `size` bytes of a payload of `total`."""
    start = _HEADER.pack(kind, number, len(head), size, total) + head
    return [start + b"\0" * (-len(start) % _ALIGN), *buffers, b"\0" * (-size % _ALIGN)]


class _Outgoing:
    """A payload that leaves in pieces."""

    def __init__(self, kind: int, number: int, head: bytes, buffers: list[Any], total: int) -> None:
        self.kind, self.number, self.head, self.total = kind, number, head, total
        self.buffers = deque(memoryview(b) for b in buffers if len(b))
        self.left = total

    @property
    def is_done(self) -> bool:
        return self.left == 0

    def piece(self) -> list[Any]:
        taken: list[Any] = []
        room = PIECE
        while room and self.buffers:
            buffer = self.buffers[0]
            taken.append(buffer[:room])
            if len(buffer) <= room:
                self.buffers.popleft()
            else:
                self.buffers[0] = buffer[room:]
            room -= len(taken[-1])
        size = PIECE - room
        kind = self.kind if self.left == self.total else self.kind | CONTINUED
        self.left -= size
        head, self.head = self.head, b""
        return _frame(kind, self.number, head, taken, size, self.total)


class _Incoming:
    """A payload whose pieces come: they are copied once, into the memory that the tensor will have."""

    def __init__(self, head: bytes, total: int) -> None:
        self.head = head
        self.buffer = np.empty(total, np.uint8)
        self.at = 0

    @property
    def missing(self) -> int:
        return len(self.buffer) - self.at

    def add(self, piece: Any) -> None:
        if len(piece) > self.missing:
            raise ValueError("a payload is longer than it said")
        self.buffer[self.at : self.at + len(piece)] = np.frombuffer(piece, np.uint8)
        self.at += len(piece)


def _event(kind: int, number: int, head: bytes, payload: Any) -> Event:
    if kind == CALL:
        return Called(number, head.decode(), payload)
    if kind == ANSWER:
        return Answered(
            number, payload, from_code(head[0], head[1:].decode("utf-8", "replace")) if head else None
        )
    if kind == POST:
        return Posted(head[0], payload)
    if kind == CANCEL:
        return GivenUp(number)
    raise ValueError(f"unknown frame kind {kind}")
