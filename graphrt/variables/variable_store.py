"""The variables of a graph that get_variable made, by full name: made once, then shared or refused."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, as_dtype, float32, string
from graphrt.core.graph import Graph
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.shapes import TensorShape, as_shape
from graphrt.core.tensor import Tensor
from graphrt.variables.lifting import init_scope, outside_functions
from graphrt.variables.partitioned_variable import PartitionedVariable
from graphrt.variables.variable import (
    SaveSliceInfo,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    checked_modes,
    resource_variables_enabled,
)


class ReuseMode:
    """The kind of AUTO_REUSE."""

    def __repr__(self) -> str:
        return "<_ReuseMode.AUTO_REUSE: 1>"


AUTO_REUSE = ReuseMode()

# graphrt.initializers says what get_variable takes where nobody gave an initializer: this folder imports
# nothing above ops.
_default_initializer: Callable[[DType], Any] | None = None


def set_default_initializer(choose: Callable[[DType], Any]) -> None:
    """`choose(dtype)` is the initializer of variables without one."""
    global _default_initializer
    _default_initializer = choose


class PartitionInfo:
    """What an initializer of a part may ask: the whole's shape, and where the part begins.

    Attributes:
      full_shape, var_offset: lists of one int a dimension.
    """

    def __init__(self, full_shape: list[int], var_offset: list[int]) -> None:
        if len(var_offset) != len(full_shape):
            raise ValueError(
                f"Expected equal length, but `var_offset` is of length {len(var_offset)} while full_shape is "
                f"of length {len(full_shape)}."
            )
        if any(not 0 <= offset < size for offset, size in zip(var_offset, full_shape)):
            raise ValueError(
                f"Expected 0 <= offset < shape but found var_offset={var_offset}, full_shape={full_shape}"
            )
        self.full_shape, self.var_offset = full_shape, var_offset

    def single_offset(self, shape: Sequence[int]) -> int:
        """The offset along the axis that is cut; 0 where none is."""
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """The axis along which a part of `shape` is cut; None where it is the whole. Raises ValueError where
        there are two."""
        if len(shape) != len(self.full_shape):
            raise ValueError(
                f"Expected equal length, but received shape={shape} while self.full_shape={self.full_shape}"
            )
        if any(offset + size > whole for offset, size, whole in zip(self.var_offset, shape, self.full_shape)):
            raise ValueError(
                f"With self.var_offset={self.var_offset}, a partition of shape={shape} would exceed "
                f"self.full_shape={self.full_shape}"
            )
        cut = [i for i, (size, whole) in enumerate(zip(shape, self.full_shape)) if size != whole]
        if len(cut) > 1:
            raise ValueError(
                f"Cannot use single_slice_dim() with shape={shape} and self.full_shape={self.full_shape} "
                f"since slice dim could be any of {cut}"
            )
        return cut[0] if cut else None


class LazyTensor:
    """A regularisation loss: built when its variable is, and built anew where it is used, so that a use
    inside a conditional or loop has its nodes there."""

    def __init__(self, build: Callable[[], Tensor]) -> None:
        self._build, self._first = build, build()

    def _dense_var_to_tensor(
        self, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
    ) -> Tensor:
        if dtype is not None and dtype is not self._first.dtype:
            raise ValueError(f"'{self._first.name}' is {self._first.dtype.name}, not {dtype.name}")
        return self._build()

    def _as_graph_element(self) -> Tensor:
        return self._first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)

    def __repr__(self) -> str:
        return repr(self._first)


def _lazily(name: str) -> Any:
    return lambda self, *others: getattr(self._build(), name)(*others)


for _name in (
    "abs",
    "add",
    "and",
    "floordiv",
    "ge",
    "getitem",
    "gt",
    "invert",
    "le",
    "lt",
    "matmul",
    "mod",
    "mul",
    "neg",
    "or",
    "pow",
    "radd",
    "rand",
    "rfloordiv",
    "rmatmul",
    "rmod",
    "rmul",
    "ror",
    "rpow",
    "rsub",
    "rtruediv",
    "rxor",
    "sub",
    "truediv",
    "xor",
):
    setattr(LazyTensor, f"__{_name}__", _lazily(f"__{_name}__"))


class VariableStore:
    """get_variable's memory for one graph.

    Attributes:
      variables: full name to variable.
      partitioned: full name to PartitionedVariable; its parts are in `variables` as 'name/part_i'.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self.partitioned: dict[str, PartitionedVariable] = {}

    def get_variable(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = float32,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        """The variable of the full name: made, or shared where `reuse` allows it; by way of
        `custom_getter`."""
        if custom_getter is not None and not callable(custom_getter):
            raise ValueError(f"Passed a custom_getter which is not callable: {custom_getter}")
        synchronization, aggregation, trainable = checked_modes(synchronization, aggregation, trainable, name)
        options = {
            "name": name,
            "shape": shape,
            "dtype": getattr(dtype, "base_dtype", dtype),
            "initializer": initializer,
            "regularizer": regularizer,
            "reuse": reuse,
            "trainable": trainable,
            "collections": collections,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "validate_shape": validate_shape,
            "use_resource": use_resource,
            "synchronization": synchronization,
            "aggregation": aggregation,
        }
        if custom_getter is None:
            return self._get(constraint=constraint, **options)
        if _takes(custom_getter, "constraint"):
            options["constraint"] = constraint
        return custom_getter(getter=self._get, **options)

    def _get(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = float32,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        """What a custom_getter is given as `getter`."""
        options = {
            "shape": shape,
            "dtype": as_dtype(dtype),
            "initializer": initializer,
            "regularizer": regularizer,
            "reuse": reuse,
            "trainable": trainable,
            "collections": collections,
            "caching_device": caching_device,
            "validate_shape": validate_shape,
            "use_resource": use_resource,
            "constraint": constraint,
            "synchronization": synchronization,
            "aggregation": aggregation,
        }
        is_scalar = shape is not None and isinstance(shape, (list, tuple)) and not len(shape)
        if partitioner is not None and not is_scalar:
            if not callable(partitioner):
                raise ValueError(f"Partitioner must be callable, but received: {partitioner}")
            with name_scope(""):
                return self.get_partitioned(name, partitioner, **options)
        if reuse is True and partitioner is None and name in self.partitioned:
            return self.get_partitioned(name, None, **options)
        if f"{name}/part_0" in self.variables:
            raise ValueError(
                "No partitioner was provided, but a partitioned version of the variable was found: "
                f"{name}/part_0. Perhaps a variable of the same name was already created with partitioning?"
            )
        return self._get_single(name, **options)

    def get_partitioned(
        self,
        name: str,
        partitioner: Any,
        shape: Any = None,
        dtype: Any = float32,
        initializer: Any = None,
        reuse: Any = None,
        **options: Any,
    ) -> PartitionedVariable:
        """The partitioned variable of the full name, cut as `partitioner(shape=, dtype=)` says.

        Raises:
          ValueError: it exists and may not be shared, or does not and should; or is another than asked for.
        """
        if name in self.variables:
            raise ValueError(
                "A partitioner was provided, but an unpartitioned version of the variable was found: "
                f"{name}.  Perhaps a variable of the same name was already created without partitioning?"
            )
        shape = as_shape(shape)
        if isinstance(initializer, Tensor):
            shape = shape.merge_with(initializer.shape)
        partitions = checked_partitions(partitioner, shape, dtype) if not reuse or partitioner else None
        if name in self.partitioned:
            return self._shared_partitioned(name, shape, dtype, reuse, partitions)
        if reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). Did "
                "you mean to set reuse=False or reuse=tf.AUTO_REUSE in VarScope?"
            )
        assert partitions is not None
        axis = next((i for i, p in enumerate(partitions) if p > 1), 0)
        count = partitions[axis]
        if f"{name}/part_0" in self.variables:
            there = sum(f"{name}/part_{i}" in self.variables for i in range(count + 1))
            if there != count:
                raise ValueError(
                    "Partitioner returned a different partitioning than what was already found.  Partitioner "
                    f"returned {count} shards, and {'more' if there > count else there} parts of {name} "
                    "exist."
                )
        parts = []
        for i, (offset, part_shape) in enumerate(_slices(shape.as_list(), count, axis)):
            part_name = f"{name}/part_{i}"
            with name_scope(part_name + "/PartitionedInitializer"):
                init, init_shape, part_dtype = self._part_initializer(initializer, offset, part_shape, dtype)
            with name_scope(""):
                part = self._get_single(
                    part_name,
                    shape=init_shape,
                    dtype=part_dtype,
                    initializer=init,
                    reuse=reuse,
                    partition_info=PartitionInfo(shape.as_list(), offset),
                    **options,
                )
            part._set_save_slice_info(SaveSliceInfo(name, shape.as_list(), offset, part_shape))
            parts.append(part)
        made = self.partitioned[name] = PartitionedVariable(name, shape, dtype, parts, list(partitions))
        return made

    def _shared_partitioned(
        self, name: str, shape: TensorShape, dtype: DType, reuse: Any, partitions: Any
    ) -> PartitionedVariable:
        found = self.partitioned[name]
        what = f"Trying to reuse partitioned variable {name}, but specified"
        if reuse is False:
            raise ValueError(
                f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or "
                "reuse=tf.AUTO_REUSE in VarScope?"
            )
        if not shape.is_compatible_with(found.shape):
            raise ValueError(f"{what} shape {shape} and found shape {found.shape}.")
        if not dtype.is_compatible_with(found.dtype):
            raise ValueError(f"{what} dtype {dtype.name} and found dtype {found.dtype.name}.")
        if partitions is not None and list(found._get_partitions()) != list(partitions):
            raise ValueError(
                f"{what} partitions {partitions} and found partitions {found._get_partitions()}."
            )
        return found

    def _part_initializer(
        self, initializer: Any, offset: list[int], part_shape: list[int], dtype: DType
    ) -> tuple[Any, list[int] | None, DType]:
        if initializer is None:
            return default_initializer(dtype), part_shape, dtype
        if callable(initializer):
            return initializer, part_shape, dtype
        whole = initializer if isinstance(initializer, Tensor) else convert_to_tensor(initializer, dtype)
        part = raw.Slice(whole, offset, part_shape)
        return part, None, part.dtype.base_dtype

    def _get_single(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = float32,
        initializer: Any = None,
        regularizer: Any = None,
        partition_info: PartitionInfo | None = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
    ) -> Any:
        is_value = initializer is not None and not callable(initializer)
        if shape is not None and is_value:
            raise ValueError("If initializer is a constant, do not specify shape.")
        dtype = as_dtype(dtype)
        shape = None if shape is None else as_shape(shape)
        if name in self.variables:
            return self._shared(name, shape, dtype, reuse)
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, or was not created with tf.get_variable(). Did you mean to "
                "set reuse=tf.AUTO_REUSE in VarScope?"
            )
        if initializer is None:
            if shape is None:
                raise ValueError(
                    f"Variable {name} did not get an initializer, so its `shape` argument must be specified."
                )
            initializer = default_initializer(dtype, name)
        with init_scope():
            initial_value, value_dtype = (
                (initializer, None)
                if is_value
                else bound_initializer(initializer, shape, dtype, partition_info)
            )
        made = Variable(
            initial_value=initial_value,
            name=name,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            dtype=value_dtype,
            validate_shape=validate_shape,
            constraint=constraint,
            use_resource=resource_variables_enabled() if use_resource is None else use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
            shape=shape,
        )
        self.variables[name] = made
        if regularizer:

            def build_loss() -> Any:
                with get_default_graph().colocate_with(made.op), name_scope(name + "/Regularizer/"):
                    return regularizer(made)

            # As TensorFlow does: once to see whether there is a loss, then for the loss.
            if regularizer(made) is not None:
                get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, LazyTensor(build_loss))
        return made

    def _shared(self, name: str, shape: TensorShape | None, dtype: DType, reuse: Any) -> Any:
        found = self.variables[name]
        if reuse is False:
            file, line, _, source = found.op.traceback[0]
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or "
                f'reuse=tf.AUTO_REUSE in VarScope? Originally defined at:\n\n  File "{file}", line {line}\n'
                f"    {source}\n"
            )
        if shape is not None and not shape.is_compatible_with(found.get_shape()):
            raise ValueError(
                f"Trying to share variable {name}, but specified shape {shape} and found shape "
                f"{found.get_shape()}."
            )
        if not dtype.is_compatible_with(found.dtype):
            raise ValueError(
                f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype "
                f"{found.dtype.name}."
            )
        return found


def default_initializer(dtype: DType, name: str = "") -> Any:
    """What initialises a variable without an initializer: Glorot's uniform for floating types, zeros for
    integers, bools and text.

    Raises:
      ValueError: there is none for the dtype.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype is string):
        raise ValueError(f"An initializer for variable {name} of {dtype.base_dtype!r} is required")
    if _default_initializer is None:
        raise RuntimeError("no initializers are loaded: import graphrt, or give get_variable an initializer")
    return _default_initializer(dtype)


def bound_initializer(
    initializer: Any, shape: TensorShape | None, dtype: DType, partition_info: PartitionInfo | None
) -> tuple[Callable[[], Any], DType | None]:
    """An initializer as a function without arguments, and the dtype that its value is converted to.

    Raises:
      ValueError: it needs a shape that is not known.
    """
    if inspect.isclass(initializer):
        initializer = initializer()
    if shape is not None and shape.is_fully_defined():
        given: dict[str, Any] = {"dtype": dtype}
        if "partition_info" in _parameters(initializer):
            given["partition_info"] = partition_info
        return functools.partial(initializer, shape.as_list(), **given), dtype.base_dtype
    if all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        for p in _parameters(initializer).values()
    ):
        return initializer, None
    raise ValueError(
        "The initializer passed is not valid. It should be a callable with no arguments and the shape should "
        "not be provided or an instance of `tf.keras.initializers.*' and `shape` should be fully defined."
    )


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _takes(function: Any, name: str) -> bool:
    parameters = _parameters(function)
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def checked_partitions(partitioner: Any, shape: TensorShape, dtype: DType) -> list[int]:
    """What `partitioner` says for a variable of `shape`: the number of parts along each axis.

    Raises:
      ValueError: the shape is not known, or the answer cuts along more than one axis or is none at all.
    """
    if not shape.is_fully_defined():
        raise ValueError(
            f"Shape of a new partitioned variable must be fully defined, but instead was {shape}."
        )
    if not shape.rank:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {shape}")
    slicing = partitioner(shape=shape, dtype=dtype)
    if not isinstance(slicing, Sequence):
        raise ValueError(f"Partitioner must return a sequence, but saw: {slicing}")
    if len(slicing) != shape.rank:
        raise ValueError(
            "Partitioner returned a partition list that does not match the Variable's rank: "
            f"{slicing} vs. {shape}"
        )
    if any(p < 1 for p in slicing):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {slicing}")
    if sum(p > 1 for p in slicing) > 1:
        raise ValueError(
            f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {slicing}"
        )
    return list(slicing)


def _slices(full_shape: list[int], count: int, axis: int) -> Iterator[tuple[list[int], list[int]]]:
    """Offset and shape of each of `count` parts along `axis`; the first ones take what is left over."""
    length, excess = divmod(full_shape[axis], count)
    offset = [0] * len(full_shape)
    for i in range(count):
        shape = list(full_shape)
        shape[axis] = length + (i < excess)
        yield list(offset), shape
        offset[axis] += shape[axis]


def default_store(graph: Graph | None = None) -> VariableStore:
    """The store of the graph (the default one): made at first sight."""
    graph = outside_functions(graph or get_default_graph())
    kept = graph.get_collection_ref(GraphKeys._VARIABLE_STORE_KEY)
    if not kept:
        kept.append(VariableStore())
    return kept[0]
