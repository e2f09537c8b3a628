"""The order of a partition's nodes, and its segments.

Nodes keep the program's order as far as their inputs allow; a node that updates a variable in place comes
after every reader of that variable that does not wait for it. Nodes that wait (Recv, queue ops, blocking
ops) cut the partition: a segment holds the nodes that await the same set of them, and runs when that set has
arrived, so nothing in it blocks.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from graphrt.compiler.step_graph import Node, topological

# Reads of a resource variable; other stateful ops on its handle write it.
_READS = frozenset(
    (
        "ReadVariableOp",
        "VarIsInitializedOp",
        "VariableShape",
        "ResourceGather",
        "ResourceGatherNd",
        "IsVariableInitialized",
        "_ReadVariablesOp",
    )
)
_VARIABLES = frozenset(("VariableV2", "Variable", "VarHandleOp", "TemporaryVariable", "AutoReloadVariable"))


def waits(node: Node) -> bool:
    """True for nodes whose outputs come later: they cut a partition."""
    return node.op_def.asynchronous or node.op_def.blocking


def variable_of(node: Node, position: int) -> Node | None:
    """The variable (its handle's or reference's node) behind an input, through ops that pass references
    on."""
    source, _ = node.inputs[position]
    while source.type not in _VARIABLES:
        passes = (
            source.op_def.has_ref_output
            or source.type in ("Identity", "Switch", "Enter")
            and (source.dtypes and (source.dtypes[0].is_ref or source.dtypes[0].name == "resource"))
        )
        if not passes or not source.inputs:
            return None
        source, _ = source.inputs[0]
    return source


def updated_variable(node: Node) -> Node | None:
    """The variable whose memory the node writes, or None."""
    if node.type in _READS or node.type in _VARIABLES or not node.inputs:
        return None
    if node.op_def.has_ref_input and node.type not in (
        "RefSwitch",
        "RefMerge",
        "RefIdentity",
        "RefEnter",
        "RefExit",
    ):
        return variable_of(node, 0)
    if node.op_def.stateful and node.inputs[0][0].type == "VarHandleOp":
        return variable_of(node, 0)
    return None


def read_variables(nodes: list[Node]) -> dict[Node, set[Node]]:
    """Node to the variables whose live memory its inputs may be views of."""
    behind: dict[tuple[Node, int], Node] = {}
    reads: dict[Node, set[Node]] = {}
    for node in nodes:
        if node.type in _VARIABLES:
            continue
        for position, edge in enumerate(node.inputs):
            source, index = edge
            variable = behind.get(edge)
            if variable is None and source.type in _VARIABLES:
                variable = source
            elif variable is None and index < len(source.dtypes) and source.dtypes[index].is_ref:
                variable = variable_of(node, position)
            if variable is None:
                continue
            reads.setdefault(node, set()).add(variable)
            if position in node.op_def.aliases or node.type in (
                "ReadVariableOp",
                "Switch",
                "RefSwitch",
                "Merge",
            ):
                for i in range(len(node.dtypes)):
                    behind[node, i] = variable
    return reads


def order(nodes: list[Node]) -> list[Node]:
    """Inputs first, in the given order otherwise; in-place updates after the readers that they do not
    precede."""
    nodes = topological(nodes)
    updates = {n: v for n in nodes if (v := updated_variable(n)) is not None}
    if not updates:
        return nodes
    rank = {n: i for i, n in enumerate(nodes)}
    after: dict[Node, list[Node]] = {n: [] for n in nodes}
    missing: dict[Node, int] = {}
    for node in nodes:
        sources = {s for s, _ in node.inputs} | set(node.controls)
        missing[node] = len(sources)
        for source in sources:
            after[source].append(node)
    pending_readers: dict[Node, int] = {}
    reads = read_variables(nodes)
    for node, variables in reads.items():
        if node not in updates:
            for variable in variables:
                pending_readers[variable] = pending_readers.get(variable, 0) + 1
    ready = [rank[n] for n in nodes if missing[n] == 0 and n not in updates]
    heapq.heapify(ready)
    held = [n for n in nodes if missing[n] == 0 and n in updates]
    ordered: list[Node] = []
    while ready or held:
        if ready:
            node = nodes[heapq.heappop(ready)]
            if node in reads:
                for variable in reads[node]:
                    pending_readers[variable] -= 1
        else:
            # Every node that does not wait for an update has run: one whose variable has no readers to come
            # is next.
            node = next((n for n in held if not pending_readers.get(updates[n], 0)), None) or min(
                held, key=lambda n: (pending_readers[updates[n]], rank[n])
            )
            held.remove(node)
        ordered.append(node)
        for consumer in after[node]:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                if consumer in updates:
                    held.append(consumer)
                else:
                    heapq.heappush(ready, rank[consumer])
    return ordered


@dataclass
class SegmentNodes:
    """The nodes of a segment in order; `awaits` the waiting nodes whose outputs they take, `after` the
    segments whose values they take (by index)."""

    nodes: list[Node]
    awaits: list[Node]
    after: list[int] = field(default_factory=list)


def cut(nodes: list[Node]) -> list[SegmentNodes]:
    """The segments of ordered nodes, each after those that it takes values from. A waiting node is in the
    segment that starts it."""
    bit: dict[Node, int] = {}
    waiting: list[Node] = []
    mask_of: dict[Node, int] = {}
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        mask = 0
        for source, _ in node.inputs:
            mask |= mask_of[source] | bit.get(source, 0)
        for source in node.controls:
            mask |= mask_of[source] | bit.get(source, 0)
        mask_of[node] = mask
        groups.setdefault(mask, []).append(node)
        if waits(node):
            bit[node] = 1 << len(waiting)
            waiting.append(node)
    masks = sorted(groups, key=lambda m: (m.bit_count(), m))
    position = {m: i for i, m in enumerate(masks)}
    segments = []
    for mask in masks:
        sources = dict.fromkeys(s for n in groups[mask] for s in [*(e[0] for e in n.inputs), *n.controls])
        # Others of the mask are behind an earlier segment, which has waited for them.
        awaited = [s for s in sources if s in bit]
        before = {position[mask_of[s]] for s in sources}
        before.discard(position[mask])
        segments.append(SegmentNodes(groups[mask], awaited, sorted(before)))
    return segments
