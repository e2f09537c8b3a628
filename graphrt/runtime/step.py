"""Step: one run of a set of plans.

Segments that are ready queue up; `CallerStep` runs them on the thread that asked for the step, which
otherwise waits, with a deadline that can say for what. The first error cancels everything: waiting nodes,
receivers, and segments to come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from graphrt.compiler.step_graph import Node
from graphrt.core.errors import CancelledError, DeadlineExceededError, OpError, describe, source_line
from graphrt.runtime.plan import Plan, Segment
from graphrt.runtime.rendezvous import Rendezvous


class StepContext:
    """What kernels and generated code see of a step.

    Attributes:
      step_id: random 63-bit number.
      is_cancelled: True from the first error on.
      is_traced: every kernel is timed; `records` has (node, start ns, end ns, outputs).
      rendezvous: where its tensors meet.
    """

    def __init__(self, step_id: int, rendezvous: Any = None, is_traced: bool = False) -> None:
        self.step_id = step_id
        self.is_cancelled = False
        self.is_traced = is_traced
        self.records: list[tuple[Node, int, int, Any]] = []
        self.error: OpError | None = None
        self._rendezvous = rendezvous
        self._on_cancel: dict[int, Callable[[OpError], None]] = {}
        self._next_token = 0
        self._lock = threading.Lock()

    @property
    def rendezvous(self) -> Any:
        if self._rendezvous is None:
            self._rendezvous = Rendezvous()
        return self._rendezvous

    def trace(self, node: Node, start: int, end: int, outputs: Any) -> None:
        self.records.append((node, start, end, outputs))

    def raise_cancelled(self) -> None:
        raise self.error or CancelledError(None, None, "the step was cancelled")

    def on_cancel(self, callback: Callable[[OpError], None]) -> int:
        """Call `callback(error)` once if the step is cancelled; returns a token for `forget`. At once if it
        was."""
        with self._lock:
            if self.error is None:
                self._next_token += 1
                self._on_cancel[self._next_token] = callback
                return self._next_token
        callback(self.error)
        return 0

    def forget(self, token: int) -> None:
        with self._lock:
            self._on_cancel.pop(token, None)

    def fail(self, error: BaseException) -> None:
        """End the step with `error`; the first one stays."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error if isinstance(error, OpError) else describe(error)
            self.is_cancelled = True
            callbacks, self._on_cancel = list(self._on_cancel.values()), {}
        for callback in callbacks:
            callback(self.error)
        if self._rendezvous is not None:
            self._rendezvous.abort(self.error)
        self._wake()

    cancel = fail

    def on_feed(self, index: int, done: Callable[[Any], None]) -> None:
        """Call `done(value)` when feed `index` of a partial run is given."""
        raise CancelledError(None, None, "only partial runs take feeds later")

    def _wake(self) -> None:
        """Let whoever runs the step look at it."""


class PlanRun:
    """One plan within one step: values by slot, and what its segments still wait for."""

    def __init__(self, plan: Plan, step: Step, feeds: Any) -> None:
        self.plan, self.step = plan, step
        self.fetches: list[Any] = [NOT_YET] * plan.retval_count
        self.r: list[Any] = [None] * plan.slot_count
        self.r += [self, self.fetches]
        for node in plan.args:
            self.r[plan.layout.slots[node, 0]] = feeds[node.attrs["index"]]
        self._missing = [len(s.awaits) + len(s.after) for s in plan.segments]
        self._followers, self._takers = _dependents(plan)
        self.remaining = len(plan.segments) + len(plan.waiting)
        self.waiting: dict[Node, float] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        for segment, missing in zip(self.plan.segments, list(self._missing)):
            if missing == 0:
                self.step.enqueue(self, segment)

    def started(self, node: Node) -> None:
        self.waiting[node] = time.monotonic()

    def arrived(self, node: Node) -> None:
        """The outputs of a waiting node are in their slots."""
        self.waiting.pop(node, None)
        self._release(self._takers.get(node, ()))

    def ran(self, segment: Segment) -> None:
        self._release(self._followers[segment.index])

    def _release(self, segments: Any) -> None:
        ready = []
        with self._lock:
            self.remaining -= 1
            is_over = self.remaining == 0
            for index in segments:
                self._missing[index] -= 1
                if self._missing[index] == 0:
                    ready.append(index)
        for index in ready:
            self.step.enqueue(self, self.plan.segments[index])
        if is_over:
            self.step.plan_over()


class NotYet:
    """The value of a fetch that has not come."""


NOT_YET = NotYet()


def _dependents(plan: Plan) -> tuple[list[list[int]], dict[Node, list[int]]]:
    """Segments after each segment, and segments that take each waiting node's outputs. Cached on the plan."""
    cached = plan.__dict__.get("_dependents")
    if cached is None:
        followers: list[list[int]] = [[] for _ in plan.segments]
        takers: dict[Node, list[int]] = {}
        for segment in plan.segments:
            for index in segment.after:
                followers[index].append(segment.index)
            for node in segment.awaits:
                takers.setdefault(node, []).append(segment.index)
        cached = plan.__dict__["_dependents"] = followers, takers
    return cached


class Step(StepContext):
    """A step over several plans, or over plans that wait. Subclasses say who runs ready segments."""

    def __init__(
        self,
        plans: list[Plan],
        feeds: list[Any],
        step_id: int,
        rendezvous: Any = None,
        is_traced: bool = False,
    ) -> None:
        super().__init__(step_id, rendezvous if rendezvous is not None else Rendezvous(), is_traced)
        self._ready: deque[tuple[PlanRun, Segment]] = deque()
        self.runs = [PlanRun(p, self, feeds) for p in plans]
        self._unfinished = len(plans)
        self.began = time.monotonic()

    def begin(self) -> None:
        for run in self.runs:
            run.begin()

    def enqueue(self, run: PlanRun, segment: Segment) -> None:
        self._ready.append((run, segment))
        self._wake()

    def release(self) -> None:
        """Let go what a finished step held: its runs and their values refer to each other, and would stay
        until the garbage collector came by."""
        for run in self.runs:
            run.r.clear()
        self.runs = []

    def plan_over(self) -> None:
        with self._lock:
            self._unfinished -= 1
        self._wake()

    @property
    def is_over(self) -> bool:
        return self._unfinished == 0 or self.error is not None

    def run_ready(self) -> None:
        """Run queued segments until there is none; an error ends the step."""
        while self._ready and self.error is None:
            try:
                run, segment = self._ready.popleft()
            except IndexError:
                return
            try:
                run.plan.run_segment(segment, self, run.r)
            except Exception as error:
                self.fail(error)
                return
            run.ran(segment)

    def awaited(self) -> list[str]:
        """Lines that say what the step waits for, and since when."""
        now = time.monotonic()
        lines = []
        for run in self.runs:
            for node, since in list(run.waiting.items()):
                where = f" built at {source_line(node.location)}" if node.location else ""
                what = f"'{node.name}' ({node.type})"
                if node.type in ("_Recv", "_HostRecv"):
                    what = f"'{node.attrs['tensor_name'].decode()}' from {node.attrs['send_device'].decode()}"
                elif waited := _waits_for(node):
                    what += f" on '{waited}'"
                lines.append(f"  {what} since {now - since:.1f} s{where}")
        return lines

    def deadline_error(self, waited: float) -> DeadlineExceededError:
        lines = self.awaited()
        things = f"{len(lines)} op{'s' if len(lines) != 1 else ''}" if lines else "its kernels"
        return DeadlineExceededError(
            None, None, "\n".join([f"step waited {waited:.1f} s for {things}:", *lines])
        )


def _waits_for(node: Node) -> str:
    """The queue (or another resource) that a waiting node's first input names."""
    return node.inputs[0][0].name if node.inputs else ""


class CallerStep(Step):
    """A step that the calling thread runs."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._turn = threading.Semaphore(0)
        super().__init__(*args, **named)

    def _wake(self) -> None:
        self._turn.release()

    def run_until(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        """Run segments, and wait for others to become ready, until `is_done()` or an error.

        Args:
          deadline: time.monotonic() at which the wait ends with DeadlineExceededError; None has none.
        Raises:
          OpError: the first error of the step.
        """
        try:
            while True:
                self.run_ready()
                if self.error is not None:
                    raise self.error
                if is_done():
                    return
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0 or not self._turn.acquire(timeout=left):
                    self.fail(self.deadline_error(time.monotonic() - self.began))
        except BaseException as error:
            # Ctrl-C: whatever waits is told.
            if self.error is None:
                self.fail(CancelledError(None, None, f"the step was interrupted: {type(error).__name__}"))
            raise

    def run(self, deadline: float | None) -> None:
        self.begin()
        self.run_until(lambda: self._unfinished == 0, deadline)


class ImmediateStep(StepContext):
    """The context of a step that is one call."""
