"""A variable's arguments, checked, and its initial value made safe: variables it is computed from may be
uninitialised.

An initial value that reads another variable takes that variable's initial value instead while it has none, so
that all initializers can run in one step in any order.
"""

from __future__ import annotations

from typing import Any

from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor

_GUARDS = ("IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp", "If")
_VARIABLES = ("Variable", "VariableV2", "VarHandleOp")


def checked_arguments(initial_value: Any, collections: Any, constraint: Any, trainable: bool) -> list[Any]:
    """The collections that the variable goes to.

    Raises:
      ValueError: initial_value is missing, or collections or constraint are not of their kind.
    """
    if initial_value is None:
        raise ValueError("initial_value must be specified.")
    if collections is None:
        collections = [GraphKeys.GLOBAL_VARIABLES]
    if not isinstance(collections, (list, tuple, set)):
        raise ValueError(
            "collections argument to Variable constructor must be a list, tuple, or set. Got "
            f"{collections} of type {type(collections)}"
        )
    if constraint is not None and not callable(constraint):
        raise ValueError("The `constraint` argument must be a callable.")
    if trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
        collections = [*collections, GraphKeys.TRAINABLE_VARIABLES]
    return list(collections)


def refuse_control_flow(initial_value: Tensor, name: str) -> None:
    """Raise ValueError where an initial value stands inside a conditional or a loop: it has no value
    outside."""
    if initial_value.op._control_flow_context is not None:
        raise ValueError(
            f"Initializer for variable {name} is from inside a control-flow construct, such as a loop or "
            "conditional. When creating a variable inside a loop or conditional, use a lambda as the "
            "initializer."
        )


def safe_initial_value(name: str, initial_value: Tensor) -> Tensor:
    """`initial_value`, computed from initialised values of the variables that it reads; itself where it reads
    none."""
    if not _reads_variable(initial_value.op):
        return initial_value
    return _safe_tensor(name, initial_value, {})


def _reads_variable(root: Operation) -> bool:
    """True where a variable is among what `root` is computed from; False also where a loop is, which stays as
    it is."""
    seen: set[Operation] = set()
    frontier = [root]
    found = False
    while frontier:
        op = frontier.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type in ("NextIteration", "RefNextIteration"):
            return False
        found = found or op.type in _VARIABLES
        frontier += [t.op for t in op.inputs]
        frontier += op.control_inputs
    return found


def _safe_tensor(name: str, tensor: Tensor, made: dict[Operation, Operation]) -> Tensor:
    op = tensor.op
    if op not in made:
        made[op] = _safe_op(name, op, made)
    return made[op].outputs[tensor.value_index]


def _safe_op(name: str, op: Operation, made: dict[Operation, Operation]) -> Operation:
    if op.type in _GUARDS:
        # A guard itself, or a read, which is one where read_value made it.
        return op
    if op.type in _VARIABLES:
        value = _initialized_value(op)
        return op if value is None else value.op
    inputs = [_safe_tensor(name, t, made) for t in op.inputs]
    if inputs == list(op.inputs):
        return op
    kind = "Switch" if op.type == "RefSwitch" else op.type
    return op.graph.create_op(
        kind,
        inputs,
        [t.dtype for t in op.outputs],
        name=f"{op.name}_{name}".replace(":", "_"),
        attrs=dict(op.attrs),
    )


def _initialized_value(variable_op: Operation) -> Tensor | None:
    for collection in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES):
        for variable in variable_op.graph.get_collection(collection):
            if getattr(variable, "name", None) in (variable_op.name, variable_op.name + ":0"):
                return variable.initialized_value()
    return None
