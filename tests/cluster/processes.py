"""Clusters for tests: in this process, or a process a task, on free ports of this machine. All of them end
with the test."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

STARTS_WITHIN_S = 120.0
ENDS_WITHIN_S = 20.0
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "task_process.py")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at; all are held at once, so they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def addresses(**jobs: int) -> dict[str, list[str]]:
    """A cluster with so many tasks a job, at free ports."""
    ports = iter(free_ports(sum(jobs.values())))
    return {job: [f"localhost:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}


class TaskProcess:
    """A server in a process of its own."""

    def __init__(
        self,
        cluster: dict,
        job: str,
        index: int,
        *,
        tensorflow: bool = False,
        environment: dict | None = None,
    ) -> None:
        command = [
            sys.executable,
            _SCRIPT,
            json.dumps(cluster),
            job,
            str(index),
            *(["tensorflow"] if tensorflow else []),
        ]
        self.name = f"/job:{job}/task:{index}"
        self.target = f"grpc://{cluster[job][index]}"
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
        )

    def wait_until_ready(self) -> "TaskProcess":
        deadline = time.monotonic() + STARTS_WITHIN_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = self.process.stdout.readline()
                if line.strip() == b"ready":
                    return self
                if not line:
                    raise AssertionError(
                        f"{self.name} ended with {self.process.wait(ENDS_WITHIN_S)} before it was ready"
                    )
        self.kill()
        raise AssertionError(f"{self.name} was not ready within {STARTS_WITHIN_S} s")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process by its standard input; SIGKILL where it does not."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
