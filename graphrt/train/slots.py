"""Slots: variables that belong to another variable, under its name and on its device ('W/Adam')."""

from __future__ import annotations

from typing import Any

from graphrt import initializers
from graphrt.core import raw
from graphrt.core.default_graph import get_default_graph
from graphrt.variables.lifting import initialized_value
from graphrt.variables.ref_variable import RefVariable
from graphrt.variables.resource_variable import is_resource_variable
from graphrt.variables.variable import SaveSliceInfo, Variable
from graphrt.variables.variable_scope import get_variable, get_variable_scope, variable_scope


def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot of the variable (or tensor) `primary` with the initial value `val`, a tensor."""
    return _create(primary, val, name, val.shape.is_fully_defined(), None, None, colocate_with_primary)


def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: Any, dtype: Any, name: str, colocate_with_primary: bool = True
) -> Any:
    """A slot of `shape` and `dtype` that `initializer(shape, dtype)` initialises."""
    return _create(primary, initializer, name, shape.is_fully_defined(), shape, dtype, colocate_with_primary)


def create_zeros_slot(primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True) -> Any:
    """A slot of zeros in the shape of `primary`, and in its dtype unless another is given."""
    dtype = primary.dtype if dtype is None else dtype
    shape = primary.get_shape()
    if shape.is_fully_defined():
        return create_slot_with_initializer(
            primary, initializers.zeros(), shape, dtype, name, colocate_with_primary
        )
    known = initialized_value(primary) if isinstance(primary, Variable) else primary
    zero = raw.Cast(0, DstT=dtype.base_dtype)
    return create_slot(primary, raw.Fill(raw.Shape(known), zero, name="zeros"), name, colocate_with_primary)


def _create(
    primary: Any, value: Any, name: str, validate_shape: bool, shape: Any, dtype: Any, colocate: bool
) -> Any:
    prefix = primary._shared_name if isinstance(primary, Variable) else primary.op.name
    with variable_scope(None, f"{prefix}/{name}"):
        if not colocate:
            return _slot_variable(primary, value, validate_shape, shape, dtype)
        with get_default_graph().colocate_with(primary):
            return _slot_variable(primary, value, validate_shape, shape, dtype)


def _slot_variable(primary: Any, value: Any, validate_shape: bool, shape: Any, dtype: Any) -> Any:
    use_resource = (
        True if is_resource_variable(primary) else False if isinstance(primary, RefVariable) else None
    )
    # A slot is cut as its variable is, part by part: never by the scope's partitioner.
    scope = get_variable_scope()
    partitioner = scope.partitioner
    scope.set_partitioner(None)
    try:
        made = get_variable(
            "",
            initializer=value,
            trainable=False,
            use_resource=use_resource,
            shape=shape if callable(value) else None,
            dtype=dtype,
            validate_shape=validate_shape,
        )
    finally:
        scope.set_partitioner(partitioner)
    whole = primary._get_save_slice_info() if isinstance(primary, Variable) else None
    n = made.shape.rank
    if whole is not None and (n is None or n > 0):
        slot_name = made.op.name[len(primary.op.name) + 1 :]
        made._set_save_slice_info(
            SaveSliceInfo(
                f"{whole.full_name}/{slot_name}",
                whole.full_shape[:n],
                whole.var_offset[:n],
                whole.var_shape[:n],
            )
        )
    return made
