"""Updates of rows picked by indices: what the scatter ops and the sparse optimizers share.

Duplicates count in order, as if one index came after the other. Rows are updated in rounds of distinct
indices, each round at once; a round holds what is left of every index, so there are as many as the commonest
index has entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext


def truncated_division(xp: Any, a: Any, b: Any) -> Any:
    """a / b; of integers rounded towards zero, as C does."""
    if a.dtype.kind in "iu":
        quotient = xp.floor_divide(a, b)
        # floor and truncation differ by one where the signs differ and something is left over.
        return quotient + ((xp.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)
    return xp.true_divide(a, b)


UPDATES: dict[str, Callable[[Any, Any, Any], Any] | None] = {
    "Update": None,
    "Add": lambda xp, a, b: xp.add(a, b),
    "Sub": lambda xp, a, b: xp.subtract(a, b),
    "Mul": lambda xp, a, b: xp.multiply(a, b),
    "Div": truncated_division,
    "Min": lambda xp, a, b: xp.minimum(a, b),
    "Max": lambda xp, a, b: xp.maximum(a, b),
}


def distinct_rounds(indices: np.ndarray) -> Iterator[Any]:
    """Positions in the vector `indices`, in rounds without a duplicate; one round `slice(None)` where there
    is none."""
    n = indices.size
    if n < 2:
        yield slice(None)
        return
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    is_new = np.empty(n, bool)
    is_new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    if is_new.all():
        yield slice(None)
        return
    positions = np.arange(n)
    # How many equal indices came before each: its distance from the first of its run.
    earlier = positions - np.maximum.accumulate(np.where(is_new, positions, 0))
    by_round = np.argsort(earlier, kind="stable")
    start = 0
    for end in np.cumsum(np.bincount(earlier)).tolist():
        yield order[by_round[start:end]]
        start = end


Rounds = Callable[[Any], Iterator[Any]]


def rounds_for(k: KernelContext) -> Rounds:
    """distinct_rounds of vectors on the kernel's device, with positions there; a GPU's are sorted by the
    host."""
    if k.xp is np:
        return distinct_rounds
    device = k.device

    def rounds(indices: Any) -> Iterator[Any]:
        for chosen in distinct_rounds(device.to_host(indices)):
            yield chosen if isinstance(chosen, slice) else device.from_host(chosen)

    return rounds


def checked_rows(xp: Any, indices: Any, n: int, name: str, shape: tuple[int, ...] | None = None) -> Any:
    """`indices` as a flat vector.

    Raises:
      InvalidArgumentError: one is outside [0, n); with its place and the variable's name. On a GPU it is not
        looked for,
        as in TensorFlow: that would stop the stream.
    """
    flat = indices.reshape(-1)
    if xp is np and flat.size and (flat.min() < 0 or flat.max() >= n):
        at = int(np.argmax((flat < 0) | (flat >= n)))
        place = ", ".join(
            str(int(i)) for i in np.unravel_index(at, shape if shape is not None else indices.shape)
        )
        raise InvalidArgumentError(
            None, None, f"indices[{place}] = {int(flat[at])} is not in [0, {n}) (variable '{name}')"
        )
    return flat


def scatter_rows(
    xp: Any, how: str, array: Any, rows: Any, updates: Any, rounds: Rounds = distinct_rounds
) -> None:
    """array[rows[i]] = how(array[rows[i]], updates[i]) for each i in order.

    Args:
      how: a key of UPDATES.
      array: shape [n, ...], written in place.
      rows: vector of row numbers in [0, n).
      updates: shape [len(rows), ...], or a scalar for all.
      rounds: the device's, from rounds_for.
    """
    update = UPDATES[how]
    if update is None:
        array[rows] = updates  # the last of equal indices stays
        return
    is_scalar = not updates.ndim
    for chosen in rounds(rows):
        picked = rows[chosen]
        array[picked] = update(xp, array[picked], updates if is_scalar else updates[chosen])
