"""Blocks of pixels moved into depth or batch and back: SpaceToDepth, SpaceToBatchND and their inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.ops.array_basic import INDEX_OR_INT32
from graphrt.ops.array_nodes import dense

_FORMATS = "string in {NHWC,NCHW,NCHW_VECT_C} = 'NHWC'"


def _channels_last(attrs: dict[str, Any]) -> bool:
    if attrs["data_format"] == b"NCHW_VECT_C":
        raise ValueError(
            "data_format NCHW_VECT_C is for qint8 tensors on GPUs: NHWC and NCHW are what there is here"
        )
    return attrs["data_format"] == b"NHWC"


def _scaled(attrs: dict[str, Any], x: TensorShape, to_depth: bool) -> TensorShape:
    """The static shape of SpaceToDepth or DepthToSpace."""
    last = _channels_last(attrs)
    n, *rest = x.with_rank(4).sizes  # type: ignore[misc]
    (h, w, c), block = (rest if last else (rest[1], rest[2], rest[0])), attrs["block_size"]
    names = {"height": h, "width": w} if to_depth else {"depth": c}
    for name, size in names.items():
        by = block if to_depth else block * block
        if size is not None and size % by:
            raise ValueError(f"the {name} of {x}, {size}, is not a multiple of {by} (block_size is {block})")
    up = lambda d, by: None if d is None else d * by  # noqa: E731
    down = lambda d, by: None if d is None else d // by  # noqa: E731
    h, w, c = (
        (down(h, block), down(w, block), up(c, block * block))
        if to_depth
        else (up(h, block), up(w, block), down(c, block * block))
    )
    return TensorShape.of((n, h, w, c) if last else (n, c, h, w))


@op("SpaceToDepth(input: T) -> output: T", block_size="int >= 2", data_format=_FORMATS)
class SpaceToDepth:
    """Each block of block_size x block_size pixels as one pixel, with their channels one after the other."""

    # Where every moved size is 1 the result is a view.
    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return _scaled(s.attrs, input, to_depth=True)

    def compute(self, k: KernelContext, input: Any) -> Any:
        block = k.attrs["block_size"]
        shape = _scaled(k.attrs, TensorShape.of(input.shape), to_depth=True).sizes
        if _channels_last(k.attrs):
            n, h, w, c = input.shape
            parts = input.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
        else:
            n, c, h, w = input.shape
            parts = input.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
        return parts.reshape(shape)

    def gradient(self, op: Any, dy: Any) -> Any:
        return raw.DepthToSpace(
            dense(dy), block_size=op.attrs["block_size"], data_format=op.attrs["data_format"]
        )

    samples = [
        sample(normal(2, 4, 6, 3), block_size=2),
        sample(normal(1, 3, 3, 1), block_size=3),
        sample(
            normal(2, 3, 4, 6),
            block_size=2,
            data_format="NCHW",
            tensorflow=False,
            why="TensorFlow's CPU kernel takes NHWC only",
        ),
    ]


@op("DepthToSpace(input: T) -> output: T", block_size="int >= 2", data_format=_FORMATS)
class DepthToSpace:
    """Each pixel as a block of block_size x block_size pixels, which share out its channels."""

    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return _scaled(s.attrs, input, to_depth=False)

    def compute(self, k: KernelContext, input: Any) -> Any:
        block = k.attrs["block_size"]
        shape = _scaled(k.attrs, TensorShape.of(input.shape), to_depth=False).sizes
        if _channels_last(k.attrs):
            n, h, w, c = input.shape
            parts = input.reshape(n, h, w, block, block, c // block**2).transpose(0, 1, 3, 2, 4, 5)
        else:
            n, c, h, w = input.shape
            parts = input.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        return parts.reshape(shape)

    def gradient(self, op: Any, dy: Any) -> Any:
        return raw.SpaceToDepth(
            dense(dy), block_size=op.attrs["block_size"], data_format=op.attrs["data_format"]
        )

    samples = [
        sample(normal(2, 2, 3, 8), block_size=2),
        sample(normal(1, 1, 1, 9), block_size=3),
        sample(
            normal(2, 8, 2, 3),
            block_size=2,
            data_format="NCHW",
            tensorflow=False,
            why="TensorFlow's CPU kernel takes NHWC only",
        ),
    ]


def _batch_shape(
    input: TensorShape, block: list[int] | None, pads: list[list[int]] | None, m: int | None, to_batch: bool
) -> TensorShape:
    """The static shape of SpaceToBatchND or BatchToSpaceND; block and pads where they are known."""
    if input.sizes is None or m is None:
        return UNKNOWN
    input.with_rank_at_least(1 + m)
    if block is None:
        return TensorShape.of((*unknown(1 + m).sizes, *input.sizes[1 + m :]))  # type: ignore[misc]
    if any(b < 1 for b in block):
        raise ValueError(f"block_shape {block} must be 1 or more")
    n, product = input.sizes[0], math.prod(block)
    if to_batch:
        n = None if n is None else n * product
    elif n is not None:
        if n % product:
            raise ValueError(
                f"the batch of {input}, {n}, is not a multiple of {product}, the product of "
                f"block_shape {block}"
            )
        n //= product
    if pads is None:
        return TensorShape.of((n, *unknown(m).sizes, *input.sizes[1 + m :]))  # type: ignore[misc]
    if any(p < 0 for pair in pads for p in pair):
        raise ValueError(f"{'paddings' if to_batch else 'crops'} {pads} must be 0 or more")
    space: list[int | None] = []
    for i, (d, b, (before, after)) in enumerate(zip(input.sizes[1 : 1 + m], block, pads)):
        if d is None:
            space.append(None)
        elif to_batch:
            if (d + before + after) % b:
                raise ValueError(
                    f"dimension {1 + i} of {input}, padded to {d + before + after}, is not a multiple "
                    "of block_shape "
                    f"{b}"
                )
            space.append((d + before + after) // b)
        else:
            if d * b < before + after:
                raise ValueError(f"crops {pads[i]} are larger than dimension {1 + i}, {d * b}")
            space.append(d * b - before - after)
    return TensorShape.of((n, *space, *input.sizes[1 + m :]))


def _to_batch(xp: Any, input: Any, block: list[int], pads: list[list[int]]) -> Any:
    """SpaceToBatchND's value: batch is block offsets, then the old batch."""
    m = len(block)
    out_shape = _batch_shape(TensorShape.of(input.shape), block, pads, m, True).sizes
    rest = input.ndim - 1 - m
    padded = (
        xp.pad(input, [(0, 0), *map(tuple, pads), *[(0, 0)] * rest])
        if any(p for pair in pads for p in pair)
        else input
    )
    shape = [padded.shape[0]]
    for d, b in zip(padded.shape[1 : 1 + m], block):
        shape += [d // b, b]
    parts = padded.reshape(*shape, *padded.shape[1 + m :])
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, 2 * m + 1 + rest)]
    return parts.transpose(order).reshape(out_shape)


def _to_space(xp: Any, input: Any, block: list[int], crops: list[list[int]]) -> Any:
    """BatchToSpaceND's value."""
    m = len(block)
    _batch_shape(TensorShape.of(input.shape), block, crops, m, False)
    n = input.shape[0] // math.prod(block)
    space = input.shape[1 : 1 + m]
    parts = input.reshape(*block, n, *space, *input.shape[1 + m :])
    order = [m, *[a for i in range(m) for a in (m + 1 + i, i)], *range(2 * m + 1, parts.ndim)]
    whole = parts.transpose(order).reshape(n, *[d * b for d, b in zip(space, block)], *input.shape[1 + m :])
    return whole[(slice(None), *[slice(a, d * b - z) for d, b, (a, z) in zip(space, block, crops)])]


def _check_block(block_shape: Any, pads: Any, what: str) -> None:
    if block_shape.ndim != 1 or pads.shape != (block_shape.size, 2):
        raise ValueError(
            f"block_shape {list(block_shape.shape)} must be a vector and {what} {list(pads.shape)} of shape "
            "[its length, 2]"
        )


class _ByBlocks:
    """What SpaceToBatchND and BatchToSpaceND share."""

    aliases = (0,)
    host_inputs = (1, 2)
    to_batch = True

    def shape(
        self, s: ShapeContext, input: TensorShape, block_shape: TensorShape, pads: TensorShape
    ) -> TensorShape:
        block, value = s.value(1), s.value(2)
        return _batch_shape(
            input,
            None if block is None else block.tolist(),
            None if value is None else value.tolist(),
            block_shape.with_rank(1).sizes[0],
            self.to_batch,
        )  # type: ignore[index]

    def compute(self, k: KernelContext, input: Any, block_shape: Any, pads: Any) -> Any:
        _check_block(block_shape, pads, "paddings" if self.to_batch else "crops")
        return (_to_batch if self.to_batch else _to_space)(k.xp, input, block_shape.tolist(), pads.tolist())


@op(
    "SpaceToBatchND(input: T, block_shape: Tblock_shape, paddings: Tpaddings) -> output: T",
    Tblock_shape=INDEX_OR_INT32,
    Tpaddings=INDEX_OR_INT32,
)
class SpaceToBatchND(_ByBlocks):
    """`input`, padded, with the pixels of each block of `block_shape` spread over the batch."""

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.BatchToSpaceND(dense(dy), op.inputs[1], op.inputs[2]), None, None]

    samples = [
        sample(normal(2, 4, 6, 3), [2, 3], [[0, 0], [1, 2]]),
        sample(normal(1, 5, 2), np.array([3]), np.array([[1, 0]])),
        sample(normal(2, 4, 4, 1), [2, 2], [[1, 1], [0, 0]]),
    ]


@op(
    "BatchToSpaceND(input: T, block_shape: Tblock_shape, crops: Tcrops) -> output: T",
    Tblock_shape=INDEX_OR_INT32,
    Tcrops=INDEX_OR_INT32,
)
class BatchToSpaceND(_ByBlocks):
    """The inverse of SpaceToBatchND: the batch shared out over blocks of pixels, cropped."""

    to_batch = False

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.SpaceToBatchND(dense(dy), op.inputs[1], op.inputs[2]), None, None]

    samples = [
        sample(normal(12, 2, 3, 3), [2, 3], [[0, 0], [1, 2]]),
        sample(normal(3, 2, 2), np.array([3]), np.array([[1, 0]])),
    ]


@op(
    "SpaceToBatch(input: T, paddings: Tpaddings) -> output: T",
    Tpaddings=INDEX_OR_INT32,
    block_size="int >= 2",
)
class SpaceToBatch:
    """SpaceToBatchND of images with one block size; older GraphDefs have it."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, paddings: TensorShape) -> TensorShape:
        pads = s.value(1)
        return _batch_shape(
            input.with_rank(4), [s.attrs["block_size"]] * 2, None if pads is None else pads.tolist(), 2, True
        )

    def compute(self, k: KernelContext, input: Any, paddings: Any) -> Any:
        return _to_batch(k.xp, input, [k.attrs["block_size"]] * 2, paddings.tolist())

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.BatchToSpace(dense(dy), op.inputs[1], block_size=op.attrs["block_size"]), None]

    samples = [sample(normal(2, 4, 5, 3), [[0, 0], [1, 0]], block_size=2)]


@op("BatchToSpace(input: T, crops: Tidx) -> output: T", block_size="int >= 2", Tidx=INDEX_OR_INT32)
class BatchToSpace:
    """BatchToSpaceND of images with one block size; older GraphDefs have it."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, crops: TensorShape) -> TensorShape:
        value = s.value(1)
        return _batch_shape(
            input.with_rank(4),
            [s.attrs["block_size"]] * 2,
            None if value is None else value.tolist(),
            2,
            False,
        )

    def compute(self, k: KernelContext, input: Any, crops: Any) -> Any:
        return _to_space(k.xp, input, [k.attrs["block_size"]] * 2, crops.tolist())

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.SpaceToBatch(dense(dy), op.inputs[1], block_size=op.attrs["block_size"]), None]

    samples = [sample(normal(8, 2, 3, 3), [[0, 0], [1, 0]], block_size=2)]
