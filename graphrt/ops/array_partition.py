"""Tensors distributed and joined by index: DynamicPartition, DynamicStitch; Where and OneHot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS, bool_, int32
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.signature import Attr
from graphrt.ops.array_gather import UNSIGNED, check_indices
from graphrt.ops.array_nodes import dense, int_constant, normal_axis, shape_of
from graphrt.ops.broadcasting import cast_to


@op("DynamicPartition(data: T, partitions: int32) -> outputs: num_partitions*T")
class DynamicPartition:
    """The slices of `data` in `num_partitions` tensors: each goes where `partitions` says, in order."""

    def shape(self, s: ShapeContext, data: TensorShape, partitions: TensorShape) -> list[TensorShape]:
        num = s.attrs["num_partitions"]
        if partitions.sizes is None or data.sizes is None:
            return [UNKNOWN] * num
        rank = len(partitions.sizes)
        if not TensorShape.of(data.with_rank_at_least(rank).sizes[:rank]).is_compatible_with(partitions):  # type: ignore[index]
            raise ValueError(f"data {data} must begin with the shape of partitions, {partitions}")
        return [TensorShape.of((None, *data.sizes[rank:]))] * num

    def compute(self, k: KernelContext, data: Any, partitions: Any) -> tuple[Any, ...]:
        num, rank = k.attrs["num_partitions"], partitions.ndim
        if data.shape[:rank] != partitions.shape:
            raise ValueError(
                f"data {list(data.shape)} must begin with the shape of partitions, {list(partitions.shape)}"
            )
        check_indices(k.xp, partitions, num, "partitions")
        flat = partitions.reshape(-1)
        rows = data.reshape(flat.size, *data.shape[rank:])
        return tuple([rows[flat == i] for i in range(num)])

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        data, partitions = op.inputs
        prefix = shape_of(partitions)
        count = raw.Prod(prefix, int_constant([0]))
        places = raw.Reshape(raw.Range(0, count, 1, name="range"), prefix)
        parts = raw.DynamicPartition(places, partitions, num_partitions=op.attrs["num_partitions"])
        made = raw.ParallelDynamicStitch(parts, [dense(g) for g in grads])
        return [raw.Reshape(made, shape_of(data)), None]

    samples = [
        sample(normal(5), [0, 1, 0, 2, 1], num_partitions=3),
        sample(normal(3, 2), [1, 1, 0], num_partitions=2),
        sample(normal(2, 2, 3), [[0, 1], [1, 1]], num_partitions=2),
        sample(empty(0), np.array([], np.int32), num_partitions=2),
        sample(normal(), 1, num_partitions=2),
        sample(text("a", "b"), [1, 0], num_partitions=2),
    ]


class _Stitching:
    """What DynamicStitch and ParallelDynamicStitch share."""

    def shape(self, s: ShapeContext, indices: list[TensorShape], data: list[TensorShape]) -> TensorShape:
        rest, largest = UNKNOWN, 0
        for i, (index, values) in enumerate(zip(indices, data)):
            value = s.value(i)
            if value is None:
                largest = None  # type: ignore[assignment]
            elif largest is not None and value.size:
                largest = max(largest, int(value.max()) + 1)
            if index.sizes is not None and values.sizes is not None:
                rank = len(index.sizes)
                if not TensorShape.of(values.with_rank_at_least(rank).sizes[:rank]).is_compatible_with(index):  # type: ignore[index]
                    raise ValueError(f"data[{i}] {values} must begin with the shape of indices[{i}], {index}")
                rest = rest.merge_with(TensorShape.of(values.sizes[rank:]))
        return TensorShape.of((largest,)).concatenate(rest)

    def compute(self, k: KernelContext, *inputs: Any) -> Any:
        n = len(inputs) // 2
        indices, data = inputs[:n], inputs[n:]
        size = max([int(i.max()) + 1 for i in indices if i.size], default=0)
        rest = data[0].shape[indices[0].ndim :]
        # Rows that no index names are zeros.
        made = k.xp.zeros((size, *rest), k.dtype)
        if k.output_dtypes[0].is_object:
            made[...] = b""
        for i, (index, values) in enumerate(zip(indices, data)):
            if values.shape != index.shape + rest:
                raise ValueError(
                    f"data[{i}] has shape {list(values.shape)}: indices[{i}] {list(index.shape)} ask for "
                    f"{list(index.shape + rest)}"
                )
            if index.size and int(index.min()) < 0:
                check_indices(k.xp, index, size, f"indices[{i}]")
            made[index.reshape(-1)] = values.reshape((index.size, *rest))
        return made

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        n = len(op.inputs) // 2
        dy = dense(dy)
        return [None] * n + [raw.GatherV2(dy, cast_to(i, int32), 0) for i in op.inputs[:n]]

    samples = [
        sample([np.array(2, np.int32), np.array([0, 3], np.int32)], [normal(), normal(2)]),
        sample([np.array([0, 1], np.int32), np.array([2], np.int32)], [normal(2, 2), normal(1, 2)]),
        sample([np.array([[1, 0]], np.int32)], [normal(1, 2, 3)]),
        sample([np.array([], np.int32), np.array([0], np.int32)], [empty(0, 2), normal(1, 2)]),
    ]


@op("DynamicStitch(indices: N*int32, data: N*T) -> merged: T")
class DynamicStitch(_Stitching):
    """One tensor of the slices of `data`: each goes to the row that `indices` says; a later one wins."""

    samples = [
        *_Stitching.samples,
        sample(
            [np.array([0, 1], np.int32), np.array([1], np.int32)],
            [normal(2), normal(1)],
            gradient=False,
            why="the later slice wins",
        ),
    ]


@op("ParallelDynamicStitch(indices: N*int32, data: N*T) -> merged: T")
class ParallelDynamicStitch(_Stitching):
    """DynamicStitch where no two indices are the same."""


@op("Where(input: T) -> index: int64", T=Attr("T", "type", allowed=(*NUMBERS, bool_), default=bool_))
class Where:
    """The coordinates, [n, rank], of the elements that are not 0 (False)."""

    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return TensorShape.of((None, input.rank))

    def compute(self, k: KernelContext, input: Any) -> Any:
        return k.xp.ascontiguousarray(k.xp.argwhere(input)).astype(np.int64, copy=False)

    samples = [
        sample(bools(3, 4)),
        sample(ints(5, low=0, high=2)),
        sample(np.array([0.0, -1.0, np.nan], np.float32)),
        sample(np.zeros((0, 2), bool)),
    ]


@op(
    "OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> output: T",
    axis="int = -1",
    TI="type in {uint8,int8,int32,int64} = int64",
)
class OneHot:
    """`off_value` everywhere but at each of `indices` along a new `axis` of size `depth`, where it is
    `on_value`."""

    host_inputs = (1,)
    not_differentiable = True

    def shape(
        self,
        s: ShapeContext,
        indices: TensorShape,
        depth: TensorShape,
        on_value: TensorShape,
        off_value: TensorShape,
    ) -> TensorShape:
        for shape in (depth, on_value, off_value):
            shape.with_rank(0)
        if indices.sizes is None:
            return UNKNOWN
        n = s.value(1)
        if n is not None and n < 0:
            raise ValueError(f"depth {int(n)} must be 0 or more")
        at = self._axis(s.attrs["axis"], len(indices.sizes))
        return TensorShape.of((*indices.sizes[:at], None if n is None else int(n), *indices.sizes[at:]))

    @staticmethod
    def _axis(axis: int, rank: int) -> int:
        if axis < -1:
            raise ValueError(f"axis {axis} must be -1 or in [0, {rank}]")
        return normal_axis(axis, rank + 1)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, dtype, axis = k.xp, k.dtype, k.attrs["axis"]

        def one_hot(indices: Any, depth: Any, on_value: Any, off_value: Any, out: Any) -> Any:
            n, shape = int(depth), indices.shape
            if n < 0:
                raise InvalidArgumentError(None, None, f"depth must be non-negative, got: {n}")
            at = OneHot.impl._axis(axis, len(shape))
            if out is None:
                out = xp.empty((*shape[:at], n, *shape[at:]), dtype)
            out[...] = off_value
            flat, behind = indices.reshape(-1), math.prod(shape[at:])
            place = xp.arange(flat.size)
            if flat.size and int(flat.view(UNSIGNED[flat.dtype.itemsize]).max()) >= n:
                # An index outside [0, depth) leaves its row off.
                place = xp.nonzero((flat >= 0) & (flat < n))[0]
                flat = flat[place]
            if behind == 1:
                hot = place * n + flat
            else:
                hot = (place // behind * n + flat) * behind + place % behind
            out.reshape(-1)[hot] = on_value
            return out

        return one_hot

    writes_out = True
    samples = [
        sample([0, 2, -1, 5], 3, np.float32(1), np.float32(0)),
        sample([[0, 2], [1, 1]], 3, np.float32(5), np.float32(-1), axis=1),
        sample(np.array([0, 1], np.uint8), 2, 1, 0, axis=0),
        sample(1, 3, np.float32(1), np.float32(0)),
        sample(np.zeros((0,), np.int32), 3, np.float32(1), np.float32(0)),
        sample([1], 0, np.float32(1), np.float32(0)),
        sample([1, 0], 2, text("on").reshape(()), text("off").reshape(())),
    ]
