"""Evenly spaced numbers: Range by step, LinSpace by count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrt.core.dtypes import FLOATS
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import sample
from graphrt.core.shapes import TensorShape, unknown


def range_size(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers Range makes.

    Raises:
      ValueError: delta is 0, or leads away from limit.
    """
    if delta == 0:
        raise ValueError(f"Requires delta != 0: {delta}")
    if (start > limit) if delta > 0 else (start < limit):
        raise ValueError(
            f"Requires start {'<=' if delta > 0 else '>='} limit when delta "
            f"{'> 0' if delta > 0 else '< 0'}: {start}/{limit}"
        )
    if isinstance(start, int):
        return -((start - limit) // delta) if delta > 0 else -((limit - start) // -delta)
    return math.ceil(abs((limit - start) / delta))


@op(
    "Range(start: Tidx, limit: Tidx, delta: Tidx) -> output: Tidx",
    Tidx="type in {bfloat16,half,float,double,int8,int16,int32,int64,uint16,uint32,uint64} = int32",
)
class Range:
    """start, start + delta, start + 2 delta, … up to but without limit."""

    host_inputs = ALL

    def shape(
        self, s: ShapeContext, start: TensorShape, limit: TensorShape, delta: TensorShape
    ) -> TensorShape:
        for given in (start, limit, delta):
            given.with_rank(0)
        known = [s.value(i) for i in range(3)]
        if any(v is None for v in known):
            return unknown(1)
        return TensorShape.of((range_size(*(v.item() for v in known)),))  # type: ignore[union-attr]

    def compute(self, k: KernelContext, start: Any, limit: Any, delta: Any) -> Any:
        for name, given in (("start", start), ("limit", limit), ("delta", delta)):
            if given.ndim:
                raise ValueError(f"{name} must be a scalar, not shape {list(given.shape)}")
        first, step = start.item(), delta.item()
        n = range_size(first, limit.item(), step)
        if isinstance(first, int):
            return k.xp.arange(first, first + n * step, step, k.dtype)
        return (first + k.xp.arange(n, dtype="float64") * step).astype(k.dtype)

    samples = [
        sample(0, 10, 2),
        sample(3, 18, 4),
        sample(10, 0, -3),
        sample(0, 0, 1),
        sample(np.float32(0), np.float32(1), np.float32(0.1)),
        sample(np.int64(-3), np.int64(3), np.int64(1)),
        sample(np.float32(5), np.float32(1), np.float32(-1.5)),
        sample(np.float64(0), np.float64(1), np.float64(0.25)),
    ]


@op("LinSpace(start: T, stop: T, num: Tidx) -> output: T", T=FLOATS, Tidx="type in {int32,int64} = int32")
class LinSpace:
    """`num` numbers from start to stop, both included."""

    host_inputs = (2,)

    def shape(self, s: ShapeContext, start: TensorShape, stop: TensorShape, num: TensorShape) -> TensorShape:
        for given in (start, stop, num):
            given.with_rank(0)
        n = s.value(2)
        if n is None:
            return unknown(1)
        if n <= 0:
            raise ValueError(f"Requires num > 0: {n}")
        return TensorShape.of((int(n),))

    def compute(self, k: KernelContext, start: Any, stop: Any, num: Any) -> Any:
        n = int(num)
        if n <= 0:
            raise ValueError(f"Requires num > 0: {n}")
        return k.xp.linspace(start.item(), stop.item(), n).astype(k.dtype)

    samples = [
        sample(np.float32(10), np.float32(12), 3),
        sample(np.float32(-1), np.float32(1), 11),
        sample(np.float32(2), np.float32(5), 1),
        sample(np.float64(1), np.float64(0), np.int64(4)),
        sample(
            np.float16(0), np.float16(1), 5, tensorflow=False, why="TensorFlow's CPU has no kernel for it"
        ),
    ]
