"""The public names of control flow, as `import graphrt as tf` gives them."""

from __future__ import annotations

from typing import Any

from graphrt.control_flow.case import case, switch_case
from graphrt.control_flow.cond import cond
from graphrt.control_flow.version import (
    control_flow_v2_enabled,
    disable_control_flow_v2,
    enable_control_flow_v2,
)
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor
from graphrt.functions.python_function import numpy_function, py_func
from graphrt.variables.lifting import gated as tuple
from graphrt.variables.lifting import group

__all__ = [
    "case",
    "cond",
    "control_flow_v2_enabled",
    "disable_control_flow_v2",
    "enable_control_flow_v2",
    "group",
    "identity_n",
    "no_op",
    "numpy_function",
    "py_func",
    "switch_case",
    "tuple",
]


def no_op(name: str | None = None) -> Operation:
    """An operation that does nothing: control dependencies meet in it."""
    return raw.NoOp(name=name)


def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """Each tensor of the list `input`, by one node: none is there before all are."""
    return raw.IdentityN([convert_to_tensor(t) for t in input], name=name)
