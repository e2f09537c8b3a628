"""Prune: from a Graph keep what the fetches and targets need, as a StepGraph.

After it, every node reaches a fetch or a target, and every feed is an `_Arg` that has no inputs. A node that
is fed on one output and needed on another is kept. What waits for a fed placeholder waits for its `_Arg`.
Cost: one visit per kept node and edge; nodes come out in the order in which the program made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphrt.compiler.shapes import infer_downstream
from graphrt.compiler.step_graph import (
    Node,
    Passed,
    PassRecord,
    Signature,
    StepGraph,
    is_back_edge,
    topological,
)
from graphrt.core.errors import InvalidArgumentError, NotFoundError, source_line
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OPS
from graphrt.core.tensor import Tensor

PLACEHOLDERS = frozenset(("Placeholder", "PlaceholderV2"))
# Placeholders' static shapes hold whatever is fed; a constant's may have come from the value that the feed
# replaces.
_UNKNOWN_VALUE = PLACEHOLDERS | {"PlaceholderWithDefault"}


def prune(graph: Graph, signature: Signature) -> Passed:
    """The part of `graph` that `signature` needs.

    Raises:
      NotFoundError, InvalidArgumentError: a name that is not in the graph, or an output that the op does not
        have.
    """
    feeds = [_tensor(graph, name, "feed") for name in signature.feeds]
    fetches = [_tensor(graph, name, "fetch") for name in signature.fetches]
    targets = [_operation(graph, name, "target") for name in signature.targets]
    args = [_arg(tensor, i) for i, tensor in enumerate(feeds)]
    fed = {id(tensor): (arg, 0) for tensor, arg in zip(feeds, args)}
    fed_placeholders = {t.op: arg for t, arg in zip(feeds, args) if t.op.type in PLACEHOLDERS}

    roots = [op for op in targets if op not in fed_placeholders]
    roots += [t.op for t in fetches if id(t) not in fed]
    kept = sorted(needed(roots, fed, fed_placeholders), key=lambda op: op._id)
    nodes, made = build_nodes(kept, fed, fed_placeholders)

    retvals = []
    for i, tensor in enumerate(fetches):
        source = fed.get(id(tensor)) or (made[tensor.op], tensor.value_index)
        retvals.append(_retval(tensor, i, source))
    target_nodes = [fed_placeholders.get(op) or made[op] for op in targets]
    step = StepGraph([*args, *nodes, *retvals], args, retvals, target_nodes, dict(graph.functions))
    _refresh_shapes(step, feeds, args)

    cut = [(t.name, f"fed: cut off from {t.op.type}") for t in feeds if t.op.type not in PLACEHOLDERS]
    total = len(graph._operations)
    # A placeholder that an `_Arg` stands for was replaced, not removed.
    removed = total - len(kept) - len(fed_placeholders)
    return step, PassRecord("prune", total, len(step),
                            f"kept {len(kept)} of {total} nodes of the graph, removed {removed}; {len(args)} "
                            f"fed, {len(retvals)} fetched", cut)


def needed(roots: Iterable[Operation], fed: dict[int, Any], fed_placeholders: Any) -> set[Operation]:
    """The operations that `roots` need, themselves included, up to fed tensors (by id) and fed
    placeholders."""
    kept: set[Operation] = set()
    frontier = list(roots)
    while frontier:
        op = frontier.pop()
        if op in kept:
            continue
        kept.add(op)
        for tensor in op.inputs:
            if tensor.op not in kept and id(tensor) not in fed:
                frontier.append(tensor.op)
        for control in op.control_inputs:
            if control not in kept and control not in fed_placeholders:
                frontier.append(control)
    return kept


def build_nodes(operations: list[Operation], fed: dict[int, tuple[Node, int]],
                stand_ins: dict[Operation, Node]) -> tuple[list[Node], dict[Operation, Node]]:
    """Nodes of `operations`, which are in the order of their making, each after its inputs; and which is
    whose.

    Args:
      fed: id of a tensor to the output that takes its place.
      stand_ins: nodes that are waited for in place of operations that are not among `operations`.
    """
    made: dict[Operation, Node] = {}
    for op in operations:
        outputs = op.outputs
        made[op] = Node(op.name, op.op_def, op.attrs, [], [], [t.dtype for t in outputs],
                        [t._shape for t in outputs], op._device, op, op.location)
    is_ordered = True
    for op, node in made.items():
        before = op._id
        for tensor in op.inputs:
            source = fed.get(id(tensor))
            if source is None:
                source = (made[tensor.op], tensor.value_index)
                if tensor.op._id > before and not is_back_edge(source[0], node):
                    is_ordered = False
            node.inputs.append(source)
        for control in op.control_inputs:
            waited = stand_ins.get(control)
            if waited is None:
                waited = made[control]
                if control._id > before:
                    is_ordered = False
            if waited not in node.controls:
                node.controls.append(waited)
        if node.op_def.has_ref_input and fed:
            _check_refs(node)
    nodes = list(made.values())
    if not is_ordered:
        order = topological(nodes)
        if len(order) != len(nodes):  # stand-ins are inputs, not nodes of this list
            order = [n for n in order if n in set(nodes)]
        nodes = order
    return nodes, made


def _check_refs(node: Node) -> None:
    for (source, _), wanted in zip(node.inputs, node.input_dtypes):
        if wanted.is_ref and source.type == "_Arg":
            raise InvalidArgumentError(node, node.origin,
                                       f"{node.type} '{node.name}' updates a variable in place, and that "
                                       "variable is fed: a fed value cannot be updated.\n  built at "
                                       f"{source_line(node.location)}\n  hint     run the assignment without "
                                       "the feed")


def _refresh_shapes(step: StepGraph, feeds: list[Tensor], args: list[Node]) -> None:
    stale = {arg for tensor, arg in zip(feeds, args) if tensor.op.type not in _UNKNOWN_VALUE}
    if stale:
        infer_downstream(step, stale)


def _arg(tensor: Tensor, index: int) -> Node:
    dtype = tensor.dtype.base_dtype
    attrs = {"T": dtype, "index": index, "_shape": tensor._shape}
    return Node(f"_arg_{tensor.op.name}_{tensor.value_index}_{index}", OPS["_Arg"], attrs, [], [], [dtype],
                [tensor._shape], "", None, tensor.op.location)


def _retval(tensor: Tensor, index: int, source: tuple[Node, int]) -> Node:
    attrs = {"T": tensor.dtype.base_dtype, "index": index}
    return Node(f"_retval_{tensor.op.name}_{tensor.value_index}_{index}", OPS["_Retval"], attrs, [source], [],
                [], [], "", None, tensor.op.location)


def _operation(graph: Graph, name: str, role: str) -> Operation:
    op = graph._operations.get(name)
    if op is None:
        raise NotFoundError(None, None, f"The {role} '{name}' is not in the graph of "
                                        f"{len(graph._operations)} nodes.{graph._near(name)}")
    return op


def _tensor(graph: Graph, name: str, role: str) -> Tensor:
    op_name, _, index = name.rpartition(":")
    if not op_name or not index.isdigit():
        raise InvalidArgumentError(None, None, f"The {role} '{name}' is not a tensor's name: those are "
                                               f"'op:index', as in '{name.split(':')[0]}:0'")
    op = _operation(graph, op_name, role)
    if int(index) >= len(op.outputs):
        raise InvalidArgumentError(None, None, f"The {role} '{name}' does not exist: '{op_name}' ({op.type}) "
                                               f"has {len(op.outputs)} outputs")
    return op.outputs[int(index)]
