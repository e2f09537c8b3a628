"""Remove dead branches: a Switch whose predicate is constant lets one side live.

The nodes of the other side are gone; a Merge that has one live input left passes it on, with the index of
that input as a constant. A fetch that would be dead is left to the step, which reports it. Loops are left
alone.
Cost: one visit a node where there is such a Switch, a look at every node's type where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.compiler.deadness import LOOPS, MERGES, SWITCHES
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, preserved, sweep
from graphrt.core.dtypes import int32
from graphrt.core.registry import OPS
from graphrt.core.shapes import SCALAR

Edge = tuple[Node, int]


def remove_dead_branches(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step without the nodes that no step would run."""
    before = len(step)
    decided = {n: bool(n.inputs[1][0].attrs["value"]) for n in step.nodes if n.type in SWITCHES
               and n.inputs[1][0].type == "Const" and not n.controls and not n.inputs[1][0].controls}
    if not options.fold or not decided or any(n.type in LOOPS for n in step.nodes):
        return step, PassRecord("remove_dead_branches", before, before, "no predicate is constant")
    dead_nodes, dead_edges = _dead(step, decided)
    fetched = set(step.retvals)
    if any(n in fetched for n in dead_nodes):
        return step, PassRecord("remove_dead_branches", before, before,
                                "a fetch is in an untaken branch: left to the step")
    if _is_stuck(step, dead_nodes, dead_edges):
        return step, PassRecord("remove_dead_branches", before, before,
                                "a Merge needs the index of its input: left to the step")
    details = [(n.name, f"never runs: behind a Switch that is always {'true' if taken else 'false'}")
               for n, taken in decided.items()]
    kept = _rewire(step, decided, dead_nodes, dead_edges, details)
    targets = [t for t in step.targets if t not in dead_nodes]
    made = sweep(StepGraph(kept, step.args, step.retvals, targets, step.library))
    return made, PassRecord("remove_dead_branches", before, len(made), f"{len(decided)} constant predicates, "
                            f"{before - len(made)} nodes removed", details)


def _dead(step: StepGraph, decided: dict[Node, bool]) -> tuple[set[Node], set[Edge]]:
    """The nodes that never run, and the outputs of decided Switches that are never alive."""
    nodes: set[Node] = set()
    edges = {(n, 0 if taken else 1) for n, taken in decided.items()}
    for node in step.nodes:
        inputs = [s in nodes or (s, i) in edges for s, i in node.inputs]
        dead = all(inputs) and bool(inputs) if node.type in MERGES else any(inputs)
        if dead or any(c in nodes for c in node.controls):
            nodes.add(node)
    return nodes, edges


def _rewire(step: StepGraph, decided: dict[Node, bool], dead_nodes: set[Node], dead_edges: set[Edge],
            details: list[tuple[str, str]]) -> list[Node]:
    keep = preserved(step)
    waited_for = {c for n in step.nodes for c in n.controls}
    moved: dict[Edge, Edge] = {}
    kept: list[Node] = []
    for node in step.nodes:
        if node in dead_nodes:
            continue
        node.inputs = [moved.get(e, e) for e in node.inputs] if node.type not in MERGES else node.inputs
        if node in decided:
            if node not in keep and node not in waited_for and not node.dtypes[0].is_ref:
                moved[node, int(decided[node])] = node.inputs[0]
                continue
        elif node.type in MERGES:
            live = [i for i, e in enumerate(node.inputs) if e[0] not in dead_nodes and e not in dead_edges]
            alive = [moved.get(node.inputs[i], node.inputs[i]) for i in live]
            if len(live) == 1 < len(node.inputs):
                kept += _pass_on(node, live[0], alive[0], moved)
                details.append((node.name, f"Merge always takes input {live[0]}"))
                continue
            node.inputs = alive
            if len(alive) != node.attrs["N"]:
                node.attrs = {**node.attrs, "N": len(alive)}
        kept.append(node)
    return kept


def _is_stuck(step: StepGraph, dead_nodes: set[Node], dead_edges: set[Edge]) -> bool:
    """True where a Merge cannot lose its dead inputs: of references, or of several live ones whose number is
    asked for."""
    for node in step.nodes:
        if node.type not in MERGES or node in dead_nodes:
            continue
        live = sum(s not in dead_nodes and (s, i) not in dead_edges for s, i in node.inputs)
        if live < len(node.inputs) and (node.type != "Merge" or live > 1
                                        and any((node, 1) in n.inputs for n in step.nodes)):
            return True
    return False


def _pass_on(merge: Node, index: int, edge: Edge, moved: dict[Edge, Edge]) -> list[Node]:
    """Make the Merge an Identity of its live input; its second output is a constant that is alive where the
    input is."""
    dtype = merge.dtypes[0]
    merge.op_def, merge.type = OPS["Identity"], "Identity"
    merge.attrs, merge.inputs = {"T": dtype.base_dtype}, [edge]
    merge.dtypes, merge.shapes = [dtype], merge.shapes[:1]
    number = Node(f"{merge.name}/value_index", OPS["Const"],
                  {"value": np.array(index, np.int32), "dtype": int32}, [], [merge], [int32], [SCALAR],
                  merge.device, None, merge.location)
    moved[merge, 1] = (number, 0)
    return [merge, number]
