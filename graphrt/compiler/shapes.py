"""Static shapes of step nodes: of graphs that arrive without them, and downstream of a feed that replaces a
constant.

Shape rules ask for constant values as they do while a graph is built, so step nodes are shown to them as
tensors.
Cost: one call of a shape rule a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphrt.compiler.step_graph import Node, StepGraph
from graphrt.core.errors import InvalidArgumentError, source_line
from graphrt.core.registry import ShapeContext
from graphrt.core.shapes import UNKNOWN
from graphrt.core.tensor import Tensor

# What stands behind resources: (node, output) to (dtype, shape).
Handles = dict[tuple[Node, int], Any]


class _View:
    """A node as shape rules and `constant_value` see an operation."""

    __slots__ = ("node", "handles", "name", "type", "attrs", "op_def")

    def __init__(self, node: Node, handles: Handles) -> None:
        self.node, self.handles = node, handles
        self.name, self.type, self.attrs, self.op_def = node.name, node.type, node.attrs, node.op_def

    @property
    def inputs(self) -> _Inputs:
        return _Inputs(self.node, self.handles)


class _Inputs:
    """The inputs of a node as tensors, each made when it is asked for."""

    __slots__ = ("node", "handles")

    def __init__(self, node: Node, handles: Handles) -> None:
        self.node, self.handles = node, handles

    def __len__(self) -> int:
        return len(self.node.inputs)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [as_tensor(source, index, self.handles) for source, index in self.node.inputs[i]]
        return as_tensor(*self.node.inputs[i], self.handles)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self[:])


def as_tensor(node: Node, index: int, handles: Handles) -> Tensor:
    """Output `index` of a node, to be looked at as the Tensor of a graph is."""
    made = Tensor(_View(node, handles), index, node.dtypes[index])  # type: ignore[arg-type]
    made._shape = node.shapes[index]
    known = handles.get((node, index))
    if known is None and node.origin is not None and node.type == node.origin.type:
        known = node.origin.outputs[index].handle
    made.handle = known
    return made


def infer_node(node: Node, handles: Handles) -> None:
    """Set the node's shapes from its inputs' shapes and constant values.

    Raises:
      InvalidArgumentError: they do not fit, with the op and the user's line.
    """
    context = ShapeContext(node.op_def, node.attrs, _Inputs(node, handles))  # type: ignore[arg-type]
    flat = [source.shapes[index] for source, index in node.inputs]
    try:
        node.shapes = node.op_def.infer_shapes(context, flat, len(node.dtypes))
    except ValueError as error:
        lines = [f"{node.type}: {error}", f"  op       '{node.name}' ({node.type})"]
        if node.location is not None:
            lines.append(f"  built at {source_line(node.location)}")
        raise InvalidArgumentError(node, node.origin, "\n".join(lines)) from None
    for i, handle in context.handles.items():
        handles[node, i] = handle


def infer_shapes(nodes: Iterable[Node]) -> None:
    """Set the shapes of `nodes`, which are in topological order, beside what is known of them already. What a
    loop carries back is not known."""
    handles: Handles = {}
    for node in nodes:
        if node.type in ("Merge", "RefMerge") and any(s.type == "NextIteration" for s, _ in node.inputs):
            node.shapes = [UNKNOWN] * len(node.dtypes)
            continue
        known = node.shapes
        infer_node(node, handles)
        node.shapes = [old.merge_with(new) if old.is_compatible_with(new) else new
                       for old, new in zip(known, node.shapes)]


def infer_downstream(step: StepGraph, roots: set[Node]) -> None:
    """Set anew the shapes of everything that `roots` reach."""
    reached = set(roots)
    handles: Handles = {}
    for node in step.nodes:
        if node not in reached and any(source in reached for source, _ in node.inputs):
            reached.add(node)
            if node.type in ("Merge", "RefMerge") and any(s.type == "NextIteration" for s, _ in node.inputs):
                node.shapes = [UNKNOWN] * len(node.dtypes)
            else:
                infer_node(node, handles)
