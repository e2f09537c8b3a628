"""tf.Assert: a check that a step makes."""

from __future__ import annotations

from typing import Any

from graphrt.control_flow.cond import cond
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int32, string
from graphrt.core.operation import Operation


def Assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> Operation:  # noqa: N802
    """An operation that ends a step with InvalidArgumentError where `condition` is False.

    Args:
      condition: a bool scalar.
      data: a list of tensors and texts: the message.
      summarize: how many elements of each tensor the message shows (3 by default, all where negative).
    """
    with name_scope(name, "Assert", [condition, *data]):
        values = [convert_to_tensor(d) for d in data]
        if all(v.dtype.base_dtype in (string, int32) for v in values):
            return raw.Assert(condition, data, summarize=summarize, name="Assert")
        condition = convert_to_tensor(condition, name="Condition")
        # Data that is on a GPU is copied to the host only where it is shown.
        guarded = cond(
            condition,
            raw.NoOp,
            lambda: raw.Assert(condition, data, summarize=summarize, name="Assert"),
            name="AssertGuard",
        )
        return guarded.op
