"""Variables and variable scopes: TensorFlow's nodes and names, what is shared, and what is refused."""

import contextlib
import threading
from typing import Any

import numpy as np
import pytest

import graphrt
from graphrt.protos import variable_pb2
from tests.same_graph import assert_same_nodes, assert_same_values, built_by_both

RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def ref_variables():
    yield
    graphrt.disable_resource_variables()


def session() -> Any:
    return graphrt.Session()


def initialized() -> Any:
    made = session()
    made.run(graphrt.global_variables_initializer())
    return made


# -- variables -----------------------------------------------------------------------------------------------


def _uses(tf: Any, use_resource: bool) -> list[Any]:
    v = tf.Variable([1.0, 2.0], name="W", use_resource=use_resource)
    w = tf.Variable(3, trainable=False, use_resource=use_resource)
    tf.Variable(lambda: tf.zeros([2, 3]), name="U", use_resource=use_resource)
    assigned = v.assign([2.0, 3.0])
    v.assign_add([1.0, 1.0])
    tf.assign_sub(v, [1.0, 1.0])
    made = [v + 1.0, 2.0 * v, -v, v < 2.0, v.read_value(), v[0], v[1:]]
    scattered = v.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])))
    tf.scatter_update(v, [0], [1.0])
    v.scatter_nd_add([[0]], [2.0])
    w.count_up_to(5)
    if use_resource:
        made += [
            v.sparse_read([0]),
            v.gather_nd([[0]]),
            v.is_initialized(),
            assigned.assign_add([1.0, 1.0]).value(),
        ]
    tf.global_variables_initializer()
    return [
        v.name,
        w.name,
        v.dtype.name,
        v.shape.as_list(),
        repr(v),
        v.initializer.name,
        v.initial_value.name,
        assigned.op.name,
        v.op.name,
        scattered.op.name,
        [x.name for x in tf.trainable_variables()],
        [t.name for t in made],
    ]


@RESOURCE
def test_variables_have_tensorflows_nodes_and_names(tf, use_resource):
    (_, mine), (_, theirs) = built_by_both(tf, lambda tf: _uses(tf, use_resource))
    assert mine == theirs
    assert_same_nodes(tf, lambda tf: _uses(tf, use_resource))


def test_devices_colocation_and_containers_reach_the_nodes_as_in_tensorflow(tf):
    def build(tf):
        with tf.device("/cpu:1"):
            a = tf.Variable(lambda: tf.ones([2]), name="a")
            tf.Variable([1.0], name="b")
            c = tf.Variable([1.0], name="c", use_resource=True)
            tf.Variable([1.0], caching_device="/cpu:0", name="d")
            e = tf.Variable([1.0], caching_device="/cpu:0", name="e", use_resource=True)
        with tf.colocate_with(a.op):
            tf.constant(1.0)
        with tf.colocate_with(c):
            tf.constant(1.0)
        with tf.control_dependencies([c.assign([2.0])]):
            a.read_value()
        with tf.control_dependencies([c]):
            tf.constant(1.0)
        with tf.control_dependencies([a.initializer]):
            tf.Variable(5.0, name="waits_for_nothing")
        with tf.container("box"):
            tf.Variable(1.0, name="q")
            tf.Variable(1.0, name="qq", use_resource=True)
        e + 1.0

    (ours, _), (theirs, _) = built_by_both(tf, build)
    assert_same_nodes(tf, build)
    assert {op.name: op.device for op in ours.get_operations()} == {
        op.name: op.device for op in theirs.get_operations()
    }


def test_an_initial_value_of_another_variable_works_in_any_order(tf):
    def build(tf):
        v = tf.Variable([1.0, 2.0], name="V")
        w = tf.Variable(v.initialized_value() * 2.0, name="W")
        u = tf.Variable(v * 3.0 + w, name="U")
        return [v, w, u]

    assert_same_nodes(tf, build)
    assert_same_values(tf, build, initialize=True)


@RESOURCE
def test_a_variable_made_inside_control_dependencies_is_not_bound_to_them(use_resource):
    with graphrt.control_dependencies([graphrt.placeholder(graphrt.float32, [])]):
        v = graphrt.Variable(1.0, use_resource=use_resource)
    assert initialized().run(v) == 1.0


@RESOURCE
def test_an_assignment_returns_the_variable_as_it_is_after_it(use_resource):
    v = graphrt.Variable([1.0, 2.0], use_resource=use_resource)
    added = v.assign_add([10.0, 10.0])
    with initialized() as s:
        np.testing.assert_array_equal(s.run(added), [11.0, 12.0])
        np.testing.assert_array_equal(s.run(v.assign_sub([1.0, 1.0])), [10.0, 11.0])
        np.testing.assert_array_equal(s.run(v.assign([5.0, 6.0])), [5.0, 6.0])
        assert s.run(v.assign([0.0, 0.0], read_value=False)) is None
        np.testing.assert_array_equal(s.run(v), [0.0, 0.0])


@RESOURCE
def test_load_eval_and_feeds_take_the_variable_itself(use_resource):
    v = graphrt.Variable([1.0, 2.0], use_resource=use_resource)
    doubled = v * 2.0
    with initialized() as s:
        v.load([3.0, 4.0], s)
        np.testing.assert_array_equal(v.eval(), [3.0, 4.0])
        np.testing.assert_array_equal(doubled.eval(), [6.0, 8.0])
        np.testing.assert_array_equal(s.run(v, {v: [7.0, 8.0]}), [7.0, 8.0])
        np.testing.assert_array_equal(s.run(v), [3.0, 4.0])


@RESOURCE
def test_assigning_to_a_slice_changes_that_part(use_resource):
    v = graphrt.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
    update = v[:, 1].assign([8.0, 9.0])
    with initialized() as s:
        s.run(update)
        np.testing.assert_array_equal(s.run(v), [[1.0, 8.0], [3.0, 9.0]])


def test_a_ref_read_sees_a_later_assignment_and_a_resource_read_does_not():
    expected = {False: 6.0, True: 1.0}
    for use_resource, seen in expected.items():
        v = graphrt.Variable(1.0, use_resource=use_resource)
        early = v.value()
        with graphrt.control_dependencies([early]):
            update = v.assign_add(5.0)
        with graphrt.control_dependencies([update]):
            late_use = early + 0.0
        assert initialized().run(late_use) == seen


def test_a_fetched_value_is_the_callers_for_ever():
    for use_resource in (False, True):
        v = graphrt.Variable([1.0, 2.0], use_resource=use_resource)
        update = v.assign_add([1.0, 1.0])
        with initialized() as s:
            fetched = s.run(v)
            s.run(update)
            np.testing.assert_array_equal(fetched, [1.0, 2.0])
            fetched[:] = 77.0
            np.testing.assert_array_equal(s.run(v), [2.0, 3.0])


def test_an_assigned_array_is_copied():
    v = graphrt.Variable([1.0, 2.0])
    x = graphrt.placeholder(graphrt.float32, [2])
    update = v.assign(x)
    with initialized() as s:
        given = np.array([5.0, 6.0], np.float32)
        s.run(update, {x: given})
        given[:] = 0.0
        np.testing.assert_array_equal(s.run(v), [5.0, 6.0])


def test_an_uninitialised_variable_is_named_in_the_error():
    v = graphrt.Variable([1.0], name="weights")
    with pytest.raises(graphrt.errors.FailedPreconditionError, match="uninitialized value weights"):
        session().run(v + 1.0)


def test_validate_shape_false_takes_any_shape():
    x = graphrt.placeholder_with_default([1.0], None)
    with pytest.raises(ValueError, match="initial_value must have a shape specified"):
        graphrt.Variable(x, name="strict")
    v = graphrt.Variable(x, validate_shape=False)
    assert v.shape.rank is None
    bigger = graphrt.assign(v, [[1.0, 2.0]], validate_shape=False)
    with initialized() as s:
        assert s.run(v).shape == (1,)
        assert s.run(bigger).shape == (1, 2)


@RESOURCE
def test_operators_on_variables_are_their_values(use_resource):
    v = graphrt.Variable([4.0, 9.0], use_resource=use_resource)
    n = graphrt.Variable(7, use_resource=use_resource)
    b = graphrt.Variable([True, False], use_resource=use_resource)
    m = graphrt.Variable([[1.0, 2.0]], use_resource=use_resource)
    made = [
        v + v,
        1.0 - v,
        v * 2.0,
        8.0 / v,
        v**0.5,
        n // 2,
        n % 4,
        abs(-v),
        v > 5.0,
        b & True,
        ~b,
        m @ [[1.0], [1.0]],
    ]
    wanted = [
        [8, 18],
        [-3, -8],
        [8, 18],
        [2, 8 / 9],
        [2, 3],
        3,
        3,
        [4, 9],
        [False, True],
        [True, False],
        [False, True],
        [[3]],
    ]
    for value, want in zip(initialized().run(made), wanted):
        np.testing.assert_allclose(value, want, rtol=1e-6)


def test_augmented_assignment_makes_a_tensor_or_says_what_to_call():
    v = graphrt.Variable([1.0], use_resource=False)
    made = v
    made += 1.0
    assert isinstance(made, graphrt.Tensor)
    r = graphrt.Variable([1.0], use_resource=True)
    with pytest.raises(RuntimeError, match="variable.assign_add"):
        r += 1.0


def test_the_kind_is_the_arguments_the_scopes_or_the_switchs():
    assert graphrt.Variable(1.0).dtype.is_ref
    with graphrt.variable_scope("s", use_resource=True):
        assert not graphrt.Variable(1.0).dtype.is_ref
        assert graphrt.Variable(1.0, use_resource=False).dtype.is_ref
    graphrt.enable_resource_variables()
    assert graphrt.resource_variables_enabled()
    assert not graphrt.Variable(1.0).dtype.is_ref
    assert isinstance(graphrt.Variable(1.0), graphrt.Variable)
    graphrt.disable_resource_variables()
    assert graphrt.Variable(1.0).dtype.is_ref


@RESOURCE
def test_a_variable_def_gives_the_variable_back_as_tensorflow_writes_it(tf, use_resource):
    def build(tf):
        v = tf.Variable([1.0, 2.0], name="W", trainable=False, use_resource=use_resource)
        return v, v.to_proto().SerializeToString(deterministic=True)

    (ours, (v, mine)), (_, (_, theirs)) = built_by_both(tf, build)
    assert variable_pb2.VariableDef.FromString(mine) == variable_pb2.VariableDef.FromString(theirs)
    with ours.as_default():
        again = graphrt.Variable.from_proto(variable_pb2.VariableDef.FromString(mine))
        assert again.op is v.op and again.initializer is v.initializer and again.trainable is False
        assert again.to_proto() == v.to_proto()
        assert v.to_proto(export_scope="other") is None


def test_bad_variable_arguments_say_what_would_do():
    with pytest.raises(ValueError, match="initial_value must be specified"):
        graphrt.Variable()
    with pytest.raises(ValueError, match="collections argument to Variable constructor must be a list"):
        graphrt.Variable(1.0, collections="mine")
    with pytest.raises(ValueError, match="`constraint` argument must be a callable"):
        graphrt.Variable(1.0, constraint=3)
    with pytest.raises(ValueError, match="from inside a control-flow construct"):
        graphrt.cond(
            graphrt.constant(True),
            lambda: graphrt.Variable(graphrt.constant(1.0) + 1.0).value(),
            lambda: graphrt.constant(0.0),
        )
    with pytest.raises(TypeError, match="is not a variable"):
        graphrt.assign(graphrt.constant(1.0), 2.0)
    with pytest.raises(ValueError, match="cannot take a value of shape"):
        graphrt.Variable([1.0, 2.0]).assign([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="Shape mismatch"):
        graphrt.Variable([1.0, 2.0], use_resource=True).assign([1.0, 2.0, 3.0])


def test_a_creator_scope_changes_how_variables_are_made(tf):
    def build(tf):
        def renamed(next_creator, **kwargs):
            kwargs["name"] = (kwargs["name"] or "none") + "_made"
            return next_creator(**kwargs)

        def doubled(next_creator, **kwargs):
            kwargs["name"] += "_twice"
            return next_creator(**kwargs)

        with tf.variable_creator_scope(renamed), tf.variable_creator_scope(doubled):
            return [tf.Variable(1.0, name="a").name, tf.get_variable("b", [2]).name]

    (_, mine), (_, theirs) = built_by_both(tf, build)
    assert mine == theirs == ["a_twice_made:0", "b_twice_made:0"]


# -- collections and initialisation --------------------------------------------------------------------------


def test_collections_list_variables_by_kind_and_scope():
    a = graphrt.Variable(1.0, name="s/a")
    b = graphrt.Variable(1.0, name="b", trainable=False)
    c = graphrt.get_local_variable("c", [])
    d = graphrt.Variable(1.0, name="d", collections=[graphrt.GraphKeys.MODEL_VARIABLES])
    assert graphrt.global_variables() == graphrt.all_variables() == [a, b]
    assert graphrt.trainable_variables() == [a, d]
    assert graphrt.local_variables() == [c]
    assert graphrt.model_variables() == [d]
    assert graphrt.global_variables("s/") == [a]


@RESOURCE
def test_uninitialised_variables_are_reported_and_asserted(use_resource):
    a = graphrt.Variable([1.0], name="a", use_resource=use_resource)
    b = graphrt.Variable([1.0], name="b", use_resource=use_resource)
    report, check = graphrt.report_uninitialized_variables(), graphrt.assert_variables_initialized()
    asked = graphrt.is_variable_initialized(b)
    with session() as s:
        assert list(s.run(report)) == [b"a", b"b"]
        s.run(a.initializer)
        assert list(s.run(report)) == [b"b"] and not s.run(asked)
        with pytest.raises(graphrt.errors.FailedPreconditionError, match="uninitialized value b"):
            s.run(check)
        s.run(graphrt.variables_initializer([b]))
        assert list(s.run(report)) == [] and s.run(asked)
        s.run(check)


def test_initialisers_without_variables_do_nothing():
    with session() as s:
        assert s.run(graphrt.global_variables_initializer()) is None
        assert list(s.run(graphrt.report_uninitialized_variables())) == []
    assert graphrt.assert_variables_initialized() is None


# -- get_variable and scopes ---------------------------------------------------------------------------------


def _scopes(tf: Any) -> list[Any]:
    with tf.variable_scope("a") as scope:
        x = tf.get_variable("x", [2, 3])
        with tf.variable_scope("b", initializer=tf.initializers.zeros()):
            tf.get_variable("y", [2])
            tf.get_variable("i", [2], tf.int32)
            tf.constant(1.0)
    with tf.variable_scope("a", reuse=True):
        x2 = tf.get_variable("x", [2, 3])
        tf.constant(1.0)
    with tf.variable_scope(scope, reuse=True) as again:
        x3 = tf.get_variable("x")
        tf.constant(1.0)
    with tf.variable_scope(None, "d"):
        p = tf.get_variable("p", [])
    with tf.variable_scope(None, "d") as second:
        p2 = tf.get_variable("p", [])
        with tf.variable_scope(None, "e") as inner:
            pass
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        z = tf.get_variable("z", initializer=tf.constant([1, 2]))
        z2 = tf.get_variable("z", dtype=tf.int32)
        tf.get_variable("zz", initializer=lambda: tf.ones([3]))
    with tf.variable_scope("c", auxiliary_name_scope=False):
        tf.get_variable("c", [1])
        tf.constant(2.0)
    with tf.name_scope("outer"), tf.variable_scope("r", use_resource=True, dtype=tf.float64):
        tf.get_variable("c", [1])
        local = tf.get_local_variable("lv", [2])
        tf.constant(2.0)
    with tf.variable_scope("reg", regularizer=lambda v: tf.reduce_sum(v * v)):
        tf.get_variable("k", [2])
        tf.get_variable("nr", [2], regularizer=tf.no_regularizer)
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    tf.add_n(losses)
    return [
        x is x2,
        x is x3,
        z is z2,
        p.name,
        p2.name,
        again.original_name_scope,
        second.name,
        inner.name,
        [v.name for v in tf.global_variables()],
        [v.name for v in tf.local_variables()],
        [v.name for v in tf.trainable_variables("a/")],
        [loss.name for loss in losses],
        local.dtype.name,
        [v.name for v in scope.trainable_variables()],
    ]


def test_variable_scopes_name_and_share_as_tensorflows(tf):
    (_, mine), (_, theirs) = built_by_both(tf, _scopes)
    assert mine == theirs
    assert_same_nodes(tf, _scopes)


def test_custom_getters_nest_and_templates_share(tf):
    def build(tf):
        def getter(getter, name, *args, **kwargs):
            return getter(name + "_g", *args, **kwargs)

        with tf.variable_scope("s", custom_getter=getter):
            tf.get_variable("c", [2])
            with tf.variable_scope("t", custom_getter=getter):
                tf.get_variable("c", [2])
        template = tf.make_template("tt", lambda x, k: x * tf.get_variable("w", [2]) * k, k=2.0)
        template(1.0)
        template(2.0)
        now = tf.make_template("tt", lambda x: x * tf.get_variable("w", [2]), create_scope_now_=True)
        now(3.0)
        return [
            template.variable_scope.name,
            now.variable_scope.name,
            [v.name for v in template.trainable_variables],
            [v.name for v in tf.global_variables()],
        ]

    (_, mine), (_, theirs) = built_by_both(tf, build)
    assert mine == theirs
    assert_same_nodes(tf, build)


def test_a_template_that_makes_a_trainable_variable_later_is_refused():
    template = graphrt.make_template("t", lambda: graphrt.Variable([1.0]))
    template()
    with pytest.raises(
        ValueError, match="Trainable variable created when calling a template after the first time"
    ):
        template()


@RESOURCE
def test_a_variable_that_exists_is_refused_with_the_line_that_made_it(use_resource):
    graphrt.get_variable("v", [2], use_resource=use_resource)
    with pytest.raises(ValueError) as error:
        graphrt.get_variable("v", [2])
    text = str(error.value)
    assert (
        "Variable v already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
        "VarScope?" in text
    )
    assert "Originally defined at:" in text and __file__ in text
    assert 'graphrt.get_variable("v", [2], use_resource=use_resource)' in text


def test_sharing_refuses_what_does_not_exist_or_does_not_fit():
    with pytest.raises(
        ValueError, match=r"Variable s/v does not exist, or was not created with tf.get_variable\(\)"
    ):
        with graphrt.variable_scope("s", reuse=True):
            graphrt.get_variable("v", [2])
    with graphrt.variable_scope("s"):
        graphrt.get_variable("v", [2])
    with graphrt.variable_scope("s", reuse=True):
        with pytest.raises(
            ValueError,
            match=r"Trying to share variable s/v, but specified shape \(3,\) and found shape \(2,\)",
        ):
            graphrt.get_variable("v", [3])
        with pytest.raises(ValueError, match="specified dtype int32 and found dtype float32_ref"):
            graphrt.get_variable("v", [2], dtype=graphrt.int32)


def test_bad_get_variable_arguments_say_what_would_do():
    with pytest.raises(
        ValueError, match="v did not get an initializer, so its `shape` argument must be specified"
    ):
        graphrt.get_variable("v")
    with pytest.raises(ValueError, match="If initializer is a constant, do not specify shape"):
        graphrt.get_variable("v", [2], initializer=graphrt.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match="The initializer passed is not valid"):
        graphrt.get_variable("v", initializer=graphrt.initializers.zeros())
    with pytest.raises(ValueError, match="don't match"):
        graphrt.get_variable("v", dtype=graphrt.int32, initializer=graphrt.constant([1.0]))
    with pytest.raises(ValueError, match="An initializer for variable v of tf.complex64 is required"):
        graphrt.get_variable("v", [2], dtype=graphrt.complex64)
    with pytest.raises(ValueError, match="The reuse parameter must be True or False or None"):
        graphrt.variable_scope("s", reuse="yes")
    with pytest.raises(TypeError, match="name_or_scope must be a string or VariableScope"):
        graphrt.variable_scope(3).__enter__()
    with pytest.raises(TypeError, match="name_or_scope is required"):
        graphrt.variable_scope(None)
    with pytest.raises(ValueError, match="reuse=True cannot be used without a name_or_scope"):
        graphrt.variable_scope(None, "d", reuse=True).__enter__()


def test_scopes_are_a_threads_own_and_variables_are_the_graphs():
    graph = graphrt.get_default_graph()
    names: list[str] = []

    def other_thread():
        with graph.as_default(), graphrt.variable_scope("there"):
            names.append(graphrt.get_variable("v", [1]).name)

    with graphrt.variable_scope("here"):
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(30)
    assert names == ["there/v:0"]
    with graphrt.variable_scope("there", reuse=True):
        assert graphrt.get_variable("v", [1]).name == "there/v:0"


def test_a_scope_object_may_be_entered_twice():
    scope = graphrt.variable_scope("twice", reuse=graphrt.AUTO_REUSE)
    with scope:
        first = graphrt.get_variable("v", [1])
    with scope:
        assert graphrt.get_variable("v", [1]) is first


# -- partitioned variables -----------------------------------------------------------------------------------


def _parts(tf: Any) -> list[Any]:
    with tf.variable_scope("s", partitioner=tf.fixed_size_partitioner(3)):
        v = tf.get_variable("v", [7, 2])
        tf.get_variable("scalar", [])
    u = tf.get_variable(
        "u", initializer=tf.constant([1.0, 2.0, 3.0, 4.0]), partitioner=tf.variable_axis_size_partitioner(8)
    )
    o = tf.get_variable("o", [2, 2], partitioner=tf.min_max_variable_partitioner(4, min_slice_size=1))
    one = tf.get_variable("one", [2, 2], partitioner=tf.fixed_size_partitioner(1))
    whole = tf.convert_to_tensor(v)
    tf.convert_to_tensor(one)
    u.assign(tf.constant([4.0, 3.0, 2.0, 1.0]))
    listed = tf.create_partitioned_variables([4, 2], [2, 1], tf.initializers.zeros())
    return [
        len(v),
        [x.name for x in v],
        [x.shape.as_list() for x in v],
        [x._get_save_slice_info().spec for x in v],
        [p.name for p in listed],
        v.get_shape().as_list(),
        [x.name for x in u],
        [x.name for x in o],
        whole.name,
    ]


def test_partitioned_variables_are_cut_and_named_as_tensorflows(tf):
    (_, mine), (_, theirs) = built_by_both(tf, _parts)
    assert mine == theirs
    assert_same_nodes(tf, _parts)


def test_a_partitioned_variable_is_the_concatenation_of_its_parts():
    v = graphrt.get_variable(
        "v",
        initializer=graphrt.constant(np.arange(14.0, dtype=np.float32).reshape(7, 2)),
        partitioner=graphrt.fixed_size_partitioner(3),
    )
    doubled = graphrt.convert_to_tensor(v) * 2.0
    update = v.assign(np.ones((7, 2), np.float32))
    with initialized() as s:
        np.testing.assert_array_equal(s.run(doubled), 2.0 * np.arange(14.0).reshape(7, 2))
        s.run(update)
        np.testing.assert_array_equal(s.run(doubled), np.full((7, 2), 2.0))
    with graphrt.variable_scope("", reuse=True):
        assert graphrt.get_variable("v", [7, 2]) is v


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda: graphrt.get_variable("v", [4], partitioner=lambda shape, dtype: 3),
            "must return a sequence",
        ),
        (
            lambda: graphrt.get_variable("v", [4], partitioner=lambda shape, dtype: [1, 1]),
            "does not match the Variable's rank",
        ),
        (
            lambda: graphrt.get_variable("v", [4, 4], partitioner=lambda shape, dtype: [2, 2]),
            "along one dimension",
        ),
        (lambda: graphrt.get_variable("v", [4], partitioner=lambda shape, dtype: [0]), "zero partitions"),
        (lambda: graphrt.variable_axis_size_partitioner(0), "must be positive"),
    ],
)
def test_bad_partitions_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_a_save_slice_spec_is_read_back():
    info = graphrt.Variable.SaveSliceInfo("w", [10, 20], [5, 0], [5, 20])
    assert info.spec == "10 20 5,5:0,20"
    again = graphrt.Variable.SaveSliceInfo.from_spec(info.spec)
    assert (again.full_shape, again.var_offset, again.var_shape) == ([10, 20], [5, 0], [5, 20])
    with pytest.raises(ValueError, match="is not 'size size"):
        graphrt.Variable.SaveSliceInfo.from_spec("10 20 five")


def test_init_scope_keeps_the_name_scope_and_lifts_dependencies():
    blocker = graphrt.constant(1.0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(graphrt.name_scope("s"))
        stack.enter_context(graphrt.control_dependencies([blocker]))
        with graphrt.init_scope():
            inside = graphrt.constant(2.0, name="c")
    assert inside.name == "s/c:0" and not inside.op.control_inputs
