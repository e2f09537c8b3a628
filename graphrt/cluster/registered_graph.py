"""RegisteredGraph: what RegisterGraph leaves at a worker: plans, and who is at the other end of each crossing
edge."""

from __future__ import annotations

import random
from typing import Any

from graphrt.cluster.step_rendezvous import task_of_device
from graphrt.core.errors import NotFoundError
from graphrt.runtime.plan import Plan
from graphrt.runtime.rendezvous import parse_key

_random = random.Random(random.SystemRandom().getrandbits(64))


class RegisteredGraph:
    """A registered partition.

    Args:
      plans: a Plan a device of the task.
      session: the worker's session that it belongs to.
      is_pushed: every task of the step is graphrt's: tensors are pushed.

    Attributes:
      compiled: what the compiler made of it.
    """

    def __init__(self, handle: str, plans: list[Plan], session: Any, is_pushed: bool) -> None:
        self.handle, self.plans, self.session, self.is_pushed = handle, plans, session, is_pushed
        self.compiled: Any = None
        self._peers: dict[tuple[str, bool], Any] = {}
        self.other_tasks = self._others()

    def _others(self) -> set[str]:
        """The tasks that its `_Send` and `_Recv` nodes name."""
        here = self.session.task
        found: set[str] = set()
        for plan in self.plans:
            for node in plan.nodes:
                if node.type in ("_Send", "_HostSend", "_Recv", "_HostRecv"):
                    found.update(
                        task_of_device(node.attrs[a].decode()) for a in ("send_device", "recv_device")
                    )
        found.discard(here)
        return found

    def peer_of(self, key: str, is_send: bool) -> Any:
        """The Peer that a key's tensor goes to (`is_send`) or comes from; None where that is this task."""
        try:
            return self._peers[key, is_send]
        except KeyError:
            pass
        parsed = parse_key(key)
        task = task_of_device(parsed.recv_device if is_send else parsed.send_device)
        peer = None if task == self.session.task else self.session.peer(task)
        self._peers[key, is_send] = peer
        return peer

    def new_request_id(self) -> int:
        return _random.getrandbits(63) | 1


def unknown_graph(handle: str, task: str, incarnation: int) -> NotFoundError:
    return NotFoundError(
        None,
        None,
        f"the graph '{handle}' is not registered at {task} (incarnation {incarnation}): the task was "
        "restarted, or the session was closed there",
    )
