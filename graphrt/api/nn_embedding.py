"""Of tf.nn: rows of tables (embeddings), of tables cut into parts too, and sums of rows for sparse ids.

Row i of a table in n parts lies in part i % n ('mod'), or in contiguous ranges ('div'), which parts of a
PartitionedVariable are.
"""

from __future__ import annotations

from typing import Any

from graphrt import clip
from graphrt.api import array_api, math_api
from graphrt.core import raw
from graphrt.core.convert import convert_n_to_tensor_or_indexed_slices, convert_to_tensor
from graphrt.core.default_graph import colocate_with, device, name_scope
from graphrt.core.dtypes import bfloat16, bool_, float16, float32, int32, int64
from graphrt.core.shapes import unknown
from graphrt.core.tensor import SparseTensor, Tensor
from graphrt.variables.partitioned_variable import PartitionedVariable
from graphrt.variables.resource_variable import BaseResourceVariable

__all__ = ["embedding_lookup", "embedding_lookup_sparse", "safe_embedding_lookup_sparse"]


def _parts(params: Any, what: str = "params") -> list[Any]:
    """The parts of a table: those of a PartitionedVariable, of a list, or the table itself."""
    if params is None:
        raise ValueError(f"{what} must be specified")
    if isinstance(params, PartitionedVariable):
        return list(params)
    if not isinstance(params, (list, tuple)):
        return [params]
    if not params:
        raise ValueError(f"Length of {what} is currently 0. Need at least one.")
    return list(params)


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Tensor:
    """Rows of `params` at `ids`.

    Args:
      params: a table [rows, ...], or a list of them or a PartitionedVariable: parts of one table, cut as
        `partition_strategy` says.
      ids: int32 or int64 tensor, values in [0, rows).
      partition_strategy: 'mod': row i is in part i % n. 'div': parts are contiguous, the first ones a row
        longer where rows do not divide.
      validate_indices: not used.
      max_norm: scale rows of a larger L2 norm down to it.
    Returns:
      Tensor of shape ids.shape + params.shape[1:].
    Raises:
      ValueError: no params, or another strategy.
      InvalidArgumentError: at run time, an id outside the table.
    """
    params = _parts(params)
    with name_scope(name, "embedding_lookup", [*params, ids]) as name:
        if not any(isinstance(p, BaseResourceVariable) for p in params):
            params = convert_n_to_tensor_or_indexed_slices(params, name="params")
        ids = convert_to_tensor(ids, name="ids")
        if len(params) == 1:
            with colocate_with(params[0]):
                rows = _clipped(array_api.gather(params[0], ids, name=name), ids, max_norm)
            return array_api.identity(rows)
        return _clipped(_from_parts(params, ids, partition_strategy, name), ids, max_norm)


def _from_parts(params: list[Any], ids: Tensor, strategy: str, name: str) -> Tensor:
    n = len(params)
    flat = array_api.reshape(ids, [-1])
    places = math_api.range(array_api.size(flat))
    if strategy == "mod":
        part, row = flat % n, flat // n
    elif strategy == "div":
        part, row = _contiguous(params, flat)
    else:
        raise ValueError(
            f"Unrecognized partition strategy: {strategy}. Must be one of either `mod` or `div`."
        )
    part = math_api.cast(part, int32)
    rows_of = raw.DynamicPartition(row, part, num_partitions=n)
    places_of = raw.DynamicPartition(places, part, num_partitions=n)
    found = []
    for param, rows in zip(params, rows_of):
        with device(None), colocate_with(param):
            found.append(array_api.gather(param, rows))
    made = raw.ParallelDynamicStitch(places_of, found, name=name)
    row_shape = params[0].get_shape()[1:]
    for param in params[1:]:
        row_shape = row_shape.merge_with(param.get_shape()[1:])
    if row_shape.is_fully_defined():
        sizes: Any = row_shape.as_list()
    else:
        with colocate_with(params[0]):
            whole = array_api.shape(params[0])
        sizes = whole[1:]
    made = array_api.reshape(made, array_api.concat([array_api.shape(ids), sizes], 0))
    made.set_shape(ids.shape.concatenate(row_shape))
    return made


def _contiguous(params: list[Any], ids: Tensor) -> tuple[Tensor, Tensor]:
    """(part, row within it) of each id of a table cut into contiguous parts."""
    n = len(params)
    lengths = [p.get_shape()[0].value for p in params]
    if None not in lengths:
        total = array_api.constant(sum(lengths), ids.dtype)
    else:
        for i, param in enumerate(params):
            if lengths[i] is None:
                with colocate_with(param):
                    lengths[i] = array_api.shape(param)[0]
        total = math_api.reduce_sum(math_api.cast(array_api.stack(lengths), ids.dtype))
    short, extras = total // n, total % n
    part = math_api.maximum(ids // (short + 1), (ids - extras) // short)
    # The first `extras` parts are a row longer.
    row = array_api.where(part < extras, ids % (short + 1), (ids - extras) % short)
    return part, row


def _clipped(rows: Tensor, ids: Any, max_norm: float | None) -> Tensor:
    """`rows`, each scaled down where its norm is larger than `max_norm`."""
    if max_norm is None:
        return rows
    (begin, begin_known), (end, end_known) = _rank(ids), _rank(rows)
    axes = list(range(begin, end)) if begin_known and end_known else math_api.range(begin, end)
    return clip.clip_by_norm(rows, max_norm, axes=axes)


def _rank(x: Any) -> tuple[Any, bool]:
    rank = convert_to_tensor(x).shape.rank
    return (rank, True) if rank else (array_api.rank(x), False)


def embedding_lookup_sparse(
    params: Any,
    sp_ids: SparseTensor,
    sp_weights: SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> Tensor:
    """For each row of `sp_ids` the weighted sum of the rows of `params` at its ids.

    Args:
      params, partition_strategy, max_norm: see embedding_lookup.
      sp_ids: SparseTensor [rows, any] of int ids; every row must have one.
      sp_weights: SparseTensor of the same indices; None is 1 everywhere.
      combiner: 'sum'; 'mean' (the default), the sum over the sum of weights; 'sqrtn', the sum over the root
        of the sum of squared weights.
      allow_fast_lookup: do not look up equal ids only once where there are weights.
    Returns:
      Tensor [rows, ...].
    Raises:
      TypeError, ValueError: arguments of other kinds, shapes that do not fit, another combiner.
    """
    combiner = "mean" if combiner is None else combiner
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner}")
    params = _parts(params)
    if not isinstance(sp_ids, SparseTensor):
        raise TypeError(f"sp_ids must be SparseTensor, got {type(sp_ids)}")
    if sp_weights is not None:
        if not isinstance(sp_weights, SparseTensor):
            raise TypeError(f"sp_weights must be either None or SparseTensor, got {type(sp_weights)}")
        for of_ids, of_weights in (
            (sp_ids.values, sp_weights.values),
            (sp_ids.indices, sp_weights.indices),
            (sp_ids.dense_shape, sp_weights.dense_shape),
        ):
            of_ids.shape.assert_is_compatible_with(of_weights.shape)
    with name_scope(name, "embedding_lookup_sparse", [*params, sp_ids]) as name:
        rows, ids = convert_to_tensor(sp_ids.indices[:, 0], name="segment_ids"), sp_ids.values
        embeddings, places, is_direct = _looked_up(
            params, rows, ids, sp_weights, partition_strategy, max_norm, allow_fast_lookup
        )
        if sp_weights is not None:
            return _weighted(embeddings, places, rows, sp_weights.values, combiner, name)
        if rows.dtype.base_dtype not in (int32, int64):
            rows = math_api.cast(rows, int32)
        combine = {
            "sum": raw.SparseSegmentSum,
            "mean": raw.SparseSegmentMean,
            "sqrtn": raw.SparseSegmentSqrtN,
        }[combiner]
        return combine(embeddings, places, rows, sparse_gradient=is_direct, name=name)


def _looked_up(
    params: list[Any],
    rows: Tensor,
    ids: Tensor,
    weights: Any,
    strategy: str,
    max_norm: float | None,
    is_fast: bool,
) -> tuple[Any, Tensor, bool]:
    """(table, the place in it of each id, whether it is the whole table, whose gradient must be sparse).

    One table on the ids' device is used as it is; of others the rows that are needed are fetched, each once.
    """
    if len(params) == 1 and max_norm is None and (is_fast or weights is None):
        table = convert_to_tensor(params[0], name="params")
        if table.device == rows.device:
            return table, ids, not is_fast
    ids, places = raw.Unique(ids)
    return embedding_lookup(params, ids, partition_strategy=strategy, max_norm=max_norm), places, False


def _weighted(
    embeddings: Any, places: Tensor, rows: Tensor, weights: Tensor, combiner: str, name: str
) -> Tensor:
    if rows.dtype.base_dtype is not int32:
        rows = math_api.cast(rows, int32)
    embeddings = array_api.gather(embeddings, places)
    dtype = embeddings.dtype.base_dtype
    if dtype in (float16, bfloat16):
        embeddings = math_api.cast(embeddings, float32)
    if weights.dtype.base_dtype is not embeddings.dtype.base_dtype:
        weights = math_api.cast(weights, embeddings.dtype)
    # One weight a row: sizes of 1 for the embeddings' other axes.
    others = array_api.expand_dims(array_api.rank(embeddings) - 1, 0)
    shape = array_api.shape(weights)
    static = weights.shape
    weights = array_api.reshape(
        weights, array_api.concat([shape, array_api.ones(others, dtype=shape.dtype)], 0)
    )
    if embeddings.shape.rank is not None:
        weights.set_shape(static.concatenate([1] * (embeddings.shape.rank - 1)))
    embeddings *= weights
    if combiner == "sum":
        made = raw.SegmentSum(embeddings, rows, name=name)
    else:
        total = raw.SegmentSum(embeddings, rows)
        if combiner == "mean":
            norm = raw.SegmentSum(weights, rows)
        else:
            norm = math_api.sqrt(raw.SegmentSum(math_api.pow(weights, 2), rows))
        made = math_api.div_no_nan(total, norm, name=name)
    return made if made.dtype.base_dtype is dtype else math_api.cast(made, dtype)


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: SparseTensor,
    sparse_weights: SparseTensor | None = None,
    combiner: str = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> Tensor:
    """embedding_lookup_sparse that leaves out ids below 0 and weights that are not positive, and takes empty
    rows.

    Args:
      sparse_ids: SparseTensor of rank 2 or more; ids are combined along its last axis.
      default_id: the id of a row without any; None gives zeros.
    Returns:
      Tensor of shape sparse_ids.shape[:-1] + embedding_weights.shape[1:].
    """
    tables = _parts(embedding_weights, "embedding_weights")
    dtype = None if sparse_weights is None else sparse_weights.dtype.base_dtype
    tables = [
        w
        if isinstance(w, BaseResourceVariable) and dtype in (None, w.dtype.base_dtype)
        else convert_to_tensor(w, dtype=dtype)
        for w in tables
    ]
    with name_scope(name, "embedding_lookup", [*tables, sparse_ids, sparse_weights]) as scope:
        shape = sparse_ids.dense_shape
        static_rank = shape.shape[0].value
        rank = array_api.size(shape) if static_rank is None else static_rank
        rows = math_api.reduce_prod(array_api.slice(shape, [0], [rank - 1]))
        matrix = raw.SparseReshape(
            sparse_ids.indices, shape, array_api.stack([rows, array_api.gather(shape, rank - 1)])
        )
        ids = SparseTensor(matrix[0], sparse_ids.values, matrix[1])
        weights = (
            None
            if sparse_weights is None
            else SparseTensor(ids.indices, sparse_weights.values, ids.dense_shape)
        )
        ids, weights = _without_invalid(ids, weights, combiner)
        ids, is_empty = _filled(ids, default_id or 0)
        if weights is not None:
            weights, _ = _filled(weights, 1.0)
        made = embedding_lookup_sparse(
            tables,
            ids,
            weights,
            combiner=combiner,
            partition_strategy=partition_strategy,
            name=None if default_id is None else scope,
            max_norm=max_norm,
            allow_fast_lookup=allow_fast_lookup,
        )
        if default_id is None:
            is_empty = array_api.tile(
                array_api.reshape(is_empty, [-1, 1]), array_api.stack([1, array_api.shape(made)[1]])
            )
            made = array_api.where(is_empty, array_api.zeros_like(made), made, name=scope)
        outer = array_api.slice(math_api.cast(shape, int32), [0], [rank - 1])
        final = array_api.reshape(
            made, array_api.concat([outer, array_api.slice(array_api.shape(made), [1], [-1])], 0)
        )
        final.set_shape(unknown(None if static_rank is None else static_rank - 1).concatenate(made.shape[1:]))
        return final


def _without_invalid(
    ids: SparseTensor, weights: SparseTensor | None, combiner: str
) -> tuple[SparseTensor, SparseTensor | None]:
    is_id = math_api.greater_equal(ids.values, 0)
    if weights is None:
        return _retained(ids, is_id), None
    is_id = math_api.logical_and(is_id, array_api.ones_like(weights.values, dtype=bool_))
    ids, weights = _retained(ids, is_id), _retained(weights, is_id)
    if combiner != "sum":
        is_positive = math_api.greater(weights.values, 0)
        ids, weights = _retained(ids, is_positive), _retained(weights, is_positive)
    return ids, weights


def _retained(sparse: SparseTensor, is_kept: Tensor) -> SparseTensor:
    """`sparse` with the elements where `is_kept`."""
    places = array_api.reshape(array_api.where(is_kept), [-1])
    return SparseTensor(
        array_api.gather(sparse.indices, places), array_api.gather(sparse.values, places), sparse.dense_shape
    )


def _filled(sparse: SparseTensor, default: Any) -> tuple[SparseTensor, Tensor]:
    """(`sparse` with `default` in the first place of each empty row, which rows are empty)."""
    default = convert_to_tensor(default, dtype=sparse.values.dtype)
    indices, values, is_empty, _ = raw.SparseFillEmptyRows(
        sparse.indices, sparse.values, sparse.dense_shape, default
    )
    return SparseTensor(indices, values, sparse.dense_shape), is_empty
