"""Simplify arithmetic: nodes that give back an input bit for bit are taken out, and rewrites that keep every
bit are made.

A rule sees one node and gives the edge that takes the place of its output, or None. Rules hold for every
value, with NaN and -0.0: x * 1, but not x + 0.0 (-0.0 + 0.0 is 0.0); x - 0.0 and x + -0.0 give x. Types whose
arithmetic goes through a wider one are left alone where NaN's bits could change.

A node that is fetched or a target, that waits for control inputs, whose input is a live reference, or that
stands on another device than what it would be replaced by, stays.
Cost: one visit a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.compiler.deadness import LOOPS, MERGES, SWITCHES
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, preserved, sweep

Edge = tuple[Node, int]
Rule = Callable[[Node], "Edge | None"]
# Arrays larger than this are not searched for ones or zeros.
_SEARCHED = 1 << 16


def simplify_arithmetic(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step without nodes that change nothing."""
    before = len(step)
    if not options.simplify:
        return step, PassRecord("simplify_arithmetic", before, before, "off")
    keep = preserved(step)
    waited_for = {c for n in step.nodes for c in n.controls}
    moved: dict[Edge, Edge] = {}
    control_of: dict[Node, Node] = {}
    details: list[tuple[str, str]] = []
    for node in step.nodes:
        if moved:
            # Loops' back edges are rewired below: they come later than what takes them.
            node.inputs = [moved.get(e, e) for e in node.inputs]
            if node.controls and control_of:
                node.controls = list(dict.fromkeys(control_of.get(c, c) for c in node.controls))
        rule = RULES.get(node.type)
        if rule is None:
            continue
        passed = REWIRED[node.type](node) if node.type in REWIRED else None
        if passed is not None:
            details.append((node.name, f"takes what '{passed.name}' takes: only the last {node.type} counts"))
        if node.controls or node in keep or any(s.dtypes[i].is_ref for s, i in node.inputs):
            continue
        edge = rule(node)
        if edge is None or edge[0].device != node.device:
            continue
        source, index = edge
        if node in waited_for:
            if source.type in SWITCHES:
                continue  # alive where its output is dead: what waits for the node must not wait for that
            control_of[node] = control_of.get(source, source)
        moved[node, 0] = edge
        _keep_shape(node, edge)
        details.append((node.name, f"{node.type} gives back '{source.name}:{index}'"))
    if not details:
        return step, PassRecord("simplify_arithmetic", before, before, "nothing to simplify")
    for node in step.nodes:
        if node.type in MERGES:
            node.inputs = [moved.get(e, e) for e in node.inputs]
    made = sweep(step)
    return made, PassRecord("simplify_arithmetic", before, len(made), f"{len(details)} nodes simplified",
                            details)


def _keep_shape(node: Node, edge: Edge) -> None:
    """What was known of the node's shape holds for what takes its place."""
    source, index = edge
    known, more = source.shapes[index], node.shapes[0]
    if known.sizes != more.sizes and known.is_compatible_with(more):
        source.shapes[index] = known.merge_with(more)


# -- rules -------------------------------------------------------------------------------------------------


def _first_input(node: Node) -> Edge | None:
    return None if node.inputs[0][0].type in LOOPS else node.inputs[0]


def _only_input(node: Node) -> Edge | None:
    return node.inputs[0] if node.attrs["N"] == 1 else None


def _shape_holds(node: Node) -> Edge | None:
    """EnsureShape of a tensor that is known to have the shape; BroadcastTo and Reshape to the shape that it
    has."""
    source, index = node.inputs[0]
    known, wanted = source.shapes[index].sizes, node.attrs["shape"].sizes
    if wanted is None:
        return node.inputs[0]
    if known is None or len(known) != len(wanted):
        return None
    return node.inputs[0] if all(w is None or w == k for k, w in zip(known, wanted)) else None


def _undone(node: Node) -> Edge | None:
    """Neg of Neg, LogicalNot of LogicalNot and their like."""
    inner, _ = node.inputs[0]
    if inner.type != node.type or inner.controls or inner.attrs.get("T") is not node.attrs.get("T"):
        return None
    return _unless_ref(inner.inputs[0])


def _unless_ref(edge: Edge) -> Edge | None:
    return None if edge[0].dtypes[edge[1]].is_ref else edge


def _constant(edge: Edge) -> np.ndarray | None:
    value = edge[0].attrs["value"] if edge[0].type == "Const" else None
    return value if value is not None and value.dtype != object and value.size <= _SEARCHED else None


def _keeps_shape(value: Edge, constant: np.ndarray) -> bool:
    """True where broadcasting `constant` against the value cannot change the value's shape."""
    if constant.ndim == 0:
        return True
    sizes = value[0].shapes[value[1]].sizes
    if sizes is None or constant.ndim > len(sizes):
        return False
    return all(c == 1 or c == s for c, s in zip(constant.shape[::-1], sizes[::-1]))


def _exact(node: Node) -> bool:
    """True where arithmetic with a neutral element gives back every bit, those of NaN included."""
    dtype = node.dtypes[0]
    return dtype.is_integer or dtype.name in ("float32", "float64")


def _is_one(value: np.ndarray) -> bool:
    if value.size == 1:
        return value.item() == 1
    return bool((value == 1).all())


def _is_zero(value: np.ndarray, negative: bool) -> bool:
    """Zeros; floating ones of the sign that is neutral."""
    if value.item() != 0 if value.size == 1 else not (value == 0).all():
        return False
    return value.dtype.kind != "f" or bool((np.signbit(value) == negative).all())


def _neutral(is_neutral: Callable[[np.ndarray], bool], either_side: bool) -> Rule:
    def rule(node: Node) -> Edge | None:
        if not _exact(node):
            return None
        for value, other in ((0, 1), (1, 0)) if either_side else ((0, 1),):
            constant = _constant(node.inputs[other])
            if constant is not None and not node.inputs[other][0].controls and is_neutral(constant) \
                    and _keeps_shape(node.inputs[value], constant):
                return node.inputs[value]
        return None

    return rule


def _transpose(node: Node) -> Edge | None:
    """A transposition by the identity, or two that undo each other."""
    order = _constant(node.inputs[1])
    if order is None or node.inputs[1][0].controls:
        return None
    outer = [int(d) % max(order.size, 1) for d in order]
    if outer == list(range(len(outer))):
        return node.inputs[0]
    inner, _ = node.inputs[0]
    if inner.type != "Transpose" or inner.controls:
        return None
    first = _constant(inner.inputs[1])
    if first is None or inner.inputs[1][0].controls or first.size != order.size:
        return None
    composed = [int(first[d]) % first.size for d in outer]
    return _unless_ref(inner.inputs[0]) if composed == list(range(len(composed))) else None


def _reshape(node: Node) -> Edge | None:
    """To the shape that the tensor has."""
    wanted = _constant(node.inputs[1])
    if wanted is None or node.inputs[1][0].controls:
        return None
    return _if_known(node.inputs[0], [int(d) for d in wanted])


def _reshape_of_reshape(node: Node) -> Node | None:
    """A reshape of a reshape takes what the inner one takes; gives the inner one."""
    inner, _ = node.inputs[0]
    if inner.type not in ("Reshape", "ExpandDims", "Squeeze") or inner.controls:
        return None
    if inner.device != node.device or _unless_ref(inner.inputs[0]) is None:
        return None
    node.inputs = [inner.inputs[0], node.inputs[1]]
    return inner


def _if_known(edge: Edge, wanted: list[int]) -> Edge | None:
    """The edge, where its static shape is `wanted`; one size of both may be unknown (-1)."""
    known = edge[0].shapes[edge[1]].sizes
    if known is None or len(known) != len(wanted):
        return None
    if 0 in known and -1 in wanted:
        return None  # an error, which the step reports: the size that is left open could be any
    unknown = [k is None for k in known]
    if sum(unknown) > 1 or any(w == -1 and not u for w, u in zip(wanted, unknown)) and any(unknown):
        return None
    return edge if all((w == -1) if k is None else w in (k, -1) for k, w in zip(known, wanted)) else None


def _broadcast_to(node: Node) -> Edge | None:
    wanted = _constant(node.inputs[1])
    source, index = node.inputs[0]
    if wanted is None or node.inputs[1][0].controls:
        return None
    return node.inputs[0] if source.shapes[index].sizes == tuple(int(d) for d in wanted) else None


def _tile(node: Node) -> Edge | None:
    multiples = _constant(node.inputs[1])
    if multiples is None or node.inputs[1][0].controls or not _is_one(multiples):
        return None
    return node.inputs[0]


# Types that hold every value of another, by name.
_HOLDS = {
    "bool": ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float32", "float64"),
    "int8": ("int16", "int32", "int64", "float32", "float64"),
    "uint8": ("int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"),
    "int16": ("int32", "int64", "float32", "float64"),
    "uint16": ("int32", "uint32", "int64", "uint64", "float32", "float64"),
    "int32": ("int64", "float64"),
    "uint32": ("int64", "uint64", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
}


def _cast(node: Node) -> Edge | None:
    """To the type that it has, or back from one that holds every value."""
    source, index = node.inputs[0]
    if node.attrs["SrcT"] is node.attrs["DstT"]:
        return node.inputs[0]
    if source.type != "Cast" or source.controls or source.attrs["SrcT"] is not node.attrs["DstT"]:
        return None
    if source.attrs["DstT"].name not in _HOLDS.get(node.attrs["DstT"].name, ()):
        return None
    return _unless_ref(source.inputs[0])


_PASS_ON = ("Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault")
RULES: dict[str, Rule] = {
    **dict.fromkeys(_PASS_ON, _first_input),
    "EnsureShape": _shape_holds,
    **dict.fromkeys(("Neg", "LogicalNot", "Conj", "Invert"), _undone),
    "AddN": _only_input,
    **dict.fromkeys(("AddV2", "Add"), _neutral(lambda c: _is_zero(c, negative=True), either_side=True)),
    "Sub": _neutral(lambda c: _is_zero(c, negative=False), either_side=False),
    "Mul": _neutral(_is_one, either_side=True),
    **dict.fromkeys(("RealDiv", "Div"), _neutral(_is_one, either_side=False)),
    "Transpose": _transpose,
    "Reshape": _reshape,
    "BroadcastTo": _broadcast_to,
    "Tile": _tile,
    "Cast": _cast,
}
# Rules that change what a node takes and leave the node.
REWIRED: dict[str, Callable[[Node], Node | None]] = {"Reshape": _reshape_of_reshape}
