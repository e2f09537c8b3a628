"""The steps that a worker knows: which run, which were reached by a tensor before they began, which are over.
Pure decisions.

A step that went well keeps the tensors that nobody has taken yet for as long as its session lives: a receiver
may be busy with something else. One that failed is kept for a while, for its error.

A tensor, or someone who asks for one, may come before the RunGraph of its step: the step is made for it, and
expires if it never begins. Steps that are over leave a tombstone: who comes late is told, and nothing is kept
for him. Tombstones are few and the oldest go first; step ids are random, so none is met again by chance."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from graphrt.core.errors import AbortedError, DeadlineExceededError, OpError
from graphrt.runtime.rendezvous import Rendezvous

NEVER_BEGAN_AFTER = 600.0
FAILED_AFTER = 60.0
_MOST_TOMBSTONES = 4096
_MOST_REQUESTS = 4096


class StepEntry:
    """A step at a worker.

    Attributes:
      rendezvous: its tensors.
      running: what can be failed; None before RunGraph and after its end.
      graph: the registered graph that runs, or ran.
      since: when the entry was made; or, once it is over, when that was.
      has_begun, is_over: RunGraph came; it was answered.
      has_failed: it was answered with an error.
    """

    __slots__ = ("step_id", "rendezvous", "running", "graph", "since", "has_begun", "is_over", "has_failed")

    def __init__(self, step_id: int, now: float) -> None:
        self.step_id, self.since = step_id, now
        self.rendezvous = Rendezvous()
        self.running: Any = None
        self.graph: Any = None
        self.has_begun = self.is_over = self.has_failed = False


class StepTable:
    """Not thread-safe: the worker holds a lock around each call."""

    def __init__(self) -> None:
        self.entries: dict[int, StepEntry] = {}
        self._tombstones: OrderedDict[int, OpError | None] = OrderedDict()
        self._requests: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.entries)

    def on_reach(self, step_id: int, now: float) -> StepEntry:
        """Somebody sends a tensor of the step, or asks for one.

        Raises:
          OpError: the step is over here; its own error where it failed.
        """
        entry = self.entries.get(step_id)
        if entry is None:
            if step_id in self._tombstones:
                error = self._tombstones[step_id]
                raise error or AbortedError(None, None, f"step {step_id} is over at this task")
            entry = self.entries[step_id] = StepEntry(step_id, now)
        return entry

    def on_run(self, step_id: int, request_id: int, now: float) -> StepEntry:
        """RunGraph.

        Raises:
          AbortedError: the same request, or the same step, was run before; or the step was ended before it
            began.
        """
        if request_id:
            if request_id in self._requests:
                raise AbortedError(
                    None,
                    None,
                    f"the request {request_id} was made before: a repeated RunGraph is not run again",
                )
            self._requests[request_id] = None
            if len(self._requests) > _MOST_REQUESTS:
                self._requests.popitem(last=False)
        entry = self.entries.get(step_id)
        if entry is not None and entry.has_begun:
            raise AbortedError(None, None, f"step {step_id} runs here already")
        if step_id in self._tombstones:
            raise AbortedError(None, None, f"step {step_id} was ended before it began here")
        if entry is None:
            entry = self.entries[step_id] = StepEntry(step_id, now)
        entry.has_begun = True
        return entry

    def on_over(self, entry: StepEntry, is_kept: bool, has_failed: bool, now: float) -> None:
        """The step's plans are over. `is_kept`: others may still ask for its tensors or its error."""
        entry.is_over, entry.running, entry.since, entry.has_failed = True, None, now, has_failed
        if not is_kept:
            self._bury(entry, None)

    def on_end(self, step_id: int, error: OpError | None) -> StepEntry | None:
        """CleanupGraph, or the last tensor was taken: the step is forgotten. Returns the entry that was
        there."""
        entry = self.entries.get(step_id)
        if entry is None:
            self._tombstones[step_id] = error
            self._trim()
            return None
        self._bury(entry, error)
        return entry

    def on_tick(self, now: float) -> list[tuple[StepEntry, OpError]]:
        """The steps that have expired, with what those who wait on them are told."""
        expired: list[tuple[StepEntry, OpError]] = []
        for entry in list(self.entries.values()):
            age = now - entry.since
            if not entry.has_begun and age > NEVER_BEGAN_AFTER:
                error: OpError = DeadlineExceededError(
                    None,
                    None,
                    f"step {entry.step_id} did not begin at this task within {age:.0f} s of its first tensor",
                )
            elif entry.has_failed and age > FAILED_AFTER:
                error = AbortedError(None, None, f"step {entry.step_id} failed at this task {age:.0f} s ago")
            else:
                continue
            self._bury(entry, error)
            expired.append((entry, error))
        return expired

    def _bury(self, entry: StepEntry, error: OpError | None) -> None:
        if self.entries.get(entry.step_id) is entry:
            del self.entries[entry.step_id]
        self._tombstones[entry.step_id] = error
        self._trim()

    def _trim(self) -> None:
        while len(self._tombstones) > _MOST_TOMBSTONES:
            self._tombstones.popitem(last=False)
