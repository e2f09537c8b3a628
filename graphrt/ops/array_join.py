"""Tensors put together and taken apart along an axis: Pack, Concat, Split, Tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.dtypes import int32
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.array_basic import INDEX_OR_INT32
from graphrt.ops.array_nodes import dense, int_constant, normal_axis, rank_of, shape_of, size_of
from graphrt.ops.broadcasting import cast_to


@op("Pack(values: N*T) -> output: T", axis="int = 0")
class Pack:
    """`values` side by side along a new dimension at `axis`."""

    def shape(self, s: ShapeContext, values: list[TensorShape]) -> TensorShape:
        one = values[0]
        for other in values[1:]:
            one = one.merge_with(other)
        if one.sizes is None:
            return UNKNOWN
        at = normal_axis(s.attrs["axis"], len(one.sizes) + 1)
        return TensorShape.of((*one.sizes[:at], len(values), *one.sizes[at:]))

    def compute(self, k: KernelContext, *values_and_out: Any) -> Any:
        *values, out = values_and_out
        first = values[0].shape
        at = normal_axis(k.attrs["axis"], len(first) + 1)
        if out is None:
            out = k.xp.empty((*first[:at], len(values), *first[at:]), k.dtype)
        before = (slice(None),) * at
        for i, value in enumerate(values):
            if value.shape != first:
                raise ValueError(
                    f"Shapes of all inputs must match: values[0].shape = {list(first)} != "
                    f"values[{i}].shape = "
                    f"{list(value.shape)}"
                )
            out[(*before, i, ...)] = value
        return out

    writes_out = True

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return raw.Unpack(dense(dy), num=len(op.inputs), axis=op.attrs["axis"], name="unstack")

    samples = [
        sample([normal(2, 3), normal(2, 3)]),
        sample([normal(2, 3), normal(2, 3)], axis=1),
        sample([normal(2), normal(2)], axis=-1),
        sample([normal(), normal(), normal()]),
        sample([empty(0)]),
        sample([text("a"), text("b")]),
    ]


@op("Unpack(value: T) -> output: num*T", num="int >= 0", axis="int = 0")
class Unpack:
    """The `num` slices of `value` along `axis`, without that dimension."""

    aliases = (0,)

    def shape(self, s: ShapeContext, value: TensorShape) -> list[TensorShape]:
        num = s.attrs["num"]
        if value.sizes is None:
            return [UNKNOWN] * num
        at = normal_axis(s.attrs["axis"], len(value.sizes))
        if value.sizes[at] not in (num, None):
            raise ValueError(f"{value} has {value.sizes[at]} slices along axis {at}, not num = {num}")
        return [TensorShape.of(value.sizes[:at] + value.sizes[at + 1 :])] * num

    def compute(self, k: KernelContext, value: Any) -> tuple[Any, ...]:
        num = k.attrs["num"]
        at = normal_axis(k.attrs["axis"], value.ndim)
        if value.shape[at] != num:
            raise ValueError(
                f"{list(value.shape)} has {value.shape[at]} slices along axis {at}, not num = {num}"
            )
        before = (slice(None),) * at
        return tuple([value[(*before, i, ...)] for i in range(num)])

    def gradient(self, op: Any, *grads: Tensor) -> Tensor:
        return raw.Pack([dense(g) for g in grads], axis=op.attrs["axis"], name="stack")

    samples = [
        sample(normal(2, 3), num=2),
        sample(normal(2, 3), num=3, axis=1),
        sample(normal(2, 3), num=3, axis=-1),
        sample(text("a", "b"), num=2),
        sample(normal(2, 0), num=2),
    ]


def _concatenated(values: list[TensorShape], axis: Any) -> TensorShape:
    known = next((v for v in values if v.sizes is not None), None)
    if known is None or known.rank is None:
        return UNKNOWN
    rank = known.rank
    for v in values:
        v.with_rank(rank)
    if rank == 0:
        raise ValueError("scalars cannot be concatenated: Pack (tf.stack) makes a vector of them")
    if axis is None:
        return unknown(rank)
    at = normal_axis(int(axis), rank)
    total: int | None = 0
    rest = UNKNOWN
    for v in values:
        size = v.sizes[at] if v.sizes is not None else None
        total = None if total is None or size is None else total + size
        if v.sizes is not None:
            try:
                rest = rest.merge_with(TensorShape.of((*v.sizes[:at], None, *v.sizes[at + 1 :])))
            except ValueError:
                shown = ", ".join(map(str, values))
                raise ValueError(
                    f"shapes {shown} differ in more than dimension {at}, along which they are concatenated"
                ) from None
    sizes = rest.sizes or ()
    return TensorShape.of((*sizes[:at], total, *sizes[at + 1 :]))


def _concatenate(k: KernelContext, values: list[Any], axis: Any, out: Any) -> Any:
    rank = values[0].ndim
    if rank == 0:
        raise ValueError("scalars cannot be concatenated: Pack (tf.stack) makes a vector of them")
    at = normal_axis(int(axis), rank)
    try:
        return k.xp.concatenate(values, at, out=out) if out is not None else k.xp.concatenate(values, at)
    except ValueError:
        raise ValueError(
            f"shapes {', '.join(str(list(v.shape)) for v in values)} differ in more than dimension "
            f"{at}, along "
            "which they are concatenated"
        ) from None


def _concat_gradient(dy: Any, values: list[Tensor], axis: Tensor) -> list[Any]:
    """Each of `values` its part of `dy`: of a dense one by Slice; of IndexedSlices by index, or slices of
    their values."""
    if len(values) == 1:
        return [dy]
    from_front = cast_to(axis, int32) % rank_of(values[0])
    if isinstance(dy, IndexedSlices):
        return _concat_slices_gradient(dy, values, from_front)
    known = all(v.shape.is_fully_defined() for v in values)
    shapes = [shape_of(v) for v in values] if known else raw.ShapeN(values)
    if len(shapes) > 16:
        # One SplitV instead of many slices.
        sizes = raw.Slice(
            raw.Pack(shapes, axis=1, name="stack"), raw.Pack([from_front, 0], name="Slice/begin"), [1, -1]
        )
        return raw.SplitV(dy, raw.Squeeze(sizes), from_front, num_split=len(values), name="split")
    offsets = raw.ConcatOffset(from_front, shapes)
    return [raw.Slice(dy, begin, size) for begin, size in zip(offsets, shapes)]


def _concat_slices_gradient(dy: IndexedSlices, values: list[Tensor], from_front: Tensor) -> list[Any]:
    at = constant_value(from_front)
    if at is None:
        raise ValueError(
            "the gradient of a concatenation is IndexedSlices: its axis must be known while the graph "
            "is built"
        )
    shapes = [shape_of(v) for v in values]
    made: list[Any] = []
    if int(at) > 0:
        start: Any = 0
        for shape in shapes:
            # Whole rows stay; of each the columns (or what `at` counts) of this input.
            rank = shape.shape.with_rank(1).sizes[0]  # type: ignore[index]
            if rank is None:
                raise ValueError(
                    "the gradient of a concatenation is IndexedSlices: the inputs' ranks must be known"
                )
            length = shape[int(at)]
            begin = (
                raw.Pack([start if i == int(at) else 0 for i in range(rank)])
                if isinstance(start, Tensor)
                else [0] * rank
            )
            size = raw.ConcatV2([[-1], raw.Slice(shape, [1], [-1])], 0)
            made.append(IndexedSlices(raw.Slice(dy.values, begin, size), dy.indices, shape))
            start = start + length
        return made
    kind = dy.indices.dtype.base_dtype
    start = int_constant(0, kind)
    for shape in shapes:
        end = start + cast_to(raw.GatherV2(shape, from_front, 0), kind)
        inside = raw.LogicalAnd(raw.GreaterEqual(dy.indices, start), raw.Less(dy.indices, end))
        chosen = raw.Squeeze(raw.Where(inside), squeeze_dims=[1])
        made.append(
            IndexedSlices(
                raw.GatherV2(dy.values, chosen, 0), raw.GatherV2(dy.indices, chosen, 0) - start, shape
            )
        )
        start = end
    return made


@op("ConcatV2(values: N*T, axis: Tidx) -> output: T", N="int >= 2", Tidx=INDEX_OR_INT32)
class ConcatV2:
    """`values` one after the other along `axis`."""

    host_inputs = (-1,)
    writes_out = True

    def shape(self, s: ShapeContext, values: list[TensorShape], axis: TensorShape) -> TensorShape:
        return _concatenated(values, s.value(len(values)))

    def compute(self, k: KernelContext, *arguments: Any) -> Any:
        *values, axis, out = arguments
        return _concatenate(k, values, axis, out)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [*_concat_gradient(dy, op.inputs[:-1], op.inputs[-1]), None]

    samples = [
        sample([normal(2, 3), normal(1, 3)], 0),
        sample([normal(2, 3), normal(2, 1)], -1),
        sample(
            [normal(2, 3), empty(2, 0)],
            np.int64(1),
            gradient=False,
            why="TensorFlow's gradient takes no int64 axis",
        ),
        sample([ints(2), ints(3), ints(1)], 0),
        sample([text("a"), text("b")], 0),
    ]


@op("Concat(concat_dim: int32, values: N*T) -> output: T", N="int >= 2")
class Concat:
    """`values` one after the other along `concat_dim`; older GraphDefs have it."""

    host_inputs = (0,)
    writes_out = True

    def shape(self, s: ShapeContext, concat_dim: TensorShape, values: list[TensorShape]) -> TensorShape:
        return _concatenated(values, s.value(0))

    def compute(self, k: KernelContext, concat_dim: Any, *values_and_out: Any) -> Any:
        *values, out = values_and_out
        return _concatenate(k, values, concat_dim, out)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [None, *_concat_gradient(dy, op.inputs[1:], op.inputs[0])]

    samples = [sample(0, [normal(2, 3), normal(1, 3)]), sample(1, [normal(2, 3), normal(2, 2)])]


@op("ParallelConcat(values: N*T) -> output: T", shape="shape")
class ParallelConcat:
    """`values`, each with a first dimension of size 1, one after the other; `shape` is the whole's."""

    writes_out = True

    def shape(self, s: ShapeContext, values: list[TensorShape]) -> TensorShape:
        whole = s.attrs["shape"]
        if not whole.is_fully_defined() or not whole.sizes:
            raise ValueError(f"shape {whole} must be known, of rank 1 or more")
        one = TensorShape.of((1, *whole.sizes[1:]))
        for value in values:
            one.merge_with(value)
        return whole

    def compute(self, k: KernelContext, *values_and_out: Any) -> Any:
        *values, out = values_and_out
        return _concatenate(k, values, 0, out)

    samples = [
        sample([normal(1, 3), normal(1, 3)], shape=[2, 3], tensorflow=False, why="TensorFlow rewrites it"),
        sample([ints(1)], shape=[1], tensorflow=False, why="TensorFlow rewrites it"),
    ]


@op(
    "ConcatOffset(concat_dim: int32, shape: N*shape_type) -> offset: N*shape_type",
    N="int >= 2",
    shape_type=INDEX_OR_INT32,
)
class ConcatOffset:
    """Where each of the tensors of shapes `shape` begins in their concatenation along `concat_dim`."""

    host_inputs = host_outputs = ALL
    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, concat_dim: TensorShape, shape: list[TensorShape]) -> list[TensorShape]:
        return shape

    def compute(self, k: KernelContext, concat_dim: Any, *shapes: Any) -> tuple[Any, ...]:
        at = normal_axis(int(concat_dim), len(shapes[0]), "concat_dim")
        made, offset = [], 0
        for i, shape in enumerate(shapes):
            if len(shape) != len(shapes[0]) or any(
                a != b for j, (a, b) in enumerate(zip(shape, shapes[0])) if j != at
            ):
                raise InvalidArgumentError(
                    None,
                    None,
                    f"All dimensions except {at} must match. Input {i} has shape "
                    f"{shape.tolist()} and doesn't match input 0 with shape {shapes[0].tolist()}.",
                )
            begin = np.zeros(len(shape), k.dtype)
            begin[at] = offset
            offset += int(shape[at])
            made.append(begin)
        return tuple(made)

    samples = [
        sample(
            1, [np.array([2, 2, 7], np.int32), np.array([2, 3, 7], np.int32), np.array([2, 9, 7], np.int32)]
        )
    ]


@op("Split(split_dim: int32, value: T) -> output: num_split*T")
class Split:
    """`value` cut into `num_split` equal parts along `split_dim`."""

    aliases = (1,)
    host_inputs = (0,)

    def shape(self, s: ShapeContext, split_dim: TensorShape, value: TensorShape) -> list[TensorShape]:
        num, axis = s.attrs["num_split"], s.value(0)
        if value.sizes is None:
            return [UNKNOWN] * num
        if axis is None:
            return [unknown(len(value.sizes))] * num
        at = normal_axis(int(axis), len(value.sizes), "split_dim")
        size = value.sizes[at]
        if size is not None and size % num:
            raise ValueError(
                f"dimension {at} of {value}, {size}, is not a multiple of num_split, {num}: give a "
                "list of sizes "
                "(SplitV)"
            )
        part = None if size is None else size // num
        return [TensorShape.of((*value.sizes[:at], part, *value.sizes[at + 1 :]))] * num

    def compute(self, k: KernelContext, split_dim: Any, value: Any) -> tuple[Any, ...]:
        num = k.attrs["num_split"]
        at = normal_axis(int(split_dim), value.ndim, "split_dim")
        size = value.shape[at]
        if size % num:
            raise ValueError(
                f"dimension {at} of {list(value.shape)}, {size}, is not a multiple of num_split, {num}"
            )
        part, before = size // num, (slice(None),) * at
        return tuple([value[(*before, slice(i * part, (i + 1) * part))] for i in range(num)])

    def gradient(self, op: Any, *grads: Tensor) -> list[Any]:
        return [None, _joined(grads, op.inputs[0])]

    samples = [
        sample(0, normal(4, 3), num_split=2),
        sample(-1, normal(2, 6), num_split=3),
        sample(1, empty(2, 0), num_split=2),
        sample(0, normal(3), num_split=1),
    ]


@op(
    "SplitV(value: T, size_splits: Tlen, split_dim: int32) -> output: num_split*T",
    num_split="int >= 1",
    Tlen="type in {int8,int32,int64} = int64",
)
class SplitV:
    """`value` cut along `split_dim` into parts of `size_splits`; one size may be -1: what is left."""

    aliases = (0,)
    host_inputs = (1, 2)

    def shape(
        self, s: ShapeContext, value: TensorShape, size_splits: TensorShape, split_dim: TensorShape
    ) -> list[TensorShape]:
        num, axis, sizes = s.attrs["num_split"], s.value(2), s.value(1)
        if value.sizes is None:
            return [UNKNOWN] * num
        if axis is None:
            return [unknown(len(value.sizes))] * num
        at = normal_axis(int(axis), len(value.sizes), "split_dim")
        if sizes is None:
            parts: list[int | None] = [None] * num
        elif value.sizes[at] is None:
            parts = [None if d < 0 else int(d) for d in sizes]
        else:
            parts = list(_part_sizes(sizes.tolist(), value.sizes[at], num))
        return [TensorShape.of((*value.sizes[:at], p, *value.sizes[at + 1 :])) for p in parts]

    def compute(self, k: KernelContext, value: Any, size_splits: Any, split_dim: Any) -> tuple[Any, ...]:
        at = normal_axis(int(split_dim), value.ndim, "split_dim")
        made, start, before = [], 0, (slice(None),) * at
        for size in _part_sizes(size_splits.tolist(), value.shape[at], k.attrs["num_split"]):
            made.append(value[(*before, slice(start, start + size))])
            start += size
        return tuple(made)

    def gradient(self, op: Any, *grads: Tensor) -> list[Any]:
        return [_joined(grads, op.inputs[2]), None, None]

    samples = [
        sample(normal(4, 3), np.array([1, 3]), 0, num_split=2),
        sample(normal(2, 6), [2, -1, 1], 1, num_split=3),
        sample(normal(3), [0, 3], -1, num_split=2),
        sample(normal(3), [3], 0, num_split=1),
    ]


def _joined(grads: tuple[Any, ...], axis: Tensor) -> Tensor:
    return (
        raw.ConcatV2([dense(g) for g in grads], axis, name="concat")
        if len(grads) > 1
        else raw.Identity(grads[0], name="concat")
    )


def _part_sizes(sizes: list[int], whole: int, num: int) -> list[int]:
    if len(sizes) != num:
        raise ValueError(f"size_splits {sizes} has {len(sizes)} sizes, not num_split = {num}")
    if sizes.count(-1) > 1 or any(d < -1 for d in sizes):
        raise ValueError(f"size_splits {sizes}: sizes are 0 or more, and one of them may be -1")
    if -1 in sizes:
        left = whole - sum(d for d in sizes if d >= 0)
        if left < 0:
            raise ValueError(f"size_splits {sizes} add up to more than the dimension, {whole}")
        return [left if d == -1 else d for d in sizes]
    if sum(sizes) != whole:
        raise ValueError(f"size_splits {sizes} add up to {sum(sizes)}, and the dimension is {whole}")
    return sizes


@op("Tile(input: T, multiples: Tmultiples) -> output: T", Tmultiples=INDEX_OR_INT32)
class Tile:
    """`input` repeated `multiples[i]` times along each dimension i."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, multiples: TensorShape) -> TensorShape:
        times = s.partial(1)
        rank = input.rank if times.rank is None else times.rank
        if rank is None:
            return UNKNOWN
        input = input.with_rank(rank)
        times = times.with_rank(rank)
        return TensorShape.of(
            tuple([None if d is None or m is None else d * m for d, m in zip(input.sizes, times.sizes)])
        )

    def compute(self, k: KernelContext, input: Any, multiples: Any, out: Any) -> Any:
        times, shape = multiples.tolist(), input.shape
        if len(times) != len(shape):
            raise ValueError(
                f"multiples {times} must have a number for each of the {len(shape)} dimensions of "
                f"{list(shape)}"
            )
        if any(m < 0 for m in times):
            raise ValueError(f"multiples {times} must be 0 or more")
        if out is None:
            out = k.xp.empty(tuple([d * m for d, m in zip(shape, times)]), k.dtype)
        # One broadcast assignment over (m0, d0, m1, d1, …).
        spread = tuple([n for pair in zip(times, shape) for n in pair])
        source = tuple([n for d in shape for n in (1, d)])
        out.reshape(spread)[...] = input.reshape(source)
        return out

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        # dy as (m0, d0, m1, d1, …), summed over the repeats.
        multiples = op.inputs[1]
        kind = multiples.dtype.base_dtype
        shape = shape_of(op.inputs[0], kind)
        pairs = raw.Reshape(
            raw.Transpose(raw.Pack([multiples, shape], name="stack"), [1, 0], name="transpose"), [-1]
        )
        axes = raw.Range(0, size_of(pairs), 2, name="range")
        made = raw.Sum(raw.Reshape(dense(dy), pairs), axes)
        made.set_shape(op.inputs[0].shape)
        return [made, None]

    samples = [
        sample(normal(2, 3), [2, 1]),
        sample(normal(3), np.array([4])),
        sample(normal(2, 3), [0, 2]),
        sample(normal(), np.array([], np.int32)),
        sample(normal(2, 1, 2), [1, 3, 2]),
    ]
