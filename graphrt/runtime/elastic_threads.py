"""Threads for work that blocks (user code, files): as many as block at once, kept a while for the next.

They are daemons and hold no lock while they wait, so work that never returns keeps neither a step nor the
process from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_IDLE_SECONDS = 5.0


class ElasticThreads:
    """Runs each submitted function at once, on an idle thread or a new one."""

    def __init__(self, name: str, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._name, self._idle_seconds = name, idle_seconds
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has none of its parent's threads."""
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work()`; what it raises is its own affair, so it should not."""
        with self._lock:
            if self._idle > 0:
                # That thread is promised to this work.
                self._idle -= 1
                self._work.put(work)
                return
            self._started += 1
            number = self._started
        threading.Thread(target=self._run, args=(work,), name=f"{self._name}-{number}", daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        while True:
            work()
            del work
            with self._lock:
                self._idle += 1
            try:
                work = self._work.get(timeout=self._idle_seconds)
            except Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return
                # Work was promised to this thread while it was giving up.
                work = self._work.get()


elastic_threads = ElasticThreads("graphrt-blocking")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=elastic_threads.forget)
