"""WorkerService: TensorFlow's messages to a Worker's methods, a function an RPC. What each takes is in
worker.proto."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.cluster.registered_graph import unknown_graph
from graphrt.cluster.step_rendezvous import PULL_METHOD, read_prefix
from graphrt.cluster.step_stats import fill_step_stats
from graphrt.cluster.wire_errors import to_wire
from graphrt.cluster.worker import PROBE_METHOD, Worker
from graphrt.core.errors import AbortedError, OpError, UnimplementedError
from graphrt.protos import worker_pb2
from graphrt.runtime.elastic_threads import elastic_threads
from graphrt.runtime.pooled_step import PooledStep
from graphrt.transport.interface import Request
from graphrt.transport.tensors import named_tensors, pack, parse, read_named_tensor, recv_response, split

_PREFIX = "/tensorflow.WorkerService/"
# graphrt's own field of RegisterGraphRequest: the step's tensors are pushed.
PUSHED = b"\x88\xe2\x09\x01"


class WorkerService:
    """Answers the WorkerService's methods of a server."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._logged: dict[int, list[Any]] | None = None
        calls: dict[str, Callable[[Request], None]] = {
            _PREFIX + name: function
            for name, function in {
                "GetStatus": self._get_status,
                "CreateWorkerSession": self._create_session,
                "DeleteWorkerSession": self._in_thread(self._delete_session),
                "RegisterGraph": self._in_thread(self._register),
                "DeregisterGraph": self._deregister,
                "RunGraph": self._run_graph,
                "CleanupGraph": self._cleanup_graph,
                "CleanupAll": self._in_thread(self._cleanup_all),
                "RecvTensor": self._recv_tensor,
                "Logging": self._logging,
                "Tracing": self._tracing,
                "MarkRecvFinished": self._mark_recv_finished,
            }.items()
        }
        self.calls = {**calls, PULL_METHOD: self._pull, PROBE_METHOD: self._probe}

    @staticmethod
    def _in_thread(function: Callable[[Request], None]) -> Callable[[Request], None]:
        """Run what may take long (compiling, closing resources) on a thread of its own."""

        def begin(request: Request) -> None:
            def work() -> None:
                try:
                    function(request)
                except Exception as error:  # the caller is told, whatever it is
                    request.fail(to_wire(error))

            elastic_threads.submit(work)

        return begin

    # -- sessions ----------------------------------------------------------------------------------

    def _get_status(self, request: Request) -> None:
        made = worker_pb2.GetStatusResponse()
        for device in self.worker.devices:
            describe_device(made.device_attributes.add(), device)
        request.reply(made.SerializeToString())

    def _create_session(self, request: Request) -> None:
        asked = parse(worker_pb2.CreateWorkerSessionRequest, request.payload)
        cluster = ClusterSpec(asked.server_def.cluster) if asked.server_def.cluster.job else None
        self.worker.create_session(
            asked.session_handle,
            asked.isolate_session_state,
            cluster,
            request.link,
            (asked.master_task, asked.master_incarnation),
        )
        request.reply(b"")

    def _delete_session(self, request: Request) -> None:
        self.worker.delete_session(
            parse(worker_pb2.DeleteWorkerSessionRequest, request.payload).session_handle
        )
        request.reply(b"")

    # -- graphs and steps --------------------------------------------------------------------------

    def _register(self, request: Request) -> None:
        payload = bytes(request.payload)
        asked = parse(worker_pb2.RegisterGraphRequest, payload)
        session = self.worker.session(asked.session_handle)
        session.link = request.link or session.link
        is_pushed = payload.endswith(PUSHED)
        graph = self.worker.register(session, asked.graph_def, is_pushed)
        request.reply(worker_pb2.RegisterGraphResponse(graph_handle=graph.handle).SerializeToString())

    def _deregister(self, request: Request) -> None:
        asked = parse(worker_pb2.DeregisterGraphRequest, request.payload)
        session = self.worker.session(asked.session_handle)
        if session.graphs.pop(asked.graph_handle, None) is None:
            raise unknown_graph(asked.graph_handle, self.worker.task, self.worker.incarnation)
        request.reply(b"")

    def _run_graph(self, request: Request) -> None:
        sends, rest = split(request.payload, 3)
        asked = parse(worker_pb2.RunGraphRequest, rest)
        worker = self.worker
        in_body = asked.store_errors_in_response_body
        recv_keys = list(asked.recv_key)

        def over(step: PooledStep) -> None:
            if step.error is not None:
                self._fail_run(request, to_wire(step.error), in_body)
            else:
                self._reply_run(request, step, recv_keys, asked.exec_opts)

        try:
            session = worker.session(asked.session_handle)
            graph = session.graphs.get(asked.graph_handle)
            if graph is None:
                raise unknown_graph(asked.graph_handle, worker.task, worker.incarnation)
            session.link = request.link or session.link
            values = [read_named_tensor(s) for s in sends]
            opts = asked.exec_opts
            step = worker.run_graph(
                graph,
                asked.step_id,
                asked.request_id,
                values,
                opts.record_timeline or opts.record_costs,
                over,
            )
        except OpError as error:
            self._fail_run(request, to_wire(error), in_body)
            return
        request.on_cancel(
            lambda: step.fail(
                AbortedError(None, None, f"the master of step {asked.step_id} gave it up, or was lost")
            )
        )

    def _fail_run(self, request: Request, error: OpError, in_body: bool) -> None:
        if in_body and request.link is None:
            request.reply(
                worker_pb2.RunGraphResponse(
                    status_code=error.error_code, status_error_message=error.message
                ).SerializeToString()
            )
        else:
            request.fail(error)

    def _reply_run(self, request: Request, step: PooledStep, recv_keys: list[str], opts: Any) -> None:
        made = worker_pb2.RunGraphResponse()
        if step.is_traced:
            fill_step_stats(
                made.step_stats, [(n.device, n, start, end, out) for n, start, end, out in step.records]
            )
        if opts.record_partition_graphs:
            from graphrt.compiler.graph_def import to_graph_def

            for run in step.runs:
                made.partition_graph.add().CopyFrom(to_graph_def(run.plan.partition))
        buffers: list[Any] = [made.SerializeToString()]
        found: list[tuple[bytes, Any]] = []
        for key in recv_keys:
            step.rendezvous.recv(key, lambda value, dead, error, key=key: found.append((key.encode(), value)))
        if found:
            buffers += named_tensors(1, [k for k, _ in found], [v for _, v in found])
        request.reply(buffers)

    def _cleanup_graph(self, request: Request) -> None:
        self.worker.end_step(parse(worker_pb2.CleanupGraphRequest, request.payload).step_id)
        request.reply(b"")

    def _cleanup_all(self, request: Request) -> None:
        self.worker.resources.clear(
            list(parse(worker_pb2.CleanupAllRequest, request.payload).container) or None
        )
        request.reply(b"")

    # -- tensors -----------------------------------------------------------------------------------

    def _recv_tensor(self, request: Request) -> None:
        asked = parse(worker_pb2.RecvTensorRequest, request.payload)
        began = time.time_ns() // 1000

        def encode(value: Any, is_dead: bool) -> list[Any]:
            made = recv_response(value, is_dead)
            if self._logged is not None:
                self._log_transfer(asked, began, sum(len(b) for b in made))
            return made

        self.worker.tensor_wanted(request, asked.step_id, asked.rendezvous_key, encode)

    def _pull(self, request: Request) -> None:
        step_id, key, _ = read_prefix(request.payload)
        self.worker.tensor_wanted(request, step_id, key, pack)

    def _probe(self, request: Request) -> None:
        entry = self.worker.steps.entries.get(int(bytes(request.payload)))
        request.reply(b"over" if entry is None or entry.is_over else b"running")

    def _mark_recv_finished(self, request: Request) -> None:
        # It lets a server forget the answer that it keeps for a retried RecvTensor; none is kept here.
        request.reply(b"")

    # -- looking -----------------------------------------------------------------------------------

    def _log_transfer(self, asked: Any, began: int, size: int) -> None:
        assert self._logged is not None
        if len(self._logged) > 256:
            self._logged.pop(next(iter(self._logged)), None)
        self._logged.setdefault(asked.step_id, []).append(
            (asked.rendezvous_key, began, time.time_ns() // 1000, size)
        )

    def _logging(self, request: Request) -> None:
        asked = parse(worker_pb2.LoggingRequest, request.payload)
        made = worker_pb2.LoggingResponse()
        if asked.enable_rpc_logging and self._logged is None:
            self._logged = {}
        for step_id in asked.fetch_step_id:
            step = made.step.add(step_id=step_id)
            for key, began, ended, size in (self._logged or {}).get(step_id, ()):
                parts = key.split(";")
                device = next(
                    (d for d in step.step_stats.dev_stats if d.device == parts[0]), None
                ) or step.step_stats.dev_stats.add(device=parts[0])
                device.node_stats.add(
                    node_name="RecvTensor",
                    all_start_micros=began,
                    op_end_rel_micros=ended - began,
                    all_end_rel_micros=ended - began,
                    timeline_label=f"[{size} B] {parts[3]} from {parts[0]} to {parts[2]}",
                )
        if asked.clear:
            self._logged = {} if self._logged is not None else None
        if asked.disable_rpc_logging:
            self._logged = None
        request.reply(made.SerializeToString())

    def _tracing(self, request: Request) -> None:
        raise UnimplementedError(
            None,
            None,
            "graphrt has no trace of a whole worker: RunOptions(trace_level=FULL_TRACE) traces a step",
        )


def describe_device(made: Any, device: Any) -> None:
    """Write a device into a DeviceAttributes message."""
    made.name, made.device_type, made.memory_limit = device.name, device.type, device.memory_limit
    made.incarnation, made.physical_device_desc = device.incarnation, device.description
    made.locality.SetInParent()
