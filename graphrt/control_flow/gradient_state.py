"""Gradients through conditionals: what one call of `gradients` knows of the contexts on its way.

A Merge's gradient is a Switch, a Switch's a Merge (ops/control_flow.py). What is missing is the gradient for
the side of a Switch on which nothing was computed: zeros that are alive where that side is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.gradients import set_control_flow_state
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor
from graphrt.ops.control_flow import switch


class GradientState:
    """The hooks that core/gradients.py calls. Conditionals need `zeros_like` alone; the others are there for
    loops, whose gradients run in a loop of their own that is entered and left around each operation of the
    loop's body."""

    def __init__(self, between: set[Operation], ys: list[Any], xs: list[Any]) -> None:
        self.between, self.ys, self.xs = between, ys, xs

    def process_unused_loop_exits(self, pending: dict[Operation, int], between: set[Operation]) -> None:
        """Loop variables that no y depends on still go round with those that one does."""

    def ready_exits(self, walk: Any) -> Iterable[Operation]:
        """Operations that may be visited at once although no gradient comes to them."""
        return ()

    def enter_grad(self, op: Operation) -> None:
        """The gradient of `op` is built now."""

    def exit_grad(self, op: Operation) -> None:
        """The gradient of `op` was built."""

    def after(self, op: Operation, walk: Any) -> Iterable[Operation]:
        """Operations that may be visited now that `op` was."""
        return ()

    def post_processing(self) -> None:
        """All gradients are built."""

    def zeros_like(self, tensor: Tensor) -> Any:
        """Zeros for `tensor`, alive where it is; NotImplemented where plain zeros do."""
        op = tensor.op
        context = op._control_flow_context
        if op.type not in ("Switch", "RefSwitch") or context is None or not context.is_cond:
            return NotImplemented
        other = switch(op.inputs[0], context.pred)[1 - context.branch]
        # What takes no tensor of this side must still be dead where the side is.
        alive = raw.Identity(other)
        if tensor.dtype.base_dtype.name == "resource":
            if tensor.handle is None:
                raise ValueError(f"the value behind '{tensor.name}' is of unknown dtype: it has no zeros")
            with control_dependencies([alive]):
                return _zeros(raw.VariableShape(other), tensor.handle[0])
        shape = raw.Shape(other)
        with control_dependencies([alive]):
            return _zeros(shape, tensor.dtype.base_dtype)


def _zeros(shape: Tensor, dtype: Any) -> Tensor:
    with name_scope("zeros") as scope:
        return raw.Fill(shape, raw.Const(value=np.zeros((), dtype.np), dtype=dtype), name=scope)


set_control_flow_state(GradientState)
