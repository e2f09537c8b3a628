"""Conditionals whose predicate, branches and results are on several devices: dead tensors cross too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphrt as tf
from graphrt.core import errors


@pytest.fixture(params=["cpus", "sim"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two devices: two CPUs, or a CPU and a simulated GPU."""
    if request.param == "sim":
        monkeypatch.setenv("GRAPHRT_SIM_GPUS", "1")
        return "/cpu:0", "/gpu:0"
    return "/cpu:0", "/cpu:1"


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest):
    if request.param == "v2":
        tf.enable_control_flow_v2()
    yield request.param
    tf.disable_control_flow_v2()


def _session(**options: Any) -> tf.Session:
    return tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True, **options))


def test_a_branch_on_another_device_runs_where_it_is_taken(pair, version):
    here, there = pair
    with tf.device(here):
        p, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])

    def branch():
        with tf.device(there):
            return tf.exp(x) * 2.0

    with tf.device(here):
        y = tf.cond(p, branch, lambda: x - 1.0)
    (gradient,) = tf.gradients(y, x)
    with _session() as session:
        for _ in range(3):
            value, slope = session.run([y, gradient], {p: True, x: [0.0, 1.0]})
            np.testing.assert_allclose(value, 2 * np.exp([0, 1]), rtol=1e-6)
            np.testing.assert_allclose(slope, 2 * np.exp([0, 1]), rtol=1e-6)
            value, slope = session.run([y, gradient], {p: False, x: [0.0, 1.0]})
            np.testing.assert_array_equal(value, [-1, 0])
            np.testing.assert_array_equal(slope, [1, 1])


def test_effects_on_another_device_happen_in_the_taken_branch_only(version):
    p = tf.placeholder(tf.bool, [])
    with tf.device("/cpu:1"):
        a, b = tf.Variable(0, use_resource=True, name="a"), tf.Variable(0, use_resource=True, name="b")

    def count(variable, value):
        with tf.control_dependencies([variable.assign_add(1)]):
            return tf.constant(value)

    with tf.device("/cpu:0"):
        y = tf.cond(p, lambda: count(a, 1.0), lambda: count(b, 2.0))
    with _session() as session:
        session.run(tf.global_variables_initializer())
        for chosen, expected in ((True, 1.0), (False, 2.0), (True, 1.0)):
            assert session.run(y, {p: chosen}) == expected
        assert session.run([a, b]) == [2, 1]


def test_a_predicate_of_another_device_decides(pair, version):
    here, there = pair
    with tf.device(there):
        x = tf.placeholder(tf.float32, [])
        p = tf.square(x) > 4.0
    with tf.device(here):
        y = tf.cond(p, lambda: x * 10.0, lambda: -x)
    with tf.device(there):
        z = y + 1.0
    with _session() as session:
        assert session.run(z, {x: 3.0}) == 31.0
        assert session.run(z, {x: 1.0}) == 0.0


def test_nested_branches_on_other_devices(pair, version):
    here, there = pair
    p, q, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [])

    def on(device, function):
        def build():
            with tf.device(device):
                return function()

        return build

    y = tf.cond(
        p,
        on(there, lambda: tf.cond(q, on(here, lambda: x * 2.0), on(there, lambda: x * 3.0))),
        on(here, lambda: tf.cond(q, on(there, lambda: x * 5.0), on(here, lambda: x * 7.0))),
    )
    (gradient,) = tf.gradients(y, x)
    with _session() as session:
        found = {
            (a, b): session.run([y, gradient], {p: a, q: b, x: 1.0})
            for a in (True, False)
            for b in (True, False)
        }
    assert found == {
        (True, True): [2, 2],
        (True, False): [3, 3],
        (False, True): [5, 5],
        (False, False): [7, 7],
    }


def test_a_dead_tensor_that_crossed_has_no_value_there():
    p = tf.placeholder(tf.bool, [])
    with tf.device("/cpu:0"):
        at_false, _ = tf.raw_ops.Switch(data=tf.constant(2.0), pred=p)
    with tf.device("/cpu:1"):
        y = at_false * 3.0
    with _session() as session:
        assert session.run(y, {p: False}) == 6.0
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            session.run(y, {p: True})


def test_a_variable_in_a_branch_keeps_its_device(version):
    p = tf.placeholder(tf.bool, [])
    with tf.device("/cpu:1"):
        v = tf.Variable([1.0, 2.0], use_resource=True)
    with tf.device("/cpu:0"):
        y = tf.cond(p, lambda: v * 2.0, lambda: tf.zeros([2]))
        (gradient,) = tf.gradients(y, v)
        update = v.assign_sub(gradient)
    with _session() as session:
        session.run(v.initializer)
        session.run(update, {p: True})
        np.testing.assert_array_equal(session.run(v), [-1, 0])
        session.run(update, {p: False})
        np.testing.assert_array_equal(session.run(v), [-1, 0])


_DEVICES = ("/cpu:0", "/cpu:1", "/gpu:0")


@st.composite
def _placed(draw: st.DrawFn, depth: int = 0) -> Any:
    """(device, kind, parts): a conditional, an operation, or the input."""
    kind = draw(st.sampled_from(["cond", "cond", "add", "mul", "x"] if depth < 3 else ["x", "constant"]))
    device = draw(st.sampled_from(_DEVICES))
    if kind in ("x", "constant"):
        return device, kind, draw(st.integers(-3, 3))
    return (
        device,
        kind,
        (draw(st.integers(0, 1)), draw(_placed(depth=depth + 1)), draw(_placed(depth=depth + 1))),
    )


def _build(e: Any, x: Any, predicates: list[Any]) -> Any:
    device, kind, parts = e
    with tf.device(device):
        if kind == "x":
            return x * 1.0
        if kind == "constant":
            return tf.constant(float(parts))
        which, a, b = parts
        if kind == "cond":
            return tf.cond(
                predicates[which], lambda: _build(a, x, predicates), lambda: _build(b, x, predicates)
            )
        left, right = _build(a, x, predicates), _build(b, x, predicates)
        return left + right if kind == "add" else left * right


def _evaluate(e: Any, x: float, predicates: tuple[bool, bool]) -> float:
    _, kind, parts = e
    if kind in ("x", "constant"):
        return x if kind == "x" else float(parts)
    which, a, b = parts
    if kind == "cond":
        return _evaluate(a if predicates[which] else b, x, predicates)
    left, right = _evaluate(a, x, predicates), _evaluate(b, x, predicates)
    return left + right if kind == "add" else left * right


@settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(_placed(), st.booleans())
def test_placement_does_not_change_values(
    monkeypatch: pytest.MonkeyPatch, expression: Any, functional: bool
) -> None:
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "1")
    (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [])
            predicates = [tf.placeholder(tf.bool, []) for _ in range(2)]
            y = _build(expression, x, predicates)
            with _session() as session:
                for a in (True, False):
                    for b in (True, False):
                        found = session.run(y, {x: 2.0, predicates[0]: a, predicates[1]: b})
                        assert found == pytest.approx(_evaluate(expression, 2.0, (a, b)))
    finally:
        tf.disable_control_flow_v2()
