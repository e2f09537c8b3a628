"""tf.cond, tf.case and their kin, as TF1 has them: values, effects, structures, errors."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator

import numpy as np
import pytest

import graphrt as tf
from graphrt.control_flow.case import smart_case, smart_cond, smart_constant_value
from graphrt.control_flow.context import CondContext
from graphrt.core import errors


def _bool(name: str = "p"):
    return tf.placeholder(tf.bool, [], name=name)


def _one():
    return tf.constant(1.0)


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both forms of conditionals, one after the other."""
    if request.param == "v2":
        tf.enable_control_flow_v2()
    yield request.param
    tf.disable_control_flow_v2()


# -- values --------------------------------------------------------------------------------------------------


def test_the_taken_branch_gives_the_value(version):
    p, x = _bool(), tf.placeholder(tf.float32, [None])
    y = tf.cond(p, lambda: x * 2.0, lambda: x + 1.0)
    with tf.Session() as session:
        for _ in range(3):
            np.testing.assert_array_equal(session.run(y, {p: True, x: [1, 2]}), [2, 4])
            np.testing.assert_array_equal(session.run(y, {p: False, x: [1, 2, 3]}), [2, 3, 4])


def test_a_constant_predicate_decides_in_every_step(version):
    x = tf.placeholder(tf.float32, [])
    yes = tf.cond(tf.constant(True), lambda: x * 2.0, lambda: x + 1.0)
    no = tf.cond(tf.constant(False), lambda: x * 2.0, lambda: x + 1.0)
    with tf.Session() as session:
        assert session.run([yes, no], {x: 5.0}) == [10.0, 6.0]


def test_branches_return_what_is_outside_and_what_needs_no_tensor(version):
    p, x = _bool(), tf.placeholder(tf.float32, [])
    y = tf.cond(p, lambda: x, lambda: 7.0)
    with tf.Session() as session:
        assert session.run(y, {p: True, x: 3.0}) == 3.0
        assert session.run(y, {p: False, x: 3.0}) == 7.0


def test_structures_come_back_as_they_are(version):
    Pair = namedtuple("Pair", "a b")
    p = _bool()
    y = tf.cond(
        p,
        lambda: {"k": [1.0, (2, Pair(3.0, 4))], "j": True},
        lambda: {"k": [5.0, (6, Pair(7.0, 8))], "j": False},
    )
    with tf.Session() as session:
        assert session.run(y, {p: True}) == {"k": [1.0, (2, Pair(3.0, 4))], "j": True}
        assert session.run(y, {p: False}) == {"k": [5.0, (6, Pair(7.0, 8))], "j": False}


def test_one_value_in_a_list_is_taken_out_unless_strict():
    p = _bool()
    loose, strict = (
        tf.cond(p, lambda: [1.0], lambda: 2.0),
        tf.cond(p, lambda: [1.0], lambda: [2.0], strict=True),
    )
    assert isinstance(loose, tf.Tensor)
    assert isinstance(strict, list) and isinstance(strict[0], tf.Tensor)
    with tf.Session() as session:
        assert session.run([loose, strict], {p: False}) == [2.0, [2.0]]


def test_an_operation_gives_a_bool_when_it_has_run(version):
    p, v = _bool(), tf.Variable(0, use_resource=True)
    y = tf.cond(p, lambda: v.assign_add(1, read_value=False), lambda: tf.no_op())
    assert y.dtype == tf.bool
    with tf.Session() as session:
        session.run(v.initializer)
        session.run(y, {p: True})
        session.run(y, {p: False})
        session.run(y, {p: True})
        assert session.run(v) == 2


def test_indexed_slices_come_back_as_indexed_slices(version):
    p = _bool()

    def slices(value, index, dtype):
        return tf.IndexedSlices(tf.constant([[value]]), tf.constant([index], dtype), tf.constant([3, 1]))

    y = tf.cond(p, lambda: slices(1.0, 0, tf.int32), lambda: slices(2.0, 2, tf.int64))
    assert isinstance(y, tf.IndexedSlices) and y.indices.dtype == tf.int64
    with tf.Session() as session:
        for chosen, value, index in ((True, 1.0, 0), (False, 2.0, 2)):
            made = session.run(y, {p: chosen})
            assert (made.values, made.indices, list(made.dense_shape)) == ([[value]], [index], [3, 1])


def test_static_shapes_keep_what_the_branches_have_in_common(version):
    p = _bool()

    def shapes(a, b):
        return tf.cond(
            p,
            lambda: tf.placeholder_with_default(np.zeros(a, np.float32), a),
            lambda: tf.placeholder_with_default(np.zeros(b, np.float32), b),
        ).shape.as_list

    assert shapes([2, 3], [2, 3])() == [2, 3]
    assert shapes([2, 3], [2, 4])() == [2, None]
    with pytest.raises(ValueError, match="unknown"):
        shapes([2, 3], [2])()


def test_nested_conditionals_on_one_predicate_and_on_others(version):
    p, q, x = _bool("p"), _bool("q"), tf.placeholder(tf.float32, [])
    y = tf.cond(
        p,
        lambda: tf.cond(q, lambda: tf.cond(p, lambda: x + 1.0, lambda: x + 2.0), lambda: x * x),
        lambda: tf.cond(p, lambda: x - 1.0, lambda: tf.cond(q, lambda: -x, lambda: x)),
    )
    with tf.Session() as session:
        found = {(a, b): session.run(y, {p: a, q: b, x: 3.0}) for a in (True, False) for b in (True, False)}
    assert found == {(True, True): 4.0, (True, False): 9.0, (False, True): -3.0, (False, False): 3.0}


def test_a_predicate_computed_inside_decides_there(version):
    x = tf.placeholder(tf.float32, [])
    y = tf.cond(
        x > 0.0,
        lambda: tf.cond(x > 10.0, lambda: 2.0, lambda: 1.0),
        lambda: tf.cond(x < -10.0, lambda: -2.0, lambda: -1.0),
    )
    with tf.Session() as session:
        assert [session.run(y, {x: v}) for v in (20.0, 5.0, -5.0, -20.0)] == [2.0, 1.0, -1.0, -2.0]


def test_text_and_integers_and_bools_pass(version):
    p = _bool()
    y = tf.cond(p, lambda: ("yes", 1, True), lambda: ("no", 2, False))
    with tf.Session() as session:
        assert session.run(y, {p: True}) == (b"yes", 1, True)
        assert session.run(y, {p: False}) == (b"no", 2, False)


def test_random_nodes_run_in_the_taken_branch_only(version):
    p = _bool()
    y = tf.cond(p, lambda: tf.random_uniform([], seed=7), lambda: tf.constant(-1.0))
    z = tf.cond(tf.logical_not(p), lambda: tf.constant(-1.0), lambda: tf.random_uniform([], seed=7))
    with tf.Session() as first, tf.Session() as second:
        dense = [first.run(y, {p: True}) for _ in range(3)]
        sparse = []
        for _ in range(3):
            assert second.run(y, {p: False}) == -1.0
            sparse.append(second.run(y, {p: True}))
        assert dense == sparse and len(set(dense)) == 3
        assert 0.0 <= first.run(z, {p: True}) < 1.0


# -- effects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_resource", [False, True])
def test_only_the_taken_branch_has_effects(use_resource):
    p = _bool()
    a, b = (
        tf.Variable(0, use_resource=use_resource, name="a"),
        tf.Variable(0, use_resource=use_resource, name="b"),
    )

    def count(variable, by):
        with tf.control_dependencies([tf.assign_add(variable, by)]):
            return tf.identity(1.0)

    y = tf.cond(p, lambda: count(a, 1), lambda: count(b, 10))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for chosen in (True, True, False, True, False):
            session.run(y, {p: chosen})
        assert session.run([a, b]) == [3, 20]


def test_functional_branches_run_what_their_results_need_as_in_tensorflow():
    tf.enable_control_flow_v2()
    try:
        p, a, b = (
            _bool(),
            tf.Variable(0, use_resource=True, name="a"),
            tf.Variable(0, use_resource=True, name="b"),
        )

        def count(variable):
            variable.assign_add(1)
            return tf.constant(1.0)

        y = tf.cond(p, lambda: count(a), lambda: count(b))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for chosen in (True, False, True):
                session.run(y, {p: chosen})
            # TensorFlow runs no node of a branch that neither a result nor a control output needs.
            assert session.run([a, b]) == [0, 0]
    finally:
        tf.disable_control_flow_v2()


def test_what_a_branch_takes_from_outside_is_computed_either_way():
    p, v = _bool(), tf.Variable(0, use_resource=True)
    outside = v.assign_add(1).read_value()
    y = tf.cond(p, lambda: outside * 10, lambda: tf.constant(-1))
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(y, {p: False}) == -1
        assert session.run(y, {p: True}) == 20


def test_references_pass_through_branches():
    p, w = _bool(), tf.Variable([1.0, 2.0], use_resource=False)
    updated = tf.cond(p, lambda: tf.assign_add(w, [1.0, 1.0]), lambda: tf.assign(w, [0.0, 0.0]))
    assert updated.dtype == tf.float32._as_ref
    again = tf.assign_add(updated, [100.0, 100.0])
    with tf.Session() as session:
        session.run(w.initializer)
        np.testing.assert_array_equal(session.run(again, {p: True}), [102, 103])
        np.testing.assert_array_equal(session.run(again, {p: False}), [100, 100])
        np.testing.assert_array_equal(session.run(w), [100, 100])


def test_variables_are_read_where_the_branch_is_taken():
    p = _bool()
    fine, never = (
        tf.Variable(3.0, use_resource=True, name="fine"),
        tf.Variable(4.0, use_resource=True, name="never"),
    )
    y = tf.cond(p, lambda: fine * 2.0, lambda: never * 2.0)
    with tf.Session() as session:
        session.run(fine.initializer)
        assert session.run(y, {p: True}) == 6.0
        with pytest.raises(errors.FailedPreconditionError, match="never"):
            session.run(y, {p: False})


def test_a_variable_made_inside_is_initialised_outside(version):
    p = _bool()
    made = []

    def branch():
        made.append(tf.Variable(lambda: tf.constant(5.0), use_resource=True, name="inner"))
        return made[0] * 2.0

    y = tf.cond(p, branch, lambda: tf.constant(0.0))
    assert made[0] in tf.global_variables()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y, {p: True}) == 10.0


def test_an_initial_value_from_inside_is_refused():
    p = _bool()

    def branch():
        return tf.Variable(tf.constant(5.0), use_resource=True).read_value()

    with pytest.raises(ValueError, match="control-flow construct"):
        tf.cond(p, branch, lambda: tf.constant(0.0))


def test_control_dependencies_reach_in_and_out(version):
    p = _bool()
    order = tf.Variable("", use_resource=True, dtype=tf.string)

    def note(text):
        return tf.py_func(lambda: seen.append(text), [], [])

    seen: list[str] = []
    with tf.control_dependencies([note("before")]):
        y = tf.cond(p, lambda: _after(note("true"), 1.0), lambda: _after(note("false"), 2.0))
    with tf.control_dependencies([y]):
        end = note("end")
    with tf.Session() as session:
        session.run(order.initializer)
        session.run(end, {p: True})
        assert seen == ["before", "true", "end"]
        seen.clear()
        session.run(end, {p: False})
        assert seen == ["before", "false", "end"]


def _after(op, value):
    with tf.control_dependencies([op]):
        return tf.constant(value)


def test_effects_inside_nested_branches_are_counted_once(version):
    p, q = _bool("p"), _bool("q")
    counts = [tf.Variable(0, use_resource=True, name=f"n{i}") for i in range(3)]

    def count(i):
        return _after(counts[i].assign_add(1).op, float(i))

    y = tf.cond(p, lambda: tf.cond(q, lambda: count(0), lambda: count(1)), lambda: count(2))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for a, b in ((True, True), (True, False), (False, True), (False, False), (True, True)):
            session.run(y, {p: a, q: b})
        assert session.run(counts) == [2, 1, 2]


# -- what is made --------------------------------------------------------------------------------------------


def test_what_is_inside_cannot_be_fetched():
    p, x = _bool(), tf.constant(2.0)
    tf.cond(p, lambda: x * 2.0, lambda: x)
    with tf.Session() as session:
        for name in ("cond/mul:0", "cond/Switch:0", "cond/pred_id:0", "cond/mul/Switch:1"):
            with pytest.raises(ValueError, match="fetched"):
                session.run(name, {p: True})


def test_a_tensor_of_an_untaken_branch_has_no_value():
    p, x = _bool(), tf.constant(2.0)
    at_false, at_true = tf.raw_ops.Switch(data=x, pred=p)
    y = at_false * 3.0
    with tf.control_dependencies([y]):
        late, trigger = tf.no_op(), tf.raw_ops.ControlTrigger()
    with tf.control_dependencies([late]):
        behind = tf.constant(1.0)
    with tf.control_dependencies([trigger]):
        triggered = tf.constant(1.0)
    with tf.Session() as session:
        assert session.run(y, {p: False}) == 6.0
        for fetch in (at_false, y, behind, [at_true, at_false]):
            with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
                session.run(fetch, {p: True})
        assert session.run(late, {p: True}) is None
        assert session.run(triggered, {p: True}) == 1.0


def test_merge_says_which_input_was_alive():
    p = _bool()
    at_false, at_true = tf.raw_ops.Switch(data=tf.constant(2.0), pred=p)
    value, index = tf.raw_ops.Merge(inputs=[at_true * 3.0, at_false])
    with tf.Session() as session:
        assert session.run([value, index], {p: True}) == [6.0, 0]
        assert session.run([value, index], {p: False}) == [2.0, 1]


def test_contexts_are_in_the_collection_and_survive_a_proto():
    p, q, x = _bool("p"), _bool("q"), tf.placeholder(tf.float32, [])
    y = tf.cond(p, lambda: tf.cond(q, lambda: x * x, lambda: x), lambda: x)
    contexts = tf.get_collection(tf.GraphKeys.COND_CONTEXT)
    assert [(c.branch, c.outer_context) for c in contexts] == [(1, None), (0, None)]
    protos = [c.to_proto() for c in contexts]
    definition = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        for proto in protos:
            CondContext.from_proto(proto)
        y, p, q, x = (graph.get_tensor_by_name(t.name) for t in (y, p, q, x))
        inner = graph.get_operation_by_name("cond/cond/mul")
        assert inner._control_flow_context.outer_context.name == "cond/cond_text"
        (gradient,) = tf.gradients(y, x)
        with tf.Session() as session:
            assert session.run(gradient, {p: True, q: True, x: 3.0}) == 6.0
            assert session.run(gradient, {p: True, q: False, x: 3.0}) == 1.0
            assert session.run(gradient, {p: False, q: True, x: 3.0}) == 1.0


@pytest.mark.parametrize(
    ("attrs", "code", "said"),
    [
        ("error_msg='enough'", -signal.SIGABRT, "Abort 'cond/Abort': enough"),
        ("exit_without_error=True", 0, ""),
    ],
)
def test_abort_ends_the_process_where_its_branch_is_taken(attrs, code, said):
    program = f"""
import graphrt as tf

def stop():
    with tf.control_dependencies([tf.raw_ops.Abort({attrs})]):
        return tf.constant(1.0)

p = tf.placeholder(tf.bool, [])
y = tf.cond(p, stop, lambda: tf.constant(2.0))
with tf.Session() as session:
    assert session.run(y, {{p: False}}) == 2.0
    session.run(y, {{p: True}})
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert said in done.stderr


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (dict(true_fn=_one), TypeError, r"cond\(\): 'false_fn' argument required"),
        (dict(false_fn=_one), TypeError, r"cond\(\): 'true_fn' argument required"),
        (dict(true_fn=1.0, false_fn=_one), TypeError, "'true_fn' must be callable."),
        (dict(true_fn=_one, false_fn=1.0), TypeError, "'false_fn' must be callable."),
        (dict(true_fn=lambda: None, false_fn=_one), ValueError, "'true_fn' must have a return value."),
        (dict(true_fn=_one, false_fn=lambda: None), ValueError, "'false_fn' must have a return value."),
        (
            dict(true_fn=list, false_fn=list),
            ValueError,
            "'true_fn' and 'false_fn' must return at least one result.",
        ),
        (
            dict(true_fn=_one, false_fn=lambda: 1),
            ValueError,
            "Outputs of 'true_fn' and 'false_fn' must have the same type.s.. Received float32 from "
            "'true_fn' and int32 from 'false_fn'.",
        ),
        (
            dict(true_fn=lambda: [1, 2], false_fn=lambda: [1, 2, 3]),
            ValueError,
            "don't have the same number of elements",
        ),
        (
            dict(true_fn=lambda: [1, 2], false_fn=lambda: (1, 2)),
            TypeError,
            "don't have the same sequence type",
        ),
        (
            dict(true_fn=lambda: {"a": 1}, false_fn=lambda: {"b": 1}),
            ValueError,
            "don't have the same set of keys",
        ),
        (
            dict(true_fn=lambda: [1, [2]], false_fn=lambda: [1, 2]),
            ValueError,
            "is a sequence, while substructure",
        ),
    ],
)
def test_what_cond_does_not_take(arguments, error, text):
    with pytest.raises(error, match=text):
        tf.cond(_bool(), **arguments)


def test_a_python_bool_is_no_predicate(version):
    with pytest.raises(TypeError, match="must not be a Python bool"):
        tf.cond(True, _one, _one)


def test_a_predicate_is_a_bool_scalar():
    with pytest.raises(TypeError, match="bool"):
        tf.cond(tf.constant(1.0), _one, _one)
    with pytest.raises(ValueError, match="rank"):
        tf.cond(tf.placeholder(tf.bool, [2]), _one, _one)


def test_older_names_of_the_functions_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match="fn1"):
        y = tf.cond(_bool(), fn1=_one, fn2=lambda: tf.constant(2.0))
    assert y.dtype == tf.float32
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(TypeError, match="'true_fn' and 'fn1' may not be set simultaneously"),
    ):
        tf.cond(_bool(), _one, _one, fn1=_one)


# -- case ----------------------------------------------------------------------------------------------------


def test_case_takes_the_first_true_predicate(version):
    a, b = _bool("a"), _bool("b")
    y = tf.case([(a, lambda: 1.0), (b, lambda: 2.0)], default=lambda: 3.0)
    with tf.Session() as session:
        found = [session.run(y, {a: i, b: j}) for i in (True, False) for j in (True, False)]
    assert found == [1.0, 1.0, 2.0, 3.0]


def test_case_takes_a_dict_in_the_order_of_names(version):
    a, b = _bool("a"), _bool("b")
    y = tf.case({b: lambda: 2.0, a: lambda: 1.0}, default=lambda: 3.0)
    with tf.Session() as session:
        assert session.run(y, {a: True, b: True}) == 1.0


def test_exclusive_case_fails_where_several_are_true(version):
    a, b = _bool("a"), _bool("b")
    y = tf.case([(a, lambda: 1.0), (b, lambda: 2.0)], default=lambda: 3.0, exclusive=True)
    with tf.Session() as session:
        assert session.run(y, {a: False, b: True}) == 2.0
        with pytest.raises(
            errors.InvalidArgumentError,
            match=r"exclusive=True: more than 1 conditions \(a:0, b:0\) evaluated as True",
        ):
            session.run(y, {a: True, b: True})


def test_case_without_default_fails_where_none_is_true(version):
    a, b = _bool("a"), _bool("b")
    y = tf.case([(a, _one), (b, lambda: tf.constant(2.0))])
    with tf.Session() as session:
        assert session.run(y, {a: True, b: False}) == 1.0
        assert session.run(y, {a: False, b: True}) == 2.0
        with pytest.raises(errors.InvalidArgumentError, match="None of conditions evaluated as True"):
            session.run(y, {a: False, b: False})


@pytest.mark.parametrize(
    ("pairs", "error", "text"),
    [
        (3, TypeError, "'pred_fn_pairs' must be a list, tuple, or dict. Received: <class 'int'>"),
        ([(1,)], TypeError, "Each entry in 'pred_fn_pairs' must be a 2-tuple."),
        ([(True, _one)], TypeError, "pred must be a Tensor, got: True"),
        ([], ValueError, "at least one pair"),
    ],
)
def test_what_case_does_not_take(pairs, error, text):
    with pytest.raises(error, match=text):
        tf.case(pairs)


def test_case_wants_bools_and_functions():
    with pytest.raises(TypeError, match="pred must be Tensor of type bool: x:0"):
        tf.case([(tf.placeholder(tf.int32, [], name="x"), _one)])
    with pytest.raises(TypeError, match="fn for pred q:0 must be callable."):
        tf.case([(_bool("q"), 1.0)])


def test_switch_case_takes_the_branch_of_its_number():
    i = tf.placeholder(tf.int32, [])
    x = tf.placeholder(tf.float32, [])
    forms = [
        tf.switch_case(i, [lambda: x, lambda: x * 2.0], default=lambda: -x),
        tf.switch_case(i, {1: lambda: x * 2.0, 0: lambda: x}, default=lambda: -x),
        tf.switch_case(i, [(1, lambda: x * 2.0), (0, lambda: x)], default=lambda: -x),
        tf.switch_case(i, [lambda: x, lambda: x * 2.0, lambda: -x]),
    ]
    with tf.Session() as session:
        for number, expected in ((0, 3.0), (1, 6.0), (2, -3.0), (5, -3.0), (-1, -3.0)):
            assert session.run(forms, {i: number, x: 3.0}) == [expected] * 4


@pytest.mark.parametrize(
    ("index", "branches", "error", "text"),
    [
        (1, [_one], TypeError, "'branch_index' must be a Tensor, got <class 'int'>"),
        (1.0, [_one], TypeError, "'branch_index' must be an integer Tensor"),
        (None, [], ValueError, "Must provide at least one item in 'branch_fns'"),
        (None, {1: _one, 2: _one}, ValueError, r"contiguous range of \[0 to 2\) but found \{1,2\}"),
        (None, [("a", _one)], TypeError, "key must be a Python `int`, got <class 'str'>"),
        (None, [(0, 3)], TypeError, "fn for key 0 must be callable."),
        (None, [(0, 3, 4)], TypeError, "must be a 2-tuple"),
        (
            None,
            [_one, lambda: 1],
            TypeError,
            r"branches\[0\] and branches\[1\] arguments to tf.switch_case must have the same number, type",
        ),
    ],
)
def test_what_switch_case_does_not_take(index, branches, error, text):
    index = tf.constant(index) if isinstance(index, float) else tf.constant(0) if index is None else index
    with pytest.raises(error, match=text):
        tf.switch_case(index, branches)


def test_smart_cond_decides_what_is_known_while_building():
    x = tf.placeholder(tf.float32, [])
    before = len(tf.get_default_graph().get_operations())
    assert smart_cond(True, lambda: x, lambda: 1 / 0) is x
    assert smart_cond(0, lambda: 1 / 0, lambda: x) is x
    assert len(tf.get_default_graph().get_operations()) == before
    assert smart_cond(tf.constant(False), lambda: 1 / 0, lambda: x) is x
    assert smart_constant_value(_bool()) is None
    y = smart_cond(_bool("q"), lambda: x, lambda: -x)
    with tf.Session() as session:
        assert session.run(y, {"q:0": False, x: 2.0}) == -2.0
    with pytest.raises(TypeError, match="`pred` must be a Tensor, or a Python bool"):
        smart_cond("yes", lambda: x, lambda: x)
    assert smart_case([(False, lambda: 1 / 0), (True, lambda: x)], default=lambda: 1 / 0) is x


# -- group, tuple, identity_n --------------------------------------------------------------------------------


def test_a_group_in_a_branch_runs_its_members_there():
    p = _bool()
    a, b = tf.Variable(0, use_resource=True, name="a"), tf.Variable(0, use_resource=True, name="b")
    y = tf.cond(p, lambda: tf.group(a.assign_add(1), b.assign_add(1)), lambda: tf.group(a.assign_sub(1)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(y, {p: True})
        assert session.run([a, b]) == [1, 1]
        session.run(y, {p: False})
        assert session.run([a, b]) == [0, 1]


def test_a_tuple_waits_for_all_its_members():
    seen: list[int] = []
    late = tf.py_func(lambda: seen.append(1), [], [])
    x, none, y = tf.tuple([tf.constant(1.0), None, tf.constant(2.0)], control_inputs=[late])
    assert none is None
    with tf.Session() as session:
        assert session.run(y) == 2.0
        assert seen == [1]
        assert session.run(x) == 1.0


def test_identity_n_passes_each_input():
    a, b = tf.identity_n([tf.constant(1.0), 2])
    with tf.Session() as session:
        assert session.run([a, b]) == [1.0, 2]
