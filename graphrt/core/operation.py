"""Operation: a node of a graph. It knows its inputs, attrs, device, and the line of the program that built
it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from graphrt.core import tensor as tensor_module
from graphrt.core.errors import source_line
from graphrt.core.tensor import Tensor

if TYPE_CHECKING:
    from graphrt.core.graph import Graph
    from graphrt.core.registry import OpDef

_PACKAGE = __file__.rsplit("/core/", 1)[0] + "/"


def user_location(depth: int = 1) -> tuple[str, int]:
    """(file, line) of the innermost frame outside graphrt."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("<unknown>", 0)


class Operation:
    """A node.

    Attributes:
      name, type: its name in the graph and its op's name.
      inputs: the Tensors it takes; outputs: the Tensors it produces.
      control_inputs: operations that run before it.
      attrs: attr name to value (bytes, int, float, bool, DType, TensorShape, ndarray, FunctionRef or a list).
      device: its device name, whole or in part.
      location: (file, line) of the user's code that built it.
    """

    __slots__ = (
        "graph",
        "name",
        "op_def",
        "type",
        "inputs",
        "outputs",
        "control_inputs",
        "attrs",
        "_device",
        "location",
        "_id",
        "_original_op",
        "_control_flow_context",
        "_gradient_override",
        "__dict__",
        "__weakref__",
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        op_def: OpDef,
        inputs: list[Tensor],
        control_inputs: list[Operation],
        attrs: dict[str, Any],
        output_types: list[Any],
        device: str,
        location: tuple[str, int],
    ) -> None:
        self.graph, self.name, self.op_def, self.type = graph, name, op_def, op_def.name
        self.inputs, self.control_inputs, self.attrs = inputs, control_inputs, attrs
        self._device, self.location = device, location
        self.outputs = [Tensor(self, i, d) for i, d in enumerate(output_types)]
        self._control_flow_context: Any = None
        self._original_op: Operation | None = None
        self._gradient_override: str | None = None

    @property
    def device(self) -> str:
        return self._device

    def _set_device(self, device: Any) -> None:
        from graphrt.core.device_names import canonical_name

        self._device = canonical_name(device)
        self.graph._version_changed(self)

    def get_attr(self, name: str) -> Any:
        """The value of an attr. Raises ValueError where the op has none of that name."""
        try:
            return self.attrs[name]
        except KeyError:
            raise ValueError(
                f"Operation '{self.name}' ({self.type}) has no attr named '{name}': it has "
                + (", ".join(sorted(self.attrs)) or "none")
            ) from None

    def _set_attr(self, name: str, value: Any) -> None:
        self.attrs[name] = value
        self.graph._version_changed(self)

    def colocation_groups(self) -> list[bytes]:
        """The groups this op must share a device with, as b'loc:@name'; its own where it names none."""
        return [c for c in self.attrs.get("_class", ()) if c.startswith(b"loc:@")] or [
            b"loc:@" + self.name.encode()
        ]

    def _add_control_input(self, op: Operation) -> None:
        self._add_control_inputs([op])

    def _add_control_inputs(self, ops: list[Operation]) -> None:
        for op in ops:
            if op.graph is not self.graph:
                raise ValueError(f"'{op.name}' is of another graph than '{self.name}'")
            if op not in self.control_inputs:
                self.control_inputs.append(op)
        self.graph._version_changed(self)

    def _update_input(self, index: int, tensor: Tensor) -> None:
        if tensor.graph is not self.graph:
            raise ValueError(f"'{tensor.name}' is of another graph than '{self.name}'")
        self.inputs[index]._consumers.remove(self)
        self.inputs[index] = tensor
        tensor._consumers.append(self)
        self.graph._version_changed(self)

    def values(self) -> tuple[Tensor, ...]:
        return tuple(self.outputs)

    def run(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> None:
        """Run the operation in the given or the default session."""
        tensor_module.eval_hook(self, feed_dict, session)

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        file, line = self.location
        return [(file, line, "", source_line(self.location).partition("   ")[2])]

    @property
    def node_def(self) -> Any:
        """The NodeDef of this operation (graphrt's protobuf message)."""
        from graphrt.core.graph_def import node_def

        return node_def(self)

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __str__(self) -> str:
        return str(self.node_def)
