"""The order of elements along axes: Transpose, Reverse, Roll; and BroadcastTo."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.dtypes import (
    COMPLEX,
    bfloat16,
    bool_,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import empty, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast, unknown
from graphrt.ops.array_basic import INDEX_OR_INT32
from graphrt.ops.array_nodes import dense, int_constant, normal_axis, shape_of


class _Permuting:
    """What Transpose and ConjugateTranspose share."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, x: TensorShape, perm: TensorShape) -> TensorShape:
        order = s.value(1)
        rank = x.rank
        if rank is None and perm.sizes is not None:
            rank = perm.with_rank(1).sizes[0]  # type: ignore[index]
        if rank is None:
            return UNKNOWN
        x = x.with_rank(rank)
        if order is None:
            return unknown(rank)
        axes = permutation(order.tolist(), rank)
        return TensorShape.of(tuple([x.sizes[a] for a in axes]))  # type: ignore[index]


def permutation(order: list[int], rank: int) -> list[int]:
    """`order` with axes counted from the front. Raises ValueError where it is not a permutation of `rank`
    axes."""
    axes = [a + rank if a < 0 else a for a in order]
    if sorted(axes) != list(range(rank)):
        raise ValueError(
            f"perm {order} is not a permutation of the {rank} axes 0 to {rank - 1}"
            if rank
            else f"perm {order} must be empty for a scalar"
        )
    return axes


@op("Transpose(x: T, perm: Tperm) -> y: T", Tperm=INDEX_OR_INT32)
class Transpose(_Permuting):
    """`x` with its dimensions in the order `perm`: dimension i of y is perm[i] of x."""

    aliases = (0,)

    def compute(self, k: KernelContext, x: Any, perm: Any) -> Any:
        try:
            return x.transpose(perm.tolist())
        except ValueError:
            return x.transpose(permutation(perm.tolist(), x.ndim))

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.Transpose(dense(dy), raw.InvertPermutation(op.inputs[1]), name="transpose"), None]

    samples = [
        sample(normal(2, 3), [1, 0]),
        sample(normal(2, 3, 4), np.array([2, 0, 1])),
        sample(normal(3), [0]),
        sample(normal(), np.array([], np.int32)),
        sample(empty(0, 2), [1, 0]),
        sample(text("a").reshape(1, 1), [1, 0]),
    ]


@op("ConjugateTranspose(x: T, perm: Tperm) -> y: T", Tperm=INDEX_OR_INT32)
class ConjugateTranspose(_Permuting):
    """`x` with its dimensions in the order `perm`, conjugated."""

    def compute(self, k: KernelContext, x: Any, perm: Any) -> Any:
        moved = x.transpose(permutation(perm.tolist(), x.ndim))
        return moved.conj() if k.output_dtypes[0].is_complex else moved.copy()

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        back = raw.InvertPermutation(op.inputs[1])
        return [raw.ConjugateTranspose(dense(dy), back, name="transpose"), None]

    samples = [sample(normal(2, 3, dtype="complex64"), [1, 0]), sample(normal(2, 3), [1, 0])]


@op("InvertPermutation(x: T) -> y: T", T="type in {int32,int64} = int32")
class InvertPermutation:
    """The permutation that undoes `x`: y[x[i]] = i."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x.with_rank(1)

    def compute(self, k: KernelContext, x: Any) -> Any:
        made = np.full(x.shape, -1, k.dtype)
        if x.size:
            if x.min() < 0 or x.max() >= x.size:
                raise ValueError(f"{x.tolist()} is not a permutation: its elements must be in [0, {x.size})")
            made[x] = np.arange(x.size, dtype=k.dtype)
            if (made < 0).any():
                raise ValueError(f"{x.tolist()} is not a permutation: an element is there twice")
        return made

    samples = [sample([2, 0, 1]), sample(np.array([0, 1])), sample(np.array([], np.int32))]


_REVERSIBLE = (
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    uint64,
    int64,
    bool_,
    bfloat16,
    half,
    float32,
    float64,
    *COMPLEX,
    string,
)


@op("ReverseV2(tensor: T, axis: Tidx) -> output: T", Tidx=INDEX_OR_INT32, T=_REVERSIBLE)
class ReverseV2:
    """`tensor` with the order along each of the axes `axis` reversed."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, tensor: TensorShape, axis: TensorShape) -> TensorShape:
        axes = s.value(1)
        if axes is not None and tensor.rank is not None:
            _reversed_axes(axes.tolist(), tensor.rank)
        return tensor

    def compute(self, k: KernelContext, tensor: Any, axis: Any) -> Any:
        axes = _reversed_axes(axis.tolist(), tensor.ndim)
        return tensor[
            (*[slice(None, None, -1) if i in axes else slice(None) for i in range(tensor.ndim)], ...)
        ]

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.ReverseV2(dense(dy), op.inputs[1]), None]

    samples = [
        sample(normal(2, 3), [1]),
        sample(normal(2, 3), np.array([0, -1])),
        sample(normal(2, 3), np.array([], np.int32)),
        sample(empty(0, 3), [0]),
        sample(text("a", "b"), [0]),
    ]


def _reversed_axes(axes: list[int], rank: int) -> set[int]:
    found = [normal_axis(a, rank) for a in axes]
    if len(set(found)) < len(found):
        raise ValueError(f"axis {axes} names an axis twice")
    return set(found)


@op("Reverse(tensor: T, dims: bool) -> output: T", T=_REVERSIBLE)
class Reverse:
    """`tensor` reversed along each axis i where `dims[i]`; older GraphDefs have it."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, tensor: TensorShape, dims: TensorShape) -> TensorShape:
        n = dims.with_rank(1).sizes[0]  # type: ignore[index]
        return tensor if n is None else tensor.with_rank(n)

    def compute(self, k: KernelContext, tensor: Any, dims: Any) -> Any:
        flags = dims.tolist()
        if len(flags) != tensor.ndim:
            raise ValueError(f"dims {flags} must have a bool for each of the {tensor.ndim} dimensions")
        return tensor[(*[slice(None, None, -1) if f else slice(None) for f in flags], ...)]

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.Reverse(dense(dy), op.inputs[1]), None]

    samples = [sample(normal(2, 3), np.array([True, False])), sample(normal(2, 3), np.array([True, True]))]


@op(
    "ReverseSequence(input: T, seq_lengths: Tlen) -> output: T",
    seq_dim="int",
    batch_dim="int = 0",
    Tlen="type in {int32,int64} = int64",
)
class ReverseSequence:
    """`input` with, for each b of `batch_dim`, the first `seq_lengths[b]` elements along `seq_dim`
    reversed."""

    def shape(self, s: ShapeContext, input: TensorShape, seq_lengths: TensorShape) -> TensorShape:
        seq_lengths = seq_lengths.with_rank(1)
        if input.sizes is None:
            return UNKNOWN
        batch, seq = self._dims(s.attrs, len(input.sizes))
        size = TensorShape.of((input.sizes[batch],)).merge_with(seq_lengths).sizes[0]  # type: ignore[index]
        return TensorShape.of((*input.sizes[:batch], size, *input.sizes[batch + 1 :]))

    @staticmethod
    def _dims(attrs: dict[str, Any], rank: int) -> tuple[int, int]:
        batch, seq = attrs["batch_dim"], attrs["seq_dim"]
        if batch == seq:
            raise ValueError(f"batch_dim and seq_dim are both {batch}")
        if not 0 <= batch < rank or not 0 <= seq < rank:
            raise ValueError(f"batch_dim {batch} and seq_dim {seq} must be in [0, {rank})")
        return batch, seq

    def compute(self, k: KernelContext, input: Any, seq_lengths: Any) -> Any:
        xp = k.xp
        batch, seq = self._dims(k.attrs, input.ndim)
        count, size = input.shape[batch], input.shape[seq]
        if seq_lengths.shape != (count,):
            raise ValueError(
                f"seq_lengths has shape {list(seq_lengths.shape)}: there are {count} batch elements"
            )
        if count and (int(seq_lengths.min()) < 0 or int(seq_lengths.max()) > size):
            raise ValueError(
                f"seq_lengths {seq_lengths.tolist()} must be in [0, {size}], the size of dimension {seq}"
            )
        places, lengths = xp.arange(size), seq_lengths[:, None]
        source = xp.where(places < lengths, lengths - 1 - places, places)
        moved = xp.moveaxis(input, (batch, seq), (0, 1))[xp.arange(count)[:, None], source]
        return xp.ascontiguousarray(xp.moveaxis(moved, (0, 1), (batch, seq)))

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [
            raw.ReverseSequence(
                dense(dy), op.inputs[1], seq_dim=op.attrs["seq_dim"], batch_dim=op.attrs["batch_dim"]
            ),
            None,
        ]

    samples = [
        sample(normal(2, 4), np.array([3, 0]), seq_dim=1),
        sample(normal(4, 2, 3), [4, 1], seq_dim=0, batch_dim=1),
        sample(empty(0, 3), np.array([], np.int64), seq_dim=1),
    ]


@op(
    "Roll(input: T, shift: Tshift, axis: Taxis) -> output: T",
    Tshift="type in {int32,int64}",
    Taxis="type in {int32,int64}",
)
class Roll:
    """`input` shifted by `shift` along `axis`; what leaves at one end comes in at the other."""

    host_inputs = (1, 2)

    def shape(
        self, s: ShapeContext, input: TensorShape, shift: TensorShape, axis: TensorShape
    ) -> TensorShape:
        return input.with_rank_at_least(1)

    def compute(self, k: KernelContext, input: Any, shift: Any, axis: Any) -> Any:
        if shift.shape != axis.shape or shift.ndim > 1:
            raise ValueError(
                f"shift {shift.tolist()} and axis {axis.tolist()} must be scalars or vectors of one length"
            )
        axes = tuple([normal_axis(a, input.ndim) for a in axis.reshape(-1).tolist()])
        return k.xp.roll(input, tuple(shift.reshape(-1).tolist()), axes)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        return [raw.Roll(dense(dy), -op.inputs[1], op.inputs[2]), None, None]

    samples = [
        sample(normal(5), 2, 0),
        sample(normal(3, 4), [1, -2], [0, 1]),
        sample(normal(3, 4), np.array([1, 1]), [1, 1]),
    ]


@op("BroadcastTo(input: T, shape: Tidx) -> output: T", Tidx=INDEX_OR_INT32)
class BroadcastTo:
    """`input` repeated to `shape` as NumPy broadcasts."""

    aliases = (0,)
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, shape: TensorShape) -> TensorShape:
        wanted = s.partial(1)
        if input.sizes is not None and wanted.sizes is not None:
            if len(input.sizes) > len(wanted.sizes):
                raise ValueError(f"{input} has more dimensions than {wanted}, which it is broadcast to")
            for have, want in zip(reversed(input.sizes), reversed(wanted.sizes)):
                if have is not None and want is not None and have not in (1, want):
                    raise ValueError(
                        f"{input} cannot be broadcast to {wanted}: sizes {have} and {want} differ"
                    )
        return wanted

    def compute(self, k: KernelContext, input: Any, shape: Any) -> Any:
        try:
            return k.xp.broadcast_to(input, shape.tolist())
        except ValueError:
            raise ValueError(f"{list(input.shape)} cannot be broadcast to {shape.tolist()}") from None

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        input, shape = op.inputs
        kind = shape.dtype.base_dtype
        have = shape_of(input, kind)
        known = constant_value(shape)
        axes = raw.BroadcastGradientArgs(shape if known is None else int_constant(known, kind), have)[1]
        return [raw.Reshape(raw.Sum(dense(dy), axes, keep_dims=True), have), None]

    samples = [
        sample(normal(3), [2, 3]),
        sample(normal(2, 1), np.array([4, 2, 3])),
        sample(normal(), [2]),
        sample(normal(), np.array([], np.int32)),
        sample(empty(0, 1), [0, 3]),
        sample(text("a"), [2, 1]),
    ]


@op("BroadcastArgs(s0: T, s1: T) -> r0: T", T="type in {int32,int64} = int32")
class BroadcastArgs:
    """The shape that tensors of the shapes s0 and s1 broadcast to."""

    host_inputs = host_outputs = ALL
    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, s0: TensorShape, s1: TensorShape) -> TensorShape:
        sizes = [x.with_rank(1).sizes[0] for x in (s0, s1)]  # type: ignore[index]
        return TensorShape.of((None if None in sizes else max(sizes),))  # type: ignore[type-var]

    def compute(self, k: KernelContext, s0: Any, s1: Any) -> Any:
        a, b = TensorShape(s0.tolist()), TensorShape(s1.tolist())
        return np.array(broadcast(a, b).sizes, k.dtype)

    samples = [
        sample([2, 1], [3]),
        sample(np.array([], np.int32), [4]),
        sample(np.array([1, 5]), np.array([2, 5])),
    ]
