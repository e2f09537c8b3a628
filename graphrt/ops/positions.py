"""ArgMax and ArgMin: where the extremes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import QUANTIZED, REAL, bool_
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import bools, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown

_ANY_REAL = (*REAL, *QUANTIZED, bool_)


class _Position:
    """Base of ArgMax and ArgMin: the index of the extreme along one axis, the first of equals."""

    function = ""
    host_inputs = (1,)
    samples = [
        sample(normal(3, 4), 0),
        sample(normal(3, 4), 1),
        sample(normal(3, 4, 2), -1),
        sample(ints(3, 5, high=3), 1, why="equals"),
        sample(normal(4), 0, output_type="int32"),
        sample(bools(2, 3), 1),
        sample(normal(3, 0), 0),
        sample(normal(3, 4, dtype="bfloat16"), np.array(1, np.int64)),
    ]

    def shape(self, s: ShapeContext, input: TensorShape, dimension: TensorShape) -> TensorShape:
        dimension.with_rank(0)
        input.with_rank_at_least(1)
        if input.sizes is None:
            return UNKNOWN
        axis = s.value(1)
        if axis is None:
            return unknown(len(input.sizes) - 1)
        at = one_axis(axis, len(input.sizes), s.op_def.name)
        return TensorShape.of(input.sizes[:at] + input.sizes[at + 1 :])

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        find, name, dtype = getattr(k.xp, self.function), k.type, k.dtype

        def position(x: Any, dimension: Any) -> Any:
            axis = one_axis(dimension, x.ndim, name)
            if not x.shape[axis]:
                raise ValueError(
                    f"Reduction axis {axis} is empty in shape {list(x.shape)}: {name} has nothing to "
                    "choose from"
                )
            return find(x, axis).astype(dtype)

        return position

    def gradient(self, op: Any, dy: Any) -> list[None]:
        return [None, None]


def one_axis(axis: Any, rank: int, op_name: str) -> int:
    """A scalar axis in [0, rank).

    Raises:
      ValueError: it is outside [-rank, rank).
    """
    at = int(axis)
    if not -rank <= at < rank:
        raise ValueError(
            f"Expected dimension in the range [{-rank}, {rank}), but got {at}: {op_name} of {rank} "
            "dimension(s)"
        )
    return at + rank if at < 0 else at


@op(
    "ArgMax(input: T, dimension: Tidx) -> output: output_type",
    T=_ANY_REAL,
    Tidx="type in {int16,int32,int64} = int32",
    output_type="type in {int16,uint16,int32,int64} = int64",
)
class ArgMax(_Position):
    """The index of the largest element along an axis, the first of equals."""

    function = "argmax"


@op(
    "ArgMin(input: T, dimension: Tidx) -> output: output_type",
    T=_ANY_REAL,
    Tidx="type in {int32,int64} = int32",
    output_type="type in {int32,int64} = int64",
)
class ArgMin(_Position):
    """The index of the smallest element along an axis, the first of equals."""

    function = "argmin"
