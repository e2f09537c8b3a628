"""Tensors put together, taken apart and picked from: tf.concat, tf.split, tf.gather, tf.where, tf.unique,
…"""

from __future__ import annotations

import numbers
from typing import Any

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.array_creation import ones_like
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import bool_, int32
from graphrt.core.shapes import Dimension, TensorShape
from graphrt.core.tensor import SparseTensor, Tensor
from graphrt.ops.array_indexing import boolean_mask, newaxis
from graphrt.ops.array_nodes import shape_of

__all__ = [
    "batch_gather", "boolean_mask", "concat", "dynamic_partition", "dynamic_stitch", "edit_distance",
    "gather", "gather_nd", "newaxis", "parallel_stack", "scatter_nd", "searchsorted", "setdiff1d", "slice",
    "split", "stack", "strided_slice", "tensor_scatter_add", "tensor_scatter_nd_add", "tensor_scatter_nd_max",
    "tensor_scatter_nd_min", "tensor_scatter_nd_sub", "tensor_scatter_nd_update", "tensor_scatter_sub",
    "tensor_scatter_update", "unique", "unique_with_counts", "unravel_index", "unstack", "where", "where_v2",
]


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """The tensors `values`, of one shape, side by side along a new dimension at `axis`.

    Raises:
      ValueError: axis is outside [-rank - 1, rank], or the shapes differ.
    """
    if axis == 0:
        try:
            # A list without tensors becomes one constant.
            return convert_to_tensor(values, name=name)
        except (TypeError, ValueError, NotImplementedError):
            pass  # mixed items: the Pack below converts them one by one, or says which does not fit
    n = convert_to_tensor(values[0], name=name).shape.rank
    if n is not None and not -(n + 1) <= axis <= n:
        raise ValueError(f"Argument `axis` = {axis} not in range [{-(n + 1)}, {n + 1})")
    return raw.Pack(values, axis=axis, name=name)


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """The slices of `value` along `axis`, without that dimension.

    Args:
      num: how many there are; from the static shape where None.
    Raises:
      ValueError: num is not given and not known, or axis is outside the rank.
    """
    if num is None:
        value = convert_to_tensor(value)
        sizes = value.shape.sizes
        if sizes is not None:
            if not -len(sizes) <= axis < len(sizes):
                raise ValueError(f"Argument `axis` = {axis} not in range [{-len(sizes)}, {len(sizes)})")
            num = sizes[axis]
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {value.shape}: give it")
    return raw.Unpack(value, num=num, axis=axis, name=name)


def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """The tensors `values`, of one known shape, side by side along a new first dimension."""
    with name_scope(name):
        one = convert_to_tensor(values[0])
        whole = TensorShape([len(values)]).concatenate(one.shape)
        return raw.ParallelConcat([raw.ExpandDims(v, 0) for v in values], shape=whole)


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """The tensors `values` one after the other along `axis`; they agree in all other dimensions."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    if len(values) == 1:
        with name_scope(name):
            convert_to_tensor(axis, name="concat_dim", dtype=int32).shape.assert_is_compatible_with([])
            return raw.Identity(values[0], name=name)
    return raw.ConcatV2(list(values), axis, name=name)


def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """`value` cut along `axis` into equal parts (an int), or parts of these sizes (a list or int tensor).

    Args:
      num: the number of sizes, where it is not known of a tensor.
    Raises:
      ValueError: the parts do not fit, or their number is not known.
    """
    if isinstance(num_or_size_splits, (numbers.Integral, Dimension)):
        return raw.Split(axis, value, num_split=int(num_or_size_splits), name=name)
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.shape.rank == 0:
        raise ValueError("num_or_size_splits is a scalar tensor: pass an int, or a vector of sizes")
    if num is None:
        num = sizes.shape.sizes[0] if sizes.shape.sizes else None
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {sizes.shape}: give it")
    return raw.SplitV(value, sizes, axis, num_split=num, name=name)


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """`size[i]` elements from `begin[i]` on, of each dimension i; a size of -1 is all that follow."""
    return raw.Slice(input_, begin, size, name=name)


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """`input_[begin:end:strides]` in each dimension, with Python's meaning; `x[...]` is its usual form.

    Args:
      strides: ones where None.
      begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask: bit i says that item i is open at
        its begin or end, is `...`, is a new dimension, or is one index.
      var: the variable that `input_` is of: the result has `assign(value)`, which sets its slice.
    """
    if strides is None:
        strides = ones_like(begin)
    masks = {
        "begin_mask": begin_mask,
        "end_mask": end_mask,
        "ellipsis_mask": ellipsis_mask,
        "new_axis_mask": new_axis_mask,
        "shrink_axis_mask": shrink_axis_mask,
    }
    made = raw.StridedSlice(input_, begin, end, strides, **masks, name=name)
    if var is not None:
        base = made.op.name if name is None else name.rstrip("/")

        def assign(value: Any, name: str | None = None) -> Any:
            """Set this slice of the variable to `value`."""
            return var._strided_slice_assign(
                begin=begin, end=end, strides=strides, value=value, name=name or f"{base}_assign", **masks
            )

        made.assign = assign  # type: ignore[attr-defined]
    return made


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Tensor:
    """Slices of `params` along `axis`, picked by `indices`.

    Args:
      params: tensor or variable of shape [..., n, ...], any dtype.
      indices: int32 or int64 tensor of any shape, values in [0, n).
      validate_indices: without effect; indices are always checked.
      axis: `batch_dims` where None.
      batch_dims: how many first dimensions of params and indices belong together.
    Returns:
      Tensor of shape params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis+1:].
    Raises:
      InvalidArgumentError: at run time, an index outside [0, n), with its place.
    """
    if axis is None:
        axis = batch_dims
    known = constant_value(axis) if isinstance(axis, Tensor) else axis
    if known is None or int(known) != 0:
        return raw.GatherV2(params, indices, axis, batch_dims=batch_dims, name=name)
    if hasattr(params, "sparse_read"):
        # A resource variable: its rows are read, not all of it.
        return params.sparse_read(indices, name=name)
    return raw.GatherV2(params, indices, axis, name=name)


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """gather along the last dimension of `indices`; all dimensions before it belong together.

    Raises:
      ValueError: the rank of indices is not known.
    """
    with name_scope(name, "BatchGather", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        n = indices.shape.rank
        if n is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        return raw.GatherV2(params, indices, n - 1, batch_dims=n - 1)


def gather_nd(
    params: Any, indices: Any, name: str | None = None, batch_dims: Any = 0, bad_indices_policy: str = ""
) -> Tensor:
    """The elements or slices of `params` at the places `indices`, of shape [..., k] for k dimensions.

    Args:
      batch_dims: how many first dimensions of params and indices belong together.
      bad_indices_policy: '' and ERROR fail for a place outside, IGNORE gives zeros there.
    """
    known = constant_value(batch_dims) if isinstance(batch_dims, Tensor) else batch_dims
    if known is None:
        raise ValueError("batch_dims must be known while the graph is built")
    if int(known):
        return _batch_gather_nd(params, indices, int(known), name, bad_indices_policy)
    if bad_indices_policy in ("", "DEFAULT") and hasattr(params, "gather_nd"):
        return params.gather_nd(indices, name=name)
    return raw.GatherNd(params, indices, bad_indices_policy=bad_indices_policy, name=name)


def _batch_gather_nd(params: Any, indices: Any, batch_dims: int, name: str | None, policy: str) -> Tensor:
    with name_scope(name, "BatchGatherND", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        if batch_dims < 0:
            raise ValueError("tf.gather_nd does not allow negative batch_dims.")
        for what, tensor in (("indices", indices), ("params", params)):
            if tensor.shape.rank is not None and batch_dims >= tensor.shape.rank:
                raise ValueError(
                    f"batch_dims = {batch_dims} must be less than rank({what}) = {tensor.shape.rank}"
                )
        # Batch as one dimension, whose number goes before each place.
        kind = indices.dtype.base_dtype
        shape, places = shape_of(params), shape_of(indices)
        count = raw.Prod(shape[:batch_dims], [0])
        flat = raw.Reshape(params, raw.ConcatV2([[count], shape[batch_dims:]], 0, name="concat"))
        rows = raw.Reshape(indices, raw.ConcatV2([[count], [-1], places[-1:]], 0, name="concat"))
        numbers_ = raw.Reshape(raw.Range(0, count, 1), [-1, 1, 1])
        grid = raw.Tile(numbers_, raw.Pack([1, raw.Shape(rows)[1], 1]))
        grid = grid if kind is int32 else raw.Cast(grid, DstT=kind)
        picked = raw.GatherNd(flat, raw.ConcatV2([grid, rows], -1, name="concat"), bad_indices_policy=policy)
        whole = raw.ConcatV2([places[:-1], raw.Shape(picked)[2:]], 0, name="concat")
        made = raw.Reshape(picked, whole)
        k = indices.shape.sizes[-1] if indices.shape.sizes else None
        if k is not None and params.shape.sizes is not None:
            made.set_shape(indices.shape[:-1].concatenate(params.shape[batch_dims + k :]))
        return made


def scatter_nd(
    indices: Any, updates: Any, shape: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """Zeros of `shape` with `updates` added at the places `indices`, of shape [..., k] for k dimensions."""
    return raw.ScatterNd(indices, updates, shape, bad_indices_policy=bad_indices_policy, name=name)


def tensor_scatter_nd_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """`tensor` with `updates` in place of what was at the places `indices`."""
    return raw.TensorScatterUpdate(tensor, indices, updates, name=name)


def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """`tensor` with `updates` added at the places `indices`."""
    return raw.TensorScatterAdd(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """`tensor` with `updates` subtracted at the places `indices`."""
    return raw.TensorScatterSub(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


def tensor_scatter_nd_max(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """`tensor` with the larger of it and `updates` at the places `indices`."""
    return raw.TensorScatterMax(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


def tensor_scatter_nd_min(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """`tensor` with the smaller of it and `updates` at the places `indices`."""
    return raw.TensorScatterMin(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


tensor_scatter_update = tensor_scatter_nd_update
tensor_scatter_add = tensor_scatter_nd_add
tensor_scatter_sub = tensor_scatter_nd_sub


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """`x` where the condition holds, else `y`; without them the coordinates, [n, rank], where it holds.

    x and y have one shape; the condition has it too, or is a scalar, or a vector that chooses among rows.
    Raises:
      ValueError: one of x and y is given.
    """
    return _where(raw.Select, condition, x, y, name)


def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """`where`, with condition, x and y broadcast as NumPy's do."""
    return _where(raw.SelectV2, condition, x, y, name)


def _where(select: Any, condition: Any, x: Any, y: Any, name: str | None) -> Tensor:
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as name:
            condition = convert_to_tensor(condition, preferred_dtype=bool_, name="condition")
            return raw.Where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return select(condition, x, y, name=name)


def unique(x: Any, out_idx: Any = int32, name: str | None = None) -> Any:
    """(y, idx): the distinct elements of a vector as they first come, and for each element which it is."""
    return _named(raw.Unique(x, out_idx=out_idx, name=name), "Unique", "y idx")


def unique_with_counts(x: Any, out_idx: Any = int32, name: str | None = None) -> Any:
    """(y, idx, count): unique, and how often each comes."""
    return _named(raw.UniqueWithCounts(x, out_idx=out_idx, name=name), "UniqueWithCounts", "y idx count")


def setdiff1d(x: Any, y: Any, index_dtype: Any = int32, name: str | None = None) -> Any:
    """(out, idx): the elements of the vector `x` that are not in `y`, and where in x they are."""
    return _named(raw.ListDiff(x, y, out_idx=index_dtype, name=name), "ListDiff", "out idx")


_result_types: dict[str, Any] = {}


def _named(outputs: list[Tensor], kind: str, fields: str) -> Any:
    """The outputs as a named tuple, which programs unpack or read by name."""
    made = _result_types.get(kind)
    if made is None:
        from collections import namedtuple

        made = _result_types[kind] = namedtuple(kind, fields)  # noqa: PYI024
    return made(*outputs)


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """The slices of `data` in `num_partitions` tensors: each goes where `partitions` says, in order."""
    return raw.DynamicPartition(data, partitions, num_partitions=num_partitions, name=name)


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """One tensor of the slices of the tensors `data`: each goes to the row that `indices` says; a later one
    wins."""
    return raw.DynamicStitch(list(indices), list(data), name=name)


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = int32, name: str | None = None
) -> Tensor:
    """For each of `values` the place in its row of `sorted_sequence` where it could stand.

    Args:
      sorted_sequence, values: of one dtype, with one shape but for the last dimension.
      side: 'left', the first such place, or 'right', the last.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be either 'right' or 'left', not {side!r}")
    last, most = _static_shape(sorted_sequence)[-1], _static_shape(values)[-1]
    rows = raw.Reshape(sorted_sequence, [-1, last])
    wanted = raw.Reshape(values, [-1, most])
    bound = raw.UpperBound if side == "right" else raw.LowerBound
    return raw.Reshape(bound(rows, wanted, out_type=out_type, name=name), _static_shape(values))


def _static_shape(input: Any) -> Tensor:
    """The shape of `input`, under a scope of its own: a constant where it is known."""
    with name_scope(None, "Shape", [input]) as name:
        input = convert_to_tensor(input)
        if input.shape.is_fully_defined():
            return convert_to_tensor(input.shape, name="shape_as_tensor")
        return raw.Shape(input, name=name)


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Tensor:
    """The coordinates, [rank, ...], of flat `indices` into a tensor of shape `dims`."""
    return raw.UnravelIndex(indices, dims, name=name)


def edit_distance(hypothesis: Any, truth: Any, normalize: bool = True, name: str = "edit_distance") -> Tensor:
    """The Levenshtein distance of each pair of sequences, which are the last dimension of two SparseTensors.

    Args:
      normalize: divide by the length of the truth.
    Raises:
      TypeError: one of the two is no SparseTensor.
    """
    parts: list[Any] = []
    for what, given in (("Hypothesis", hypothesis), ("Truth", truth)):
        if not isinstance(given, SparseTensor) and not hasattr(given, "_fields"):
            raise TypeError(f"{what} must be a SparseTensor.")
        parts += [given.indices, given.values, given.dense_shape]
    return raw.EditDistance(*parts, normalize=normalize, name=name)
