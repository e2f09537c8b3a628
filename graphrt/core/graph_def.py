"""Graphs to GraphDef and back: TensorFlow's interchange form, read and written as it is.

`graph_def` writes a Graph; `import_graph_def` adds a GraphDef's nodes to the default graph, with inputs
replaced, under a prefix, functions into the library. GraphDefs of real TensorFlow (any version) are taken:
stripped defaults are filled from the registry, unknown attrs are kept.
"""

from __future__ import annotations

from typing import Any

from graphrt.core import registry
from graphrt.core.attr_values import FunctionRef, attr_from_proto, attr_to_proto
from graphrt.core.default_graph import get_default_graph
from graphrt.core.device_names import canonical_name
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OpDef
from graphrt.core.signature import REQUIRED
from graphrt.core.tensor import Tensor
from graphrt.core.tensor_proto import shape_proto

# The GraphDef version written: TensorFlow 2.21's. Its readers accept it, and ours writes nothing newer.
PRODUCER = 2205

__all__ = [
    "FunctionRef",
    "attr_from_proto",
    "attr_to_proto",
    "graph_def",
    "import_graph_def",
    "node_def",
    "shape_proto",
]


def fill_node(
    into: Any,
    name: str,
    op_type: str,
    inputs: list[str],
    device: str,
    attrs: dict[str, Any],
    op_def: OpDef | None,
) -> None:
    """Write a node into a NodeDef message."""
    into.name, into.op, into.device = name, op_type, device
    into.input.extend(inputs)
    declared = op_def.attrs if op_def is not None else {}
    for key, value in attrs.items():
        if key == "_shape" or value is None:
            continue
        into.attr[key].CopyFrom(attr_to_proto(value, declared.get(key)))


def node_def(op: Operation) -> Any:
    """The NodeDef of an operation."""
    from graphrt.protos import node_def_pb2

    made = node_def_pb2.NodeDef()
    _fill(made, op)
    return made


def _fill(made: Any, op: Operation) -> None:
    inputs = [t._as_node_def_input() for t in op.inputs] + [f"^{c.name}" for c in op.control_inputs]
    fill_node(made, op.name, op.type, inputs, op.device, op.attrs, op.op_def)


def graph_def(graph: Graph, from_version: int | None = None, add_shapes: bool = False) -> Any:
    """The GraphDef of a graph; see Graph.as_graph_def."""
    from graphrt.protos import graph_pb2

    made = graph_pb2.GraphDef()
    made.versions.producer = PRODUCER
    with graph._lock:
        operations = list(graph._operations.values())
        functions = list(graph.functions.values())
    for op in operations[from_version or 0 :]:
        node = made.node.add()
        _fill(node, op)
        if add_shapes and op.outputs:
            shapes = node.attr["_output_shapes"].list
            for tensor in op.outputs:
                shapes.shape.add().CopyFrom(shape_proto(tensor.shape))
    if functions:
        from graphrt.core import function_def

        for function in functions:
            function_def.add_to_library(function, made.library)
    return made


def node_attrs(node: Any, op_def: OpDef) -> dict[str, Any]:
    """The attrs of a NodeDef in Python form, defaults filled.

    Raises:
      InvalidArgumentError: a required attr is missing.
    """
    attrs: dict[str, Any] = {}
    for key, value in node.attr.items():
        declared = op_def.attrs.get(key)
        made = attr_from_proto(value, declared)
        if declared is not None and declared.kind == "type" and not declared.is_list and made.is_ref:
            made = made.base_dtype
        attrs[key] = made
    for key, declared in op_def.attrs.items():
        if key not in attrs:
            if declared.default is REQUIRED:
                raise InvalidArgumentError(
                    None, None, f"node '{node.name}' ({node.op}) lacks the attr '{key}'"
                )
            attrs[key] = declared.default
    return attrs


def parse_input(text: str) -> tuple[str, int]:
    """('node', output index) of a NodeDef input; index -1 for a control input."""
    if text.startswith("^"):
        return text[1:], -1
    name, colon, index = text.rpartition(":")
    if colon and index.isdigit():
        return name, int(index)
    return text, 0


def import_graph_def(
    graph_def: Any,
    input_map: dict[Any, Any] | None = None,
    return_elements: list[str] | None = None,
    name: str | None = None,
    op_dict: Any = None,
    producer_op_list: Any = None,
) -> list[Any] | None:
    """Add the nodes of `graph_def` to the default graph.

    Args:
      graph_def: a GraphDef, of graphrt or of TensorFlow.
      input_map: names in `graph_def` ('x', 'x:0', '^x' for a control input) to tensors that take their place.
      return_elements: names in `graph_def` ('x' an operation, 'x:0' a tensor).
      name: prefix; 'import' where None, none where ''.
    Returns:
      The elements asked for, or None.
    Raises:
      TypeError: `graph_def` is not one.
      ValueError: nodes of unknown ops (all are named), inputs that are not there, names in the arguments
      that are not.
    """
    del op_dict, producer_op_list
    if not hasattr(graph_def, "node") or not hasattr(graph_def, "library"):
        raise TypeError(f"graph_def must be a GraphDef proto, not {type(graph_def).__name__}")
    graph = get_default_graph()
    importer = _Importer(graph, graph_def, input_map or {})
    prefix = "import" if name is None else name
    if prefix:
        with graph.name_scope(prefix) as scope:
            importer.run(scope)
    else:
        importer.run("")
    unused = importer.unused_inputs()
    if unused:
        raise ValueError(f"Attempted to map inputs that were not found in graph_def: {unused}")
    if return_elements is None:
        return None
    return [importer.element(e) for e in return_elements]


def extend_graph(graph: Graph, graph_def: Any) -> list[Operation]:
    """Add the nodes of `graph_def` to `graph` under their own names; they may take what `graph` has already.

    Returns:
      The operations that were added.
    Raises:
      ValueError: a name that is there, unknown ops, inputs that are nowhere.
    """
    importer = _Importer(graph, graph_def, {})
    importer.made = dict(graph._operations)
    for node in graph_def.node:
        if node.name in importer.made:
            raise ValueError(f"the graph has a node called '{node.name}' already")
    before = len(graph._operations)
    importer.run("")
    return list(graph._operations.values())[before:]


class _Importer:
    def __init__(self, graph: Graph, graph_def: Any, input_map: dict[Any, Any]) -> None:
        self.graph, self.graph_def = graph, graph_def
        self.made: dict[str, Operation] = {}
        self.input_map: dict[tuple[str, int], Any] = {}
        for key, value in input_map.items():
            text = key.decode() if isinstance(key, bytes) else key
            if not isinstance(text, str):
                raise TypeError(f"input_map: keys are strings, not {key!r}")
            self.input_map[parse_input(text)] = value
        self.used: set[tuple[str, int]] = set()
        # Functions whose name another one has in the graph.
        self.renamed: dict[str, str] = {}

    def run(self, scope: str) -> None:
        graph = self.graph
        if self.graph_def.library.function or self.graph_def.library.gradient:
            from graphrt.core import function_def

            self.renamed = function_def.import_library(self.graph_def.library, graph)
        nodes = {}
        for node in self.graph_def.node:
            if node.name in nodes:
                raise ValueError(f"Node '{node.name}' is not unique in the GraphDef")
            nodes[node.name] = node
        unknown = sorted({n.op for n in nodes.values() if self._op_def(n) is None})
        if unknown:
            raise ValueError(f"the GraphDef has ops that graphrt does not have: {', '.join(unknown)}")
        self.unique_prefix = scope
        self.back_edges: list[tuple[Operation, int, str, int]] = []
        for node in self._ordered(nodes):
            self._add(node)
        for op, position, source, index in self.back_edges:
            op._update_input(position, self.made[source].outputs[index])

    def _op_def(self, node: Any) -> OpDef | None:
        found = registry.lookup(node.op)
        name = self.renamed.get(node.op, node.op)
        if found is None and name in self.graph.functions:
            from graphrt.core import function_def

            return function_def.call_op_def(self.graph.functions[name])
        return found

    def _ordered(self, nodes: dict[str, Any]) -> list[Any]:
        """The nodes after their inputs; back edges of loops (a NextIteration into a Merge) are left for the
        end."""
        state: dict[str, int] = {}
        ordered: list[Any] = []

        def sources(node: Any):
            for text in node.input:
                source, _ = parse_input(text)
                if parse_input(text) in self.input_map:
                    continue
                if source not in nodes:
                    if source in self.made:
                        continue
                    raise ValueError(f"Node '{node.name}': Unknown input node '{text}'")
                if not (
                    node.op in ("Merge", "RefMerge")
                    and nodes[source].op in ("NextIteration", "RefNextIteration")
                ):
                    yield source

        for root in nodes:
            if root in state:
                continue
            stack = [(root, sources(nodes[root]))]
            state[root] = 1
            while stack:
                current, rest = stack[-1]
                for source in rest:
                    if source not in state:
                        state[source] = 1
                        stack.append((source, sources(nodes[source])))
                        break
                    if state[source] == 1:
                        raise ValueError(f"the GraphDef has a cycle through '{source}' and '{current}'")
                else:
                    stack.pop()
                    state[current] = 2
                    ordered.append(nodes[current])
        return ordered

    def _add(self, node: Any) -> None:
        op_def = self._op_def(node)
        assert op_def is not None
        try:
            attrs = node_attrs(node, op_def)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from None
        if self.renamed:
            from graphrt.core.function_def import with_new_names

            attrs = {key: with_new_names(value, self.renamed) for key, value in attrs.items()}
        inputs: list[Tensor | None] = []
        controls: list[Operation] = []
        late: list[tuple[int, str, int]] = []
        for text in node.input:
            source, index = parse_input(text)
            mapped = self._mapped(source, index)
            if index < 0:
                controls.append(self.graph._as_operation(mapped) if mapped is not None else self.made[source])
            elif mapped is not None:
                inputs.append(mapped)
            elif source in self.made:
                outputs = self.made[source].outputs
                if index >= len(outputs):
                    raise ValueError(
                        f"Node '{node.name}': Connecting to invalid output {index} of source node {source} "
                        "which "
                        f"has {len(outputs)} outputs"
                    )
                inputs.append(outputs[index])
            else:
                late.append((len(inputs), source, index))
                inputs.append(None)
        types = op_def.types(op_def.inputs, attrs)
        if len(inputs) != len(types):
            raise ValueError(
                f"Node '{node.name}' ({node.op}) has {len(inputs)} inputs where its attrs say {len(types)}"
            )
        for position, _, _ in late:
            # A loop's Merge stands on its entry until the back edge is made.
            inputs[position] = next(t for t in inputs if t is not None)
        for tensor, wanted in zip(inputs, types):
            if tensor is not None and tensor.dtype.base_dtype is not wanted.base_dtype:
                raise ValueError(
                    f"Node '{node.name}' ({node.op}): input '{tensor.name}' is "
                    f"{tensor.dtype.base_dtype.name}, not "
                    f"{wanted.base_dtype.name}"
                )
        if "_class" in attrs and self.unique_prefix:
            attrs["_class"] = [
                b"loc:@" + self._renamed(c[5:].decode()).encode() if c.startswith(b"loc:@") else c
                for c in attrs["_class"]
            ]
        name = node.name
        graph = self.graph
        with graph._attr_scope({}):
            op = graph.create_node(
                op_def,
                inputs,
                attrs,
                name,
                device=canonical_name(node.device),  # type: ignore[arg-type]
                control_inputs=controls,
            )
        shapes = attrs.get("_output_shapes")
        if shapes:
            for tensor, shape in zip(op.outputs, shapes):
                if tensor.shape.is_compatible_with(shape):
                    tensor.set_shape(shape)
        attrs.pop("_output_shapes", None)
        self.made[node.name] = op
        self.back_edges += [(op, position, source, index) for position, source, index in late]

    def _renamed(self, name: str) -> str:
        made = self.made.get(name)
        return made.name if made is not None else self.unique_prefix + name

    def _mapped(self, source: str, index: int) -> Any:
        key = (source, index)
        if key not in self.input_map:
            return None
        self.used.add(key)
        value = self.input_map[key]
        if index >= 0 and not isinstance(value, Tensor):
            from graphrt.core.convert import convert_to_tensor

            with self.graph.name_scope("_inputs"):
                value = self.input_map[key] = convert_to_tensor(value)
        return value

    def unused_inputs(self) -> list[str]:
        return [
            f"^{n}" if i < 0 else f"{n}:{i}"
            for n, i in self.input_map
            if (n, i) not in self.used and n not in self.made
        ]

    def element(self, name: Any) -> Any:
        text = name.decode() if isinstance(name, bytes) else name
        if not isinstance(text, str):
            raise TypeError(f"return_elements are strings, not {name!r}")
        mapped = self.input_map.get(parse_input(text))
        if mapped is not None and ":" in text:
            return mapped
        op_name, colon, index = text.partition(":")
        if op_name not in self.made:
            raise ValueError(f"Requested return_element {text!r} not found in graph_def.")
        op = self.made[op_name]
        if not colon:
            return op
        if not index.isdigit() or int(index) >= len(op.outputs):
            raise ValueError(
                f"Requested return_element {text!r} not found in graph_def: '{op_name}' has "
                f"{len(op.outputs)} outputs."
            )
        return op.outputs[int(index)]
