"""Order statistics of the last axis: TopK, InTopK, NthElement.

Equal values come lowest index first. NaN counts as larger than every number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import REAL, int16, int32, int64
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Sample, empty, ints, normal, sample
from graphrt.core.shapes import TensorShape
from graphrt.core.signature import Attr
from graphrt.core.tensor import Tensor

_K_TYPES = (int16, int32, int64)


def _sortable(xp: Any, x: Any) -> Any:
    """`x`, or in float32 where its dtype cannot be partitioned."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def _sorted_places(xp: Any, keys: Any, k: int) -> Any:
    """The places of the k largest, largest first, by a whole sort."""
    last = keys.shape[-1] - 1
    # Of the reversed row, a stable ascending sort read backwards puts the lower place of equals first.
    return last - xp.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :k]


def _partitioned_places(keys: np.ndarray, k: int) -> np.ndarray:
    """The places of the k largest, largest first, of rows [m, n] with n much larger than k: a partition, and
    a sort of k."""
    n = keys.shape[-1]
    chosen = np.argpartition(keys, n - k, axis=-1)[:, n - k :]
    chosen.sort(axis=-1)
    values = np.take_along_axis(keys, chosen, -1)
    places = np.take_along_axis(chosen, _sorted_places(np, values, k), -1)
    # Of the elements that equal the smallest chosen one, a partition takes any: rows with others left are
    # sorted whole.
    smallest = values.min(axis=-1, keepdims=True)
    is_sure = (keys == smallest).sum(axis=-1) == (values == smallest).sum(axis=-1)
    is_sure &= ~np.isnan(smallest[:, 0])
    if not is_sure.all():
        places[~is_sure] = _sorted_places(np, keys[~is_sure], k)
    return places


def top_k(xp: Any, x: Any, k: int, index_dtype: Any) -> tuple[Any, Any]:
    """The k largest elements of each row and their places, largest first.

    Raises:
      InvalidArgumentError: rows are shorter than k, or k < 0.
    """
    if x.ndim == 0:
        raise InvalidArgumentError(None, None, "input must be >= 1-D, got shape []")
    if k < 0:
        raise InvalidArgumentError(None, None, f"Need k >= 0, got {k}")
    n = x.shape[-1]
    if n < k:
        raise InvalidArgumentError(None, None, f"input must have at least k columns. Had {n}, needed {k}")
    shape = (*x.shape[:-1], k)
    if k == 0 or x.size == 0:
        return xp.empty(shape, x.dtype), xp.empty(shape, index_dtype)
    keys = _sortable(xp, x)
    if k == 1:
        places = keys.argmax(axis=-1)[..., None]
    elif xp is np and n > 64 and 4 * k < n:
        places = _partitioned_places(keys.reshape(-1, n), k).reshape(shape)
    else:
        places = _sorted_places(xp, keys, k)
    return xp.take_along_axis(x, places, -1), places.astype(index_dtype)


def _top_k_shapes(input: TensorShape, k: int | None) -> list[TensorShape]:
    input = input.with_rank_at_least(1)
    if k is not None and k < 0:
        raise ValueError(f"Need k >= 0, got {k}")
    if input.sizes is None:
        return [input, input]
    n = input.sizes[-1]
    if k is not None and n is not None and n < k:
        raise ValueError(f"input must have at least k = {k} columns, and its shape is {input}")
    made = TensorShape.of((*input.sizes[:-1], k))
    return [made, made]


def _top_k_gradient(op: Any, dvalues: Tensor) -> Tensor:
    """`dvalues` at the places they came from, zeros elsewhere."""
    x, places = op.inputs[0], op.outputs[1]
    shape = raw.Shape(x, out_type=int64)
    rows, n = raw.Prod(shape[:-1], 0), shape[-1]
    k = raw.Shape(places, out_type=int64)[-1]
    starts = raw.ExpandDims(raw.Range(np.int64(0), rows, np.int64(1)) * n, -1)
    flat = raw.Reshape(raw.Cast(places, DstT=int64), raw.Pack([rows, k])) + starts
    spread = raw.ScatterNd(
        raw.Reshape(flat, [-1, 1]), raw.Reshape(dvalues, [-1]), raw.ExpandDims(rows * n, 0)
    )
    return raw.Reshape(spread, shape)


_TIES = np.array([[3, 1, 3, 2, 3, 1, 0, 3]], np.float32)


def _top_k_samples(*k: int, more: tuple[Sample, ...] = ()) -> list[Sample]:
    attrs = {} if k else {"k": 2}
    one = (1,) if k else ()
    return [
        sample(normal(4, 10), *k, **attrs),
        sample(_TIES, *k, **attrs, gradient=False, why="equal values: lower index first"),
        sample(normal(2, 3, 5, dtype="float64"), *k, **attrs),
        sample(normal(6), *k, **attrs),
        sample(empty(0, 7), *k, **attrs),
        sample(normal(3, 200), *k, **attrs, why="long rows are partitioned"),
        sample(ints(3, 200, high=9), *k, **attrs, why="long rows with ties"),
        sample(normal(3, 8), *one, **({} if k else {"k": 1})),
        sample(ints(8, dtype="uint8"), *k, **attrs),
        sample(normal(9, dtype="half"), *k, **attrs, gradient=False),
        sample(normal(9, dtype="bfloat16"), *k, **attrs, gradient=False),
        *more,
    ]


@op("TopK(input: T) -> values: T, indices: int32", k="int >= 0", sorted="bool = True", T=REAL)
class TopK:
    """The k largest elements along the last axis, largest first, and their places."""

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        return _top_k_shapes(input, s.attrs["k"])

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any]:
        return top_k(k.xp, input, k.attrs["k"], np.int32)

    def gradient(self, op: Any, dvalues: Tensor, _: Tensor) -> Tensor:
        return _top_k_gradient(op, dvalues)

    samples = [
        replace(s, tensorflow=False, why="TensorFlow 2.21 has no kernel for it") for s in _top_k_samples()
    ]


@op(
    "TopKV2(input: T, k: Tk) -> values: T, indices: index_type",
    sorted="bool = True",
    T=REAL,
    Tk=Attr("Tk", "type", allowed=_K_TYPES, default=int32),
    index_type=Attr("index_type", "type", allowed=_K_TYPES, default=int32),
)
class TopKV2:
    """The k largest elements along the last axis, largest first, and their places."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, k: TensorShape) -> list[TensorShape]:
        k.with_rank(0)
        value = s.value(1)
        return _top_k_shapes(input, None if value is None else int(value))

    def compute(self, c: KernelContext, input: Any, k: Any) -> tuple[Any, Any]:
        if k.ndim:
            raise InvalidArgumentError(None, None, f"k must be scalar, got shape {list(k.shape)}")
        return top_k(c.xp, input, int(k), c.output_dtypes[1].np)

    def gradient(self, op: Any, dvalues: Tensor, _: Tensor) -> list[Tensor | None]:
        return [_top_k_gradient(op, dvalues), None]

    samples = _top_k_samples(
        2,
        more=(
            sample(normal(3, 5), 5),
            sample(normal(3, 5), 0, gradient=False),
            sample(normal(3, 5), np.int64(2), index_type="int64", gradient=False),
        ),
    )


def _in_top_k(xp: Any, predictions: Any, targets: Any, k: int) -> Any:
    if predictions.ndim != 2:
        raise InvalidArgumentError(
            None, None, f"predictions must be 2-dimensional, got shape {list(predictions.shape)}"
        )
    if targets.ndim != 1:
        raise InvalidArgumentError(
            None, None, f"targets must be 1-dimensional, got shape {list(targets.shape)}"
        )
    if predictions.shape[0] != targets.shape[0]:
        raise InvalidArgumentError(
            None,
            None,
            f"First dimension of predictions {predictions.shape[0]} must match length of "
            f"targets {targets.shape[0]}",
        )
    n = predictions.shape[1]
    if predictions.size == 0:
        return xp.zeros(targets.shape, bool)
    can_say = (targets >= 0) & (targets < n) & xp.isfinite(predictions).all(axis=1)
    targets = xp.where(can_say, targets, 0)
    at_target = xp.take_along_axis(predictions, targets[:, None], 1)
    return can_say & ((predictions > at_target).sum(axis=1) < k)


class _InTopK:
    """Whether fewer than k classes are predicted above the target's; False for a target that is no class, or
    a row with a prediction that is not finite."""

    def shape(
        self, s: ShapeContext, predictions: TensorShape, targets: TensorShape, *_: TensorShape
    ) -> TensorShape:
        return predictions.with_rank(2)[:1].merge_with(targets.with_rank(1))


_NOT_FINITE = np.array(
    [[1, 2, 3], [1, np.inf, 0], [np.nan, 5, 1], [1, 1, 1], [5, np.nan, 7], [2, 1, 0]], np.float32
)
_TARGETS = np.array([1, 1, 1, 5, 0, -1], np.int32)


@op("InTopK(predictions: float, targets: T) -> precision: bool", k="int", T="type in {int32,int64} = int32")
class InTopK(_InTopK):
    __doc__ = _InTopK.__doc__

    def compute(self, k: KernelContext, predictions: Any, targets: Any) -> Any:
        return _in_top_k(k.xp, predictions, targets, k.attrs["k"])

    samples = [
        sample(normal(6, 5), ints(6, high=5), k=2),
        sample(_NOT_FINITE, _TARGETS, k=3),
        sample(empty(0, 4), empty(0, dtype="int64"), k=1),
    ]


@op("InTopKV2(predictions: float, targets: T, k: T) -> precision: bool", T="type in {int32,int64} = int32")
class InTopKV2(_InTopK):
    __doc__ = _InTopK.__doc__
    host_inputs = (2,)

    def shape(
        self, s: ShapeContext, predictions: TensorShape, targets: TensorShape, k: TensorShape
    ) -> TensorShape:
        k.with_rank(0)
        return super().shape(s, predictions, targets)

    def compute(self, c: KernelContext, predictions: Any, targets: Any, k: Any) -> Any:
        return _in_top_k(c.xp, predictions, targets, int(k))

    samples = [
        sample(normal(6, 5), ints(6, high=5), 2),
        sample(_NOT_FINITE, _TARGETS, 3),
        sample(normal(6, 5), ints(6, high=5, dtype="int64"), np.int64(1)),
        sample(empty(0, 4), empty(0, dtype="int32"), 1),
    ]


@op("NthElement(input: T, n: int32) -> values: T", reverse="bool = False", T=REAL)
class NthElement:
    """The element of each row that a sort would put at place n (from the top where `reverse`)."""

    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, n: TensorShape) -> TensorShape:
        n.with_rank(0)
        input, value = input.with_rank_at_least(1), s.value(1)
        if value is not None and value < 0:
            raise ValueError(f"n must be non-negative but is {value}")
        if (
            value is not None
            and input.sizes is not None
            and input.sizes[-1] is not None
            and input.sizes[-1] <= value
        ):
            raise ValueError(f"Input must have last dimension > n = {value}, and its shape is {input}")
        return input if input.sizes is None else input[:-1]

    def compute(self, k: KernelContext, input: Any, n: Any) -> Any:
        if n.ndim:
            raise InvalidArgumentError(None, None, f"N must be scalar but has rank {n.ndim}")
        if n < 0:
            raise InvalidArgumentError(None, None, f"n must be non-negative but is {n}")
        if input.ndim == 0:
            raise InvalidArgumentError(None, None, "Input must be at least rank 1 but is rank 0")
        if input.shape[-1] <= n:
            raise InvalidArgumentError(None, None, f"Input must have last dimension > n = {n}")
        place = input.shape[-1] - 1 - int(n) if k.attrs["reverse"] else int(n)
        return k.xp.partition(_sortable(k.xp, input), place, axis=-1)[..., place].astype(input.dtype)

    def gradient(self, op: Any, dvalues: Tensor) -> list[Tensor | None]:
        # Elements that equal the chosen one share its gradient.
        x = op.inputs[0]
        is_chosen = raw.Cast(raw.Equal(raw.ExpandDims(op.outputs[0], -1), x), DstT=dvalues.dtype.base_dtype)
        return [is_chosen / raw.Sum(is_chosen, -1, keep_dims=True) * raw.ExpandDims(dvalues, -1), None]

    samples = [
        sample(normal(4, 10), 3),
        sample(normal(4, 10), 0, reverse=True),
        sample(_TIES, 5, numeric=False, why="equal values share the gradient"),
        sample(normal(2, 3, 5), 4),
        sample(ints(8, dtype="int64"), 2),
        sample(normal(2, 6, dtype="bfloat16"), 1, gradient=False),
        sample(empty(0, 7), 2),
    ]
