"""What a picture shows: boxes in lanes, one lane a device, and links between them.

Constants stand inside the boxes that take them. Beyond `MOST_BOXES` nodes, boxes are name scopes: the largest
are opened first, as far as the figure allows, so that a picture of any graph can be read.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from graphrt.compiler.deadness import CONTROL_FLOW
from graphrt.compiler.step_graph import Node, StepGraph, preserved
from graphrt.core.dtypes import resource

MOST_BOXES = 300
# Where scopes are drawn, this many boxes are aimed at.
_GROUPED_BOXES = 60
_STATE = frozenset(("VariableV2", "Variable", "VarHandleOp", "TemporaryVariable"))
_NUMBER = re.compile(r"_?\d+$")


@dataclass
class Box:
    """A node, or the nodes of a scope.

    Attributes:
      title, subtitle: the two lines in it; notes: lines of its tooltip.
      kind: 'feed', 'fetch', 'state', 'flow', 'effect', 'scope' or 'compute': how it looks.
      lane: its device.
      order: where its first node stands in the step.
    """

    title: str
    subtitle: str
    kind: str
    lane: str
    order: int
    notes: list[str] = field(default_factory=list)
    members: list[Node] = field(default_factory=list)


@dataclass
class Link:
    """One or more edges between two boxes.

    Attributes:
      kind: 'data', 'state' (a reference or resource) or 'control'.
      is_cut: it crosses devices.
      tensors: what it carries, as 'node:0' or '^node'.
    """

    source: int
    target: int
    kind: str
    is_cut: bool
    tensors: list[str] = field(default_factory=list)


@dataclass
class Model:
    """Boxes in step order, links between them by their numbers, lanes in the order of their first box."""

    boxes: list[Box]
    links: list[Link]
    lanes: list[str]
    is_grouped: bool


def model_of(step: StepGraph, rules: dict[str, str]) -> Model:
    """The boxes and links of a placed step; `rules` say by node name why it is on its device."""
    keep = preserved(step)
    consumers = step.consumers()
    waited_for = {c for n in step.nodes for c in n.controls}
    inside = {n for n in step.nodes if n.type == "Const" and not n.controls and n not in keep
              and n not in waited_for and all(c.device == n.device for c, _ in consumers[n])}
    shown = [n for n in step.nodes if n not in inside]
    is_grouped = len(shown) > MOST_BOXES
    groups = _scopes(shown) if is_grouped else [(n.name, [n]) for n in shown]
    order = {n: i for i, n in enumerate(step.nodes)}
    boxes = [_box(name, nodes, inside, order, rules) for name, nodes in groups]
    boxes.sort(key=lambda b: b.order)
    box_of = {n: i for i, b in enumerate(boxes) for n in b.members}
    lanes = list(dict.fromkeys(b.lane for b in boxes))
    return Model(boxes, _links(boxes, box_of), lanes, is_grouped)


def _links(boxes: list[Box], box_of: dict[Node, int]) -> list[Link]:
    links: dict[tuple[int, int, str], Link] = {}
    for target, box in enumerate(boxes):
        for node in box.members:
            ends = [(s, f"{s.name}:{i}", "state" if s.dtypes[i] is resource or s.dtypes[i].is_ref else "data")
                    for s, i in node.inputs]
            ends += [(c, f"^{c.name}", "control") for c in node.controls]
            for source_node, tensor, kind in ends:
                source = box_of.get(source_node)
                if source is None or source == target:
                    continue
                is_cut = boxes[source].lane != box.lane
                link = links.setdefault((source, target, kind), Link(source, target, kind, is_cut))
                if tensor not in link.tensors:
                    link.tensors.append(tensor)
    return list(links.values())


# -- boxes -------------------------------------------------------------------------------------------------


def _box(name: str, nodes: list[Node], inside: set[Node], order: dict[Node, int],
         rules: dict[str, str]) -> Box:
    first = min(order[n] for n in nodes)
    if len(nodes) > 1:
        kinds: dict[str, int] = {}
        for node in nodes:
            kinds[node.type] = kinds.get(node.type, 0) + 1
        most = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
        notes = [name, f"{len(nodes):,} nodes on {nodes[0].device}"]
        notes += [f"{n:,} {kind}" for kind, n in most[:10]]
        return Box(name, f"{len(nodes):,} nodes", "scope", nodes[0].device, first, notes, nodes)
    node = nodes[0]
    constants = [(i, s) for i, (s, _) in enumerate(node.inputs) if s in inside]
    notes = [f"{node.name} ({node.type})", node.device]
    if node.name in rules:
        notes.append(rules[node.name])
    notes += [f"output {i}: {d.name} {s}" for i, (d, s) in enumerate(zip(node.dtypes, node.shapes))]
    notes += [f"input {i}: {s.name} = {_value(s, 60)}" for i, s in constants]
    if node.location is not None:
        notes.append(f"built at {node.location[0].rsplit('/', 1)[-1]}:{node.location[1]}")
    subtitle = node.type
    if node.type in ("_Arg", "_Retval"):
        subtitle = f"{'feed' if node.type == '_Arg' else 'fetch'} {node.attrs['index']}"
    elif constants:
        shown = [_value(node.inputs[i][0], 14) if (i, node.inputs[i][0]) in constants else "\N{MIDDLE DOT}"
                 for i in range(len(node.inputs))]
        subtitle = f"{node.type}({', '.join(shown)})"
    return Box(_title(node), subtitle, _kind(node), node.device, first, notes, [node])


def _title(node: Node) -> str:
    if node.type in ("_Arg", "_Retval"):
        # _arg_name_0_0: the tensor's name is what the program knows.
        inner = node.name.removeprefix("_arg_").removeprefix("_retval_")
        name, index, _ = inner.rsplit("_", 2)
        return name if index == "0" else f"{name}:{index}"
    return node.name


def _kind(node: Node) -> str:
    if node.type == "_Arg":
        return "feed"
    if node.type == "_Retval":
        return "fetch"
    if node.type in _STATE:
        return "state"
    if node.type in CONTROL_FLOW:
        return "flow"
    if node.op_def.stateful or node.op_def.has_ref_input:
        return "effect"
    return "compute"


def _value(node: Node, most: int) -> str:
    value = node.attrs["value"]
    if value.size == 1 and value.dtype != object:
        text = f"{value.item():.4g}" if value.dtype.kind == "f" else str(value.item())
    elif value.size <= 4 and value.dtype != object:
        text = "[" + " ".join(f"{v:.4g}" if value.dtype.kind == "f" else str(v)
                              for v in value.ravel().tolist()) + "]"
    elif value.size == 1:
        text = repr(value.item())
    else:
        text = "[" + "\N{MULTIPLICATION SIGN}".join(map(str, value.shape)) + "]"
    return text if len(text) <= most else text[:most - 1] + "\N{HORIZONTAL ELLIPSIS}"


# -- scopes ------------------------------------------------------------------------------------------------


def _path(node: Node) -> tuple[str, ...]:
    """The groups that a node can be drawn in, outermost first: at each of its name scopes all scopes that
    differ in their number only, then the scope itself."""
    made: list[str] = []
    prefix = ""
    for part in node.name.split("/"):
        made += [prefix + _NUMBER.sub("", part) + "*", prefix + part]
        prefix += part + "/"
    return tuple(made)


def _scopes(nodes: Iterable[Node]) -> list[tuple[str, list[Node]]]:
    """Groups of nodes by scope and device, opened from the largest as far as the number of boxes allows."""
    paths = {n: _path(n) for n in nodes}
    by_device: dict[str, list[Node]] = {}
    for node in paths:
        by_device.setdefault(node.device, []).append(node)
    groups: list[tuple[int, str, int, list[Node]]] = []  # (-size, device and title, depth, nodes): a heap
    for members in by_device.values():
        groups += _most(_split(members, 1, paths), _GROUPED_BOXES // len(by_device))
    heapq.heapify(groups)
    done: list[tuple[str, list[Node]]] = []
    while groups:
        size, key, depth, members = heapq.heappop(groups)
        parts = _split(members, depth + 1, paths) if size < -1 else []
        if len(parts) == 1:
            # One scope in it: opening it shows no more.
            heapq.heappush(groups, (size, parts[0][1] if key.endswith("*") else key, depth + 1, members))
        elif parts and len(done) + len(groups) + len(parts) <= _GROUPED_BOXES:
            for part in parts:
                heapq.heappush(groups, part)
        else:
            done.append((members[0].name if size == -1 else key.partition(" ")[2], members))
    return done


def _split(members: list[Node], depth: int,
           paths: dict[Node, tuple[str, ...]]) -> list[tuple[int, str, int, list[Node]]]:
    """The groups at `depth` of their paths; none where they end before."""
    parts: dict[str, list[Node]] = {}
    for node in members:
        if depth > len(paths[node]) and len(members) > 1 and all(depth > len(paths[n]) for n in members):
            return []
        parts.setdefault(paths[node][min(depth, len(paths[node])) - 1], []).append(node)
    return [(-len(found), f"{found[0].device} {title}", depth, found) for title, found in parts.items()]


def _most(groups: list[tuple[int, str, int, list[Node]]],
          most: int) -> list[tuple[int, str, int, list[Node]]]:
    """The largest groups, and one of all the others where there are more than `most`."""
    if len(groups) <= most:
        return groups
    groups.sort(key=lambda g: (g[0], g[1]))
    rest = [n for g in groups[most - 1:] for n in g[3]]
    title = f"{rest[0].device} {len(groups) - most + 1:,} other scopes"
    return [*groups[:most - 1], (-len(rest), title, len(rest[0].name), rest)]
