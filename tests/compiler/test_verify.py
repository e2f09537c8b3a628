"""A broken step is found, and told apart by what is wrong with it."""

import numpy as np
import pytest

from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.verify import verify, verify_partitions
from graphrt.core import raw
from graphrt.core.dtypes import int32
from graphrt.core.errors import InternalError
from graphrt.core.graph import Graph
from tests.compiler.interpreter import compiled, devices
from tests.compiler.test_lower import const

ON = devices("cpu:0", "cpu:1")


@pytest.fixture
def step():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[], name="x")
        a = raw.Neg(x, name="a")
        with g.control_dependencies([raw.NoOp(name="n")]):
            y = raw.AddV2(a, const(2.0, name="two"), name="y")
    return compiled(g, fetches=y, feeds=x, on=ON).step


def node(step, name):
    return next(n for n in step.nodes if n.name == name)


def swap(step):
    step.nodes.insert(0, step.nodes.pop())


def lose(step):
    step.nodes.remove(node(step, "a"))


def rename(step):
    node(step, "a").name = "y"


def wrong_input(step):
    node(step, "y").inputs[1] = (node(step, "a"), 3)


def wrong_type(step):
    node(step, "a").attrs = {"T": int32}


def few_inputs(step):
    node(step, "y").inputs.pop()


def nowhere(step):
    node(step, "a").device = "/job:elsewhere/replica:0/task:0/device:CPU:0"


def unneeded(step):
    node(step, "y").inputs[0] = (node(step, "two"), 0)


def twice(step):
    node(step, "two").controls *= 2


def other_feed(step):
    step.args[0].attrs = {**step.args[0].attrs, "index": 4}


@pytest.mark.parametrize("damage,told", [(swap, "stands before its input"),
                                         (lose, "takes 'a', which is not in the graph"),
                                         (rename, "has the name of another node"),
                                         (wrong_input, "takes output 3 of 'a'"), (wrong_type, "int32"),
                                         (few_inputs, "has 1 inputs, not 2"),
                                         (nowhere, "which is not a device"),
                                         (unneeded, "is needed by no fetch and no target"),
                                         (twice, "waits for a node twice"), (other_feed, "is not feed 0")],
                         ids=lambda p: getattr(p, "__name__", None))
def test_damage_is_found(step, damage, told):
    known = DeviceSet(ON, ON[0].name)
    verify(step, "a pass", known)
    damage(step)
    with pytest.raises(InternalError, match=f"after a pass: .*{told}"):
        verify(step, "a pass", known)


@pytest.fixture
def cut():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[], name="x")
        with g.device("/cpu:1"):
            y = raw.Neg(x, name="y")
    return compiled(g, fetches=y, feeds=x, on=ON)


def test_a_recv_without_its_send_and_a_lost_node_are_found(cut):
    verify_partitions(cut.partitions, cut.step, "partition")
    second = cut.partitions[1].graph
    recv = next(n for n in second.nodes if n.type == "_Recv")
    good = recv.attrs
    recv.attrs = {**good, "tensor_name": b"edge_99_nothing"}
    with pytest.raises(InternalError, match="has no counterpart"):
        verify_partitions(cut.partitions, cut.step, "partition")
    recv.attrs = {**good, "send_device_incarnation": 1}
    with pytest.raises(InternalError, match="does not match"):
        verify_partitions(cut.partitions, cut.step, "partition")
    recv.attrs = good
    with pytest.raises(InternalError, match="no counterpart"):
        verify_partitions(cut.partitions[:1], cut.step, "partition")


def test_functional_nodes_after_lowering_are_found():
    from graphrt.compiler.prune import prune
    from graphrt.compiler.step_graph import Signature
    from graphrt.core.attr_values import FunctionRef
    from tests.compiler.test_lower import function
    g = Graph()
    g.functions["f"] = f = function("f", lambda x: [x])
    with g.as_default():
        raw.PartitionedCall([const(np.float32(1))], Tout=f.result_types, f=FunctionRef("f"), name="call")
    step, _ = prune(g, Signature((), ("call:0",), ()))
    verify(step, "prune")
    with pytest.raises(InternalError, match="'call' .PartitionedCall. was not lowered"):
        verify(step, "lower_control_flow", is_lowered=True)
