"""Views of a ref variable's live memory: later updates show in them only where they do in TensorFlow.

There, reshapes of a reference's memory share it, and so do slices of its first axis if they and all rows
begin on boundaries of 64 bytes; the rest (transposes, other slices, reversals) are copies made when the op
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_ALIGNMENT = 64


def viewing(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of an op that may give views, over live memory."""

    def view(*inputs: Any) -> Any:
        made = kernel(*inputs)
        if isinstance(made, (tuple, list)):
            return type(made)([_settled(m, inputs) for m in made])
        return _settled(made, inputs)

    return view


def _settled(made: Any, inputs: tuple[Any, ...]) -> Any:
    if not isinstance(made, np.ndarray):
        return made
    memory = _memory(made)
    source = next((x for x in inputs if isinstance(x, np.ndarray) and _memory(x) is memory), None)
    return made if source is None or _is_shared(made, source) else made.copy()


def _is_shared(view: np.ndarray, source: np.ndarray) -> bool:
    """True where TensorFlow's op would share the memory of `source` too."""
    if not view.flags.c_contiguous:
        return False
    if view.size == source.size:
        return True
    # A slice of the first axis: it begins on a boundary, and so do all rows.
    row = source.strides[0] if source.ndim > 1 else 0
    return (_address(view) - _address(source)) % _ALIGNMENT == 0 and row % _ALIGNMENT == 0


def _memory(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory that this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
