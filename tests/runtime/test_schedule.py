"""The order of a plan's nodes, and the segments that it is cut into."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.compiler.step_graph import Node
from graphrt.runtime.schedule import SegmentNodes, cut, order, read_variables, waits
from tests.runtime.nodes import Value, arg, node, queue, update, variable, waiting
from tests.runtime.program_writer import Choices


def before(nodes: list[Node]) -> dict[Node, set[Node]]:
    """All that each node waits for, direct or not; nodes are in any order."""
    found: dict[Node, set[Node]] = {}

    def of(n: Node) -> set[Node]:
        if n not in found:
            found[n] = set()
            for source in [*(s for s, _ in n.inputs), *n.controls]:
                found[n] |= {source} | of(source)
        return found[n]

    for n in nodes:
        of(n)
    return found


def random_program(c: Choices) -> list[Node]:
    """Readers and updates of two ref variables, views of them, and nodes that wait."""
    handle, x = queue(), arg("x")
    variables = [variable("v"), variable("w")]
    nodes: list[Node] = [handle, x, *variables]
    values: list[Value] = [(x, 0)]
    free: list[Node] = []
    for number in range(2 + c.below(14)):
        pick = lambda: values[-1 - c.below(len(values))]  # noqa: E731
        controls = [free[c.below(len(free))]] if free and c.below(3) == 2 else []
        v = (variables[c.below(2)], 0)
        kind = c.below(6)
        if kind == 0:
            made = node("AddV2", f"read{number}", [v, pick()], controls)
        elif kind == 1:
            made = update(f"update{number}", v, pick(), controls)
        elif kind == 2:
            made = node("Identity", f"alias{number}", [v], controls)
        elif kind == 3:
            made = waiting(f"dequeue{number}", handle, controls=controls)
        elif kind == 4:
            made = waiting(f"enqueue{number}", handle, [pick()], controls)
        else:
            made = node("Neg", f"neg{number}", [pick()], controls)
        nodes.append(made)
        free.append(made)
        if made.dtypes and made.type != "AssignAdd":
            values.append((made, 0))
    return nodes


@settings(max_examples=250)
@given(st.binary(min_size=16, max_size=160))
def test_an_update_in_place_comes_after_every_reader_that_does_not_wait_for_an_update(source: bytes) -> None:
    nodes = random_program(Choices(source))
    ordered = order(nodes[::-1])
    assert sorted(map(id, ordered)) == sorted(map(id, nodes))
    at = {n: i for i, n in enumerate(ordered)}
    earlier = before(nodes)
    for n in nodes:
        assert all(at[s] < at[n] for s in earlier[n])
    reads = read_variables(ordered)
    for u in (n for n in nodes if n.type == "AssignAdd"):
        for reader, variables in reads.items():
            if (
                u.inputs[0][0] in variables
                and reader is not u
                and reader.type != "AssignAdd"
                and not any(s.type == "AssignAdd" for s in earlier[reader])
            ):
                assert at[reader] < at[u], (reader, u)


def test_a_view_of_a_reference_is_read_before_the_update_too() -> None:
    v, x = variable("v"), arg("x")
    u = update("u", (v, 0), (x, 0))
    alias = node("Identity", "alias", [(v, 0)])
    flat = node("Reshape", "flat", [(alias, 0), (x, 0)])
    use = node("Neg", "use", [(flat, 0)])
    assert order([v, x, u, alias, flat, use]).index(use) < order([v, x, u, alias, flat, use]).index(u)


def test_what_waits_for_the_update_comes_after_it() -> None:
    v, x = variable("v"), arg("x")
    alias = node("Identity", "alias", [(v, 0)])
    u = update("u", (v, 0), (x, 0), [alias])
    use = node("Neg", "use", [(alias, 0)], [u])
    ordered = order([v, x, alias, u, use])
    assert ordered.index(alias) < ordered.index(u) < ordered.index(use)


# -- segments ----------------------------------------------------------------------------------------------


def run_segments(segments: list[SegmentNodes], choose: Choices) -> list[Node]:
    """Nodes as they run where waiting nodes answer in any order; every input must be there in time."""
    arrived: set[Node] = set()
    done: set[int] = set()
    ran: list[Node] = []
    started: list[Node] = []
    left = set(range(len(segments)))
    while True:
        ready = [
            i for i in sorted(left) if set(segments[i].awaits) <= arrived and set(segments[i].after) <= done
        ]
        if ready and (not started or choose.below(2) == 0):
            i = ready[choose.below(len(ready))]
            left.remove(i)
            here: set[Node] = set()
            for n in segments[i].nodes:
                for source in [*(s for s, _ in n.inputs), *n.controls]:
                    assert source in arrived if waits(source) else source in here or source in ran, (
                        n,
                        source,
                    )
                here.add(n)
                if waits(n):
                    started.append(n)
            ran += segments[i].nodes
            done.add(i)
        elif started:
            arrived.add(started.pop(choose.below(len(started))))
        elif not ready:
            assert not left, "segments that never run"
            return ran


@settings(max_examples=250)
@given(st.binary(min_size=16, max_size=160), st.binary(max_size=40))
def test_segments_have_what_they_take_in_whatever_order_waiting_nodes_answer(
    source: bytes, answers: bytes
) -> None:
    nodes = order(random_program(Choices(source)))
    segments = cut(nodes)
    ran = run_segments(segments, Choices(answers))
    assert sorted(map(id, ran)) == sorted(map(id, nodes))


@settings(max_examples=250)
@given(st.binary(min_size=16, max_size=160))
def test_a_segment_waits_for_nothing_that_its_nodes_do_not(source: bytes) -> None:
    nodes = order(random_program(Choices(source)))
    earlier = before(nodes)
    for segment in cut(nodes):
        awaited = {frozenset(s for s in earlier[n] if waits(s)) for n in segment.nodes}
        assert len(awaited) == 1


def test_without_waiting_nodes_there_is_one_segment() -> None:
    x = arg("x")
    a = node("Neg", "a", [(x, 0)])
    (only,) = cut([x, a, node("Neg", "b", [(a, 0)], [a])])
    assert len(only.nodes) == 3 and not only.awaits and not only.after
