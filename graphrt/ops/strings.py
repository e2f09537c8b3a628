"""Text: joined, split, cut, measured and changed in case. A string tensor is an object array of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast, unknown
from graphrt.ops.array_gather import check_indices
from graphrt.ops.array_nodes import normal_axis

UNIT = "string in {BYTE,UTF8_CHAR} = 'BYTE'"


def scalar_text(item: bytes) -> Any:
    """A string scalar: a 0-d object array."""
    made = np.empty((), dtype=object)
    made[()] = item
    return made


def text_array(items: Iterable[bytes], shape: tuple[int, ...]) -> Any:
    """A string array of `shape` with these items in row-major order."""
    made = np.empty(shape, dtype=object)
    made.reshape(-1)[:] = list(items)
    return made


def map_text(function: Callable[[bytes], bytes], array: Any) -> Any:
    return text_array([function(item) for item in array.reshape(-1).tolist()], array.shape)


@op("StringJoin(inputs: N*string) -> output: string", N="int >= 0", separator="string = ''")
class StringJoin:
    """`inputs` joined element by element with `separator`; scalars go with every element."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> TensorShape:
        if any(i.sizes is None for i in inputs):
            return UNKNOWN
        made = TensorShape.of(())
        for i in inputs:
            if i.sizes:
                made = made.merge_with(i) if made.sizes else i
        return made

    def compute(self, k: KernelContext, *inputs: Any) -> Any:
        separator = k.attrs["separator"]
        shape = next((i.shape for i in inputs if i.ndim), ())
        for i in inputs:
            if i.ndim and i.shape != shape:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Input shapes do not match: {list(shape)} vs. {list(i.shape)}: StringJoin "
                    "broadcasts scalars only",
                )
        columns = [np.broadcast_to(i, shape).reshape(-1).tolist() for i in inputs]
        return text_array(map(separator.join, zip(*columns)), shape) if inputs else scalar_text(b"")

    samples = [
        sample([text("a", "b"), text("c", "d")], separator="-"),
        sample([text("x").reshape(()), text("c", "d")]),
        sample([text("a").reshape(1, 1)]),
    ]


@op(
    "ReduceJoin(inputs: string, reduction_indices: int32) -> output: string",
    keep_dims="bool = False",
    separator="string = ''",
)
class ReduceJoin:
    """`inputs` joined over dimensions; of several the first is the one that runs fastest."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, inputs: TensorShape, reduction_indices: TensorShape) -> TensorShape:
        axes = s.value(1)
        if inputs.sizes is None or axes is None:
            return UNKNOWN
        gone = self._axes(axes, len(inputs.sizes))
        kept = [
            1 if i in gone else d for i, d in enumerate(inputs.sizes) if s.attrs["keep_dims"] or i not in gone
        ]
        return TensorShape.of(tuple(kept))

    @staticmethod
    def _axes(axes: Any, rank: int) -> list[int]:
        found = [normal_axis(a, rank, "reduction dimension") for a in axes.reshape(-1).tolist()]
        if len(set(found)) < len(found):
            raise ValueError(f"reduction_indices {axes.tolist()} name a dimension twice")
        return found

    def compute(self, k: KernelContext, inputs: Any, reduction_indices: Any) -> Any:
        axes, separator = self._axes(reduction_indices, inputs.ndim), k.attrs["separator"]
        kept = [i for i in range(inputs.ndim) if i not in axes]
        shape = tuple([inputs.shape[i] for i in kept])
        rows = inputs.transpose(kept + axes[::-1]).reshape(
            math.prod(shape), math.prod([inputs.shape[a] for a in axes])
        )
        if k.attrs["keep_dims"]:
            shape = tuple([1 if i in axes else d for i, d in enumerate(inputs.shape)])
        return text_array([separator.join(row) for row in rows.tolist()], shape)

    samples = [
        sample(text("a", "b", "c", "d").reshape(2, 2), [0, 1]),
        sample(text("a", "b", "c", "d").reshape(2, 2), [1, 0], separator="-"),
        sample(text("a", "b", "c", "d").reshape(2, 2), -1, keep_dims=True),
        sample(text("a", "b"), np.array([], np.int32)),
        sample(text().reshape(0, 2), [0]),
    ]


@op(
    "UnsortedSegmentJoin(inputs: string, segment_ids: Tindices, num_segments: Tnumsegments) -> output: "
    "string",
    separator="string = ''",
    Tindices="type in {int32,int64}",
    Tnumsegments="type in {int32,int64} = int32",
)
class UnsortedSegmentJoin:
    """The strings of each segment joined, in their order."""

    cpu_only = True
    host_inputs = (2,)

    def shape(
        self, s: ShapeContext, inputs: TensorShape, segment_ids: TensorShape, num_segments: TensorShape
    ) -> TensorShape:
        n = s.value(2)
        if inputs.sizes is None or segment_ids.sizes is None:
            return UNKNOWN
        return TensorShape.of((None if n is None else int(n), *inputs.sizes[len(segment_ids.sizes) :]))

    def compute(self, k: KernelContext, inputs: Any, segment_ids: Any, num_segments: Any) -> Any:
        n, rank = int(num_segments), segment_ids.ndim
        if inputs.shape[:rank] != segment_ids.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"inputs {list(inputs.shape)} must begin with the shape of segment_ids, "
                f"{list(segment_ids.shape)}",
            )
        check_indices(np, segment_ids, n, "segment_ids")
        rest = inputs.shape[rank:]
        rows = inputs.reshape(segment_ids.size, math.prod(rest)).tolist()
        width = len(rows[0]) if rows else math.prod(rest)
        parts: list[list[list[bytes]]] = [[[] for _ in range(width)] for _ in range(n)]
        for segment, row in zip(segment_ids.reshape(-1).tolist(), rows):
            for column, item in enumerate(row):
                parts[segment][column].append(item)
        separator = k.attrs["separator"]
        return text_array([separator.join(items) for columns in parts for items in columns], (n, *rest))

    samples = [
        sample(text("a", "b", "c"), [1, 0, 1], 3, separator="-"),
        sample(text("a", "b", "c", "d").reshape(2, 2), [0, 0], 1),
    ]


def _ragged(rows: list[list[bytes]]) -> tuple[Any, Any, Any]:
    """The indices, values and shape of a sparse matrix with these rows."""
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    return (
        np.array(indices, np.int64).reshape(-1, 2),
        text_array([item for row in rows for item in row], (len(indices),)),
        np.array([len(rows), max(map(len, rows), default=0)], np.int64),
    )


def _check_vector(input: Any) -> None:
    if input.ndim != 1:
        raise InvalidArgumentError(None, None, f"input must be a vector, got shape: {list(input.shape)}")


def _sparse_matrix_of(input: TensorShape, separator: TensorShape) -> list[TensorShape]:
    input.with_rank(1)
    separator.with_rank(0)
    return [TensorShape.of((None, 2)), unknown(1), TensorShape.of((2,))]


@op(
    "StringSplit(input: string, delimiter: string) -> indices: int64, values: string, shape: int64",
    skip_empty="bool = True",
)
class StringSplit:
    """Each string cut at every byte of `delimiter` (into single bytes, where that is empty); a sparse
    matrix."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape, delimiter: TensorShape) -> list[TensorShape]:
        return _sparse_matrix_of(input, delimiter)

    def compute(self, k: KernelContext, input: Any, delimiter: Any) -> tuple[Any, Any, Any]:
        _check_vector(input)
        cuts, skips = delimiter.item(), k.attrs["skip_empty"]
        rows = []
        for item in input.tolist():
            if not item:
                parts = []
            elif not cuts:
                parts = [item[i : i + 1] for i in range(len(item))]
            else:
                # One of the bytes stands for all.
                parts = item.translate(bytes.maketrans(cuts, cuts[:1] * len(cuts))).split(cuts[:1])
            rows.append([p for p in parts if p] if skips else parts)
        return _ragged(rows)

    samples = [
        sample(text("a b  c", ""), text(" ").reshape(())),
        sample(text("a b  c", ""), text(" ").reshape(()), skip_empty=False),
        sample(text("a,b;c"), text(",;").reshape(())),
        sample(text("abc", ""), text("").reshape(())),
        sample(text(), text("").reshape(())),
    ]


@op(
    "StringSplitV2(input: string, sep: string) -> indices: int64, values: string, shape: int64",
    maxsplit="int = -1",
)
class StringSplitV2:
    """Each string split as by Python's split: at `sep`, or at runs of whitespace where that is empty; a
    sparse matrix."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape, sep: TensorShape) -> list[TensorShape]:
        return _sparse_matrix_of(input, sep)

    def compute(self, k: KernelContext, input: Any, sep: Any) -> tuple[Any, Any, Any]:
        _check_vector(input)
        separator, most = sep.item() or None, k.attrs["maxsplit"]
        rows = [item.split(separator, most) for item in input.tolist()]
        return _ragged(rows)

    samples = [
        sample(text(" a b  c", "", "d"), text("").reshape(())),
        sample(text("a,b,,c", ",", ""), text(",").reshape(())),
        sample(text("a,b,c"), text(",").reshape(()), maxsplit=1),
        sample(text("a  b c "), text("").reshape(()), maxsplit=1),
        sample(text("a<>b<>c"), text("<>").reshape(())),
    ]


class _ByElement:
    """Base of ops that change each string on its own."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input


def _check_encoding(attrs: dict[str, Any]) -> bool:
    """True for utf-8, False for ASCII."""
    encoding = attrs["encoding"]
    if encoding not in (b"", b"utf-8"):
        raise ValueError(f"only utf-8 or '' (ASCII) is supported for 'encoding', not {encoding.decode()!r}")
    return encoding == b"utf-8"


def _decoded(item: bytes) -> str:
    return item.decode("utf-8", "surrogateescape")


def _encoded(item: str) -> bytes:
    return item.encode("utf-8", "surrogateescape")


@op("StringLower(input: string) -> output: string", encoding="string = ''")
class StringLower(_ByElement):
    """Lower case: of ASCII letters, or of all with encoding 'utf-8'."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        change = (lambda item: _encoded(_decoded(item).lower())) if _check_encoding(k.attrs) else bytes.lower
        return lambda input: map_text(change, input)

    samples = [
        sample(text("AbC", "É")),
        sample(text("ÉÀ", "x"), encoding="utf-8"),
        sample(text("A").reshape(())),
    ]


@op("StringUpper(input: string) -> output: string", encoding="string = ''")
class StringUpper(_ByElement):
    """Upper case: of ASCII letters, or of all with encoding 'utf-8'."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        change = (lambda item: _encoded(_decoded(item).upper())) if _check_encoding(k.attrs) else bytes.upper
        return lambda input: map_text(change, input)

    samples = [sample(text("AbC", "é")), sample(text("éàß", "x"), encoding="utf-8")]


@op("StringStrip(input: string) -> output: string")
class StringStrip(_ByElement):
    """Without the whitespace at both ends."""

    def compute(self, k: KernelContext, input: Any) -> Any:
        return map_text(bytes.strip, input)

    samples = [sample(text(" \t\v\f\r\na b ", "", "x")), sample(text(" y").reshape(()))]


def _characters(item: bytes) -> int:
    """UTF-8 characters: the bytes that do not go on with one."""
    return len(item) - sum(b & 0xC0 == 0x80 for b in item)


@op("StringLength(input: string) -> output: int32", unit=UNIT)
class StringLength(_ByElement):
    """The number of bytes, or of UTF-8 characters, of each string."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        count = _characters if k.attrs["unit"] == b"UTF8_CHAR" else len

        def lengths(input: Any) -> Any:
            return np.array([count(item) for item in input.reshape(-1).tolist()], np.int32).reshape(
                input.shape
            )

        return lengths

    samples = [
        sample(text("aé語", "", "abc")),
        sample(text("aé語", ""), unit="UTF8_CHAR"),
        sample(text("ab").reshape(())),
        sample(text()),
    ]


def _cut(item: bytes, pos: int, n: int, by_character: bool) -> bytes | None:
    """`n` bytes or characters from `pos` on (from the end, where negative); None where pos is outside."""
    if by_character:
        starts = [i for i, b in enumerate(item) if b & 0xC0 != 0x80]
        size = len(starts)
        bounds = [*starts, len(item)]
    else:
        size = len(item)
    if not -size <= pos <= size:
        return None
    begin = pos + size if pos < 0 else pos
    end = size if n < 0 else min(size, begin + n)
    return item[bounds[begin] : bounds[end]] if by_character else item[begin:end]


@op("Substr(input: string, pos: T, len: T) -> output: string", T="type in {int32,int64}", unit=UNIT)
class Substr:
    """`len` bytes or characters of each string from `pos` on, which counts from the end where it is
    negative."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape, pos: TensorShape, len: TensorShape) -> TensorShape:
        return broadcast(input, pos.merge_with(len))

    def compute(self, k: KernelContext, input: Any, pos: Any, len: Any) -> Any:
        if pos.shape != len.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"pos and len should have the same shape, got: {list(pos.shape)} vs. {list(len.shape)}",
            )
        items, begins, counts = np.broadcast_arrays(input, pos, len)
        by_character, made = k.attrs["unit"] == b"UTF8_CHAR", []
        for i, (item, begin, n) in enumerate(
            zip(items.reshape(-1).tolist(), begins.reshape(-1).tolist(), counts.reshape(-1).tolist())
        ):
            part = _cut(item, begin, n, by_character)
            if part is None:
                raise InvalidArgumentError(
                    None, None, f"pos {begin} out of range for string {item!r} at index {i}"
                )
            made.append(part)
        return text_array(made, items.shape)

    samples = [
        sample(text("hello").reshape(()), 1, 3),
        sample(text("hello", "world"), -3, 2),
        sample(text("abc", "defg"), [1, 2], [1, 5]),
        sample(text("abc").reshape(()), [0, 3], [1, 1]),
        sample(text("aé語b"), np.int64(1), np.int64(2), unit="UTF8_CHAR"),
        sample(text("ab", "cd", "ef", "gh").reshape(2, 2), [0, 1], [1, 1]),
    ]
