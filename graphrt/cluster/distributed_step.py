"""A step over several tasks: the own task's plans here, RunGraph at the others. The first error ends it
everywhere."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from graphrt.cluster.remote_task import WORKER, RemoteTask
from graphrt.cluster.wire_errors import at_task, from_body
from graphrt.core.errors import AbortedError, NotFoundError, OpError, UnavailableError
from graphrt.protos import worker_pb2
from graphrt.runtime.pooled_step import PooledStep
from graphrt.runtime.step import CallerStep
from graphrt.transport.tensors import int_field, parse

_random = random.Random(random.SystemRandom().getrandbits(64))


class RemotePart:
    """A partition that is registered at another task.

    Attributes:
      plain, traced: RunGraphRequests without step and request ids.
    """

    def __init__(self, task: RemoteTask, session_handle: str, graph_handle: str) -> None:
        self.task = task
        named: dict[str, Any] = {
            "session_handle": session_handle,
            "graph_handle": graph_handle,
            "create_worker_session_called": True,
            "store_errors_in_response_body": True,
        }
        self.plain = worker_pb2.RunGraphRequest(**named).SerializeToString()
        self.traced = worker_pb2.RunGraphRequest(
            exec_opts=worker_pb2.ExecutorOpts(record_timeline=True, record_costs=False), **named
        ).SerializeToString()

    def request(self, step_id: int, is_traced: bool) -> bytes:
        return (
            (self.traced if is_traced else self.plain)
            + int_field(2, step_id)
            + int_field(11, _random.getrandbits(63) | 1)
        )


class Distributed:
    """What makes a Step one over several tasks; mixed into the steps of a calling thread and of the pool.

    Args:
      parts: the other tasks' partitions.
      explained: another task's error with what the master knows of the node that it names.
    """

    def __init__(
        self, *args: Any, parts: list[RemotePart], explained: Callable[[OpError], OpError], **named: Any
    ) -> None:
        self._parts, self._explained = parts, explained
        self._cancels: dict[RemotePart, Callable[[], None]] = {}
        self._pending: dict[RemotePart, float] = {}
        self.metadata: list[Any] = []
        super().__init__(*args, **named)
        self._unfinished += len(parts)  # type: ignore[has-type]

    def begin(self) -> None:
        step: Any = self
        now = time.monotonic()
        for part in self._parts:
            self._pending[part] = now
        for part in self._parts:
            cancel = part.task.peer.call(
                WORKER + "RunGraph", part.request(step.step_id, step.is_traced), _PartDone(self, part)
            )
            if part in self._pending:
                self._cancels[part] = cancel
        step.on_cancel(self._end_parts)
        super().begin()  # type: ignore[misc]

    def _end_parts(self, error: OpError) -> None:
        """Tell every other task that the step is over."""
        for cancel in list(self._cancels.values()):
            cancel()
        self.clean_up()

    def clean_up(self) -> None:
        request = int_field(1, self.step_id)  # type: ignore[attr-defined]
        for part in self._parts:
            part.task.peer.call(WORKER + "CleanupGraph", request, _ignore)

    def part_over(self, part: RemotePart, answer: Any, error: OpError | None) -> None:
        """A task answered RunGraph."""
        step: Any = self
        self._pending.pop(part, None)
        self._cancels.pop(part, None)
        if error is None and len(answer):
            made = parse(worker_pb2.RunGraphResponse, answer)
            error = from_body(made.status_code, made.status_error_message)
            if error is None and made.HasField("step_stats"):
                self.metadata.append(made.step_stats)
        if error is None:
            step.plan_over()
        elif step.error is None:
            self._part_failed(part, error)

    def _part_failed(self, part: RemotePart, error: OpError) -> None:
        step: Any = self
        task = part.task
        if (
            isinstance(error, UnavailableError)
            and task.address in error.message
            and task.name not in error.message
        ):
            step.fail(task.unavailable(error, f"was lost in step {step.step_id}"))
        elif isinstance(error, (AbortedError, NotFoundError)) and (
            "not registered at" in error.message or "handle" in error.message
        ):
            task.explain_lost(error, lambda told: step.fail(at_task(told, task.name, task.address)))
        else:
            step.fail(at_task(self._explained(error), task.name, task.address))

    def awaited(self) -> list[str]:
        now = time.monotonic()
        lines = super().awaited()  # type: ignore[misc]
        for part, since in list(self._pending.items()):
            heard = part.task.peer.heard
            said = f", last heard from {now - heard:.1f} s ago" if heard else ""
            lines.append(
                f"  the part of {part.task.name} at {part.task.address} since {now - since:.1f} s{said}"
            )
        return lines


class _PartDone:
    __slots__ = ("step", "part")

    def __init__(self, step: Distributed, part: RemotePart) -> None:
        self.step, self.part = step, part

    def __call__(self, answer: Any, error: OpError | None) -> None:
        self.step.part_over(self.part, answer, error)


def _ignore(answer: Any, error: OpError | None) -> None:
    """A CleanupGraph is a courtesy: the step expires at a task that it did not reach."""


class DistributedCallerStep(Distributed, CallerStep):
    """Run by the thread that asked for it."""


class DistributedPooledStep(Distributed, PooledStep):
    """Run by the compute pool."""
