"""tf.py_func: Python functions in a step."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import graphrt as tf
from graphrt.core import errors


def test_a_function_gets_arrays_and_returns_arrays():
    seen = []

    def double(a, b, text):
        seen.append((type(a), type(b), text))
        return a * 2

    y = tf.py_func(double, [tf.constant(1.5), tf.constant([1, 2]), tf.constant("ab")], tf.float32)
    assert y.shape.rank is None
    with tf.Session() as session:
        assert session.run(y) == 3.0
    assert seen == [(np.float32, np.ndarray, b"ab")]


def test_several_results_come_as_a_list():
    total, plus = tf.py_func(
        lambda a: (a.sum(dtype=np.int32), a + 1), [tf.constant([1, 2])], [tf.int32, tf.int32]
    )
    with tf.Session() as session:
        found = session.run([total, plus])
    assert found[0] == 3
    np.testing.assert_array_equal(found[1], [2, 3])


def test_python_values_are_taken_as_the_dtype_asked_for():
    fetches = [
        tf.py_func(lambda: 3, [], tf.int64),
        tf.py_func(lambda: "é", [], tf.string),
        tf.py_func(lambda: [1, 2], [], tf.int32),
        tf.py_func(lambda: True, [], tf.bool),
        tf.numpy_function(lambda: 0.5, [], tf.float64),
    ]
    with tf.Session() as session:
        whole, text, listed, flag, half = session.run(fetches)
    assert (whole, text, flag, half) == (3, "é".encode(), True, 0.5)
    np.testing.assert_array_equal(listed, np.array([1, 2], np.int32))


def test_no_result_is_an_operation():
    seen = []
    op = tf.py_func(lambda: seen.append(1), [], [])
    assert isinstance(op, tf.Operation)
    with tf.Session() as session:
        session.run(op)
        session.run(op)
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (
            lambda: 1,
            errors.InvalidArgumentError,
            "0-th value returned by pyfunc_.* is int64, but expects float32",
        ),
        (lambda: np.float64(1), errors.InvalidArgumentError, "is float64, but expects float32"),
        (lambda: (1.0, 2.0), errors.InvalidArgumentError, "returns 2 values, but expects to see 1 values"),
        (lambda: None, errors.InvalidArgumentError, "0-th value returned"),
        (lambda: 1 / 0, errors.UnknownError, "ZeroDivisionError: division by zero"),
        (lambda: int("x"), errors.InvalidArgumentError, "ValueError: invalid literal"),
        (lambda: 1 + "", errors.InvalidArgumentError, "TypeError: unsupported operand"),
        (lambda: next(iter([])), errors.OutOfRangeError, "StopIteration"),
    ],
)
def test_what_goes_wrong_says_so(function, error, text):
    y = tf.py_func(function, [], tf.float32)
    with tf.Session() as session, pytest.raises(error, match=text):
        session.run(y)


def test_a_function_may_write_to_its_arguments():
    v = tf.Variable([1.0, 2.0], use_resource=True)

    def spoil(a):
        a[:] = -1
        return a

    y = tf.py_func(spoil, [v.read_value()], tf.float32)
    with tf.Session() as session:
        session.run(v.initializer)
        np.testing.assert_array_equal(session.run(y), [-1, -1])
        np.testing.assert_array_equal(session.run(v), [1, 2])


def test_a_graph_keeps_its_functions():
    def build():
        captured = [5.0]
        return tf.py_func(lambda: captured[0], [], tf.float32)

    y = build()
    gc.collect()
    with tf.Session() as session:
        assert session.run(y) == 5.0


def test_a_token_of_another_process_is_named():
    y = tf.raw_ops.PyFunc(input=[], token="pyfunc_elsewhere", Tout=[tf.float32])[0]
    with (
        tf.Session() as session,
        pytest.raises(errors.InvalidArgumentError, match="registered as 'pyfunc_elsewhere' in this process"),
    ):
        session.run(y)


def test_two_functions_that_wait_for_each_other_both_run():
    barrier = threading.Barrier(2, timeout=30)

    def meet():
        barrier.wait()
        return 1.0

    a, b = tf.py_func(meet, [], tf.float32), tf.py_func(meet, [], tf.float32)
    with tf.Session() as session:
        assert session.run(a + b) == 2.0


def test_what_is_computed_after_a_function_takes_its_value():
    x = tf.placeholder(tf.float32, [2])
    y = tf.py_func(lambda a: a + 1, [x * 2.0], tf.float32)
    y.set_shape([2])
    z = tf.cond(y[0] > 5.0, lambda: tf.py_func(lambda a: a * 100, [y], tf.float32), lambda: y)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(z, {x: [3, 1]}), [700, 300])
        np.testing.assert_array_equal(session.run(z, {x: [1, 1]}), [3, 3])
