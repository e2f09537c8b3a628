"""Optimizers beside TensorFlow's: the nodes they build, and what variables and slots hold after steps."""

from typing import Any

import numpy as np
import pytest

import graphrt
from tests.same_graph import _nodes, built_by_both

RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
SPARSE = pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])


def _adagrad_da(tf: Any) -> Any:
    step = tf.train.get_or_create_global_step()
    return tf.train.AdagradDAOptimizer(0.1, step, l1_regularization_strength=0.01)


# RMSProp divides by the root of a mean that goes to 0 as gradients do: a larger epsilon keeps rounding small.
OPTIMIZERS = {
    "GradientDescent": lambda tf: tf.train.GradientDescentOptimizer(0.02),
    "GradientDescent of a function": lambda tf: tf.train.GradientDescentOptimizer(lambda: tf.constant(0.02)),
    "Momentum": lambda tf: tf.train.MomentumOptimizer(0.02, 0.5),
    "Nesterov": lambda tf: tf.train.MomentumOptimizer(
        lambda: 0.02, 0.5, use_nesterov=True, use_locking=True, name="Nag"
    ),
    "Adam": lambda tf: tf.train.AdamOptimizer(0.1),
    "Adam in its own scope": lambda tf: tf.train.AdamOptimizer(
        0.1, epsilon=1e-3, use_own_namescope_for_non_slot_vars=True
    ),
    "Adagrad": lambda tf: tf.train.AdagradOptimizer(0.1),
    "RMSProp": lambda tf: tf.train.RMSPropOptimizer(0.02, epsilon=0.1),
    "centered RMSProp": lambda tf: tf.train.RMSPropOptimizer(0.02, centered=True, momentum=0.5, epsilon=0.1),
    "Adadelta": lambda tf: tf.train.AdadeltaOptimizer(1.0),
    "AdagradDA": _adagrad_da,
    "Ftrl": lambda tf: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, accum_name="sums"),
    "Ftrl with shrinkage": lambda tf: tf.train.FtrlOptimizer(
        0.1, learning_rate_power=-0.6, l2_shrinkage_regularization_strength=0.01, beta=0.1
    ),
    "ProximalGradientDescent": lambda tf: tf.train.ProximalGradientDescentOptimizer(0.02, 0.01, 0.02),
    "ProximalAdagrad": lambda tf: tf.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
}


def _model(tf: Any, use_resource: bool, is_sparse: bool, dtype: str = "float32") -> tuple[Any, Any]:
    kind = getattr(tf, dtype)
    with tf.variable_scope("layer", use_resource=use_resource, dtype=kind):
        start = np.linspace(-1, 1, 12).reshape(4, 3)
        w = tf.get_variable("W", initializer=lambda: tf.constant(start, kind))
        b = tf.get_variable("b", initializer=lambda: tf.constant([0.1, 0.2, 0.3], kind))
    if is_sparse:
        rows = tf.gather(w, tf.constant([2, 0, 2]))
        y = rows * rows + b
    else:
        x = tf.constant([[1.0, 2.0, 0.5, -1.0], [0.3, -0.2, 0.1, 0.7]], kind)
        y = tf.matmul(x, w) + b
    return w, tf.reduce_sum(tf.square(y - 1.0))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@RESOURCE
@SPARSE
def test_the_nodes_and_names_are_tensorflows(tf, optimizer, use_resource, is_sparse):
    def build(tf):
        w, loss = _model(tf, use_resource, is_sparse)
        made = OPTIMIZERS[optimizer](tf)
        op = made.minimize(loss, global_step=tf.train.get_or_create_global_step())
        again = made.minimize(loss)
        slots = [made.get_slot(w, name).name for name in made.get_slot_names()]
        return [
            op.name,
            again.name,
            made.get_name(),
            made.get_slot_names(),
            slots,
            [v.name for v in made.variables()],
            [v.name for v in tf.global_variables()],
            [v.name for v in tf.trainable_variables()],
            [o.name for o in tf.get_collection(tf.GraphKeys.TRAIN_OP)],
        ]

    (ours, mine), (theirs, wanted) = built_by_both(tf, build)
    assert mine == wanted
    # What is below "gradients" is tf.gradients' own.
    a, b = ({n: v for n, v in _nodes(tf, g).items() if not n.startswith("gradients")} for g in (ours, theirs))
    assert sorted(a) == sorted(b)
    for name in a:
        assert a[name] == b[name], f"node {name}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-6), ("float64", 1e-12)])
@RESOURCE
@SPARSE
def test_variables_and_slots_are_tensorflows_after_30_steps(
    tf, optimizer, use_resource, is_sparse, dtype, rtol
):
    if optimizer.startswith("Proximal") and dtype == "float64":
        pytest.skip("TensorFlow's takes float32 variables only")

    def build(tf):
        _, loss = _model(tf, use_resource, is_sparse, dtype)
        op = OPTIMIZERS[optimizer](tf).minimize(loss, global_step=tf.train.get_or_create_global_step())
        return op, loss, tf.global_variables(), tf.global_variables_initializer()

    (ours, mine), (theirs, wanted) = built_by_both(tf, build)
    held = []
    for module, graph, (op, loss, variables, init) in (
        (graphrt, ours, mine),
        (tf.compat.v1, theirs, wanted),
    ):
        with module.Session(graph=graph) as session:
            session.run(init)
            losses = [session.run([loss, op])[0] for _ in range(30)]
            held.append((losses, [v.name for v in variables], session.run(variables)))
    (our_losses, our_names, our_values), (losses, names, values) = held
    np.testing.assert_allclose(our_losses, losses, rtol=10 * rtol, atol=rtol)
    assert our_names == names
    for name, a, b in zip(names, our_values, values):
        assert a.dtype == b.dtype, name
        np.testing.assert_allclose(a, b, rtol=2 * rtol, atol=rtol, err_msg=name)


@RESOURCE
def test_half_precision_variables_are_trained_as_tensorflows(tf, use_resource):
    def build(tf):
        w = tf.Variable([1.0, -2.0, 3.0], dtype=tf.float16, use_resource=use_resource)
        op = tf.train.AdamOptimizer(0.125, epsilon=1e-3).minimize(tf.reduce_sum(w * w))
        return op, w, tf.global_variables_initializer()

    (ours, mine), (theirs, wanted) = built_by_both(tf, build)
    values = []
    for module, graph, (op, w, init) in ((graphrt, ours, mine), (tf.compat.v1, theirs, wanted)):
        with module.Session(graph=graph) as session:
            session.run(init)
            for _ in range(5):
                session.run(op)
            values.append(session.run(w))
    assert values[0].dtype == np.float16
    np.testing.assert_allclose(values[0], values[1], rtol=2e-3)


@RESOURCE
def test_a_sparse_gradient_leaves_other_rows_alone(use_resource):
    table = graphrt.Variable(np.ones((5, 2), np.float32), use_resource=use_resource)
    loss = graphrt.reduce_sum(graphrt.gather(table, [1, 3, 1]))
    op = graphrt.train.MomentumOptimizer(0.5, 0.9).minimize(loss)
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        session.run(op)
        np.testing.assert_allclose(session.run(table)[:, 0], [1.0, 0.0, 1.0, 0.5, 1.0])


@RESOURCE
def test_a_constraint_is_applied_after_the_update(use_resource):
    v = graphrt.Variable([3.0, -1.0], constraint=lambda w: graphrt.minimum(w, 2.5), use_resource=use_resource)
    op = graphrt.train.GradientDescentOptimizer(0.1).minimize(graphrt.reduce_sum(-v))
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        session.run(op)
        np.testing.assert_allclose(session.run(v), [2.5, -0.9])


def test_a_constraint_on_a_sparse_update_is_refused():
    v = graphrt.Variable([[3.0], [1.0]], constraint=lambda w: w)
    loss = graphrt.reduce_sum(graphrt.gather(v, [0]))
    with pytest.raises(RuntimeError, match="constraint function on a sparse variable"):
        graphrt.train.GradientDescentOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize("gate", ["GATE_NONE", "GATE_OP", "GATE_GRAPH"])
def test_gated_gradients_train_the_same(tf, gate):
    def build(tf):
        w, loss = _model(tf, False, True)
        made = tf.train.GradientDescentOptimizer(0.02)
        pairs = made.compute_gradients(loss, gate_gradients=getattr(tf.train.Optimizer, gate))
        return made.apply_gradients(pairs), w, [g.name for g, _ in pairs], tf.global_variables_initializer()

    (ours, mine), (theirs, wanted) = built_by_both(tf, build)
    if gate == "GATE_GRAPH":
        assert mine[2] == wanted[2]
    values = []
    for module, graph, (op, w, _, init) in ((graphrt, ours, mine), (tf.compat.v1, theirs, wanted)):
        with module.Session(graph=graph) as session:
            session.run(init)
            for _ in range(3):
                session.run(op)
            values.append(session.run(w))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


def test_grad_loss_and_var_list_say_what_is_differentiated():
    a, b = graphrt.Variable([1.0, 2.0]), graphrt.Variable([3.0, 4.0])
    pairs = graphrt.train.GradientDescentOptimizer(1.0).compute_gradients(
        a * b, var_list=[a], grad_loss=[10.0, 100.0]
    )
    assert [v for _, v in pairs] == [a]
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        np.testing.assert_array_equal(session.run(pairs[0][0]), [30.0, 400.0])


def test_slots_of_partitioned_variables_know_their_part():
    v = graphrt.get_variable(
        "v", [4, 2], initializer=graphrt.initializers.ones(), partitioner=graphrt.fixed_size_partitioner(2)
    )
    made = graphrt.train.MomentumOptimizer(0.1, 0.9)
    made.minimize(graphrt.reduce_sum(graphrt.convert_to_tensor(v)))
    info = made.get_slot(list(v)[1], "momentum")._get_save_slice_info()
    assert (info.full_name, info.spec) == ("v/Momentum", "4 2 2,2:0,2")


def test_an_optimizer_of_ones_own_overrides_the_apply_methods():
    class Sign(graphrt.train.Optimizer):
        def __init__(self):
            super().__init__(use_locking=False, name="Sign")

        def _create_slots(self, var_list):
            for v in var_list:
                self._zeros_slot(v, "count", self._name)

        def _apply_dense(self, grad, var):
            count = self.get_slot(var, "count").assign_add(graphrt.ones_like(grad))
            return graphrt.group(var.assign_sub(graphrt.sign(grad)), count)

    v = graphrt.Variable([5.0, -5.0])
    made = Sign()
    op = made.minimize(graphrt.reduce_sum(v * v))
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        for _ in range(2):
            session.run(op)
        np.testing.assert_array_equal(session.run(v), [3.0, -3.0])
        np.testing.assert_array_equal(session.run(made.get_slot(v, "count")), [2.0, 2.0])
    with pytest.raises(NotImplementedError, match="Sign cannot train resource variables with dense"):
        r = graphrt.Variable([1.0], use_resource=True)
        made.minimize(graphrt.reduce_sum(r), var_list=[r])


def test_bad_training_says_what_would_do():
    v, n = graphrt.Variable([1.0]), graphrt.Variable([1], trainable=False)
    made = graphrt.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="No gradients provided for any variable, check your graph"):
        made.minimize(graphrt.constant(1.0) * 2.0, var_list=[v])
    with pytest.raises(ValueError, match="Invalid type tf.int32"):
        made.minimize(graphrt.reduce_sum(n), var_list=[n])
    with pytest.raises(ValueError, match="gate_gradients must be one of"):
        made.compute_gradients(graphrt.reduce_sum(v), gate_gradients=7)
    with pytest.raises(ValueError, match="No variables provided"):
        made.apply_gradients([])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        made.apply_gradients([(None, v)])
    with pytest.raises(TypeError, match="Gradient must be convertible to a Tensor"):
        made.apply_gradients([(object(), v)])
    with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
        made.apply_gradients([(graphrt.constant(1.0), graphrt.constant(1.0))])
    with pytest.raises(TypeError, match="takes the loss as a tensor"):
        made.compute_gradients(lambda: 1.0)
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        graphrt.train.GradientDescentOptimizer(0.1, name="")
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive"):
        graphrt.train.AdagradOptimizer(0.1, initial_accumulator_value=0.0)
    with pytest.raises(ValueError, match="learning_rate_power 0.5 needs to be negative or zero"):
        graphrt.train.FtrlOptimizer(0.1, learning_rate_power=0.5)


def test_a_graph_without_variables_cannot_be_trained():
    with pytest.raises(ValueError, match="No variables to optimize"):
        graphrt.train.GradientDescentOptimizer(0.1).minimize(graphrt.constant(1.0))
