"""Partitioned variables: one value held as several variables, cut along one axis; and the partitioners that
say how."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph
from graphrt.core.dtypes import DType, as_dtype, string
from graphrt.core.operation import Operation
from graphrt.core.shapes import TensorShape, as_shape
from graphrt.core.tensor import Tensor

Partitioner = Callable[..., list[int]]


class PartitionedVariable:
    """A list of variables that are the parts of one; as a tensor it is their concatenation.

    Args:
      name, shape, dtype: the whole's.
      variable_list: the parts, each with its SaveSliceInfo.
      partitions: how many parts along each axis.
    Raises:
      TypeError, ValueError: the arguments do not fit each other.
    """

    def __init__(self, name: str, shape: Any, dtype: Any, variable_list: Any, partitions: Any) -> None:
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError(f"variable_list is not a list or tuple: {variable_list}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"partitions is not a list or tuple: {partitions}")
        if not all(p >= 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        shape = as_shape(shape)
        if len(shape) != len(partitions):
            raise ValueError(f"len(shape) != len(partitions): {shape} vs. {partitions}")
        for part in variable_list:
            info = part._get_save_slice_info()
            if info is None:
                raise ValueError(
                    f"All variables must have a save_slice_info available: {[v.name for v in variable_list]}"
                )
            if TensorShape(info.full_shape) != shape:
                raise ValueError(
                    f"All variables' full shapes must match shape: {shape}; but full shapes were: "
                    f"{info.full_shape}"
                )
        self._parts = sorted(variable_list, key=lambda v: v._get_save_slice_info().var_offset)
        self._name, self._shape, self._dtype, self._partitions = name, shape, as_dtype(dtype), partitions

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)
    shape = property(lambda self: self._shape)

    def get_shape(self) -> TensorShape:
        return self._shape

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise ValueError(f"Cannot get a length for {len(axes)} > 1 partition axes")
        return len(self._parts)

    def _partition_axes(self) -> list[int]:
        return [i for i, p in enumerate(self._partitions) if p > 1] or [0]

    def _get_variable_list(self) -> list[Any]:
        return self._parts

    def _get_partitions(self) -> Any:
        return self._partitions

    def _one_axis(self, what: str) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                f"Cannot {what} along more than one dimension: {axes}.  Multi-axis partition {what} is not "
                "supported"
            )
        return axes[0]

    def as_tensor(self) -> Tensor:
        """The whole: an Identity of the concatenated parts, under the variable's own name."""
        graph = get_default_graph()
        with graph.control_dependencies(None):
            if len(self._parts) == 1:
                with graph.name_scope(None):
                    return raw.Identity(self._parts[0], name=self._name)
            axis = self._one_axis("concatenate")
            with graph.name_scope(self._name + "/ConcatPartitions/"):
                whole = raw.ConcatV2(self._parts, axis, name="concat")
            with graph.name_scope(None):
                return raw.Identity(whole, name=self._name)

    def _dense_var_to_tensor(
        self, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
    ) -> Tensor:
        if dtype is not None and dtype.base_dtype is not self._dtype.base_dtype:
            raise ValueError(
                f"Incompatible type conversion requested to type '{dtype.name}' for variable of type "
                f"'{self._dtype.name}'"
            )
        if as_ref:
            raise NotImplementedError("PartitionedVariable doesn't support being used as a reference.")
        return self.as_tensor()

    def _each(
        self, update: str, value: Any, use_locking: bool, name: str | None, read_value: bool
    ) -> list[Any]:
        axis = self._one_axis("assign")
        if isinstance(value, (list, PartitionedVariable)):
            values = list(value)
            if len(values) != len(self._parts):
                raise ValueError(
                    f"'{self._name}' has {len(self._parts)} parts, and {len(values)} values are given for "
                    "them"
                )
        else:
            sizes = [part.shape.as_list()[axis] for part in self._parts]
            values = raw.SplitV(value, convert_to_tensor(sizes), axis, num_split=len(sizes), name="split")
        return [
            getattr(part, update)(v, use_locking=use_locking, name=name, read_value=read_value)
            for part, v in zip(self._parts, values)
        ]

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Tensor | Operation]:
        """Set the parts from a whole tensor, a list of one value a part, or another PartitionedVariable."""
        return self._each("assign", value, use_locking, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Tensor | Operation]:
        return self._each("assign_add", value, use_locking, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Tensor | Operation]:
        return self._each("assign_sub", value, use_locking, name, read_value)


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Partitioner:
    """Parts of at most `max_shard_bytes` (but one slice at least) along `axis`, at most `max_shards` of
    them."""
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive. Currently, max_shard_bytes "
            f"is {max_shard_bytes} and bytes_per_string_element is {bytes_per_string_element}"
        )
    if max_shards and max_shards < 1:
        raise ValueError("max_shards must be positive.")

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        shape = as_shape(shape)
        if not shape.is_fully_defined():
            raise ValueError(f"shape is not fully defined: {shape}")
        sizes = shape.as_list()
        slice_bytes = shape.num_elements() / sizes[axis] * _element_bytes(dtype, bytes_per_string_element)
        slices_a_shard = max(1, math.floor(max_shard_bytes / slice_bytes))
        shards = math.ceil(sizes[axis] / slices_a_shard)
        return _along(axis, len(sizes), min(max_shards, shards) if max_shards else shards)

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1,
    axis: int = 0,
    min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:
    """As many parts along `axis` as `max_partitions` and parts of `min_slice_size` bytes allow."""

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        sizes = as_shape(shape).as_list()
        if axis >= len(sizes):
            raise ValueError(f"Cannot partition variable along axis {axis} when shape is only {shape}")
        total = as_shape(shape).num_elements() * _element_bytes(dtype, bytes_per_string_element)
        return _along(
            axis, len(sizes), max(1, min(sizes[axis], max_partitions, math.ceil(total / min_slice_size)))
        )

    return partitioner


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """`num_shards` parts along `axis`, or as many as that axis is long."""

    def partitioner(shape: Any, **_: Any) -> list[int]:
        sizes = as_shape(shape).as_list()
        return _along(axis, len(sizes), min(num_shards, sizes[axis]))

    return partitioner


def _element_bytes(dtype: Any, text_bytes: int) -> int:
    dtype = as_dtype(dtype).base_dtype
    return text_bytes if dtype is string else dtype.size


def _along(axis: int, rank: int, parts: int) -> list[int]:
    made = [1] * rank
    made[axis] = parts
    return made


def create_partitioned_variables(
    shape: Any,
    slicing: Any,
    initializer: Any,
    dtype: Any = "float32",
    trainable: bool = True,
    collections: Any = None,
    name: str | None = None,
    reuse: Any = None,
) -> list[Any]:
    """The parts of a partitioned variable, cut into slicing[i] parts along axis i. get_variable with a
    partitioner does the same."""
    from graphrt.variables.variable_scope import get_variable_scope, variable_scope
    from graphrt.variables.variable_store import default_store

    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        return list(
            get_variable_scope()._get_partitioned_variable(
                default_store(),
                None,
                shape=shape,
                dtype=as_dtype(dtype),
                initializer=initializer,
                trainable=trainable,
                partitioner=lambda **_: slicing,
                collections=collections,
            )
        )
