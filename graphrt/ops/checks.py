"""Assert: ends a step where a condition does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import program
from graphrt.core.shapes import TensorShape


@op("Assert(condition: bool, data: T)", T="list(type) >= 1", summarize="int = 3")
class Assert:
    """InvalidArgumentError with the first `summarize` elements of each of `data` (-1: all) where `condition`
    is False."""

    stateful = True
    host_inputs = ALL
    cpu_only = True

    def shape(self, s: ShapeContext, condition: TensorShape, data: list[TensorShape]) -> None:
        condition.with_rank(0)

    def compute(self, k: KernelContext, condition: Any, *data: Any) -> tuple[()]:
        if condition.ndim:
            raise InvalidArgumentError(None, None, f"In[0] should be a scalar: {list(condition.shape)}")
        if not condition:
            shown = " ".join(f"[{summary(d, k.attrs['summarize'])}]" for d in data)
            raise InvalidArgumentError(None, None, f"assertion failed: {shown}")
        return ()

    samples = [
        program(lambda tf: [tf.Assert(tf.constant(True), [tf.constant([1, 2])])]),
        program(
            lambda tf: [
                tf.raw_ops.Assert(
                    condition=tf.constant(True), data=[tf.constant(1.5), tf.constant("x")], summarize=1
                )
            ]
        ),
    ]


def summary(value: Any, limit: int) -> str:
    """The first `limit` elements of an array (-1: all) as TensorFlow prints them: [1 2][3...]..."""
    array = np.asarray(value)
    flat = array.reshape(-1)
    limit = flat.size if limit < 0 else min(limit, flat.size)
    elements = iter([_element(e) for e in flat[:limit]])
    shown = _rows(array.shape, elements, limit) if array.ndim else "".join(elements)
    return shown + ("..." if limit < flat.size else "")


def _rows(shape: tuple[int, ...], elements: Any, limit: int) -> str:
    """Every axis but the first in brackets; an innermost row that is cut short ends in '...'."""
    left = [limit]

    def axis(depth: int) -> str:
        if not left[0]:
            return ""
        if depth < len(shape) - 1:
            parts = []
            for _ in range(shape[depth]):
                if left[0]:
                    parts.append(f"[{axis(depth + 1)}]")
            return "".join(parts)
        taken = min(shape[depth], left[0])
        left[0] -= taken
        return " ".join(next(elements) for _ in range(taken)) + (
            "..." if depth and taken < shape[depth] else ""
        )

    return axis(0)


def _element(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode(errors="replace")
    if isinstance(item, (bool, np.bool_)):
        return str(int(item))
    if (
        isinstance(item, (np.floating, float))
        or getattr(item, "dtype", None) is not None
        and item.dtype.kind == "V"
    ):
        return _float(item)
    if isinstance(item, (int, np.integer)):
        return str(int(item))
    return "?"


def _float(item: Any) -> str:
    """The shorter of two precisions that gives the number back: 6 or 9 digits (float64: 15 or 17)."""
    number = float(item)
    if number != number or number in (np.inf, -np.inf):
        return str(number)
    short, long = (15, 17) if isinstance(item, np.float64) else (6, 9)
    shown = f"{number:.{short}g}"
    exact = np.float64(shown) == item if short == 15 else np.float32(shown) == np.float32(item)
    return shown if exact else f"{number:.{long}g}"
