"""Diagonals of matrices: read, written, made into matrices; bands. Diagonal d is d above the main one, or -d
below it.

A band of diagonals [low, high] is stored as rows, the highest first, each padded to the longest; `align`
says for the diagonals above and below the main one (RIGHT_LEFT: above to the right, below to the left) where
the padding is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, FLOATS, int32, int64
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor

_ALIGN = "string in {LEFT_RIGHT,RIGHT_LEFT,LEFT_LEFT,RIGHT_RIGHT} = 'RIGHT_LEFT'"


def _band(k: Any) -> tuple[int, int]:
    """(low, high) of the input k, a scalar or a pair."""
    given = [int(v) for v in np.ravel(k)]
    if len(given) not in (1, 2):
        raise ValueError(f"diag_index must have one or two elements, received {len(given)} elements: {given}")
    low, high = given[0], given[-1]
    if low > high:
        raise ValueError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    return low, high


def _check_band(low: int, high: int, rows: int, columns: int) -> None:
    for d in (low, high):
        if not (-rows < d < columns or d == 0):
            raise ValueError(
                f"diag_index is out of bound: {d} is not a diagonal of a matrix of [{rows}, {columns}], "
                "whose diagonals are "
                f"{1 - rows} to {columns - 1}"
            )


def _longest(low: int, high: int, rows: int, columns: int) -> int:
    return min(rows + min(high, 0), columns - max(low, 0))


def _places(low: int, high: int, rows: int, columns: int, align: bytes) -> Any:
    """For each diagonal, from the highest: its row in the band, where it starts there, its length, its rows
    and columns."""
    longest = _longest(low, high, rows, columns)
    above, below = align.split(b"_")
    for i, d in enumerate(range(high, low - 1, -1)):
        n = min(rows + min(d, 0), columns - max(d, 0))
        to_left = (d >= 0 and above == b"LEFT") or (d <= 0 and below == b"LEFT")
        start = 0 if to_left else longest - n
        along = np.arange(n)
        yield i, start, n, along - min(d, 0), along + max(d, 0)


def _band_shape(low: int, high: int, longest: int | None) -> tuple[int | None, ...]:
    return (longest,) if low == high else (high - low + 1, longest)


def _set_diagonals(matrix: Any, band: Any, low: int, high: int, align: bytes) -> None:
    rows, columns = matrix.shape[-2:]
    if low == high:
        band = band[..., None, :]
    for i, start, n, r, c in _places(low, high, rows, columns, align):
        matrix[..., r, c] = band[..., i, start : start + n]


class _Align:
    """The alignment of V2 ops is LEFT_LEFT; V3 ops have an attr."""

    def align(self, attrs: dict[str, Any]) -> bytes:
        return attrs.get("align", b"LEFT_LEFT")

    def again(self, op: Any) -> dict[str, Any]:
        """The attrs that another op of this version takes."""
        return {"align": op.attrs["align"]} if "align" in op.attrs else {}

    def sibling(self, op: Any, kind: str) -> Any:
        """The op of this version called `kind`, as MatrixDiagPart of MatrixDiagV2 is MatrixDiagPartV2."""
        return getattr(raw, kind + (op.type[-2:] if op.type[-2:] in ("V2", "V3") else ""))


class _MatrixDiag(_Align):
    """Base of MatrixDiagV2 and V3."""

    def shape(
        self,
        s: ShapeContext,
        diagonal: TensorShape,
        k: TensorShape,
        num_rows: TensorShape,
        num_cols: TensorShape,
        padding_value: TensorShape,
    ) -> TensorShape:
        diagonal = diagonal.with_rank_at_least(1)
        if diagonal.sizes is None:
            return UNKNOWN
        known = s.value(1), s.value(2), s.value(3)
        if known[0] is None:
            return UNKNOWN
        low, high = _band(known[0])
        batch = diagonal.sizes[: -1 if low == high else -2]
        longest = diagonal.sizes[-1]
        if known[1] is None or known[2] is None or longest is None:
            return TensorShape.of((*batch, None, None))
        return TensorShape.of((*batch, *self.sizes(low, high, longest, int(known[1]), int(known[2]))))

    def sizes(self, low: int, high: int, longest: int, rows: int, columns: int) -> tuple[int, int]:
        """The matrix's sizes; -1 is the smallest that holds the diagonals."""
        least_rows, least_columns = longest - min(high, 0), longest + max(low, 0)
        if rows == -1 and columns == -1:
            rows = columns = max(least_rows, least_columns)
        elif rows == -1:
            rows = least_rows
        elif columns == -1:
            columns = least_columns
        if rows < least_rows or columns < least_columns or (rows != least_rows and columns != least_columns):
            raise ValueError(
                f"the number of rows and columns [{rows}, {columns}] does not fit diagonals {low} to "
                f"{high} of length {longest}: "
                f"one of them must be the least, [{least_rows}, {least_columns}], the other at least"
            )
        return rows, columns

    def compute(
        self, k: KernelContext, diagonal: Any, band: Any, num_rows: Any, num_cols: Any, padding_value: Any
    ) -> Any:
        low, high = _band(band)
        if low != high and (diagonal.ndim < 2 or diagonal.shape[-2] != high - low + 1):
            raise ValueError(
                f"diagonals {low} to {high} need {high - low + 1} rows; the input has shape "
                f"{list(diagonal.shape)}"
            )
        rows, columns = self.sizes(low, high, diagonal.shape[-1], int(num_rows), int(num_cols))
        _check_band(low, high, rows, columns)
        batch = diagonal.shape[: -1 if low == high else -2]
        made = np.full((*batch, rows, columns), padding_value, k.dtype)
        _set_diagonals(made, diagonal, low, high, self.align(k.attrs))
        return made

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        zero = np.zeros((), dy.dtype.np)
        return [
            self.sibling(op, "MatrixDiagPart")(dy, op.inputs[1], zero, name="diag_part", **self.again(op)),
            None,
            None,
            None,
            None,
        ]

    cpu_only = True
    samples = [
        sample(normal(2, 3), 0, -1, -1, np.float32(0)),
        sample(normal(3), 1, -1, -1, np.float32(9)),
        sample(normal(2, 3), -1, -1, -1, np.float32(0)),
        sample(normal(2, 3, 4), [-1, 1], -1, -1, np.float32(0), why="a band"),
        sample(normal(3), 0, 3, 5, np.float32(1)),
        sample(normal(2, 3), [0, 1], 3, 4, np.float32(0)),
        sample(ints(3), 0, 4, 3, np.int32(7)),
    ]


class _MatrixDiagPart(_Align):
    """Base of MatrixDiagPartV2 and V3."""

    def shape(
        self, s: ShapeContext, input: TensorShape, k: TensorShape, padding_value: TensorShape
    ) -> TensorShape:
        input = input.with_rank_at_least(2)
        band = s.value(1)
        if input.sizes is None or band is None:
            return UNKNOWN
        low, high = _band(band)
        rows, columns = input.sizes[-2:]
        if rows is None or columns is None:
            return TensorShape.of((*input.sizes[:-2], *_band_shape(low, high, None)))
        _check_band(low, high, rows, columns)
        return TensorShape.of(
            (*input.sizes[:-2], *_band_shape(low, high, _longest(low, high, rows, columns)))
        )

    def compute(self, k: KernelContext, input: Any, band: Any, padding_value: Any) -> Any:
        low, high = _band(band)
        if input.ndim < 2:
            raise ValueError(f"input must be at least 2-dim, received shape: {list(input.shape)}")
        rows, columns = input.shape[-2:]
        _check_band(low, high, rows, columns)
        made = np.full(
            (*input.shape[:-2], high - low + 1, _longest(low, high, rows, columns)), padding_value, k.dtype
        )
        for i, start, n, r, c in _places(low, high, rows, columns, self.align(k.attrs)):
            made[..., i, start : start + n] = input[..., r, c]
        return made[..., 0, :] if low == high else made

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, k = op.inputs[:2]
        sizes = x.shape.sizes
        if sizes is not None and None not in sizes[-2:]:
            made = self.sibling(op, "MatrixDiag")(
                dy,
                k,
                np.int32(sizes[-2]),
                np.int32(sizes[-1]),
                np.zeros((), dy.dtype.np),
                name="diag",
                **self.again(op),
            )
        else:
            made = self.sibling(op, "MatrixSetDiag")(
                raw.ZerosLike(x), dy, k, name="set_diag", **self.again(op)
            )
        return [made, None, None]

    cpu_only = True
    samples = [
        sample(normal(2, 3, 4), 0, np.float32(0)),
        sample(normal(4, 3), 1, np.float32(0)),
        sample(normal(4, 3), -2, np.float32(0)),
        sample(normal(2, 4, 4), [-1, 2], np.float32(5), why="a band"),
        sample(normal(3, 5), [1, 3], np.float32(0)),
        sample(ints(3, 3), 0, np.int32(0)),
    ]


class _MatrixSetDiag(_Align):
    """Base of MatrixSetDiagV2 and V3."""

    def shape(
        self, s: ShapeContext, input: TensorShape, diagonal: TensorShape, k: TensorShape
    ) -> TensorShape:
        input = input.with_rank_at_least(2)
        band = s.value(2)
        if input.sizes is None or band is None:
            return input
        low, high = _band(band)
        rows, columns = input.sizes[-2:]
        if rows is not None and columns is not None:
            _check_band(low, high, rows, columns)
            diagonal.merge_with(
                TensorShape.of(
                    (*input.sizes[:-2], *_band_shape(low, high, _longest(low, high, rows, columns)))
                )
            )
        return input

    def compute(self, k: KernelContext, input: Any, diagonal: Any, band: Any) -> Any:
        low, high = _band(band)
        if input.ndim < 2:
            raise ValueError(f"input must be at least 2-dim, received shape: {list(input.shape)}")
        rows, columns = input.shape[-2:]
        _check_band(low, high, rows, columns)
        wanted = (*input.shape[:-2], *_band_shape(low, high, _longest(low, high, rows, columns)))
        if diagonal.shape != wanted:
            raise ValueError(
                f"diagonals {low} to {high} of shape {list(input.shape)} have shape {list(wanted)}, not "
                f"{list(diagonal.shape)}"
            )
        made = input.copy()
        _set_diagonals(made, diagonal, low, high, self.align(k.attrs))
        return made

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        diagonal, k = op.inputs[1:]
        to_input = self.sibling(op, "MatrixSetDiag")(
            dy, raw.ZerosLike(diagonal), k, name="set_diag", **self.again(op)
        )
        to_diagonal = self.sibling(op, "MatrixDiagPart")(
            dy, k, np.zeros((), dy.dtype.np), name="diag_part", **self.again(op)
        )
        return [to_input, to_diagonal, None]

    cpu_only = True
    samples = [
        sample(normal(2, 3, 4), normal(2, 3), 0),
        sample(normal(4, 3), normal(2), 1),
        sample(normal(4, 3), normal(2), -2),
        sample(normal(2, 4, 4), normal(2, 4, 4), [-1, 2], why="a band"),
        sample(ints(3, 3), ints(3), 0),
    ]


def without_band_gradients(samples: list[Any]) -> list[Any]:
    """V2's samples: TensorFlow's gradients of bands read them as V3 aligns them, which is not how V2 wrote
    them."""
    return [
        replace(s, gradient=s.gradient and not any(isinstance(i, list) for i in s.inputs)) for s in samples
    ]


@op(
    "MatrixDiagV2(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T",
    T="type",
)
class MatrixDiagV2(_MatrixDiag):
    """Matrices with the given diagonals, padded with padding_value elsewhere."""

    samples = without_band_gradients(_MatrixDiag.samples)


@op(
    "MatrixDiagV3(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T",
    T="type",
    align=_ALIGN,
)
class MatrixDiagV3(_MatrixDiag):
    """Matrices with the given diagonals, padded with padding_value elsewhere."""

    samples = [
        *_MatrixDiag.samples,
        *(
            sample(normal(2, 3, 4), [-1, 1], -1, -1, np.float32(0), align=a)
            for a in ("LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
        ),
    ]


@op("MatrixDiagPartV2(input: T, k: int32, padding_value: T) -> diagonal: T", T="type")
class MatrixDiagPartV2(_MatrixDiagPart):
    """Diagonals of matrices, padded with padding_value to the longest."""

    samples = without_band_gradients(_MatrixDiagPart.samples)


@op("MatrixDiagPartV3(input: T, k: int32, padding_value: T) -> diagonal: T", T="type", align=_ALIGN)
class MatrixDiagPartV3(_MatrixDiagPart):
    """Diagonals of matrices, padded with padding_value to the longest."""

    samples = [
        *_MatrixDiagPart.samples,
        *(
            sample(normal(2, 4, 4), [-1, 2], np.float32(5), align=a)
            for a in ("LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
        ),
    ]


@op("MatrixSetDiagV2(input: T, diagonal: T, k: int32) -> output: T", T="type")
class MatrixSetDiagV2(_MatrixSetDiag):
    """Matrices with other diagonals."""

    samples = without_band_gradients(_MatrixSetDiag.samples)


@op("MatrixSetDiagV3(input: T, diagonal: T, k: int32) -> output: T", T="type", align=_ALIGN)
class MatrixSetDiagV3(_MatrixSetDiag):
    """Matrices with other diagonals."""

    samples = [
        *_MatrixSetDiag.samples,
        *(
            sample(normal(2, 4, 4), normal(2, 4, 4), [-1, 2], align=a)
            for a in ("LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
        ),
    ]


@op("MatrixDiag(diagonal: T) -> output: T", T="type")
class MatrixDiag:
    """Square matrices with the given main diagonals, and zeros elsewhere."""

    cpu_only = True

    def shape(self, s: ShapeContext, diagonal: TensorShape) -> TensorShape:
        diagonal = diagonal.with_rank_at_least(1)
        return UNKNOWN if diagonal.sizes is None else diagonal.concatenate(diagonal.sizes[-1:])

    def compute(self, k: KernelContext, diagonal: Any) -> Any:
        if not diagonal.ndim:
            raise ValueError("diagonal must be at least 1-dim, received a scalar")
        n = diagonal.shape[-1]
        made = np.zeros((*diagonal.shape, n), k.dtype)
        made[..., np.arange(n), np.arange(n)] = diagonal
        return made

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.MatrixDiagPart(dy)

    samples = [sample(normal(3)), sample(normal(2, 3)), sample(ints(3)), sample(empty(0))]


@op("MatrixDiagPart(input: T) -> diagonal: T", T="type")
class MatrixDiagPart:
    """The main diagonals of matrices."""

    aliases = (0,)
    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        input = input.with_rank_at_least(2)
        if input.sizes is None:
            return UNKNOWN
        rows, columns = input.sizes[-2:]
        return TensorShape.of(
            (*input.sizes[:-2], None if rows is None or columns is None else min(rows, columns))
        )

    def compute(self, k: KernelContext, input: Any) -> Any:
        if input.ndim < 2:
            raise ValueError(f"input must be at least 2-dim, received shape: {list(input.shape)}")
        return np.diagonal(input, axis1=-2, axis2=-1)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        sizes = op.inputs[0].shape.sizes
        if sizes is not None and sizes[-2] == sizes[-1] and sizes[-1] is not None:
            return raw.MatrixDiag(dy)
        return raw.MatrixSetDiag(raw.ZerosLike(op.inputs[0]), dy)

    samples = [
        sample(normal(3, 3)),
        sample(normal(2, 3, 4)),
        sample(normal(4, 3)),
        sample(ints(3, 3)),
        sample(empty(0, 2)),
    ]


@op("MatrixSetDiag(input: T, diagonal: T) -> output: T", T="type")
class MatrixSetDiag:
    """Matrices with another main diagonal."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape, diagonal: TensorShape) -> TensorShape:
        input.with_rank_at_least(2)
        if input.sizes is not None:
            diagonal.merge_with(MatrixDiagPart.impl.shape(s, input))
        return input

    def compute(self, k: KernelContext, input: Any, diagonal: Any) -> Any:
        n = min(input.shape[-2:])
        if diagonal.shape != (*input.shape[:-2], n):
            raise ValueError(
                f"the main diagonal of shape {list(input.shape)} has shape {[*input.shape[:-2], n]}, not "
                f"{list(diagonal.shape)}"
            )
        made = input.copy()
        made[..., np.arange(n), np.arange(n)] = diagonal
        return made

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        return [raw.MatrixSetDiag(dy, raw.ZerosLike(op.inputs[1])), raw.MatrixDiagPart(dy)]

    samples = [
        sample(normal(3, 3), normal(3)),
        sample(normal(2, 3, 4), normal(2, 3)),
        sample(ints(3, 3), ints(3)),
    ]


@op(
    "MatrixBandPart(input: T, num_lower: Tindex, num_upper: Tindex) -> band: T",
    T="type",
    Tindex="type in {int32,int64} = int64",
)
class MatrixBandPart:
    """Matrices without what is more than num_lower below or num_upper above the main diagonal; a negative
    number keeps all."""

    host_inputs = (1, 2)

    def shape(
        self, s: ShapeContext, input: TensorShape, num_lower: TensorShape, num_upper: TensorShape
    ) -> TensorShape:
        num_lower.with_rank(0)
        num_upper.with_rank(0)
        return input.with_rank_at_least(2)

    def compute(self, k: KernelContext, input: Any, num_lower: Any, num_upper: Any) -> Any:
        if input.ndim < 2:
            raise ValueError(f"input must be at least 2-dim, received shape: {list(input.shape)}")
        xp = k.xp
        rows, columns = input.shape[-2:]
        away = xp.arange(columns)[None, :] - xp.arange(rows)[:, None]
        low, high = int(num_lower), int(num_upper)
        kept = ((away >= -low) if low >= 0 else away == away) & (
            (away <= high) if high >= 0 else away == away
        )
        return xp.where(kept, input, xp.zeros((), k.dtype))

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [raw.MatrixBandPart(dy, op.inputs[1], op.inputs[2]), None, None]

    samples = [
        sample(normal(4, 4), np.int64(1), np.int64(0)),
        sample(normal(2, 3, 5), np.int64(-1), np.int64(1)),
        sample(normal(4, 4), 0, 0),
        sample(normal(4, 3), np.int64(-1), np.int64(-1)),
        sample(ints(3, 3), 0, -1),
    ]


_DIAGONAL_TYPES = (*FLOATS, int32, int64, *COMPLEX)


@op("Diag(diagonal: T) -> output: T", T=_DIAGONAL_TYPES)
class Diag:
    """A tensor of twice the rank, with `diagonal` where both halves of the index agree, and zeros
    elsewhere."""

    def shape(self, s: ShapeContext, diagonal: TensorShape) -> TensorShape:
        diagonal.with_rank_at_least(1)
        return diagonal.concatenate(diagonal)

    def compute(self, k: KernelContext, diagonal: Any) -> Any:
        made = k.xp.zeros((diagonal.size, diagonal.size), k.dtype)
        at = k.xp.arange(diagonal.size)
        made[at, at] = diagonal.ravel()
        return made.reshape(diagonal.shape + diagonal.shape)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.DiagPart(dy)

    samples = [sample(normal(3)), sample(normal(2, 3)), sample(ints(3))]


@op("DiagPart(input: T) -> diagonal: T", T=_DIAGONAL_TYPES)
class DiagPart:
    """The elements where both halves of the index agree: half the rank."""

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        if input.sizes is None:
            return UNKNOWN
        rank = len(input.sizes)
        if rank % 2 or not rank:
            raise ValueError(f"its input must have even, positive rank, not shape {input}")
        return TensorShape.of(input.sizes[: rank // 2]).merge_with(TensorShape.of(input.sizes[rank // 2 :]))

    def compute(self, k: KernelContext, input: Any) -> Any:
        half = input.shape[: input.ndim // 2]
        if half != input.shape[input.ndim // 2 :]:
            raise ValueError(
                f"Invalid shape {list(input.shape)}: dimensions {list(half)} and "
                f"{list(input.shape[input.ndim // 2 :])} do not match"
            )
        n = int(np.prod(half))
        at = k.xp.arange(n)
        return input.reshape(n, n)[at, at].reshape(half)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.Diag(dy)

    samples = [sample(normal(3, 3)), sample(normal(2, 3, 2, 3)), sample(ints(3, 3))]
