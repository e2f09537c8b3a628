"""The worker of a task: registered graphs of many masters, their steps, and the tensors that go between
tasks.

`worker_service.py` answers TensorFlow's WorkerService with it. Nothing here waits: steps run on the compute
pool, and whoever waits for a tensor is a callback."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.cluster.registered_graph import RegisteredGraph
from graphrt.cluster.step_rendezvous import ANNOUNCEMENT, TENSOR, StepRendezvous, read_prefix
from graphrt.cluster.step_table import StepTable
from graphrt.cluster.wire_errors import to_wire
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_partition
from graphrt.compiler.step_graph import Partition, StepGraph
from graphrt.core.errors import AbortedError, CancelledError, InvalidArgumentError, OpError, UnavailableError
from graphrt.core.resources import Containers
from graphrt.runtime.elastic_threads import elastic_threads
from graphrt.runtime.plan import Plan
from graphrt.runtime.pooled_step import PooledStep
from graphrt.runtime.rendezvous import parse_key
from graphrt.runtime.worker_session import WorkerSession
from graphrt.transport.interface import Request
from graphrt.transport.loop import io_loop
from graphrt.transport.tensors import unpack

_TICK = 5.0
LEASE = 15.0
_PROBE_AFTER = 10.0
# Names of the edges between a task's devices; masters count theirs from 1.
_FIRST_NAME = 1_000_000_000
_log = logging.getLogger("graphrt")
# Asks a task whether its part of a step still runs.
PROBE_METHOD = "/graphrt.PeerService/Probe"


class TaskSession:
    """A master's session at this worker.

    Attributes:
      runtime: the WorkerSession that its plans share.
      link: over which the master last spoke; its loss ends the session after a while.
    """

    def __init__(
        self,
        worker: Worker,
        handle: str,
        runtime: WorkerSession,
        cluster: ClusterSpec,
        link: Any,
        owner: tuple[str, int],
    ) -> None:
        self.worker, self.handle, self.runtime, self.cluster, self.link, self.owner = (
            worker,
            handle,
            runtime,
            cluster,
            link,
            owner,
        )
        self.task = worker.task
        self.graphs: dict[str, RegisteredGraph] = {}
        self._peers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.options = CompileOptions(
            worker.devices[0].name, name_suffix="_W", names=itertools.count(_FIRST_NAME)
        )

    def peer(self, task: str) -> Any:
        """The Peer of another task.

        Raises:
          UnavailableError: the cluster does not have it.
        """
        with self._lock:
            found = self._peers.get(task)
            if found is None:
                found = self._peers[task] = self.worker.peer_at(self.cluster, task)
            return found

    def close(self) -> None:
        self.runtime.close()
        with self._lock:
            peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.release()


class Worker:
    """See the module.

    Args:
      task: '/job:worker/replica:0/task:0'.
      devices: its devices, CPU:0 first.
      transport: reaches the other tasks.
    """

    def __init__(self, task: str, devices: list[Any], cluster: ClusterSpec, transport: Any) -> None:
        self.task, self.devices, self.cluster, self.transport = task, devices, cluster, transport
        self.resources = Containers()
        self.incarnation = devices[0].incarnation
        self.sessions: dict[str, TaskSession] = {}
        self.steps = StepTable()
        self._lock = threading.Lock()
        self._graph_numbers = itertools.count(1)
        self._ticking: Callable[[], None] | None = None
        self.is_stopped = False
        # Sessions that come without CreateWorkerSession share one.
        self._default = self._new_session("", False, cluster, None, ("", 0))

    # -- sessions ----------------------------------------------------------------------------------

    def peer_at(self, cluster: ClusterSpec, task: str) -> Any:
        job, index = _job_and_index(task)
        try:
            address = cluster.task_address(job, index)
        except ValueError as error:
            raise UnavailableError(None, None, f"{self.task} cannot reach {task}: {error}") from None
        return self.transport.peer(address)

    def _new_session(
        self, handle: str, is_isolated: bool, cluster: ClusterSpec, link: Any, owner: tuple[str, int]
    ) -> TaskSession:
        runtime = WorkerSession(self.devices, Containers() if is_isolated else self.resources)
        return TaskSession(self, handle, runtime, cluster, link, owner)

    def create_session(
        self,
        handle: str,
        is_isolated: bool,
        cluster: ClusterSpec | None = None,
        link: Any = None,
        owner: tuple[str, int] = ("", 0),
    ) -> TaskSession:
        """Raises InvalidArgumentError for a session that exists."""
        stale: list[str] = []
        with self._lock:
            if handle in self.sessions:
                raise InvalidArgumentError(
                    None, None, f"the session '{handle}' exists already at {self.task}"
                )
            if owner[0]:
                # That master was restarted: nobody will close the sessions that it had.
                stale = [
                    h for h, s in self.sessions.items() if s.owner[0] == owner[0] and s.owner[1] != owner[1]
                ]
            made = self.sessions[handle] = self._new_session(
                handle, is_isolated, cluster or self.cluster, link, owner
            )
        for other in stale:
            self.delete_session(other)
        return made

    def delete_session(self, handle: str) -> None:
        """End the session's steps and forget its graphs. Containers stay, as they outlive sessions."""
        with self._lock:
            session = self.sessions.pop(handle, None)
            running = (
                [e for e in self.steps.entries.values() if e.graph is not None and e.graph.session is session]
                if session
                else []
            )
        if session is None:
            return
        error = CancelledError(None, None, f"the session was closed at {self.task}")
        for entry in running:
            self.end_step(entry.step_id, error)
        session.close()
        if session.runtime.resources is not self.resources:
            session.runtime.resources.clear()

    def session(self, handle: str) -> TaskSession:
        """Raises AbortedError where it is not known."""
        if not handle:
            return self._default
        found = self.sessions.get(handle)
        if found is None:
            raise AbortedError(
                None,
                None,
                f"Session handle is not found: {handle}. {self.task} (incarnation {self.incarnation}) was "
                "restarted, or the session was closed there",
            )
        return found

    # -- graphs ------------------------------------------------------------------------------------

    def register(
        self,
        session: TaskSession,
        partition: Any,
        is_pushed: bool,
        is_partial: bool = False,
        is_alone: bool = False,
    ) -> RegisteredGraph:
        """Compile a partition (a GraphDef, or a Partition of this process) into plans.

        Args:
          is_pushed: every task of the step is a graphrt one.
          is_partial: its feeds come later.
          is_alone: the step has no other partition.

        Raises:
          OpError: it cannot be built; the message names the op.
        """
        if isinstance(partition, Partition):
            # What it sends is what other partitions need of it.
            step = partition.graph
            sends = [n for n in step.nodes if n.type in ("_Send", "_HostSend")]
            partition = StepGraph(step.nodes, step.args, step.retvals, [*step.targets, *sends], step.library)
        compiled = compile_partition(partition, self.devices, session.options)
        if is_partial:
            from graphrt.cluster.partial import defer_args

            defer_args(compiled)
        session.runtime.functions.update(compiled.step.library)
        plans = [
            Plan(p, session.runtime, is_alone and len(compiled.partitions) == 1) for p in compiled.partitions
        ]
        graph = RegisteredGraph(f"{next(self._graph_numbers):016x}", plans, session, is_pushed)
        graph.compiled = compiled
        session.graphs[graph.handle] = graph
        return graph

    # -- steps -------------------------------------------------------------------------------------

    def begin_step(
        self, graph: RegisteredGraph, step_id: int, request_id: int, make: Callable[[Any], Any]
    ) -> Any:
        """A step of `graph`, made by `make(rendezvous)`; it is not begun yet.

        Raises:
          AbortedError: a repeated request or step.
        """
        with self._lock:
            entry = self.steps.on_run(step_id, request_id, time.monotonic())
            entry.graph = graph
        step = make(StepRendezvous(entry, graph))
        entry.running = step
        self._tick_soon()
        return step

    def step_over(self, step_id: int, error: OpError | None) -> None:
        """The plans of a step are over here."""
        with self._lock:
            entry = self.steps.entries.get(step_id)
            if entry is not None:
                is_kept = error is not None or not entry.graph.is_pushed or not entry.rendezvous.is_empty
                self.steps.on_over(entry, is_kept, error is not None, time.monotonic())
        if entry is not None and error is not None:
            entry.rendezvous.abort(error)

    def end_step(self, step_id: int, error: OpError | None = None) -> None:
        """CleanupGraph: forget the step; whoever waits on it, or still runs it, gets `error`."""
        told = error or AbortedError(None, None, f"step {step_id} was ended by its master")
        with self._lock:
            entry = self.steps.on_end(step_id, error)
        if entry is not None:
            running = entry.running
            if running is not None:
                running.fail(told)
            entry.rendezvous.abort(told)

    def run_graph(
        self,
        graph: RegisteredGraph,
        step_id: int,
        request_id: int,
        sends: list[tuple[str, Any]],
        is_traced: bool,
        done: Callable[[PooledStep], None],
    ) -> PooledStep:
        """Run a registered graph on the compute pool; `done(step)` is called when it is over."""

        def over(step: PooledStep) -> None:
            self.step_over(step_id, step.error)
            done(step)

        step = self.begin_step(
            graph,
            step_id,
            request_id,
            lambda rendezvous: PooledStep(graph.plans, [], step_id, rendezvous, is_traced, on_over=over),
        )
        for key, value in sends:
            step.rendezvous.send(key, value)
        step.begin()
        return step

    # -- tensors -----------------------------------------------------------------------------------

    def posted(self, kind: int, message: Any, link: Any) -> None:
        """A tensor was pushed, or announced."""
        try:
            step_id, key, size = read_prefix(message)
            value, is_dead = unpack(message[size:], False) if kind == TENSOR else (ANNOUNCEMENT, False)
            with self._lock:
                entry = self.steps.on_reach(step_id, time.monotonic())
            entry.rendezvous.send(key, value, is_dead)
        except OpError as error:
            _log.debug("a pushed tensor came too late: %s", error.message)
        self._tick_soon()

    def tensor_wanted(
        self, request: Request, step_id: int, key: str, encode: Callable[[Any, bool], Any]
    ) -> None:
        self._check_incarnation(key)
        with self._lock:
            entry = self.steps.on_reach(step_id, time.monotonic())

        def done(value: Any, is_dead: bool, error: OpError | None) -> None:
            if request.is_cancelled:
                return
            if error is not None:
                request.fail(to_wire(error))
                return
            try:
                request.reply(encode(value, is_dead))
            except Exception as failure:  # whatever a value does when it is encoded: the other task is told
                request.fail(to_wire(failure))
            if entry.is_over and entry.graph.is_pushed and entry.rendezvous.is_empty:
                with self._lock:
                    self.steps.on_end(step_id, None)

        entry.rendezvous.recv(key, done)
        request.on_cancel(lambda: entry.rendezvous.forget_waiter(key))
        self._tick_soon()

    def _check_incarnation(self, key: str) -> None:
        parsed = parse_key(key)
        device = next((d for d in self.devices if d.name == parsed.send_device), None)
        if device is None:
            raise InvalidArgumentError(
                None,
                None,
                f"{self.task} has no device '{parsed.send_device}' to send '{parsed.tensor_name}' from",
            )
        if device.incarnation != parsed.incarnation:
            raise AbortedError(
                None,
                None,
                f"RecvTensor expects a different device incarnation: {parsed.incarnation} vs. "
                f"{device.incarnation}. {self.task} was restarted since the step's session learned its "
                "devices: "
                "make a new session",
            )

    # -- life --------------------------------------------------------------------------------------

    def link_lost(self, link: Any) -> None:
        """A master that spoke over `link` has a while to come back."""
        with self._lock:
            left = [h for h, s in self.sessions.items() if s.link is link]
        for handle in left:
            self._expire(handle, link)

    def _expire(self, handle: str, link: Any) -> None:
        def expire() -> None:
            session = self.sessions.get(handle)
            if session is not None and session.link is link:
                elastic_threads.submit(lambda: self.delete_session(handle))

        io_loop().later(LEASE, expire)

    def _tick_soon(self) -> None:
        if self._ticking is None and not self.is_stopped:
            self._ticking = io_loop().later(_TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        now = time.monotonic()
        with self._lock:
            expired = self.steps.on_tick(now)
            entries = list(self.steps.entries.values())
        for entry, error in expired:
            entry.rendezvous.abort(error)
        for entry in entries:
            self._probe(entry, now)
        if entries:
            self._tick_soon()

    def _probe(self, entry: Any, now: float) -> None:
        """Ask the producers of tensors that are long in coming whether their part of the step still runs."""
        graph = entry.graph
        if graph is None or not graph.is_pushed or entry.running is None:
            return
        late = {}
        for key, since in entry.rendezvous.awaited():
            if now - since > _PROBE_AFTER and parse_key(key).recv_device.startswith(self.task + "/"):
                late[graph.peer_of(key, False)] = key
        for peer, key in late.items():
            if peer is not None:
                peer.call(
                    PROBE_METHOD, str(entry.step_id).encode(), _Probed(self, entry, peer, key), _PROBE_AFTER
                )

    def stop(self) -> None:
        self.is_stopped = True
        if self._ticking is not None:
            self._ticking()
        error = UnavailableError(None, None, f"{self.task} was stopped")
        for step_id in list(self.steps.entries):
            self.end_step(step_id, error)
        for handle in list(self.sessions):
            self.delete_session(handle)
        self._default.close()
        self.resources.clear()


class _Probed:
    """What a producer said of a step from which a tensor is awaited. A tensor pushed before the answer may
    come a little after it: only the second such answer is a loss."""

    def __init__(self, worker: Worker, entry: Any, peer: Any, key: str) -> None:
        self.worker, self.entry, self.peer, self.key = worker, entry, peer, key

    def __call__(self, answer: Any, error: OpError | None) -> None:
        running = self.entry.running
        if running is None or not any(k == self.key for k, _ in self.entry.rendezvous.awaited()):
            return
        sender = parse_key(self.key).send_device
        if error is not None:
            running.fail(
                UnavailableError(
                    None,
                    None,
                    f"{sender} at {self.peer.address}, from which '{parse_key(self.key).tensor_name}' is "
                    f"awaited, cannot be reached: {error.message}",
                )
            )
        elif bytes(answer) == b"over":
            lost = getattr(running, "suspected", None)
            running.suspected = self.key
            if lost == self.key:
                running.fail(
                    UnavailableError(
                        None,
                        None,
                        f"the tensor '{parse_key(self.key).tensor_name}' from {sender} at "
                        f"{self.peer.address} was lost: the connection broke while it was under way",
                    )
                )


def _job_and_index(task: str) -> tuple[str, int]:
    from graphrt.core.device_names import task_of

    return task_of(task)
