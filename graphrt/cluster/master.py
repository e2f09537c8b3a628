"""The master of a task: the sessions of its clients. `master_service.py` answers MasterService with it."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from typing import Any

from graphrt.cluster.master_session import MasterSession
from graphrt.cluster.remote_task import WORKER, RemoteTask, gather
from graphrt.cluster.worker import LEASE, Worker
from graphrt.core import device_names
from graphrt.core.errors import AbortedError, UnavailableError
from graphrt.core.graph import Graph
from graphrt.protos import worker_pb2
from graphrt.runtime.elastic_threads import elastic_threads
from graphrt.transport.loop import io_loop

# Sessions of clients without a link are closed after this long without a call: their client may be gone.
IDLE_LEASE = 24 * 3600.0
_RESET_TIMEOUT = 30.0


class Master:
    """See the module.

    Args:
      worker: the task's worker.
      config: the server's default ConfigProto, or None.
      connect_timeout: seconds that a step waits for a task that nobody has reached yet; None is the default.
    """

    def __init__(self, worker: Worker, config: Any = None, connect_timeout: float | None = None) -> None:
        self.worker, self.config, self.connect_timeout = worker, config, connect_timeout
        self.sessions: dict[str, MasterSession] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def open_session(
        self, graph: Graph, config: Any = None, connect_timeout: float | None = None, link: Any = None
    ) -> MasterSession:
        """A new session over `graph`."""
        self._close_idle()
        handle = f"{uuid.uuid4().hex[:16]}-{next(self._numbers)}"
        # A session's own configuration counts where it says anything.
        chosen = config if config is not None and config.ListFields() else self.config
        made = _Session(
            self, handle, self.worker, graph, chosen, connect_timeout or self.connect_timeout, link
        )
        with self._lock:
            self.sessions[handle] = made
        return made

    def session(self, handle: str, link: Any = None) -> MasterSession:
        """Raises AbortedError where it is not known."""
        found = self.sessions.get(handle)
        if found is None:
            raise AbortedError(
                None,
                None,
                f"Session {handle} is not found at {self.worker.task} (incarnation "
                f"{self.worker.incarnation}): "
                "it was closed, or the server was restarted",
            )
        found.touched = time.monotonic()
        if link is not None:
            found.link = link
        return found

    def forget(self, session: MasterSession) -> None:
        with self._lock:
            self.sessions.pop(session.handle, None)

    def _close_idle(self) -> None:
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if (
                session.link is None
                and not session.is_in_process
                and not session.running
                and now - session.touched > IDLE_LEASE
            ):
                elastic_threads.submit(session.close)

    def link_lost(self, link: Any) -> None:
        """The client that spoke over `link` has a while to come back; then its sessions are closed."""
        for session in list(self.sessions.values()):
            if session.link is link:
                self._expire(session, link)

    def _expire(self, session: MasterSession, link: Any) -> None:
        def expire() -> None:
            if session.link is link and not session.is_closed:
                elastic_threads.submit(session.close)

        io_loop().later(LEASE, expire)

    def reset(self, containers: list[str] | None = None, device_filters: list[str] | None = None) -> None:
        """Clear containers at every task of the cluster: all of them where None.

        Raises:
          UnavailableError: a task that did not answer, by name; the others' are cleared.
        """
        self.worker.resources.clear(containers or None)
        wanted = [device_names.parse(f) for f in device_filters or ()]
        tasks = []
        for job, index, address in self.worker.cluster.tasks():
            name = f"/job:{job}/replica:0/task:{index}"
            if name != self.worker.task and (
                not wanted or any(w.matches(device_names.parse(name)) for w in wanted)
            ):
                tasks.append(RemoteTask(name, address, self.worker.transport))
        request = worker_pb2.CleanupAllRequest(container=containers or ()).SerializeToString()
        try:
            answers = gather(
                [
                    (
                        f"CleanupAll at {t.name} ({t.address})",
                        lambda done, t=t: t.peer.call(WORKER + "CleanupAll", request, done, _RESET_TIMEOUT),
                    )
                    for t in tasks
                ],
                _RESET_TIMEOUT + 1.0,
            )
        finally:
            for task in tasks:
                task.release()
        failed = [
            f"{t.name} at {t.address}: {e.message}" for t, (_, e) in zip(tasks, answers) if e is not None
        ]
        if failed:
            raise UnavailableError(
                None, None, "the containers of these tasks were not cleared: " + "; ".join(failed)
            )

    def stop(self) -> None:
        for session in list(self.sessions.values()):
            session.close()


class _Session(MasterSession):
    """A session that its master forgets when it is closed.

    Attributes:
      is_in_process: its client is in this process, and closes it.
    """

    is_in_process = False

    def __init__(self, master: Master, *args: Any) -> None:
        self._master = master
        super().__init__(*args)

    def close(self) -> None:
        self._master.forget(self)
        super().close()
