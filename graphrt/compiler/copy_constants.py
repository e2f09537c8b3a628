"""Copy constants: a constant that other devices take stands on each of them, and is not sent in every step.

Cost: one visit a node and edge.
"""

from __future__ import annotations

from typing import Any

from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, sweep

# A larger constant is sent where it is needed: copies would stay on every device.
_MOST_BYTES = 1 << 20


def copy_constants(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step with a copy of each small constant on every device that takes it."""
    before = len(step)
    if len({n.device for n in step.nodes}) < 2:
        return step, PassRecord("copy_constants", before, before, "one device")
    copies: dict[tuple[Node, str], Node] = {}
    made_for: dict[Node, list[Node]] = {}
    details: list[tuple[str, str]] = []
    for node in step.nodes:
        if node.type == "_Retval":
            continue  # what is fetched comes from where it was put
        for i, (source, index) in enumerate(node.inputs):
            if source.type != "Const" or source.device == node.device or not _is_copied(source):
                continue
            copy = copies.get((source, node.device))
            if copy is None:
                name = f"{source.name}{options.name_suffix}{next(options.names)}"
                copy = Node(name, source.op_def, source.attrs, [], [], source.dtypes, source.shapes,
                            node.device, source.origin, source.location)
                copies[source, node.device] = copy
                made_for.setdefault(source, []).append(copy)
                details.append((source.name, f"copied to {node.device}"))
            node.inputs[i] = (copy, index)
    if not copies:
        return step, PassRecord("copy_constants", before, before, "no constant crosses")
    nodes: list[Node] = []
    for node in step.nodes:
        nodes.append(node)
        nodes += made_for.get(node, ())
    made = sweep(step.replace(nodes))
    return made, PassRecord("copy_constants", before, len(made), f"{len(copies)} copies", details)


def _is_copied(node: Node) -> bool:
    return not node.controls and node.attrs["value"].nbytes <= _MOST_BYTES
