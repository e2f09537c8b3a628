"""Text and sparse tensors by their top-level names (tf.string_join, tf.sparse_add, …), and raw bytes,
base64, CSV."""

from __future__ import annotations

from typing import Any

from graphrt import sparse, strings
from graphrt.api.math_reduce import renamed
from graphrt.core import raw
from graphrt.core.dtypes import as_dtype
from graphrt.core.tensor import Tensor
from graphrt.sparse import deserialize_many_sparse, serialize_many_sparse, serialize_sparse, sparse_to_dense
from graphrt.strings import as_string, reduce_join, regex_replace, string_split, substr

__all__ = [
    "as_string", "decode_base64", "decode_csv", "decode_raw", "deserialize_many_sparse", "encode_base64",
    "parse_tensor", "reduce_join", "regex_replace", "serialize_many_sparse", "serialize_sparse",
    "serialize_tensor", "sparse_add", "sparse_concat", "sparse_fill_empty_rows", "sparse_mask",
    "sparse_maximum", "sparse_merge", "sparse_minimum", "sparse_reduce_max", "sparse_reduce_max_sparse",
    "sparse_reduce_sum", "sparse_reduce_sum_sparse", "sparse_reorder", "sparse_reset_shape", "sparse_reshape",
    "sparse_retain", "sparse_slice", "sparse_softmax", "sparse_split", "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense", "sparse_to_dense", "sparse_to_indicator", "sparse_transpose", "string_join",
    "string_split", "string_strip", "string_to_hash_bucket", "string_to_hash_bucket_fast",
    "string_to_hash_bucket_strong", "string_to_number", "substr",
]

string_join, string_strip, string_to_number = strings.join, strings.strip, strings.to_number
string_to_hash_bucket, string_to_hash_bucket_fast = strings.to_hash_bucket, strings.to_hash_bucket_fast
string_to_hash_bucket_strong = strings.to_hash_bucket_strong
sparse_add, sparse_concat, sparse_fill_empty_rows = sparse.add, sparse.concat, sparse.fill_empty_rows
sparse_mask, sparse_maximum, sparse_minimum, sparse_merge = (
    sparse.mask,
    sparse.maximum,
    sparse.minimum,
    sparse.merge,
)
sparse_reduce_max, sparse_reduce_max_sparse = sparse.reduce_max, sparse.reduce_max_sparse
sparse_reduce_sum, sparse_reduce_sum_sparse = sparse.reduce_sum, sparse.reduce_sum_sparse
sparse_reorder, sparse_reset_shape, sparse_reshape = sparse.reorder, sparse.reset_shape, sparse.reshape
sparse_retain, sparse_slice, sparse_softmax, sparse_split = (
    sparse.retain,
    sparse.slice,
    sparse.softmax,
    sparse.split,
)
sparse_tensor_dense_matmul, sparse_tensor_to_dense = sparse.sparse_dense_matmul, sparse.to_dense
sparse_to_indicator, sparse_transpose = sparse.to_indicator, sparse.transpose


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> Tensor:
    """The bytes of each string, all of one length, as `out_type` numbers along a new last dimension.

    Args:
      bytes: an older name of `input_bytes`.
    """
    input_bytes = renamed("bytes", bytes, "input_bytes", input_bytes)
    if out_type is None:
        raise ValueError("decode_raw needs out_type")
    return raw.DecodeRaw(input_bytes, out_type=as_dtype(out_type), little_endian=little_endian, name=name)


def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Tensor:
    """Each string in web-safe base64, with '=' at its end where `pad`."""
    return raw.EncodeBase64(input, pad=pad, name=name)


def decode_base64(input: Any, name: str | None = None) -> Tensor:
    """Each string from web-safe base64."""
    return raw.DecodeBase64(input, name=name)


def decode_csv(
    records: Any,
    record_defaults: Any,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Any = None,
) -> list[Tensor]:
    """The columns of CSV records.

    Args:
      records: string tensor, a record in each element.
      record_defaults: for each column a vector of one element, its default, or of none: the column is
        required. It gives the dtype: float32, float64, int32, int64 or string.
      use_quote_delim: '"' quotes fields.
      na_value: another text for a missing field.
      select_cols: the numbers of the columns that are wanted, in order; all where None.
    """
    if select_cols is not None:
        chosen = list(select_cols)
        if any(b <= a for a, b in zip(chosen, chosen[1:])):
            raise ValueError("select_cols is not strictly increasing.")
        if chosen and chosen[0] < 0:
            raise ValueError("select_cols contains negative values.")
        if len(chosen) != len(record_defaults):
            raise ValueError("Length of select_cols and record_defaults do not match.")
    return raw.DecodeCSV(
        records,
        list(record_defaults),
        field_delim=field_delim,
        use_quote_delim=use_quote_delim,
        na_value=na_value,
        select_cols=select_cols,
        name=name,
    )


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Tensor:
    """The tensor of a serialized TensorProto."""
    return raw.ParseTensor(serialized, out_type=as_dtype(out_type), name=name)


def serialize_tensor(tensor: Any, name: str | None = None) -> Tensor:
    """`tensor` as a serialized TensorProto."""
    return raw.SerializeTensor(tensor, name=name)
