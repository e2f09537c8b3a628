"""Small expressions on shapes that gradients and public functions build: constants where the static shape
decides."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import DType, int32
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.broadcasting import shape_of

__all__ = [
    "dense",
    "int_constant",
    "normal_axis",
    "ones_of",
    "rank_of",
    "reshape_like",
    "shape_of",
    "size_of",
    "zeros_of",
]

# Up to this many elements a constant is smaller than the nodes that fill it.
CONSTANT_LIMIT = 1000


def int_constant(value: Any, dtype: DType = int32, name: str = "Const") -> Tensor:
    return raw.Const(value=np.asarray(value, dtype.np), dtype=dtype, name=name)


def size_of(x: Tensor, dtype: DType = int32, name: str = "Size") -> Tensor:
    """The number of elements of `x`."""
    n = x.shape.num_elements()
    if n is None and x.shape.sizes is not None and 0 in x.shape.sizes:
        n = 0
    return raw.Size(x, out_type=dtype, name=name) if n is None else int_constant(n, dtype, name)


def rank_of(x: Tensor, name: str = "Rank") -> Tensor:
    """The number of dimensions of `x`."""
    rank = x.shape.rank
    return raw.Rank(x, name=name) if rank is None else int_constant(rank, name=name)


def zeros_of(x: Tensor) -> Tensor:
    """Zeros of the shape and dtype of `x`: a constant where that is known and small."""
    kind, n = x.dtype.base_dtype, x.shape.num_elements()
    with name_scope(None, "zeros_like", [x]) as name:
        if n is None or kind.is_object:
            return raw.ZerosLike(x, name=name)
        if n < CONSTANT_LIMIT:
            return raw.Const(value=np.zeros(x.shape.as_list(), kind.np), dtype=kind, name=name)
        shape = int_constant(x.shape.as_list(), name="shape_as_tensor")
        return raw.Fill(shape, raw.Const(value=np.zeros((), kind.np), dtype=kind), name=name)


def ones_of(shape: Tensor, dtype: DType) -> Tensor:
    """Ones of the shape that the vector `shape` says."""
    with name_scope(None, "ones", [shape]) as name:
        return raw.Fill(shape, raw.Const(value=np.ones((), dtype.np), dtype=dtype), name=name)


def dense(grad: Any) -> Tensor:
    """A gradient as one tensor: IndexedSlices are added up in zeros of their dense shape."""
    return convert_to_tensor(grad) if isinstance(grad, IndexedSlices) else grad


def reshape_like(grad: Any, x: Tensor) -> Tensor:
    """`grad`, which has the elements of `x`, in the shape of `x`."""
    return raw.Reshape(dense(grad), shape_of(x))


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` counted from the front. Raises ValueError where it is outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"{what} {axis} is outside [{-rank}, {rank})")
    return axis + rank if axis < 0 else axis
