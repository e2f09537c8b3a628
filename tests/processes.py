"""Processes that tests start: read by the line, waited for with a deadline, and never left behind."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

DEADLINE_S = 60.0


class Running:
    """A process whose output is read as it comes: standard error is joined to standard output."""

    def __init__(self, command: list[str], **named: object) -> None:
        # A session of its own: what a test sends to it reaches nobody else.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        stdin=subprocess.DEVNULL, start_new_session=True, **named)
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def wait_for(self, text: str, times: int = 1, deadline_s: float = DEADLINE_S) -> str:
        """The line that has `text` in it for the `times`th time; fails where the output ends without it."""
        found = [line for line in self.lines if text in line]
        deadline = time.monotonic() + deadline_s
        while len(found) < times:
            try:
                line = self._coming.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{deadline_s} s without '{text}' x {times}:\n{self.text}") from None
            if line is None:
                raise AssertionError(f"ended without '{text}' x {times}:\n{self.text}")
            self.lines.append(line)
            found += [line] if text in line else []
        return found[times - 1]

    def end(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait until it has ended and its output is read; gives the exit status."""
        try:
            status = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s} s; so far:\n{self.text}") from None
        while (line := self._coming.get(timeout=deadline_s)) is not None:
            self.lines.append(line)
        return status

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def kill(self) -> None:
        """End it and its process group, however it is."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


@contextlib.contextmanager
def running(*arguments: object, **named: object) -> Iterator[Running]:
    """`python <arguments>` while the block runs."""
    started = Running([sys.executable, *map(str, arguments)], **named)
    try:
        yield started
    finally:
        started.kill()


def recorded_pids(folder: Path) -> dict[str, int]:
    """name -> pid of what processes wrote into `folder` as <name>.pid."""
    return {file.stem: int(file.read_text()) for file in folder.glob("*.pid")}


def assert_gone(pids: Iterable[int], deadline_s: float = DEADLINE_S) -> None:
    """Wait until none of the processes runs; fails where one still does."""
    deadline = time.monotonic() + deadline_s
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)  # readable once the process has ended
            ended = poll.poll(1e3 * max(0.0, deadline - time.monotonic()))
        finally:
            os.close(handle)
        assert ended, f"process {pid} still runs: {command_line(pid)}"


def command_line(pid: int) -> str:
    """What /proc says that a process is; '' for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def processes_with(text: str) -> dict[int, str]:
    """pid -> command line, of the processes of this machine that have `text` in theirs."""
    found = {int(entry.name): command_line(int(entry.name)) for entry in Path("/proc").iterdir()
             if entry.name.isdigit()}
    return {pid: line for pid, line in found.items() if text in line and pid != os.getpid()}
