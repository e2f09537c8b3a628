"""Ops on variables' memory beyond what their samples show: errors at run time, snapshots, locks, blocks."""

import threading
from typing import Any

import numpy as np
import pytest

import graphrt
from graphrt.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from graphrt.core.registry import OPS, KernelContext
from graphrt.core.resources import VariableState
from graphrt.core.shapes import TensorShape
from graphrt.ops import training_update
from graphrt.ops.scatter_kernels import distinct_rounds, scatter_rows
from graphrt.ops.training_update import BLOCK

RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
raw = graphrt.raw_ops


def run(fetch: Any, feed: Any = None) -> Any:
    with graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        return session.run(fetch, feed)


def state(value: Any, is_ref: bool = True, name: str = "v") -> VariableState:
    array = np.array(value)
    made = VariableState(name, graphrt.as_dtype(array.dtype), TensorShape(array.shape), is_ref)
    made.assign(array, np)
    return made


def kernel(op_type: str, dtype: Any = graphrt.float32, **attrs: Any) -> Any:
    """The bound kernel of an op whose attrs are T and those given."""
    op_def = OPS[op_type]
    defaults = {name: attr.default for name, attr in op_def.attrs.items() if name not in ("T", "Tindices")}
    given = {**defaults, "T": dtype, **attrs}
    return op_def.impl.bind(KernelContext(op_type.lower(), op_type, given, [], [dtype]))


@RESOURCE
@pytest.mark.parametrize("update", ["assign", "assign_add", "assign_sub"])
def test_a_value_of_another_shape_is_refused_when_it_runs(use_resource, update):
    v = graphrt.Variable([1.0, 2.0], name="weights", use_resource=use_resource)
    x = graphrt.placeholder(graphrt.float32)
    with pytest.raises(InvalidArgumentError, match="weights") as error:
        run(getattr(v, update)(x), {x: [1.0, 2.0, 3.0]})
    assert "[2]" in str(error.value) and "[3]" in str(error.value)


@RESOURCE
def test_updating_an_uninitialised_variable_names_it(use_resource):
    v = graphrt.Variable([1.0], name="weights", use_resource=use_resource)
    for update in (v.assign_add([1.0]), v.scatter_nd_add([[0]], [1.0])):
        with pytest.raises(FailedPreconditionError, match="uninitialized value weights"):
            with graphrt.Session() as session:
                session.run(update)


@RESOURCE
@pytest.mark.parametrize("bad", [3, -1])
def test_a_scatter_index_outside_names_the_index_its_place_and_the_variable(use_resource, bad):
    v = graphrt.Variable([[1.0], [2.0], [3.0]], name="table", use_resource=use_resource)
    i = graphrt.placeholder(graphrt.int32, [2, 2])
    update = graphrt.scatter_add(v, i, np.zeros((2, 2, 1), np.float32))
    message = rf"indices\[1, 0\] = {bad} is not in \[0, 3\) \(variable 'table'\)"
    with pytest.raises(InvalidArgumentError, match=message):
        run(update, {i: [[0, 1], [bad, 2]]})


@RESOURCE
def test_a_scatter_nd_index_outside_is_refused_or_ignored_as_asked(use_resource):
    v = graphrt.Variable([1.0, 2.0, 3.0], name="table", use_resource=use_resource)
    op = raw.ResourceScatterNdAdd if use_resource else raw.ScatterNdAdd
    memory = v.handle if use_resource else v._ref()
    i = graphrt.placeholder(graphrt.int32, [2, 1])
    strict = op(memory, i, [10.0, 20.0])
    lenient = op(memory, i, [10.0, 20.0], bad_indices_policy="IGNORE")
    with graphrt.Session() as session:
        session.run(v.initializer)
        with pytest.raises(
            InvalidArgumentError, match=r"indices\[1\] = \[7\] does not index into shape \[3\]"
        ):
            session.run(strict, {i: [[0], [7]]})
        session.run(lenient, {i: [[0], [7]]})
        np.testing.assert_array_equal(session.run(v), [11.0, 2.0, 3.0])
        with pytest.raises(InvalidArgumentError, match="bad_indices_policy is"):
            session.run(op(memory, i, [1.0, 1.0], bad_indices_policy="SOMETIMES"), {i: [[0], [1]]})


def test_scatter_updates_of_another_shape_are_refused_while_building_and_when_run():
    v = graphrt.Variable([[1.0, 2.0], [3.0, 4.0]], name="table")
    with pytest.raises(ValueError, match="updates must have the shape of indices plus that of a row"):
        graphrt.scatter_add(v, [0, 1], [1.0, 2.0])
    x = graphrt.placeholder(graphrt.float32)
    with pytest.raises(
        InvalidArgumentError, match=r"indices of shape \[2\] into a variable of shape \[2, 2\]"
    ):
        run(graphrt.scatter_add(v, [0, 1], x), {x: [1.0, 2.0]})


@RESOURCE
def test_count_up_to_ends_with_out_of_range(use_resource):
    v = graphrt.Variable(0, name="counter", use_resource=use_resource)
    step = v.count_up_to(2)
    with graphrt.Session() as session:
        session.run(v.initializer)
        assert [session.run(step), session.run(step)] == [0, 1]
        with pytest.raises(OutOfRangeError, match=r"Reached limit of 2 \(variable 'counter'\)"):
            session.run(step)


@pytest.mark.parametrize("bad", [2, -1])
def test_resource_gather_refuses_an_index_outside(bad):
    v = graphrt.Variable([[1.0], [2.0]], name="table", use_resource=True)
    with pytest.raises(InvalidArgumentError, match=rf"indices\[1\] = {bad} is not in \[0, 2\)"):
        run(v.sparse_read([0, bad]))


def test_the_gradient_of_a_sparse_read_is_sparse_and_right(tf):
    def build(tf):
        v = tf.Variable(np.arange(6.0).reshape(3, 2), dtype=tf.float32, use_resource=True)
        grad = tf.gradients(tf.reduce_sum(tf.square(v.sparse_read([2, 0, 2]))), v)[0]
        nd = tf.gradients(tf.reduce_sum(tf.square(v.gather_nd([[0, 1], [2, 0]]))), v)[0]
        assert isinstance(grad, tf.IndexedSlices)
        return [tf.convert_to_tensor(grad), nd, grad.indices]

    from tests.same_graph import assert_same_values

    assert_same_values(tf, build, initialize=True)


def test_a_destroyed_resource_is_uninitialised_and_may_be_initialised_again():
    v = graphrt.Variable([1.0], use_resource=True)
    strict = raw.DestroyResourceOp(v.handle, ignore_lookup_error=False)
    with graphrt.Session() as session:
        session.run(v.initializer)
        session.run(strict)
        with pytest.raises(NotFoundError, match="does not exist"):
            session.run(strict)
        session.run(v.initializer)
        np.testing.assert_array_equal(session.run(v), [1.0])


def test_a_temporary_variable_is_new_in_every_step():
    ref = raw.TemporaryVariable(shape=[], dtype=graphrt.int32, var_name="t")
    counted = raw.AssignAdd(ref, 1)
    last = raw.DestroyTemporaryVariable(counted, var_name="t")
    with graphrt.Session() as session:
        assert [int(session.run(last)) for _ in range(3)] == [1, 1, 1]


def test_one_name_with_two_dtypes_or_kinds_is_refused_with_both():
    raw.VariableV2(shape=[2], dtype=graphrt.float32, shared_name="w", name="first")
    other_dtype = raw.VariableV2(shape=[2], dtype=graphrt.int32, shared_name="w", name="second")
    handle = raw.VarHandleOp(shape=[2], dtype=graphrt.float32, shared_name="w", name="third")
    with graphrt.Session() as session:
        session.run(raw.Assign(graphrt.get_default_graph().get_tensor_by_name("first:0"), [1.0, 2.0]))
        with pytest.raises(InvalidArgumentError, match="exists as float32 .*'first'.*asks for int32"):
            session.run(raw.IsVariableInitialized(other_dtype))
        with pytest.raises(
            InvalidArgumentError, match="exists as a ref variable.*asks for a resource variable"
        ):
            session.run(raw.VarIsInitializedOp(handle))


def test_containers_keep_variables_of_one_name_apart():
    with graphrt.container("a"):
        x = raw.VariableV2(shape=[], dtype=graphrt.float32, shared_name="v")
    with graphrt.container("b"):
        y = raw.VariableV2(shape=[], dtype=graphrt.float32, shared_name="v")
    with graphrt.Session() as session:
        session.run([raw.Assign(x, 1.0), raw.Assign(y, 2.0)])
        assert session.run([x, y]) == [1.0, 2.0]


def test_a_resource_snapshot_outlives_an_update_and_a_ref_alias_shows_it():
    for is_ref in (False, True):
        v = state([1.0, 2.0], is_ref)
        before = v.read()
        kernel("AssignAdd" if is_ref else "AssignAddVariableOp", dtype=graphrt.float64)(
            v, np.array([1.0, 1.0])
        )
        np.testing.assert_array_equal(v.read(), [2.0, 3.0])
        np.testing.assert_array_equal(before, [2.0, 3.0] if is_ref else [1.0, 2.0])


def test_an_update_of_an_array_that_no_one_else_holds_is_in_place():
    v = state(np.zeros(8, np.float32), is_ref=False)
    address = v.array.__array_interface__["data"]
    kernel("ResourceApplyGradientDescent")(v, np.float32(0.5), np.ones(8, np.float32))
    assert v.array.__array_interface__["data"] == address
    np.testing.assert_array_equal(v.array, np.full(8, -0.5))


def test_a_variable_updated_by_itself_is_right():
    v = state([1.0, 2.0, 3.0])
    kernel("AssignAdd", dtype=graphrt.float64)(v, v.read())
    np.testing.assert_array_equal(v.read(), [2.0, 4.0, 6.0])
    grad = v.read()
    kernel("ApplyMomentum", dtype=graphrt.float64)(
        v, state(np.zeros(3)), np.float64(0.5), grad, np.float64(0.0)
    )
    np.testing.assert_array_equal(v.read(), [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "optimizer, n_slots, n_scalars", [("Adam", 2, 6), ("Adadelta", 2, 3), ("Ftrl", 2, None)]
)
@pytest.mark.parametrize("size", [BLOCK, BLOCK + 1, 3 * BLOCK - 5])
def test_a_step_in_blocks_is_the_step_at_once(optimizer, n_slots, n_scalars, size):
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.5, 1.5, size).astype(np.float32) for _ in range(1 + n_slots)]
    grad = rng.standard_normal(size).astype(np.float32)
    step = kernel("Apply" + optimizer)

    def after(part: slice) -> list[np.ndarray]:
        states = [state(v[part]) for v in values]
        if n_scalars is None:
            step(*states, grad[part], *(np.float32(s) for s in (0.1, 0.01, 0.02, -0.5)))
        else:
            step(*states, *[np.float32(0.3)] * n_scalars, grad[part])
        return [s.array for s in states]

    whole = after(slice(None))
    cut = size // 3
    parts = [np.concatenate(pair) for pair in zip(after(slice(0, cut)), after(slice(cut, None)))]
    for a, b in zip(whole, parts):
        np.testing.assert_array_equal(a, b)


def test_a_gradient_that_is_not_contiguous_is_taken_in_its_order():
    grad = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    v = state(np.zeros((3, 2), np.float32))
    kernel("ApplyGradientDescent")(v, np.float32(1.0), grad)
    np.testing.assert_array_equal(v.array, -grad)


def test_a_gradient_or_slot_of_another_shape_is_refused():
    v, slot = state(np.zeros(3, np.float32), name="w"), state(np.zeros(2, np.float32))
    with pytest.raises(InvalidArgumentError, match=r"grad has shape \[2\]; variable 'w' takes \[3\]"):
        kernel("ApplyAdagrad")(v, state(np.zeros(3, np.float32)), np.float32(1), np.zeros(2, np.float32))
    with pytest.raises(InvalidArgumentError, match=r"accum has shape \[2\]; variable 'w' takes \[3\]"):
        kernel("ApplyAdagrad")(v, slot, np.float32(1), np.zeros(3, np.float32))
    with pytest.raises(InvalidArgumentError, match="lr is not a scalar"):
        kernel("ApplyAdagrad")(v, slot, np.ones(1, np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="lr must be a scalar"):
        raw.ApplyAdagrad(graphrt.Variable([1.0]), graphrt.Variable([1.0]), [1.0], [1.0])
    with pytest.raises(ValueError, match="do not have the same shape"):
        raw.ApplyAdagrad(graphrt.Variable([1.0]), graphrt.Variable([1.0, 2.0]), 1.0, [1.0])


def test_steps_that_lock_the_same_variables_in_opposite_order_end():
    a, b = state(np.zeros(64, np.float32)), state(np.zeros(64, np.float32))
    step = kernel("ApplyMomentum")
    grad = np.ones(64, np.float32)

    def work(first: VariableState, second: VariableState) -> None:
        for _ in range(300):
            step(first, second, np.float32(0.0), grad, np.float32(0.5))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in ((a, b), (b, a))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_concurrent_additions_are_all_counted():
    v = graphrt.Variable(np.zeros(100, np.float32), use_resource=True)
    update = v.assign_add(np.ones(100, np.float32), read_value=False)
    with graphrt.Session() as session:
        session.run(v.initializer)
        threads = [
            threading.Thread(target=lambda: [session.run(update) for _ in range(50)], daemon=True)
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        np.testing.assert_array_equal(session.run(v), np.full(100, 200.0))


@pytest.mark.parametrize("indices", [[], [3], [0, 1, 2], [5, 5, 5], [1, 0, 1, 2, 0, 1]])
def test_rounds_hold_every_position_once_in_order_and_no_index_twice(indices):
    vector = np.array(indices, np.int64)
    rounds = [np.arange(len(indices))[chosen] for chosen in distinct_rounds(vector)]
    assert sorted(np.concatenate(rounds).tolist()) == list(range(len(indices)))
    for chosen in rounds:
        assert len(set(vector[chosen].tolist())) == len(chosen)
    for index in set(indices):
        places = [int(p) for chosen in rounds for p in chosen if vector[p] == index]
        assert places == sorted(places)


@pytest.mark.parametrize("how", ["Add", "Sub", "Mul", "Div", "Min", "Max", "Update"])
def test_scattering_equal_indices_is_one_after_the_other(how):
    rng = np.random.default_rng(1)
    array = rng.uniform(0.5, 2.0, (4, 3))
    rows = np.array([1, 3, 1, 1, 0, 3])
    updates = rng.uniform(0.5, 2.0, (6, 3))
    wanted = array.copy()
    step = {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "Min": np.minimum,
        "Max": np.maximum,
        "Update": lambda _, u: u,
    }[how]
    for row, update in zip(rows, updates):
        wanted[row] = step(wanted[row], update)
    scatter_rows(np, how, array, rows, updates)
    np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "optimizer, n_slots, n_scalars, grad_at",
    [("GradientDescent", 0, 1, 1), ("Momentum", 1, 2, 1), ("Adam", 2, 6, 6), ("RMSProp", 2, 4, 4)],
)
def test_compiled_steps_give_the_bits_of_numpys(monkeypatch, optimizer, n_slots, n_scalars, grad_at, dtype):
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    values = [rng.uniform(0.5, 1.5, (37, 5)).astype(dtype) for _ in range(1 + n_slots)]
    scalars: list[Any] = [dtype(s) for s in rng.uniform(0.1, 0.9, n_scalars)]
    scalars.insert(grad_at, rng.standard_normal((5, 37)).astype(dtype).T)  # a gradient that is not contiguous
    scalars[0] = np.asarray(scalars[0])

    def after_three_steps() -> list[np.ndarray]:
        states = [state(v) for v in values]
        step = kernel("Apply" + optimizer, graphrt.as_dtype(dtype))
        for _ in range(3):
            step(*states, *scalars)
        return [s.array for s in states]

    monkeypatch.setattr(training_update, "compiled_steps", training_update.CompiledSteps())
    plain = after_three_steps()
    assert training_update.compiled_steps.load()
    for a, b in zip(plain, after_three_steps()):
        np.testing.assert_array_equal(a, b)


def test_steps_are_compiled_once_a_process_has_trained_much(monkeypatch):
    pytest.importorskip("numba")
    steps = training_update.CompiledSteps()
    loaded = threading.Event()
    monkeypatch.setattr(steps, "load", loaded.set)
    monkeypatch.setattr(training_update, "compiled_steps", steps)
    monkeypatch.setattr(training_update, "_COMPILE_AFTER", 20)
    step = kernel("ApplyGradientDescent")
    v = state(np.zeros(8, np.float32))
    for _ in range(2):
        step(v, np.float32(1), np.ones(8, np.float32))
    assert not loaded.is_set()
    step(v, np.float32(1), np.ones(8, np.float32))
    assert loaded.wait(30)
