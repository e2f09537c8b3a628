import numpy as np
import pytest

from graphrt.core import raw
from graphrt.core.attr_values import FunctionRef
from graphrt.core.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from graphrt.core.function_def import FunctionDefinition
from graphrt.core.graph import Graph
from tests.compiler.interpreter import DEAD, Interpreter, compiled, devices, plain_options


def const(value, dtype="float32", name="c"):
    return raw.Const(value=np.array(value, dtype), dtype=dtype, name=name)


def function(name, build, dtypes=("float32",), library=None, shapes=None):
    """A definition whose body `build(*arguments)` makes: results, or (results, control outputs)."""
    graph = Graph()
    graph.functions = library if library is not None else {}
    with graph.as_default():
        inputs = [raw.Placeholder(dtype=d, shape=(shapes or {}).get(i), name=f"arg{i}")
                  for i, d in enumerate(dtypes)]
        made = build(*inputs)
    outputs, controls = made if isinstance(made, tuple) else (made, [])
    definition = FunctionDefinition(name, graph, inputs, outputs, controls)
    graph.functions[name] = definition
    return definition


@pytest.fixture
def g():
    return Graph()


def call(f, inputs, kind="PartitionedCall", name="call"):
    return getattr(raw, kind)(inputs, Tout=f.result_types, f=FunctionRef(f.name), name=name)


def branch(pred, inputs, then, other, name="cond", kind="If"):
    return getattr(raw, kind)(pred, inputs, Tout=then.result_types, then_branch=FunctionRef(then.name),
                              else_branch=FunctionRef(other.name), name=name)


def placeholders(*dtypes):
    return [raw.Placeholder(dtype=d, name=f"x{i}") for i, d in enumerate(dtypes)]


def test_a_call_becomes_its_body_with_names_under_the_calls(g):
    double = function("double", lambda x: [raw.AddV2(x, x, name="twice")])
    g.functions["double"] = double
    with g.as_default():
        x, = placeholders("float32")
        y, = call(double, [x])
    step = compiled(g, fetches=y, feeds=x)
    assert {n.name for n in step.step} == {"_arg_x0_0_0", "call/twice", "_retval_call_0_0"}
    assert Interpreter().run(step, [np.float32(3)]) == [6]


def test_a_node_whose_type_is_a_functions_name_is_a_call(g):
    from graphrt.core.function_def import call_op_def
    double = function("double", lambda x: [raw.AddV2(x, x)])
    g.functions["double"] = double
    with g.as_default():
        x, = placeholders("float32")
        y = call_op_def(double)(x, name="d")
    assert Interpreter().run(compiled(g, fetches=y, feeds=x), [np.float32(3)]) == [6]


def test_a_function_called_twice_has_two_bodies(g):
    library = {}
    inc = function("inc", lambda x: [raw.AddV2(x, const(1.0))], library=library)
    twice = function("twice", lambda x: [call(inc, [call(inc, [x], name="a")[0]], name="b")[0]],
                     library=library)
    g.functions = library
    with g.as_default():
        x, = placeholders("float32")
        y, = call(twice, [x])
    step = compiled(g, fetches=y, feeds=x, **plain_options())
    assert {"call/a/AddV2", "call/b/AddV2"} <= {n.name for n in step.step}
    assert Interpreter().run(step, [np.float32(3)]) == [5]


@pytest.mark.parametrize("taken", [True, False])
def test_only_the_taken_branch_of_an_if_runs(g, taken):
    then = function("then", lambda x: [raw.AddV2(x, x, name="add")])
    other = function("other", lambda x: [raw.Neg(x, name="neg")])
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, x = placeholders("bool", "float32")
        y, = branch(p, [x], then, other)
    run = Interpreter()
    made = run.run(compiled(g, fetches=y, feeds=[p, x]), [np.array(taken), np.float32(3)])
    assert made == [6 if taken else -3]
    assert ("cond/then/add" in run.ran, "cond/else/neg" in run.ran) == (taken, not taken)


@pytest.mark.parametrize("taken", [True, False])
def test_branches_that_return_constants_and_arguments_as_they_are(g, taken):
    then = function("then", lambda x: [const(7.0), x])
    other = function("other", lambda x: [x, const(8.0)])
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, x = placeholders("bool", "float32")
        a, b = branch(p, [x], then, other)
    for options in ({}, plain_options()):
        made = Interpreter().run(compiled(g, fetches=[a, b], feeds=[p, x], **options),
                                 [np.array(taken), np.float32(3)])
        assert made == ([7, 3] if taken else [3, 8])


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("optimised", [True, False])
def test_an_effect_in_a_branch_happens_only_if_the_branch_is_taken(g, taken, optimised):
    """Also where nothing takes it, and where it has no input from outside the branch."""
    def assign(x):
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v")
        return [x], [raw.AssignAddVariableOp(v, const(1.0), name="add")]

    then, other = function("then", assign), function("other", lambda x: [x])
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, x = placeholders("bool", "float32")
        y, = branch(p, [x], then, other)
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        init = raw.AssignVariableOp(v, const(10.0), name="init")
        read = raw.ReadVariableOp(v, dtype="float32", name="read")
    run = Interpreter()
    options = {} if optimised else plain_options()
    run.run(compiled(g, targets=init, **options))
    run.run(compiled(g, fetches=y, feeds=[p, x], **options), [np.array(taken), np.float32(3)])
    assert run.run(compiled(g, fetches=read, **options)) == [11 if taken else 10]


def test_what_waits_for_an_if_waits_for_the_effects_of_the_branch(g):
    def assign(v, x):
        return [x], [raw.AssignVariableOp(v, x, name="set")]

    then = function("then", assign, ("resource", "float32"))
    other = function("other", lambda v, x: [x], ("resource", "float32"))
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, x = placeholders("bool", "float32")
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        y, = branch(p, [v, x], then, other)
        with g.control_dependencies([y.op]):
            read = raw.ReadVariableOp(v, dtype="float32", name="read")
    run = Interpreter()
    step = compiled(g, fetches=read, feeds=[p, x])
    assert run.run(step, [np.array(True), np.float32(5)]) == [5]
    assert run.ran.index("cond/then/set") < run.ran.index("read")


def test_a_stateful_node_that_is_no_control_output_runs_in_a_call_by_name_only(g):
    from graphrt.core.function_def import call_op_def

    def body(v, x):
        raw.AssignVariableOp(v, x, name="set")
        return [x]

    f = function("f", body, ("resource", "float32"))
    g.functions["f"] = f
    with g.as_default():
        p, x = placeholders("bool", "float32")
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        made = {"If": branch(p, [v, x], f, f)[0], "call": call(f, [v, x], "StatefulPartitionedCall", "c")[0],
                "by name": call_op_def(f)(v, x, name="n")}
    for kind, tensor in made.items():
        run = Interpreter()
        run.run(compiled(g, fetches=tensor, feeds=[p, x]), [np.array(True), np.float32(5)])
        assert any(name.endswith("/set") for name in run.ran) == (kind == "by name"), kind


def test_what_an_if_waits_for_has_run_before_its_branches(g):
    def read(v):
        return [raw.ReadVariableOp(v, dtype="float32", name="read")]

    then, other = function("then", read, ("resource",)), function("other", read, ("resource",))
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, = placeholders("bool")
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        assign = raw.AssignVariableOp(v, const(4.0), name="assign")
        with g.control_dependencies([assign]):
            y, = branch(p, [v], then, other)
    for taken in (True, False):
        assert Interpreter().run(compiled(g, fetches=y, feeds=p), [np.array(taken)]) == [4]


def test_an_inlined_calls_control_inputs_reach_its_source_nodes(g):
    def read():
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v")
        return [raw.ReadVariableOp(v, dtype="float32", name="read")]

    reader = function("reader", read, ())
    g.functions["reader"] = reader
    with g.as_default():
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        assign = raw.AssignVariableOp(v, const(4.0), name="assign")
        with g.control_dependencies([assign]):
            y, = call(reader, [], kind="StatefulPartitionedCall")
    run = Interpreter()
    assert run.run(compiled(g, fetches=y)) == [4]
    assert run.ran.index("assign") < run.ran.index("call/read")


def test_what_waits_for_a_call_waits_for_its_effects(g):
    def assign(v):
        return [], [raw.AssignVariableOp(v, const(4.0), name="assign")]

    writer = function("writer", assign, ("resource",))
    g.functions["writer"] = writer
    with g.as_default():
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
        op = call(writer, [v], kind="StatefulPartitionedCall")
        op = op if not isinstance(op, list) else g.get_operation_by_name("call")
        with g.control_dependencies([op]):
            read = raw.ReadVariableOp(v, dtype="float32", name="read")
    assert Interpreter().run(compiled(g, fetches=read)) == [4]
    step = compiled(g, targets="call")
    assert [t.name for t in step.step.targets if t.name == "call"] == ["call"], "a target keeps its name"
    run = Interpreter()
    run.run(step)
    assert "call/assign" in run.ran


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("optimised", [True, False])
def test_a_call_without_inputs_in_a_branch_does_not_run_in_the_untaken_one(g, outer, inner, optimised):
    library = {}
    seven = function("seven", lambda: [const(7.0)], (), library)
    neg = function("neg", lambda p, x: [raw.Neg(x)], ("bool", "float32"), library)
    pick = function("pick", lambda p, x: [call(seven, [], name="seven")[0]], ("bool", "float32"), library)
    nested = function("nested", lambda p, x: [branch(p, [p, x], pick, neg, name="inner")[0]],
                      ("bool", "float32"), library)
    same = function("same", lambda p, x: [x], ("bool", "float32"), library)
    g.functions = library
    with g.as_default():
        p, q, x = placeholders("bool", "bool", "float32")
        y, = branch(p, [q, x], nested, same)
    step = compiled(g, fetches=y, feeds=[p, q, x], **({} if optimised else plain_options()))
    made = Interpreter().run(step, [np.array(outer), np.array(inner), np.float32(3)])
    assert made == [(7 if inner else -3) if outer else 3]


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_case_takes_the_last_branch_for_any_index_that_is_not_anothers(g, index, count):
    branches = [function(f"b{i}", lambda x, i=i: [raw.AddV2(x, const(10.0 * (i + 1)))]) for i in range(count)]
    g.functions = {b.name: b for b in branches}
    with g.as_default():
        i, x = placeholders("int32", "float32")
        y, = raw.Case(i, [x], Tout=["float32"], branches=[FunctionRef(b.name) for b in branches], name="case")
    step = compiled(g, fetches=y, feeds=[i, x])
    wanted = index if 0 <= index < count else count - 1
    assert Interpreter().run(step, [np.int32(index), np.float32(1)]) == [1 + 10 * (wanted + 1)]


def test_an_if_with_a_constant_predicate_leaves_no_switch(g):
    then = function("then", lambda x: [raw.AddV2(x, x)])
    other = function("other", lambda x: [raw.Neg(x)])
    g.functions = {"then": then, "other": other}
    with g.as_default():
        x, = placeholders("float32")
        y, = branch(const(True, "bool"), [x], then, other)
    step = compiled(g, fetches=y, feeds=x)
    assert not {"Switch", "Merge", "Neg"} & {n.type for n in step.step}
    assert Interpreter().run(step, [np.float32(3)]) == [6]


@pytest.mark.parametrize("taken", [True, False])
def test_branches_on_different_devices_exchange_dead_tensors(g, taken):
    def on(device, build):
        def body(x):
            with x.graph.device(device):
                return build(x)
        return body

    then = function("then", on("/cpu:1", lambda x: [raw.AddV2(x, x, name="add")]))
    other = function("other", on("/cpu:0", lambda x: [raw.Neg(x, name="neg")]))
    g.functions = {"then": then, "other": other}
    known = devices("cpu:0", "cpu:1")
    with g.as_default():
        p, x = placeholders("bool", "float32")
        y, = branch(p, [x], then, other)
    step = compiled(g, fetches=y, feeds=[p, x], on=known)
    assert len(step.partitions) == 2
    run = Interpreter(known)
    assert run.run(step, [np.array(taken), np.float32(3)]) == [6 if taken else -3]
    assert ("cond/then/add" in run.ran) == taken


def test_a_body_runs_on_its_own_device_and_else_on_the_calls(g):
    def body(x):
        a = raw.Neg(x, name="here")
        with x.graph.device("/cpu:0"):
            return [raw.Exp(a, name="there")]

    f = function("f", body)
    g.functions["f"] = f
    with g.as_default():
        x, = placeholders("float32")
        with g.device("/cpu:1"):
            y, = call(f, [x])
    step = compiled(g, fetches=y, feeds=x, on=devices("cpu:0", "cpu:1"))
    placed = {n.name: n.device[-5:] for n in step.step}
    assert (placed["call/here"], placed["call/there"]) == ("CPU:1", "CPU:0")


def test_colocation_inside_a_body_follows_the_body(g):
    def body(x):
        with x.graph.device("/cpu:1"):
            a = raw.Neg(x, name="a")
        with x.graph.colocate_with(a.op):
            return [raw.Exp(a, name="b")]

    f = function("f", body)
    g.functions["f"] = f
    with g.as_default():
        x, = placeholders("float32")
        y, = call(f, [x])
    step = compiled(g, fetches=y, feeds=x, on=devices("cpu:0", "cpu:1"))
    assert next(n for n in step.step if n.name == "call/b").device.endswith("CPU:1")


def test_functional_loops_say_that_they_are_not_there_yet(g):
    f = function("f", lambda x: [x])
    cond = function("cond", lambda x: [raw.Less(x, const(1.0))])
    g.functions = {"f": f, "cond": cond}
    if not hasattr(raw, "While"):
        pytest.skip("no While op")
    with g.as_default():
        x, = placeholders("float32")
        y, = raw.While([x], cond=FunctionRef("cond"), body=FunctionRef("f"), name="loop")
    with pytest.raises(UnimplementedError,
                       match=r"(?s)While 'loop' is a functional loop.*built at test_lower.py:\d+"):
        compiled(g, fetches=y, feeds=x)


def test_a_function_that_calls_itself_is_reported(g):
    library = {}

    def body(x):
        # The name is known before the function is: as a FunctionDef may call itself.
        return [raw.PartitionedCall([x], Tout=["float32"], f=FunctionRef("again"), name="inner")[0]]

    again = function("again", body, library=library)
    g.functions = library
    with g.as_default():
        x, = placeholders("float32")
        y, = call(again, [x])
    with pytest.raises(UnimplementedError, match="function 'again' calls itself"):
        compiled(g, fetches=y, feeds=x)


def test_a_missing_function_and_wrong_arguments_are_reported(g):
    f = function("f", lambda x: [x])
    with g.as_default():
        x, = placeholders("float32")
        y, = call(f, [x], name="lost")
    with pytest.raises(NotFoundError, match="(?s)'lost' calls the function 'f', which is not in the library"
                                            ".*built at test_lower"):
        compiled(g, fetches=y, feeds=x)
    g2 = Graph()
    g2.functions["f"] = f
    with g2.as_default():
        n, = placeholders("int32")
        z, = call(f, [n], name="bad")
    with pytest.raises(InvalidArgumentError,
                       match=r"'bad' passes \(int32\) to <function f\(arg0: float32\) -> \(float32\)>"):
        compiled(g2, fetches=z, feeds=n)


def test_a_predicate_that_is_not_bool_is_taken_as_tensorflow_takes_it(g):
    then, other = function("then", lambda x: [x]), function("other", lambda x: [raw.Neg(x)])
    g.functions = {"then": then, "other": other}
    with g.as_default():
        p, x = placeholders("int32", "float32")
        y, = branch(p, [x], then, other)
    try:
        step = compiled(g, fetches=y, feeds=[p, x])
    except UnimplementedError as error:
        assert "has a predicate of int32; graphrt takes bool" in str(error)
        return
    assert Interpreter().run(step, [np.int32(2), np.float32(3)]) == [3]
    assert Interpreter().run(step, [np.int32(0), np.float32(3)]) == [-3]


def test_a_fetch_in_an_untaken_v1_branch_is_dead(g):
    with g.as_default():
        p, x = placeholders("bool", "float32")
        f, t = raw.Switch(x, p, name="s")
        y = raw.Neg(t, name="y")
    step = compiled(g, fetches=y, feeds=[p, x])
    assert Interpreter().run(step, [np.array(False), np.float32(3)]) == [DEAD]


def test_a_call_in_a_v1_branch_runs_only_if_the_branch_is_taken(g):
    def body(x):
        v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v")
        return [x], [raw.AssignVariableOp(v, const(4.0), name="assign")]

    f = function("f", body)
    g.functions["f"] = f
    with g.as_default():
        p, x = placeholders("bool", "float32")
        _, t = raw.Switch(x, p, name="s")
        y, = call(f, [t], kind="StatefulPartitionedCall")
        z, _ = raw.Merge([y, raw.Switch(x, p, name="s2")[0]], name="m")
    step = compiled(g, fetches=z, feeds=[p, x])
    run = Interpreter()
    assert run.run(step, [np.array(False), np.float32(3)]) == [3]
    assert "call/assign" not in run.ran
    run.run(step, [np.array(True), np.float32(3)])
    assert "call/assign" in run.ran


