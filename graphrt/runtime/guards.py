"""Guards: under which outcomes of Switches a node is alive.

A guard is a conjunction of literals, a literal one boolean known while the step runs: a Switch's predicate
(or its opposite), whether a received tensor is alive, whether any input of a Merge is. Nodes behind a Switch
inherit its literal; a Merge over a predicate and its opposite drops it. The empty guard is always alive;
IMPOSSIBLE never.
"""

from __future__ import annotations

from typing import NamedTuple

from graphrt.compiler.step_graph import Node


class Literal(NamedTuple):
    """`kind` pred: output `index` of `node` is true; recv: what `node` received is alive; merge: an input of
    `node` is."""

    kind: str
    node: Node
    index: int
    positive: bool

    def opposite(self) -> Literal:
        return self._replace(positive=not self.positive)


Guard = frozenset[Literal]
ALWAYS: Guard = frozenset()
IMPOSSIBLE: Guard = frozenset((Literal("never", None, 0, True),))  # type: ignore[arg-type]

SWITCHES = frozenset(("Switch", "RefSwitch"))
MERGES = frozenset(("Merge", "RefMerge"))


def both(a: Guard, b: Guard) -> Guard:
    """Alive where both are."""
    if not a or a is b:
        return b
    if not b:
        return a
    made = a | b
    if len(made) > 1 and any(literal.opposite() in made for literal in made):
        return IMPOSSIBLE
    return made


def either(inputs: list[Guard], merge: Node) -> Guard:
    """Alive where any of a Merge's inputs is: exact for a branch and its opposite, else a literal of its
    own."""
    alive = [g for g in dict.fromkeys(inputs) if g is not IMPOSSIBLE]
    if not alive:
        return IMPOSSIBLE
    common = frozenset.intersection(*alive)
    rest = [g - common for g in alive]
    if any(not r for r in rest):
        return common
    if len(rest) == 2 and len(rest[0]) == len(rest[1]) == 1:
        (a,), (b,) = rest
        if a == b.opposite():
            return common
    return common | {Literal("merge", merge, 0, True)}


def _decided_by(predicate: tuple[Node, int]) -> tuple[Node, int]:
    """Where a predicate's value comes from: Identities and Switches pass it on, so predicates that are one
    are known as one."""
    source, index = predicate
    while source.type in ("Identity", "Switch"):
        before, at = source.inputs[0]
        if before.dtypes[at].is_ref:
            break
        source, index = before, at
    return source, index


def output_guards(
    nodes: list[Node], recv_may_be_dead: bool = True
) -> tuple[dict[Node, Guard], dict[tuple[Node, int], Guard]]:
    """The guard of each node, and of outputs where it differs from their node's (a Switch's). Nodes come in
    order."""
    of_node: dict[Node, Guard] = {}
    of_output: dict[tuple[Node, int], Guard] = {}
    for node in nodes:
        if node.type in MERGES:
            of_node[node] = either([of_output.get(e, of_node[e[0]]) for e in node.inputs], node)
            continue
        if node.type == "ControlTrigger":
            of_node[node] = ALWAYS  # it runs also where what it waits for is dead
            continue
        guard = ALWAYS
        for edge in node.inputs:
            source = of_output.get(edge)
            if source is None:
                source = of_node[edge[0]]
            if source:
                guard = both(guard, source)
        for control in node.controls:
            if of_node[control]:
                guard = both(guard, of_node[control])
        of_node[node] = guard
        if node.type in SWITCHES:
            source_node, index = _decided_by(node.inputs[1])
            for branch in (0, 1):
                literal = Literal("pred", source_node, index, branch == 1)
                of_output[node, branch] = both(guard, frozenset((literal,)))
        elif recv_may_be_dead and node.type in ("_Recv", "_HostRecv") and not node.attrs.get("_never_dead"):
            of_output[node, 0] = both(guard, frozenset((Literal("recv", node, 0, True),)))
    return of_node, of_output
