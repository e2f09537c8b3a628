"""Biases: BiasAdd in both layouts, its gradient; and the batch normalization op of GraphDefs older than
version 9."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, positive, sample
from graphrt.core.shapes import TensorShape, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import shape_of

# Rows from which a sum is taken in two steps, so that float32 rounding errors grow with the root of the rows.
_LONG = 1024


class _BiasAdd:
    """value + bias, one bias a channel."""

    overwrites = (0,)
    writes_out = True

    def shape(self, s: ShapeContext, value: TensorShape, bias: TensorShape) -> TensorShape:
        is_first = s.attrs.get("data_format") == b"NCHW"
        bias, value = bias.with_rank(1), value.with_rank_at_least(3 if is_first else 2)
        if value.sizes is None:
            return value
        axis = 1 if is_first else len(value.sizes) - 1
        sizes = list(value.sizes)
        try:
            sizes[axis] = value[axis:][:1].merge_with(bias).sizes[0]
        except ValueError:
            raise ValueError(
                f"value of shape {value} has {value.sizes[axis]} channels and bias {bias.sizes[0]}"
            ) from None
        return TensorShape.of(tuple(sizes))

    def bind(self, k: KernelContext) -> Any:
        add = k.xp.add
        if k.attrs.get("data_format") == b"NCHW":

            def channels_first(value: Any, bias: Any, out: Any) -> Any:
                if value.ndim < 2 or bias.ndim != 1 or bias.shape[0] != value.shape[1]:
                    raise _misfit(value, bias, "second")
                return add(value, bias.reshape(-1, *[1] * (value.ndim - 2)), out)

            return channels_first

        def channels_last(value: Any, bias: Any, out: Any) -> Any:
            if value.ndim < 2 or bias.ndim != 1 or bias.shape[0] != value.shape[-1]:
                raise _misfit(value, bias, "last")
            return add(value, bias, out)

        return channels_last


def _misfit(value: Any, bias: Any, which: str) -> InvalidArgumentError:
    a, b = list(value.shape), list(bias.shape)
    if value.ndim < 2:
        return InvalidArgumentError(None, None, f"Input tensor must be at least 2D: {a}")
    if bias.ndim != 1:
        return InvalidArgumentError(None, None, f"Biases must be 1D: {b}")
    return InvalidArgumentError(
        None, None, f"Must provide as many biases as the {which} dimension of the input tensor: {b} vs. {a}"
    )


_BIAS_SAMPLES = [
    sample(normal(4, 3), normal(3)),
    sample(normal(2, 3, 4, 5), normal(5)),
    sample(empty(0, 3), normal(3)),
    sample(ints(2, 3), ints(3)),
    sample(normal(2, 3, dtype="complex64"), normal(3, dtype="complex64")),
    sample(normal(2, 3, dtype="bfloat16"), normal(3, dtype="bfloat16"), gradient=False),
]
_FIRST = {"data_format": "NCHW"}


@op("BiasAdd(value: T, bias: T) -> output: T", T=NUMBERS, data_format="string in {NHWC,NCHW} = 'NHWC'")
class BiasAdd(_BiasAdd):
    """value + bias, one bias a channel: along the last axis, or the second one in NCHW."""

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return [dy, raw.BiasAddGrad(dy, data_format=op.attrs["data_format"])]

    samples = [
        *_BIAS_SAMPLES,
        sample(normal(2, 3, 4, 5), normal(3), **_FIRST),
        sample(normal(2, 3, 4, 2, 3), normal(3), **_FIRST),
    ]


@op("BiasAddV1(value: T, bias: T) -> output: T", T=NUMBERS)
class BiasAddV1(_BiasAdd):
    """value + bias, one bias for each place of the last axis."""

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return [dy, raw.Sum(dy, raw.Range(0, raw.Rank(dy) - 1, 1))]

    samples = _BIAS_SAMPLES


@op("BiasAddGrad(out_backprop: T) -> output: T", T=NUMBERS, data_format="string in {NHWC,NCHW} = 'NHWC'")
class BiasAddGrad:
    """The sum over everything but channels."""

    writes_out = True

    def shape(self, s: ShapeContext, out_backprop: TensorShape) -> TensorShape:
        is_first = s.attrs["data_format"] == b"NCHW"
        sizes = out_backprop.with_rank_at_least(3 if is_first else 2).sizes
        return unknown(1) if sizes is None else TensorShape.of((sizes[1 if is_first else -1],))

    def bind(self, k: KernelContext) -> Any:
        xp, dtype = k.xp, k.dtype
        is_first = k.attrs["data_format"] == b"NCHW"
        is_short = dtype.itemsize == 2 and k.output_dtypes[0].is_floating
        summed = np.dtype(np.float32) if is_short else dtype
        has_blas = dtype in (np.float32, np.float64)
        ones = _ones if xp is np else xp.ones

        def kernel(out_backprop: Any, out: Any) -> Any:
            shape = out_backprop.shape
            if len(shape) < 2:
                raise InvalidArgumentError(None, None, f"Input tensor must be at least 2D: {list(shape)}")
            if not out_backprop.size:
                out = xp.empty(shape[1] if is_first else shape[-1], dtype) if out is None else out
                out[...] = 0
                return out
            if is_first:
                rows = out_backprop.reshape(*shape[:2], -1).sum(axis=2, dtype=summed)
            else:
                rows = out_backprop.reshape(-1, shape[-1])
            if len(rows) > _LONG:
                rows = _sums_of_blocks(xp, rows, summed)
            if has_blas and rows.flags.c_contiguous:
                return xp.dot(ones(len(rows), dtype), rows, out)
            made = rows.sum(axis=0, dtype=summed, out=None if is_short else out)
            if not is_short:
                return made
            if out is None:
                return made.astype(dtype)
            out[...] = made
            return out

        return kernel

    def gradient(self, op: Any, dbias: Tensor) -> Tensor:
        shape = shape_of(op.inputs[0])
        if op.attrs["data_format"] == b"NCHW":
            rank = raw.Rank(op.inputs[0])
            ones = raw.Fill(raw.ExpandDims(rank - 2, 0), 1)
            dbias = raw.Reshape(dbias, raw.ConcatV2([raw.Shape(dbias), ones], 0))
        return raw.BroadcastTo(dbias, shape)

    samples = [
        sample(normal(4, 3)),
        sample(normal(2, 3, 4, 5)),
        sample(normal(2, 3, 4, 5), **_FIRST),
        sample(empty(0, 3)),
        sample(normal(3000, 2), why="summed in blocks"),
        sample(ints(2, 3)),
        sample(normal(2, 3, dtype="complex64"), gradient=False),
        sample(normal(20, 3, dtype="half"), gradient=False, rtol=5e-3),
        sample(empty(2, 3, 0, 5), **_FIRST),
    ]


@lru_cache(maxsize=64)
def _ones(n: int, dtype: Any) -> np.ndarray:
    """What sums rows by a product: BLAS takes a quarter of NumPy's time for few channels."""
    made = np.ones(n, dtype)
    made.flags.writeable = False
    return made


def _sums_of_blocks(xp: Any, rows: Any, dtype: Any) -> Any:
    """Fewer rows with the same sum: each the sum of about as many as there are blocks."""
    n, channels = rows.shape
    size = int(n**0.5)
    whole = n // size * size
    made = rows[:whole].reshape(-1, size, channels).sum(axis=1, dtype=dtype)
    return (
        made if whole == n else xp.concatenate((made, rows[whole:].sum(axis=0, keepdims=True, dtype=dtype)))
    )


_BATCH_NORM = dict(variance_epsilon="float", scale_after_normalization="bool")


@op(
    "BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> result: T",
    T=NUMBERS,
    **_BATCH_NORM,
)
class BatchNormWithGlobalNormalization:
    """(t - m) / sqrt(v + variance_epsilon) * gamma + beta, gamma where `scale_after_normalization`.

    Only GraphDefs older than version 9 have it; programs use tf.nn.batch_normalization.
    """

    def shape(self, s: ShapeContext, t: TensorShape, *per_channel: TensorShape) -> TensorShape:
        t = t.with_rank(4)
        channels = t[3:]
        for other in per_channel:
            channels = channels.merge_with(other.with_rank(1))
        return t[:3].concatenate(channels)

    def compute(self, k: KernelContext, t: Any, m: Any, v: Any, beta: Any, gamma: Any) -> Any:
        scale = 1 / k.xp.sqrt(v + t.dtype.type(k.attrs["variance_epsilon"]))
        if k.attrs["scale_after_normalization"]:
            scale = scale * gamma
        return (t * scale + (beta - m * scale)).astype(t.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        t, m, v, _, gamma = op.inputs
        return raw.BatchNormWithGlobalNormalizationGrad(
            t,
            m,
            v,
            gamma,
            dy,
            variance_epsilon=op.attrs["variance_epsilon"],
            scale_after_normalization=op.attrs["scale_after_normalization"],
        )

    samples = [
        sample(
            normal(2, 3, 3, 4),
            normal(4),
            positive(4),
            normal(4),
            normal(4),
            variance_epsilon=1e-3,
            scale_after_normalization=scaled,
            tensorflow=False,
            why="TensorFlow refuses it in new graphs",
        )
        for scaled in (True, False)
    ]


@op(
    "BatchNormWithGlobalNormalizationGrad(t: T, m: T, v: T, gamma: T, backprop: T) -> dx: T, dm: T, dv: T, "
    "db: T, dg: T",
    T=NUMBERS,
    **_BATCH_NORM,
)
class BatchNormWithGlobalNormalizationGrad:
    """The gradients of BatchNormWithGlobalNormalization's inputs."""

    def shape(
        self,
        s: ShapeContext,
        t: TensorShape,
        m: TensorShape,
        v: TensorShape,
        gamma: TensorShape,
        backprop: TensorShape,
    ) -> list[TensorShape]:
        channels = m.with_rank(1).merge_with(v).merge_with(gamma)
        return [t.with_rank(4).merge_with(backprop), channels, channels, channels, channels]

    def compute(self, k: KernelContext, t: Any, m: Any, v: Any, gamma: Any, backprop: Any) -> tuple[Any, ...]:
        dtype, axes = t.dtype, (0, 1, 2)
        inverse = (1 / k.xp.sqrt(v + dtype.type(k.attrs["variance_epsilon"]))).astype(dtype, copy=False)
        db = backprop.sum(axis=axes, dtype=dtype)
        along = (backprop * (t - m)).sum(axis=axes, dtype=dtype)
        scale = gamma if k.attrs["scale_after_normalization"] else k.xp.ones_like(gamma)
        dg = along * inverse if k.attrs["scale_after_normalization"] else k.xp.zeros_like(gamma)
        dm = -db * scale * inverse
        dv = along * scale * inverse**3 * dtype.type(-0.5)
        return backprop * (scale * inverse), dm, dv, db, dg

    samples = [
        sample(
            normal(2, 3, 3, 4),
            normal(4),
            positive(4),
            normal(4),
            normal(2, 3, 3, 4),
            variance_epsilon=1e-3,
            scale_after_normalization=scaled,
            tensorflow=False,
            why="TensorFlow refuses it in new graphs",
        )
        for scaled in (True, False)
    ]
