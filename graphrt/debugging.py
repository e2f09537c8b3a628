"""tf.debugging: checks of values, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphrt.api import array_api, math_api
from graphrt.api.array_creation import check_numerics
from graphrt.api.math_elementwise import is_finite, is_inf, is_nan
from graphrt.checks import (
    Assert,
    assert_equal,
    assert_greater,
    assert_greater_equal,
    assert_integer,
    assert_less,
    assert_less_equal,
    assert_near,
    assert_negative,
    assert_non_negative,
    assert_non_positive,
    assert_none_equal,
    assert_positive,
    assert_proper_iterable,
    assert_rank,
    assert_rank_at_least,
    assert_rank_in,
    assert_same_float_dtype,
    assert_scalar,
    assert_type,
    is_non_decreasing,
    is_numeric_tensor,
    is_strictly_increasing,
)
from graphrt.checks import verify_tensor_all_finite as assert_all_finite
from graphrt.control_flow import cond
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.operation import Operation
from graphrt.core.tensor import SparseTensor

__all__ = [
    "Assert",
    "assert_all_finite",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_proper_iterable",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_shapes",
    "assert_type",
    "check_numerics",
    "is_finite",
    "is_inf",
    "is_nan",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
]


class _Constraint(NamedTuple):
    """A tensor, the sizes asked of its last or all axes, and the sizes it has: ints where known, else
    tensors."""

    x: Any
    is_innermost: bool
    asked: tuple[Any, ...]
    actual: Any


def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where tensors have other shapes, or sizes that should be equal differ.

    Args:
      shapes: a dict, or pairs, of tensors and shapes: a size is a number, a letter (equal wherever it
        stands), or None or '.', which is any. A shape that begins with ... or '*' is of the last axes only.
    Raises:
      ValueError: now, where the static shapes show it.
    """
    prefix = f"{message}.  " if message else ""
    with name_scope(name, "assert_shapes", [data]):
        pairs = shapes.items() if isinstance(shapes, Mapping) else shapes
        constraints = [_constraint(x, shape, prefix) for x, shape in pairs if shape is not None]
        ranks = [r for c in constraints if (r := _rank_check(c, data, summarize, message, name)) is not None]
        sizes: list[Operation] = []
        seen: dict[Any, tuple[Any, str]] = {}
        for c in constraints:
            for i, symbol in enumerate(c.asked):
                if symbol is None or symbol == ".":
                    continue
                axis = i - len(c.asked) if c.is_innermost else i
                with control_dependencies(ranks):
                    actual = c.actual[axis]
                if isinstance(symbol, str) and not symbol.isdigit():
                    if symbol not in seen:
                        seen[symbol] = actual, f"Specified by tensor {_label(c.x)} dimension {axis}"
                        continue
                    wanted, why = seen[symbol]
                else:
                    wanted, why = int(symbol), "Specified explicitly"
                if isinstance(actual, int) and isinstance(wanted, int):
                    if actual != wanted:
                        raise ValueError(
                            f"{prefix}{why}.  Tensor {_label(c.x)} dimension {axis} must have size "
                            f"{wanted}.  Received size "
                            f"{actual}, shape {c.x.get_shape()}"
                        )
                    continue
                is_equal = math_api.equal(convert_to_tensor(actual), convert_to_tensor(wanted))
                shown = (
                    data
                    if data is not None
                    else [
                        prefix,
                        why,
                        f"Tensor {_label(c.x)} dimension",
                        axis,
                        "must have size",
                        wanted,
                        "Received shape: ",
                        array_api.shape(c.x),
                    ]
                )
                sizes.append(Assert(is_equal, shown, summarize=summarize))
        with control_dependencies([*ranks, *sizes]):
            return raw.NoOp()


def _label(x: Any) -> str:
    return f"shape={x.get_shape()} dtype={x.dtype.name}" if isinstance(x, SparseTensor) else x.name


def _constraint(x: Any, shape: Any, prefix: str) -> _Constraint:
    x = x if isinstance(x, SparseTensor) else convert_to_tensor(x)
    if not hasattr(shape, "__iter__"):
        raise ValueError(
            f"{prefix}Tensor {_label(x)}.  Specified shape must be an iterable.  Received specified shape: "
            f"{shape}"
        )
    asked = tuple(shape)
    is_innermost = bool(asked) and asked[0] in (Ellipsis, "*")
    asked = asked[1:] if is_innermost else asked
    for i, symbol in enumerate(asked, int(is_innermost)):
        if symbol in (Ellipsis, "*"):
            raise ValueError(
                f"{prefix}Tensor {_label(x)} specified shape index {i}.  Symbol `...` or `*` for a "
                "variable number of "
                "unspecified dimensions is only allowed as the first entry"
            )
    return _Constraint(x, is_innermost, asked or (1,), _sizes(x))


def _sizes(x: Any) -> Any:
    """The sizes of `x`; a scalar's are (1,)."""
    static = x.get_shape()
    if static.rank == 0:
        return (1,)
    dynamic = array_api.shape(x)
    if static.rank is None:
        return cond(math_api.equal(array_api.rank(x), 0), lambda: array_api.constant([1]), lambda: dynamic)
    return [dynamic[i] if n is None else n for i, n in enumerate(static.as_list())]


def _rank_check(
    c: _Constraint, data: Any, summarize: int | None, message: str | None, name: str | None
) -> Operation | None:
    rank = len(c.asked)
    named = {"data": data, "summarize": summarize, "message": message, "name": name}
    if c.is_innermost:
        return None if rank <= 1 else assert_rank_at_least(c.x, rank, **named)
    return assert_rank_in(c.x, [0, 1], **named) if rank <= 1 else assert_rank(c.x, rank, **named)
