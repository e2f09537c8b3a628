"""Slices picked along an axis: Gather, GatherV2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.default_graph import get_default_graph
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.array_nodes import dense, normal_axis, shape_of, size_of
from graphrt.ops.broadcasting import cast_to

_INDEX = "type in {int32,int64}"
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def check_indices(xp: Any, indices: Any, size: int, what: str = "indices") -> None:
    """Raise InvalidArgumentError where an index is not in [0, size): the first one, with its place."""
    # Seen as unsigned a negative index is a large one, so one pass finds both ends.
    if indices.size and int(indices.view(UNSIGNED[indices.dtype.itemsize]).max()) >= size:
        bad = (indices < 0) | (indices >= size)
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        shown = f"[{','.join(map(str, place))}]" if place else ""
        raise InvalidArgumentError(None, None, f"{what}{shown} = {int(indices[place])} is not in [0, {size})")


def _gathered(params: TensorShape, indices: TensorShape, axis: int | None, batch_dims: int) -> TensorShape:
    if params.sizes is None or indices.sizes is None:
        return UNKNOWN
    rank = len(params.sizes)
    if rank == 0:
        raise ValueError("params is a scalar: it needs at least 1 dimension to pick from")
    b = normal_axis(batch_dims, len(indices.sizes) + (batch_dims >= 0), "batch_dims")
    if axis is None:
        return unknown(rank - 1 + len(indices.sizes) - b)
    at = normal_axis(axis, rank)
    if b > at:
        raise ValueError(f"batch_dims {b} must be at most axis {at}")
    TensorShape.of(params.sizes[:b]).merge_with(TensorShape.of(indices.sizes[:b]))
    return TensorShape.of(params.sizes[:at] + indices.sizes[b:] + params.sizes[at + 1 :])


@op(
    "Gather(params: Tparams, indices: Tindices) -> output: Tparams",
    validate_indices="bool = True",
    Tindices=_INDEX,
)
class Gather:
    """Slices of `params` along the first axis, at `indices`."""

    def shape(self, s: ShapeContext, params: TensorShape, indices: TensorShape) -> TensorShape:
        return _gathered(params, indices, 0, 0)

    def compute(self, k: KernelContext, params: Any, indices: Any, out: Any) -> Any:
        check_indices(k.xp, indices, params.shape[0])
        return _take(k.xp, params, indices, 0, out)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [_first_axis_gradient(op.inputs[0], op.inputs[1], dy), None]

    samples = [
        sample(normal(4, 3), [0, 3, 0]),
        sample(normal(4), np.array([[1, 2]])),
        sample(normal(4, 3), 2),
    ]


def _take(xp: Any, params: Any, indices: Any, axis: int, out: Any) -> Any:
    if params.shape[axis] == 0:
        # Nothing to pick from: np.take refuses to, also where no index asks.
        shape = params.shape[:axis] + indices.shape + params.shape[axis + 1 :]
        return xp.empty(shape, params.dtype) if out is None else out
    # Indices were checked: 'clip' spares NumPy its own check and a buffered output.
    made = params.take(indices, axis, out, "clip") if xp is np else params.take(indices, axis, out)
    return (
        made
        if isinstance(made, (np.ndarray, np.generic)) or xp is not np
        else np.array(made, dtype=params.dtype)
    )


def _first_axis_gradient(params: Tensor, indices: Tensor, dy: Any) -> IndexedSlices:
    with get_default_graph().colocate_with(params.op):
        shape = shape_of(params)
    count = raw.ExpandDims(size_of(indices), 0)
    values = raw.Reshape(dense(dy), raw.ConcatV2([count, shape[1:]], 0, name="concat"))
    return IndexedSlices(values, raw.Reshape(indices, count), shape)


@op(
    "GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> output: Tparams",
    batch_dims="int = 0",
    Tindices="type in {int16,int32,int64}",
    Taxis=_INDEX,
)
class GatherV2:
    """Slices of `params` along `axis`, at `indices`; the first `batch_dims` dimensions of both belong
    together."""

    host_inputs = (2,)

    def shape(
        self, s: ShapeContext, params: TensorShape, indices: TensorShape, axis: TensorShape
    ) -> TensorShape:
        value = s.value(2)
        return _gathered(params, indices, None if value is None else int(value), s.attrs["batch_dims"])

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, batch_dims = k.xp, k.attrs["batch_dims"]

        def gather(params: Any, indices: Any, axis: Any, out: Any) -> Any:
            at = normal_axis(int(axis), params.ndim)
            check_indices(xp, indices, params.shape[at])
            return _take(xp, params, indices, at, out)

        def batched(params: Any, indices: Any, axis: Any, out: Any) -> Any:
            at = normal_axis(int(axis), params.ndim)
            b = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
            if params.shape[:b] != indices.shape[:b]:
                raise ValueError(
                    f"the first {b} sizes of params {list(params.shape)} and indices "
                    f"{list(indices.shape)} must be "
                    "equal: they are batch dimensions"
                )
            check_indices(xp, indices, params.shape[at])
            grid = [
                xp.arange(n).reshape((n,) + (1,) * (indices.ndim - i - 1))
                for i, n in enumerate(indices.shape[:b])
            ]
            made = xp.moveaxis(params, at, b)[(*grid, indices)]
            # Now batch, indices, then what stood between batch and axis: that goes back before the indices.
            between, n = at - b, indices.ndim - b
            made = xp.moveaxis(made, range(b + n, b + n + between), range(b, b + between))
            if out is None:
                return made
            out[...] = made
            return out

        return batched if batch_dims else gather

    writes_out = True

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        params, indices, axis = op.inputs
        batch_dims = op.attrs["batch_dims"]
        at = constant_value(axis)
        if at is not None and int(at) == 0 and batch_dims == 0:
            return [_first_axis_gradient(params, indices, dy), None, None]
        return [_axis_gradient(params, indices, axis, batch_dims, dense(dy)), None, None]

    samples = [
        sample(normal(4, 3), [0, 3, 0], 0),
        sample(normal(4, 3), [[2, 0], [1, 1]], 1),
        sample(normal(2, 3, 4), [1], -1),
        sample(normal(2, 3), [[0, 2], [1, 1]], 1, batch_dims=1),
        sample(normal(2, 3, 4, 2), [[0, 2, 1], [1, 1, 3]], 2, batch_dims=1),
        sample(normal(4), 3, 0),
        sample(text("a", "b"), [1], 0),
        sample(normal(4, 3), np.array([], np.int64), 0),
        sample(empty(0, 3), np.array([], np.int32), 0),
        sample(ints(3, 2), np.array([2]), 0),
    ]


def _axis_gradient(params: Tensor, indices: Tensor, axis: Tensor, batch_dims: int, dy: Tensor) -> Tensor:
    """The dense gradient of a gather along `axis`: dy with that axis behind the batch, added up there."""
    if batch_dims < 0:
        if indices.shape.rank is None:
            raise ValueError("the gradient of negative batch_dims needs the rank of the indices")
        batch_dims += indices.shape.rank
    with get_default_graph().colocate_with(params.op):
        shape = shape_of(params)
    # Nothing needs it, but TensorFlow makes it too, and random seeds count nodes.
    raw.ExpandDims(size_of(indices), 0)
    outer, inner = shape[:axis], shape[axis:][1:]
    values_shape = raw.ConcatV2([outer, [-1], inner], 0, name="concat")
    rank, at = size_of(values_shape), size_of(outer)
    batch = raw.Range(0, batch_dims, 1, name="range")
    between = raw.Range(batch_dims, at, 1, name="range")
    behind = raw.Range(at + 1, rank, 1, name="range")
    values = raw.Reshape(dy, values_shape)
    to_front = raw.ConcatV2([batch, [at], between, behind], 0, name="concat")
    values = raw.Transpose(values, to_front, name="transpose")
    front_shape = raw.GatherV2(shape, to_front, 0)
    summed = _batch_sum(values, indices, batch_dims, front_shape, shape[axis])
    back = raw.ConcatV2([batch, between + 1, [batch_dims], behind], 0, name="concat")
    return raw.Reshape(raw.Transpose(summed, back, name="transpose"), shape_of(params))


def _batch_sum(values: Tensor, indices: Tensor, batch_dims: int, shape: Tensor, size: Tensor) -> Tensor:
    """`values`, batch + [n] + rest, added up at `indices` in zeros of `shape`, batch + [size] + rest."""
    count = raw.ExpandDims(size_of(indices), 0)
    if not batch_dims:
        return raw.UnsortedSegmentSum(values, raw.Reshape(indices, count), size)
    # One long axis: the indices of batch element j begin at j * size.
    kind = indices.dtype.base_dtype
    batches = raw.Prod(shape[:batch_dims], [0])
    offsets = cast_to(raw.Range(0, batches, 1, name="range") * size, kind)
    rows = raw.Reshape(indices, raw.Pack([batches, -1])) + raw.ExpandDims(offsets, 1)
    flat = raw.Reshape(values, raw.ConcatV2([[-1], shape[batch_dims + 1 :]], 0, name="concat"))
    summed = raw.UnsortedSegmentSum(flat, raw.Reshape(rows, count), size * batches)
    return raw.Reshape(summed, shape)
