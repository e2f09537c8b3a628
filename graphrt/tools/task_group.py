"""TaskGroup: when the tasks of a launched cluster are stopped, and what the whole came to.

No process is touched here: what happened goes in, what to do comes out, and `launch.py` does it.

A task that fails ends all: the others get SIGTERM, and SIGKILL once the grace is over. When the last worker
ended well, parameter servers, which often wait for ever, get `linger` seconds to end by themselves, then the
same. A signal for the launcher is passed on; a second one is impatience and kills.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterable
from dataclasses import dataclass

# How long a killed process may take to be gone, before it is given up (one that hangs in the kernel).
KILLED_WITHIN_S = 5.0
# Jobs that serve: the run is over when all others are.
SERVING_JOBS = frozenset(("ps",))


@dataclass(frozen=True, order=True)
class Task:
    """A task of the cluster and its address."""

    job: str
    index: int
    address: str

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"


@dataclass(frozen=True)
class Signal:
    """Send `number` to the process group of `task`."""

    task: Task
    number: int


@dataclass(frozen=True)
class Say:
    """Tell the user."""

    text: str


@dataclass(frozen=True)
class Timer:
    """Call `on_timer` in so many seconds; it takes the place of an earlier one. None: no longer."""

    seconds: float | None


@dataclass(frozen=True)
class End:
    """All is over; `status` is the launcher's exit status."""

    status: int


Instruction = Signal | Say | Timer | End


class _Phase(enum.Enum):
    RUNNING = enum.auto()
    LINGERING = enum.auto()  # the workers are done, parameter servers may end by themselves
    STOPPING = enum.auto()  # asked to stop
    KILLED = enum.auto()


class TaskGroup:
    """The decisions of one run.

    Args:
      tasks: all of them, running.
      grace: seconds between asking a task to stop and killing it.
      linger: seconds that parameter servers have after the last worker.
    """

    def __init__(self, tasks: Iterable[Task], grace: float, linger: float) -> None:
        self._running = set(tasks)
        self._grace, self._linger = grace, linger
        self._serving = {t for t in self._running if t.job in SERVING_JOBS}
        if self._serving == self._running:  # nothing else to wait for
            self._serving = set()
        self._phase = _Phase.RUNNING
        self._status = 0

    def on_exit(self, task: Task, status: int) -> list[Instruction]:
        """A task has ended; `status` is minus the signal's number where a signal ended it."""
        self._running.discard(task)
        made: list[Instruction] = []
        if status != 0 and self._phase in (_Phase.RUNNING, _Phase.LINGERING):
            self._status = exit_status(status)
            left = f"; stopping {_names(self._running)}" if self._running else ""
            made = [Say(f"{task} {described(status)}{left}"), *self._ask(signal.SIGTERM)]
        elif self._phase is _Phase.RUNNING and self._running and self._running <= self._serving:
            self._phase = _Phase.LINGERING
            made = [Timer(self._linger)]
        return made if self._running else [*made, Timer(None), End(self._status)]

    def on_signal(self, number: int) -> list[Instruction]:
        """The launcher got SIGINT, SIGTERM or the like."""
        if self._phase in (_Phase.STOPPING, _Phase.KILLED):
            return self._kill()
        self._status = exit_status(-number)
        return [Say(f"{signal.Signals(number).name}: stopping {_names(self._running)}"), *self._ask(number)]

    def on_timer(self) -> list[Instruction]:
        """The time of the last Timer is over."""
        if self._phase is _Phase.LINGERING:
            return self._ask(signal.SIGTERM)
        if self._phase is _Phase.STOPPING:
            late = f"{_names(self._running)} did not stop within {self._grace:g} s: killed"
            return [Say(late), *self._kill()]
        left = Say(f"{_names(self._running)} cannot be killed: given up")
        return [left, Timer(None), End(self._status or 1)]

    def _ask(self, number: int) -> list[Instruction]:
        self._phase = _Phase.STOPPING
        return [*(Signal(t, number) for t in sorted(self._running)), Timer(self._grace)]

    def _kill(self) -> list[Instruction]:
        self._phase = _Phase.KILLED
        return [*(Signal(t, signal.SIGKILL) for t in sorted(self._running)), Timer(KILLED_WITHIN_S)]


def exit_status(status: int) -> int:
    """What a shell makes of a process's status: 128 and the signal's number where one ended it."""
    return status if status >= 0 else 128 - status


def described(status: int) -> str:
    """'failed with exit status 3', 'was ended by SIGKILL'."""
    if status >= 0:
        return f"failed with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _names(tasks: Iterable[Task]) -> str:
    return ", ".join(map(str, sorted(tasks)))
