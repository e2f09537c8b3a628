import threading

import pytest

from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import compile_step
from graphrt.compiler.place import placement_log
from graphrt.compiler.step_graph import Signature
from graphrt.core import raw
from graphrt.core.attr_values import FunctionRef
from graphrt.core.device_names import parse
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.graph import Graph
from tests.compiler.interpreter import compiled, devices
from tests.compiler.test_lower import const, function


def placed(step):
    """Node name -> its device without what all share: 'CPU:1', or 'ps/0 CPU:0' of another task."""
    made = {}
    for node in step.step:
        parts = parse(node.device)
        task = "" if parts.job == "localhost" else f"{parts.job}/{parts.task} "
        made[node.name] = f"{task}{parts.type}:{parts.index}"
    return made


def rule(step, name):
    record = next(r for r in step.records if r.name == "place")
    return dict(record.details)[name].partition(": ")[2]


@pytest.fixture
def g():
    graph = Graph()
    with graph.as_default():
        yield graph


CPUS = ("cpu:0", "cpu:1")
GPU = ("cpu:0", "gpu:0")
TWO_TASKS = ("/job:worker/task:0/cpu:0", "/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0")
PLAIN = {"fold": False, "simplify": False, "share": False}


# -- what is asked for -------------------------------------------------------------------------------------


def test_a_device_scope_in_part_or_whole_is_honoured(g):
    x = raw.Placeholder(dtype="float32", name="x")
    with g.device("/job:ps/task:1"):
        y = raw.Neg(x, name="y")
    with g.device("/job:ps/replica:0/task:0/device:CPU:0"):
        z = raw.Exp(y, name="z")
    step = compiled(g, fetches=z, feeds=x, on=devices(*TWO_TASKS))
    assert (placed(step)["y"], placed(step)["z"]) == ("ps/1 CPU:0", "ps/0 CPU:0")
    assert rule(step, "y") == "asked for: /job:ps/task:1"


def test_a_job_without_a_task_means_its_first(g):
    with g.device("/job:ps"):
        y = raw.Neg(const(1.0), name="y")
    step = compiled(g, fetches=y, on=devices(*TWO_TASKS), **PLAIN)
    assert placed(step)["y"] == "ps/0 CPU:0"


def test_feeds_and_fetches_stay_on_the_clients_device(g):
    x = raw.Placeholder(dtype="float32", name="x")
    with g.device("/job:ps/task:1"):
        y = raw.Neg(x, name="y")
    step = compiled(g, fetches=y, feeds=x, on=devices(*TWO_TASKS))
    assert placed(step)["_arg_x_0_0"] == placed(step)["_retval_y_0_0"] == "worker/0 CPU:0"


def test_a_node_with_no_wish_goes_to_the_gpu_of_its_task_if_there_is_a_kernel(g):
    x = raw.Placeholder(dtype="float32", name="x")
    y = raw.Log(raw.Neg(x, name="neg"), name="y")
    step = compiled(g, fetches=y, feeds=x, on=devices(*GPU))
    assert (placed(step)["neg"], placed(step)["y"]) == ("GPU:0", "CPU:0")
    assert rule(step, "neg") == "no wish: the default device"
    elsewhere = compiled(g, fetches=y, feeds=x, on=devices("/job:w/task:0/cpu:0", "/job:w/task:1/gpu:0"))
    assert placed(elsewhere)["neg"] == "w/0 CPU:0", "a GPU of another task is not asked without a wish"


# -- groups ------------------------------------------------------------------------------------------------


def test_colocated_nodes_share_a_device(g):
    x = raw.Placeholder(dtype="float32", name="x")
    with g.device("/cpu:1"):
        a = raw.Neg(x, name="a")
    with g.colocate_with(a.op):
        b = raw.Exp(x, name="b")
    y = raw.AddV2(a, b, name="y")
    step = compiled(g, fetches=y, feeds=x, on=devices(*CPUS))
    assert (placed(step)["b"], placed(step)["y"]) == ("CPU:1", "CPU:0")


def test_colocation_holds_through_a_group_whose_lead_is_not_in_the_step(g):
    with g.device("/cpu:1"):
        lead = raw.NoOp(name="lead")
    with g.colocate_with(lead):
        a = raw.Neg(const(1.0), name="a")
    a.op._set_device("")
    step = compiled(g, fetches=a, on=devices(*CPUS), **PLAIN)
    assert placed(step)["a"] == "CPU:1"


@pytest.mark.parametrize("kind", ["ref", "resource"])
def test_what_takes_a_variable_is_on_the_variables_device_over_the_one_asked_for(g, kind):
    with g.device("/cpu:1"):
        if kind == "ref":
            v = raw.VariableV2(shape=[], dtype="float32", name="v")
        else:
            v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    with g.device("/cpu:0"):
        if kind == "ref":
            assign = raw.Assign(v, const(1.0), name="set").op
        else:
            assign = raw.AssignVariableOp(v, const(1.0), name="set")
    if kind == "ref":  # builders colocate such ops with their variable; a GraphDef may say otherwise
        assign._set_device("/cpu:0")
        del assign.attrs["_class"]
    step = compiled(g, targets=assign, on=devices(*CPUS))
    assert placed(step)["set"] == "CPU:1"
    assert "not on /device:CPU:0 as asked" in rule(step, "set")


def test_a_variable_without_a_wish_goes_where_its_consumer_asks(g):
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    with g.device("/cpu:1"):
        assign = raw.AssignVariableOp(v, const(1.0), name="set")
    step = compiled(g, targets=assign, on=devices(*CPUS))
    assert (placed(step)["v"], placed(step)["set"]) == ("CPU:1", "CPU:1")


def test_two_steps_put_a_variable_on_one_device_though_only_one_has_the_op_that_decides(g):
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    raw.AssignVariableOp(v, const(1.0), name="init")
    raw.AssignSubVariableOp(v, const(1.0), name="update")  # without a GPU kernel
    on = devices(*GPU)
    options = CompileOptions(on[0].name, verify=True)
    first = compile_step(g, Signature((), (), ("init",)), on, options)
    second = compile_step(g, Signature((), (), ("update",)), on, options)
    assert placed(first)["v"] == placed(second)["v"] == "CPU:0"


def test_a_call_that_takes_two_variables_does_not_bring_them_together(g):
    f = function("f", lambda v, w: [raw.AddV2(raw.ReadVariableOp(v, dtype="float32", name="rv"),
                                              raw.ReadVariableOp(w, dtype="float32", name="rw"))],
                 ("resource", "resource"))
    g.functions["f"] = f
    with g.device("/cpu:0"):
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    with g.device("/cpu:1"):
        w = raw.VarHandleOp(dtype="float32", shape=[], shared_name="w", name="w")
    y, = raw.PartitionedCall([v, w], Tout=["float32"], f=FunctionRef("f"), name="call")
    set_v = raw.AssignVariableOp(v, const(1.0), name="set_v")
    for step in (compiled(g, fetches=y, on=devices(*CPUS)), compiled(g, targets=set_v, on=devices(*CPUS))):
        assert placed(step)["v"] == "CPU:0"
        assert placed(step).get("call/rw", "CPU:1") == "CPU:1"


def test_stateful_nodes_stay_where_an_earlier_step_put_them(g):
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    raw.AssignVariableOp(v, const(1.0), name="set")
    on = devices(*CPUS)
    options = CompileOptions(on[0].name, verify=True)
    assert placed(compile_step(g, Signature((), (), ("set",)), on, options))["v"] == "CPU:0"
    with g.device("/cpu:1"):
        raw.AssignVariableOp(v, const(2.0), name="later")
    step = compile_step(g, Signature((), (), ("later",)), on, options)
    assert placed(step)["v"] == placed(step)["later"] == "CPU:0"
    assert rule(step, "v") == "its state is there since an earlier step"


def test_steps_that_are_compiled_at_the_same_time_agree(g):
    on = devices(*(f"cpu:{i}" for i in range(4)))
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    for i in range(4):
        with g.device(f"/cpu:{i}"):
            raw.AssignVariableOp(v, const(float(i)), name=f"set{i}")
    options = CompileOptions(on[0].name, verify=True)
    made = []

    def work(i):
        made.append(compile_step(g, Signature((), (), (f"set{i}",)), on, options))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len({placed(step)["v"] for step in made}) == 1


# -- heuristics --------------------------------------------------------------------------------------------


def test_an_op_that_needs_the_shape_only_goes_with_its_input(g):
    x = raw.Placeholder(dtype="float32", name="x")
    with g.device("/cpu:1"):
        y = raw.Neg(x, name="y")
    shape = raw.Shape(y, name="shape")
    step = compiled(g, fetches=shape, feeds=x, on=devices(*CPUS))
    assert placed(step)["shape"] == "CPU:1"
    assert rule(step, "shape") == "Shape needs the shape only: with its input"


def test_a_node_without_inputs_goes_with_its_consumers_if_they_are_together(g):
    a, b = const(1.0, name="a"), const(2.0, name="b")
    with g.device("/cpu:1"):
        y = raw.AddV2(a, b, name="y")
    z = raw.AddV2(y, b, name="z")
    step = compiled(g, fetches=z, on=devices(*CPUS), **PLAIN)
    assert placed(step)["a"] == "CPU:1"
    assert next(r for r in step.records if r.name
                == "place").details[1][1].endswith("CPU:0: no wish: the default device")


# -- failures ----------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_an_error_that_lists_those_that_are(g):
    x = const(1.0)
    with g.device("/gpu:7"):
        y = raw.Neg(x, name="y")
    with pytest.raises(InvalidArgumentError) as error:
        compiled(g, fetches=y)
    text = str(error.value)
    assert "operation y: Neg was asked to be on '/device:GPU:7', and there is no such device" in text
    assert "built at test_place.py:" in text and 'y = raw.Neg(x, name="y")' in text
    assert "devices  /job:localhost/replica:0/task:0/device:CPU:0 would do" in text
    assert "allow_soft_placement=True" in text


def test_an_op_without_a_kernel_for_the_device_is_named(g):
    with g.device("/gpu:0"):
        y = raw.Log(const(1.0), name="y")
    with pytest.raises(InvalidArgumentError) as error:
        compiled(g, fetches=y, on=devices(*GPU))
    text = str(error.value)
    assert "operation y: Log has no kernel on '/device:GPU:0' for float32" in text
    assert "device:CPU:0 would do" in text


def test_the_culprit_of_a_colocation_group_is_named(g):
    with g.device("/gpu:0"):
        a = raw.Neg(const(1.0), name="a")
    with g.colocate_with(a.op):
        b = raw.Log(a, name="culprit")
    with pytest.raises(InvalidArgumentError) as error:
        compiled(g, fetches=b, on=devices(*GPU))
    text = str(error.value)
    assert "it must share one with 1 other op" in text
    assert "asked    /device:GPU:0 by 'a' (Neg), built at test_place.py:" in text
    assert "kernels  'culprit' (Log), built at test_place.py:" in text and "CPU only" in text


def test_colocated_ops_that_ask_for_different_devices_are_both_named(g):
    with g.device("/cpu:0"):
        a = raw.Neg(const(1.0), name="a")
    b = raw.Exp(a, name="b")
    b.op._set_attr("_class", [b"loc:@a"])
    b.op._set_device("/cpu:1")
    with pytest.raises(InvalidArgumentError) as error:
        compiled(g, fetches=b, on=devices(*CPUS))
    text = str(error.value)
    assert "they ask for different devices" in text
    assert "/device:CPU:0 by 'a' (Neg)" in text and "/device:CPU:1 by 'b' (Exp)" in text
    step = compiled(g, fetches=b, on=devices(*CPUS), soft_placement=True, **PLAIN)
    assert placed(step)["a"] == placed(step)["b"]


def test_soft_placement_gives_way_on_type_and_number_but_not_on_the_task(g):
    with g.device("/job:ps/task:1/gpu:3"):
        y = raw.Neg(const(1.0), name="y")
    step = compiled(g, fetches=y, on=devices(*TWO_TASKS), soft_placement=True, **PLAIN)
    assert placed(step)["y"] == "ps/1 CPU:0"
    assert rule(step, "y").startswith("soft placement: /job:ps/task:1/device:GPU:3")
    with g.device("/job:elsewhere/gpu:0"):
        z = raw.Neg(const(1.0), name="z")
    with pytest.raises(InvalidArgumentError, match="there is no such device"):
        compiled(g, fetches=z, on=devices(*TWO_TASKS), soft_placement=True)


def test_a_pinned_variable_that_a_new_consumer_cannot_follow_is_an_error(g):
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    raw.AssignVariableOp(v, const(1.0), name="set")
    on = devices(*GPU)
    options = CompileOptions(on[0].name, verify=True, pinned={"v": on[1].name})
    raw.AssignSubVariableOp(v, const(1.0), name="taker")
    with pytest.raises(InvalidArgumentError) as error:
        compile_step(g, Signature((), (), ("taker",)), on, options)
    assert "its state is on" in str(error.value) and "'taker'" in str(error.value)


# -- DeviceSet, the log ------------------------------------------------------------------------------------


def test_devices_are_ordered_by_task_then_type_then_number():
    known = devices("/job:b/task:1/cpu:0", "/job:b/task:0/cpu:1", "/job:b/task:0/cpu:0",
                    "/job:b/task:0/gpu:0", "/job:a/task:0/cpu:0")
    order = DeviceSet(known, "/job:b/replica:0/task:0/device:CPU:0").names
    assert [n.replace("/replica:0", "").replace("/device", "") for n in order] == [
        "/job:b/task:0:GPU:0", "/job:b/task:0:CPU:0", "/job:b/task:0:CPU:1", "/job:a/task:0:CPU:0",
        "/job:b/task:1:CPU:0"]


def test_the_placement_log_has_a_line_a_node(g):
    y = raw.Neg(const(1.0, name="a"), name="y")
    step = compiled(g, fetches=y, **PLAIN)
    assert "y: (Neg): /job:localhost/replica:0/task:0/device:CPU:0" in placement_log(step.step).splitlines()

