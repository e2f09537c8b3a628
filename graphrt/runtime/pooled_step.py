"""PooledStep: a step that a few compute threads run, for whoever must not wait: a server's handlers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from graphrt.runtime.step import Step


class ComputePool:
    """Threads that run segments. They never wait for anything but work: what blocks has threads of its own.

    Args:
      size: how many at most; they are started as they are needed, and are daemons.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if self._started < self._size and self._work.qsize() > self._idle:
            with self._lock:
                if self._started >= self._size:
                    return
                self._started += 1
                number = self._started
            threading.Thread(target=self._run, name=f"graphrt-compute-{number}", daemon=True).start()

    def _run(self) -> None:
        work = self._work
        while True:
            with self._lock:
                self._idle += 1
            todo = work.get()
            with self._lock:
                self._idle -= 1
            todo()
            del todo


def _make_pool() -> ComputePool:
    return ComputePool(max(2, os.cpu_count() or 1))


compute_pool = _make_pool()


def _after_fork() -> None:
    # The parent's threads are not in the child.
    compute_pool.__init__(max(2, os.cpu_count() or 1))  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


class PooledStep(Step):
    """A step whose ready segments drain on one pool thread at a time.

    Args:
      on_over: called once with the step when it is over and no segment of it runs.
      on_progress: called after each drain, where given (partial runs answer from it).
    """

    def __init__(
        self,
        *args: Any,
        on_over: Callable[[PooledStep], None],
        on_progress: Callable[[], None] | None = None,
        **named: Any,
    ) -> None:
        self._turn = threading.Lock()
        self._is_draining = False
        self._again = False
        self._is_reported = False
        self._on_over, self._on_progress = on_over, on_progress
        super().__init__(*args, **named)

    def _wake(self) -> None:
        with self._turn:
            if self._is_draining:
                self._again = True
                return
            if not self._ready and self._on_progress is None or self.error is not None:
                report = self._may_report()
            else:
                self._is_draining = True
                report = None
        if report is None:
            compute_pool.submit(self._drain)
        elif report:
            self._on_over(self)

    def _may_report(self) -> bool:
        """True once: when the step is over. Call it with the turn."""
        if self.is_over and not self._is_reported:
            self._is_reported = True
            return True
        return False

    def _drain(self) -> None:
        while True:
            self.run_ready()
            if self._on_progress is not None:
                self._on_progress()
            with self._turn:
                if self._again:
                    self._again = False
                    continue
                self._is_draining = False
                report = self._may_report()
            if report:
                self._on_over(self)
            return
