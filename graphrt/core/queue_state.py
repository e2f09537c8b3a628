"""Queues: FIFO, random shuffle, padding FIFO and priority, as a pure machine.

`QueueMachine` takes events (an enqueue or dequeue attempt, a close, a cancelled attempt) and returns whom to
tell what; it holds no lock and calls nobody. `QueueState` is the machine as a resource: under a lock,
answers carried out after it.

Attempts are served in order. A dequeue of n gathers elements as they come, so n may exceed the capacity; one
that cannot be completed after a close puts back what it gathered.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphrt.core.errors import CancelledError, InvalidArgumentError, OpError, OutOfRangeError
from graphrt.core.resources import Resource

Element = tuple[Any, ...]
Done = Callable[[Any], None]


class Tell(NamedTuple):
    """Call `done(answer)`: elements, None for a finished enqueue, or an error."""

    done: Done
    answer: Any


@dataclass(eq=False)
class _Enqueue:
    elements: deque[Element]
    done: Done


@dataclass(eq=False)
class _Dequeue:
    count: int
    up_to: bool
    done: Done
    gathered: list[Element] = field(default_factory=list)


class Fifo:
    """Elements in the order of their coming."""

    def __init__(self) -> None:
        self._held: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, element: Element) -> None:
        self._held.append(element)

    def take(self) -> Element:
        return self._held.popleft()

    def put_back(self, elements: list[Element]) -> None:
        self._held.extendleft(reversed(elements))


class Shuffled(Fifo):
    """Elements in random order: `draw()` gives 32 random bits."""

    def __init__(self, draw: Callable[[], int]) -> None:
        self._items: list[Element] = []
        self._draw = draw

    def __len__(self) -> int:
        return len(self._items)

    def put(self, element: Element) -> None:
        self._items.append(element)

    def take(self) -> Element:
        at = self._draw() % len(self._items)
        self._items[at], self._items[-1] = self._items[-1], self._items[at]
        return self._items.pop()

    def put_back(self, elements: list[Element]) -> None:
        self._items.extend(elements)


class Prioritized(Fifo):
    """Elements by their first component, an int64 scalar; equal ones in the order of their coming."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Element]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, element: Element) -> None:
        self._count += 1
        heapq.heappush(self._heap, (int(element[0]), self._count, element))

    def take(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def put_back(self, elements: list[Element]) -> None:
        for element in elements:
            self.put(element)


class QueueMachine:
    """The state of a queue.

    Args:
      name: for errors; kind: the op's type without V2.
      capacity: most elements; below 0 is without bound.
      held: a Fifo or another order.
      min_after_dequeue: elements that stay while the queue is open.
    """

    def __init__(self, name: str, kind: str, capacity: int, held: Fifo, min_after_dequeue: int = 0) -> None:
        self.name, self.kind, self.held, self.min_after = name, kind, held, min_after_dequeue
        self.capacity = capacity if capacity >= 0 else 1 << 62
        self.is_closed = False
        self._enqueues: deque[_Enqueue] = deque()
        self._dequeues: deque[_Dequeue] = deque()

    @property
    def size(self) -> int:
        return len(self.held)

    def on_enqueue(self, elements: list[Element], done: Done) -> tuple[Any, list[Tell]]:
        """An attempt to put all of `elements` in; returns its token and whom to tell."""
        attempt = _Enqueue(deque(elements), done)
        if self.is_closed:
            return attempt, [Tell(done, CancelledError(None, None, f"{self.kind} '{self.name}' is closed."))]
        self._enqueues.append(attempt)
        return attempt, self._progress()

    def on_dequeue(self, count: int, up_to: bool, done: Done) -> tuple[Any, list[Tell]]:
        attempt = _Dequeue(count, up_to, done)
        self._dequeues.append(attempt)
        return attempt, self._progress()

    def on_close(self, cancel_pending_enqueues: bool) -> list[Tell]:
        self.is_closed = True
        tell: list[Tell] = []
        if cancel_pending_enqueues:
            tell = [
                Tell(
                    a.done,
                    CancelledError(
                        None, None, f"Enqueue operation was cancelled: {self.kind} '{self.name}' was closed"
                    ),
                )
                for a in self._enqueues
            ]
            self._enqueues.clear()
        return tell + self._progress()

    def on_cancel(self, attempt: Any, error: OpError) -> list[Tell]:
        """An attempt's step is over; it is told `error` if it still waits."""
        if attempt in self._enqueues:
            self._enqueues.remove(attempt)
        elif attempt in self._dequeues:
            self._dequeues.remove(attempt)
            self.held.put_back(attempt.gathered)
        else:
            return []
        return [Tell(attempt.done, error), *self._progress()]

    def _progress(self) -> list[Tell]:
        """Let attempts go on, in turn, as long as one can."""
        tell: list[Tell] = []
        moved = True
        while moved:
            moved = self._fill(tell)
            moved = self._drain(tell) or moved
        return tell

    def _fill(self, tell: list[Tell]) -> bool:
        moved = False
        while self._enqueues:
            attempt = self._enqueues[0]
            while attempt.elements and len(self.held) < self.capacity:
                self.held.put(attempt.elements.popleft())
                moved = True
            if attempt.elements:
                break
            self._enqueues.popleft()
            tell.append(Tell(attempt.done, None))
            moved = True
        return moved

    def _drain(self, tell: list[Tell]) -> bool:
        moved = False
        while self._dequeues:
            attempt = self._dequeues[0]
            no_more = self.is_closed and not self._enqueues
            keep = 0 if self.is_closed else self.min_after
            if (
                not attempt.gathered
                and attempt.count
                and len(self.held) < attempt.count + keep
                and not no_more
                and (keep or isinstance(self.held, Shuffled))
            ):
                break  # a shuffling queue gives a batch at once, so that what stays is well mixed
            while len(attempt.gathered) < attempt.count and len(self.held) > keep:
                attempt.gathered.append(self.held.take())
                moved = True
            if len(attempt.gathered) < attempt.count:
                if not no_more:
                    break
                self._dequeues.popleft()
                moved = True
                if attempt.up_to and attempt.gathered:
                    tell.append(Tell(attempt.done, attempt.gathered))
                    continue
                self.held.put_back(attempt.gathered)
                tell.append(
                    Tell(
                        attempt.done,
                        OutOfRangeError(
                            None,
                            None,
                            f"{self.kind} '{self.name}' is closed and has insufficient elements (requested "
                            f"{attempt.count}, "
                            f"current size {len(self.held)})",
                        ),
                    )
                )
                continue
            self._dequeues.popleft()
            tell.append(Tell(attempt.done, attempt.gathered))
            moved = True
        return moved


class QueueState(Resource):
    """A queue that kernels share: component dtypes and shapes, and the machine under a lock."""

    def __init__(
        self, machine: QueueMachine, dtypes: list[Any], shapes: list[Any], pads: bool = False
    ) -> None:
        self.name, self.machine, self.dtypes, self.shapes, self.pads = (
            machine.name,
            machine,
            dtypes,
            shapes,
            pads,
        )
        self._lock = threading.Lock()

    def enqueue(self, elements: list[Element], step: Any, done: Done) -> None:
        self._attempt(lambda tell: self.machine.on_enqueue(elements, tell), step, done)

    def dequeue(self, count: int, up_to: bool, step: Any, done: Done) -> None:
        self._attempt(lambda tell: self.machine.on_dequeue(count, up_to, tell), step, done)

    def _attempt(self, begin: Callable[[Done], tuple[Any, list[Tell]]], step: Any, done: Done) -> None:
        """Begin an attempt that ends with the step: by its answer, or cancelled with the step's error."""
        token: list[int] = [0]
        over = threading.Event()

        def finish(answer: Any) -> None:
            over.set()
            step.forget(token[0])
            done(answer)

        with self._lock:
            attempt, tell = begin(finish)
        carry_out(tell)
        if not over.is_set():
            token[0] = step.on_cancel(lambda error: self._cancel(attempt, error))

    def _cancel(self, attempt: Any, error: OpError) -> None:
        with self._lock:
            tell = self.machine.on_cancel(attempt, error)
        carry_out(tell)

    def shut(self, cancel_pending_enqueues: bool) -> None:
        with self._lock:
            tell = self.machine.on_close(cancel_pending_enqueues)
        carry_out(tell)

    def close(self) -> None:
        """The container is cleared: attempts end as after a close."""
        self.shut(True)

    @property
    def size(self) -> int:
        with self._lock:
            return self.machine.size

    @property
    def is_closed(self) -> bool:
        return self.machine.is_closed

    def check(self, arrays: list[Any], batched: bool) -> None:
        """Raise InvalidArgumentError where components are not of the queue's dtypes and shapes."""
        if len(arrays) != len(self.dtypes):
            raise InvalidArgumentError(
                None,
                None,
                f"queue '{self.name}' has {len(self.dtypes)} components, and {len(arrays)} were enqueued",
            )
        for i, (array, dtype) in enumerate(zip(arrays, self.dtypes)):
            if array.dtype != dtype.np:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"component {i} of queue '{self.name}' is {dtype.name}, and {array.dtype} was enqueued",
                )
            if i < len(self.shapes):
                shape = np.shape(array)[1:] if batched else np.shape(array)
                if not self.shapes[i].is_compatible_with(shape):
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"Shape mismatch in tuple component {i} of queue '{self.name}'. Expected "
                        f"{list(self.shapes[i].sizes or ())}, got {list(shape)}",
                    )


def carry_out(tell: list[Tell]) -> None:
    for done, answer in tell:
        done(answer)
