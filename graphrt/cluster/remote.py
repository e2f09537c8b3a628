"""A client's session at a server: `connect` gives what `client/session.py` runs steps with.

A server of this process is called directly. Another is spoken to by TensorFlow's MasterService, so it may be
a real TensorFlow server: CreateSession with an empty graph, ExtendSession with what was built since, RunStep
by names."""

from __future__ import annotations

import random
import threading
import warnings
from typing import Any

from graphrt.cluster.local import Collected
from graphrt.cluster.wire_errors import from_body, from_wire
from graphrt.compiler.step_graph import Signature
from graphrt.core.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from graphrt.core.graph import Graph
from graphrt.core.graph_def import graph_def
from graphrt.protos import master_pb2
from graphrt.runtime.devices import Device
from graphrt.transport.tensors import named_tensors, parse, read_named_tensor, split

MASTER = "/tensorflow.MasterService/"
_random = random.Random(random.SystemRandom().getrandbits(64))
# A call that no option bounds, and that is no step, ends by this.
CALL_TIMEOUT = 60.0
_CLOSE_TIMEOUT = 10.0
# After a step's own deadline the server is given this long to say so itself, with what it waits for.
_GRACE = 2.0
_FULL_TRACE = 3


def connect(target: str, graph: Graph, options: Any) -> Any:
    """A session of `graph` at the server behind `target` ('grpc://host:port').

    Args:
      options: client.options.SessionOptions: `proto` and `timeout` count.
    Raises:
      InvalidArgumentError: the target is not one.
      UnavailableError: nobody answers there.
    """
    from graphrt.cluster.server import local_servers

    server = local_servers.get(target)
    if server is not None:
        session = server.master.open_session(graph, options.proto, options.timeout)
        session.is_in_process = True
        return session
    return RemoteSession(target, graph, options)


def reset(target: str, containers: list[str] | None, options: Any) -> None:
    """Clear containers at every task of the cluster behind `target`: all where None.

    Raises:
      UnavailableError: a task that does not answer.
    """
    from graphrt.cluster.server import local_servers

    server = local_servers.get(target)
    filters = list(options.proto.device_filters) if options.proto is not None else []
    if server is not None:
        server.master.reset(containers, filters)
        return
    peer = _peer(target)
    try:
        request = master_pb2.ResetRequest(container=containers or (), device_filters=filters)
        _wait(peer, MASTER + "Reset", request.SerializeToString(), options.timeout or CALL_TIMEOUT)
    finally:
        peer.release()


def _peer(target: str) -> Any:
    protocol, found, address = target.partition("://")
    if not found or not address:
        raise InvalidArgumentError(
            None,
            None,
            f"'{target}' is not a session's target: '' is this process, 'grpc://host:port' a server",
        )
    if protocol == "in-process":
        from graphrt.transport.in_process import network

        return network.peer(address)
    if protocol != "grpc":
        raise InvalidArgumentError(
            None, None, f"'{target}' has the unknown protocol '{protocol}': graphrt speaks grpc://"
        )
    from graphrt.transport.grpc_peer import peers

    return peers.get(address)


def _wait(
    peer: Any,
    method: str,
    request: Any,
    timeout: float | None,
    wait_for_server: bool = False,
    deadline: float | None = None,
) -> Any:
    """Call, and wait for the answer on this thread. Ctrl-C gives the call up.

    Args:
      timeout: the transport's; deadline: seconds after which this end gives up, where the server should have.
    Raises:
      OpError: the server's error, or the connection's.
    """
    turn = threading.Lock()
    turn.acquire()
    got: list[Any] = []

    def done(answer: Any, error: OpError | None) -> None:
        got.append((answer, error))
        turn.release()

    cancel = peer.call(method, request, done, timeout, wait_for_server)
    try:
        if not turn.acquire(timeout=-1 if deadline is None else deadline):
            raise DeadlineExceededError(
                None,
                None,
                f"{peer.address} did not answer {method.rpartition('/')[2]} within {deadline:.1f} s",
            )
    except BaseException:
        cancel()
        raise
    answer, error = got[0]
    if error is not None:
        raise error
    return answer


class RemoteSession:
    """See connect."""

    def __init__(self, target: str, graph: Graph, options: Any) -> None:
        self.target, self.graph, self._options = target, graph, options
        self.peer = _peer(target)
        self.is_closed = False
        self._sent = 0
        self._edits = graph._edits
        self._version = 0
        self._lock = threading.RLock()
        try:
            request = master_pb2.CreateSessionRequest(target=target)
            request.graph_def.versions.producer = 0
            if options.proto is not None:
                request.config.MergeFromString(options.proto.SerializeToString())
            answer = _wait(
                self.peer,
                MASTER + "CreateSession",
                request.SerializeToString(),
                options.timeout or CALL_TIMEOUT,
                True,
            )
        except OpError as error:
            self.peer.release()
            if isinstance(error, (UnavailableError, DeadlineExceededError)):
                raise UnavailableError(
                    None, None, f"no server could be reached at '{target}': {error.message}"
                ) from None
            raise
        made = parse(master_pb2.CreateSessionResponse, answer)
        self.handle, self._version = made.session_handle, made.graph_version

    def _find(self, name: str) -> Any:
        return self.graph._operations.get(name)

    def call(
        self, method: str, request: Any, timeout: float | None = CALL_TIMEOUT, deadline: float | None = None
    ) -> Any:
        """The answer of the server; its errors with the operations of this graph."""
        if self.is_closed:
            raise CancelledError(None, None, "Session has been closed.")
        try:
            return _wait(self.peer, MASTER + method, request, timeout, False, deadline)
        except OpError as error:
            raise self.explained(error) from None

    def explained(self, error: OpError) -> OpError:
        """An error of the server, with the operation, and the line that built it, of this program."""
        made = from_wire(error, self._find)
        op = made.op
        if op is not None and "built at" not in made.message and getattr(op, "location", None):
            from graphrt.core.errors import source_line

            made._message += f"\n  built at {source_line(op.location)}"
            made.args = (made._message,)
        return made

    def extend(self) -> None:
        """Send the nodes that were built since the last time."""
        graph = self.graph
        with self._lock:
            if graph._edits != self._edits:
                if self._sent:
                    warnings.warn(
                        "operations that a session on a server has run were changed since; the server keeps "
                        "them as they were. "
                        "Make a new session after changing operations",
                        stacklevel=5,
                    )
                self._edits = graph._edits
            count = len(graph._operations)
            if count == self._sent:
                return
            request = master_pb2.ExtendSessionRequest(
                session_handle=self.handle, current_graph_version=self._version
            )
            request.graph_def.CopyFrom(graph_def(graph, self._sent))
            count = self._sent + len(request.graph_def.node)
            answer = self.call("ExtendSession", request.SerializeToString())
            self._version = parse(master_pb2.ExtendSessionResponse, answer).new_graph_version
            self._sent = count

    def executable(self, signature: Signature, is_partial: bool = False) -> RemoteExecutable:
        self.extend()
        return RemoteExecutable(self, signature)

    def list_devices(self) -> list[Any]:
        request = master_pb2.ListDevicesRequest(session_handle=self.handle)
        made = parse(master_pb2.ListDevicesResponse, self.call("ListDevices", request.SerializeToString()))
        return [_device(d) for d in [*made.local_device, *made.remote_device]]

    def close(self) -> None:
        """Close the session at the server, if that answers soon."""
        if self.is_closed:
            return
        try:
            self.call(
                "CloseSession",
                master_pb2.CloseSessionRequest(session_handle=self.handle).SerializeToString(),
                _CLOSE_TIMEOUT,
            )
        except (UnavailableError, DeadlineExceededError, CancelledError):
            pass  # the server is gone, and the session with it
        finally:
            self.is_closed = True
            self.peer.release()


def _device(attributes: Any) -> Device:
    made = Device(attributes.name, 0, attributes.memory_limit)
    made.type, made.incarnation = attributes.device_type, attributes.incarnation
    return made


class RemoteExecutable:
    """A signature at a server."""

    def __init__(self, session: RemoteSession, signature: Signature) -> None:
        self.session, self.signature = session, signature
        self._feeds = [f.encode() for f in signature.feeds]
        self._fixed = master_pb2.RunStepRequest(
            session_handle=session.handle,
            fetch=signature.fetches,
            target=signature.targets,
            store_errors_in_response_body=True,
        ).SerializeToString()

    @property
    def compiled(self) -> Any:
        raise InvalidArgumentError(
            None,
            None,
            "a session on a server compiles there: explain(...) in a session without a target shows "
            "what the compiler makes of these fetches",
        )

    def run(
        self, feeds: list[Any], timeout: float | None = None, collected: Collected | None = None
    ) -> list[Any]:
        """Run one step; see local.Executable.run."""
        request: list[Any] = [self._fixed, self._rest(timeout, collected)]
        if feeds:
            request += named_tensors(2, self._feeds, feeds)
        return self.fetched(self._call(request, timeout), self.signature.fetches, collected)

    @staticmethod
    def _rest(timeout: float | None, collected: Collected | None, partial: str = "") -> bytes:
        made = master_pb2.RunStepRequest(request_id=_random.getrandbits(63) | 1, partial_run_handle=partial)
        if timeout is not None:
            made.options.timeout_in_ms = max(1, int(timeout * 1e3))
        if collected is not None:
            made.options.trace_level = _FULL_TRACE
            made.options.output_partition_graphs = collected.wants_partitions
        return made.SerializeToString()

    def _call(self, request: list[Any], timeout: float | None) -> Any:
        return self.session.call("RunStep", request, None, None if timeout is None else timeout + _GRACE)

    def fetched(self, answer: Any, names: Any, collected: Collected | None = None) -> list[Any]:
        """The values of a RunStepResponse, in the order of `names`."""
        tensors, rest = split(answer, 1)
        if rest:
            made = parse(master_pb2.RunStepResponse, rest)
            error = from_body(made.status_code, made.status_error_message)
            if error is not None:
                raise self.session.explained(error)
            if collected is not None:
                collected.metadata = made.metadata.SerializeToString()
        found = dict(map(read_named_tensor, tensors))
        missing = [n for n in names if n not in found]
        if missing:
            raise InvalidArgumentError(None, None, f"the server's answer lacks {', '.join(missing)}")
        return [found[n] for n in names]

    def begin_partial(self, timeout: float | None) -> RemotePartialStep:
        return RemotePartialStep(self, timeout)


class RemotePartialStep:
    """A partial run at a server; see local.PartialStep."""

    def __init__(self, executable: RemoteExecutable, timeout: float | None) -> None:
        self._executable, self._timeout = executable, timeout
        session, signature = executable.session, executable.signature
        request = master_pb2.PartialRunSetupRequest(
            session_handle=session.handle,
            feed=signature.feeds,
            fetch=signature.fetches,
            target=signature.targets,
            request_id=_random.getrandbits(63) | 1,
        )
        answer = session.call("PartialRunSetup", request.SerializeToString(), timeout or CALL_TIMEOUT)
        self._handle = parse(master_pb2.PartialRunSetupResponse, answer).partial_run_handle

    def advance(self, feeds: dict[int, Any], fetches: list[int], to_its_end: bool) -> list[Any]:
        executable, signature = self._executable, self._executable.signature
        names = [signature.fetches[i] for i in fetches]
        fixed = master_pb2.RunStepRequest(
            session_handle=executable.session.handle,
            fetch=names,
            target=signature.targets if to_its_end else (),
        )
        request: list[Any] = [fixed.SerializeToString(), executable._rest(self._timeout, None, self._handle)]
        request += named_tensors(2, [signature.feeds[i].encode() for i in feeds], list(feeds.values()))
        return executable.fetched(executable._call(request, self._timeout), names)
