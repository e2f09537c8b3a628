"""Tensors made of values: tf.constant, tf.zeros, tf.placeholder, tf.one_hot, …, and identities of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.core import raw
from graphrt.core.constant_value import constant_value_as_shape
from graphrt.core.convert import constant_tensor, convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import DType, as_dtype, bool_, float32, int32, int64
from graphrt.core.dtypes import string as string_
from graphrt.core.shapes import Dimension, TensorShape
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor
from graphrt.ops.array_nodes import CONSTANT_LIMIT, int_constant, rank_of

__all__ = [
    "check_numerics", "constant", "ensure_shape", "fill", "guarantee_const", "identity", "identity_n",
    "one_hot", "ones", "ones_like", "placeholder", "placeholder_with_default", "sequence_mask",
    "sparse_placeholder", "stop_gradient", "zeros", "zeros_like",
]


def constant(
    value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False
) -> Tensor:
    """A tensor with this value in every step.

    Args:
      value: a number, text, nested list or NumPy array. Python floats become float32, ints int32.
      dtype: what it is converted to.
      shape: the tensor's shape; the last element of `value` fills what it leaves open.
      verify_shape: `value` must have that shape.
    Raises:
      TypeError: the value cannot be of `dtype`, or (verify_shape) is not of `shape`.
      ValueError: more elements than `shape` holds.
    """
    kind = None if dtype is None else as_dtype(dtype).base_dtype
    return constant_tensor(value, kind, shape, name, verify_shape)


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor that must be fed: `session.run(..., feed_dict={x: value})`.

    Args:
      shape: what may be fed; None in it, or for all of it, is any size.
    """
    return raw.Placeholder(dtype=as_dtype(dtype).base_dtype, shape=TensorShape(shape), name=name)


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """`input`, unless another value of `shape` is fed in its place."""
    return raw.PlaceholderWithDefault(input, shape=TensorShape(shape), name=name)


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """A SparseTensor that must be fed, by a SparseTensorValue or a tuple (indices, values, dense_shape).

    Args:
      shape: sizes, of which None (or -1) may be anything; a tensor; None where nothing is known of it.
    """
    named = (lambda part: f"{name}/{part}") if name is not None else lambda part: None
    if shape is None:
        rank = None
        dense_shape = placeholder(int64, [None], name=named("shape"))
        known = TensorShape(None)
    else:
        if isinstance(shape, Tensor):
            rank = shape.shape.with_rank(1).sizes[0]  # type: ignore[index]
            known = constant_value_as_shape(shape)
        else:
            sizes = [d.value if isinstance(d, Dimension) else d for d in shape]
            rank = len(sizes)
            known = TensorShape([None if d in (None, -1) else d for d in sizes])
            default = [-1 if d is None else d for d in sizes]
            shape = convert_to_tensor(default, dtype=int64, name=named("shape_default"))
        dense_shape = placeholder_with_default(shape, shape.shape, name=named("shape"))
    values = placeholder(dtype, [None], name=named("values"))
    made = SparseTensor(placeholder(int64, [None, rank], name=named("indices")), values, dense_shape)
    made.set_shape(known)
    return made


def identity(input: Any, name: str | None = None) -> Any:
    """`input`, by a node of its own. Of a ref variable: its value when a consumer runs.

    A SparseTensor or IndexedSlices gives one, each of its parts by an Identity.
    """
    if isinstance(input, SparseTensor):
        return SparseTensor(
            *[raw.Identity(t, name=name) for t in (input.indices, input.values, input.dense_shape)]
        )
    if isinstance(input, IndexedSlices):
        parts = [input.values, input.indices, input.dense_shape]
        return IndexedSlices(*[None if t is None else raw.Identity(t, name=name) for t in parts])
    made = raw.Identity(input, name=name)
    if hasattr(input, "_handle_data"):
        made._handle_data = input._handle_data
    return made


def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """Each of the tensors `input`, by one node: none is there before all are."""
    return raw.IdentityN(list(input), name=name)


def guarantee_const(input: Any, name: str | None = None) -> Tensor:
    """`input`, which the program says never changes between steps."""
    return raw.GuaranteeConst(input, name=name)


def stop_gradient(input: Any, name: str | None = None) -> Tensor:
    """`input`, through which no gradient flows."""
    return raw.StopGradient(input, name=name)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """`x`, with `shape` as its static shape and an error in a step where it is another."""
    return raw.EnsureShape(x, shape=TensorShape(shape), name=name)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """`tensor`, with an InvalidArgumentError that begins with `message` where it has NaN or infinite
    elements."""
    return raw.CheckNumerics(tensor, message=message, name=name)


def zeros(shape: Any, dtype: Any = float32, name: str | None = None, layout: Any = None) -> Tensor:
    """Zeros (False, empty strings) of `shape`: a list, TensorShape or int tensor."""
    dtype = as_dtype(dtype).base_dtype
    return _filled(shape, b"" if dtype is string_ else 0, dtype, name, "zeros")


def ones(shape: Any, dtype: Any = float32, name: str | None = None, layout: Any = None) -> Tensor:
    """Ones (True) of `shape`: a list, TensorShape or int tensor."""
    return _filled(shape, 1, as_dtype(dtype).base_dtype, name, "ones")


def _filled(shape: Any, value: Any, dtype: DType, name: str | None, default_name: str) -> Tensor:
    element = np.empty((), dtype.np)
    element[...] = value
    with name_scope(name, default_name, [shape]) as name:
        if not isinstance(shape, Tensor):
            try:
                known = TensorShape([shape] if isinstance(shape, (int, np.integer)) else shape)
                sizes = known.as_list() if known.is_fully_defined() else None
            except (TypeError, ValueError):
                sizes = None  # a list with tensors in it: converted below, or refused there
            if sizes is None:
                shape = convert_to_tensor(shape, dtype=int32)
            elif np.ndim(shape) and np.prod(sizes, dtype=np.float64) < CONSTANT_LIMIT:
                return raw.Const(value=np.broadcast_to(element, sizes).copy(), dtype=dtype, name=name)
            else:
                shape = convert_to_tensor(sizes, dtype=int32, name="shape_as_tensor")
        if not shape.shape.sizes:
            shape = raw.Reshape(shape, [-1])
        return raw.Fill(shape, raw.Const(value=element, dtype=dtype), name=name)


def zeros_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """Zeros of the shape of `tensor`, of its dtype or of `dtype`.

    Args:
      optimize: make a constant where the shape is known while the graph is built.
    """
    with name_scope(name, "zeros_like", [tensor]) as name:
        tensor = convert_to_tensor(tensor, name="tensor")
        own = tensor.dtype.base_dtype
        dtype = own if dtype is None else as_dtype(dtype).base_dtype
        if optimize and tensor.shape.is_fully_defined() and own.name != "variant":
            return zeros(tensor.shape, dtype, name=name)
        if dtype is not own:
            return zeros(_shape(tensor, optimize), dtype, name=name)
        return raw.ZerosLike(tensor, name=name)


def ones_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """Ones of the shape of `tensor`, of its dtype or of `dtype`.

    Args:
      optimize: take the shape as a constant where it is known while the graph is built.
    """
    with name_scope(name, "ones_like", [tensor]) as name:
        tensor = convert_to_tensor(tensor, name="tensor")
        made = ones(_shape(tensor, optimize), tensor.dtype if dtype is None else dtype, name=name)
        made.set_shape(tensor.shape)
        return made


def _shape(tensor: Tensor, optimize: bool) -> Tensor:
    if not optimize or not tensor.shape.is_fully_defined():
        return raw.Shape(tensor)
    with name_scope("Shape"):
        return convert_to_tensor(tensor.shape, name="shape_as_tensor")


def fill(dims: Any, value: Any, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of shape `dims`, a list or int tensor, every element `value`."""
    return raw.Fill(dims, value, name=name)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """For each index a vector of length `depth`: `on_value` at the index, `off_value` elsewhere.

    Args:
      indices: uint8, int8, int32 or int64 tensor; an index outside [0, depth) gives `off_value` only.
      on_value, off_value: scalars of one dtype; 1 and 0 where None.
      axis: where the new dimension goes; last where None.
      dtype: of the result; that of the values, or float32, where None.
    Raises:
      TypeError: the dtypes of the values and `dtype` differ.
    """
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value, axis, dtype]) as name:
        kind = None if dtype is None else as_dtype(dtype).base_dtype
        given = {}
        for what, value in (("on_value", on_value), ("off_value", off_value)):
            if value is not None:
                given[what] = value = convert_to_tensor(value, dtype_hint=kind)
                if dtype is not None and value.dtype.base_dtype is not kind:
                    raise TypeError(
                        f"dtype {value.dtype.base_dtype!r} of {what} does not match dtype parameter {kind!r}"
                    )
        kind = kind or next((t.dtype.base_dtype for t in given.values()), float32)
        on, off = (
            given.get(what, None) if what in given else convert_to_tensor(default, kind, name=what)
            for what, default in (("on_value", 1), ("off_value", 0))
        )
        if on.dtype.base_dtype is not off.dtype.base_dtype:
            raise TypeError(
                f"dtype {on.dtype.base_dtype!r} of on_value does not match dtype "
                f"{off.dtype.base_dtype!r} of off_value"
            )
        return raw.OneHot(indices, depth, on, off, axis=-1 if axis is None else axis, name=name)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = bool_, name: str | None = None) -> Tensor:
    """For each length a row of `maxlen` elements, True (1) in its first `length` places.

    Args:
      lengths: integer tensor.
      maxlen: scalar; the largest length where None.
      dtype: of the result.
    Raises:
      ValueError: maxlen is no scalar.
    """
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            rank = lengths.shape.rank
            every = raw.Range(0, rank_of(lengths), 1) if rank is None else int_constant(np.arange(rank))
            maxlen = raw.Max(lengths, every)
            maxlen = raw.Maximum(constant(0, maxlen.dtype), maxlen)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.shape.rank not in (None, 0):
            raise ValueError(f"maxlen must be scalar for sequence_mask, not of shape {maxlen.shape}")
        kind = maxlen.dtype.base_dtype
        row = raw.Range(constant(0, kind), maxlen, constant(1, kind))
        made = raw.Less(row, raw.Cast(raw.ExpandDims(lengths, -1), DstT=kind))
        target = bool_ if dtype is None else as_dtype(dtype).base_dtype
        return made if target is bool_ else raw.Cast(made, DstT=target)
