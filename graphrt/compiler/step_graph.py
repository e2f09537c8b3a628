"""StepGraph: the part of a graph that one signature needs, in a form that passes may rewrite.

`prune` makes it from a Graph; a worker makes it from the GraphDef of a RegisterGraph. Feeds have become
`_Arg` nodes and fetches `_Retval` nodes, as in a function's body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphrt.core.dtypes import DType
from graphrt.core.registry import OpDef
from graphrt.core.shapes import TensorShape


@dataclass(frozen=True, slots=True)
class Signature:
    """What a step is asked for. Names are 'op:index' for feeds and fetches, 'op' for targets; fetches are
    distinct."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]


class Node:
    """A node of a StepGraph.

    Attributes:
      inputs: (node, output index) for each flat input.
      controls: nodes that run before it.
      dtypes, shapes: of its outputs; reference dtypes for ref outputs.
      device: asked for, whole or in part; a full name once `place` has run.
      origin: the Operation of the program, or None for a node that a pass made.
      location: (file, line) of the user's code, or None.
    """

    __slots__ = ("name", "op_def", "type", "attrs", "inputs", "controls", "dtypes", "shapes", "device",
                 "origin", "location")

    def __init__(self, name: str, op_def: OpDef, attrs: dict[str, Any], inputs: list[tuple[Node, int]],
                 controls: list[Node], dtypes: list[DType], shapes: list[TensorShape], device: str = "",
                 origin: Any = None, location: tuple[str, int] | None = None) -> None:
        self.name, self.op_def, self.type, self.attrs = name, op_def, op_def.name, attrs
        self.inputs, self.controls, self.dtypes, self.shapes = inputs, controls, dtypes, shapes
        self.device, self.origin, self.location = device, origin, location

    @property
    def input_dtypes(self) -> list[DType]:
        """What the op's signature says of its inputs (reference types for Ref arguments)."""
        return self.op_def.types(self.op_def.inputs, self.attrs)

    def __repr__(self) -> str:
        return f"<node '{self.name}' {self.type}{' on ' + self.device if self.device else ''}>"


@dataclass
class StepGraph:
    """The nodes of a step, every node after its inputs (but for NextIteration's back edges).

    Attributes:
      args: the `_Arg` node of each feed, in signature order; a feed that nothing needs has one too.
      retvals: the `_Retval` node of each fetch.
      targets: nodes that run for their effect.
      library: functions by name.
    """

    nodes: list[Node]
    args: list[Node] = field(default_factory=list)
    retvals: list[Node] = field(default_factory=list)
    targets: list[Node] = field(default_factory=list)
    library: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def consumers(self) -> dict[Node, list[tuple[Node, int]]]:
        """node -> (consumer, input position) of each data edge out of it."""
        found: dict[Node, list[tuple[Node, int]]] = {n: [] for n in self.nodes}
        for node in self.nodes:
            for position, (source, _) in enumerate(node.inputs):
                found[source].append((node, position))
        return found

    def replace(self, nodes: Iterable[Node]) -> StepGraph:
        """The same step over other nodes."""
        return StepGraph(list(nodes), self.args, self.retvals, self.targets, self.library)


def is_back_edge(source: Node, consumer: Node) -> bool:
    return source.type == "NextIteration" and consumer.type == "Merge"


def topological(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, each after its inputs and controls; ties keep the given order. Iterative: graphs are deep.

    Raises:
      ValueError: a cycle other than a loop's, with nodes on it.
    """
    given = list(nodes)
    state: dict[Node, int] = {}  # 1 is open, 2 is done
    ordered: list[Node] = []
    for root in given:
        if root in state:
            continue
        stack: list[tuple[Node, Iterator[Node]]] = [(root, _before(root))]
        state[root] = 1
        while stack:
            node, rest = stack[-1]
            for source in rest:
                seen = state.get(source)
                if seen is None:
                    state[source] = 1
                    stack.append((source, _before(source)))
                    break
                if seen == 1:
                    names = ", ".join(f"'{n.name}'" for n, _ in stack[-6:])
                    raise ValueError(f"the graph has a cycle through {names}")
            else:
                stack.pop()
                state[node] = 2
                ordered.append(node)
    return ordered


def _before(node: Node) -> Iterator[Node]:
    sources = [s for s, _ in node.inputs if not is_back_edge(s, node)]
    return iter([*sources, *node.controls])


def sweep(step: StepGraph) -> StepGraph:
    """The step without the nodes that reach no fetch and no target; its `_Arg` nodes stay."""
    kept: set[Node] = set(step.args)
    frontier = [*step.retvals, *step.targets]
    while frontier:
        node = frontier.pop()
        if node in kept:
            continue
        kept.add(node)
        frontier += [s for s, _ in node.inputs if s not in kept]
        if node.controls:
            frontier += [c for c in node.controls if c not in kept]
    return step if len(kept) == len(step.nodes) else step.replace([n for n in step.nodes if n in kept])


def preserved(step: StepGraph) -> set[Node]:
    """Nodes that keep their names: what is fetched, and targets."""
    return {source for retval in step.retvals for source, _ in retval.inputs} | set(step.targets)


@dataclass
class Partition:
    """The nodes of one device, with `_Send` and `_Recv` nodes at the cuts. What RegisterGraph carries.

    Attributes:
      device: its full name.
      graph: its nodes; `args` and `retvals` hold those that live here (their attr `index` says which).
    """

    device: str
    graph: StepGraph


@dataclass
class PassRecord:
    """What a pass did: `graphrt explain` shows it. `details` are (subject, what happened) lines."""

    name: str
    nodes_before: int
    nodes_after: int
    summary: str = ""
    details: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0


# What a pass gives: the step after it, and its record.
Passed = tuple[StepGraph, PassRecord]
