"""Public reductions, positions, running sums, segments and counts: tf.reduce_sum, tf.argmax, tf.cumsum,
tf.segment_sum, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.math_elementwise import cast
from graphrt.core import raw
from graphrt.core.convert import convert_n_to_tensor_or_indexed_slices, convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, int8, int16, int32, int64, uint8, uint16
from graphrt.core.registry import OPS
from graphrt.core.shapes import TensorShape, as_shape
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.array_nodes import ones_of, rank_of, shape_of, size_of
from graphrt.ops.reductions import all_axes


def renamed(old_name: str, old: Any, new_name: str, new: Any) -> Any:
    """The value of an argument that has an older name too. Raises ValueError where both were given."""
    if old is None:
        return new
    if new is not None:
        raise ValueError(
            f"Cannot specify both '{new_name}' and '{old_name}': they are one argument's two names"
        )
    return old


def _reduction(name: str, op_name: str, what: str) -> Callable[..., Tensor]:
    op_def = OPS[op_name]

    def function(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Tensor:
        axis = renamed("reduction_indices", reduction_indices, "axis", axis)
        keepdims = renamed("keep_dims", keep_dims, "keepdims", keepdims)
        return _reduce(op_def, input_tensor, axis, bool(keepdims), name)

    function.__name__ = function.__qualname__ = name
    dtypes = ", ".join(d.name for d in op_def.attrs["T"].allowed) if "T" in op_def.attrs else "bool"
    function.__doc__ = (
        f"{what}\n\n    Args:\n      input_tensor: tensor ({dtypes}).\n"
        "      axis: int, list of ints or int tensor: what is reduced; all of it where None.\n"
        "      keepdims: leave a size of 1 where an axis was.\n"
        "      reduction_indices, keep_dims: older names of axis and keepdims.\n"
        "    Raises:\n      ValueError: an axis that input_tensor does not have.\n    "
    )
    return function


def _reduce(op_def: Any, x: Any, axis: Any, keepdims: bool, name: str | None) -> Tensor:
    if axis is None:
        x = convert_to_tensor(x, name="input")
        made = op_def(x, all_axes(x), keep_dims=keepdims, name=name)
    else:
        made = op_def(x, axis, keep_dims=keepdims, name=name)
    if axis is None and not keepdims and not made.shape.is_fully_defined():
        made.set_shape(())
    return made


reduce_sum = _reduction("reduce_sum", "Sum", "The sum of elements.")
reduce_mean = _reduction("reduce_mean", "Mean", "The mean of elements; of integers it is truncated.")
reduce_prod = _reduction("reduce_prod", "Prod", "The product of elements.")
reduce_max = _reduction("reduce_max", "Max", "The largest element.")
reduce_min = _reduction("reduce_min", "Min", "The smallest element.")
reduce_all = _reduction("reduce_all", "All", "True where all elements are.")
reduce_any = _reduction("reduce_any", "Any", "True where some element is.")


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of squares. Arguments as reduce_sum's."""
    return _reduce(OPS["EuclideanNorm"], input_tensor, axis, bool(keepdims), name)


def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """log(sum(exp(input_tensor))), without overflow. Arguments as reduce_sum's."""
    axis = renamed("reduction_indices", reduction_indices, "axis", axis)
    keepdims = bool(renamed("keep_dims", keep_dims, "keepdims", keepdims))
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        largest = reduce_max(input_tensor, axis=axis, keepdims=True)
        largest = raw.StopGradient(
            raw.SelectV2(raw.IsFinite(largest), largest, np.array(0, largest.dtype.np))
        )
        made = raw.Log(reduce_sum(raw.Exp(raw.Sub(input_tensor, largest)), axis=axis, keepdims=keepdims))
        if not keepdims:
            largest = raw.Reshape(largest, raw.Shape(made))
        made = raw.AddV2(made, largest, name=scope)
        if axis is None and not keepdims and not made.shape.is_fully_defined():
            made.set_shape(())
        return made


def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The mean squared distance from the mean. Arguments as reduce_sum's.

    Raises:
      TypeError: integers.
    """
    with name_scope(name or "reduce_variance"):
        x = convert_to_tensor(input_tensor)
        if x.dtype.is_integer:
            raise TypeError(f"Input must be either real or complex. Received integer type {x.dtype!r}.")
        away = x - reduce_mean(x, axis=axis, keepdims=True)
        if away.dtype.is_complex:
            squares = raw.Real(raw.Mul(raw.Conj(away), away), Tout=away.dtype.real_dtype)
        else:
            squares = raw.Square(away)
        return reduce_mean(squares, axis=axis, keepdims=keepdims)


def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of reduce_variance."""
    with name_scope(name or "reduce_std"):
        return raw.Sqrt(reduce_variance(convert_to_tensor(input_tensor), axis=axis, keepdims=keepdims))


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """The logarithm of the beta function of the last axis: sum lgamma(x) - lgamma(sum x)."""
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        return reduce_sum(raw.Lgamma(x), axis=[-1]) - raw.Lgamma(reduce_sum(x, axis=[-1]))


def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Tensor:
    """How many elements are not 0 (False, empty text), in `dtype`. Arguments as reduce_sum's."""
    input_tensor = renamed("input_tensor", input_tensor, "input", input)
    axis = renamed("reduction_indices", reduction_indices, "axis", axis)
    keepdims = bool(renamed("keep_dims", keep_dims, "keepdims", keepdims))
    with name_scope(name, "count_nonzero", [input_tensor]):
        x = convert_to_tensor(input_tensor, name="input")
        kind = x.dtype.base_dtype
        if not kind.is_bool:
            nothing = np.array(b"", object) if kind.is_object else np.zeros((), kind.np)
            x = raw.NotEqual(x, raw.Const(value=nothing, dtype=kind, name="zeros"))
        return cast(reduce_sum(cast(x, int64), axis=axis, keepdims=keepdims), dtype)


def argmax(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = int64
) -> Tensor:
    """The index of the largest element along `axis` (0 where None), the first of equals.

    Args:
      input: tensor of real numbers or bools, of rank 1 or more.
      dimension: older name of axis.
      output_type: int64 or int32 (or int16, uint16).
    """
    return raw.ArgMax(input, _position_axis(axis, dimension), output_type=as_dtype(output_type), name=name)


def argmin(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = int64
) -> Tensor:
    """The index of the smallest element along `axis` (0 where None), the first of equals. See argmax."""
    return raw.ArgMin(input, _position_axis(axis, dimension), output_type=as_dtype(output_type), name=name)


def _position_axis(axis: Any, dimension: Any) -> Any:
    axis = renamed("dimension", dimension, "axis", axis)
    if axis is None:
        return 0
    if isinstance(axis, Tensor):
        return cast(axis, int32) if axis.dtype.base_dtype in (int8, uint8, int16, uint16) else axis
    return axis


def arg_max(input: Any, dimension: Any, output_type: Any = int64, name: str | None = None) -> Tensor:
    """Older form of argmax."""
    return raw.ArgMax(input, dimension, output_type=as_dtype(output_type), name=name)


def arg_min(input: Any, dimension: Any, output_type: Any = int64, name: str | None = None) -> Tensor:
    """Older form of argmin."""
    return raw.ArgMin(input, dimension, output_type=as_dtype(output_type), name=name)


def _scan(name: str, op_name: str, default_name: str, what: str) -> Callable[..., Tensor]:
    op_def = OPS[op_name]

    def function(
        x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
    ) -> Tensor:
        with name_scope(name, default_name, [x]) as scope:
            return op_def(
                convert_to_tensor(x, name="x"), axis, exclusive=exclusive, reverse=reverse, name=scope
            )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{what}\n\n    Args:\n      axis: the axis it runs along.\n      exclusive: leave each element "
        "itself out.\n"
        "      reverse: run from the end.\n    "
    )
    return function


cumsum = _scan("cumsum", "Cumsum", "Cumsum", "The running sum of x along an axis.")
cumprod = _scan("cumprod", "Cumprod", "Cumprod", "The running product of x along an axis.")
cumulative_logsumexp = _scan(
    "cumulative_logsumexp",
    "CumulativeLogsumexp",
    "CumulativeLogsumexp",
    "The running log(sum(exp(x))) along an axis, without overflow.",
)


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors or IndexedSlices of one shape and dtype.

    Raises:
      ValueError: no inputs, or shapes that differ.
    """
    if (
        isinstance(inputs, (Tensor, IndexedSlices))
        or not hasattr(inputs, "__iter__")
        or not (inputs := list(inputs))
    ):
        raise ValueError(
            "Inputs must be an iterable of at least one Tensor/IndexedSlices with the same dtype and shape."
        )
    made = convert_n_to_tensor_or_indexed_slices(inputs)
    if len(made) == 1:
        values = convert_to_tensor(made[0])
        return raw.Identity(values, name=name) if name else values
    return raw.AddN([convert_to_tensor(m) for m in made], name=name)


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """The sum of a list of tensors, as add_n.

    Args:
      shape, tensor_dtype: what all of them must have.
    Raises:
      ValueError: no inputs, or shapes or dtypes that differ.
      TypeError: the inputs are not of `tensor_dtype`.
    """
    if not inputs or not isinstance(inputs, (list, tuple)):
        raise ValueError("inputs must be a list of at least one Tensor with the same dtype and shape")
    made = [convert_to_tensor(i) for i in inputs]
    if any(m.dtype.base_dtype is not made[0].dtype.base_dtype for m in made):
        raise ValueError(
            "inputs must be a list of at least one Tensor with the same dtype and shape: their dtypes are "
            f"{[m.dtype.base_dtype.name for m in made]}"
        )
    common = TensorShape(None) if shape is None else as_shape(shape)
    for m in made:
        common = common.merge_with(m.shape)
    if tensor_dtype is not None and as_dtype(tensor_dtype) is not made[0].dtype.base_dtype:
        raise TypeError(
            f"The `tensor_dtype` argument is {tensor_dtype!r}, but `input` is of type {made[0].dtype!r}. "
            "These must be equal"
        )
    if len(made) == 1:
        return made[0] if name is None else raw.Identity(made[0], name=name)
    return add_n(made, name=name)


def _segment(name: str, op_name: str, what: str) -> Callable[..., Tensor]:
    op_def = OPS[op_name]
    if len(op_def.inputs) == 2:

        def function(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
            return op_def(data, segment_ids, name=name)

        ids = "      segment_ids: int vector with the id of each row of data, sorted, from 0.\n"
    else:

        def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:  # type: ignore[misc]
            return op_def(data, segment_ids, num_segments, name=name)

        ids = (
            "      segment_ids: int tensor whose shape begins data's: an id for each row; negative ids "
            "drop theirs.\n"
            "      num_segments: how many ids there are.\n"
        )
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}\n\n    Args:\n{ids}    Returns:\n      Tensor with a row for each id.\n    "
    return function


segment_sum = _segment("segment_sum", "SegmentSum", "The sum of the rows of each id.")
segment_mean = _segment("segment_mean", "SegmentMean", "The mean of the rows of each id.")
segment_prod = _segment("segment_prod", "SegmentProd", "The product of the rows of each id.")
segment_max = _segment(
    "segment_max", "SegmentMax", "The largest of the rows of each id, 0 for an id that is skipped."
)
segment_min = _segment(
    "segment_min", "SegmentMin", "The smallest of the rows of each id, 0 for an id that is skipped."
)
unsorted_segment_sum = _segment(
    "unsorted_segment_sum", "UnsortedSegmentSum", "The sum of the rows of each id."
)
unsorted_segment_prod = _segment(
    "unsorted_segment_prod", "UnsortedSegmentProd", "The product of the rows of each id."
)
unsorted_segment_max = _segment(
    "unsorted_segment_max",
    "UnsortedSegmentMax",
    "The largest of the rows of each id, the dtype's lowest for an id without rows.",
)
unsorted_segment_min = _segment(
    "unsorted_segment_min",
    "UnsortedSegmentMin",
    "The smallest of the rows of each id, the dtype's highest for an id without rows.",
)


def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The mean of the rows of each id, 0 for an id without rows. Arguments as unsorted_segment_sum's."""
    with name_scope(name, "UnsortedSegmentMean"):
        total, count = _segment_totals(data, segment_ids, num_segments)
        return total / count


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """The sum of the rows of each id, divided by the root of their number. Arguments as
    unsorted_segment_sum's."""
    with name_scope(name, "UnsortedSegmentSqrtN"):
        total, count = _segment_totals(data, segment_ids, num_segments)
        return total / raw.Sqrt(count)


def _segment_totals(data: Any, segment_ids: Any, num_segments: Any) -> tuple[Tensor, Tensor]:
    """The sum of each id's rows, and how many there are (at least 1), of a shape that divides it."""
    data, segment_ids, n = (
        convert_to_tensor(data),
        convert_to_tensor(segment_ids),
        convert_to_tensor(num_segments),
    )
    count = raw.UnsortedSegmentSum(ones_of(shape_of(segment_ids), data.dtype.base_dtype), segment_ids, n)
    first = n[None]
    rest = ones_of(raw.Pack([rank_of(data) - rank_of(segment_ids)], name="ones_1/packed"), n.dtype.base_dtype)
    count = raw.Maximum(
        raw.Reshape(count, raw.ConcatV2([first, rest], 0, name="concat")), np.array(1, data.dtype.np)
    )
    return raw.UnsortedSegmentSum(data, segment_ids, num_segments), count


def _sparse_segment(name: str, op_name: str, what: str) -> Callable[..., Tensor]:
    def function(
        data: Any,
        indices: Any,
        segment_ids: Any,
        name: str | None = None,
        num_segments: Any = None,
        sparse_gradient: bool = False,
    ) -> Tensor:
        if num_segments is not None:
            return OPS[op_name + "WithNumSegments"](
                data, indices, segment_ids, num_segments, sparse_gradient=sparse_gradient, name=name
            )
        return OPS[op_name](data, indices, segment_ids, sparse_gradient=sparse_gradient, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{what}\n\n    Args:\n      indices: int vector: which rows of data are gathered.\n"
        "      segment_ids: int vector with the id of each gathered row, sorted, from 0.\n"
        "      num_segments: how many ids there are; None is up to the last.\n"
        "      sparse_gradient: the gradient of data is IndexedSlices of the gathered rows.\n    "
    )
    return function


sparse_segment_sum = _sparse_segment(
    "sparse_segment_sum", "SparseSegmentSum", "The sum of the gathered rows of each id."
)
sparse_segment_mean = _sparse_segment(
    "sparse_segment_mean", "SparseSegmentMean", "The mean of the gathered rows of each id."
)
sparse_segment_sqrt_n = _sparse_segment(
    "sparse_segment_sqrt_n",
    "SparseSegmentSqrtN",
    "The sum of the gathered rows of each id, divided by the root of their number.",
)


def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None, dtype: Any = int32
) -> Tensor:
    """How often each integer is in `arr`, or the sum of its weights.

    Args:
      arr: integers of at least 0, of any shape.
      weights: a weight for each; the counts have their dtype then.
      minlength, maxlength: bounds of the result's length, which is the largest integer's, and 1, otherwise.
      dtype: of the counts, without weights.
    """
    with name_scope("bincount"):
        arr = convert_to_tensor(arr, name="arr")
        if not arr.dtype.is_integer:
            arr = cast(arr, int32)
        kind = arr.dtype.base_dtype
        is_filled = raw.Greater(size_of(arr), 0)
        size = cast(is_filled, kind) * (reduce_max(arr) + 1)
        if minlength is not None:
            size = raw.Maximum(convert_to_tensor(minlength, name="minlength", dtype=kind), size)
        if maxlength is not None:
            size = raw.Minimum(convert_to_tensor(maxlength, name="maxlength", dtype=kind), size)
        if weights is not None:
            weights = raw.Reshape(convert_to_tensor(weights, name="weights"), [-1])
        arr = raw.Reshape(arr, [-1])
        if weights is None:
            weights = raw.Const(value=np.zeros(0, as_dtype(dtype).np), dtype=as_dtype(dtype))
        return raw.DenseBincount(arr, size, weights)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = int32, name: str | None = None
) -> Tensor:
    """How many values fall in each of `nbins` equal bins of value_range = [low, high]; those beyond count in
    the outer bins."""
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        return raw.HistogramFixedWidth(values, value_range, nbins, dtype=as_dtype(dtype), name=scope)


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = int32, name: str | None = None
) -> Tensor:
    """Which of `nbins` equal bins of value_range = [low, high] each value falls in; the outer ones take what
    is beyond."""
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        ends = convert_to_tensor(value_range, name="value_range", dtype=values.dtype.base_dtype)
        low, high = raw.Unpack(ends, num=2)
        n = cast(convert_to_tensor(nbins, dtype=int32, name="nbins"), values.dtype.base_dtype)
        bins = raw.Floor(n * ((values - low) / (high - low)), name="indices")
        return cast(raw.Minimum(raw.Maximum(bins, np.array(0, values.dtype.np)), n - 1), int32)


__all__ = [
    "accumulate_n",
    "add_n",
    "arg_max",
    "arg_min",
    "argmax",
    "argmin",
    "bincount",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "lbeta",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "sparse_segment_mean",
    "sparse_segment_sqrt_n",
    "sparse_segment_sum",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
]
