"""Sparse tensors as strings: a TensorProto each for indices, values and shape. Queues and batches carry them
so."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Later, normal, sample, text
from graphrt.core.shapes import TensorShape, unknown
from graphrt.core.tensor_proto import to_array, to_proto
from graphrt.ops.array_sparse import I64, check_sparse
from graphrt.ops.strings import text_array

_INDICES = np.array([[0, 1], [1, 0], [1, 2]])
_SHAPE = np.array([3, 3])
_OUT_TYPE = "type in {string,variant} = string"


def _serialized(indices: Any, values: Any, shape: Any) -> list[bytes]:
    parts = (indices, values, shape)
    return [to_proto(np.ascontiguousarray(p)).SerializeToString(deterministic=True) for p in parts]


def _deserialized(parts: list[bytes], k: KernelContext, row: int) -> tuple[Any, Any, Any]:
    from google.protobuf.message import DecodeError

    from graphrt.protos import tensor_pb2

    try:
        indices, values, shape = (to_array(tensor_pb2.TensorProto.FromString(p)) for p in parts)
    except DecodeError as error:
        raise InvalidArgumentError(None, None, f"row {row} is no serialized sparse tensor: {error}") from None
    if values.dtype != k.output_dtypes[1].np:
        raise InvalidArgumentError(
            None, None, f"the values of row {row} are {values.dtype}, not {k.output_dtypes[1].name}"
        )
    check_sparse(indices, values, shape, f" of row {row}")
    return indices, values, shape


def _joined(
    parts: list[tuple[Any, Any, Any]], leading: tuple[int, ...], k: KernelContext
) -> tuple[Any, Any, Any]:
    """Sparse tensors of one rank as one, whose first dimensions are `leading`; the largest sizes count."""
    ranks = {len(shape) for _, _, shape in parts}
    if len(ranks) > 1:
        raise InvalidArgumentError(None, None, f"the sparse tensors must have one rank, not {sorted(ranks)}")
    if not parts:
        kind = k.output_dtypes[1].np
        return np.zeros((0, len(leading)), I64), np.zeros(0, kind), np.array(leading, I64)
    places = [
        np.concatenate([np.tile(np.array(np.unravel_index(i, leading), I64), (len(rows), 1)), rows], 1)
        for i, (rows, _, _) in enumerate(parts)
    ]
    sizes = np.max([shape for _, _, shape in parts], axis=0)
    values = np.concatenate([v for _, v, _ in parts])
    return np.concatenate(places), values, np.concatenate([np.array(leading, I64), sizes])


def _check_strings(k: KernelContext) -> None:
    for dtype in (*k.input_dtypes, *k.output_dtypes):
        if dtype.name == "variant":
            raise InvalidArgumentError(None, None, f"{k.type} works on strings, not variants")


@op(
    "SerializeSparse(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> "
    "serialized_sparse: out_type",
    out_type=_OUT_TYPE,
)
class SerializeSparse:
    """A sparse tensor as three strings."""

    cpu_only = True

    def shape(self, s: ShapeContext, *_: TensorShape) -> TensorShape:
        return TensorShape.of((3,))

    def compute(self, k: KernelContext, sparse_indices: Any, sparse_values: Any, sparse_shape: Any) -> Any:
        _check_strings(k)
        check_sparse(sparse_indices, sparse_values, sparse_shape)
        return text_array(_serialized(sparse_indices, sparse_values, sparse_shape), (3,))

    samples = [
        sample(_INDICES, normal(3), _SHAPE, tensorflow=False, why="a message's bytes are not fixed"),
    ]


@op(
    "SerializeManySparse(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> "
    "serialized_sparse: out_type",
    out_type=_OUT_TYPE,
)
class SerializeManySparse:
    """Each row of a sparse tensor, along its first dimension, as three strings."""

    cpu_only = True

    def shape(self, s: ShapeContext, *_: TensorShape) -> TensorShape:
        return TensorShape.of((None, 3))

    def compute(self, k: KernelContext, sparse_indices: Any, sparse_values: Any, sparse_shape: Any) -> Any:
        _check_strings(k)
        check_sparse(sparse_indices, sparse_values, sparse_shape)
        if sparse_shape.size < 2:
            raise InvalidArgumentError(None, None, f"Rank of input must be > 1, not {sparse_shape.size}")
        made: list[bytes] = []
        for i in range(int(sparse_shape[0])):
            own = sparse_indices[:, 0] == i
            made += _serialized(sparse_indices[own][:, 1:], sparse_values[own], sparse_shape[1:])
        return text_array(made, (int(sparse_shape[0]), 3))

    samples = [
        sample(_INDICES, normal(3), _SHAPE, tensorflow=False, why="a message's bytes are not fixed"),
    ]


def _stacked(*rows: Later) -> Later:
    return Later(lambda: np.stack([r.compute() for r in rows]))


_ONE = Later(lambda: text_array(_serialized(_INDICES, np.array([1.5, 2.0, 3.0], np.float32), _SHAPE), (3,)))
_WORDS = Later(lambda: text_array(_serialized(np.array([[1]]), text("a"), np.array([4])), (3,)))
_MORE = Later(
    lambda: text_array(_serialized(np.array([[0, 4]]), np.array([9.0], np.float32), np.array([1, 5])), (3,))
)


@op(
    "DeserializeSparse(serialized_sparse: Tserialized) -> sparse_indices: int64, sparse_values: dtype, "
    "sparse_shape: int64",
    dtype="type",
    Tserialized=_OUT_TYPE,
)
class DeserializeSparse:
    """One sparse tensor of strings, [..., 3]: the dimensions before the last are its first ones."""

    cpu_only = True

    def shape(self, s: ShapeContext, serialized_sparse: TensorShape) -> list[TensorShape]:
        return [unknown(2), unknown(1), unknown(1)]

    def compute(self, k: KernelContext, serialized_sparse: Any) -> tuple[Any, Any, Any]:
        _check_strings(k)
        if serialized_sparse.ndim < 1 or serialized_sparse.shape[-1] != 3:
            raise InvalidArgumentError(
                None, None, f"serialized_sparse must be [..., 3] strings, not {list(serialized_sparse.shape)}"
            )
        rows = serialized_sparse.reshape(-1, 3).tolist()
        parts = [_deserialized(row, k, i) for i, row in enumerate(rows)]
        leading = serialized_sparse.shape[:-1]
        return _joined(parts, leading, k) if leading else parts[0]

    samples = [
        sample(_ONE, dtype="float"),
        sample(_stacked(_ONE, _MORE), dtype="float"),
        sample(_WORDS, dtype="string"),
    ]


@op(
    "DeserializeManySparse(serialized_sparse: string) -> sparse_indices: int64, sparse_values: dtype, "
    "sparse_shape: int64",
    dtype="type",
)
class DeserializeManySparse:
    """One sparse tensor of the rows of strings, [n, 3], that SerializeManySparse makes; the largest sizes
    count."""

    cpu_only = True

    def shape(self, s: ShapeContext, serialized_sparse: TensorShape) -> list[TensorShape]:
        serialized_sparse.with_rank(2)
        return [unknown(2), unknown(1), unknown(1)]

    def compute(self, k: KernelContext, serialized_sparse: Any) -> tuple[Any, Any, Any]:
        if serialized_sparse.ndim != 2 or serialized_sparse.shape[1] != 3 or not len(serialized_sparse):
            raise InvalidArgumentError(
                None, None, f"serialized_sparse must be [n, 3] strings, not {list(serialized_sparse.shape)}"
            )
        parts = [_deserialized(row, k, i) for i, row in enumerate(serialized_sparse.tolist())]
        return _joined(parts, (len(parts),), k)

    samples = [sample(_stacked(_ONE, _MORE), dtype="float"), sample(_stacked(_WORDS), dtype="string")]
