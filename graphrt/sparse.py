"""tf.sparse: sparse tensors added, joined, sliced, reduced and multiplied. They build nodes.

Each function takes SparseTensors (or SparseTensorValues, which become constants) with entries in row-major
order, unless it says otherwise; `reorder` puts them in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.array_creation import sparse_placeholder as placeholder
from graphrt.api.array_creation import zeros
from graphrt.api.math_elementwise import cast
from graphrt.api.math_reduce import renamed, sparse_segment_mean, sparse_segment_sqrt_n, sparse_segment_sum
from graphrt.core import raw
from graphrt.core.constant_value import constant_value, constant_value_as_shape
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, float32, int32, int64, string
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor
from graphrt.ops.array_nodes import int_constant, ones_of, shape_of
from graphrt.ops.broadcasting import cast_to

__all__ = [
    "SparseTensor", "add", "concat", "expand_dims", "eye", "fill_empty_rows", "from_dense", "mask", "matmul",
    "maximum", "merge", "minimum", "placeholder", "reduce_max", "reduce_max_sparse", "reduce_sum",
    "reduce_sum_sparse", "reorder", "reset_shape", "reshape", "retain", "slice", "softmax", "segment_mean",
    "segment_sqrt_n", "segment_sum", "sparse_dense_matmul", "split", "to_dense", "to_indicator", "transpose",
]


def _sparse(value: Any) -> SparseTensor:
    if isinstance(value, SparseTensor):
        return value
    if _is_sparse(value):
        return SparseTensor(value.indices, value.values, value.dense_shape)
    raise TypeError(f"Input must be a SparseTensor, not {type(value).__name__}.")


def _is_sparse(value: Any) -> bool:
    """True for SparseTensors and SparseTensorValues, which are named tuples."""
    return isinstance(value, SparseTensor) or getattr(value, "_fields", None) == (
        "indices",
        "values",
        "dense_shape",
    )


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of `tensor` that are not 0, as a SparseTensor."""
    with name_scope(name, "dense_to_sparse"):
        tensor = convert_to_tensor(tensor)
        indices = raw.Where(raw.NotEqual(tensor, raw.ZerosLike(tensor)))
        return SparseTensor(indices, raw.GatherNd(tensor, indices), shape_of(tensor, int64))


def to_dense(
    sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """A dense tensor with `default_value` (0) where there is no entry.

    Args:
      validate_indices: an error, in a step, for entries out of order or repeated.
    """
    sp = _sparse(sp_input)
    if default_value is None:
        default_value = zeros([], dtype=sp.dtype)
    return raw.SparseToDense(
        sp.indices, sp.dense_shape, sp.values, default_value, validate_indices=validate_indices, name=name
    )


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """A tensor of `output_shape` with `default_value` everywhere but at `sparse_indices`, where
    `sparse_values` are.

    Args:
      sparse_indices: places, [n, rank]; a vector or a scalar for one dimension.
      sparse_values: a value for each place, or one for all.
    """
    return raw.SparseToDense(
        sparse_indices,
        output_shape,
        sparse_values,
        default_value,
        validate_indices=validate_indices,
        name=name,
    )


def reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """The same sparse tensor with its entries in row-major order."""
    sp = _sparse(sp_input)
    indices, values = raw.SparseReorder(sp.indices, sp.values, sp.dense_shape, name=name)
    if sp.shape.is_fully_defined():
        return SparseTensor(indices, values, sp.shape.as_list())
    made = SparseTensor(indices, values, raw.Identity(sp.dense_shape))
    made.set_shape(sp.shape)
    return made


def reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """The sparse tensor reshaped to `shape`, in which one size may be -1.

    Raises:
      ValueError: the numbers of places differ, where they are known.
    """
    sp = _sparse(sp_input)
    shape = cast(shape, int64)
    with name_scope(name, "SparseReshape", [sp.values]) as name:
        indices, made_shape = raw.SparseReshape(sp.indices, sp.dense_shape, shape, name=name)
        wanted, given = constant_value_as_shape(shape), constant_value(shape)
        if wanted.sizes is not None and sp.shape.is_fully_defined():
            sizes, whole = list(wanted.sizes), sp.shape.num_elements()
            if given is not None and list(given).count(-1) > 1:
                raise ValueError(f"At most one dimension can be inferred (-1). Found: {list(given)}")
            if sizes.count(None) == 1 and 0 not in sizes:
                rest = int(np.prod([d for d in sizes if d is not None]))
                sizes[sizes.index(None)] = whole // rest  # type: ignore[operator]
            if None not in sizes:
                if int(np.prod(sizes)) != whole:  # type: ignore[arg-type]
                    raise ValueError(f"Cannot reshape a tensor with {whole} elements to shape {wanted}.")
                made_shape = convert_to_tensor(sizes, dtype=int64)
        return SparseTensor(indices, raw.Identity(sp.values), made_shape)


def concat(
    axis: int,
    sp_inputs: Any,
    name: str | None = None,
    expand_nonconcat_dim: bool = False,
    concat_dim: int | None = None,
    expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:
    """The sparse tensors one after the other along `axis`.

    Args:
      expand_nonconcat_dim: let the other dimensions differ: the largest counts. `expand_nonconcat_dims` is
        its newer name, `concat_dim` an older one of `axis`.
    """
    axis = renamed("concat_dim", concat_dim, "axis", axis)
    expands = expand_nonconcat_dim if expand_nonconcat_dims is None else expand_nonconcat_dims
    parts = [_sparse(s) for s in sp_inputs]
    if len(parts) == 1:
        return parts[0]
    shapes = [s.dense_shape for s in parts]
    known = [s.shape for s in parts]
    if expands:
        largest = raw.Max(raw.Pack(shapes), [0])
        behind = None if axis == -1 else axis + 1
        shapes = [
            raw.ConcatV2(
                [largest[:axis], shape[axis:behind], *([] if behind is None else [largest[behind:]])],
                0,
                name="concat",
            )
            for shape in shapes
        ]
    indices, values, shape = raw.SparseConcat(
        [s.indices for s in parts], [s.values for s in parts], shapes, concat_dim=axis, name=name
    )
    whole = TensorShape(None)
    if all(k.rank is not None for k in known):
        rows = [list(k.sizes) for k in known]  # type: ignore[arg-type]
        sizes = [None if None in column else max(column) for column in zip(*rows)] if expands else rows[0]
        column = [row[axis] for row in rows]
        sizes[axis] = None if None in column else sum(column)
        whole = TensorShape(sizes)
    if whole.is_fully_defined():
        shape = convert_to_tensor(whole.as_list(), dtype=int64)
    made = SparseTensor(indices, values, shape)
    made.set_shape(whole)
    return made


def split(
    keyword_required: Any = None,
    sp_input: Any = None,
    num_split: int | None = None,
    axis: int | None = None,
    name: str | None = None,
    split_dim: int | None = None,
) -> list[SparseTensor]:
    """The sparse tensor cut into `num_split` parts along `axis`; the first are one longer where it does not
    divide.

    Its arguments go by name.
    """
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    axis = renamed("split_dim", split_dim, "axis", axis)
    for what, value in (("sp_input", sp_input), ("num_split", num_split), ("axis", axis)):
        if value is None:
            raise ValueError(f"{what} is required")
    sp = _sparse(sp_input)
    parts = raw.SparseSplit(axis, sp.indices, sp.values, sp.dense_shape, num_split=num_split, name=name)
    return [SparseTensor(*part) for part in zip(*parts)]


def slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """The entries in the box of `size` from `start` on."""
    sp = _sparse(sp_input)
    start, size = convert_to_tensor(start, int64), convert_to_tensor(size, int64)
    with name_scope(name, "SparseSlice", [sp.values]) as name:
        return SparseTensor(*raw.SparseSlice(sp.indices, sp.values, sp.dense_shape, start, size, name=name))


def add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two sparse tensors (a SparseTensor), or of a sparse and a dense one of one shape (a Tensor).

    Args:
      threshold: entries of a sparse sum whose magnitude is below it are left out. `thresh` is its older name.
    """
    threshold = renamed("thresh", thresh, "threshold", threshold)
    if not _is_sparse(a) and not _is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if _is_sparse(a) and _is_sparse(b):
        a, b = _sparse(a), _sparse(b)
        least = 0 if threshold is None else threshold
        least = convert_to_tensor(least, dtype=a.dtype.base_dtype.real_dtype, name="threshold")
        indices, values, shape = raw.SparseAdd(
            a.indices, a.values, a.dense_shape, b.indices, b.values, b.dense_shape, least
        )
        known = a.shape.merge_with(b.shape)
        return SparseTensor(indices, values, known.as_list() if known.is_fully_defined() else shape)
    sp, dense = (a, b) if _is_sparse(a) else (b, a)
    sp = _sparse(sp)
    return raw.SparseTensorDenseAdd(sp.indices, sp.values, sp.dense_shape, dense)


def _reduction(op_name: str, sp_input: Any, axis: Any, keepdims: Any, old_axis: Any, old_keep: Any) -> Any:
    axis = renamed("reduction_axes", old_axis, "axis", axis)
    keepdims = bool(renamed("keep_dims", old_keep, "keepdims", keepdims))
    sp = _sparse(sp_input)
    if axis is None:
        n = sp.dense_shape.shape.sizes[0]  # type: ignore[index]
        axis = int_constant(np.arange(n)) if n is not None else raw.Range(0, raw.Size(sp.dense_shape), 1)
    return getattr(raw, op_name)(sp.indices, sp.values, sp.dense_shape, axis, keep_dims=keepdims)


def reduce_sum(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Tensor:
    """The dense sum over `axis` (all, where None)."""
    return _reduction("SparseReduceSum", sp_input, axis, keepdims, reduction_axes, keep_dims)


def reduce_max(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Tensor:
    """The dense maximum of the entries over `axis` (all, where None); 0 where there are none."""
    return _reduction("SparseReduceMax", sp_input, axis, keepdims, reduction_axes, keep_dims)


def reduce_sum_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> SparseTensor:
    """reduce_sum, as a SparseTensor."""
    return SparseTensor(
        *_reduction("SparseReduceSumSparse", sp_input, axis, keepdims, reduction_axes, keep_dims)
    )


def reduce_max_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> SparseTensor:
    """reduce_max, as a SparseTensor."""
    return SparseTensor(
        *_reduction("SparseReduceMaxSparse", sp_input, axis, keepdims, reduction_axes, keep_dims)
    )


def to_indicator(sp_input: Any, vocab_size: int, name: str | None = None) -> Tensor:
    """A bool tensor that is True at the ids (the values) of each row; ids are in [0, vocab_size)."""
    sp = _sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sp.values]) as name:
        count = shape_of(sp.indices)[0]
        present = raw.Fill(raw.ExpandDims(count, 0), True)
        ids = merge(sp, SparseTensor(sp.indices, present, sp.dense_shape), vocab_size, name=name)
        return to_dense(ids, default_value=False, validate_indices=False, name=name)


def merge(
    sp_ids: Any, sp_values: Any, vocab_size: Any, name: str | None = None, already_sorted: bool = False
) -> SparseTensor:
    """`sp_values` with the last index replaced by the values of `sp_ids` (or indices by those of a list of
    them).

    Args:
      vocab_size: the size of the new last dimension, or a list of sizes.
      already_sorted: leave the entries in the order they are.
    """
    several = isinstance(sp_ids, (list, tuple)) and not _is_sparse(sp_ids)
    ids = list(sp_ids) if several else [sp_ids]
    sizes = list(vocab_size) if several else [vocab_size]
    if len(ids) != len(sizes):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    with name_scope(name, "SparseMerge"):
        parts, values = [_sparse(i) for i in ids], _sparse(sp_values)
        columns = [raw.ExpandDims(cast_to(p.values, int64), 1) for p in parts]
        sizes = [cast(n, int64) for n in sizes]
        kept = parts[0].indices[:, :-1]
        indices = raw.ConcatV2([kept, *columns], 1, name="concat")
        shape = raw.ConcatV2([parts[0].dense_shape[:-1], sizes], 0, name="concat")
        made = SparseTensor(indices, values.values, shape)
        if already_sorted:
            return made
        ordered = reorder(made)
        return SparseTensor(ordered.indices, ordered.values, shape)


def retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """The entries for which `to_retain`, a bool vector, is True."""
    sp = _sparse(sp_input)
    to_retain = convert_to_tensor(to_retain)
    to_retain.shape.with_rank(1).assert_is_compatible_with(sp.values.shape)
    chosen = raw.Reshape(raw.Where(to_retain), [-1])
    return SparseTensor(
        raw.GatherV2(sp.indices, chosen, 0), raw.GatherV2(sp.values, chosen, 0), raw.Identity(sp.dense_shape)
    )


def reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """The same entries in another dense shape, which holds them: the smallest one that does, where None.

    Raises:
      ValueError: a size below the known one. In a step, an InvalidArgumentError.
    """
    sp = _sparse(sp_input)
    indices, values, old = raw.Identity(sp.indices), raw.Identity(sp.values), raw.Identity(sp.dense_shape)
    if new_shape is None:
        low = raw.Max(indices, [0])
        one = ones_of(shape_of(old), int64)
        return SparseTensor(
            indices, values, raw.Maximum(raw.Const(value=np.array(0), dtype=int64), low + one)
        )
    wanted = cast_to(convert_to_tensor(new_shape), int64)
    wanted.shape.with_rank(1).assert_is_compatible_with(old.shape)
    known = constant_value(wanted)
    if known is not None and sp.shape.is_fully_defined():
        sizes = np.array(sp.shape.as_list())
        if (sizes > known).any():
            raise ValueError(
                "Requested new_shape should have dimension sizes >= sp_input.shape. "
                f"Found new_shape ({known.tolist()}), sp_input.shape ({sizes.tolist()})."
            )
        return SparseTensor(indices, values, known)
    holds = raw.All(raw.LessEqual(old, wanted), [0])
    check = raw.Assert(holds, ["reset_shape: a size is below that of the sparse tensor", old, wanted])
    with wanted.graph.control_dependencies([check]):
        return SparseTensor(indices, values, raw.Identity(wanted))


def fill_empty_rows(
    sp_input: Any, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """The sparse matrix with `default_value` in the first column of rows without entries, and a bool for each
    row that says whether it had none."""
    sp = _sparse(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sp.values]):
        default_value = convert_to_tensor(default_value, dtype=sp.dtype.base_dtype)
        indices, values, was_empty, _ = raw.SparseFillEmptyRows(
            sp.indices, sp.values, sp.dense_shape, default_value
        )
        return SparseTensor(indices, values, sp.dense_shape), was_empty


def sparse_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """The sparse matrix times the dense one (or a dense one times a sparse one); adjoints are conjugate
    transposes."""
    if _is_sparse(b):
        # (a b)^T = b^T a^T.
        flips = (adjoint_a, adjoint_b) if adjoint_a != adjoint_b else (not adjoint_a, not adjoint_b)
        return raw.Transpose(sparse_dense_matmul(b, sp_a, *flips), [1, 0], name="transpose")
    sp = _sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sp.indices, sp.values, b]):
        b = convert_to_tensor(b, name="b")
        return raw.SparseTensorDenseMatMul(
            sp.indices, sp.values, sp.dense_shape, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b
        )


matmul = sparse_dense_matmul
segment_mean, segment_sqrt_n, segment_sum = sparse_segment_mean, sparse_segment_sqrt_n, sparse_segment_sum


def softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Softmax over the entries that share all indices but the last."""
    sp = _sparse(sp_input)
    with name_scope(name, "SparseSoftmax", [sp.indices, sp.values]):
        return sp.with_values(raw.SparseSoftmax(sp.indices, sp.values, sp.dense_shape))


def _larger_or_smaller(op_name: str, a: Any, b: Any, name: str | None) -> SparseTensor:
    a, b = _sparse(a), _sparse(b)
    with name_scope(name, op_name, [a.indices, a.values, b.indices, b.values]) as name:
        made = getattr(raw, op_name)(
            a.indices, a.values, a.dense_shape, b.indices, b.values, b.dense_shape, name=name
        )
    return SparseTensor(*made, a.dense_shape)


def maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The larger of two sparse tensors, element by element."""
    return _larger_or_smaller("SparseSparseMaximum", sp_a, sp_b, name)


def minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The smaller of two sparse tensors, element by element."""
    return _larger_or_smaller("SparseSparseMinimum", sp_a, sp_b, name)


def transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """The sparse tensor with its dimensions in the order `perm`, reversed where None; entries in order."""
    sp = _sparse(sp_input)
    with name_scope(name, "SparseTranspose", [sp.values]):
        if perm is None:
            n = sp.shape.rank
            perm = (
                np.arange(n - 1, -1, -1, dtype=np.int32)
                if n is not None
                else (raw.Range(raw.Size(sp.dense_shape) - 1, -1, -1))
            )
        perm = convert_to_tensor(perm)
        indices = raw.GatherV2(sp.indices, perm, 1)
        known = constant_value(perm)
        if known is not None and sp.shape.is_fully_defined():
            shape: Any = [sp.shape.as_list()[p] for p in known]
        else:
            shape = raw.GatherV2(sp.dense_shape, perm, 0)
        return reorder(SparseTensor(indices, sp.values, shape))


def expand_dims(sp_input: Any, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """The sparse tensor with a dimension of size 1 put in at `axis` (last, where None)."""
    sp = _sparse(sp_input)
    n = sp.dense_shape.shape.sizes[0]  # type: ignore[index]
    if n is None:
        raise ValueError("expand_dims needs the rank of the sparse tensor")
    at = -1 if axis is None else axis
    if not -n - 1 <= at <= n:
        raise ValueError(f"axis {at} must be in [{-n - 1}, {n}]")
    at += n + 1 if at < 0 else 0
    with name_scope(name, "expand_dims", [sp.values]):
        zeros = raw.Fill(raw.Pack([shape_of(sp.indices)[0], 1]), raw.Const(value=np.array(0), dtype=int64))
        indices = raw.ConcatV2([sp.indices[:, :at], zeros, sp.indices[:, at:]], 1, name="concat")
        one = raw.Const(value=np.array([1]), dtype=int64, name="new_shape")
        shape = raw.ConcatV2([sp.dense_shape[:at], one, sp.dense_shape[at:]], 0, name="concat")
        return SparseTensor(indices, sp.values, shape)


def eye(
    num_rows: Any, num_columns: Any = None, dtype: Any = float32, name: str | None = None
) -> SparseTensor:
    """The identity matrix, or its first rows and columns."""
    with name_scope(name, "eye", [num_rows, num_columns]):
        rows = cast_to(convert_to_tensor(num_rows, name="num_rows"), int64)
        columns = (
            rows
            if num_columns is None
            else cast_to(convert_to_tensor(num_columns, name="num_columns"), int64)
        )
        n = raw.Minimum(rows, columns)
        numbers = raw.Range(
            raw.Const(value=np.array(0), dtype=int64), n, raw.Const(value=np.array(1), dtype=int64)
        )
        values = ones_of(raw.Reshape(n, [1]), as_dtype(dtype).base_dtype)
        return SparseTensor(raw.Pack([numbers, numbers], axis=1), values, raw.Pack([rows, columns]))


def mask(a: IndexedSlices, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """The slices of `a` whose index is not among `mask_indices`."""
    with name_scope(name, "sparse_mask", [a.values, mask_indices]) as name:
        indices, places = raw.ListDiff(a.indices, mask_indices, out_idx=int32)
        return IndexedSlices(raw.GatherV2(a.values, places, 0, name=name), indices, a.dense_shape)


def serialize_sparse(sp_input: Any, name: str | None = None, out_type: Any = string) -> Tensor:
    """The sparse tensor as three strings."""
    sp = _sparse(sp_input)
    return raw.SerializeSparse(sp.indices, sp.values, sp.dense_shape, out_type=out_type, name=name)


def serialize_many_sparse(sp_input: Any, name: str | None = None, out_type: Any = string) -> Tensor:
    """Each row of the sparse tensor, along its first dimension, as three strings: [n, 3]."""
    sp = _sparse(sp_input)
    return raw.SerializeManySparse(sp.indices, sp.values, sp.dense_shape, out_type=out_type, name=name)


def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """One sparse tensor of the rows that serialize_many_sparse makes, of `rank`; the largest sizes count."""
    indices, values, shape = raw.DeserializeManySparse(serialized_sparse, dtype=dtype, name=name)
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
