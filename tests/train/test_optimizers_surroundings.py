"""What surrounds the optimizers: moving averages, learning-rate decays, the global step; and TensorFlow's."""

import numpy as np
import pytest

import graphrt
from tests.same_graph import assert_same_nodes, assert_same_values, built_by_both


def _averages(tf):
    a = tf.Variable([1.0, 2.0], name="a")
    b = tf.Variable([1.0, 2.0], name="b", use_resource=True)
    x = tf.constant([1.0, 1.0], name="x")
    plain = tf.train.ExponentialMovingAverage(0.9)
    op = plain.apply([a, b, x])
    debiased = tf.train.ExponentialMovingAverage(
        0.9, num_updates=tf.constant(3), zero_debias=True, name="deb"
    )
    op2 = debiased.apply([x, a])
    c = tf.Variable(1.0, name="c")
    names = [
        op.name,
        op2.name,
        plain.name,
        plain.average(a).name,
        plain.average_name(a),
        plain.average_name(x),
        plain.average_name(c),
        plain.average(c) is None,
        sorted(plain.variables_to_restore()),
        [v.name for v in tf.moving_average_variables()],
        [v.name for v in tf.global_variables()],
    ]
    return names, (a, b, x), plain, debiased, op, op2


def test_moving_averages_have_tensorflows_nodes_and_names(tf):
    (_, mine), (_, theirs) = built_by_both(tf, lambda tf: _averages(tf)[0])
    assert mine == theirs
    assert_same_nodes(tf, lambda tf: _averages(tf)[0])


def test_moving_averages_hold_tensorflows_values(tf):
    def build(tf):
        _, variables, plain, debiased, op, op2 = _averages(tf)
        a, b, x = variables
        with tf.control_dependencies([a.assign_add([1.0, -1.0]), b.assign_add([0.5, 0.5]).op]):
            moved = tf.no_op()
        averages = [plain.average(v) for v in variables] + [debiased.average(x), debiased.average(a)]
        return [moved, op, op2], averages, tf.global_variables_initializer()

    (ours, mine), (theirs, wanted) = built_by_both(tf, build)
    values = []
    for module, graph, (ops, averages, init) in ((graphrt, ours, mine), (tf.compat.v1, theirs, wanted)):
        with module.Session(graph=graph) as session:
            session.run(init)
            for _ in range(20):
                for op in ops:
                    session.run(op)
            values.append(session.run(averages))
    for a, b in zip(*values):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_moving_averages_of_integers_are_refused():
    with pytest.raises(TypeError, match="must be half, float, or double"):
        graphrt.train.ExponentialMovingAverage(0.9).apply([graphrt.Variable([1])])


DECAYS = {
    "exponential": lambda t, s: t.exponential_decay(0.1, s, 3, 0.9),
    "exponential staircase": lambda t, s: t.exponential_decay(0.1, s, 3, 0.9, staircase=True, name="lr"),
    "natural": lambda t, s: t.natural_exp_decay(0.1, s, 3, 0.5),
    "inverse time": lambda t, s: t.inverse_time_decay(0.1, s, 3, 0.5),
    "inverse time staircase": lambda t, s: t.inverse_time_decay(0.1, s, 3, 0.5, staircase=True),
    "polynomial": lambda t, s: t.polynomial_decay(0.1, s, 7, power=0.5),
    "polynomial cycle": lambda t, s: t.polynomial_decay(0.1, s, 4, cycle=True, power=2.0),
    "cosine": lambda t, s: t.cosine_decay(0.1, s, 9, alpha=0.1),
    "cosine restarts": lambda t, s: t.cosine_decay_restarts(0.1, s, 3, m_mul=0.5, alpha=0.01),
    "cosine restarts of one length": lambda t, s: t.cosine_decay_restarts(0.1, s, 3, t_mul=1.0),
    "linear cosine": lambda t, s: t.linear_cosine_decay(0.1, s, 9, num_periods=1.5),
    "noisy linear cosine": lambda t, s: t.noisy_linear_cosine_decay(0.1, s, 9),
}


@pytest.mark.parametrize("decay", DECAYS)
def test_decays_have_tensorflows_nodes(tf, decay):
    assert_same_nodes(tf, lambda tf: DECAYS[decay](tf.train, tf.constant(5, tf.int64)))


@pytest.mark.parametrize("decay", DECAYS)
def test_decays_have_tensorflows_values_over_the_steps(tf, decay):
    def build(tf):
        tf.set_random_seed(7)
        step = tf.train.get_or_create_global_step()
        rate = DECAYS[decay](tf.train, step)
        with tf.control_dependencies([rate]):
            return [rate, step.assign_add(1)]

    assert_same_values(tf, build, steps=13, rtol=3e-6, initialize=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_piecewise_constants_change_after_their_boundaries(tf, dtype):
    def build(tf):
        x = tf.placeholder(getattr(tf, dtype), [], name="x")
        kind = float if dtype == "float32" else int
        return tf.train.piecewise_constant(x, [kind(2), kind(4), kind(9)], [1.0, 2.0, 3.0, 4.0])

    for value in (0, 2, 3, 4, 5, 9, 10):
        assert_same_values(tf, build, feeds={"x": value})


def test_bad_piecewise_constants_are_refused():
    piecewise = graphrt.train.piecewise_constant_decay
    with pytest.raises(ValueError, match="should be 1 less than the length of values"):
        piecewise(graphrt.constant(1), [2], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="must have the same dtype as x"):
        piecewise(graphrt.constant(1), [2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="elements all with the same dtype"):
        piecewise(graphrt.constant(1), [2], [1.0, 2])


def test_the_global_step_is_made_once_and_counted_by_minimize():
    train = graphrt.train
    assert train.get_global_step() is None
    step = train.get_or_create_global_step()
    assert train.get_global_step() is step is train.get_or_create_global_step()
    assert (step.name, step.dtype.base_dtype, step.trainable) == ("global_step:0", graphrt.int64, False)
    with pytest.raises(ValueError, match='"global_step" already exists'):
        train.create_global_step()
    v = graphrt.Variable(1.0)
    op = train.GradientDescentOptimizer(0.1).minimize(v * v, global_step=step)
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        for _ in range(3):
            session.run(op)
        assert train.global_step(session, step) == 3


def test_a_global_step_must_be_an_integer_scalar():
    assert_global_step = graphrt.train.assert_global_step
    assert_global_step(graphrt.Variable(0))
    with pytest.raises(TypeError, match="does not have integer type"):
        assert_global_step(graphrt.Variable(0.0))
    with pytest.raises(TypeError, match="is not scalar"):
        assert_global_step(graphrt.Variable([0]))
    with pytest.raises(TypeError, match="must be a Variable or Tensor"):
        assert_global_step(7)
