"""Borders: Pad with a constant, MirrorPad with what is inside, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.array_basic import INDEX_OR_INT32
from graphrt.ops.array_nodes import dense, rank_of, shape_of


def _rank(input: TensorShape, paddings: TensorShape) -> tuple[TensorShape, int | None]:
    """`input` and its rank, which the shape of `paddings`, [rank, 2], says too."""
    rows, columns = paddings.with_rank(2).sizes  # type: ignore[misc]
    if columns not in (2, None):
        raise ValueError(f"paddings of shape {paddings} must have 2 columns: before and after")
    rank = input.rank if rows is None else rows
    return (input if rank is None else input.with_rank(rank)), rank


def _grown(s: ShapeContext, input: TensorShape, paddings: TensorShape, sign: int = 1) -> TensorShape:
    input, rank = _rank(input, paddings)
    if rank is None:
        return UNKNOWN
    value = s.value(1)
    if value is None:
        return unknown(rank)
    pairs = value.tolist()
    if any(p < 0 for pair in pairs for p in pair):
        raise ValueError(f"paddings {pairs} must be 0 or more")
    sizes = [None if d is None else d + sign * (a + b) for d, (a, b) in zip(input.sizes, pairs)]  # type: ignore[arg-type]
    if any(d is not None and d < 0 for d in sizes):
        raise ValueError(f"paddings {pairs} are larger than {input}")
    return TensorShape.of(tuple(sizes))


def _pairs(array: Any, paddings: Any) -> list[list[int]]:
    pairs = paddings.tolist()
    if paddings.shape != (array.ndim, 2):
        raise ValueError(
            f"paddings of shape {list(paddings.shape)} must be [{array.ndim}, 2], a row for each "
            "dimension of "
            f"{list(array.shape)}"
        )
    if any(p < 0 for pair in pairs for p in pair):
        raise ValueError(f"paddings {pairs} must be 0 or more")
    return pairs


def _padded(k: KernelContext, input: Any, paddings: Any, fill: Any, out: Any) -> Any:
    pairs = _pairs(input, paddings)
    if out is None:
        out = k.xp.empty(tuple([d + a + b for d, (a, b) in zip(input.shape, pairs)]), k.dtype)
    out[(*[slice(a, a + d) for d, (a, _) in zip(input.shape, pairs)], ...)] = input
    for axis, (before, after) in enumerate(pairs):
        # The two bands of this axis, as wide as the input in the axes that are still to come.
        inside = [slice(None)] * axis
        rest = [slice(a, a + d) for d, (a, _) in zip(input.shape[axis + 1 :], pairs[axis + 1 :])]
        if before:
            out[(*inside, slice(0, before), *rest)] = fill
        if after:
            out[(*inside, slice(out.shape[axis] - after, None), *rest)] = fill
    return out


def _inside(op: Any, dy: Any) -> Tensor:
    """The part of `dy` that the input became."""
    x, paddings = op.inputs[0], op.inputs[1]
    before = raw.Slice(paddings, [0, 0], convert_to_tensor([rank_of(x), 1], name="stack"))
    begin = raw.Reshape(before, [-1])
    return raw.Slice(dense(dy), begin, shape_of(x, begin.dtype.base_dtype))


@op("Pad(input: T, paddings: Tpaddings) -> output: T", Tpaddings=INDEX_OR_INT32)
class Pad:
    """`input` with `paddings[i, 0]` zeros before and `paddings[i, 1]` after it along each dimension i."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, paddings: TensorShape) -> TensorShape:
        return _grown(s, input, paddings)

    def compute(self, k: KernelContext, input: Any, paddings: Any, out: Any) -> Any:
        return _padded(k, input, paddings, b"" if k.output_dtypes[0].is_object else 0, out)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [_inside(op, dy), None]

    samples = [
        sample(normal(2, 3), [[1, 2], [0, 1]]),
        sample(normal(2, 2, 2), np.array([[0, 0], [1, 0], [2, 2]])),
        sample(normal(), np.zeros((0, 2), np.int32)),
        sample(empty(0, 2), [[1, 0], [0, 1]]),
        sample(text("a"), [[1, 1]]),
    ]


@op("PadV2(input: T, paddings: Tpaddings, constant_values: T) -> output: T", Tpaddings=INDEX_OR_INT32)
class PadV2:
    """`input` with `paddings[i, 0]` times `constant_values` before and `paddings[i, 1]` times after it."""

    host_inputs = (1,)

    def shape(
        self, s: ShapeContext, input: TensorShape, paddings: TensorShape, constant_values: TensorShape
    ) -> TensorShape:
        constant_values.with_rank(0)
        return _grown(s, input, paddings)

    def compute(self, k: KernelContext, input: Any, paddings: Any, constant_values: Any, out: Any) -> Any:
        return _padded(k, input, paddings, constant_values, out)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [_inside(op, dy), None, None]

    samples = [sample(normal(2, 3), [[1, 2], [0, 1]], np.float32(7)), sample(ints(3), np.array([[2, 0]]), 5)]


_OFFSETS = {b"REFLECT": 1, b"SYMMETRIC": 0}


def _check_mirror(size: int, pair: list[int], offset: int, axis: int) -> None:
    if max(pair) > size - offset:
        why = "the border itself is not repeated in mode REFLECT" if offset else "mode SYMMETRIC"
        raise ValueError(
            f"paddings {pair} of dimension {axis} must be at most {size - offset}, its size being "
            f"{size} ({why})"
        )


@op(
    "MirrorPad(input: T, paddings: Tpaddings) -> output: T",
    Tpaddings=INDEX_OR_INT32,
    mode="string in {REFLECT,SYMMETRIC}",
)
class MirrorPad:
    """`input` with borders that mirror it: without its edge (REFLECT), or with it (SYMMETRIC)."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, paddings: TensorShape) -> TensorShape:
        return _grown(s, input, paddings)

    def compute(self, k: KernelContext, input: Any, paddings: Any) -> Any:
        xp, offset, made = k.xp, _OFFSETS[k.attrs["mode"]], input
        for axis, pair in enumerate(_pairs(input, paddings)):
            before, after = pair
            if before or after:
                size = input.shape[axis]
                _check_mirror(size, pair, offset, axis)
                places = np.concatenate(
                    [
                        np.arange(before, 0, -1) - 1 + offset,
                        np.arange(size),
                        np.arange(size - 1, size - 1 - after, -1) - offset,
                    ]
                )
                made = xp.take(made, xp.asarray(places), axis)
        return made if made is not input else input.copy()

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.MirrorPadGrad(dense(dy), op.inputs[1], mode=op.attrs["mode"]), None]

    samples = [
        sample(normal(3, 4), [[1, 2], [3, 0]], mode="REFLECT"),
        sample(normal(2, 3), np.array([[2, 1], [0, 3]]), mode="SYMMETRIC"),
        sample(normal(2), [[0, 0]], mode="REFLECT"),
    ]


@op(
    "MirrorPadGrad(input: T, paddings: Tpaddings) -> output: T",
    Tpaddings=INDEX_OR_INT32,
    mode="string in {REFLECT,SYMMETRIC}",
)
class MirrorPadGrad:
    """`input` without its borders, which are added to what they mirrored."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, paddings: TensorShape) -> TensorShape:
        return _grown(s, input, paddings, sign=-1)

    def compute(self, k: KernelContext, input: Any, paddings: Any) -> Any:
        offset, made = _OFFSETS[k.attrs["mode"]], input.copy()
        for axis, pair in enumerate(_pairs(input, paddings)):
            before, after = pair
            size = made.shape[axis] - before - after
            _check_mirror(size, pair, offset, axis)
            at = (slice(None),) * axis
            inside = made[(*at, slice(before, before + size))]
            inside[(*at, slice(offset, offset + before))] += made[(*at, slice(0, before))][
                (*at, slice(None, None, -1))
            ]
            inside[(*at, slice(size - offset - after, size - offset))] += made[
                (*at, slice(before + size, None))
            ][(*at, slice(None, None, -1))]
            made = inside
        return k.xp.ascontiguousarray(made)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.MirrorPad(dense(dy), op.inputs[1], mode=op.attrs["mode"]), None]

    samples = [
        sample(normal(6, 7), [[1, 2], [3, 0]], mode="REFLECT"),
        sample(normal(5, 6), np.array([[2, 1], [0, 3]]), mode="SYMMETRIC"),
    ]
