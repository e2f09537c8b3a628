"""tf.queue: queues between steps."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, as_dtype, int64
from graphrt.core.shapes import SCALAR, TensorShape
from graphrt.core.tensor import Tensor

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]


class QueueBase:
    """A queue of tuples of tensors.

    Args:
      dtypes: of the components; shapes: of the components, or None where elements may differ.
      names: of the components: elements are dicts then.
      queue_ref: the handle tensor.
    """

    def __init__(self, dtypes: list[Any], shapes: Any, names: list[str] | None, queue_ref: Tensor) -> None:
        self._dtypes = dtypes
        self._shapes = (
            [TensorShape(s) for s in shapes] if shapes is not None else [TensorShape(None)] * len(dtypes)
        )
        if len(self._shapes) != len(dtypes):
            raise ValueError(
                "Queue shapes must have the same length as dtypes, received "
                f"len(shapes)={len(self._shapes)}, "
                f"len(dtypes)={len(dtypes)}"
            )
        if names is not None and len(names) != len(dtypes):
            raise ValueError(
                "List of queue names must have the same length as the list of dtypes, received "
                f"{len(names)} names"
            )
        self._names = names
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.split("/")[-1]

    queue_ref = property(lambda self: self._queue_ref)
    name = property(lambda self: self._queue_ref.op.name)
    dtypes = property(lambda self: self._dtypes)
    shapes = property(lambda self: self._shapes)
    names = property(lambda self: self._names)

    @staticmethod
    def from_list(index: Tensor, queues: list[QueueBase]) -> QueueBase:
        """The queue of `queues` that `index` (a scalar int32 tensor) picks; all must have the same dtypes
        and names."""
        if not queues or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        first = queues[0]
        if any(q.dtypes != first.dtypes for q in queues):
            raise TypeError("Queues do not have matching component dtypes.")
        if any(q.names != first.names for q in queues):
            raise TypeError("Queues do not have matching component names.")
        handle = raw.Gather(raw.Pack([q.queue_ref for q in queues]), index)
        return QueueBase(first.dtypes, None, first.names, handle)

    def _components(self, vals: Any, batched: bool, scope: str) -> list[Tensor]:
        if isinstance(vals, dict):
            if self._names is None:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(self._names) != sorted(vals):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue. Dictionary: "
                    f"{sorted(vals)}, Queue: "
                    f"{sorted(self._names)}"
                )
            vals = [vals[n] for n in self._names]
        elif self._names is not None:
            raise ValueError("You must enqueue a dictionary in a Queue with names")
        elif not isinstance(vals, (list, tuple)):
            vals = [vals]
        if len(vals) != len(self._dtypes):
            raise ValueError(f"the queue has {len(self._dtypes)} components, and {len(vals)} were given")
        made = []
        for i, (value, dtype, shape) in enumerate(zip(vals, self._dtypes, self._shapes)):
            tensor = convert_to_tensor(value, dtype=dtype, name=f"component_{i}")
            whole = TensorShape([None]).concatenate(shape) if batched else shape
            tensor.shape.assert_is_compatible_with(whole)
            made.append(tensor)
        return made

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """An operation that puts one element in; it waits while the queue is full.

        Raises (when run):
          CancelledError: the queue is, or is being, closed.
        """
        with name_scope(name, f"{self._name}_enqueue") as scope:
            return raw.QueueEnqueueV2(self._queue_ref, self._components(vals, False, scope), name=scope)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """An operation that puts the slices of `vals` along their first axis in."""
        with name_scope(name, f"{self._name}_EnqueueMany") as scope:
            return raw.QueueEnqueueManyV2(self._queue_ref, self._components(vals, True, scope), name=scope)

    def _result(self, tensors: list[Tensor]) -> Any:
        if self._names is not None:
            return dict(zip(self._names, tensors))
        return tensors[0] if len(tensors) == 1 else list(tensors)

    def dequeue(self, name: str | None = None) -> Any:
        """One element: a tensor, a list of them, or a dict where components have names.

        Raises (when run):
          OutOfRangeError: the queue is closed and empty.
        """
        made = raw.QueueDequeueV2(
            self._queue_ref, component_types=self._dtypes, name=name or f"{self._name}_Dequeue"
        )
        for tensor, shape in zip(made, self._shapes):
            tensor.set_shape(shape)
        return self._result(made)

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """n elements, stacked along a new first axis."""
        made = raw.QueueDequeueManyV2(
            self._queue_ref, n, component_types=self._dtypes, name=name or f"{self._name}_DequeueMany"
        )
        return self._result(made)

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """n elements; of a closed queue what is left of them."""
        made = raw.QueueDequeueUpToV2(
            self._queue_ref, n, component_types=self._dtypes, name=name or f"{self._name}_DequeueUpTo"
        )
        return self._result(made)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """An operation that closes the queue."""
        return raw.QueueCloseV2(
            self._queue_ref,
            cancel_pending_enqueues=cancel_pending_enqueues,
            name=name or f"{self._name}_Close",
        )

    def is_closed(self, name: str | None = None) -> Tensor:
        return raw.QueueIsClosedV2(self._queue_ref, name=name or f"{self._name}_Is_Closed")

    def size(self, name: str | None = None) -> Tensor:
        return raw.QueueSizeV2(self._queue_ref, name=name or f"{self._name}_Size")


def _types(dtypes: Any) -> list[DType]:
    return [as_dtype(d) for d in (dtypes if isinstance(dtypes, (list, tuple)) else [dtypes])]


def _shapes(shapes: Any, dtypes: list[DType]) -> list[TensorShape] | None:
    if shapes is None:
        return None
    if (
        isinstance(shapes, TensorShape)
        or len(shapes) == 0
        or not isinstance(shapes[0], (list, tuple, TensorShape))
    ):
        shapes = [shapes] if len(dtypes) == 1 else shapes
    made = [TensorShape(s) for s in shapes]
    if len(made) != len(dtypes):
        raise ValueError(
            f"Queue shapes must have the same length as dtypes, received len(shapes)={len(made)}, "
            f"len(dtypes)={len(dtypes)}"
        )
    return made


def _names(names: Any) -> list[str] | None:
    return None if names is None else [names] if isinstance(names, str) else list(names)


def _resource(shared_name: str | None) -> dict[str, Any]:
    return {"shared_name": shared_name or "", "container": get_default_graph()._scopes.container}


class FIFOQueue(QueueBase):
    """A first-in, first-out queue.

    Args:
      capacity: most elements; below 0 is without bound.
      dtypes: of the components; shapes: theirs, fully defined, or None.
      names: of the components; shared_name: sessions of one server share the queue under it.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        types = _types(dtypes)
        sizes = _shapes(shapes, types)
        with get_default_graph().control_dependencies(None):
            handle = raw.FIFOQueueV2(
                component_types=types,
                shapes=sizes or [],
                capacity=capacity,
                name=name,
                **_resource(shared_name),
            )
        super().__init__(types, sizes, _names(names), handle)


class RandomShuffleQueue(QueueBase):
    """A queue that gives its elements in random order.

    Args:
      min_after_dequeue: elements that stay in the queue while it is open, so that they mix.
      seed: with the graph's seed it decides the order.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        types = _types(dtypes)
        sizes = _shapes(shapes, types)
        from graphrt.random import get_seed

        graph = get_default_graph()
        first, second = get_seed(seed)
        with graph.control_dependencies(None):
            handle = raw.RandomShuffleQueueV2(
                component_types=types,
                shapes=sizes or [],
                capacity=capacity,
                min_after_dequeue=min_after_dequeue,
                seed=first or 0,
                seed2=second or 0,
                name=name,
                **_resource(shared_name),
            )
        super().__init__(types, sizes, _names(names), handle)


class PaddingFIFOQueue(QueueBase):
    """A FIFO queue of elements of differing sizes, which `dequeue_many` pads with zeros.

    Args:
      shapes: one a component, with None where sizes differ.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        types = _types(dtypes)
        sizes = _shapes(shapes, types)
        if sizes is None:
            raise ValueError("PaddingFIFOQueue needs a shape for each component")
        with get_default_graph().control_dependencies(None):
            handle = raw.PaddingFIFOQueueV2(
                component_types=types, shapes=sizes, capacity=capacity, name=name, **_resource(shared_name)
            )
        super().__init__(types, sizes, _names(names), handle)


class PriorityQueue(QueueBase):
    """A queue that gives the element with the smallest priority: an int64 scalar, an element's first
    component."""

    def __init__(
        self,
        capacity: int,
        types: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        kinds = _types(types)
        sizes = _shapes(shapes, kinds)
        with get_default_graph().control_dependencies(None):
            handle = raw.PriorityQueueV2(
                component_types=kinds,
                shapes=sizes or [],
                capacity=capacity,
                name=name,
                **_resource(shared_name),
            )
        with_priority = [SCALAR, *(sizes if sizes is not None else [TensorShape(None)] * len(kinds))]
        super().__init__([int64, *kinds], with_priority, _names(names), handle)
