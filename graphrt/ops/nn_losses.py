"""Softmax, log-softmax and the cross entropies on them.

Each has two NumPy kernels. Along long rows NumPy's inner loop is the row. Rows of a few classes (100 x 10: a
digit classifier's) would cost an inner loop of 10 elements each, so those are worked on transposed, a class
at a time over all rows: half the time. Sums over classes are products with ones there: BLAS takes a third of
NumPy's time for them. half and bfloat16 are computed in float32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import FLOATS
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Sample, empty, ints, normal, sample, uniform
from graphrt.core.shapes import TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import unbroadcast

_FEW_CLASSES = 32
_max = np.maximum.reduce


def _is_wide(shape: tuple[int, ...]) -> bool:
    """Many rows of few classes: worked on transposed."""
    return len(shape) == 2 and shape[1] <= _FEW_CLASSES and shape[0] >= 4 * shape[1]


@lru_cache(maxsize=2 * _FEW_CLASSES)
def _ones(n: int, dtype: Any) -> np.ndarray:
    made = np.ones(n, dtype)
    made.flags.writeable = False
    return made


@lru_cache(maxsize=8)
def _row_starts(rows: int, classes: int) -> np.ndarray:
    """Where each row begins in a matrix, flat."""
    made = np.arange(0, rows * classes, classes)
    made.flags.writeable = False
    return made


def _working_dtype(k: KernelContext) -> Any:
    return np.dtype(np.float32) if k.dtype.itemsize == 2 else k.dtype


def _rounded(kernel: Any, dtype: Any) -> Any:
    """`kernel` of one array, computed in float32 and rounded to `dtype`."""

    def in_float32(logits: Any, out: Any) -> Any:
        made = kernel(logits.astype(np.float32), None)
        if out is None:
            return made.astype(dtype)
        out[...] = made
        return out

    return in_float32


class _AlongRows:
    """Base of functions of the last axis of one tensor."""

    writes_out = True

    def shape(self, s: ShapeContext, logits: TensorShape) -> TensorShape:
        return logits.with_rank_at_least(1)

    def bind(self, k: KernelContext) -> Any:
        xp = k.xp
        by_row, by_class = self.by_row, self.by_class

        def kernel(logits: Any, out: Any) -> Any:
            if logits.ndim == 0:
                raise InvalidArgumentError(None, None, "logits must have >= 1 dimension, got []")
            if out is None:
                out = xp.empty(logits.shape, logits.dtype)
            if out.size == 0:
                return out
            if xp is np and _is_wide(logits.shape):
                return by_class(logits, out)
            return by_row(xp, logits, out)

        return _rounded(kernel, k.dtype) if k.dtype.itemsize == 2 else kernel

    def by_row(self, xp: Any, logits: Any, out: Any) -> Any:
        raise NotImplementedError

    def by_class(self, logits: Any, out: Any) -> Any:
        raise NotImplementedError


def _row_samples() -> list[Sample]:
    return [
        sample(normal(4, 10)),
        sample(normal(2, 3, 5) * 100, why="large logits do not overflow", gradient=False),
        sample(normal(2, 3, 5, dtype="float64")),
        sample(normal(7)),
        sample(empty(0, 7)),
        sample(empty(3, 0)),
        sample(normal(40, 3), why="worked on transposed"),
        sample(normal(40, 3) * 100, gradient=False),
        sample(normal(3, 4, dtype="half"), gradient=False),
        sample(normal(3, 4, dtype="bfloat16"), gradient=False),
        sample(np.array([[-np.inf, 0.0, 1.0]], np.float32), gradient=False, why="an impossible class"),
    ]


@op("Softmax(logits: T) -> softmax: T", T=FLOATS)
class Softmax(_AlongRows):
    """Softmax over the last axis: exp(x - max x) / sum exp(x - max x)."""

    def by_row(self, xp: Any, logits: Any, out: Any) -> Any:
        top = logits.max(axis=-1, keepdims=True)
        xp.subtract(logits, top, out)
        xp.exp(out, out)
        xp.sum(out, axis=-1, keepdims=True, out=top)
        return xp.divide(out, top, out)

    def by_class(self, logits: Any, out: Any) -> Any:
        x = logits.T.copy("C")
        top = _max(x, 0)
        np.subtract(x, top, x)
        np.exp(x, x)
        np.dot(_ones(len(x), x.dtype), x, top)
        np.divide(x, top, out.T)
        return out

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        y = op.outputs[0]
        return (dy - raw.Sum(dy * y, -1, keep_dims=True)) * y

    samples = _row_samples()


@op("LogSoftmax(logits: T) -> logsoftmax: T", T=FLOATS)
class LogSoftmax(_AlongRows):
    """The logarithm of softmax over the last axis: x - max x - log sum exp(x - max x)."""

    def by_row(self, xp: Any, logits: Any, out: Any) -> Any:
        top = logits.max(axis=-1, keepdims=True)
        xp.subtract(logits, top, out)
        xp.sum(xp.exp(out), axis=-1, keepdims=True, out=top)
        xp.log(top, top)
        return xp.subtract(out, top, out)

    def by_class(self, logits: Any, out: Any) -> Any:
        x = logits.T.copy("C")
        top = _max(x, 0)
        np.subtract(x, top, x)
        np.dot(_ones(len(x), x.dtype), np.exp(x), top)
        np.log(top, top)
        np.subtract(x, top, out.T)
        return out

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy - raw.Sum(dy, -1, keep_dims=True) * raw.Exp(op.outputs[0])

    samples = _row_samples()


def _times_rows(vector: Tensor, matrix: Tensor) -> Tensor:
    """Each row of `matrix` times its element of `vector`."""
    return raw.ExpandDims(vector, -1) * matrix


def _features_gradient(op: Any, dloss: Tensor, dbackprop: Tensor | None) -> Tensor:
    """The gradient of a cross entropy's features, from its loss and, for second derivatives, from its
    backprop output."""
    made = _times_rows(dloss, op.outputs[1])
    if dbackprop is None:
        return made
    softmax = raw.Softmax(op.inputs[0])
    inner = raw.BatchMatMulV2(raw.ExpandDims(dbackprop, 1), raw.ExpandDims(softmax, 2))
    return made + (dbackprop - raw.Squeeze(inner, squeeze_dims=[1])) * softmax


@op("SoftmaxCrossEntropyWithLogits(features: T, labels: T) -> loss: T, backprop: T", T=FLOATS)
class SoftmaxCrossEntropyWithLogits:
    """Cross entropy of softmax(features) with the distributions `labels`, a row at a time, and its gradient.

    features and labels broadcast to [batch, classes]; loss is [batch], backprop (softmax - labels) [batch,
    classes].
    """

    grad_accepts_none = True

    def shape(self, s: ShapeContext, features: TensorShape, labels: TensorShape) -> list[TensorShape]:
        both = broadcast(features, labels)
        if both.rank not in (None, 2):
            raise ValueError(
                f"logits {features} and labels {labels} must be either 2-dimensional, or broadcasted to be "
                "2-dimensional"
            )
        both = both.with_rank(2)
        return [both[:1], both]

    def bind(self, k: KernelContext) -> Any:
        xp, dtype, working = k.xp, k.dtype, _working_dtype(k)

        def kernel(features: Any, labels: Any) -> tuple[Any, Any]:
            if features.shape != labels.shape:
                features, labels = _broadcast(xp, features, labels)
            if features.ndim != 2:
                raise InvalidArgumentError(
                    None,
                    None,
                    "logits and labels must be either 2-dimensional, or broadcasted to be "
                    f"2-dimensional: logits have shape {list(features.shape)}",
                )
            if features.size == 0:
                return xp.zeros(features.shape[0], dtype), xp.empty(features.shape, dtype)
            if dtype is not working:
                features, labels = features.astype(working), labels.astype(working)
            if xp is np and _is_wide(features.shape):
                loss, backprop = self.by_class(features, labels)
            else:
                loss, backprop = self.by_row(xp, features, labels)
            return (loss, backprop) if dtype is working else (loss.astype(dtype), backprop.astype(dtype))

        return kernel

    def by_row(self, xp: Any, features: Any, labels: Any) -> tuple[Any, Any]:
        top = features.max(axis=-1, keepdims=True)
        x = features - top
        backprop = xp.exp(x)
        xp.sum(backprop, axis=-1, keepdims=True, out=top)
        xp.divide(backprop, top, backprop)
        xp.subtract(backprop, labels, backprop)
        xp.log(top, top)
        xp.subtract(top, x, x)
        xp.multiply(x, labels, x)
        return x.sum(axis=-1), backprop

    def by_class(self, features: Any, labels: Any) -> tuple[Any, Any]:
        backprop = np.empty(features.shape, features.dtype)
        x = features.T.copy("C")
        top, ones = _max(x, 0), _ones(len(x), x.dtype)
        np.subtract(x, top, x)
        e = np.exp(x)
        np.dot(ones, e, top)
        np.divide(e, top, backprop.T)
        np.subtract(backprop, labels, backprop)
        np.log(top, top)
        np.subtract(top, x, x)
        np.multiply(x, labels.T.copy("C"), x)
        return np.dot(ones, x), backprop

    def gradient(self, op: Any, dloss: Tensor | None, dbackprop: Tensor | None) -> list[Tensor | None]:
        features, labels = op.inputs
        if dloss is None:
            dloss = raw.ZerosLike(op.outputs[0])
        dfeatures = _features_gradient(op, dloss, dbackprop)
        dlabels = _times_rows(dloss, -raw.LogSoftmax(features))
        a, b = features.shape, labels.shape
        if a.is_fully_defined() and b.is_fully_defined() and a.sizes != b.sizes:
            return unbroadcast(features, labels, dfeatures, dlabels)
        return [dfeatures, dlabels]

    # TensorFlow's gradients take each row of labels as a distribution, and backprop as independent of them.
    samples = [
        sample(normal(4, 10), uniform(4, 10, low=0.0), numeric=False),
        sample(normal(50, 3), uniform(50, 3, low=0.0), numeric=False),
        sample(normal(3, 40, dtype="float64"), uniform(3, 40, low=0.0, dtype="float64"), numeric=False),
        sample(
            normal(4, 5) * 100, uniform(4, 5, low=0.0), gradient=False, why="large logits do not overflow"
        ),
        sample(normal(3, 4), uniform(4, low=0.0), gradient=False, why="labels broadcast"),
        sample(normal(1, 4), uniform(3, 4, low=0.0), gradient=False, why="features broadcast"),
        sample(normal(3, 4), uniform(low=0.0), gradient=False, why="scalar labels"),
        sample(empty(0, 7), empty(0, 7)),
        sample(empty(3, 0), empty(3, 0), gradient=False),
        sample(normal(3, 4, dtype="half"), uniform(3, 4, low=0.0, dtype="half"), gradient=False, atol=1e-3),
        sample(
            normal(3, 4, dtype="bfloat16"),
            uniform(3, 4, low=0.0, dtype="bfloat16"),
            gradient=False,
            atol=1e-2,
        ),
    ]


def _broadcast(xp: Any, features: Any, labels: Any) -> tuple[Any, Any]:
    try:
        return xp.broadcast_arrays(features, labels)
    except ValueError:
        raise InvalidArgumentError(
            None,
            None,
            f"logits and labels must be broadcastable: logits_size={list(features.shape)} "
            f"labels_size={list(labels.shape)}",
        ) from None


@op(
    "SparseSoftmaxCrossEntropyWithLogits(features: T, labels: Tlabels) -> loss: T, backprop: T",
    T=FLOATS,
    Tlabels="type in {int32,int64} = int64",
)
class SparseSoftmaxCrossEntropyWithLogits:
    """Cross entropy of softmax(features) with one class a row, and its gradient.

    features: [batch, classes]; labels: [batch], each in [0, classes). Raises InvalidArgumentError on another
    label.
    """

    grad_accepts_none = True

    def shape(self, s: ShapeContext, features: TensorShape, labels: TensorShape) -> list[TensorShape]:
        features, labels = features.with_rank(2), labels.with_rank(1)
        batch = features[:1].merge_with(labels)
        return [batch, batch.concatenate(features[1:])]

    def bind(self, k: KernelContext) -> Any:
        xp, dtype, working = k.xp, k.dtype, _working_dtype(k)
        unsigned = np.uint32 if k.input_dtypes[1].size == 4 else np.uint64

        def kernel(features: Any, labels: Any) -> tuple[Any, Any]:
            if (
                features.ndim != 2
                or labels.ndim != 1
                or features.shape[0] != labels.shape[0]
                or features.shape[1] == 0
            ):
                raise _misfit(features, labels)
            if labels.size == 0:
                return xp.empty(0, dtype), xp.empty(features.shape, dtype)
            # As unsigned numbers, negative labels are too large as well.
            if labels.view(unsigned).max() >= features.shape[1]:
                raise _bad_label(labels, features.shape[1])
            if dtype is not working:
                features = features.astype(working)
            if xp is np and _is_wide(features.shape):
                loss, backprop = self.by_class(features, labels)
            else:
                loss, backprop = self.by_row(xp, features, labels)
            return (loss, backprop) if dtype is working else (loss.astype(dtype), backprop.astype(dtype))

        return kernel

    def by_row(self, xp: Any, features: Any, labels: Any) -> tuple[Any, Any]:
        rows = xp.arange(labels.size)
        top = features.max(axis=-1, keepdims=True)
        x = features - top
        loss = x[rows, labels]
        backprop = xp.exp(x, x)
        xp.sum(backprop, axis=-1, keepdims=True, out=top)
        xp.divide(backprop, top, backprop)
        backprop[rows, labels] -= 1
        return xp.subtract(xp.log(top[:, 0]), loss, loss), backprop

    def by_class(self, features: Any, labels: Any) -> tuple[Any, Any]:
        backprop = np.empty(features.shape, features.dtype)
        places = _row_starts(*features.shape) + labels
        x = features.T.copy("C")
        top = _max(x, 0)
        loss = features.reshape(-1).take(places)
        np.subtract(loss, top, loss)
        np.subtract(x, top, x)
        np.exp(x, x)
        np.dot(_ones(len(x), x.dtype), x, top)
        np.divide(x, top, backprop.T)
        backprop.reshape(-1)[places] -= 1
        np.log(top, top)
        return np.subtract(top, loss, loss), backprop

    def gradient(self, op: Any, dloss: Tensor | None, dbackprop: Tensor | None) -> list[Tensor | None]:
        return [
            _features_gradient(op, raw.ZerosLike(op.outputs[0]) if dloss is None else dloss, dbackprop),
            None,
        ]

    samples = [
        sample(normal(4, 10), ints(4)),
        sample(normal(50, 3), ints(50, high=3, dtype="int64")),
        sample(normal(3, 40, dtype="float64"), ints(3, high=40)),
        sample(normal(4, 5) * 100, ints(4, high=5), gradient=False),
        sample(empty(0, 7), empty(0, dtype="int32")),
        sample(normal(3, 1), empty(3, dtype="int32")),
        sample(normal(3, 4, dtype="half"), ints(3, high=4), gradient=False),
        sample(normal(3, 4, dtype="bfloat16"), ints(3, high=4), gradient=False),
    ]


def _misfit(features: Any, labels: Any) -> InvalidArgumentError:
    a, b = list(features.shape), list(labels.shape)
    if features.ndim != 2:
        what = f"logits must be 2-D, but got shape {a}"
    elif labels.ndim != 1:
        what = f"labels must be 1-D, but got shape {b}"
    elif a[0] != b[0]:
        what = (
            f"logits and labels must have the same first dimension, got logits shape {a} and labels shape {b}"
        )
    else:
        what = f"Must have at least one class, but got logits shape {a}"
    return InvalidArgumentError(None, None, what)


def _bad_label(labels: Any, classes: int) -> InvalidArgumentError:
    bad = labels[(labels < 0) | (labels >= classes)][0]
    return InvalidArgumentError(
        None,
        None,
        f"Received a label value of {bad} which is outside the valid range of [0, {classes}).  "
        f"Label values: {' '.join(map(str, labels.tolist()))}",
    )
