"""The nodes of a function's body in place of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphrt.compiler.prune import build_nodes, needed
from graphrt.compiler.step_graph import Node
from graphrt.core import device_names
from graphrt.core.function_def import INPUT_TYPES, FunctionDefinition
from graphrt.core.operation import Operation

# Stateful ops without an effect that a program could see if nobody takes their values.
_READS = INPUT_TYPES | {"VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "VarIsInitializedOp",
                        "IsVariableInitialized"}


@dataclass
class Body:
    """An inlined body.

    Attributes:
      nodes: its nodes, each after its inputs; some may be functional themselves.
      outputs: its results.
      effects: what runs whether or not something takes the results: the function's control outputs and, where
        it is asked for, every stateful node.
    """

    nodes: list[Node]
    outputs: list[tuple[Node, int]]
    effects: list[Node]


def is_free(node: Node) -> bool:
    """True for values that every step has from its start: nothing is gained by a Switch or a gate in front of
    them."""
    return node.type in ("Const", "VarHandleOp") and not node.controls


def inline_body(definition: FunctionDefinition, prefix: str, arguments: list[tuple[Node, int]],
                gate: Callable[[], Node] | None, caller: Node, unique: Callable[[str], str],
                is_call: Callable[[Node], bool], runs_all_effects: bool) -> Body:
    """Nodes for one call of `definition`, named 'prefix/inner'.

    Args:
      arguments: what takes the place of its inputs.
      gate: gives the node that its source nodes wait for, and that is dead where the call is; None where
        nothing waits and nothing can be dead. Constants do not wait: their value is the same at any time.
      caller: the node of the call: its device fills what the body's devices leave open.
      unique: gives a name that no other node of the step has.
      is_call: True for a node that will be expanded itself; it always waits for the gate, on behalf of its
        body.
      runs_all_effects: stateful nodes are effects though they are no control outputs.
    """
    graph = definition.graph
    inputs = definition.inputs
    fed = {id(tensor): edge for tensor, edge in zip(inputs, arguments)}
    argument_ops = {t.op for t in inputs}
    # What waits for an argument waits for the call's gate: the node behind the argument may be alive where
    # the argument is dead.
    waits_for_argument = any(c in argument_ops for op in graph.get_operations() for c in op.control_inputs)
    stand_ins = {t.op: gate() if gate and waits_for_argument else edge[0]
                 for t, edge in zip(inputs, arguments)}
    results = definition.outputs
    effects = [op for op in definition.control_outputs if op not in stand_ins]
    if runs_all_effects:
        effects += [op for op in graph.get_operations() if op.op_def.stateful and op.type not in _READS]
    roots: list[Operation] = [*(t.op for t in results if id(t) not in fed), *effects]
    kept = sorted(needed([op for op in roots if op not in stand_ins], fed, stand_ins), key=lambda op: op._id)
    nodes, of = build_nodes(kept, fed, stand_ins)

    renamed: dict[bytes, bytes] = {}
    for node in nodes:
        inner = node.name
        # One operation of a body stands for several nodes where it is called twice, so it is no node's
        # origin.
        node.origin = None
        node.name = unique(f"{prefix}/{inner}")
        renamed[b"loc:@" + inner.encode()] = b"loc:@" + node.name.encode()
        node.device = _over(node.device, caller.device)
    arguments_by_name = {b"loc:@" + t.op.name.encode() for t in inputs}
    for node in nodes:
        if "_class" in node.attrs:
            # A colocation with an argument is what the argument's value decides: a resource's consumers
            # follow it anyway.
            groups = [renamed.get(c, c) for c in node.attrs["_class"] if c not in arguments_by_name]
            node.attrs = {**node.attrs, "_class": groups}
        if gate is not None and not is_free(node) and (is_call(node) or not _is_held(node)):
            node.controls.append(gate())

    outputs = [fed.get(id(t)) or (of[t.op], t.value_index) for t in results]
    return Body(nodes, outputs, list(dict.fromkeys(of[op] for op in effects)))


def _is_held(node: Node) -> bool:
    """True where an input or control of the node waits for the call already."""
    return not all(is_free(s) for s, _ in node.inputs) or not all(is_free(c) for c in node.controls)


def _over(inner: str, outer: str) -> str:
    if not inner or not outer:
        return inner or outer
    return str(device_names.parse(inner).over(device_names.parse(outer)))
