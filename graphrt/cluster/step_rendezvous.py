"""The rendezvous that a step's plans see at a worker: tensors of this task meet here, others are pushed or
pulled.

Where master and workers are graphrt's (`is_pushed`), the producer pushes what is small as soon as it is
there, and announces what is big; the receiver pulls that once its `_Recv` has started, so memory is filled by
what is wanted. With TensorFlow at an end, every tensor is pulled by RecvTensor."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from graphrt.cluster.wire_errors import at_task
from graphrt.core.device_names import parse
from graphrt.core.errors import OpError
from graphrt.runtime.rendezvous import Done, parse_key
from graphrt.transport.tensors import int_field, length_field, pack, read_recv_response, size_of, unpack

TENSOR, ANNOUNCED = 1, 2
PULL_METHOD = "/graphrt.PeerService/Pull"
RECV_METHOD = "/tensorflow.WorkerService/RecvTensor"
# Larger tensors are announced, and pulled when they are wanted.
PUSHED_UP_TO = 1 << 20
_PREFIX = struct.Struct("<qI")
_BLOCK = 64


def tensor_prefix(step_id: int, key: str) -> bytes:
    """What stands before a pushed tensor, and all of an announcement or a pull: whole blocks, so that what
    follows is aligned."""
    text = key.encode()
    made = _PREFIX.pack(step_id, len(text)) + text
    return made + b"\0" * (-len(made) % _BLOCK)


def read_prefix(message: Any) -> tuple[int, str, int]:
    """(step id, key, bytes that it took)."""
    step_id, length = _PREFIX.unpack_from(message)
    end = _PREFIX.size + length
    return step_id, str(bytes(message[_PREFIX.size : end]), "utf-8"), end + (-end % _BLOCK)


def task_of_device(device: str) -> str:
    """'/job:ps/replica:0/task:1' of a full device name."""
    return str(parse(device)._replace(type=None, index=None))


class Announced:
    """In place of a value: the producer keeps it until it is pulled."""

    __slots__ = ()


ANNOUNCEMENT = Announced()


class StepRendezvous:
    """See the module.

    Args:
      entry: the worker's StepEntry.
      graph: the registered graph: `peer_of(key)` is the Peer at the other end, None for this task.
    """

    def __init__(self, entry: Any, graph: Any) -> None:
        self._entry, self._graph = entry, graph
        self._local = entry.rendezvous
        self._cancels: dict[str, Callable[[], None]] = {}
        self._error: OpError | None = None

    def send(self, key: str, value: Any, is_dead: bool = False) -> None:
        peer = self._graph.peer_of(key, True)
        if peer is None or not self._graph.is_pushed:
            self._local.send(key, value, is_dead)
            return
        packed = pack(value, is_dead)
        prefix = tensor_prefix(self._entry.step_id, key)
        if size_of(packed) > PUSHED_UP_TO:
            self._local.send(key, value, is_dead)
            peer.post(ANNOUNCED, prefix, self._failed)
        else:
            peer.post(TENSOR, [prefix, *packed], self._failed)

    def _failed(self, error: OpError) -> None:
        running = self._entry.running
        if running is not None:
            running.fail(error)

    def recv(self, key: str, done: Done) -> None:
        peer = self._graph.peer_of(key, False)
        if peer is None:
            self._local.recv(key, done)
        elif self._graph.is_pushed:

            def arrived(value: Any, is_dead: bool, error: OpError | None) -> None:
                if value is ANNOUNCEMENT:
                    self._pull(peer, PULL_METHOD, tensor_prefix(self._entry.step_id, key), unpack, key, done)
                else:
                    done(value, is_dead, error)

            self._local.recv(key, arrived)
        else:
            step_id, text = self._entry.step_id, key.encode()
            request = (
                int_field(1, step_id)
                + length_field(2, len(text))
                + text
                + int_field(7, self._graph.new_request_id())
            )
            self._pull(peer, RECV_METHOD, request, read_recv_response, key, done)

    def _pull(
        self,
        peer: Any,
        method: str,
        request: bytes,
        read: Callable[[Any], tuple[Any, bool]],
        key: str,
        done: Done,
    ) -> None:
        def answered(answer: Any, error: OpError | None) -> None:
            self._cancels.pop(key, None)
            if error is None:
                try:
                    value, is_dead = read(answer)
                except OpError as malformed:
                    error = malformed
            if error is not None:
                done(
                    None,
                    False,
                    self._error or at_task(error, task_of_device(parse_key(key).send_device), peer.address),
                )
            else:
                done(value, is_dead, None)

        if self._error is not None:
            done(None, False, self._error)
            return
        is_over = [False]

        def once(answer: Any, error: OpError | None) -> None:
            is_over[0] = True
            answered(answer, error)

        cancel = peer.call(method, request, once)
        if not is_over[0]:
            self._cancels[key] = cancel
            if self._error is not None:
                cancel()

    def abort(self, error: OpError) -> None:
        """Everyone who waits gets `error`, here and at the other tasks that ask this one."""
        if self._error is None:
            self._error = error
        self._local.abort(error)
        for cancel in list(self._cancels.values()):
            cancel()

    def awaited(self) -> list[tuple[str, float]]:
        return self._local.awaited()
