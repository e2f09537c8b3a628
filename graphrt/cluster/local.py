"""The master of one process: it compiles a signature once, registers its partitions as plans, and runs them.

What the client sees, `LocalMaster` here and a remote session's elsewhere: `executable(signature)`
and, of what it returns, `run(feeds, ...)`; `list_devices`, `reset`, `close`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import CompiledStep, compile_step
from graphrt.compiler.place import placement_log
from graphrt.compiler.step_graph import Signature
from graphrt.core.errors import CancelledError, DeadlineExceededError
from graphrt.core.graph import Graph
from graphrt.core.resources import Containers
from graphrt.runtime.devices import Device, make_devices
from graphrt.runtime.plan import Plan
from graphrt.runtime.step import NOT_YET, CallerStep, StepContext
from graphrt.runtime.worker_session import WorkerSession

_random = random.SystemRandom()


def new_step_id() -> int:
    """A random 63-bit step id: steps of several masters do not meet."""
    return _random.getrandbits(63) or 1


@dataclass
class Collected:
    """What a traced step leaves: (device, node, start ns, end ns, outputs) for each kernel, and partitions.

    Attributes:
      metadata: bytes of a RunMetadata that others filled in; None where all ran here.
      wants_partitions: the partitions are asked for too.
    """

    records: list[tuple[str, Any, int, int, Any]] = field(default_factory=list)
    compiled: CompiledStep | None = None
    metadata: bytes | None = None
    wants_partitions: bool = False


class LocalMaster:
    """Sessions with target ''.

    Args:
      cpus, gpus: devices to make (`ConfigProto.device_count`); gpus None is all there are.
      config: a ConfigProto, or None.
      log_placement: print where each node is put, once a signature.
    """

    def __init__(
        self,
        graph: Graph,
        cpus: int = 1,
        gpus: int | None = None,
        config: Any = None,
        log_placement: bool = False,
    ) -> None:
        self.graph = graph
        self.devices: list[Device] = make_devices(cpus=cpus, gpus=gpus)
        self.options = CompileOptions.from_config(config, self.devices[0].name)
        self.log_placement = log_placement
        self.worker = WorkerSession(self.devices, Containers())
        self._lock = threading.Lock()
        self.running: set[Any] = set()
        self.is_closed = False

    def executable(self, signature: Signature, is_partial: bool = False) -> Executable:
        """Compile `signature` and register its plans."""
        with self._lock:
            compiled = compile_step(self.graph, signature, self.devices, self.options)
            self.worker.functions = self.graph.functions
            if is_partial:
                from graphrt.cluster.partial import defer_args

                defer_args(compiled)
            plans = [Plan(p, self.worker, len(compiled.partitions) == 1) for p in compiled.partitions]
        if self.log_placement:
            print(placement_log(compiled.step))
        return Executable(self, compiled, plans)

    def list_devices(self) -> list[Device]:
        return self.devices

    def reset(self, containers: list[str] | None = None) -> None:
        """Clear the containers (all where None): variables, queues and tables are gone."""
        self.worker.resources.clear(containers)

    def close(self) -> None:
        """Cancel what runs, and drop the session's state."""
        if self.is_closed:
            return
        self.is_closed = True
        error = CancelledError(None, None, "Session has been closed.")
        for step in list(self.running):
            step.cancel(error)
        self.worker.close()
        self.worker.resources.clear()


class Executable:
    """A compiled signature with its plans.

    Attributes:
      compiled: what the compiler made, with its records.
      plans: a Plan a partition.
    """

    def __init__(self, master: LocalMaster, compiled: CompiledStep, plans: list[Plan]) -> None:
        self.master, self.compiled, self.plans = master, compiled, plans
        self.fetch_plan = next((p for p in plans if p.retval_count), plans[0] if plans else None)
        self.immediate: Plan | None = plans[0] if len(plans) == 1 and plans[0].is_immediate else None

    def run(self, feeds: list[Any], timeout: float | None = None, collected: Collected | None = None) -> Any:
        """Run one step.

        Args:
          feeds: arrays, by feed of the signature.
          timeout: seconds until it ends with DeadlineExceededError; None waits for ever.
          collected: filled with times of every kernel, where given.
        Returns:
          The fetched values, in the signature's order.
        Raises:
          OpError: the first error of the step.
        """
        running = self.master.running
        plan = self.immediate
        step: Any
        if plan is not None:
            step = StepContext(0, None, collected is not None)
            self._begin(step)
            try:
                made = (
                    plan.run_immediate(step, feeds) if timeout is None else timed(plan, step, feeds, timeout)
                )
            finally:
                running.discard(step)
        else:
            step = CallerStep(self.plans, feeds, new_step_id(), None, collected is not None)
            self._begin(step)
            try:
                step.run(None if timeout is None else time.monotonic() + timeout)
            finally:
                running.discard(step)
            made = step.runs[self.plans.index(self.fetch_plan)].fetches if self.fetch_plan else ()
            step.release()
        if collected is not None:
            collected.compiled = self.compiled
            collected.records = [(n.device, n, start, end, out) for n, start, end, out in step.records]
        return made

    def _begin(self, step: Any) -> None:
        """Let `close` find the step. Raises CancelledError where it has come by already."""
        self.master.running.add(step)
        if self.master.is_closed:
            self.master.running.discard(step)
            raise CancelledError(None, None, "Session has been closed.")

    def begin_partial(self, timeout: float | None) -> PartialStep:
        """Start a step whose feeds come later (`Session.partial_run`)."""
        return PartialStep(self, timeout)


def timed(plan: Plan, step: StepContext, feeds: list[Any], timeout: float) -> Any:
    """A step that never waits, cancelled between kernels when its time is over."""

    def expire() -> None:
        step.fail(
            DeadlineExceededError(None, None, f"the step was still running its kernels after {timeout:.1f} s")
        )

    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        return plan.run_immediate(step, feeds)
    finally:
        timer.cancel()


class PartialStep:
    """A step that is fed and fetched in several calls."""

    def __init__(self, executable: Executable, timeout: float | None) -> None:
        self._executable = executable
        count = len(executable.compiled.signature.feeds)
        self._step = CallerStep(executable.plans, [None] * count, new_step_id())
        self._step.on_feed = self._on_feed  # type: ignore[method-assign]
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._values: dict[int, Any] = {}
        self._timeout = timeout
        executable.master.running.add(self._step)
        self._step.begin()
        self._step.run_ready()

    def _on_feed(self, index: int, done: Callable[[Any], None]) -> None:
        if index in self._values:
            done(self._values[index])
        else:
            self._waiting[index] = done

    def advance(self, feeds: dict[int, Any], fetches: list[int], to_its_end: bool) -> list[Any]:
        """Give some feeds and wait for some fetches; or (`to_its_end`) for the whole step, with operations.

        Raises:
          OpError: the first error of the step, also one of an earlier call.
        """
        for index, value in feeds.items():
            self._values[index] = value
            done = self._waiting.pop(index, None)
            if done is not None:
                done(value)
        step, plan = self._step, self._executable.fetch_plan
        values = step.runs[self._executable.plans.index(plan)].fetches if plan is not None else []
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        step.run_until(
            lambda: step.is_over or (not to_its_end and all(values[i] is not NOT_YET for i in fetches)),
            deadline,
        )
        if step.is_over:
            self.close()
        return [values[i] for i in fetches]

    def close(self) -> None:
        """The step is over: nobody will ask for more of it."""
        self._executable.master.running.discard(self._step)
