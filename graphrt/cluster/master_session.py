"""MasterSession: a client's session at the master of a task. It compiles each signature once, registers the
partitions at the tasks that it needs, and runs steps over them.

`executable(signature)` and what it returns are what a client in this process sees (as LocalMaster, in
`local.py`); the RPCs of `master_service.py` end in the same objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.cluster.distributed_step import RemotePart
from graphrt.cluster.executable import ClusterExecutable, explained
from graphrt.cluster.remote_task import CONNECT_TIMEOUT, WORKER, RemoteTask, first_error, gather
from graphrt.cluster.wire_errors import at_task
from graphrt.cluster.worker import Worker
from graphrt.cluster.worker_service import PUSHED
from graphrt.compiler.graph_def import to_graph_def
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import CompiledStep, compile_step
from graphrt.compiler.place import placement_log
from graphrt.compiler.prune import prune
from graphrt.compiler.step_graph import Partition, Signature, StepGraph
from graphrt.core import device_names
from graphrt.core.errors import CancelledError, FailedPreconditionError, OpError, UnavailableError
from graphrt.core.graph import Graph
from graphrt.protos import tensorflow_server_pb2, worker_pb2
from graphrt.transport.tensors import parse

# A closing session waits this long for tasks to say that they have let go of it.
_CLOSE_TIMEOUT = 5.0
_LIST_TIMEOUT = 10.0


class MasterSession:
    """See the module.

    Args:
      worker: the task's own worker: its partition runs here, without a message.
      graph: what signatures are of; a client elsewhere extends it.
      config: a ConfigProto, or None.
      connect_timeout: seconds that a step waits for a task that nobody has reached yet.
    Attributes:
      link: over which a client elsewhere last spoke; None for one that has none.
      touched: time.monotonic() of the last call.
    """

    def __init__(
        self,
        handle: str,
        worker: Worker,
        graph: Graph,
        config: Any = None,
        connect_timeout: float | None = None,
        link: Any = None,
    ) -> None:
        self.handle, self.worker, self.graph, self.link = handle, worker, graph, link
        self.connect_timeout = connect_timeout or CONNECT_TIMEOUT
        self.touched = time.monotonic()
        self.is_isolated = bool(config is not None and config.isolate_session_state)
        spread = config is not None and config.HasField("cluster_def") and len(config.cluster_def.job) > 0
        self.cluster = ClusterSpec(config.cluster_def) if spread else worker.cluster
        self._sends_cluster = spread
        self.options = CompileOptions.from_config(config, worker.devices[0].name, by_task=True)
        self.log_placement = bool(config is not None and config.log_device_placement)
        filters = list(config.device_filters) if config is not None else []
        self.tasks: dict[str, RemoteTask] = {t.name: t for t in self._visible(filters)}
        self.own = worker.create_session(handle, self.is_isolated, self.cluster)
        self.running: set[Any] = set()
        self.is_closed = False
        self.version = 0
        self._lock = threading.RLock()
        self._executables: dict[Any, ClusterExecutable] = {}

    def _visible(self, filters: list[str]) -> list[RemoteTask]:
        """The other tasks that the session's device filters let it see: all where there are none."""
        wanted = [device_names.parse(f) for f in filters]
        made = []
        for job, index, address in self.cluster.tasks():
            name = f"/job:{job}/replica:0/task:{index}"
            parsed = device_names.parse(name)
            if name != self.worker.task and (
                not wanted or any(w._replace(type=None, index=None).matches(parsed) for w in wanted)
            ):
                made.append(RemoteTask(name, address, self.worker.transport))
        return made

    # -- compiling ---------------------------------------------------------------------------------

    def executable(self, signature: Signature, is_partial: bool = False) -> ClusterExecutable:
        """Compile `signature` and register its partitions at the tasks that it needs, once.

        Raises:
          UnavailableError: a task that it needs cannot be reached in time.
          AbortedError: a task that it needs was restarted since the session used it.
          OpError: the step cannot be built or placed.
        """
        key = (signature, is_partial, self.graph._edits)
        found = self._executables.get(key)
        if found is None:
            with self._lock:
                found = self._executables.get(key)
                if found is None:
                    self._check_open()
                    compiled = self._compile(signature)
                    found = self._executables[key] = self._register(compiled, is_partial)
        return found

    def known(self, signature: Signature) -> ClusterExecutable | None:
        """What was compiled for `signature` before; None where it was not, or the graph was changed since."""
        return self._executables.get((signature, False, self.graph._edits))

    def _check_open(self) -> None:
        if self.is_closed:
            raise CancelledError(None, None, "Session has been closed.")

    def _compile(self, signature: Signature) -> CompiledStep:
        if any(t.devices is None for t in self.tasks.values()):
            self._contact(self._named_tasks(signature))
        while True:
            devices = [*self.worker.devices, *(d for t in self.tasks.values() for d in t.presumed())]
            unknown = {t.name: t for t in self.tasks.values() if t.devices is None}
            try:
                compiled = compile_step(self.graph, signature, devices, self.options)
            except OpError:
                # A device of a task that was not asked yet may be what is missing.
                if not unknown or not self._learn(list(unknown.values())):
                    raise
                continue
            needed = [unknown[p.device] for p in compiled.partitions if p.device in unknown]
            if not needed:
                return compiled
            self._contact(needed)

    def _named_tasks(self, signature: Signature) -> list[RemoteTask]:
        """The tasks that devices of the signature's nodes name, which nobody has asked yet."""
        found: dict[str, RemoteTask] = {}
        for device in {n.device for n in prune(self.graph, signature)[0].nodes}:
            parts = device_names.parse(device)
            if parts.job is not None and parts.task is not None:
                task = self.tasks.get(f"/job:{parts.job}/replica:0/task:{parts.task}")
                if task is not None and task.devices is None:
                    found[task.name] = task
        return list(found.values())

    def _contact(self, tasks: list[RemoteTask]) -> None:
        """Learn the devices of `tasks`; each must answer."""
        answers = self._ask_status(tasks, self.connect_timeout, wait=True)
        for task, (_, error) in zip(tasks, answers):
            if error is not None:
                raise UnavailableError(
                    None,
                    None,
                    f"{task.name} at {task.address} is needed, and did not answer within "
                    f"{self.connect_timeout:.1f} s: {error.message}",
                )

    def _learn(self, tasks: list[RemoteTask]) -> bool:
        """Learn the devices of those of `tasks` that answer now; True where one did."""
        self._ask_status(tasks, min(_LIST_TIMEOUT, self.connect_timeout), wait=False)
        return any(t.devices is not None for t in tasks)

    def _ask_status(
        self, tasks: list[RemoteTask], timeout: float, wait: bool
    ) -> list[tuple[Any, OpError | None]]:
        calls = [
            (
                f"{t.name} at {t.address}",
                lambda done, t=t: t.peer.call(WORKER + "GetStatus", b"", done, timeout, wait),
            )
            for t in tasks
        ]
        answers = gather(calls, timeout + 1.0)
        for task, (answer, error) in zip(tasks, answers):
            if error is None:
                task.learn(answer)
        return answers

    # -- registering -------------------------------------------------------------------------------

    def _register(self, compiled: CompiledStep, is_partial: bool) -> ClusterExecutable:
        remote: list[tuple[RemoteTask, Partition]] = []
        own = Partition(self.worker.task, StepGraph([]))
        for partition in compiled.partitions:
            if partition.device == self.worker.task:
                own = partition
            else:
                remote.append((self.tasks[partition.device], partition))
        for task, _ in remote:
            if task.lost is not None:
                raise task.lost
        fresh = [t for t, _ in remote if not t.has_session]
        first_error(
            [
                self._named(t, a)
                for t, a in zip(
                    fresh,
                    gather(
                        [
                            (f"CreateWorkerSession at {t.name} ({t.address})", self._begin_session(t))
                            for t in fresh
                        ],
                        self.connect_timeout,
                    ),
                )
            ]
        )
        for task in fresh:
            task.has_session = True
        is_pushed = all(t.is_graphrt for t, _ in remote)
        begun = [
            (f"RegisterGraph at {t.name} ({t.address})", self._begin_register(t, p, is_pushed))
            for t, p in remote
        ]
        graph = self.worker.register(self.own, own, is_pushed, is_partial, is_alone=not remote)
        answers = [
            self._named(t, a)
            for (t, _), a in zip(remote, gather(begun, max(self.connect_timeout, CONNECT_TIMEOUT)))
        ]
        for (task, _), (_, error) in zip(remote, answers):
            if error is not None:
                raise at_task(explained(compiled, error), task.name, task.address)
        handles = [parse(worker_pb2.RegisterGraphResponse, a).graph_handle for a, _ in answers]
        parts = [RemotePart(t, self.handle, h) for (t, _), h in zip(remote, handles)]
        if self.log_placement:
            print(placement_log(compiled.step))
        return ClusterExecutable(self, compiled, graph, parts, is_pushed)

    @staticmethod
    def _named(task: RemoteTask, answer: tuple[Any, OpError | None]) -> tuple[Any, OpError | None]:
        made, error = answer
        if isinstance(error, UnavailableError) and task.name not in error.message:
            error = task.unavailable(error, "cannot be reached")
        return made, error

    def _begin_session(self, task: RemoteTask) -> Callable[[Any], Any]:
        request = worker_pb2.CreateWorkerSessionRequest(
            session_handle=self.handle,
            isolate_session_state=self.is_isolated,
            master_task=self.worker.task,
            master_incarnation=self.worker.incarnation % (1 << 63),
        )
        job, index = device_names.task_of(task.name)
        server = tensorflow_server_pb2.ServerDef(job_name=job, task_index=index, protocol="grpc")
        if self._sends_cluster:
            server.cluster.CopyFrom(self.cluster.as_cluster_def())
        request.server_def.CopyFrom(server)
        return lambda done: task.peer.call(
            WORKER + "CreateWorkerSession", request.SerializeToString(), done, self.connect_timeout
        )

    def _begin_register(
        self, task: RemoteTask, partition: Partition, is_pushed: bool
    ) -> Callable[[Any], Any]:
        request = worker_pb2.RegisterGraphRequest(
            session_handle=self.handle, create_worker_session_called=True
        )
        request.graph_def.CopyFrom(to_graph_def(partition))
        payload = request.SerializeToString() + (PUSHED if is_pushed else b"")
        return lambda done: task.peer.call(
            WORKER + "RegisterGraph", payload, done, max(self.connect_timeout, CONNECT_TIMEOUT)
        )

    # -- what a client asks ------------------------------------------------------------------------

    def extend(self, graph_def: Any, version: int) -> int:
        """Add nodes to the graph; the new version.

        Raises:
          AbortedError, InvalidArgumentError: another version than the graph's; nodes that do not fit.
        """
        from graphrt.core.errors import AbortedError, InvalidArgumentError
        from graphrt.core.graph_def import extend_graph

        with self._lock:
            self._check_open()
            if version != self.version:
                raise AbortedError(
                    None,
                    None,
                    f"the session's graph is at version {self.version}, and was to be extended from "
                    f"{version}",
                )
            try:
                added = extend_graph(self.graph, graph_def)
            except (ValueError, TypeError) as error:
                raise InvalidArgumentError(None, None, str(error)) from None
            for op in added:
                # Where the client's program built it is not known here.
                op.location = None  # type: ignore[assignment]
            self.version += 1
            return self.version

    def list_devices(self) -> list[Any]:
        """The devices of every task that can be reached."""
        unknown = [t for t in self.tasks.values() if t.devices is None]
        if unknown:
            self._learn(unknown)
        return [*self.worker.devices, *(d for t in self.tasks.values() for d in t.devices or ())]

    def reset(self, containers: list[str] | None = None) -> None:
        raise FailedPreconditionError(None, None, "Session.reset(target) clears the containers of a cluster")

    def close(self) -> None:
        """Cancel the steps that run, and let go of what the session has at each task. Variables stay in their
        containers."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        error = CancelledError(None, None, "Session has been closed.")
        for step in list(self.running):
            step.cancel(error)
        held = [t for t in self.tasks.values() if t.has_session and t.lost is None]
        request = worker_pb2.DeleteWorkerSessionRequest(session_handle=self.handle).SerializeToString()
        gather(
            [
                (
                    f"DeleteWorkerSession at {t.name}",
                    lambda done, t=t: t.peer.call(
                        WORKER + "DeleteWorkerSession", request, done, _CLOSE_TIMEOUT
                    ),
                )
                for t in held
            ],
            _CLOSE_TIMEOUT + 1.0,
        )
        self.worker.delete_session(self.handle)
        for task in self.tasks.values():
            task.release()
        self._executables.clear()
