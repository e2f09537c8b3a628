"""Elements and slices at places of several dimensions: GatherNd, ScatterNd, TensorScatter.

`indices` has shape [..., k]: each row names a place in the first k dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS, bool_
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import IndexedSlices
from graphrt.ops.array_gather import UNSIGNED
from graphrt.ops.array_nodes import dense, shape_of, zeros_of

_POLICY = "string = ''"
_POLICIES = (b"", b"DEFAULT", b"ERROR", b"IGNORE")


def _ignores(attrs: dict[str, Any]) -> bool:
    policy = attrs["bad_indices_policy"]
    if policy not in _POLICIES:
        raise ValueError(f"bad_indices_policy {policy.decode()!r} is not one of '', DEFAULT, ERROR, IGNORE")
    return policy == b"IGNORE"


def _depth(indices: Any, rank: int, of: Any) -> int:
    """k, the length of the rows of `indices`."""
    if indices.ndim < 1:
        raise ValueError("indices must have at least 1 dimension: its last one is a place")
    k = indices.shape[-1]
    if k > rank:
        raise ValueError(f"indices name places in {k} dimensions, and {list(of)} has {rank}")
    return k


def _flat_places(xp: Any, indices: Any, sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """The row of each place in a tensor whose first dimensions `sizes` are one, and a mask of the places
    that are outside (None where there are none)."""
    rows = indices.reshape((math.prod(indices.shape[:-1]), len(sizes)))
    flat = outside = None
    for i, size in enumerate(sizes):
        column = rows[:, i]
        # Seen as unsigned a negative index is a large one.
        unsigned = column.view(UNSIGNED[column.dtype.itemsize])
        if unsigned.size and int(unsigned.max()) >= size:
            bad = unsigned >= size
            outside = bad if outside is None else outside | bad
        flat = column.astype(np.int64) if flat is None else flat * size + column
    return xp.zeros(len(rows), np.int64) if flat is None else flat, outside


def _outside(indices: Any, outside: Any, shape: Any, what: str = "indices") -> InvalidArgumentError:
    row = int(outside.argmax())
    place = np.unravel_index(row, indices.shape[:-1]) if indices.ndim > 1 else ()
    shown = ",".join(map(str, place))
    bad = indices.reshape(-1, indices.shape[-1])[row].tolist()
    return InvalidArgumentError(
        None, None, f"{what}[{shown}] = {bad} does not index into shape {list(shape)}"
    )


@op(
    "GatherNd(params: Tparams, indices: Tindices) -> output: Tparams",
    Tindices="type in {int16,int32,int64}",
    bad_indices_policy=_POLICY,
)
class GatherNd:
    """The elements or slices of `params` at the places `indices`."""

    def shape(self, s: ShapeContext, params: TensorShape, indices: TensorShape) -> TensorShape:
        if params.sizes is None or not indices.with_rank_at_least(1).sizes or indices.sizes[-1] is None:  # type: ignore[index]
            return UNKNOWN
        k = indices.sizes[-1]  # type: ignore[index]
        if k > len(params.sizes):
            raise ValueError(
                f"indices {indices} name places in {k} dimensions, and params {params} has "
                f"{len(params.sizes)}"
            )
        return TensorShape.of(indices.sizes[:-1] + params.sizes[k:])  # type: ignore[index]

    def compute(self, k: KernelContext, params: Any, indices: Any) -> Any:
        depth = _depth(indices, params.ndim, params.shape)
        sizes, rest = params.shape[:depth], params.shape[depth:]
        flat, outside = _flat_places(k.xp, indices, sizes)
        if outside is not None:
            if not _ignores(k.attrs):
                raise _outside(indices, outside, params.shape)
            flat = k.xp.where(outside, 0, flat)
        rows = params.reshape((math.prod(sizes), *rest))
        if not len(rows):
            return k.xp.empty((*indices.shape[:-1], *rest), k.dtype)
        made = rows.take(flat, 0)
        if outside is not None:
            made[outside] = b"" if k.output_dtypes[0].is_object else 0
        return made.reshape(indices.shape[:-1] + rest)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        params, indices = op.inputs
        shape = shape_of(params, indices.dtype.base_dtype)
        if indices.shape.rank == 2 and indices.shape.sizes[1] == 1:
            return [IndexedSlices(dense(dy), raw.Squeeze(indices, squeeze_dims=[-1]), shape), None]
        return [
            raw.ScatterNd(indices, dense(dy), shape, bad_indices_policy=op.attrs["bad_indices_policy"]),
            None,
        ]

    samples = [
        sample(normal(3, 4), [[0, 1], [2, 3]]),
        sample(normal(3, 4), [[2], [0]]),
        sample(normal(3, 4), [[[1, 1]], [[0, 2]]]),
        sample(normal(2, 3, 2), np.array([[1, 0], [1, 0]])),
        sample(normal(3), [2], gradient=False, why="TensorFlow's gradient wants rows"),
        sample(normal(3, 2), [[0, 5], [1, 1]], bad_indices_policy="IGNORE"),
        sample(text("a", "b"), [[1]]),
        sample(
            normal(2, 3), np.zeros((2, 0), np.int32), gradient=False, why="places of no dimension: all of it"
        ),
        sample(normal(3), np.zeros((0, 1), np.int32)),
    ]


def _scattered_shape(indices: TensorShape, updates: TensorShape, into: TensorShape) -> TensorShape:
    """`into`, having checked that updates = indices without their last dimension + what `into` has behind
    the places."""
    if (
        indices.sizes
        and indices.sizes[-1] is not None
        and into.sizes is not None
        and updates.sizes is not None
    ):
        k = indices.sizes[-1]
        if k > len(into.sizes):
            raise ValueError(
                f"indices {indices} name places in {k} dimensions, and {into} has {len(into.sizes)}"
            )
        wanted = TensorShape.of(indices.sizes[:-1] + into.sizes[k:])
        if not updates.is_compatible_with(wanted):
            raise ValueError(
                f"updates of shape {updates} must be {wanted}: indices {indices} name slices of {into}"
            )
    return into


def _scatter(k: KernelContext, made: Any, indices: Any, updates: Any, how: str) -> Any:
    """`updates` put into, added to, … the array `made` at `indices`. Returns `made`."""
    xp = k.xp
    depth = _depth(indices, made.ndim, made.shape)
    sizes, rest = made.shape[:depth], made.shape[depth:]
    if updates.shape != indices.shape[:-1] + rest:
        raise ValueError(
            f"updates of shape {list(updates.shape)} must be {list(indices.shape[:-1] + rest)}: indices "
            f"{list(indices.shape)} name slices of {list(made.shape)}"
        )
    flat, outside = _flat_places(xp, indices, sizes)
    values = updates.reshape((flat.size, *rest))
    if outside is not None:
        if not _ignores(k.attrs):
            raise _outside(indices, outside, made.shape)
        flat, values = flat[~outside], values[~outside]
    if not flat.size:
        return made
    rows = made.reshape((math.prod(sizes), *rest))
    if how == "assign":
        rows[flat] = values
    else:
        getattr(xp, how).at(rows, flat, values)
    return made


@op(
    "ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> output: T",
    Tindices="type in {int16,int32,int64}",
    bad_indices_policy=_POLICY,
)
class ScatterNd:
    """Zeros of `shape` with `updates` added at the places `indices`."""

    host_inputs = (2,)

    def shape(
        self, s: ShapeContext, indices: TensorShape, updates: TensorShape, shape: TensorShape
    ) -> TensorShape:
        return _scattered_shape(indices, updates, s.partial(2))

    def compute(self, k: KernelContext, indices: Any, updates: Any, shape: Any, out: Any) -> Any:
        zero = b"" if k.output_dtypes[0].is_object else 0
        if out is None:
            out = k.xp.empty(tuple(shape.tolist()), k.dtype)
        out[...] = zero
        return _scatter(k, out, indices, updates, "add")

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [
            None,
            raw.GatherNd(dense(dy), op.inputs[0], bad_indices_policy=op.attrs["bad_indices_policy"]),
            None,
        ]

    samples = [
        sample([[0], [2], [0]], normal(3), [4]),
        sample([[1, 1], [0, 2]], normal(2), [2, 3]),
        sample([[1], [1]], normal(2, 3), [2, 3]),
        sample(np.array([[4]]), ints(1), np.array([8])),
        sample(
            [[9], [0]],
            normal(2),
            [3],
            bad_indices_policy="IGNORE",
            gradient=False,
            why="TensorFlow's gradient refuses the index",
        ),
        sample([[[0, 1]]], normal(1, 1), [2, 2]),
    ]


class _Scattering:
    """What the TensorScatter ops share: a copy of `tensor` with `updates` worked in."""

    how = ""

    def shape(
        self, s: ShapeContext, tensor: TensorShape, indices: TensorShape, updates: TensorShape
    ) -> TensorShape:
        return _scattered_shape(indices, updates, tensor)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, how = k.xp, self.how

        def scatter(tensor: Any, indices: Any, updates: Any, out: Any) -> Any:
            if out is None:
                out = xp.array(tensor, copy=True, order="C")
            else:
                out[...] = tensor
            return _scatter(k, out, indices, updates, how)

        return scatter

    writes_out = True


_SAMPLES = [
    sample(normal(4), [[1], [3]], normal(2)),
    sample(normal(3, 2), [[2], [0]], normal(2, 2)),
    sample(normal(3, 2), np.array([[2, 1]]), normal(1)),
    sample(normal(3), np.zeros((0, 1), np.int32), empty(0)),
]
_TWICE = sample(normal(4), [[1], [1], [3]], normal(3), why="a place that is named twice")


@op(
    "TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int16,int32,int64,uint16}",
    bad_indices_policy=_POLICY,
)
class TensorScatterUpdate(_Scattering):
    """`tensor` with `updates` in place of what was at `indices`."""

    how = "assign"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        _, indices, updates = op.inputs
        dy = dense(dy)
        return [
            raw.TensorScatterUpdate(raw.Identity(dy), indices, zeros_of(updates)),
            None,
            raw.GatherNd(dy, indices),
        ]

    samples = [*_SAMPLES, sample(text("a", "b"), [[1]], text("c"))]


@op(
    "TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int32,int64}",
    bad_indices_policy=_POLICY,
)
class TensorScatterAdd(_Scattering):
    """`tensor` with `updates` added at `indices`."""

    how = "add"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy = dense(dy)
        return [raw.Identity(dy), None, raw.GatherNd(dy, op.inputs[1])]

    samples = [*_SAMPLES, _TWICE]


@op(
    "TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int32,int64}",
    bad_indices_policy=_POLICY,
)
class TensorScatterSub(_Scattering):
    """`tensor` with `updates` subtracted at `indices`."""

    how = "subtract"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy = dense(dy)
        return [raw.Identity(dy), None, -raw.GatherNd(dy, op.inputs[1])]

    samples = [*_SAMPLES, _TWICE]


class _Extreme(_Scattering):
    """What TensorScatterMax and TensorScatterMin share."""

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        x, indices, updates = op.inputs
        dy, policy = dense(dy), {"bad_indices_policy": op.attrs["bad_indices_policy"]}
        # Those that equal the result share its gradient.
        from_x = raw.Cast(raw.Equal(x, op.outputs[0]), DstT=dy.dtype.base_dtype)
        from_updates = raw.Cast(
            raw.Equal(updates, raw.GatherNd(op.outputs[0], indices, **policy)), DstT=dy.dtype.base_dtype
        )
        shares = from_x + raw.ScatterNd(
            indices, from_updates, shape_of(x, indices.dtype.base_dtype), **policy
        )
        return [dy * from_x / shares, None, raw.GatherNd(dy / shares, indices, **policy) * from_updates]


@op(
    "TensorScatterMax(tensor: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int32,int64}",
    bad_indices_policy=_POLICY,
)
class TensorScatterMax(_Extreme):
    """`tensor` with the larger of it and `updates` at `indices`."""

    how = "maximum"
    samples = [*_SAMPLES, _TWICE]


@op(
    "TensorScatterMin(tensor: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int32,int64}",
    bad_indices_policy=_POLICY,
)
class TensorScatterMin(_Extreme):
    """`tensor` with the smaller of it and `updates` at `indices`."""

    how = "minimum"
    samples = [*_SAMPLES, _TWICE]


@op(
    "ScatterNdNonAliasingAdd(input: T, indices: Tindices, updates: T) -> output: T",
    Tindices="type in {int32,int64}",
    T=(*NUMBERS, bool_),
    bad_indices_policy=_POLICY,
)
class ScatterNdNonAliasingAdd(_Scattering):
    """`input` with `updates` added at `indices`."""

    how = "add"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy = dense(dy)
        return [dy, None, raw.GatherNd(dy, op.inputs[1])]

    samples = [*_SAMPLES, _TWICE]


@op("UnravelIndex(indices: Tidx, dims: Tidx) -> output: Tidx", Tidx="type in {int32,int64} = int32")
class UnravelIndex:
    """The coordinates, [rank, ...], of flat `indices` into a tensor of shape `dims`."""

    cpu_only = True

    def shape(self, s: ShapeContext, indices: TensorShape, dims: TensorShape) -> TensorShape:
        if indices.sizes is None:
            return UNKNOWN
        return TensorShape.of((dims.with_rank(1).sizes[0], *indices.with_rank_at_most(1).sizes))  # type: ignore[index,misc]

    def compute(self, k: KernelContext, indices: Any, dims: Any) -> Any:
        n = int(np.prod(dims))
        if indices.size and (indices.min() < 0 or indices.max() >= n):
            raise InvalidArgumentError(
                None,
                None,
                f"index is out of bound as with dims: an index of {indices.tolist()} is not in "
                f"[0, {n}), the size of {dims.tolist()}",
            )
        return np.array(np.unravel_index(indices, tuple(dims.tolist())), k.dtype)

    samples = [sample([2, 5, 7], [3, 3]), sample(np.array(5), np.array([2, 4]))]
