"""`graphrt launch`: a script as a local cluster, a process a task.

Read `task_group.py` for when tasks are stopped; this file starts processes, passes on what they print, and
does what the TaskGroup says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrt.tools.free_ports import LOOPBACK, free_ports
from graphrt.tools.task_group import (
    KILLED_WITHIN_S,
    End,
    Instruction,
    Say,
    Signal,
    Task,
    TaskGroup,
    Timer,
)
from graphrt.tools.task_output import LinePrefixer, Screen, prefixes, wants_colour

_EPILOG = """\
Each task finds in its environment
  TF_CONFIG                       the cluster and which task it is, as TensorFlow's launchers write it
  GRAPHRT_CLUSTER, _JOB, _TASK    the same in three: {"worker": ["host:port"]}, worker, 0
  OMP_NUM_THREADS                 its share of the cores, where you have not set one
  GRAPHRT_PROGRESS=live           on a terminal: a line that ends in a carriage return is kept at the bottom

The run is over when all workers have ended: parameter servers are then stopped. A task that fails ends all,
and its exit status is the command's. Ctrl-C and SIGTERM reach every task; a second Ctrl-C kills.

  graphrt launch --ps 1 --workers 2 train.py --steps 1000
  graphrt launch --ps 2 --workers 3 --chief --serve-ps -m package.train
"""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READ = 1 << 16
# Exec'd before a task: on Linux it asks that the task be killed when the launcher is gone, however that went.
_TIED = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the launcher is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status: the first failure's, or 0."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    command = _command(parser, asked)
    jobs = {"chief": int(asked.chief), "ps": asked.ps, "worker": asked.workers}
    if min(jobs.values()) < 0 or not sum(jobs.values()):
        parser.error("the numbers of tasks are not negative, and there is at least one task")
    if asked.serve_ps and asked.ps == sum(jobs.values()):
        parser.error("--serve-ps leaves nobody to run the script: add --workers")
    if asked.grace < 0 or asked.linger < 0:
        parser.error("--grace and --linger are not negative")
    try:
        tasks = make_tasks(jobs)
    except OSError as error:
        print(f"graphrt launch: {error}", file=sys.stderr)
        return 2
    serve = [sys.executable, "-m", "graphrt", "serve"]
    commands = {t: serve if asked.serve_ps and t.job == "ps" else command for t in tasks}
    return asyncio.run(Launch(commands, asked.grace, asked.linger).run())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt launch", allow_abbrev=False,
        usage="graphrt launch [option ...] (script.py | -m module) [argument ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG,
        description="Runs a script as a cluster on this machine: a process a task, on free loopback ports,\n"
                    "each line of output behind the name of its task.")
    parser.add_argument("--ps", type=int, default=0, metavar="N",
                        help="parameter servers (default %(default)s)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="workers (default %(default)s)")
    parser.add_argument("--chief", action="store_true", help="and a chief, a job of its own")
    parser.add_argument("--serve-ps", action="store_true",
                        help="parameter servers are plain servers (graphrt serve) and do not run the script")
    parser.add_argument("--grace", type=float, default=5.0, metavar="S",
                        help="seconds from asking a task to stop to killing it (default %(default)s)")
    parser.add_argument("--linger", type=float, default=2.0, metavar="S",
                        help="seconds for parameter servers to end by themselves after the last worker "
                             "(default %(default)s)")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER,
                        help="run a module, as python -m does")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="what every task runs, and its arguments")
    return parser


def _command(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> list[str]:
    """The command line of a task."""
    if asked.module:
        return [sys.executable, "-u", "-m", *asked.module]
    if asked.module is not None or not asked.script:
        parser.error("name the script (script.py or -m module) that the tasks run")
    script = asked.script[0]
    if script.startswith("-"):
        parser.error(f"there is no option {script}; options of the script come behind its name")
    if not Path(script).is_file():
        parser.error(f"there is no file {script}")
    return [sys.executable, "-u", *asked.script]


def make_tasks(jobs: dict[str, int]) -> list[Task]:
    """A task for each of `jobs` (job -> how many), at free ports. OSError where there are not so many."""
    ports = iter(free_ports(sum(jobs.values())))
    return [Task(job, i, f"{LOOPBACK}:{next(ports)}") for job, count in jobs.items() for i in range(count)]


def environment(task: Task, tasks: Sequence[Task], is_live: bool = False) -> dict[str, str]:
    """This process's environment with what `task` has to know; `is_live`: it may draw over its lines."""
    cluster: dict[str, list[str]] = {}
    for each in tasks:
        cluster.setdefault(each.job, []).append(each.address)
    made = dict(os.environ)
    made["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})
    made["GRAPHRT_CLUSTER"] = json.dumps(cluster)
    made["GRAPHRT_JOB"], made["GRAPHRT_TASK"] = task.job, str(task.index)
    made.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // len(tasks))))
    if is_live:
        made["GRAPHRT_PROGRESS"] = "live"
    return made


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Launch:
    """The processes of one run.

    Args:
      commands: task -> its command line.
      grace, linger: see TaskGroup.
    """

    def __init__(self, commands: dict[Task, list[str]], grace: float, linger: float) -> None:
        self._commands = commands
        self._group = TaskGroup(commands, grace, linger)
        self._processes: dict[Task, subprocess.Popen[bytes]] = {}
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._deadline: float | None = None
        self._status: int | None = None
        is_live = wants_colour(sys.stdout.isatty() and sys.stderr.isatty())
        self._screen = Screen(sys.stdout.buffer, _columns) if is_live else Screen()

    async def run(self) -> int:
        """Start all, until all have ended. Gives the exit status; no process of a task is left."""
        loop = asyncio.get_running_loop()
        # What is ignored stays so: nohup ignores SIGHUP, a script's shell SIGINT for what it backgrounds.
        numbers = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
        for number in numbers:
            loop.add_signal_handler(number, self._events.put_nowait, number)
        watchers: list[asyncio.Task[None]] = []
        try:
            names = [str(t) for t in self._commands]
            streams = (sys.stdout, sys.stderr)
            behind = zip(*(prefixes(names, wants_colour(s.isatty())) for s in streams))
            for (task, command), own in zip(self._commands.items(), behind):
                prefixers = [LinePrefixer(p, s.buffer, self._screen) for p, s in zip(own, streams)]
                self._processes[task] = process = self._start(task, command)
                watchers.append(loop.create_task(self._watch(task, process, prefixers)))
            while self._status is None:
                self._do(await self._next_event())
            return self._status
        finally:
            await self._leave_nothing(watchers)
            for number in numbers:
                loop.remove_signal_handler(number)

    async def _leave_nothing(self, watchers: list[asyncio.Task[None]]) -> None:
        """Kill what still runs: tasks that were given up, or all where starting one failed."""
        for process in self._processes.values():
            if process.returncode is None:
                _signal_group(process.pid, signal.SIGKILL)
        if watchers:
            await asyncio.wait(watchers, timeout=KILLED_WITHIN_S)
        for watcher in watchers:
            watcher.cancel()

    def _start(self, task: Task, command: list[str]) -> subprocess.Popen[bytes]:
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
        # A process group of its own: a signal reaches what the task started too, and Ctrl-C comes by us only.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment(task, list(self._commands), self._screen.terminal is not None))

    async def _watch(self, task: Task, process: subprocess.Popen[bytes],
                     prefixers: list[LinePrefixer]) -> None:
        """Pass on what the task prints, then say that it has ended."""
        streams = (process.stdout, process.stderr)
        pipes = [asyncio.create_task(self._pass_on(s, p)) for s, p in zip(streams, prefixers)]
        status = await _end_of(process)
        _signal_group(process.pid, signal.SIGKILL)  # what it started and left: that would hold the pipes
        await asyncio.gather(*pipes)
        self._events.put_nowait((task, status))

    async def _pass_on(self, pipe: Any, prefixer: LinePrefixer) -> None:
        stream, reads = asyncio.StreamReader(), True
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        while data := await stream.read(_READ):
            if reads:
                try:
                    prefixer.feed(data)
                except BrokenPipeError:  # nobody reads our output any more
                    reads = False
                    self._events.put_nowait(signal.SIGTERM)
        if reads:
            prefixer.close()

    async def _next_event(self) -> list[Instruction]:
        """Wait for an exit, a signal or the timer, and ask what to do."""
        loop = asyncio.get_running_loop()
        left = None if self._deadline is None else max(0.0, self._deadline - loop.time())
        try:
            event = await asyncio.wait_for(self._events.get(), left)
        except TimeoutError:
            self._deadline = None
            return self._group.on_timer()
        return self._group.on_exit(*event) if isinstance(event, tuple) else self._group.on_signal(event)

    def _do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            match each:
                case Signal(task, number):
                    _signal_group(self._processes[task].pid, number)
                case Say(text):
                    self._screen.write(sys.stderr.buffer, [f"graphrt launch: {text}".encode()])
                case Timer(seconds):
                    now = asyncio.get_running_loop().time()
                    self._deadline = None if seconds is None else now + seconds
                case End(status):
                    self._status = status


def _end_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """The status of a process once it has ended, also where what it started holds its pipes open."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def tell(status: int) -> None:
        if not ended.cancelled():
            ended.set_result(status)

    def wait() -> None:
        status = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the task had been given up
            loop.call_soon_threadsafe(tell, status)

    threading.Thread(target=wait, name="waits for a task", daemon=True).start()
    return ended


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        pass  # it has ended
