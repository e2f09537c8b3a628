"""tf.sort and tf.argsort, by TopKV2."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.api.nn_topk import top_k
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int64
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import int_constant, rank_of, shape_of

__all__ = ["argsort", "sort"]


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """`values` in order along `axis`.

    Args:
      direction: ASCENDING or DESCENDING.
    Raises:
      ValueError: another direction, or an axis that is not known while the graph is built.
    """
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, positions=False)


def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """The indices, int32, that put `values` in order along `axis`. Equal values keep their order in any case.

    Raises:
      ValueError: a direction that is not ASCENDING or DESCENDING, or an axis that is not known.
    """
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, positions=True)


def _sorted(values: Any, axis: Any, direction: str, positions: bool) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"direction should be one of ASCENDING, DESCENDING, not {direction}")
    axis = constant_value(convert_to_tensor(axis, name="axis"))
    if axis is None or axis.ndim:
        raise ValueError("axis must be a constant scalar")
    values, at = convert_to_tensor(values, name="values"), int(axis)
    if direction == "DESCENDING":
        return _descending(values, at, positions)
    kind = values.dtype.base_dtype
    # Turned around, largest first.
    if kind.is_unsigned:
        made = _descending(kind.max - values, at, positions)
        return made if positions else kind.max - made
    if kind.is_integer:
        # -x alone would overflow for the smallest number.
        made = _descending(-values - 1, at, positions)
        return made if positions else -made - 1
    made = _descending(-values, at, positions)
    return made if positions else -made


def _descending(values: Tensor, axis: int, positions: bool) -> Tensor:
    count = shape_of(values)[axis]
    rank = values.shape.rank
    rank_of(values)  # unused where the rank is known, but TensorFlow makes it too, and seeds count nodes
    if axis == -1 or axis + 1 == rank:
        return top_k(values, count)[int(positions)]
    if rank is None:
        raise ValueError("sorting along another axis than the last needs the rank of values")
    axis += rank if axis < 0 else 0
    swap = np.arange(rank)
    swap[[axis, rank - 1]] = rank - 1, axis
    order = int_constant(swap, int64, name="transposition")
    made = top_k(raw.Transpose(values, order, name="transpose"), count)[int(positions)]
    return raw.Transpose(made, order, name="transpose")
