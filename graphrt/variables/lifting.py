"""Building out of the way: what a variable needs (its initialiser, its slots) stands outside open control
flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import default_graphs, get_default_graph, name_scope
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, Tensor


@contextmanager
def init_scope() -> Iterator[None]:
    """Build outside of control dependencies, conditionals, loops and functions; the name scope stays."""
    graph = get_default_graph()
    outer = outside_functions(graph)
    scope = graph.get_name_scope()
    with (
        outer.as_default(),
        outer.name_scope(scope + "/" if scope else None),
        outer.control_dependencies(None),
    ):
        yield


def outside_functions(graph: Graph) -> Graph:
    """`graph`, or the one around the function bodies that it is the innermost of."""
    if not graph.building_function:
        return graph
    for open_graph in reversed(default_graphs.stack):
        if not open_graph.building_function:
            return open_graph
    outer: Any = graph
    while getattr(outer, "outer_graph", None) is not None:
        outer = outer.outer_graph
    return outer


def group(*inputs: Any, **options: Any) -> Operation:
    """An operation that is done when all of `inputs` are: operations, tensors, variables, or lists of them.

    Args:
      name: the operation's name, 'group_deps' by default.
    Raises:
      TypeError: an input is nothing of a graph.
      ValueError: another keyword than `name`.
    """
    name = options.pop("name", None)
    if options:
        raise ValueError(f"Unknown keyword arguments: {', '.join(options)}")
    ops: list[Operation] = []
    for given in _flat(inputs):
        op = given if isinstance(given, Operation) else getattr(given, "op", None)
        if not isinstance(op, Operation):
            raise TypeError(
                f"'inputs' should be zero or more (nested) Tensors. Received '{given}' with type "
                f"'{type(given)}'."
            )
        ops.append(op)
    with name_scope(name, "group_deps", ops) as scope:
        if not ops:
            return raw.NoOp(name=scope)
        by_device: dict[str, list[Operation]] = {}
        for op in ops:
            by_device.setdefault(op.device, []).append(op)
        if len(by_device) == 1:
            ((device, found),) = by_device.items()
            return _after(device, found, scope)
        # One node a device first: a device then signals another once.
        parts = [_after(device, by_device[device], None) for device in sorted(by_device)]
        with get_default_graph().control_dependencies(parts):
            return raw.NoOp(name=scope)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        elif isinstance(value, dict):
            yield from _flat(value[key] for key in sorted(value))
        else:
            yield value


def _after(device: str, ops: list[Operation], name: str | None) -> Operation:
    graph = get_default_graph()
    with graph.control_dependencies(ops):
        if not device:
            return raw.NoOp(name=name)
        with graph.device(device):
            return raw.NoOp(name=name)


def gated(tensors: list[Any], name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """tf.tuple: the tensors, each available only when all of them (and `control_inputs`) are. None stays
    None.

    Raises:
      ValueError: there is no tensor among them.
    """
    with name_scope(name, "tuple", [t for t in tensors if t is not None]):
        waited = [t if isinstance(t, Operation) else t.op for t in tensors if t is not None]
        for given in control_inputs or ():
            waited.append(given if isinstance(given, Operation) else given.op)
        if not waited:
            raise ValueError(f"'tensors' must have at least one Tensor. Received: {tensors}.")
        # Each once, in the order in which they were built, as TensorFlow puts them.
        gate = group(*sorted(set(waited), key=lambda op: op._id))
        return [t if t is None else _wait(gate, t) for t in tensors]


def _wait(gate: Operation, given: Any) -> Any:
    """`given`, available only after `gate`."""
    graph = get_default_graph()
    if isinstance(given, Operation):
        with graph.control_dependencies([gate]):
            return group(given)
    with (
        name_scope("control_dependency") as scope,
        graph.colocate_with(given.op),
        graph.control_dependencies([gate]),
    ):
        if isinstance(given, IndexedSlices):
            return IndexedSlices(raw.Identity(given.values, name=scope), given.indices, given.dense_shape)
        return raw.Identity(given, name=scope)


def initialized_value(variable: Any) -> Tensor:
    """A variable's value, or its initial value where it was not initialised yet."""
    from graphrt.control_flow.cond import cond

    with init_scope():
        return cond(variable.is_initialized(), variable.read_value, lambda: variable.initial_value)
