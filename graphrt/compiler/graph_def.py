"""StepGraphs to GraphDef and back: what RegisterGraph carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphrt.compiler.shapes import infer_shapes
from graphrt.compiler.step_graph import Node, Partition, Passed, PassRecord, StepGraph, topological
from graphrt.core import registry
from graphrt.core.attr_values import FunctionRef
from graphrt.core.device_names import canonical_name
from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.core.function_def import FunctionDefinition, add_to_library, call_op_def, from_proto
from graphrt.core.graph_def import PRODUCER, fill_node, node_attrs, parse_input
from graphrt.core.registry import OpDef
from graphrt.core.shapes import UNKNOWN

# Bookkeeping of TensorFlow's partitioner, which means nothing here.
_IGNORED = ("_src", "_dst", "_XlaHasReferenceVars", "_input_shapes")
# Placement is done, and the nodes that these name may be in another partition.
_NOT_SENT = frozenset(("_class", "_shape"))
# What the receiver cannot infer the shape of: it is told.
_WITHOUT_RULE = frozenset(("_Arg", "_Recv", "_HostRecv"))


def from_graph_def(graph_def: Any, library: dict[str, Any] | None = None) -> Passed:
    """The step of a GraphDef whose nodes are placed, as a master registers it.

    Args:
      graph_def: ours or TensorFlow's. Attrs that were stripped because they had their default are filled in.
      library: functions beside those of `graph_def`.
    Raises:
      NotFoundError: an op that graphrt does not have.
      InvalidArgumentError: two nodes of one name, an input that is not there or of another dtype, a cycle, a
        missing attr.
    """
    functions = dict(library or {})
    for proto in graph_def.library.function:
        functions[proto.signature.name] = from_proto(proto, functions)
    made: dict[str, Node] = {}
    for proto in graph_def.node:
        if proto.name in made:
            raise InvalidArgumentError(None, None, f"the GraphDef has two nodes called '{proto.name}'")
        made[proto.name] = _node(proto, functions)
    for proto in graph_def.node:
        _connect(made[proto.name], proto, made)
    try:
        nodes = topological(made.values())
    except ValueError as error:
        raise InvalidArgumentError(None, None, str(error)) from None
    infer_shapes(nodes)
    step = StepGraph(nodes, _ends(nodes, "_Arg"), _ends(nodes, "_Retval"), [], functions)
    taken = {s for n in nodes for s, _ in n.inputs} | {c for n in nodes for c in n.controls}
    ends = set(step.args) | set(step.retvals)
    # A master sends what a step needs: what nothing takes, as a `_Send`, is there for its effect.
    step.targets = [n for n in nodes if n not in taken and n not in ends]
    return step, PassRecord("from_graph_def", len(nodes), len(nodes), f"{len(nodes)} nodes registered")


def _node(proto: Any, functions: dict[str, FunctionDefinition]) -> Node:
    op_def = _op_def(proto, functions)
    attrs = node_attrs(proto, op_def)
    shapes = attrs.pop("_output_shapes", None)
    for key in _IGNORED:
        attrs.pop(key, None)
    dtypes = op_def.types(op_def.outputs, attrs)
    known = shapes if shapes and len(shapes) == len(dtypes) else [UNKNOWN] * len(dtypes)
    try:
        device = canonical_name(proto.device)
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"node '{proto.name}': {error}") from None
    return Node(proto.name, op_def, attrs, [], [], dtypes, list(known), device)


def _op_def(proto: Any, functions: dict[str, FunctionDefinition]) -> OpDef:
    found = registry.lookup(proto.op)
    if found is None and proto.op in functions:
        found = call_op_def(functions[proto.op])
    if found is None:
        raise NotFoundError(None, None, f"Op type not registered '{proto.op}' (node '{proto.name}'): this "
                                        "graphrt has no such op")
    return found


def _connect(node: Node, proto: Any, made: dict[str, Node]) -> None:
    for text in proto.input:
        name, index = parse_input(text)
        source = made.get(name)
        if source is None:
            raise InvalidArgumentError(None, None,
                                       f"node '{node.name}' takes '{text}', which is not in the GraphDef")
        if index < 0:
            if source not in node.controls:
                node.controls.append(source)
            continue
        if index >= len(source.dtypes):
            raise InvalidArgumentError(None, None, f"node '{node.name}' takes '{text}', and '{name}' "
                                                   f"({source.type}) has {len(source.dtypes)} outputs")
        node.inputs.append((source, index))
    wanted = node.input_dtypes
    if len(wanted) != len(node.inputs):
        raise InvalidArgumentError(None, None, f"node '{node.name}' ({node.type}) has {len(node.inputs)} "
                                               f"inputs where its attrs say {len(wanted)}")
    for (source, index), dtype in zip(node.inputs, wanted):
        given = source.dtypes[index]
        if given.base_dtype is not dtype.base_dtype or dtype.is_ref and not given.is_ref:
            raise InvalidArgumentError(None, None, f"node '{node.name}' ({node.type}) takes "
                                                   f"'{source.name}:{index}' as {dtype.name}, and that is "
                                                   f"{given.name}")


def _ends(nodes: list[Node], kind: str) -> list[Node]:
    return sorted((n for n in nodes if n.type == kind), key=lambda n: n.attrs["index"])


def to_graph_def(partition: Partition) -> Any:
    """The GraphDef of a partition: every node with its device, attrs that have their default left out."""
    from graphrt.protos import graph_pb2
    made = graph_pb2.GraphDef()
    made.versions.producer = PRODUCER
    for node in partition.graph.nodes:
        inputs = [source.name if index == 0 else f"{source.name}:{index}" for source, index in node.inputs]
        inputs += [f"^{control.name}" for control in node.controls]
        fill_node(made.node.add(), node.name, node.type, inputs, node.device, _attrs_to_send(node),
                  node.op_def)
    for function in _called(partition.graph):
        add_to_library(function, made.library)
    return made


def _called(step: StepGraph) -> list[FunctionDefinition]:
    """The functions that attrs of the step's nodes name, and those that they name in turn."""
    found: dict[str, FunctionDefinition] = {}
    frontier = [ref.name for node in step.nodes for ref in _references(node.attrs)]
    while frontier:
        name = frontier.pop()
        function = step.library.get(name)
        if function is not None and name not in found:
            found[name] = function
            for op in function.graph.get_operations():
                frontier += [ref.name for ref in _references(op.attrs)]
                if op.type in step.library:
                    frontier.append(op.type)
    return list(found.values())


def _references(attrs: dict[str, Any]) -> Iterator[FunctionRef]:
    for value in attrs.values():
        if isinstance(value, FunctionRef):
            yield value
        elif isinstance(value, list):
            yield from (v for v in value if isinstance(v, FunctionRef))


def _attrs_to_send(node: Node) -> dict[str, Any]:
    declared = node.op_def.attrs
    made = {key: value for key, value in node.attrs.items() if key not in _NOT_SENT
            and not (key in declared and _is_default(value, declared[key].default))}
    if node.type in _WITHOUT_RULE and node.shapes[0].sizes is not None:
        made["_output_shapes"] = node.shapes
    return made


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not hasattr(value, "dtype") and value == default
