"""Guards hold exactly where a node is alive by the rules of Switch and Merge, on every outcome."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.compiler.step_graph import Node
from graphrt.core.dtypes import float32, int32
from graphrt.runtime.guards import ALWAYS, IMPOSSIBLE, Guard, both, output_guards
from tests.runtime.nodes import Value, arg, node, predicate, switch
from tests.runtime.program_writer import Choices


def pick(values: list[Value], c: Choices) -> Value:
    return values[-1 - c.below(len(values))]


def merge(name: str, inputs: list[Value]) -> Node:
    return node("Merge", name, inputs, dtypes=[float32, int32], N=len(inputs))


def random_nodes(c: Choices) -> tuple[list[Node], list[Node]]:
    """(nodes in order, predicates): Switches, Merges, ops of two inputs, and control inputs between them."""
    predicates = [predicate(f"p{i}") for i in range(3)]
    x = arg("x")
    nodes: list[Node] = [*predicates, x]
    values: list[Value] = [(x, 0)]
    flags: list[Value] = [(p, 0) for p in predicates]
    for number in range(2 + c.below(12)):
        kind = c.below(5)
        if kind == 0:
            made = switch(f"s{number}", pick(values, c), flags[c.below(len(flags))])
            values += [(made, 0), (made, 1)]
        elif kind == 1:
            made = merge(f"m{number}", [values[c.below(len(values))] for _ in range(2 + c.below(2))])
            values.append((made, 0))
        elif kind == 2:
            made = node("AddV2", f"a{number}", [pick(values, c), pick(values, c)])
            values.append((made, 0))
        elif kind == 3:
            made = node("Neg", f"n{number}", [pick(values, c)], [nodes[c.below(len(nodes))]])
            values.append((made, 0))
        else:
            # A predicate that passes through a branch is known as the same one.
            made = node(
                "Identity", f"i{number}", [flags[c.below(len(flags))]], dtypes=[flags[0][0].dtypes[0]]
            )
            flags.append((made, 0))
        nodes.append(made)
    return nodes, predicates


def alive_by_the_rules(
    nodes: list[Node], truth: dict[Node, bool]
) -> tuple[dict[Node, bool], dict[Value, bool]]:
    """Which nodes run, and which outputs are alive."""
    runs: dict[Node, bool] = {}
    alive: dict[Value, bool] = {}
    flag: dict[Node, bool] = dict(truth)
    for n in nodes:
        inputs = [alive[e] for e in n.inputs]
        runs[n] = (any(inputs) if n.type == "Merge" else all(inputs)) and all(runs[c] for c in n.controls)
        if n.type == "Identity":
            flag[n] = flag[n.inputs[0][0]]
        for i in range(len(n.dtypes)):
            alive[n, i] = runs[n]
        if n.type == "Switch":
            chosen = flag[n.inputs[1][0]]
            alive[n, 0], alive[n, 1] = runs[n] and not chosen, runs[n] and chosen
    return runs, alive


def holds(guard: Guard, truth: dict[Node, bool], alive: dict[Value, bool]) -> bool:
    for literal in guard:
        if literal.kind == "never":
            return False
        if literal.kind == "merge":
            found = any(alive[e] for e in literal.node.inputs)
        else:
            source = literal.node
            while source not in truth:
                source = source.inputs[0][0]
            found = truth[source]
        if found != literal.positive:
            return False
    return True


@settings(max_examples=500)
@given(st.binary(min_size=12, max_size=120))
def test_guards_say_who_is_alive_on_every_outcome(source: bytes) -> None:
    nodes, predicates = random_nodes(Choices(source))
    of_node, of_output = output_guards(nodes)
    for outcome in itertools.product((False, True), repeat=len(predicates)):
        truth = dict(zip(predicates, outcome))
        runs, alive = alive_by_the_rules(nodes, truth)
        for n in nodes:
            assert holds(of_node[n], truth, alive) == runs[n], (n, of_node[n], outcome)
            for i in range(len(n.dtypes)):
                guard = of_output.get((n, i), of_node[n])
                assert holds(guard, truth, alive) == alive[n, i], (n, i, guard, outcome)


def test_a_merge_of_both_branches_is_always_alive() -> None:
    p, x = predicate("p"), arg("x")
    s = switch("s", (x, 0), (p, 0))
    m = merge("m", [(s, 0), (s, 1)])
    of_node, _ = output_guards([p, x, s, m])
    assert of_node[m] is ALWAYS or of_node[m] == ALWAYS


def test_a_node_of_both_branches_never_runs() -> None:
    p, x = predicate("p"), arg("x")
    s = switch("s", (x, 0), (p, 0))
    a = node("AddV2", "a", [(s, 0), (s, 1)])
    assert output_guards([p, x, s, a])[0][a] is IMPOSSIBLE


def test_guards_of_conditions_in_conditions_are_the_smaller_where_one_is_in_the_other() -> None:
    p, q, x = predicate("p"), predicate("q"), arg("x")
    outer = switch("outer", (x, 0), (p, 0))
    inner = switch("inner", (outer, 1), (q, 0))
    _, of_output = output_guards([p, q, x, outer, inner])
    assert of_output[outer, 1] < of_output[inner, 0]
    assert both(of_output[outer, 1], of_output[inner, 0]) == of_output[inner, 0]
