"""Folding, simplifying, sharing, dead branches, copied constants: each by itself."""

import numpy as np
import pytest

from graphrt.core import raw
from graphrt.core.graph import Graph
from tests.compiler.interpreter import DEAD, Interpreter, compiled, devices, plain_options, same_bits
from tests.compiler.test_lower import const

CPUS = ("cpu:0", "cpu:1")


@pytest.fixture
def g():
    graph = Graph()
    with graph.as_default():
        yield graph


def types(step):
    return [n.type for n in step.step if n.type not in ("_Arg", "_Retval")]


def node(step, name):
    return next(n for n in step.step if n.name == name)


def placeholder(*shape, dtype="float32", name="x"):
    return raw.Placeholder(dtype=dtype, shape=list(shape), name=name)


# -- folding -----------------------------------------------------------------------------------------------


def test_a_constant_expression_becomes_a_constant_of_its_name(g):
    y = raw.Exp(raw.AddV2(const(1.0), const(2.0)), name="y")
    step = compiled(g, fetches=y)
    assert types(step) == ["Const"] and node(step, "y").type == "Const"
    assert same_bits(node(step, "y").attrs["value"], np.exp(np.float32(3)))


def test_folding_keeps_control_inputs_of_the_node_and_of_its_constants(g):
    a, b = raw.NoOp(name="a"), raw.NoOp(name="b")
    with g.control_dependencies([a]):
        c = const(1.0)
    with g.control_dependencies([b]):
        y = raw.Neg(c, name="y")
    step = compiled(g, fetches=y)
    assert {n.name for n in node(step, "y").controls} == {"a", "b"}


def test_stateful_and_random_nodes_are_not_folded(g):
    y = raw.RandomUniform(const([2], "int32"), dtype="float32", name="y")
    assert node(compiled(g, fetches=y), "y").type == "RandomUniform"


def test_each_output_of_a_folded_node_is_a_constant(g):
    a, b = raw.Split(const(0, "int32"), const([1.0, 2.0, 3.0, 4.0]), num_split=2, name="parts")
    step = compiled(g, fetches=[a, b])
    assert set(types(step)) == {"Const"}
    assert [v.tolist() for v in Interpreter().run(step)] == [[1, 2], [3, 4]]


def test_what_cannot_be_computed_is_left_to_the_step(g):
    y = raw.GatherV2(const([1.0, 2.0]), const(7, "int32"), const(0, "int32"), name="y")
    assert node(compiled(g, fetches=y), "y").type == "GatherV2"


def test_large_results_and_large_results_made_from_little_are_not_kept(g):
    big = const(np.ones([600, 600]))
    kept = raw.Neg(big, name="kept")
    grown = raw.Fill(const([300, 300], "int32"), const(0.0), name="grown")
    small = raw.Fill(const([30, 30], "int32"), const(0.0), name="small")
    step = compiled(g, fetches=[kept, grown, small])
    assert [node(step, n).type for n in ("kept", "grown", "small")] == ["Const", "Fill", "Const"]
    step = compiled(g, fetches=kept, max_folded_bytes=1000)
    assert node(step, "kept").type == "Neg"


def test_the_shape_of_a_static_shape_is_a_constant_and_its_input_need_not_run(g):
    x = placeholder(2, 3)
    s = raw.Shape(raw.Exp(x, name="exp"), name="s")
    n = raw.Size(x, name="n")
    r = raw.Rank(placeholder(None, None, name="z"), name="r")
    step = compiled(g, fetches=[s, n, r], feeds=["x:0", "z:0"])
    assert types(step) == ["Const"] * 3
    made = Interpreter().run(step, [np.zeros((2, 3), np.float32), np.zeros((1, 1), np.float32)])
    assert [m.tolist() for m in made] == [[2, 3], 6, 2]


def test_an_effect_before_a_folded_shape_still_happens_first(g):
    v = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="v", name="v")
    init = raw.AssignVariableOp(v, const([1.0, 2.0]), name="init")
    with g.control_dependencies([init]):
        read = raw.ReadVariableOp(v, dtype="float32", name="read")
    read.set_shape([2])
    step = compiled(g, fetches=raw.Shape(read, name="s"))
    assert node(step, "s").type == "Const"
    run = Interpreter()
    run.run(step)
    assert run.ran.index("init") < run.ran.index("read") < run.ran.index("s")


@pytest.mark.parametrize("taken", [True, False])
def test_a_folded_shape_is_dead_where_its_input_is(g, taken):
    p, x = placeholder(dtype="bool", name="p"), placeholder(2)
    f, t = raw.Switch(x, p)
    s = raw.Shape(raw.Exp(t, name="exp"), name="s")
    z, _ = raw.Merge([s, raw.Shape(raw.Neg(f, name="neg"), name="s2")], name="z")
    step = compiled(g, fetches=z, feeds=[p, x])
    assert node(step, "s").type == "Const"
    assert Interpreter().run(step, [np.array(taken), np.zeros(2, np.float32)])[0].tolist() == [2]


def test_text_is_folded(g):
    y = raw.Reshape(raw.Const(value=_text("a", "b"), dtype="string"), const([2, 1], "int32"), name="y")
    assert node(compiled(g, fetches=y), "y").type == "Const"


def _text(*items):
    made = np.empty(len(items), object)
    made[:] = [i.encode() for i in items]
    return made


def test_level_0_and_switched_off_rewrites_leave_the_graph_as_it_is(g):
    from graphrt.compiler.options import CompileOptions
    from graphrt.protos import config_pb2, rewriter_config_pb2
    config = config_pb2.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    made = CompileOptions.from_config(config, "/cpu:0")
    assert (made.fold, made.simplify, made.share) == (False, False, False)
    config = config_pb2.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
    made = CompileOptions.from_config(config, "/cpu:0")
    assert (made.fold, made.simplify, made.share, made.soft_placement) == (False, True, True, True)
    y = raw.Neg(raw.Neg(const(1.0)), name="y")
    assert types(compiled(g, fetches=y, **plain_options())) == ["Const", "Neg", "Neg"]


# -- simplifying -------------------------------------------------------------------------------------------

SPECIAL = np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 1.5]], np.float32)
_QUIET = np.array([0x7FC00123, 0xFFC00456], np.uint32).view(np.float32)  # NaNs with a payload


def gives_back(build, value=SPECIAL, shape=(None, None), dtype="float32"):
    """True where `build(x)`, between two nodes that stay, is taken out; its value must be the plain one's in
    any case."""
    graph = Graph()
    with graph.as_default():
        x = raw.Placeholder(dtype=dtype, shape=shape, name="x")
        y = raw.Identity(build(x), name="end")
    optimised = compiled(graph, fetches=y, feeds=x)
    plain = compiled(graph, fetches=y, feeds=x, **plain_options())
    a, = Interpreter().run(optimised, [value])
    b, = Interpreter().run(plain, [value])
    assert same_bits(a, b)
    return types(optimised) == ["Identity"]


@pytest.mark.parametrize("build", [lambda x: raw.Mul(x, const(1.0)), lambda x: raw.Mul(const(1.0), x),
                                   lambda x: raw.RealDiv(x, const(1.0)), lambda x: raw.AddV2(x, const(-0.0)),
                                   lambda x: raw.Sub(x, const(0.0)), lambda x: raw.Neg(raw.Neg(x)),
                                   lambda x: raw.Identity(raw.StopGradient(x)),
                                   lambda x: raw.Cast(x, SrcT="float32", DstT="float32"),
                                   lambda x: raw.Cast(raw.Cast(x, SrcT="float32", DstT="float64"),
                                                      SrcT="float64", DstT="float32"),
                                   lambda x: raw.Transpose(x, const([0, 1], "int32")),
                                   lambda x: raw.Transpose(raw.Transpose(x, const([1, 0], "int32")),
                                                           const([1, 0], "int32")),
                                   lambda x: raw.Tile(x, const([1, 1], "int32")), lambda x: raw.AddN([x]),
                                   lambda x: raw.PlaceholderWithDefault(x, shape=[None, None]),
                                   lambda x: raw.EnsureShape(x, shape=[None, None]),])
def test_nodes_that_change_nothing_are_taken_out(build):
    assert gives_back(build)
    assert gives_back(build, _QUIET.reshape(1, 2))


@pytest.mark.parametrize("build", [
    lambda x: raw.AddV2(x, const(0.0)),  # -0.0 + 0.0 is 0.0
    lambda x: raw.Sub(x, const(-0.0)), lambda x: raw.Sub(const(0.0), x), lambda x: raw.RealDiv(const(1.0), x),
    lambda x: raw.Mul(x, const(np.ones([1, 1, 1]))),  # a dimension more
    lambda x: raw.Mul(x, const(np.ones([2, 3]))),  # x may be [1, 3]
    lambda x: raw.Transpose(x, const([1, 0], "int32")), lambda x: raw.Mul(x, const(2.0)),
    lambda x: raw.Cast(raw.Cast(x, SrcT="float32", DstT="float16"), SrcT="float16", DstT="float32"),
    lambda x: raw.EnsureShape(x, shape=[2, 3]), lambda x: raw.Neg(raw.Abs(x)),
])
def test_nodes_that_may_change_a_bit_stay(build):
    assert not gives_back(build)


def test_neutral_constants_of_the_tensors_shape_and_integers(g):
    assert gives_back(lambda x: raw.Mul(x, const(np.ones([2, 3]))), shape=(2, 3))
    assert gives_back(lambda x: raw.Mul(x, const(np.ones([1, 3]))), shape=(2, 3))
    ints = np.array([[1, -2**31, 7]], np.int32)
    assert gives_back(lambda x: raw.AddV2(x, const(0, "int32")), ints, dtype="int32")
    assert gives_back(lambda x: raw.Cast(raw.Cast(x, SrcT="int32", DstT="int64"), SrcT="int64", DstT="int32"),
                      ints, dtype="int32")


@pytest.mark.parametrize("value", [np.array([0x7E01, 0xFE55, 0x8000, 0x3C00], np.uint16).view(np.float16)])
def test_halves_are_left_alone_where_their_nans_could_change(value):
    gives_back(lambda x: raw.Mul(x, const(1.0, "float16")), value, (None,), "float16")
    assert gives_back(lambda x: raw.Cast(raw.Cast(x, SrcT="float16", DstT="float32"), SrcT="float32",
                                         DstT="float16"), value, (None,), "float16")


@pytest.mark.parametrize("shape,wanted,is_gone", [((2, 3), [2, 3], True), ((None, 3), [-1, 3], True),
                                                  ((2, 3), [-1, 3], True), ((2, None), [2, -1], True),
                                                  ((None, 3), [2, -1], False), ((None, None), [-1, 3], False),
                                                  ((2, 3), [3, 2], False), ((2, 3), [6], False)])
def test_a_reshape_to_the_shape_that_is_there_is_taken_out(shape, wanted, is_gone):
    assert gives_back(lambda x: raw.Reshape(x, const(wanted, "int32")), shape=shape) == is_gone


def test_of_reshapes_of_reshapes_only_the_last_counts(g):
    x = placeholder(2, 3)
    y = raw.Reshape(raw.Reshape(raw.ExpandDims(x, const(0, "int32")), const([6], "int32")),
                    const([3, 2], "int32"), name="y")
    step = compiled(g, fetches=y, feeds=x)
    assert sorted(types(step)) == ["Const", "Reshape"]
    assert Interpreter().run(step, [SPECIAL])[0].shape == (3, 2)


def test_fetched_nodes_and_targets_keep_their_names(g):
    x = placeholder(2)
    y = raw.Identity(raw.Identity(x, name="inner"), name="y")
    t = raw.Identity(x, name="t")
    step = compiled(g, fetches=y, targets=t.op, feeds=x)
    assert {n.name for n in step.step} == {"_arg_x_0_0", "y", "t", "_retval_y_0_0"}


def test_a_node_that_waits_stays_and_what_waits_for_a_removed_node_waits_for_its_source(g):
    x = placeholder(2)
    before = raw.NoOp(name="before")
    with g.control_dependencies([before]):
        a = raw.Identity(x, name="a")
    e = raw.Exp(a, name="exp")
    with g.control_dependencies([raw.Identity(e, name="removed")]):
        after = raw.NoOp(name="after")
    step = compiled(g, fetches=raw.Neg(e, name="y"), targets=after, feeds=x)
    assert node(step, "a").controls == [node(step, "before")]
    assert node(step, "after").controls == [node(step, "exp")]


def test_the_identity_that_makes_a_branch_waitable_stays(g):
    p = placeholder(dtype="bool", name="p")
    _, t = raw.Switch(p, p, name="s")
    pivot = raw.Identity(t, name="pivot")
    with g.control_dependencies([pivot]):
        inside = raw.NoOp(name="inside")
    step = compiled(g, targets=inside, feeds=p)
    run = Interpreter()
    run.run(step, [np.array(False)])
    assert "inside" not in run.ran
    run.run(step, [np.array(True)])
    assert "inside" in run.ran


def test_an_identity_of_a_reference_reads_when_it_stands_there(g):
    v = raw.VariableV2(shape=[], dtype="float32", name="v")
    y = raw.Neg(raw.Identity(v, name="read"), name="y")
    assert "read" in {n.name for n in compiled(g, fetches=y).step}


# -- sharing -----------------------------------------------------------------------------------------------


def test_equal_nodes_are_one(g):
    x = placeholder(2)
    y = raw.AddV2(raw.Exp(raw.Mul(x, const(2.0))), raw.Exp(raw.Mul(x, const(2.0))), name="y")
    assert sorted(types(compiled(g, fetches=y, feeds=x))) == ["AddV2", "Const", "Exp", "Mul"]


@pytest.mark.parametrize("a,b", [(0.0, -0.0), (2.0, 2.0000002)])
def test_constants_are_one_only_if_their_bits_are(g, a, b):
    x = placeholder()
    y = raw.AddV2(raw.Mul(x, const(a)), raw.Mul(x, const(b)), name="y")
    assert types(compiled(g, fetches=y, feeds=x)).count("Mul") == 2
    z = raw.AddV2(raw.Mul(x, const(np.nan)), raw.Mul(x, const(np.nan)), name="z")
    assert types(compiled(g, fetches=z, feeds=x)).count("Mul") == 1


@pytest.mark.parametrize("size", [10, 1000])
def test_arrays_are_compared_by_their_bits(g, size):
    value = np.arange(size, dtype=np.float32)
    x = placeholder(size)
    y = raw.AddV2(raw.Mul(x, const(value)), raw.Mul(x, const(value.copy())), name="y")
    assert types(compiled(g, fetches=y, feeds=x)).count("Mul") == 1
    other = value.copy()
    other[-1] += 1
    z = raw.AddV2(raw.Mul(x, const(value)), raw.Mul(x, const(other)), name="z")
    assert types(compiled(g, fetches=z, feeds=x)).count("Mul") == 2


def test_nodes_with_other_attrs_devices_or_control_inputs_are_not_shared(g):
    x = placeholder(2, 2)
    a = raw.MatMul(x, x)
    b = raw.MatMul(x, x, transpose_b=True)
    with g.device("/cpu:1"):
        c = raw.MatMul(x, x)
    with g.control_dependencies([raw.NoOp()]):
        d = raw.MatMul(x, x)
    y = raw.AddN([a, b, c, d], name="y")
    assert types(compiled(g, fetches=y, feeds=x, on=devices(*CPUS))).count("MatMul") == 4


def test_random_nodes_and_reads_of_variables_are_not_shared(g):
    shape = const([2], "int32")
    a = raw.AddV2(raw.RandomUniform(shape, dtype="float32"), raw.RandomUniform(shape, dtype="float32"))
    v = raw.VariableV2(shape=[2], dtype="float32", name="v")
    b = raw.AddV2(raw.Neg(v), raw.Neg(v))
    h = raw.VarHandleOp(dtype="float32", shape=[2], shared_name="h")
    c = raw.AddV2(raw.ReadVariableOp(h, dtype="float32"), raw.ReadVariableOp(h, dtype="float32"))
    made = types(compiled(g, fetches=raw.AddN([a, b, c], name="y")))
    assert [made.count(t) for t in ("RandomUniform", "Neg", "ReadVariableOp")] == [2, 2, 2]


# -- dead branches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_predicate_removes_the_untaken_branch(g, taken):
    x = placeholder(2)
    f, t = raw.Switch(x, raw.Identity(const(taken, "bool")))
    z, index = raw.Merge([raw.Exp(f, name="f"), raw.Neg(t, name="t")], name="z")
    step = compiled(g, fetches=[z, index], feeds=x)
    assert not {"Switch", "Merge"} & set(types(step))
    assert ("t" in {n.name for n in step.step}, "f" in {n.name for n in step.step}) == (taken, not taken)
    made = Interpreter().run(step, [np.array([1.0, 2.0], np.float32)])
    assert made[1] == int(taken) and made[1].dtype == np.int32


def test_constants_behind_a_removed_merge_are_folded(g):
    x = const([1.0, 2.0])
    f, t = raw.Switch(x, const(True, "bool"))
    z, _ = raw.Merge([f, t], name="z")
    assert types(compiled(g, fetches=raw.Neg(z, name="y"))) == ["Const"]


def test_an_effect_in_a_branch_that_never_runs_is_gone_and_a_dead_fetch_is_left_to_the_step(g):
    v = raw.VarHandleOp(dtype="float32", shape=[], shared_name="v", name="v")
    f, t = raw.Switch(const(1.0), const(True, "bool"))
    dead = raw.AssignVariableOp(v, f, name="dead")
    live = raw.AssignVariableOp(v, t, name="live")
    step = compiled(g, targets=[dead, live])
    assert "live" in {n.name for n in step.step} and "dead" not in {n.name for n in step.step}
    y = raw.Neg(f, name="y")
    assert Interpreter().run(compiled(g, fetches=y)) == [DEAD]


def test_a_merge_of_three_keeps_its_live_inputs(g):
    p, x = placeholder(dtype="bool", name="p"), placeholder(2)
    never, _ = raw.Switch(x, const(True, "bool"))
    f, t = raw.Switch(x, p)
    z, _ = raw.Merge([never, raw.Exp(f), raw.Neg(t)], name="z")
    step = compiled(g, fetches=z, feeds=[p, x])
    assert node(step, "z").attrs["N"] == 2
    assert Interpreter().run(step, [np.array(True), np.array([1.0, 2.0], np.float32)])[0].tolist() == [-1, -2]
    w, index = raw.Merge([never, raw.Exp(f), raw.Neg(t)], name="w")
    step = compiled(g, fetches=[w, index], feeds=[p, x])
    assert Interpreter().run(step, [np.array(True), np.array([1.0, 2.0], np.float32)])[1] == 2


# -- copied constants --------------------------------------------------------------------------------------


def test_a_small_constant_stands_on_every_device_that_takes_it(g):
    c, x = const([1.0, 2.0], name="c"), placeholder(2)
    with g.device("/cpu:1"):
        a = raw.Mul(x, c, name="a")
    y = raw.AddV2(a, c, name="y")
    step = compiled(g, fetches=y, feeds=x, on=devices(*CPUS))
    sent = [n.inputs[0][0].name for p in step.partitions for n in p.graph if n.type == "_Send"]
    assert sent == ["_arg_x_0_0", "a"]
    assert Interpreter(devices(*CPUS)).run(step, [np.array([3.0, 4.0], np.float32)])[0].tolist() == [4, 10]


def test_a_fetched_or_large_or_waiting_constant_is_sent(g):
    with g.device("/cpu:1"):
        c = const([1.0], name="fetched")
        big = const(np.zeros(400_000), name="big")
        with g.control_dependencies([raw.NoOp()]):
            waiting = const([2.0], name="waiting")
    y = raw.AddV2(raw.Neg(big), raw.Neg(waiting), name="y")
    step = compiled(g, fetches=[c, y], on=devices(*CPUS), **plain_options())
    sent = {n.inputs[0][0].name for p in step.partitions for n in p.graph if n.type == "_Send"}
    assert {"fetched", "big", "waiting"} <= sent
