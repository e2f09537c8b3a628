"""MasterService: TensorFlow's messages to a Master's methods, a function an RPC. What each takes is in
master.proto.

Nothing that waits holds a thread: a step that was compiled before begins on the transport's thread and runs
on the compute pool; what compiles, or contacts other tasks, goes to a thread of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from graphrt.cluster.executable import ClusterExecutable, PartialRun
from graphrt.cluster.master import Master
from graphrt.cluster.step_stats import fill_step_stats
from graphrt.cluster.wire_errors import to_wire
from graphrt.cluster.worker_service import describe_device
from graphrt.compiler.graph_def import to_graph_def
from graphrt.compiler.step_graph import Signature
from graphrt.core.errors import CancelledError, InvalidArgumentError, NotFoundError, OpError
from graphrt.core.graph import Graph
from graphrt.protos import config_pb2, master_pb2
from graphrt.runtime.elastic_threads import elastic_threads
from graphrt.transport.interface import Request
from graphrt.transport.tensors import (
    length_field,
    named_tensors,
    parse,
    read_named_tensor,
    read_tensor_proto,
    size_of,
    split,
    tensor_proto,
)

_PREFIX = "/tensorflow.MasterService/"
# Larger feeds are read on a thread of their own: the transport's thread has other things to do.
_READ_HERE_UP_TO = 1 << 20
_TRACED = (1, 3)


class _Callable:
    """What MakeCallable made: an executable, and the order of its feeds and fetches."""

    def __init__(self, signature: Signature, options: Any) -> None:
        self.signature, self.options = signature, options


class _Partial:
    """A partial run at the master: which feeds and fetches are where, and the step."""

    def __init__(self, run: PartialRun, signature: Signature) -> None:
        self.run = run
        self.feeds = {name: i for i, name in enumerate(signature.feeds)}
        self.fetches = {name: i for i, name in enumerate(signature.fetches)}
        self.targets = set(signature.targets)
        self.fed: set[str] = set()


class MasterService:
    """Answers the MasterService's methods of a server."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self._numbers = itertools.count(1)
        in_thread = self._in_thread
        self.calls: dict[str, Callable[[Request], None]] = {
            _PREFIX + name: function
            for name, function in {
                "CreateSession": in_thread(self._create_session),
                "ExtendSession": in_thread(self._extend_session),
                "RunStep": self._run_step,
                "PartialRunSetup": in_thread(self._partial_run_setup),
                "MakeCallable": in_thread(self._make_callable),
                "RunCallable": self._run_callable,
                "ReleaseCallable": self._release_callable,
                "CloseSession": in_thread(self._close_session),
                "ListDevices": in_thread(self._list_devices),
                "Reset": in_thread(self._reset),
            }.items()
        }

    @staticmethod
    def _in_thread(function: Callable[[Request], None]) -> Callable[[Request], None]:
        def begin(request: Request) -> None:
            def work() -> None:
                try:
                    function(request)
                except Exception as error:  # the client is told, whatever it is
                    request.fail(to_wire(error))

            elastic_threads.submit(work)

        return begin

    # -- sessions ----------------------------------------------------------------------------------

    def _create_session(self, request: Request) -> None:
        asked = parse(master_pb2.CreateSessionRequest, request.payload)
        timeout = (
            asked.config.operation_timeout_in_ms / 1e3 if asked.config.operation_timeout_in_ms > 0 else None
        )
        session = self.master.open_session(Graph(), asked.config, timeout, request.link)
        session.callables, session.partials = {}, {}
        if asked.graph_def.node or asked.graph_def.library.function:
            session.extend(asked.graph_def, 0)
        request.reply(
            master_pb2.CreateSessionResponse(
                session_handle=session.handle, graph_version=session.version
            ).SerializeToString()
        )

    def _extend_session(self, request: Request) -> None:
        asked = parse(master_pb2.ExtendSessionRequest, request.payload)
        version = self._session(asked, request).extend(asked.graph_def, asked.current_graph_version)
        request.reply(master_pb2.ExtendSessionResponse(new_graph_version=version).SerializeToString())

    def _session(self, asked: Any, request: Request) -> Any:
        return self.master.session(asked.session_handle, request.link)

    def _close_session(self, request: Request) -> None:
        session = self._session(parse(master_pb2.CloseSessionRequest, request.payload), request)
        session.close()
        request.reply(b"")

    def _list_devices(self, request: Request) -> None:
        session = self._session(parse(master_pb2.ListDevicesRequest, request.payload), request)
        made = master_pb2.ListDevicesResponse()
        own = {d.name for d in self.master.worker.devices}
        for device in session.list_devices():
            if device.name in own:
                describe_device(made.local_device.add(), device)
            else:
                made.remote_device.add(
                    name=device.name,
                    device_type=device.type,
                    memory_limit=device.memory_limit,
                    incarnation=device.incarnation,
                )
        request.reply(made.SerializeToString())

    def _reset(self, request: Request) -> None:
        asked = parse(master_pb2.ResetRequest, request.payload)
        self.master.reset(list(asked.container) or None, list(asked.device_filters))
        request.reply(b"")

    # -- steps -------------------------------------------------------------------------------------

    def _run_step(self, request: Request) -> None:
        if len(request.payload) > _READ_HERE_UP_TO:
            self._in_thread(self._read_and_run)(request)
        else:
            self._read_and_run(request)

    def _read_and_run(self, request: Request) -> None:
        feeds, rest = split(request.payload, 2)
        asked = parse(master_pb2.RunStepRequest, rest)
        answer = _StepAnswer(request, asked)
        try:
            session = self._session(asked, request)
            values = dict(map(read_named_tensor, feeds))
            if asked.partial_run_handle:
                self._go_on(session, asked, values, answer)
                return
            signature = Signature(
                tuple(map(_tensor_name, values)),
                tuple(map(_tensor_name, asked.fetch)),
                tuple(dict.fromkeys(asked.target)),
            )
            self._begin(session, signature, list(values.values()), asked.options, answer)
        except Exception as error:  # the client is told, whatever it is
            answer.fail(to_wire(error))

    def _begin(
        self, session: Any, signature: Signature, values: list[Any], options: Any, answer: _Answer
    ) -> None:
        """Run `signature`; what was not compiled before is compiled on a thread of its own."""
        executable = session.known(signature)
        if executable is not None:
            self._start(executable, signature, values, options, answer)
            return

        def work() -> None:
            try:
                self._start(session.executable(_distinct(signature)), signature, values, options, answer)
            except Exception as error:
                answer.fail(to_wire(error))

        elastic_threads.submit(work)

    def _start(
        self,
        executable: ClusterExecutable,
        signature: Signature,
        values: list[Any],
        options: Any,
        answer: _Answer,
    ) -> None:
        for name, value, dtype in zip(signature.feeds, values, executable.feed_dtypes):
            _check_dtype(name, value, dtype)
        timeout = options.timeout_in_ms / 1e3 if options.timeout_in_ms > 0 else None
        is_traced = options.trace_level in _TRACED
        answer.begin(executable, signature, is_traced, options.output_partition_graphs)
        step = executable.start(values, timeout, is_traced, answer)
        answer.request.on_cancel(
            lambda: step.cancel(CancelledError(None, None, "the client gave the step up, or was lost"))
        )

    # -- partial runs ------------------------------------------------------------------------------

    def _partial_run_setup(self, request: Request) -> None:
        asked = parse(master_pb2.PartialRunSetupRequest, request.payload)
        session = self._session(asked, request)
        signature = Signature(
            tuple(map(_tensor_name, asked.feed)), tuple(map(_tensor_name, asked.fetch)), tuple(asked.target)
        )
        run = session.executable(signature, True).begin_partial(None)
        handle = f"partial_{next(self._numbers)}"
        session.partials[handle] = _Partial(run, signature)
        request.reply(master_pb2.PartialRunSetupResponse(partial_run_handle=handle).SerializeToString())

    def _go_on(self, session: Any, asked: Any, values: dict[str, Any], answer: _StepAnswer) -> None:
        partial = session.partials.get(asked.partial_run_handle)
        if partial is None:
            raise InvalidArgumentError(None, None, "Must run 'setup' before performing partial runs!")
        feeds = {}
        for name, value in values.items():
            full = _tensor_name(name)
            if full not in partial.feeds:
                raise InvalidArgumentError(
                    None, None, f"The feed '{full}' was not specified in partial_run_setup."
                )
            if full in partial.fed:
                raise InvalidArgumentError(None, None, f"The feed '{full}' has already been fed.")
            feeds[partial.feeds[full]] = value
        partial.fed.update(map(_tensor_name, values))
        wanted = [_tensor_name(f) for f in asked.fetch]
        for name in wanted:
            if name not in partial.fetches:
                raise InvalidArgumentError(
                    None, None, f"The fetch '{name}' was not specified in partial_run_setup."
                )
        answer.begin(None, None, False, False)

        def answered(fetched: Any, step: Any, error: OpError | None) -> None:
            if step.is_over:
                session.partials.pop(asked.partial_run_handle, None)
            answer(fetched, step, error)

        partial.run.go_on(feeds, [partial.fetches[n] for n in wanted], bool(asked.target), answered)

    # -- callables ---------------------------------------------------------------------------------

    def _make_callable(self, request: Request) -> None:
        asked = parse(master_pb2.MakeCallableRequest, request.payload)
        session = self._session(asked, request)
        options = asked.options
        if options.tensor_connection:
            raise InvalidArgumentError(
                None, None, "CallableOptions.tensor_connection is not supported: feed the tensor"
            )
        signature = Signature(
            tuple(map(_tensor_name, options.feed)),
            tuple(map(_tensor_name, options.fetch)),
            tuple(options.target),
        )
        session.executable(_distinct(signature))
        handle = next(self._numbers)
        session.callables[handle] = _Callable(signature, options.run_options)
        request.reply(master_pb2.MakeCallableResponse(handle=handle).SerializeToString())

    def _run_callable(self, request: Request) -> None:
        try:
            feeds, rest = split(request.payload, 3)
            asked = parse(master_pb2.RunCallableRequest, rest)
            session = self._session(asked, request)
            made = session.callables.get(asked.handle)
            if made is None:
                raise NotFoundError(None, None, f"No such callable handle: {asked.handle}")
            if len(feeds) != len(made.signature.feeds):
                raise InvalidArgumentError(
                    None, None, f"the callable takes {len(made.signature.feeds)} feeds, and got {len(feeds)}"
                )
            values = [read_tensor_proto(f) for f in feeds]
            self._begin(session, made.signature, values, made.options, _CallableAnswer(request))
        except Exception as error:  # the client is told, whatever it is
            request.fail(to_wire(error))

    def _release_callable(self, request: Request) -> None:
        asked = parse(master_pb2.ReleaseCallableRequest, request.payload)
        if self._session(asked, request).callables.pop(asked.handle, None) is None:
            raise NotFoundError(None, None, f"No such callable handle: {asked.handle}")
        request.reply(b"")


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _distinct(signature: Signature) -> Signature:
    """The signature with each fetch once, as compilers want it."""
    return Signature(signature.feeds, tuple(dict.fromkeys(signature.fetches)), signature.targets)


def _check_dtype(name: str, value: Any, dtype: Any) -> None:
    if getattr(value, "dtype", None) != dtype.np:
        raise InvalidArgumentError(
            None,
            None,
            f"the feed '{name}' is {getattr(value, 'dtype', type(value))}, and must be {dtype.name}",
        )


class _Answer:
    """Writes what a step made into the response of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._executable: Any = None
        self._order: list[int] | None = None
        self._is_traced = self._wants_partitions = False

    def begin(
        self, executable: Any, signature: Signature | None, is_traced: bool, wants_partitions: bool
    ) -> None:
        self._executable, self._is_traced, self._wants_partitions = executable, is_traced, wants_partitions
        if signature is not None and len(set(signature.fetches)) != len(signature.fetches):
            distinct = list(dict.fromkeys(signature.fetches))
            self._order = [distinct.index(f) for f in signature.fetches]

    def __call__(self, values: Any, step: Any, error: OpError | None) -> None:
        try:
            if error is not None:
                self.fail(to_wire(error))
                return
            if self._order is not None:
                values = [values[i] for i in self._order]
            self.reply(values, self._metadata(step))
        except Exception as failure:  # a value that does not travel, for one
            self.fail(to_wire(failure))

    def _metadata(self, step: Any) -> bytes:
        if not (self._is_traced or self._wants_partitions):
            return b""
        made = config_pb2.RunMetadata()
        if self._is_traced:
            fill_step_stats(
                made.step_stats, [(n.device, n, start, end, out) for n, start, end, out in step.records]
            )
            for stats in getattr(step, "metadata", ()):
                made.step_stats.MergeFrom(stats)
        if self._wants_partitions:
            for partition in self._executable.compiled.partitions:
                made.partition_graphs.add().CopyFrom(to_graph_def(partition))
        return made.SerializeToString()

    def reply(self, values: list[Any], metadata: bytes) -> None: ...

    def fail(self, error: OpError) -> None:
        self.request.fail(error)


class _StepAnswer(_Answer):
    """The answer of RunStep."""

    def __init__(self, request: Request, asked: Any) -> None:
        super().__init__(request)
        self._in_body = asked.store_errors_in_response_body
        self._names = [f.encode() for f in asked.fetch]

    def reply(self, values: list[Any], metadata: bytes) -> None:
        buffers = named_tensors(1, self._names, values)
        if metadata:
            buffers += [length_field(2, len(metadata)), metadata]
        self.request.reply(buffers)

    def fail(self, error: OpError) -> None:
        if self._in_body and self.request.link is None:
            self.request.reply(
                master_pb2.RunStepResponse(
                    status_code=error.error_code, status_error_message=error.message
                ).SerializeToString()
            )
        else:
            self.request.fail(error)


class _CallableAnswer(_Answer):
    """The answer of RunCallable."""

    def reply(self, values: list[Any], metadata: bytes) -> None:
        buffers: list[Any] = []
        for value in values:
            tensor = tensor_proto(value)
            buffers += [length_field(1, size_of(tensor)), *tensor]
        if metadata:
            buffers += [length_field(2, len(metadata)), metadata]
        self.request.reply(buffers)
