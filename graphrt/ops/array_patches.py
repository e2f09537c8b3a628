"""ExtractImagePatches: the sliding windows of images, each as the depth of one pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, REAL, bool_, int64
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.windows import output_size, window
from graphrt.ops.array_nodes import dense, shape_of


def _spatial(attrs: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """The rows and columns of ksizes, strides and rates."""
    made = []
    for name in ("ksizes", "strides", "rates"):
        values = attrs[name]
        if len(values) != 4 or values[0] != 1 or values[3] != 1 or min(values) < 1:
            raise ValueError(f"{name} {values} must be [1, rows, columns, 1], 1 or more")
        made.append((values[1], values[2]))
    return tuple(made)  # type: ignore[return-value]


@op(
    "ExtractImagePatches(images: T) -> patches: T",
    ksizes="list(int) >= 4",
    strides="list(int) >= 4",
    rates="list(int) >= 4",
    T=(*REAL, *COMPLEX, bool_),
    padding="string in {SAME,VALID}",
)
class ExtractImagePatches:
    """[batch, rows, columns, ksize_rows * ksize_columns * depth]: each window of `images`, row by row."""

    def shape(self, s: ShapeContext, images: TensorShape) -> TensorShape:
        kernel, strides, rates = _spatial(s.attrs)
        n, *space, depth = images.with_rank(4).sizes  # type: ignore[misc]
        padding = s.attrs["padding"].decode()
        out = [
            None if d is None else output_size(d, k, st, r, padding)
            for d, k, st, r in zip(space, kernel, strides, rates)
        ]
        return TensorShape.of((n, *out, None if depth is None else depth * kernel[0] * kernel[1]))

    def compute(self, k: KernelContext, images: Any, out: Any) -> Any:
        kernel, strides, rates = _spatial(k.attrs)
        geometry = window(images.shape[1:3], kernel, strides, k.attrs["padding"].decode(), rates)
        n, depth = images.shape[0], images.shape[3]
        shape = (n, *geometry.output, kernel[0] * kernel[1] * depth)
        if out is None:
            out = k.xp.zeros(shape, k.dtype)
        else:
            out[...] = 0
        parts = out.reshape(n, *geometry.output, kernel[0] * kernel[1], depth)
        for tap, inputs, outputs in geometry.taps():
            parts[(slice(None), *outputs, tap)] = images[(slice(None), *inputs)]
        return out

    def gradient(self, op: Any, dy: Any) -> Any:
        # The same windows over the pixels' numbers (from 1, so that padding is 0) say where each element of
        # dy goes.
        attrs = {name: op.attrs[name] for name in ("ksizes", "strides", "rates", "padding")}
        n, rows, columns, depth = raw.Unpack(shape_of(op.inputs[0], int64), num=4)
        count = rows * columns
        one = np.array(1, np.int64)
        numbers = raw.Reshape(raw.Range(one, count + one, one), raw.Pack([one, rows, columns, one]))
        targets = raw.Reshape(raw.ExtractImagePatches(numbers, **attrs), [-1]) - one
        spread = raw.Reshape(dense(dy), raw.Pack([n, np.array(-1, np.int64), depth]))
        # Places first, then batch and depth.
        spread = raw.Reshape(raw.Transpose(spread, [1, 0, 2]), raw.Pack([np.array(-1, np.int64), n * depth]))
        summed = raw.UnsortedSegmentSum(spread, targets, count)
        made = raw.Reshape(summed, raw.Pack([rows, columns, n, depth]))
        return raw.Transpose(made, [2, 0, 1, 3])

    samples = [
        sample(
            normal(2, 5, 6, 3), ksizes=[1, 2, 3, 1], strides=[1, 2, 1, 1], rates=[1, 1, 1, 1], padding="VALID"
        ),
        sample(
            normal(1, 5, 5, 2), ksizes=[1, 3, 3, 1], strides=[1, 2, 2, 1], rates=[1, 1, 1, 1], padding="SAME"
        ),
        sample(
            normal(1, 7, 7, 1), ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 2, 3, 1], padding="VALID"
        ),
        sample(
            ints(1, 4, 4, 1), ksizes=[1, 2, 2, 1], strides=[1, 2, 2, 1], rates=[1, 1, 1, 1], padding="SAME"
        ),
    ]
