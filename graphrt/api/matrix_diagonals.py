"""Public functions of diagonals: tf.diag, tf.matrix_diag, tf.matrix_band_part, …"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.tensor import Tensor


def _padding(x: Tensor, value: Any) -> Any:
    """`value` as x's dtype has it."""
    return value if isinstance(value, Tensor) else np.array(value, x.dtype.np)


def matrix_diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Matrices with the given diagonals.

    Args:
      diagonal: tensor [..., n]: the diagonal k of each matrix; or [..., high - low + 1, n] for diagonals k =
      [low, high], the
        highest first, padded to the longest.
      k: which diagonal: 0 is the main one, 1 the one above, -1 below; or a pair.
      num_rows, num_cols: of the matrices; -1 is the smallest that holds the diagonals.
      padding_value: what is elsewhere.
      align: on which side the diagonals above and below the main one are stored: RIGHT_LEFT is LAPACK's.
    Returns:
      Tensor [..., num_rows, num_cols].
    """
    diagonal = convert_to_tensor(diagonal, name="diagonal")
    return raw.MatrixDiagV3(
        diagonal, k, num_rows, num_cols, _padding(diagonal, padding_value), align=align, name=name
    )


def matrix_diag_part(
    input: Any, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """The diagonals k of matrices; see matrix_diag, of which it is the inverse."""
    input = convert_to_tensor(input, name="input")
    return raw.MatrixDiagPartV3(input, k, _padding(input, padding_value), align=align, name=name)


def matrix_set_diag(
    input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Matrices with their diagonals k replaced; see matrix_diag."""
    return raw.MatrixSetDiagV3(input, diagonal, k, align=align, name=name)


def matrix_band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Matrices without what is more than num_lower below or num_upper above the main diagonal; a negative
    number keeps all.

    `matrix_band_part(x, -1, 0)` is the lower triangle.
    """
    return raw.MatrixBandPart(input, num_lower, num_upper, name=name)


def diag(diagonal: Any, name: str | None = None) -> Tensor:
    """A tensor of twice the rank, with `diagonal` where both halves of the index agree, and zeros
    elsewhere."""
    return raw.Diag(diagonal, name=name)


def diag_part(input: Any, name: str | None = None) -> Tensor:
    """The elements of a tensor of even rank where both halves of the index agree."""
    return raw.DiagPart(input, name=name)


__all__ = ["diag", "diag_part", "matrix_band_part", "matrix_diag", "matrix_diag_part", "matrix_set_diag"]
