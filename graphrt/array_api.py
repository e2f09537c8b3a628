"""tf.constant, tf.reshape, tf.concat, …: the public functions on arrays, with TF1's signatures. They build nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.convert import constant_tensor, convert_to_tensor
from graphrt.core.dtypes import as_dtype, float32, string
from graphrt.core.graph import name_scope
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor

__all__ = ["constant", "identity", "ones", "placeholder", "zeros"]


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
    return constant_tensor(
        value, None if dtype is None else as_dtype(dtype).base_dtype, shape, name, verify_shape
    )


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor that must be fed: `session.run(..., feed_dict={x: value})`."""
    return raw.Placeholder(dtype=as_dtype(dtype).base_dtype, shape=TensorShape(shape), name=name)


def identity(input: Any, name: str | None = None) -> Tensor:
    """`input`, by a node of its own. Of a ref variable: its value when a consumer runs."""
    made = raw.Identity(input, name=name)
    if hasattr(input, "_handle_data"):
        made._handle_data = input._handle_data
    return made


def zeros(shape: Any, dtype: Any = float32, name: str | None = None) -> Tensor:
    """Zeros (False, empty strings) of `shape`, a list, TensorShape or int tensor."""
    dtype = as_dtype(dtype).base_dtype
    return _filled(shape, b"" if dtype is string else False if dtype.is_bool else 0, dtype, name, "zeros")


def ones(shape: Any, dtype: Any = float32, name: str | None = None) -> Tensor:
    """Ones (True) of `shape`, a list, TensorShape or int tensor."""
    dtype = as_dtype(dtype).base_dtype
    return _filled(shape, True if dtype.is_bool else 1, dtype, name, "ones")


# Above this many elements a Fill node is smaller than the constant.
_CONSTANT_LIMIT = 1000


def _filled(shape: Any, value: Any, dtype: Any, name: str | None, default_name: str) -> Tensor:
    with name_scope(name, default_name, [shape]) as name:
        if not isinstance(shape, Tensor):
            try:
                known = TensorShape(shape)
                n = known.num_elements()
            except (TypeError, ValueError):
                n = None
            if n is not None and n < _CONSTANT_LIMIT:
                array = np.empty(known.as_list(), dtype.np)
                array[...] = value
                return raw.Const(value=array, dtype=dtype, name=name)
            shape = convert_to_tensor(shape, dtype="int32" if n is not None else None)
        if shape.shape.rank != 1:
            shape = raw.Reshape(shape, [-1])
        one = np.empty((), dtype.np)
        one[...] = value
        return raw.Fill(shape, raw.Const(value=one, dtype=dtype), name=name)
