"""Weights of losses and metrics: which shapes fit values, and weights in the values' shape.

Weights fit that are scalar, or of the values' rank with each size 1 or the values'.
"""

from __future__ import annotations

from typing import Any

from graphrt import checks
from graphrt.api import array_api, math_api
from graphrt.control_flow import cond
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor

__all__ = ["assert_broadcastable", "broadcast_weights"]

_MISFIT = "weights can not be broadcast to values."


def _shape_and_rank(x: Any, name: str) -> tuple[Tensor, Tensor, Tensor]:
    with name_scope(None, name, [x]) as scope:
        x = convert_to_tensor(x, name=scope)
        return x, array_api.shape(x, name="shape"), array_api.rank(x, name="rank")


def assert_broadcastable(weights: Any, values: Any) -> Operation:
    """An operation that fails where `weights` do not fit `values`.

    Raises:
      ValueError: now, where the static shapes show it.
    """
    with name_scope(None, "assert_broadcastable", [weights, values]) as scope:
        weights, weights_shape, weights_rank = _shape_and_rank(weights, "weights")
        values, values_shape, values_rank = _shape_and_rank(values, "values")
        a, b = weights.shape, values.shape
        if a.rank is not None and b.rank is not None:
            if a.rank == 0:
                return raw.NoOp(name="static_scalar_check_success")
            if a.rank != b.rank:
                raise ValueError(
                    f"{_MISFIT} values.rank={b.rank}. weights.rank={a.rank}. values.shape={b}. "
                    f"weights.shape={a}."
                )
            if constant_value(weights_shape) is not None and constant_value(values_shape) is not None:
                for axis, (of_weights, of_values) in enumerate(zip(a.sizes, b.sizes)):  # type: ignore[arg-type]
                    if of_weights not in (1, of_values):
                        raise ValueError(
                            f"{_MISFIT} Mismatch at dim {axis}. values.shape={b}, weights.shape={a}."
                        )
                return raw.NoOp(name="static_dims_check_success")
        is_scalar = math_api.equal(0, weights_rank, name="is_scalar")
        data = [
            _MISFIT,
            "weights.shape=",
            weights.name,
            weights_shape,
            "values.shape=",
            values.name,
            values_shape,
            "is_scalar=",
            is_scalar,
        ]
        fits = cond(
            is_scalar,
            lambda: is_scalar,
            lambda: _fits(weights_rank, weights_shape, values_rank, values_shape),
            name="is_valid_shape",
        )
        return checks.Assert(fits, data, name=scope)


def _fits(weights_rank: Tensor, weights_shape: Tensor, values_rank: Tensor, values_shape: Tensor) -> Tensor:
    with name_scope(
        None, "has_valid_nonscalar_shape", [weights_rank, weights_shape, values_rank, values_shape]
    ) as scope:
        is_same_rank = math_api.equal(values_rank, weights_rank, name="is_same_rank")
        return cond(
            is_same_rank, lambda: _sizes_fit(weights_shape, values_shape), lambda: is_same_rank, name=scope
        )


def _sizes_fit(weights_shape: Tensor, values_shape: Tensor) -> Tensor:
    with name_scope(None, "has_invalid_dims", [weights_shape, values_shape]) as scope:
        is_one = math_api.equal(weights_shape, array_api.ones_like(weights_shape))
        is_same = math_api.equal(weights_shape, values_shape)
        return math_api.reduce_all(math_api.logical_or(is_one, is_same), name=scope)


def broadcast_weights(weights: Any, values: Any) -> Tensor:
    """`weights` in the shape and dtype of `values`. Raises as assert_broadcastable."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        a, b = weights.shape, values.shape
        if a.is_fully_defined() and b.is_fully_defined() and a.is_compatible_with(b):
            return weights
        with control_dependencies([assert_broadcastable(weights, values)]):
            return math_api.multiply(weights, array_api.ones_like(values), name=scope)
