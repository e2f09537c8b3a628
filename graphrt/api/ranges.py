"""Public sequences of numbers: tf.range, tf.linspace."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, bfloat16, float16, float32, float64, int32, int64
from graphrt.core.tensor import Tensor

# The widest dtype of start, limit and delta is the range's.
_BY_WIDTH = (int32, int64, float16, bfloat16, float32, float64)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Tensor:
    """start, start + delta, … up to but without limit: `range(5)`, `range(2, 10, 3)`.

    Args:
      start: scalar; where `limit` is None it is the limit, and the range starts at 0.
      delta: scalar, not 0.
      dtype: of the result; the widest of the arguments' where None.
    Raises:
      TypeError: arguments of other dtypes than int32, int64 and the floats, without `dtype`.
    """
    if limit is None:
        start, limit = 0, start
    kind = None if dtype is None else as_dtype(dtype)
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        # A tensor of another dtype is cast below; Python values are made in `dtype`.
        given = [
            v if isinstance(v, Tensor) else convert_to_tensor(v, dtype=kind, name=n)
            for v, n in ((start, "start"), (limit, "limit"), (delta, "delta"))
        ]
        if kind is None:
            kinds = [t.dtype.base_dtype for t in given]
            for found in kinds:
                if found not in _BY_WIDTH:
                    raise TypeError(
                        f"range makes no {found.name} of its arguments alone: name the dtype, as "
                        "tf.range(..., dtype=...)"
                    )
            kind = max(kinds, key=_BY_WIDTH.index)
        return raw.Range(
            *(t if t.dtype.base_dtype is kind else raw.Cast(t, DstT=kind) for t in given), name=scope
        )


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, both included.

    Args:
      start, stop: float tensors that broadcast; scalars give a vector.
      axis: where the new dimension goes, for start and stop of higher rank.
    """
    start = convert_to_tensor(start, name="start")
    stop = convert_to_tensor(stop, name="stop", dtype=start.dtype.base_dtype)
    if start.shape.rank == 0 and stop.shape.rank == 0 and axis in (0, -1):
        return raw.LinSpace(start, stop, num, name=name or "linspace")
    with name_scope(name, "linspace", [start, stop]):
        ranks = start.shape.rank, stop.shape.rank
        if None in ranks:
            raise ValueError(
                f"linspace needs start and stop of known rank, not of shapes {start.shape} and {stop.shape}"
            )
        rank = max(ranks) + 1  # type: ignore[type-var]
        if not -rank <= axis < rank:
            raise ValueError(f"linspace: axis {axis} is outside [{-rank}, {rank})")
        shape = raw.BroadcastArgs(raw.Shape(start), raw.Shape(stop))
        at = axis % rank
        first, last = (raw.ExpandDims(raw.BroadcastTo(t, shape), at) for t in (start, stop))
        kind = start.dtype.base_dtype
        num = convert_to_tensor(num, dtype=int32, name="num")
        steps = raw.Cast(raw.Maximum(num - 1, 1), DstT=kind)
        inner = raw.Cast(raw.Range(np.int32(0), num, np.int32(1)), DstT=kind)
        inner = raw.Reshape(inner, [-1 if i == at else 1 for i in np.arange(rank)])
        made = first + (last - first) / steps * inner
        # The end is stop itself, not what the steps round to.
        is_end = raw.LogicalAnd(raw.Equal(inner, steps), raw.Greater(num, 1))
        return raw.SelectV2(is_end, last + raw.ZerosLike(made), made)


lin_space = linspace

__all__ = ["lin_space", "linspace", "range"]
