"""Which nodes may be dead: those behind a Switch, until a Merge of both its sides.

A guard is a set of (predicate, side) that must all hold for a value to be alive; the empty guard is always
alive. Loops are taken as dead wherever they might be.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphrt.compiler.step_graph import Node

SWITCHES = frozenset(("Switch", "RefSwitch"))
MERGES = frozenset(("Merge", "RefMerge"))
LOOPS = frozenset(("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration"))
CONTROL_FLOW = SWITCHES | MERGES | LOOPS | {"_SwitchN", "ControlTrigger"}

Guard = frozenset
_ALIVE: Guard = frozenset()


def guarded(nodes: Iterable[Node]) -> dict[Node, Guard]:
    """The guard of each node of ordered `nodes` that may be dead. A Switch's guard is its own, not its
    outputs'; a `_Recv` that is not marked `_never_dead` brings a guard of its own."""
    found: dict[Node, Guard] = {}
    outputs: dict[tuple[Node, int], Guard] = {}
    for node in nodes:
        kind = node.type
        if kind in LOOPS:
            found[node] = frozenset(((node, None),))
            continue
        if kind in MERGES:
            guard = _merged([outputs.get(e) or found.get(e[0], _ALIVE) for e in node.inputs], node)
        else:
            guard = _ALIVE
            if outputs or found:
                for edge in node.inputs:
                    guard |= outputs.get(edge) or found.get(edge[0], _ALIVE)
                for control in node.controls:
                    guard |= found.get(control, _ALIVE)
            if kind in SWITCHES:
                for side in (0, 1):
                    outputs[node, side] = guard | {(node.inputs[1], side)}
            elif kind in ("_Recv", "_HostRecv") and not node.attrs.get("_never_dead"):
                guard |= {(node, None)}
        if guard:
            found[node] = guard
    return found


def _merged(guards: list[Guard], merge: Node) -> Guard:
    if not all(guards):
        return _ALIVE  # one input is always there
    common = frozenset.intersection(*guards)
    rests = [g - common for g in guards]
    if len(rests) == 2 and len(rests[0]) == len(rests[1]) == 1:
        (predicate, side), = rests[0]
        (other, other_side), = rests[1]
        if predicate == other and {side, other_side} == {0, 1}:
            return common
    return common | {(merge, None)}
