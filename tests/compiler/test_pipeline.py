import gc
import threading

import numpy as np
import pytest

from graphrt.compiler import pipeline
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_step
from graphrt.compiler.step_graph import Node, Signature, topological
from graphrt.core import raw
from graphrt.core.errors import InternalError
from graphrt.core.graph import Graph
from graphrt.core.registry import OPS
from tests.compiler.interpreter import Interpreter, compiled, devices
from tests.compiler.test_lower import const

DEEP = 36_000


def chain(length, every_other_device=""):
    g = Graph()
    with g.as_default():
        y = raw.Placeholder(dtype="float32", shape=[], name="x")
        one = const(2.0)
        for i in range(length):
            with g.device(every_other_device if i % 2 else None):
                y = raw.AddV2(y, one)
    return g, y


def test_36000_nodes_in_a_chain_and_side_by_side_are_an_ordinary_graph():
    g, y = chain(DEEP)
    step = compile_step(g, Signature(("x:0",), (y.name,), ()), devices("cpu:0"), CompileOptions(
        devices("cpu:0")[0].name, verify=False))
    assert len(step.step) == DEEP + 3
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[], name="x")
        ops = [raw.AddV2(x, x).op for _ in range(DEEP)]
    step = compiled(g, targets=ops, feeds=x)
    assert len(step.step) == DEEP + 1


def test_a_chain_that_crosses_at_every_node():
    g, y = chain(600, "/cpu:1")
    on = devices("cpu:0", "cpu:1")
    step = compiled(g, fetches=y, feeds="x:0", on=on)
    assert sum(n.type == "_Send" for p in step.partitions for n in p.graph) == 600
    assert Interpreter(on).run(step, [np.float32(0)]) == [1200]


def test_each_pass_leaves_its_record():
    g, y = chain(3)
    step = compiled(g, fetches=y, feeds="x:0")
    names = [r.name for r in step.records]
    assert names == ["prune", *(p.__name__ for p in pipeline.PASSES), "partition"]
    for before, after in zip(step.records[1:], step.records[2:]):
        assert before.nodes_after == after.nodes_before
    assert all(r.summary and r.seconds >= 0 for r in step.records)


def test_the_garbage_collector_is_as_it_was_afterwards():
    g, y = chain(3)
    signature = Signature(("x:0",), (y.name,), ())
    on = devices("cpu:0")
    for was_enabled in (True, False):
        (gc.enable if was_enabled else gc.disable)()
        try:
            compile_step(g, signature, on, CompileOptions(on[0].name))
            with pytest.raises(Exception, match="not in the graph"):
                compile_step(g, Signature((), ("no:0",), ()), on, CompileOptions(on[0].name))
            assert gc.isenabled() == was_enabled
        finally:
            gc.enable()


def test_many_threads_compile_one_graph():
    g, y = chain(200)
    on = devices("cpu:0")
    options = CompileOptions(on[0].name, verify=True)
    made, failed = [], []

    def work():
        try:
            made.append(compile_step(g, Signature(("x:0",), (y.name,), ()), on, options))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failed and len(made) == 8
    assert all(Interpreter().run(step, [np.float32(1)]) == [401] for step in made)
    assert gc.isenabled()


def test_a_pass_that_breaks_the_step_is_named(monkeypatch):
    def breaks(step, devices, options):
        step.nodes.reverse()
        from graphrt.compiler.step_graph import PassRecord
        return step, PassRecord("breaks", 0, 0)

    monkeypatch.setattr(pipeline, "PASSES", [breaks])
    g, y = chain(3)
    with pytest.raises(InternalError, match="after breaks: "):
        compiled(g, fetches=y, feeds="x:0")


def test_verification_is_asked_for_by_the_environment(monkeypatch):
    for value, wanted in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("GRAPHRT_VERIFY", value)
        assert CompileOptions("/cpu:0").verify is wanted


def test_topological_order_keeps_the_given_order_and_names_a_cycle():
    nodes = [Node(name, OPS["NoOp"], {}, [], [], [], []) for name in "abcd"]
    a, b, c, d = nodes
    b.controls = [d]
    assert topological(nodes) == [a, d, b, c]
    d.controls = [b]
    with pytest.raises(ValueError, match="a cycle through 'b', 'd'"):
        topological(nodes)
