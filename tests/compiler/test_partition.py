import itertools

import numpy as np
import pytest

from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_step
from graphrt.compiler.step_graph import Signature
from graphrt.core import raw
from graphrt.core.errors import UnimplementedError
from graphrt.core.graph import Graph
from graphrt.core.registry import OPS
from tests.compiler.interpreter import Interpreter, compiled, devices, plain_options
from tests.compiler.test_lower import const

CPUS = ("cpu:0", "cpu:1")
FULL = "/job:localhost/replica:0/task:0/device:CPU:{}"


@pytest.fixture
def g():
    graph = Graph()
    with graph.as_default():
        yield graph


def ends(step, *kinds):
    return [n for p in step.partitions for n in p.graph if n.type in kinds]


def sends(step):
    return ends(step, "_Send", "_HostSend")


def recvs(step):
    return ends(step, "_Recv", "_HostRecv")


def test_a_tensor_used_twice_on_another_device_is_sent_once(g):
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    with g.device("/cpu:1"):
        y = raw.AddV2(raw.Neg(x), raw.Exp(x), name="y")
    step = compiled(g, targets=y.op, feeds=x, on=devices(*CPUS))
    assert [n.inputs[0][0].name for n in sends(step)] == ["_arg_x_0_0"] and len(recvs(step)) == 1


def test_a_tensor_goes_once_to_each_device_that_takes_it(g):
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    made = []
    for i in (1, 2):
        with g.device(f"/cpu:{i}"):
            made += [raw.Neg(x), raw.Exp(x)]
    step = compiled(g, fetches=made, feeds=x, on=devices("cpu:0", "cpu:1", "cpu:2"), **plain_options())
    to = [n.attrs["recv_device"].decode()[-5:] for n in sends(step) if n.inputs[0][0].name == "_arg_x_0_0"]
    assert sorted(to) == ["CPU:1", "CPU:2"]


def test_send_and_recv_have_tensorflows_attrs(g):
    on = devices(*CPUS)
    on[0].incarnation, on[1].incarnation = 2**64 - 5, 7
    x = raw.Placeholder(dtype="int64", shape=[], name="x")
    with g.device("/cpu:1"):
        y = raw.Neg(x, name="scope/y")
    step = compiled(g, targets=y.op, feeds=x, on=on)
    send, recv = sends(step)[0], recvs(step)[0]
    shared = {"send_device": FULL.format(0).encode(), "send_device_incarnation": -5,
              "recv_device": FULL.format(1).encode(), "client_terminated": False}
    for key, value in shared.items():
        assert send.attrs[key] == recv.attrs[key] == value
    assert send.attrs["tensor_name"] == recv.attrs["tensor_name"]
    edge, number, name = send.attrs["tensor_name"].decode().split("_", 2)
    assert (edge, name) == ("edge", "_arg_x_0_0") and number.isdigit()
    assert send.attrs["T"].name == recv.attrs["tensor_type"].name == "int64"
    assert recv.shapes == [x.shape]


def test_names_are_unique_over_the_steps_of_a_session(g):
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    with g.device("/cpu:1"):
        raw.Neg(x, name="y")
    on = devices(*CPUS)
    options = CompileOptions(on[0].name, names=itertools.count(1), verify=True)
    made = [n.name for _ in range(2)
            for n in ends(compile_step(g, Signature(("x:0",), ("y:0",), ()), on, options), "_Send", "_Recv")]
    assert len(made) == len(set(made)) == 8
    assert made[0].startswith("_arg_x_0_0_S")


def test_a_control_edge_crosses_as_an_empty_float_tensor(g):
    a = raw.NoOp(name="a")
    with g.device("/cpu:1"), g.control_dependencies([a]):
        b = raw.NoOp(name="b")
    step = compiled(g, targets=b, on=devices(*CPUS))
    source, = [n.inputs[0][0] for n in sends(step)]
    assert source.type == "Const" and [c.name for c in source.controls] == ["a"]
    assert source.attrs["value"].dtype == np.float32 and source.attrs["value"].shape == (0,)
    run = Interpreter(devices(*CPUS))
    run.run(step)
    assert run.ran.index("a") < run.ran.index("b")


def test_a_control_edge_goes_along_with_a_tensor_of_its_node(g):
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    a = raw.Neg(x, name="a")
    with g.device("/cpu:1"):
        with g.control_dependencies([a]):
            b = raw.NoOp(name="b")
        c = raw.Exp(a, name="c")
    step = compiled(g, targets=[b, c.op], feeds=x, on=devices(*CPUS))
    assert [n.inputs[0][0].name for n in sends(step)] == ["a"]
    waits = next(n for p in step.partitions for n in p.graph if n.name == "b").controls
    assert waits == recvs(step)


@pytest.mark.parametrize("taken", [True, False])
def test_dead_control_edges_cross_as_dead(g, taken):
    p = raw.Placeholder(dtype="bool", shape=[], name="p")
    _, t = raw.Switch(p, p)
    pivot = raw.Identity(t, name="pivot")
    with g.device("/cpu:1"), g.control_dependencies([pivot]):
        inside = raw.NoOp(name="inside")
    step = compiled(g, targets=inside, feeds=p, on=devices(*CPUS))
    run = Interpreter(devices(*CPUS))
    run.run(step, [np.array(taken)])
    assert ("inside" in run.ran) == taken
    assert [r.attrs.get("_never_dead") for r in recvs(step)] == [None]


def test_only_what_may_be_dead_is_not_marked_as_never_dead(g):
    p = raw.Placeholder(dtype="bool", shape=[], name="p")
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    f, t = raw.Switch(x, p, name="s")
    z, _ = raw.Merge([raw.Neg(f), raw.Exp(t)], name="z")
    with g.device("/cpu:1"):
        behind, merged, plain = raw.Neg(t, name="behind"), raw.Neg(z, name="merged"), raw.Neg(x, name="plain")
    step = compiled(g, targets=[behind.op, merged.op, plain.op], feeds=[p, x], on=devices(*CPUS))
    marks = {n.attrs["tensor_name"].decode().split("_", 2)[2]: n.attrs.get("_never_dead", False)
             for n in recvs(step)}
    assert marks == {"s": False, "z": True, "_arg_x_0_1": True}


def test_a_plain_read_of_a_reference_crosses_as_its_value(g):
    v = raw.VariableV2(shape=[], dtype="float32", name="v")
    with g.device("/cpu:1"):
        y = raw.Neg(v, name="y")
    on = devices(*CPUS)
    step = compiled(g, fetches=y, on=on)
    assert {n.attrs["T"].name for n in sends(step)} == {"float32"}
    run = Interpreter(on)
    run.run(compiled(g, targets=raw.Assign(v, const(3.0), name="set").op, on=on))
    assert run.run(step) == [-3]


def test_values_that_stay_in_host_memory_on_both_sides_say_so(g):
    on = devices("cpu:0", "gpu:0", "gpu:1")
    x = raw.Placeholder(dtype="float32", shape=[None, None], name="x")
    with g.device("/gpu:0"):
        shape = raw.Shape(raw.Neg(x, name="neg"), name="shape")
    with g.device("/gpu:1"):
        y = raw.Reshape(raw.Exp(x), shape, name="y")
    assert OPS["Shape"].host_outputs and OPS["Reshape"].host_inputs, "the op facts that this test stands on"
    step = compiled(g, fetches=y, feeds=x, on=on)
    kinds = {n.attrs["tensor_name"].decode().split("_", 2)[2]: n.type
             for n in ends(step, "_Send", "_HostSend")}
    assert kinds["shape"] == "_HostSend" and kinds["_arg_x_0_0"] == "_Send"
    assert [n.type for n in recvs(step) if b"shape" in n.attrs["tensor_name"]] == ["_HostRecv"]
    assert Interpreter(on).run(step, [np.zeros((2, 3), np.float32)])[0].shape == (2, 3)


def test_by_task_a_tensor_goes_once_to_a_task_however_many_devices_it_has(g):
    on = devices("/job:w/task:0/cpu:0", "/job:w/task:1/cpu:0", "/job:w/task:1/cpu:1")
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    made = []
    for i in (0, 1):
        with g.device(f"/job:w/task:1/cpu:{i}"):
            made.append(raw.Neg(x))
    step = compiled(g, targets=[m.op for m in made], feeds=x, on=on, by_task=True, share=False)
    assert [p.device for p in step.partitions] == ["/job:w/replica:0/task:0", "/job:w/replica:0/task:1"]
    assert len(sends(step)) == 1


def test_a_step_reaches_only_the_devices_that_it_needs(g):
    on = devices("/job:w/task:0/cpu:0", "/job:w/task:1/cpu:0")
    with g.device("/job:w/task:1"):
        raw.NoOp(name="elsewhere")
    y = raw.Neg(const(1.0), name="y")
    assert [p.device for p in compiled(g, fetches=y, on=on).partitions] == [on[0].name]


def test_one_device_is_not_cut_or_copied(g):
    y = raw.Neg(const(1.0), name="y")
    step = compiled(g, fetches=y, on=devices(*CPUS))
    assert step.partitions[0].graph is step.step


def test_a_loop_over_devices_says_that_it_is_not_there_yet(g):
    if "Enter" not in OPS:
        pytest.skip("no loop ops")
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    entered = raw.Enter(x, frame_name="f", name="enter")
    with g.device("/cpu:1"):
        inside = raw.Neg(entered, name="inside")
    with pytest.raises(UnimplementedError,
                       match=r"(?s)a while loop spans devices.*'enter' is on .*'inside' on .*built at"):
        compiled(g, targets=inside.op, feeds=x, on=devices(*CPUS))
