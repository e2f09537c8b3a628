"""Conditionals against TensorFlow: the same nodes, the same values, and GraphDefs that go from one to the
other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphrt
from tests.core.control_flow_programs import FUNCTIONAL_PROGRAMS, PROGRAMS, Built, flat, run


@pytest.fixture(scope="module")
def tf1(tf: Any) -> Any:
    """TensorFlow 1's interface of TensorFlow."""
    v1 = tf.compat.v1
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    yield v1
    if was_v2:
        v1.enable_control_flow_v2()


def _check_equal(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert np.asarray(mine).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values_are_tensorflows(program: Any, tf1: Any) -> None:
    _check_equal(run(graphrt, program), run(tf1, program))


@pytest.mark.parametrize("program", FUNCTIONAL_PROGRAMS, ids=lambda p: p.__name__)
def test_values_of_functional_conditionals_are_tensorflows(program: Any, tf1: Any) -> None:
    _check_equal(run(graphrt, program, functional=True), run(tf1, program, functional=True))


def _nodes(module: Any, program: Any) -> dict[str, Any]:
    graph = module.Graph()
    with graph.as_default():
        program(module)
    return {n.name: n for n in graph.as_graph_def().node}


def _of_conditionals(nodes: dict[str, Any]) -> list[str]:
    """The names of nodes that conditionals are made of; their gradients' nodes are their families' matter."""
    return sorted(
        n for n in nodes if "gradients" not in n and n.startswith(("cond", "outer", "case", "switch_case"))
    )


def _inputs(node: Any, is_control: bool) -> list[str]:
    found = [i for i in node.input if i.startswith("^") is is_control]
    return sorted(found) if is_control else found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_nodes_of_a_conditional_are_tensorflows(program: Any, tf1: Any) -> None:
    ours, theirs = _nodes(graphrt, program), _nodes(tf1, program)
    assert _of_conditionals(ours) == _of_conditionals(theirs)
    for name in _of_conditionals(theirs):
        mine, other = ours[name], theirs[name]
        assert mine.op == other.op, name
        for is_control in (False, True):
            assert _inputs(mine, is_control) == _inputs(other, is_control), name
        assert list(mine.attr["_class"].list.s) == list(other.attr["_class"].list.s), name
    kinds = ("Switch", "RefSwitch", "Merge", "RefMerge")
    count = lambda nodes: sorted(n.op for n in nodes.values() if n.op in kinds)  # noqa: E731
    assert count(ours) == count(theirs)


def _import_and_run(
    definition: Any, into: Any, fetches: list[str], steps: list[dict[str, Any]], initializer: str | None
) -> list[Any]:
    graph = into.Graph()
    found: list[Any] = []
    with graph.as_default():
        into.import_graph_def(definition, name="")
    with into.Session(graph=graph) as session:
        if initializer is not None:
            session.run(initializer)
        for feeds in steps:
            found += [session.run(f, feeds) for f in fetches]
    return found


def _exported(
    module: Any, program: Any, functional: bool
) -> tuple[Any, list[str], list[dict[str, Any]], str | None]:
    (module.enable_control_flow_v2 if functional else module.disable_control_flow_v2)()
    try:
        graph = module.Graph()
        with graph.as_default():
            built: Built = program(module)
            # Identities can be fetched, and imported by name, whatever the fetch was.
            fetches = [module.identity(t).name for t in flat(built.fetches)]
    finally:
        module.disable_control_flow_v2()
    steps = [{t.name: v for t, v in feeds.items()} for feeds in built.steps]
    initializer = built.initializer.name if built.initializer is not None else None
    return graph.as_graph_def(), fetches, steps, initializer


# Of what is imported by name, ops that draw random numbers keep their seeds, not the history that gave them.
_TRANSPORTED = [p for p in FUNCTIONAL_PROGRAMS if p.__name__ != "dropout_in_a_branch"]


@pytest.mark.parametrize("functional", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("program", _TRANSPORTED, ids=lambda p: p.__name__)
def test_graphs_of_tensorflow_run_to_equal_values(program: Any, functional: bool, tf1: Any) -> None:
    definition, *rest = _exported(tf1, program, functional)
    _check_equal(_import_and_run(definition, graphrt, *rest), _import_and_run(definition, tf1, *rest))


@pytest.mark.parametrize("functional", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("program", _TRANSPORTED, ids=lambda p: p.__name__)
def test_tensorflow_runs_graphs_of_graphrt_to_equal_values(program: Any, functional: bool, tf1: Any) -> None:
    definition, *rest = _exported(graphrt, program, functional)
    theirs = tf1.GraphDef()
    theirs.ParseFromString(definition.SerializeToString())
    _check_equal(_import_and_run(definition, graphrt, *rest), _import_and_run(theirs, tf1, *rest))
