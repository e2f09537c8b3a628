"""A worker session: the state that plans share. Variables, queues and tables are in containers, which
sessions of one worker share unless isolated; the state of random ops is the session's own, by node name, so
that streams go on across signatures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from graphrt.core.resources import Containers


class WorkerSession:
    """What kernels reach by `k.session`.

    Attributes:
      resources: the Containers.
      functions: the function library by name.
      devices: full name to Device.
    """

    def __init__(self, devices: list[Any], resources: Containers | None = None) -> None:
        self.resources = resources if resources is not None else Containers()
        self.functions: dict[str, Any] = {}
        self.devices = {d.name: d for d in devices}
        self._states: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.is_closed = False

    def node_state(self, name: str, make: Callable[[], Any]) -> Any:
        """The state of node `name`, made once in the session."""
        with self._lock:
            if name not in self._states:
                self._states[name] = make()
            return self._states[name]

    def close(self) -> None:
        self.is_closed = True
        with self._lock:
            states, self._states = list(self._states.values()), {}
        for state in states:
            close = getattr(state, "close", None)
            if close is not None:
                close()
