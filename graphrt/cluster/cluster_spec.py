"""ClusterSpec: the jobs of a cluster, their tasks and addresses. And TF_CONFIG, which says so in the
environment."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from graphrt.core.errors import InvalidArgumentError


class ClusterSpec:
    """The tasks of a cluster.

    Args:
      cluster: {job: [address, ...]}, {job: {index: address}} (not every index need be there), {job: address},
        a ClusterDef, or
        a ClusterSpec.
    Raises:
      TypeError: it is none of these.
    """

    def __init__(self, cluster: Any) -> None:
        self._jobs: dict[str, dict[int, str]] = {}
        if isinstance(cluster, ClusterSpec):
            self._jobs = {job: dict(tasks) for job, tasks in cluster._jobs.items()}
        elif isinstance(cluster, dict):
            for job, tasks in cluster.items():
                self._jobs[_text(job, "a job's name")] = _tasks(job, tasks)
        elif hasattr(cluster, "job") and hasattr(cluster, "ListFields"):
            for job in cluster.job:
                self._jobs[job.name] = {int(i): str(a) for i, a in sorted(job.tasks.items())}
        else:
            raise TypeError(
                "`cluster` must be a dictionary mapping one or more job names to lists of network addresses, "
                "or a "
                f"`ClusterDef` protocol buffer, but got {type(cluster).__name__}"
            )

    def as_dict(self) -> dict[str, Any]:
        """{job: list of addresses}, or {job: {index: address}} where the indices are not 0, 1, 2, ..."""
        made: dict[str, Any] = {}
        for job, tasks in self._jobs.items():
            is_dense = list(tasks) == list(range(len(tasks)))
            made[job] = list(tasks.values()) if is_dense else dict(tasks)
        return made

    def as_cluster_def(self) -> Any:
        """The ClusterDef message."""
        from graphrt.protos import cluster_pb2

        made = cluster_pb2.ClusterDef()
        for job, tasks in sorted(self._jobs.items()):
            added = made.job.add(name=job)
            for index, address in tasks.items():
                added.tasks[index] = address
        return made

    @property
    def jobs(self) -> list[str]:
        return list(self._jobs)

    def _job(self, job_name: str) -> dict[int, str]:
        tasks = self._jobs.get(job_name)
        if tasks is None:
            raise ValueError(
                f"No such job in cluster: {job_name!r}; there are {', '.join(self._jobs) or 'none'}"
            )
        return tasks

    def num_tasks(self, job_name: str) -> int:
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task. Raises ValueError where there is no such job or task."""
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise ValueError(
                f"No task with index {task_index!r} in job {job_name!r}: it has {', '.join(map(str, tasks))}"
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks by index; None where an index is not there."""
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks) + 1)] if tasks else []

    def tasks(self) -> list[tuple[str, int, str]]:
        """(job, index, address) of every task."""
        return [
            (job, index, address) for job, tasks in self._jobs.items() for index, address in tasks.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    __nonzero__ = __bool__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            try:
                other = ClusterSpec(other)
            except TypeError:
                return NotImplemented
        return self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple((job, *tasks.items()) for job, tasks in sorted(self._jobs.items())))

    def __str__(self) -> str:
        inner = ", ".join(f"{job!r}: {tasks!r}" for job, tasks in sorted(self.as_dict().items()))
        return f"ClusterSpec({{{inner}}})"

    __repr__ = __str__


def _text(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r}")
    return value


def _tasks(job: Any, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, (list, tuple)):
        tasks = dict(enumerate(tasks))
    elif isinstance(tasks, int):
        raise TypeError(f"the tasks of job {job!r} must be addresses, not their number {tasks}")
    elif not isinstance(tasks, dict):
        tasks = {0: tasks}
    for index in tasks:
        if not isinstance(index, int):
            raise TypeError(f"the index of a task of job {job!r} must be an integer, not {index!r}")
    return {i: _text(tasks[i], f"the address of /job:{job}/task:{i}") for i in sorted(tasks)}


class TaskConfig(NamedTuple):
    """What TF_CONFIG says: the cluster, and which of its tasks this process is (None where it does not
    say)."""

    cluster: ClusterSpec
    job: str | None
    index: int | None


def read_tf_config(text: str | None = None) -> TaskConfig | None:
    """TF_CONFIG (or `text` in its place); None where it is not set.

    Raises:
      InvalidArgumentError: it is not JSON of the known form.
    """
    text = os.environ.get("TF_CONFIG", "") if text is None else text
    if not text.strip():
        return None
    try:
        found = json.loads(text)
        task = found.get("task", {})
        cluster = ClusterSpec(
            {
                j: t if not isinstance(t, dict) else {int(i): a for i, a in t.items()}
                for j, t in found.get("cluster", {}).items()
            }
        )
        job, index = task.get("type"), task.get("index")
        return TaskConfig(cluster, job, None if index is None else int(index))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            None,
            None,
            f"TF_CONFIG is not understood ({error}): it is JSON as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}, not '
            f"{text[:200]!r}",
        ) from None


__all__ = ["ClusterSpec", "TaskConfig", "read_tf_config"]
