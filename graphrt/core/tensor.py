"""Tensor: one output of an operation. IndexedSlices: some slices of a larger tensor, as gradients of gathers
are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphrt.core.dtypes import DType
from graphrt.core.shapes import TensorShape, as_shape

if TYPE_CHECKING:
    from graphrt.core.graph import Graph
    from graphrt.core.operation import Operation


class Tensor:
    """A symbolic value: output `value_index` of `op`. It has a dtype and a static shape, and a value only in
    a step.

    Attributes:
      op: the Operation that produces it.
      value_index: which of its outputs it is.
      dtype: its DType (a reference type for a ref variable).
      shape: its static TensorShape.
      name: 'op_name:index'.
    """

    __slots__ = ("op", "value_index", "dtype", "_shape", "_consumers", "handle", "__dict__", "__weakref__")
    # NumPy arrays on the left of an operator hand over to ours.
    __array_priority__ = 100
    # Operator methods and conversions, laid by ops/ when it is imported.
    _is_graph_tensor = True

    def __init__(self, op: Operation, value_index: int, dtype: DType) -> None:
        self.op, self.value_index, self.dtype = op, value_index, dtype
        self._consumers: list[Operation] = []
        self.handle: tuple[DType, TensorShape] | None = None

    @property
    def name(self) -> str:
        return f"{self.op.name}:{self.value_index}"

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def get_shape(self) -> TensorShape:
        return self._shape

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape with `shape`. Raises ValueError where the two cannot both hold."""
        self._shape = self._shape.merge_with(as_shape(shape))

    @property
    def ndim(self) -> int | None:
        return self._shape.rank

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor as an input."""
        return list(dict.fromkeys(self._consumers))

    def eval(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> Any:
        """The tensor's value, by the given or the default session."""
        return eval_hook(self, feed_dict, session)

    def _as_node_def_input(self) -> str:
        return self.op.name if self.value_index == 0 else self.name

    def ref(self) -> TensorReference:
        return TensorReference(self)

    experimental_ref = ref

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:
        raise TypeError(
            f"using the tensor '{self.name}' as a Python bool is not allowed: its value is known only in a "
            "step. "
            "Use tf.cond for control flow, tf.logical_and and the like for logic, `is not "
            "None` to test for "
            "presence"
        )

    __nonzero__ = __bool__

    def __iter__(self):
        sizes = self._shape.sizes
        if not sizes or sizes[0] is None:
            raise TypeError(
                f"cannot iterate over the tensor '{self.name}' of shape {self._shape}: its first size is "
                "not known "
                "while the graph is built"
            )
        return iter([self[i] for i in range(sizes[0])])

    def __len__(self) -> int:
        raise TypeError(
            f"len is not defined for the symbolic tensor '{self.name}': use x.shape[0] or tf.shape(x)[0]"
        )

    def __array__(self, *_: Any, **__: Any):
        raise NotImplementedError(
            f"cannot convert the symbolic tensor '{self.name}' to a NumPy array: run it in a session"
        )

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self._shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        shape = f", shape={self._shape}" if self._shape.sizes is not None else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}' + (
            f", device={self.op.device})" if self.op.device else ")"
        )


class TensorReference:
    """A hashable stand-in for a tensor: `x.ref()`; `.deref()` gives the tensor back."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def deref(self) -> Any:
        return self._tensor

    def __hash__(self) -> int:
        return id(self._tensor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorReference) and self._tensor is other._tensor


def _no_session(tensor: Any, feed_dict: Any, session: Any) -> Any:
    raise RuntimeError("no session machinery is loaded: import graphrt")


eval_hook: Callable[[Any, Any, Any], Any] = _no_session


def set_eval_hook(hook: Callable[[Any, Any, Any], Any]) -> None:
    """The client's `run` for `Tensor.eval` and `Operation.run`: core does not import the client."""
    global eval_hook
    eval_hook = hook


class IndexedSlices:
    """`values[i]` belongs at `indices[i]` of a tensor of shape `dense_shape`; slices at one index add up.

    Attributes:
      values: Tensor of shape [n, ...].
      indices: int32 or int64 Tensor of shape [n].
      dense_shape: int Tensor with the whole's shape, or None.
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self._values, self._indices, self._dense_shape = values, indices, dense_shape

    values = property(lambda self: self._values)
    indices = property(lambda self: self._indices)
    dense_shape = property(lambda self: self._dense_shape)
    dtype = property(lambda self: self._values.dtype)
    name = property(lambda self: self._values.name)
    op = property(lambda self: self._values.op)
    device = property(lambda self: self._values.device)
    graph = property(lambda self: self._values.graph)

    @property
    def shape(self) -> TensorShape:
        from graphrt.core.constant_value import constant_value_as_shape

        if self._dense_shape is None:
            return TensorShape(None)
        return constant_value_as_shape(self._dense_shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self._values, self._indices, self._dense_shape)

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"
        )

    __str__ = __repr__


class SparseTensor:
    """A sparse tensor: `values[i]` at `indices[i]`, of shape `dense_shape`.

    Attributes:
      indices: int64 Tensor of shape [n, rank].
      values: Tensor of shape [n].
      dense_shape: int64 Tensor of shape [rank].
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        from graphrt.core.convert import convert_to_tensor
        from graphrt.core.default_graph import name_scope
        from graphrt.core.dtypes import int64

        with name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            self._indices = convert_to_tensor(indices, dtype=int64, name="indices")
            self._values = convert_to_tensor(values, name="values")
            self._dense_shape = convert_to_tensor(dense_shape, dtype=int64, name="dense_shape")
        rows, rank = self._indices.shape.with_rank(2), self._dense_shape.shape.with_rank(1)
        TensorShape.of(rows.sizes[:1]).merge_with(self._values.shape.with_rank(1))  # type: ignore[index]
        TensorShape.of(rows.sizes[1:]).merge_with(rank)  # type: ignore[index]
        self._known_shape = TensorShape(None)

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """The SparseTensor of a SparseTensorValue (indices, values, dense_shape)."""
        if isinstance(sparse_tensor_value, SparseTensor):
            return sparse_tensor_value
        return cls(*sparse_tensor_value)

    indices = property(lambda self: self._indices)
    values = property(lambda self: self._values)
    dense_shape = property(lambda self: self._dense_shape)
    dtype = property(lambda self: self._values.dtype)
    op = property(lambda self: self._values.op)
    graph = property(lambda self: self._values.graph)

    @property
    def shape(self) -> TensorShape:
        from graphrt.core.constant_value import constant_value_as_shape

        return constant_value_as_shape(self._dense_shape).merge_with(self._known_shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape with `shape`. Raises ValueError where the two cannot both hold."""
        self._known_shape = self.shape.merge_with(as_shape(shape))

    def with_values(self, new_values: Any) -> SparseTensor:
        """This sparse tensor with other values at its places."""
        return SparseTensor(self._indices, new_values, self._dense_shape)

    def consumers(self) -> list[Operation]:
        return list(
            dict.fromkeys(
                [*self._indices.consumers(), *self._values.consumers(), *self._dense_shape.consumers()]
            )
        )

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        return eval_hook(self, feed_dict, session)

    def __repr__(self) -> str:
        return (
            f"SparseTensor(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"
        )

    __str__ = __repr__
