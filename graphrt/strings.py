"""tf.strings: text joined, split, cut, matched, hashed and turned into numbers. They build nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.math_reduce import renamed
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, float32, int32, string
from graphrt.core.tensor import SparseTensor, Tensor

__all__ = [
    "as_string", "format", "join", "length", "lower", "reduce_join", "regex_full_match", "regex_replace",
    "split", "strip", "substr", "to_hash_bucket", "to_hash_bucket_fast", "to_hash_bucket_strong", "to_number",
    "unsorted_segment_join", "upper",
]


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Each number (or bool) as text.

    Args:
      precision: digits behind the point, for floating and complex numbers.
      scientific, shortest: by %e or %g in place of %f.
      width, fill: the text is filled up to `width` with one of ' ', '0', '+', '-'.
    """
    return raw.AsString(
        input,
        precision=precision,
        scientific=scientific,
        shortest=shortest,
        width=width,
        fill=fill,
        name=name,
    )


def format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """`template` with each `placeholder` replaced by one of the tensors `inputs`, in order.

    Args:
      summarize: how many items of each dimension's begin and end are shown; all where negative.
    Raises:
      ValueError: there are not as many placeholders as inputs.
    """
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if template.count(placeholder) != len(inputs):
        raise ValueError(
            f"The template expects {template.count(placeholder)} tensors, but the inputs only has "
            f"{len(inputs)}."
        )
    return raw.StringFormat(
        inputs, template=template, placeholder=placeholder, summarize=summarize, name=name
    )


def join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """The string tensors `inputs` joined element by element; scalars go with every element."""
    return raw.StringJoin(list(inputs), separator=separator, name=name)


def reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """The strings joined over dimensions; of several the first is the one that runs fastest.

    Args:
      axis: all from the last to the first where None. `reduction_indices` is its older name.
      keepdims: leave a size of 1 where an axis was. `keep_dims` is its older name.
    """
    keepdims = bool(renamed("keep_dims", keep_dims, "keepdims", keepdims))
    axis = renamed("reduction_indices", reduction_indices, "axis", axis)
    with name_scope(None, "ReduceJoin", [inputs, axis]):
        inputs = convert_to_tensor(inputs)
        if axis is None:
            n = inputs.shape.rank
            if n is None:
                axis = raw.Range(raw.Rank(inputs) - 1, -1, -1)
            else:
                axis = raw.Const(value=np.arange(n - 1, -1, -1, dtype=np.int32), dtype=int32)
        return raw.ReduceJoin(inputs, axis, keep_dims=keepdims, separator=separator, name=name)


def unsorted_segment_join(
    inputs: Any, segment_ids: Any, num_segments: Any, separator: str = "", name: str | None = None
) -> Tensor:
    """The strings of each segment joined, in their order."""
    return raw.UnsortedSegmentJoin(inputs, segment_ids, num_segments, separator=separator, name=name)


def length(input: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The number of bytes (or, with unit UTF8_CHAR, characters) of each string, int32."""
    return raw.StringLength(input, unit=unit, name=name)


def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """`len` bytes (or characters) of each string from `pos` on, which counts from the end where it is
    negative."""
    return raw.Substr(input, pos, len, unit=unit, name=name)


def lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Lower case: of ASCII letters, or of all with encoding 'utf-8'."""
    return raw.StringLower(input, encoding=encoding, name=name)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Upper case: of ASCII letters, or of all with encoding 'utf-8'."""
    return raw.StringUpper(input, encoding=encoding, name=name)


def strip(input: Any, name: str | None = None) -> Tensor:
    """Each string without the whitespace at both ends."""
    return raw.StringStrip(input, name=name)


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Tensor:
    r"""Each string with what `pattern` (RE2's syntax) matches replaced by `rewrite`, in which \1 is the
    first group.

    Args:
      replace_global: replace all matches, not only the first.
    """
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        return raw.StaticRegexReplace(
            input, pattern=pattern, rewrite=rewrite, replace_global=replace_global, name=name
        )
    return raw.RegexReplace(input, pattern, rewrite, replace_global=replace_global, name=name)


def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """True for each string that `pattern` (RE2's syntax) matches from beginning to end."""
    if isinstance(pattern, (str, bytes)):
        return raw.StaticRegexFullMatch(input, pattern=pattern, name=name)
    return raw.RegexFullMatch(input, pattern, name=name)


def to_number(
    string_tensor: Any = None, out_type: Any = float32, name: str | None = None, input: Any = None
) -> Tensor:
    """The number that each string is; whitespace around it does not count. `input` is a newer name."""
    string_tensor = renamed("string_tensor", string_tensor, "input", input)
    return raw.StringToNumber(string_tensor, out_type=as_dtype(out_type), name=name)


def to_hash_bucket(
    string_tensor: Any = None, num_buckets: int | None = None, name: str | None = None, input: Any = None
) -> Tensor:
    """For each string a bucket in [0, num_buckets), int64. `input` is a newer name; to_hash_bucket_fast is
    better."""
    string_tensor = renamed("string_tensor", string_tensor, "input", input)
    return raw.StringToHashBucket(string_tensor, num_buckets=num_buckets, name=name)


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """For each string a bucket in [0, num_buckets), int64: the same in every program and version."""
    return raw.StringToHashBucketFast(input, num_buckets=num_buckets, name=name)


def to_hash_bucket_strong(input: Any, num_buckets: int, key: Any, name: str | None = None) -> Tensor:
    """to_hash_bucket_fast by a keyed hash: `key`, two integers, keeps others from making strings that
    collide."""
    return raw.StringToHashBucketStrong(input, num_buckets=num_buckets, key=list(key), name=name)


def _check_result_type(result_type: str) -> None:
    if result_type == "RaggedTensor":
        raise ValueError(
            "there are no ragged tensors here: result_type='SparseTensor' gives the same strings"
        )
    if result_type != "SparseTensor":
        raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")


def split(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> SparseTensor:
    """Each string split as by Python's split: at `sep`, or at runs of whitespace where that is None or ''.

    Args:
      input: a string vector or scalar. `source` is its older name.
    Returns:
      SparseTensor of shape [strings, most tokens].
    """
    input = renamed("source", source, "input", input)
    _check_result_type(result_type)
    with name_scope(name, "StringSplit", [input]):
        input = convert_to_tensor(input, dtype=string, name="input")
        if input.shape.rank == 0:
            input = raw.ExpandDims(input, 0)
        sep = convert_to_tensor("" if sep is None else sep, dtype=string)
        return SparseTensor(*raw.StringSplitV2(input, sep, maxsplit=maxsplit))


def string_split(
    source: Any,
    sep: Any = None,
    skip_empty: bool = True,
    delimiter: Any = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> SparseTensor:
    """Each string of a vector cut at every byte of `sep` (a blank where None; into bytes where '').

    Args:
      skip_empty: leave out empty tokens.
      delimiter: an older name of `sep`.
    Returns:
      SparseTensor of shape [strings, most tokens].
    """
    sep = renamed("delimiter", delimiter, "sep", sep)
    _check_result_type(result_type)
    with name_scope(name, "StringSplit", [source]):
        sep = convert_to_tensor(" " if sep is None else sep, dtype=string)
        source = convert_to_tensor(source, dtype=string)
        return SparseTensor(*raw.StringSplit(source, sep, skip_empty=skip_empty))
