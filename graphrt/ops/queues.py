"""Queue ops. A dequeue or enqueue that cannot go on waits as a node: it holds no thread, and ends with its
step."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.dtypes import int64
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import GuardedPhilox, fill_words
from graphrt.core.queue_state import Fifo, Prioritized, QueueMachine, QueueState, Shuffled
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import program
from graphrt.core.shapes import SCALAR, UNKNOWN, TensorShape

_QUEUE_ATTRS: dict[str, Any] = {
    "component_types": "list(type) >= 1",
    "shapes": "list(shape) >= 0 = []",
    "capacity": "int = -1",
    "container": "string = ''",
    "shared_name": "string = ''",
}


class _Words:
    """32 random bits at a time, in the order of a Philox stream."""

    def __init__(self, seed: int, seed2: int) -> None:
        self._stream, self._left = GuardedPhilox(seed, seed2).reserve(0), []  # type: ignore[var-annotated]

    def __call__(self) -> int:
        if not self._left:
            words = np.empty(256, np.uint32)
            fill_words(self._stream, words)
            self._stream = self._stream.skip(64)
            self._left = words[::-1].tolist()
        return self._left.pop()


class _QueueHandle:
    """Base of the ops that make queues: the handle is the queue, found or made in its container."""

    stateful = True
    unfoldable = True
    cpu_only = True
    kind = "FIFOQueue"

    def shape(self, s: ShapeContext) -> TensorShape:
        return SCALAR

    def held(self, k: KernelContext) -> Fifo:
        return Fifo()

    def hoist(self, k: KernelContext) -> QueueState:
        attrs = k.attrs
        name = attrs["shared_name"].decode() or k.name
        types, shapes = list(attrs["component_types"]), list(attrs["shapes"])
        if self.kind == "PriorityQueue":
            types, shapes = [int64, *types], [SCALAR, *shapes]
        minimum = attrs.get("min_after_dequeue", 0)
        if attrs["capacity"] >= 0 and minimum >= attrs["capacity"]:
            raise InvalidArgumentError(
                None, None, f"min_after_dequeue {minimum} must be less than capacity {attrs['capacity']}"
            )

        def make() -> QueueState:
            machine = QueueMachine(name, self.kind, attrs["capacity"], self.held(k), minimum)
            return QueueState(machine, types, shapes, self.kind == "PaddingFIFOQueue")

        found = k.resources.lookup_or_create(attrs["container"].decode(), name, QueueState, make)
        if [d.name for d in found.dtypes] != [d.name for d in types]:
            raise InvalidArgumentError(
                None,
                None,
                f"queue '{name}' exists with components {[d.name for d in found.dtypes]}, and "
                f"'{k.name}' asks for {[d.name for d in types]}",
            )
        return found


def _fifo_program(tf: Any) -> list[Any]:
    q = tf.FIFOQueue(10, [tf.float32, tf.int32], shapes=[[2], []])
    many = q.enqueue_many([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [7, 8, 9]])
    return [
        many,
        q.size(),
        q.dequeue(),
        q.enqueue([[0.0, 1.0], 3]),
        q.dequeue_many(2),
        q.is_closed(),
        q.close(),
        q.is_closed(),
        q.dequeue_up_to(5),
        q.size(),
    ]


_FIFO = [program(_fifo_program)]


@op("FIFOQueueV2() -> handle: resource", **_QUEUE_ATTRS)
class FIFOQueueV2(_QueueHandle):
    """A first-in, first-out queue of tuples of tensors."""

    samples = _FIFO


def _shuffle_program(tf: Any) -> list[Any]:
    q = tf.RandomShuffleQueue(100, 2, [tf.int32], shapes=[[]], seed=7)
    return [
        q.enqueue_many([list(range(20))]),
        q.dequeue_many(8),
        q.dequeue(),
        q.enqueue([99]),
        q.dequeue_many(6),
        q.size(),
        q.close(),
        q.dequeue_up_to(20),
    ]


@op(
    "RandomShuffleQueueV2() -> handle: resource",
    min_after_dequeue="int = 0",
    seed="int = 0",
    seed2="int = 0",
    **_QUEUE_ATTRS,
)
class RandomShuffleQueueV2(_QueueHandle):
    """A queue that gives its elements in random order; at least `min_after_dequeue` stay while it is open."""

    kind = "RandomShuffleQueue"

    def held(self, k: KernelContext) -> Fifo:
        return Shuffled(_Words(k.attrs["seed"], k.attrs["seed2"]))

    samples = [program(_shuffle_program)]


def _padding_program(tf: Any) -> list[Any]:
    q = tf.PaddingFIFOQueue(10, [tf.float32, tf.int64], shapes=[[None], []])
    return [
        q.enqueue([[1.0], 1]),
        q.enqueue([[2.0, 3.0, 4.0], 2]),
        q.enqueue([[5.0, 6.0], 3]),
        q.dequeue_many(2),
        q.dequeue(),
    ]


@op("PaddingFIFOQueueV2() -> handle: resource", **_QUEUE_ATTRS)
class PaddingFIFOQueueV2(_QueueHandle):
    """A FIFO queue whose elements may differ in size: a batch of them is padded with zeros at the ends."""

    kind = "PaddingFIFOQueue"
    samples = [program(_padding_program)]


def _priority_program(tf: Any) -> list[Any]:
    q = tf.PriorityQueue(10, [tf.string], shapes=[[]])
    return [q.enqueue([3, "c"]), q.enqueue([1, "a"]), q.enqueue([2, "b"]), q.dequeue(), q.dequeue_many(2)]


@op(
    "PriorityQueueV2() -> handle: resource",
    component_types="list(type) >= 0 = []",
    shapes="list(shape) >= 0",
    capacity="int = -1",
    container="string = ''",
    shared_name="string = ''",
)
class PriorityQueueV2(_QueueHandle):
    """A queue that gives the element with the smallest first component, an int64."""

    kind = "PriorityQueue"

    def held(self, k: KernelContext) -> Fifo:
        return Prioritized()

    samples = [program(_priority_program)]


class _Waiting:
    stateful = True
    asynchronous = True
    cpu_only = True


def _own(value: Any) -> Any:
    """A copy: the queue holds its elements after the step, whose feeds and variables change."""
    return np.array(value)


@op(
    "QueueEnqueueV2(handle: resource, components: list(Tcomponents))",
    Tcomponents="list(type) >= 1",
    timeout_ms="int = -1",
)
class QueueEnqueueV2(_Waiting):
    """Puts one tuple in; waits while the queue is full."""

    def start(self, k: KernelContext, step: Any, done: Any, queue: QueueState, *components: Any) -> None:
        queue.check(list(components), False)
        queue.enqueue(
            [tuple([_own(c) for c in components])], step, lambda made: done(() if made is None else made)
        )

    samples = _FIFO


@op(
    "QueueEnqueueManyV2(handle: resource, components: list(Tcomponents))",
    Tcomponents="list(type) >= 1",
    timeout_ms="int = -1",
)
class QueueEnqueueManyV2(_Waiting):
    """Puts the slices along the first axis in, one tuple each."""

    def start(self, k: KernelContext, step: Any, done: Any, queue: QueueState, *components: Any) -> None:
        queue.check(list(components), True)
        counts = {np.shape(c)[0] if np.ndim(c) else -1 for c in components}
        if len(counts) != 1 or -1 in counts:
            raise InvalidArgumentError(
                None,
                None,
                "enqueue_many: all components must have the same first size, not "
                f"{[np.shape(c) for c in components]}",
            )
        owned = [_own(c) for c in components]
        queue.enqueue(
            [tuple([c[i] for c in owned]) for i in range(counts.pop())],
            step,
            lambda made: done(() if made is None else made),
        )

    samples = _FIFO


def _batch(queue: QueueState, elements: list[Any]) -> list[Any]:
    """The components of several elements, stacked; padded where the queue pads."""
    made = []
    for i, dtype in enumerate(queue.dtypes):
        parts = [e[i] for e in elements]
        shapes = {np.shape(p) for p in parts}
        if not parts:
            known = queue.shapes[i].sizes if i < len(queue.shapes) else ()
            made.append(np.empty((0, *[d or 0 for d in known or ()]), dtype.np))
        elif len(shapes) == 1:
            made.append(np.stack(parts))
        elif queue.pads:
            sizes = tuple(max(s) for s in zip(*shapes))
            padded = (
                np.zeros((len(parts), *sizes), dtype.np)
                if not dtype.is_object
                else np.full((len(parts), *sizes), b"", object)
            )
            for at, part in enumerate(parts):
                padded[(at, *[slice(n) for n in np.shape(part)])] = part
            made.append(padded)
        else:
            raise InvalidArgumentError(
                None,
                None,
                f"component {i} of queue '{queue.name}' has elements of shapes {sorted(shapes)}: "
                "they make no batch (a PaddingFIFOQueue pads them)",
            )
    return made


def _component_shapes(s: ShapeContext, first: int | None, batched: bool) -> list[TensorShape]:
    """Static shapes of dequeued components, from the queue's own node where it can be seen."""
    count = len(s.attrs["component_types"])
    maker = s.tensors[0].op if hasattr(s, "tensors") else None
    shapes = list(maker.attrs["shapes"]) if maker is not None and "shapes" in maker.attrs else []
    if maker is not None and maker.type.startswith("PriorityQueue"):
        shapes = [SCALAR, *shapes]
    if len(shapes) != count:
        return [UNKNOWN] * count
    return [TensorShape([first]).concatenate(x) for x in shapes] if batched else shapes


@op(
    "QueueDequeueV2(handle: resource) -> components: list(component_types)",
    component_types="list(type) >= 1",
    timeout_ms="int = -1",
)
class QueueDequeueV2(_Waiting):
    """Takes one tuple; waits while there is none; OutOfRangeError once the queue is closed and empty."""

    def shape(self, s: ShapeContext, handle: TensorShape) -> list[TensorShape]:
        return _component_shapes(s, None, False)

    def start(self, k: KernelContext, step: Any, done: Any, queue: QueueState) -> None:
        queue.dequeue(1, False, step, lambda made: done(made if isinstance(made, Exception) else made[0]))

    samples = _FIFO


class _DequeueBatch(_Waiting):
    up_to = False

    def shape(self, s: ShapeContext, handle: TensorShape, n: TensorShape) -> list[TensorShape]:
        count = s.value(1) if not self.up_to else None
        return _component_shapes(s, None if count is None else int(count), True)

    def start(self, k: KernelContext, step: Any, done: Any, queue: QueueState, n: Any) -> None:
        if n < 0:
            raise InvalidArgumentError(None, None, f"dequeue_many: n must be at least 0, not {n}")
        queue.dequeue(
            int(n),
            self.up_to,
            step,
            lambda made: done(made if isinstance(made, Exception) else _batched_or_error(queue, made)),
        )

    samples = _FIFO


def _batched_or_error(queue: QueueState, elements: list[Any]) -> Any:
    try:
        return _batch(queue, elements)
    except InvalidArgumentError as error:
        return error


@op(
    "QueueDequeueManyV2(handle: resource, n: int32) -> components: list(component_types)",
    component_types="list(type) >= 1",
    timeout_ms="int = -1",
)
class QueueDequeueManyV2(_DequeueBatch):
    """Takes n tuples, stacked along a new first axis."""


@op(
    "QueueDequeueUpToV2(handle: resource, n: int32) -> components: list(component_types)",
    component_types="list(type) >= 1",
    timeout_ms="int = -1",
)
class QueueDequeueUpToV2(_DequeueBatch):
    """As QueueDequeueManyV2; of a closed queue what is left, if anything is."""

    up_to = True


@op("QueueCloseV2(handle: resource)", cancel_pending_enqueues="bool = False")
class QueueCloseV2:
    """No further enqueues; waiting ones go on, or are cancelled."""

    stateful = True
    cpu_only = True

    def compute(self, k: KernelContext, queue: QueueState) -> tuple[()]:
        queue.shut(k.attrs["cancel_pending_enqueues"])
        return ()

    samples = _FIFO


@op("QueueIsClosedV2(handle: resource) -> is_closed: bool")
class QueueIsClosedV2:
    """True once the queue was closed."""

    stateful = True
    cpu_only = True

    def shape(self, s: ShapeContext, handle: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, queue: QueueState) -> Any:
        return np.bool_(queue.is_closed)

    samples = _FIFO


@op("QueueSizeV2(handle: resource) -> size: int32")
class QueueSizeV2:
    """How many elements are in the queue."""

    stateful = True
    cpu_only = True

    def shape(self, s: ShapeContext, handle: TensorShape) -> TensorShape:
        return SCALAR

    def compute(self, k: KernelContext, queue: QueueState) -> Any:
        return np.int32(queue.size)

    samples = _FIFO
