"""ClusterExecutable: a compiled signature whose partitions are registered; and its runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphrt.cluster.distributed_step import DistributedCallerStep, DistributedPooledStep, RemotePart
from graphrt.cluster.local import Collected, new_step_id, timed
from graphrt.cluster.wire_errors import from_wire, node_name
from graphrt.compiler.pipeline import CompiledStep
from graphrt.core.errors import DeadlineExceededError, OpError, from_code, source_line
from graphrt.protos import config_pb2
from graphrt.runtime.plan import Plan
from graphrt.runtime.pooled_step import compute_pool
from graphrt.runtime.step import NOT_YET, StepContext
from graphrt.transport.loop import io_loop

Answer = Callable[[list[Any] | None, Any, OpError | None], None]


def explained(compiled: CompiledStep, error: OpError) -> OpError:
    """An error of another task, with the operation that its text names and the line that built it, as far as
    known here."""
    named = from_wire(error)
    name = node_name(named)
    node = (
        next((n for p in compiled.partitions for n in p.graph.nodes if n.name == name), None)
        if name
        else None
    )
    if node is None:
        return named
    where = node.location if "built at" not in named.message else None
    if node.type in ("_Send", "_HostSend"):
        node = node.inputs[0][0]
    text = f"{named.message}\n  built at {source_line(where)}" if where is not None else named.message
    made = from_code(named.error_code, text)
    origin = node.origin
    made._node_def, made._op = (origin.node_def, origin) if origin is not None else (node, None)
    return made


class ClusterExecutable:
    """See the module.

    Args:
      session: the MasterSession.
      graph: the own task's registered partition; it has no plan where the step has none there.
      parts: the other tasks'.
      is_pushed: every task is a graphrt one.
    """

    def __init__(
        self, session: Any, compiled: CompiledStep, graph: Any, parts: list[RemotePart], is_pushed: bool
    ) -> None:
        self.session, self.compiled, self._graph, self.parts, self.is_pushed = (
            session,
            compiled,
            graph,
            parts,
            is_pushed,
        )
        self.plans: list[Plan] = graph.plans
        fetching = [i for i, p in enumerate(self.plans) if p.retval_count]
        self._fetching: int | None = fetching[0] if fetching else None
        self._immediate = (
            self.plans[0] if not parts and len(self.plans) == 1 and self.plans[0].is_immediate else None
        )
        self.feed_dtypes = [n.dtypes[0].base_dtype for n in compiled.step.args]

    def _fetched(self, step: Any) -> list[Any]:
        """The fetched values: arrays of the caller's own. One that came in a message is memory that cannot be
        written."""
        if self._fetching is None:
            return []
        values = step.runs[self._fetching].fetches
        for i, value in enumerate(values):
            if value.__class__ is np.ndarray and not value.flags.writeable:
                values[i] = value.copy()
        return values

    def _begin(self, kind: Any, feeds: list[Any], is_traced: bool, **named: Any) -> Any:
        step_id = new_step_id()
        for part in self.parts:
            if part.task.lost is not None:
                raise part.task.lost
        return self.session.worker.begin_step(
            self._graph,
            step_id,
            0,
            lambda rendezvous: kind(
                self.plans,
                feeds,
                step_id,
                rendezvous,
                is_traced,
                parts=self.parts,
                explained=partial(explained, self.compiled),
                **named,
            ),
        )

    def _over(self, step: Any) -> None:
        """The step is over at every task."""
        self.session.running.discard(step)
        self.session.worker.step_over(step.step_id, step.error)
        if step.error is not None or not self.is_pushed:
            self.session.worker.end_step(step.step_id, step.error)
        if step.error is None and not self.is_pushed:
            step.clean_up()

    # -- on the calling thread ---------------------------------------------------------------------

    def run(self, feeds: list[Any], timeout: float | None = None, collected: Collected | None = None) -> Any:
        """Run one step on this thread; see local.Executable.run."""
        if self._immediate is not None:
            step = StepContext(0, None, collected is not None)
            values = self._run_immediate(step, feeds, timeout)
            self._collect(step, collected)
            return values
        step = self._begin(DistributedCallerStep, feeds, collected is not None)
        running = self.session.running
        running.add(step)
        try:
            step.run(None if timeout is None else time.monotonic() + timeout)
        finally:
            self._over(step)
        self._collect(step, collected)
        return self._fetched(step)

    def _collect(self, step: Any, collected: Collected | None) -> None:
        if collected is None:
            return
        collected.compiled = self.compiled
        collected.records = [(n.device, n, start, end, out) for n, start, end, out in step.records]
        if self.parts:
            made = config_pb2.RunMetadata()
            for stats in step.metadata:
                made.step_stats.MergeFrom(stats)
            collected.metadata = made.SerializeToString()

    def _run_immediate(self, step: StepContext, feeds: list[Any], timeout: float | None) -> Any:
        """A step that never waits and has one plan, here: one call."""
        running, plan = self.session.running, self._immediate
        assert plan is not None
        running.add(step)
        try:
            return plan.run_immediate(step, feeds) if timeout is None else timed(plan, step, feeds, timeout)
        finally:
            running.discard(step)

    def begin_partial(self, timeout: float | None) -> PartialRun:
        return PartialRun(self, timeout)

    # -- for whoever must not wait -----------------------------------------------------------------

    def start(self, feeds: list[Any], timeout: float | None, is_traced: bool, answer: Answer) -> Any:
        """Run one step on the pool; `answer(fetched values, step, error)` is called when it is over. Returns
        the step."""
        if self._immediate is not None:
            return self._start_immediate(feeds, timeout, is_traced, answer)
        call_off: list[Callable[[], None]] = []

        def over(step: Any) -> None:
            for off in call_off:
                off()
            self._over(step)
            answer(self._fetched(step) if step.error is None else None, step, step.error)

        step = self._begin(DistributedPooledStep, feeds, is_traced, on_over=over)
        self.session.running.add(step)
        if timeout is not None:
            call_off.append(io_loop().later(timeout, lambda: step.fail(step.deadline_error(timeout))))
        step.begin()
        return step

    def _start_immediate(
        self, feeds: list[Any], timeout: float | None, is_traced: bool, answer: Answer
    ) -> Any:
        step = StepContext(0, None, is_traced)

        def work() -> None:
            values, failure = None, None
            try:
                values = list(self._run_immediate(step, feeds, timeout))
            except OpError as error:
                failure = error
            answer(values, step, failure)

        compute_pool.submit(work)
        return step


class PartialRun:
    """A step that is fed and fetched in several calls; see local.PartialStep."""

    def __init__(self, executable: ClusterExecutable, timeout: float | None) -> None:
        self._executable, self._timeout = executable, timeout
        self._values: dict[int, Any] = {}
        self._feeds: dict[int, Callable[[Any], None]] = {}
        self._answers: list[tuple[list[int], bool, Answer]] = []
        self._lock = threading.Lock()
        count = len(executable.compiled.signature.feeds)
        self._step = executable._begin(
            DistributedPooledStep, [None] * count, False, on_over=self._step_over, on_progress=self._look
        )
        self._step.on_feed = self._on_feed
        executable.session.running.add(self._step)
        self._step.begin()

    @property
    def is_over(self) -> bool:
        return self._step.is_over

    def _on_feed(self, index: int, done: Callable[[Any], None]) -> None:
        with self._lock:
            if index not in self._values:
                self._feeds[index] = done
                return
        done(self._values[index])

    def go_on(self, feeds: dict[int, Any], fetches: list[int], to_its_end: bool, answer: Answer) -> None:
        """Give some feeds; `answer` gets the values of `fetches` when they are there, and (`to_its_end`) the
        step is over."""
        with self._lock:
            self._values.update(feeds)
            waiting = [(self._feeds.pop(i), v) for i, v in feeds.items() if i in self._feeds]
            self._answers.append((fetches, to_its_end, answer))
        for done, value in waiting:
            done(value)
        self._look()

    def _look(self) -> None:
        step = self._step
        values = self._executable._fetched(step)
        ready = []
        with self._lock:
            for entry in list(self._answers):
                fetches, to_its_end, _ = entry
                if step.is_over or not to_its_end and all(values[i] is not NOT_YET for i in fetches):
                    self._answers.remove(entry)
                    ready.append(entry)
        for fetches, _, answer in ready:
            if step.error is not None:
                answer(None, step, step.error)
            else:
                answer([values[i] for i in fetches], step, None)

    def _step_over(self, step: Any) -> None:
        self._executable._over(step)
        self._look()

    def advance(self, feeds: dict[int, Any], fetches: list[int], to_its_end: bool) -> list[Any]:
        """As `go_on`, and wait for it.

        Raises:
          OpError: the first error of the step, also one of an earlier call.
        """
        turn = threading.Event()
        got: list[Any] = []

        def answer(values: Any, step: Any, error: OpError | None) -> None:
            got.extend((values, error))
            turn.set()

        self.go_on(feeds, fetches, to_its_end, answer)
        if not turn.wait(self._timeout):
            waited = self._step.deadline_error(self._timeout)
            self._step.fail(waited)
            raise waited
        values, error = got
        if error is not None:
            raise error
        return values

    def close(self, error: OpError | None = None) -> None:
        if not self._step.is_over:
            self._step.fail(error or DeadlineExceededError(None, None, "the partial run was given up"))
