"""Place: every node gets one device, a full name.

Nodes that must share a device form a group: those that name each other in `_class` (loc:@name), and whatever
takes a ref or a resource, with what makes it. A group's devices are those that have a kernel for each member
and that fit what its members ask for; where a consumer of a variable asks for another device than the
variable's, the variable's stands. Of these devices the first in order of preference (DeviceSet) is taken, but
a node that only looks at a shape goes with its input and a node without inputs with its consumers, as in
TensorFlow. Stateful nodes keep the device that an earlier step of the session gave them.

Variables of a step are grouped with their consumers in the whole graph, not only those in the step: two steps
must not put one variable on two devices.
Cost: near-linear in nodes and edges.
"""

from __future__ import annotations

from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.place_groups import Group, Groups, placement_error
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph

# Ops that look at a tensor's shape, not at its elements.
_METADATA = frozenset(("Shape", "ShapeN", "Size", "Rank"))
# Stateful only as nodes that must not be merged or folded: they hold nothing from step to step.
_STATELESS_BETWEEN_STEPS = frozenset(("_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv",
                                      "Assert"))


def place(step: StepGraph, devices: DeviceSet, options: CompileOptions) -> Passed:
    """Set every node's device. The record has each node's device and the rule that decided.

    Raises:
      InvalidArgumentError: no device fits; the message names the op, the user's line, what was asked for, the
        op that rules it out, and the devices that would do.
    """
    while True:
        placed, rules = _decide(step, devices, options)
        # Steps that are compiled at the same time agree on stateful nodes: the first to pin one wins, the
        # others try again.
        if all(options.pinned.setdefault(n.name, placed[n]) == placed[n] for n in step.nodes
               if _keeps_state(n)):
            break
    counts: dict[str, int] = {}
    details: list[tuple[str, str]] = []
    texts: dict[tuple[str, str], str] = {}
    for node in step.nodes:
        device, rule = placed[node], rules[node]
        node.device = device
        counts[device] = counts.get(device, 0) + 1
        text = texts.get((device, rule))
        if text is None:
            text = texts[device, rule] = f"{device}: {rule}"
        details.append((node.name, text))
    summary = ", ".join(f"{n} on {device}" for device, n in sorted(counts.items()))
    return step, PassRecord("place", len(step), len(step), summary, details)


def placement_log(step: StepGraph) -> str:
    """A line a node, as log_device_placement prints them: 'name: (Type): device'."""
    return "\n".join(f"{n.name}: ({n.type}): {n.device}" for n in step.nodes)


def _keeps_state(node: Node) -> bool:
    return node.op_def.stateful and node.type not in _STATELESS_BETWEEN_STEPS


def _decide(step: StepGraph, devices: DeviceSet,
            options: CompileOptions) -> tuple[dict[Node, str], dict[Node, str]]:
    """The device of each node, and the rule that decided."""
    groups = Groups(step, devices, options)
    placed: dict[Node, str] = {}
    rules: dict[Node, str] = {}
    device_of_group: dict[Group, str] = {}
    generators: list[Node] = []

    def settle(node: Node, group: Group, device: str, rule: str) -> None:
        placed[node], rules[node] = device, rule
        if group.size > 1:
            device_of_group[group] = device

    for node in step.nodes:
        group = groups.of(node)
        device = device_of_group.get(group)
        if device is not None:
            placed[node] = device
            rules[node] = group.rule_for(node)
            continue
        mask = group.mask
        if not mask:
            raise placement_error(group, node, devices, options)
        if node.type in ("_Arg", "_Retval") and not node.device:
            settle(node, group, options.client_device, "feeds and fetches stay with the client")
            continue
        if group.pinned:
            settle(node, group, group.pinned, "its state is there since an earlier step")
            continue
        if node.type in _METADATA and node.inputs:
            # Back edges aside, inputs stand before their consumers.
            followed = placed.get(node.inputs[0][0])
            if followed is not None and devices.bit(followed) & mask:
                settle(node, group, followed, f"{node.type} needs the shape only: with its input")
                continue
        if not node.inputs and len(node.dtypes) == 1 and not node.dtypes[0].is_ref and group.size == 1:
            generators.append(node)
            continue
        settle(node, group, devices.first(mask), group.rule)
    if generators:
        _place_generators(step, devices, groups, generators, placed, rules)
    return placed, rules


def _place_generators(step: StepGraph, devices: DeviceSet, groups: Groups, generators: list[Node],
                      placed: dict[Node, str], rules: dict[Node, str]) -> None:
    """Put nodes without inputs on the device of their consumers, where that is one and they may be there."""
    wanted: dict[Node, str | None] = dict.fromkeys(generators, "")
    for node in step.nodes:
        device = placed.get(node)
        for source in (*[s for s, _ in node.inputs], *node.controls):
            known = wanted.get(source)
            # '' is no consumer yet, None is several devices.
            if known is not None and known != device:
                wanted[source] = None if known or device is None else device
    for node in generators:
        group = groups.of(node)
        device = wanted[node]
        if device and devices.bit(device) & group.mask:
            placed[node], rules[node] = device, "no inputs: with what takes it"
        else:
            placed[node], rules[node] = devices.first(group.mask), group.rule
