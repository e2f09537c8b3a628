"""Server: a task of a cluster in this process: its master, its worker, and the port that both answer at."""

from __future__ import annotations

import sys
import threading
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.cluster.master import Master
from graphrt.cluster.master_service import MasterService
from graphrt.cluster.wire_errors import to_wire
from graphrt.cluster.worker import Worker
from graphrt.cluster.worker_service import WorkerService
from graphrt.core.errors import InvalidArgumentError, UnimplementedError
from graphrt.protos import tensorflow_server_pb2
from graphrt.runtime.devices import make_devices
from graphrt.transport.interface import Request

# Beside a thread of small kernels the transport's thread would wait 5 ms for its turn.
SWITCH_INTERVAL = 1e-4
_JOIN_SLICE = 3600.0
# target -> Server: clients in this process call its master directly.
local_servers: dict[str, Server] = {}


class Server:
    """A task of a cluster.

    Args:
      server_or_cluster_def: a ServerDef, a ClusterDef, a ClusterSpec or a dictionary that makes one.
      job_name, task_index: which task this is; they may be left out where the cluster has only one, or the
        ServerDef says it. protocol: 'grpc', or 'in-process': a network within this process, for tests.
        config: default ConfigProto of its sessions; its device_count says which devices the task has. start:
        answer at once; otherwise from `start()` on.
    Raises:
      ValueError, TypeError: the arguments do not name a task.
      UnavailableError: the address cannot be listened on.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        self._server_def = _server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        made = self._server_def
        cluster = ClusterSpec(made.cluster)
        config = made.default_session_config if made.HasField("default_session_config") else None
        self._transport = _transport(made.protocol)
        self._listener = self._transport.listen(cluster.task_address(made.job_name, made.task_index))
        self.address = self._listener.address
        self._target = f"{made.protocol}://{self.address}"
        if self.address != cluster.task_address(made.job_name, made.task_index):
            cluster = _with_address(cluster, made.job_name, made.task_index, self.address)
            made.cluster.CopyFrom(cluster.as_cluster_def())
        task = f"/job:{made.job_name}/replica:0/task:{made.task_index}"
        counts = config.device_count if config is not None else {}
        devices = make_devices(
            task, counts["CPU"] if "CPU" in counts else 1, counts["GPU"] if "GPU" in counts else None
        )
        self.worker = Worker(task, devices, cluster, self._transport)
        self.master = Master(self.worker, config)
        self._service = _Service(self.master, self.worker)
        self._stopped = threading.Event()
        self._is_started = False
        self._lock = threading.Lock()
        if start:
            self.start()

    def start(self) -> None:
        """Answer at the port. Again is fine.

        Raises:
          RuntimeError: the server was stopped.
        """
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(f"the server at {self.address} was stopped: make a new one")
            if self._is_started:
                return
            self._is_started = True
            if sys.getswitchinterval() > SWITCH_INTERVAL:
                sys.setswitchinterval(SWITCH_INTERVAL)
            self._listener.start(self._service)
            local_servers[self._target] = self

    def join(self) -> None:
        """Wait until the server is stopped."""
        while not self._stopped.wait(_JOIN_SLICE):
            pass

    def stop(self, grace: float = 1.0) -> None:
        """Stop answering, end the steps that run, and let go of everything.

        Args:
          grace: seconds that calls which are being answered have.
        """
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
        if local_servers.get(self._target) is self:
            del local_servers[self._target]
        self.master.stop()
        self.worker.stop()
        self._listener.stop(grace)

    @property
    def target(self) -> str:
        """What a Session takes to run here: 'grpc://host:port'."""
        return self._target

    @property
    def server_def(self) -> Any:
        """The ServerDef message."""
        made = tensorflow_server_pb2.ServerDef()
        made.CopyFrom(self._server_def)
        return made

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """A cluster of one task, at a free port of this machine."""
        return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()


class _Service:
    """See transport.interface.Service: the methods of master and worker at one port."""

    def __init__(self, master: Master, worker: Worker) -> None:
        self._master, self._worker = master, worker
        self._calls = {**MasterService(master).calls, **WorkerService(worker).calls}

    def handle(self, request: Request) -> None:
        call = self._calls.get(request.method)
        try:
            if call is None:
                raise UnimplementedError(None, None, f"graphrt's server has no method {request.method}")
            call(request)
        except Exception as error:  # one request, whatever it holds, does not end a server
            request.fail(to_wire(error))

    def posted(self, kind: int, message: Any, link: Any) -> None:
        self._worker.posted(kind, message, link)

    def link_opened(self, link: Any) -> None:
        """Links are known by what is said over them."""

    def link_lost(self, link: Any) -> None:
        self._worker.link_lost(link)
        self._master.link_lost(link)


def _transport(protocol: str) -> Any:
    if protocol == "in-process":
        from graphrt.transport.in_process import network

        return network
    from graphrt.transport.grpc_server import GrpcTransport

    return GrpcTransport()


def _with_address(cluster: ClusterSpec, job: str, index: int, address: str) -> ClusterSpec:
    """The cluster, where the port of a task was left open and is known now."""
    tasks = {
        j: dict(zip(cluster.task_indices(j), [cluster.task_address(j, i) for i in cluster.task_indices(j)]))
        for j in cluster.jobs
    }
    tasks[job][index] = address
    return ClusterSpec(tasks)


def _server_def(
    given: Any, job_name: str | None, task_index: int | None, protocol: str | None, config: Any
) -> Any:
    made = tensorflow_server_pb2.ServerDef()
    if hasattr(given, "job_name") and hasattr(given, "cluster"):
        made.MergeFromString(given.SerializeToString())
    else:
        try:
            made.cluster.CopyFrom(ClusterSpec(given).as_cluster_def())
        except TypeError as error:
            raise TypeError(f"Invalid `server_or_cluster_def`: {error}") from None
    if job_name is not None:
        made.job_name = job_name
    if not made.job_name:
        if len(made.cluster.job) != 1:
            raise ValueError(
                "Must specify an explicit job_name: the cluster has the jobs "
                + ", ".join(j.name for j in made.cluster.job)
            )
        made.job_name = made.cluster.job[0].name
    spec = ClusterSpec(made.cluster)
    if task_index is not None:
        made.task_index = task_index
    elif not hasattr(given, "job_name"):
        if spec.num_tasks(made.job_name) != 1:
            raise ValueError(
                f"Must specify an explicit task_index: job '{made.job_name}' has "
                f"{spec.num_tasks(made.job_name)} tasks"
            )
        made.task_index = spec.task_indices(made.job_name)[0]
    spec.task_address(made.job_name, made.task_index)
    made.protocol = protocol or made.protocol or "grpc"
    if made.protocol not in ("grpc", "in-process"):
        raise InvalidArgumentError(
            None, None, f"unknown protocol '{made.protocol}': graphrt's servers speak 'grpc'"
        )
    if config is not None:
        made.default_session_config.MergeFromString(config.SerializeToString())
    return made


__all__ = ["Server"]
