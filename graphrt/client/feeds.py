"""Feeds: values of tensors that take the place of what would compute them.

A `Feeder` is made once for a fed tensor and checks every value: dtype, static shape, and that it is a value
at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.dtypes import string
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor


class Feeder:
    """Checks and converts the values of one fed tensor."""

    __slots__ = ("tensor", "dtype", "sizes", "is_exact")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype.base_dtype.np
        self.sizes = tensor.shape.sizes
        self.is_exact = tensor.shape.is_fully_defined()

    def __call__(self, value: Any) -> Any:
        """The array of `value`.

        Raises:
          TypeError: a value of another kind (a tensor, a number that does not fit the dtype).
          ValueError: another shape than the tensor's static one, or nothing that converts.
        """
        if value.__class__ is not np.ndarray or value.dtype != self.dtype:
            value = self._convert(value)
        if self.is_exact:
            if value.shape != self.sizes:
                self._refuse(value)
        elif self.sizes is not None and not self._fits(value.shape):
            self._refuse(value)
        return value

    def _fits(self, shape: tuple[int, ...]) -> bool:
        sizes = self.sizes
        assert sizes is not None
        if len(shape) != len(sizes):
            return False
        for have, want in zip(shape, sizes):
            if want is not None and have != want:
                return False
        return True

    def _refuse(self, value: Any) -> None:
        raise ValueError(
            f"Cannot feed value of shape {value.shape} for Tensor '{self.tensor.name}', which has shape "
            f"'{self.tensor.shape}'"
        )

    def _convert(self, value: Any) -> Any:
        tensor = self.tensor
        if isinstance(value, (Tensor, Operation, SparseTensor)):
            raise TypeError(
                "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python "
                "scalars, "
                f"strings, lists, numpy ndarrays. For reference, the tensor object was {value} "
                "which was passed to the "
                f"feed with key {tensor}."
            )
        dtype = tensor.dtype.base_dtype
        if dtype is string:
            from graphrt.core.convert import make_array

            return make_array(value, string)
        if dtype.is_object:
            return value
        is_array = isinstance(value, (np.ndarray, np.generic))
        if is_array and (
            dtype.is_integer and value.dtype.kind in "fc" or dtype.is_floating and value.dtype.kind == "c"
        ):
            raise TypeError(
                f"cannot feed {value.dtype.name} values for Tensor '{tensor.name}' of dtype {dtype.name}: "
                "they would "
                "be truncated. Use value.astype() where that is meant"
            )
        try:
            if value.__class__ is float or value.__class__ is int:
                array = np.array(value, self.dtype)
            else:
                with np.errstate(all="ignore"):
                    array = np.asarray(value, dtype=self.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            if isinstance(error, OverflowError) or isinstance(value, int):
                raise self._too_large(value) from None
            raise ValueError(
                f"cannot feed {_shown(value)} for Tensor '{tensor.name}' of dtype {dtype.name}: {error}"
            ) from None
        if isinstance(value, int) and not isinstance(value, bool) and dtype.is_integer and array != value:
            raise self._too_large(value)
        if (
            is_array
            and value.dtype.kind in "iu"
            and dtype.is_integer
            and not np.can_cast(value.dtype, self.dtype)
        ):
            self._check_range(value, array)
        if isinstance(value, float) and dtype.is_integer:
            raise TypeError(f"cannot feed the float {value} for Tensor '{tensor.name}' of dtype {dtype.name}")
        return array

    def _check_range(self, value: Any, array: np.ndarray) -> None:
        """Raise TypeError where a conversion between integer types has changed a value."""
        changed = (array != value) | ((array < 0) != (value < 0))
        if changed.any():
            first = value[changed].flat[0] if value.ndim else value
            raise TypeError(
                f"cannot feed {value.dtype.name} values for Tensor '{self.tensor.name}' of dtype "
                f"{self.tensor.dtype.base_dtype.name}: it does not hold {first}"
            )

    def _too_large(self, value: Any) -> TypeError:
        return TypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type "
            f"{self.tensor.dtype.base_dtype.name}. Try explicitly setting the type of the "
            "feed tensor to a larger type "
            "(e.g. int64)."
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:100] + "…"


def flatten_feeds(graph: Graph, feed_dict: dict[Any, Any]) -> tuple[list[Tensor], list[Any]]:
    """The fed tensors and their values; a SparseTensor or IndexedSlices key feeds its parts.

    Raises:
      TypeError: a key is not a graph element; ValueError: it may not be fed, or is of another graph.
    """
    tensors: list[Tensor] = []
    values: list[Any] = []
    for key, value in feed_dict.items():
        for tensor, part in _parts(graph, key, value):
            if not graph.is_feedable(tensor):
                raise ValueError(f"Tensor {tensor.name} may not be fed.")
            tensors.append(tensor)
            values.append(part)
    return tensors, values


def _parts(graph: Graph, key: Any, value: Any) -> list[tuple[Tensor, Any]]:
    if isinstance(key, SparseTensor):
        return list(zip((key.indices, key.values, key.dense_shape), value))
    if isinstance(key, IndexedSlices):
        parts = (key.values, key.indices) + ((key.dense_shape,) if key.dense_shape is not None else ())
        return list(zip(parts, value))
    if isinstance(key, tuple):
        return [pair for k, v in zip(key, value) for pair in _parts(graph, k, v)]
    return [(fed_tensor(graph, key), value)]


def fed_tensor(graph: Graph, key: Any) -> Tensor:
    """The tensor that a feed's key names."""
    try:
        return graph.as_graph_element(key, allow_operation=False)
    except Exception as error:
        reason = error.args[0] if error.args else error
        raise TypeError(f"Cannot interpret feed_dict key as Tensor: {reason}") from None
