"""tf.Assert, tf.assert_equal, …: checks of values, types, ranks and shapes.

What is known while the graph is built is checked then; else an Assert node checks it in each step that runs
it: `with tf.control_dependencies([tf.assert_positive(x)]):`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.api import array_api, math_api
from graphrt.control_flow import cond
from graphrt.control_flow.assertion import Assert
from graphrt.control_flow.dependencies import with_dependencies
from graphrt.core import raw
from graphrt.core.arguments import renamed
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import colocate_with, name_scope
from graphrt.core.dtypes import NUMBERS, DType, as_dtype, float32, int32
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.operation import Operation
from graphrt.core.tensor import SparseTensor, Tensor

__all__ = [
    "Assert",
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
    "assert_type",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
    "verify_tensor_all_finite",
]


def _prefix(message: str | None) -> str:
    return f"{message}.  " if message else ""


def _binary(
    symbol: str,
    function: str,
    compare: Callable[..., Tensor],
    static: Callable[..., Any],
    x: Any,
    y: Any,
    data: Any,
    summarize: int | None,
    message: str | None,
    name: str | None,
) -> Operation:
    with name_scope(name, function, [x, y, data]):
        x, y = convert_to_tensor(x, name="x"), convert_to_tensor(y, name="y")
        if data is None:
            data = [
                f"Condition x {symbol} y did not hold element-wise:",
                f"x ({x.name}) = ",
                x,
                f"y ({y.name}) = ",
                y,
            ]
        if message is not None:
            data = [message, *data]
        condition = math_api.reduce_all(compare(x, y))
        known_x, known_y = constant_value(x), constant_value(y)
        if known_x is not None and known_y is not None and not np.all(static(known_x, known_y)):
            raise InvalidArgumentError(None, None, "\n".join(map(_shown, data)))
        return Assert(condition, data, summarize=summarize)


def _shown(item: Any) -> str:
    known = constant_value(item)
    return str(item if known is None else known)


def assert_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x == y does not hold for every element; they broadcast.

    Args:
      data: what the message shows; x and y by default.
      summarize: how many elements of each are shown.
      message: put before it.
    Raises:
      InvalidArgumentError: now, where both are constants; else in the step that runs the operation.
    """
    with name_scope(name, "assert_equal", [x, y, data]):
        if x is y:
            return raw.NoOp()
    return _binary("==", "assert_equal", math_api.equal, np.equal, x, y, data, summarize, message, name)


def assert_none_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x != y does not hold for every element. See assert_equal."""
    return _binary(
        "!=", "assert_none_equal", math_api.not_equal, np.not_equal, x, y, data, summarize, message, name
    )


def assert_less(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x < y does not hold for every element. See assert_equal."""
    return _binary("<", "assert_less", math_api.less, np.less, x, y, data, summarize, message, name)


def assert_less_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x <= y does not hold for every element. See assert_equal."""
    return _binary(
        "<=", "assert_less_equal", math_api.less_equal, np.less_equal, x, y, data, summarize, message, name
    )


def assert_greater(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x > y does not hold for every element. See assert_equal."""
    return _binary(">", "assert_greater", math_api.greater, np.greater, x, y, data, summarize, message, name)


def assert_greater_equal(
    x: Any,
    y: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x >= y does not hold for every element. See assert_equal."""
    return _binary(
        ">=",
        "assert_greater_equal",
        math_api.greater_equal,
        np.greater_equal,
        x,
        y,
        data,
        summarize,
        message,
        name,
    )


def _sign(
    function: str,
    says: str,
    x: Any,
    data: Any,
    summarize: int | None,
    message: str | None,
    name: str | None,
    compare: Callable[[Tensor, Tensor], tuple[Callable[..., Operation], Tensor, Tensor]],
) -> Operation:
    message = _prefix(message)
    with name_scope(name, function, [x, data]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [message, f"Condition x {says} 0 did not hold element-wise:", f"x ({x.name}) = ", x]
        check, a, b = compare(x, convert_to_tensor(0, dtype=x.dtype))
        return check(a, b, data=data, summarize=summarize)


def assert_negative(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x < 0 does not hold for every element. See assert_equal."""
    return _sign(
        "assert_negative", "<", x, data, summarize, message, name, lambda x, zero: (assert_less, x, zero)
    )


def assert_positive(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x > 0 does not hold for every element. See assert_equal."""
    return _sign(
        "assert_positive", ">", x, data, summarize, message, name, lambda x, zero: (assert_less, zero, x)
    )


def assert_non_negative(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x >= 0 does not hold for every element. See assert_equal."""
    return _sign(
        "assert_non_negative",
        ">=",
        x,
        data,
        summarize,
        message,
        name,
        lambda x, zero: (assert_less_equal, zero, x),
    )


def assert_non_positive(
    x: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x <= 0 does not hold for every element. See assert_equal."""
    return _sign(
        "assert_non_positive",
        "<=",
        x,
        data,
        summarize,
        message,
        name,
        lambda x, zero: (assert_less_equal, x, zero),
    )


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where |x - y| < atol + rtol * |y| does not hold for every element.

    Args:
      rtol, atol: 10 times the dtype's epsilon by default.
    """
    message = _prefix(message)
    with name_scope(name, "assert_near", [x, y, rtol, atol, data]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype)
        dtype = x.dtype.real_dtype
        eps = float(_eps(dtype))
        rtol = convert_to_tensor(10 * eps if rtol is None else rtol, name="rtol", dtype=dtype)
        atol = convert_to_tensor(10 * eps if atol is None else atol, name="atol", dtype=dtype)
        if data is None:
            data = [
                message,
                f"x and y not equal to tolerance rtol = {rtol}, atol = {atol}",
                f"x ({x.name}) = ",
                x,
                f"y ({y.name}) = ",
                y,
            ]
        tolerance = atol + rtol * math_api.abs(y)
        is_near = math_api.less(math_api.abs(x - y), tolerance)
        return Assert(math_api.reduce_all(is_near), data, summarize=summarize)


def _eps(dtype: DType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype.np).eps


def _rank_check(
    function: str,
    must: str,
    x: Any,
    ranks: list[Tensor],
    data: Any,
    summarize: int | None,
    message: str | None,
    holds: Callable[[int, list[int]], bool],
    dynamic: Callable[[Tensor], Tensor],
) -> Operation:
    """The check that x's rank is right; `ranks` are the given ones."""
    message, label = _prefix(message), "" if isinstance(x, SparseTensor) else x.name
    if data is None:
        data = [message, f"Tensor {label} {must}", *ranks, "Received shape: ", array_api.shape(x)]
    for rank in ranks:
        assert_type(rank, int32)
    known = [constant_value(r) for r in ranks]
    if all(k is not None for k in known):
        if any(k.ndim for k in known):  # type: ignore[union-attr]
            raise ValueError("Rank must be a scalar.")
        actual, given = x.get_shape().rank, [int(k) for k in known]  # type: ignore[arg-type]
        if actual is not None:
            if not holds(actual, given):
                shown = tuple(given) if function == "assert_rank_in" else given[0]
                raise ValueError(
                    f"{message}Tensor {label} {must} {shown}.  Received rank {actual}, shape {x.get_shape()}"
                )
            return raw.NoOp(name="static_checks_determined_all_ok")
    condition = dynamic(array_api.rank(x))
    for rank, value in zip(ranks, known):
        if value is None:
            is_scalar = assert_rank(rank, 0, data=["Rank must be a scalar. Received rank: ", rank])
            condition = with_dependencies([is_scalar], condition)
    return Assert(condition, data, summarize=summarize)


def assert_rank(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x is not of `rank`.

    Raises:
      ValueError: now, where both are known.
    """
    with name_scope(name, "assert_rank", [x, rank, *(data or ())]):
        if not isinstance(x, SparseTensor):
            x = convert_to_tensor(x, name="x")
        rank = convert_to_tensor(rank, name="rank")
        return _rank_check(
            "assert_rank",
            "must have rank",
            x,
            [rank],
            data,
            summarize,
            message,
            lambda actual, given: actual == given[0],
            lambda actual: math_api.equal(actual, rank),
        )


def assert_rank_at_least(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x is of a smaller rank.

    Raises:
      ValueError: now, where both are known.
    """
    with name_scope(name, "assert_rank_at_least", [x, rank, *(data or ())]):
        x, rank = convert_to_tensor(x, name="x"), convert_to_tensor(rank, name="rank")
        return _rank_check(
            "assert_rank_at_least",
            "must have rank at least",
            x,
            [rank],
            data,
            summarize,
            message,
            lambda actual, given: actual >= given[0],
            lambda actual: math_api.greater_equal(actual, rank),
        )


def assert_rank_in(
    x: Any,
    ranks: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails where x is of none of `ranks`.

    Raises:
      ValueError: now, where all are known.
    """
    with name_scope(name, "assert_rank_in", [x, *ranks, *(data or ())]):
        if not isinstance(x, SparseTensor):
            x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank") for rank in ranks]

        def is_one(actual: Tensor) -> Tensor:
            found = math_api.equal(ranks[0], actual) if ranks else convert_to_tensor(False)
            for rank in ranks[1:]:
                found = math_api.logical_or(found, math_api.equal(rank, actual))
            return found

        return _rank_check(
            "assert_rank_in",
            "must have rank in",
            x,
            ranks,
            data,
            summarize,
            message,
            lambda actual, given: actual in given,
            is_one,
        )


def verify_tensor_all_finite(
    t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None, message: str | None = None
) -> Tensor:
    """`x` (`t` is its older name); a step in which it has an infinity or NaN ends in InvalidArgumentError
    with `message`."""
    x, message = renamed("x", x, "t", t), renamed("message", message, "msg", msg)
    with name_scope(name, "VerifyFinite", [x]):
        x = convert_to_tensor(x, name="x")
        with colocate_with(x):
            return with_dependencies([raw.CheckNumerics(x, message=message)], x)


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Raise TypeError where `x` is not of an integer dtype; the operation returned does nothing."""
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            raise TypeError(
                f'{_prefix(message)}Expected "x" to be integer type.  Found: {x.name} of dtype {x.dtype!r}'
            )
        return raw.NoOp(name="statically_determined_was_integer")


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Raise TypeError where `tensor` is not of dtype `tf_type`; the operation returned does nothing."""
    wanted = as_dtype(tf_type)
    with name_scope(name, "assert_type", [tensor]):
        if not isinstance(tensor, SparseTensor):
            tensor = convert_to_tensor(tensor, name="tensor")
        if tensor.dtype != wanted:
            raise TypeError(
                f"{_prefix(message)}{getattr(tensor, 'name', 'tensor')} must be of type {wanted!r}; got "
                f"{tensor.dtype!r}"
            )
        return raw.NoOp(name="statically_determined_correct_type")


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """`tensor`, converted. Raises ValueError where its static shape is not a scalar's."""
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.shape.rank != 0:
            raise ValueError(
                f"{_prefix(message)}Expected scalar shape for {tensor.name}, saw shape: {tensor.shape}."
            )
        return tensor


def assert_proper_iterable(values: Any) -> None:
    """Raise TypeError where `values` is not an iterable of tensors: a tensor, an array and a text are
    none."""
    if isinstance(values, (Tensor, SparseTensor, np.ndarray, str, bytes)):
        raise TypeError(f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}')
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> DType:
    """The floating point dtype of `tensors` and `dtype`; float32 where neither says.

    Raises:
      ValueError: they differ, or are not floating point.
    """
    expected, first = None if dtype is None else as_dtype(dtype), None
    for item in tensors or ():
        if item is None:
            continue
        found, label = item.dtype.base_dtype, getattr(item, "name", str(item))
        if expected is None:
            expected, first = found, label
        elif found is not expected:
            raise ValueError(
                f"{label}, type={found.name}, must be of the same type ({expected.name})"
                + (f" as {first}." if first else ".")
            )
    expected = expected or float32
    if not expected.is_floating:
        raise ValueError(f"Expected floating point type, got {expected}.")
    return expected


def is_numeric_tensor(tensor: Any) -> bool:
    """Whether `tensor` is a Tensor of a numeric dtype."""
    return isinstance(tensor, Tensor) and tensor.dtype in NUMBERS


def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether x, flattened, satisfies x[i] <= x[i + 1]; True for fewer than two elements."""
    with name_scope(name, "is_non_decreasing", [x]):
        return math_api.reduce_all(_neighbours(x, math_api.greater_equal))


def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether x, flattened, satisfies x[i] < x[i + 1]; True for fewer than two elements."""
    with name_scope(name, "is_strictly_increasing", [x]):
        return math_api.reduce_all(_neighbours(x, math_api.greater))


def _neighbours(x: Any, compare: Callable[..., Tensor]) -> Tensor:
    """`compare` of each element but the first with the one before it; empty where there are fewer than
    two."""
    x = array_api.reshape(x, [-1])
    if not is_numeric_tensor(x):
        raise TypeError(f"Expected x to be numeric, instead found: {x}")
    is_short = math_api.less(array_api.size(x), 2)
    n = array_api.shape(x) - 1
    return cond(
        is_short,
        lambda: convert_to_tensor([], dtype="bool"),
        lambda: compare(array_api.strided_slice(x, [1], [1] + n), array_api.strided_slice(x, [0], n)),
    )
