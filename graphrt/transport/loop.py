"""The thread of a process that moves bytes: one asyncio loop, started when it is first needed, for all
servers and peers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """An asyncio loop on a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="graphrt-io", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_here(self) -> bool:
        """True on the loop's own thread."""
        return threading.current_thread() is self.thread

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Run `function` on the loop: from any thread."""
        self.loop.call_soon_threadsafe(function, *args)

    def later(self, seconds: float, function: Callable[[], Any]) -> Callable[[], None]:
        """Run `function` on the loop after a while; returns what calls it off."""
        handle: list[Any] = []
        off = [False]

        def begin() -> None:
            if not off[0]:
                handle.append(self.loop.call_later(seconds, function))

        def call_off() -> None:
            off[0] = True
            if handle:
                self.soon(handle[0].cancel)

        self.soon(begin)
        return call_off

    def run(self, work: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """The result of a coroutine that runs on the loop; not to be called there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)


_lock = threading.Lock()
_current: LoopThread | None = None


def io_loop() -> LoopThread:
    """The loop of this process."""
    global _current
    made = _current
    if made is None:
        with _lock:
            if _current is None:
                _current = LoopThread()
            made = _current
    return made


def _forget() -> None:
    global _current, _lock
    _current, _lock = None, threading.Lock()


# A child has no thread but its own: it makes a loop anew.
os.register_at_fork(after_in_child=_forget)
