"""Session: fetches, feeds, options, callables, partial runs, threads, and what each answers to bad input."""

from __future__ import annotations

import collections
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphrt as tf


class Pair(NamedTuple):
    first: Any
    second: Any


def test_the_result_has_the_form_of_the_fetches() -> None:
    a, b = tf.constant(1.0), tf.constant([2, 3])
    nothing = tf.no_op()
    with tf.Session() as sess:
        assert sess.run(a) == 1.0 and isinstance(sess.run(a), np.float32)
        assert sess.run(nothing) is None
        assert sess.run([]) == []
        made = sess.run({"x": a, "y": (b, [nothing]), "z": Pair(a, b), "o": collections.OrderedDict(q=a)})
    assert made["x"] == 1.0 and made["y"][0].tolist() == [2, 3] and made["y"][1] == [None]
    assert isinstance(made["z"], Pair) and made["z"].second.tolist() == [2, 3]
    assert isinstance(made["o"], collections.OrderedDict)


def test_names_and_the_same_tensor_twice_are_fine() -> None:
    a = tf.constant([1.0, 2.0], name="a")
    with tf.Session() as sess:
        first, again, by_name = sess.run([a, a, "a:0"])
        assert sess.run("a") is None
    assert first.tolist() == again.tolist() == by_name.tolist() == [1.0, 2.0]


def test_any_tensor_can_be_fed_and_what_computes_it_is_cut_off() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    y = x * 2.0
    z = y + 1.0
    with tf.Session() as sess:
        assert sess.run(z, {y: 10.0}) == 11.0
        assert sess.run(z, {"x:0": 3}) == 7.0
        assert sess.run([y, z], {y: 5.0}) == [5.0, 6.0]


def test_a_fetched_feed_is_not_the_callers_array() -> None:
    x = tf.placeholder(tf.float32, [2])
    given = np.array([1.0, 2.0], np.float32)
    with tf.Session() as sess:
        got = sess.run(x, {x: given})
    got[0] = 9.0
    assert given[0] == 1.0


def test_a_fed_array_is_never_written() -> None:
    x = tf.placeholder(tf.float32, [3])
    y = tf.exp(tf.square(x + 1.0))
    given = np.array([0.0, 1.0, 2.0], np.float32)
    with tf.Session() as sess:
        for _ in range(4):
            sess.run(y, {x: given})
    assert given.tolist() == [0.0, 1.0, 2.0]


def test_fetched_arrays_keep_their_values_through_later_steps() -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.nn.relu(x * 2.0)
    z = tf.reshape(y, [-1])
    held = []
    with tf.Session() as sess:
        for i in range(100):
            held.append((i, sess.run([y, z], {x: np.full((3, 4), i, np.float32)})))
    for i, (first, second) in held:
        assert (first == 2 * i).all() and (second == 2 * i).all()


def test_fetched_variables_keep_their_values_through_updates() -> None:
    for use_resource in (False, True):
        v = tf.Variable([1.0, 2.0], use_resource=use_resource)
        add = tf.assign_add(v, [1.0, 1.0])
        with tf.Session() as sess:
            sess.run(v.initializer)
            before = sess.run(v)
            sess.run(add)
            assert before.tolist() == [1.0, 2.0] and sess.run(v).tolist() == [2.0, 3.0]


def test_eval_and_run_use_the_default_session() -> None:
    a = tf.constant(2.0)
    with pytest.raises(ValueError, match="No default session is registered"):
        a.eval()
    with tf.Session().as_default() as sess:
        assert a.eval() == 2.0
        tf.no_op().run()
    sess.close()


def test_interactive_session_is_the_default_until_it_is_closed() -> None:
    sess = tf.InteractiveSession()
    assert (tf.constant(1.0) + 1.0).eval() == 2.0
    sess.close()
    assert tf.get_default_session() is None


def test_what_cannot_be_fetched_is_named() -> None:
    tf.constant(1.0)
    with tf.Session() as sess:
        with pytest.raises(TypeError, match="None"):
            sess.run(None)
        with pytest.raises(ValueError, match="'nowhere:0'.*does not exist"):
            sess.run("nowhere:0")
        with pytest.raises(TypeError, match="int"):
            sess.run(3)


def test_a_fetch_or_feed_of_another_graph_is_refused() -> None:
    with tf.Graph().as_default():
        other = tf.placeholder(tf.float32, [])
    mine = tf.constant(1.0)
    with tf.Session() as sess:
        with pytest.raises(ValueError, match="is not an element of this graph"):
            sess.run(other)
        with pytest.raises(
            TypeError, match="Cannot interpret feed_dict key as Tensor.*not an element of this graph"
        ):
            sess.run(mine, {other: 1.0})


def test_feeds_of_the_wrong_shape_dtype_or_kind_are_refused_before_anything_runs() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    n = tf.placeholder(tf.int32, [], name="n")
    y = x + 1.0
    with tf.Session() as sess:
        with pytest.raises(
            ValueError,
            match=r"Cannot feed value of shape \(2, 2\) for Tensor 'x:0', which has shape '\(\?, 3\)'",
        ):
            sess.run(y, {x: np.ones((2, 2))})
        with pytest.raises(ValueError, match="cannot feed"):
            sess.run(y, {x: "text"})
        with pytest.raises(TypeError, match="cannot be a tf.Tensor object"):
            sess.run(y, {x: y})
        with pytest.raises(TypeError, match="larger type"):
            sess.run(n + 1, {n: 2**40})
        with pytest.raises(TypeError, match="float"):
            sess.run(n + 1, {n: 1.5})


def test_an_unfed_placeholder_says_how_to_feed_it() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    with (
        tf.Session() as sess,
        pytest.raises(
            tf.errors.InvalidArgumentError,
            match="You must feed a value for placeholder tensor 'x' with dtype float",
        ) as caught,
    ):
        sess.run(x + 1.0)
    assert "test_session.py" in str(caught.value) and "feed_dict" in str(caught.value)


def test_an_uninitialised_variable_is_named() -> None:
    for use_resource in (False, True):
        v = tf.Variable(1.0, name=f"v{use_resource}", use_resource=use_resource)
        with (
            tf.Session() as sess,
            pytest.raises(tf.errors.FailedPreconditionError, match=f"v{use_resource}.*initializer"),
        ):
            sess.run(v + 1.0)


def test_an_error_at_run_time_names_the_op_its_line_and_the_device() -> None:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    z = tf.matmul(x, y, name="product")
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(z, {x: np.ones((2, 3)), y: np.ones((2, 3))})
    text = str(caught.value)
    assert "'product' (BatchMatMulV2)" in text and "test_session.py" in text and "/device:CPU:0" in text
    assert "[2, 3]" in text
    assert caught.value.op is z.op


def test_make_callable_feeds_by_position() -> None:
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with tf.Session() as sess:
        call = sess.make_callable([x - y, x * y], [y, x])
        assert call(1.0, 5.0) == [4.0, 5.0]
        with pytest.raises(TypeError, match="exactly 2"):
            call(1.0)
        nothing = sess.make_callable(tf.no_op())
        assert nothing() is None


def test_partial_run_goes_on_where_it_stopped() -> None:
    a, b, c = (tf.placeholder(tf.float32, []) for _ in range(3))
    first = a + b
    second = first * c
    with tf.Session() as sess:
        handle = sess.partial_run_setup([first, second], [a, b, c])
        assert sess.partial_run(handle, first, {a: 1.0, b: 2.0}) == 3.0
        assert sess.partial_run(handle, second, {c: 5.0}) == 15.0
        handle = sess.partial_run_setup([first, second], [a, b, c])
        with pytest.raises(tf.errors.InvalidArgumentError, match="was not specified"):
            sess.partial_run(handle, a - b, {a: 1.0})
        sess.partial_run(handle, first, {a: 1.0, b: 2.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="already been fed"):
            sess.partial_run(handle, second, {a: 1.0})


def test_a_trace_has_every_kernel_and_the_partitions() -> None:
    x = tf.placeholder(tf.float32, [None, 8])
    y = tf.nn.relu(tf.matmul(x, tf.ones([8, 4])), name="last")
    metadata = tf.RunMetadata()
    with tf.Session() as sess:
        sess.run(
            y,
            {x: np.ones((2, 8))},
            tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True),
            metadata,
        )
    nodes = {n.node_name: n for d in metadata.step_stats.dev_stats for n in d.node_stats}
    assert "MatMul" in nodes and "last" in nodes
    assert nodes["last"].all_end_rel_nanos > 0
    assert [d.size for d in nodes["last"].output[0].tensor_description.shape.dim] == [2, 4]
    assert any(n.op == "MatMul" for g in metadata.partition_graphs for n in g.node)


def test_a_deadline_says_what_the_step_waits_for() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]], name="jobs")
    item = queue.dequeue(name="take")
    with tf.Session() as sess:
        with pytest.raises(
            tf.errors.DeadlineExceededError, match=r"'take' \(QueueDequeueV2\) on 'jobs' since"
        ) as caught:
            sess.run(item + 1.0, options=tf.RunOptions(timeout_in_ms=50))
        assert "test_session.py" in str(caught.value)
        # The abandoned attempt is gone: it takes nothing from the queue.
        sess.run(queue.enqueue(5.0))
        assert sess.run(queue.size()) == 1


def test_the_sessions_own_timeout_holds_for_every_step() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    item = queue.dequeue()
    with (
        tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as sess,
        pytest.raises(tf.errors.DeadlineExceededError),
    ):
        sess.run(item)


def test_close_cancels_steps_that_wait() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    item = queue.dequeue()
    sess = tf.Session()
    failed: list[Exception] = []
    waiting = threading.Event()

    def run() -> None:
        waiting.set()
        try:
            sess.run(item)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    waiting.wait(10)
    while not sess._master.running and thread.is_alive():
        pass
    sess.close()
    thread.join(10)
    assert not thread.is_alive() and isinstance(failed[0], (tf.errors.CancelledError, RuntimeError))
    with pytest.raises(RuntimeError, match="closed Session"):
        sess.run(item)


def test_a_closed_empty_queue_is_out_of_range() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    with tf.Session() as sess:
        sess.run(queue.close())
        with pytest.raises(tf.errors.OutOfRangeError, match="closed and has insufficient elements"):
            sess.run(queue.dequeue())
        with pytest.raises(tf.errors.CancelledError, match="closed"):
            sess.run(queue.enqueue(1.0))


def test_a_finalized_graph_names_both_lines() -> None:
    tf.get_default_graph().finalize()
    with pytest.raises(
        RuntimeError,
        match=r"Graph is finalized and cannot be modified.*test_session.py:\d+.*test_session.py:\d+",
    ):
        tf.constant(1.0)


def test_a_shape_error_while_building_names_the_line_and_what_would_fit() -> None:
    with pytest.raises(ValueError) as caught:
        tf.matmul(tf.placeholder(tf.float32, [100, 784]), tf.placeholder(tf.float32, [10, 784]))
    assert (
        "784" in str(caught.value)
        and "test_session.py" in str(caught.value)
        and "transpose_b=True" in str(caught.value)
    )


def test_unused_config_fields_are_named_in_one_warning() -> None:
    tf.constant(1.0)
    with pytest.warns(UserWarning, match="placement_period"):
        tf.Session(config=tf.ConfigProto(placement_period=3)).close()
    with pytest.raises(TypeError, match="ConfigProto"):
        tf.Session(config={"allow_soft_placement": True})


def test_devices_are_listed() -> None:
    tf.constant(1.0)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as sess:
        devices = sess.list_devices()
    names = [d.name for d in devices if d.device_type == "CPU"]
    assert names == [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(3)]
    assert len({d.incarnation for d in devices}) == len(devices)


def test_threads_share_a_session() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(tf.square(x) + 1.0)
    wrong: list[Any] = []
    with tf.Session() as sess:

        def work(seed: int) -> None:
            for i in range(200):
                values = np.full(1 + (seed + i) % 5, seed + i, np.float32)
                if sess.run(y, {x: values}) != np.float32((values**2 + 1).sum()):
                    wrong.append((seed, i))

        threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong


def test_an_edit_of_a_node_that_ran_is_seen_by_the_next_run() -> None:
    v = tf.Variable(1.0)
    read = tf.identity(v)
    extra = tf.assign(v, 5.0)
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(read) == 1.0
        read.op._add_control_input(extra.op)
        assert sess.run(read) == 5.0


def test_a_session_of_an_empty_graph_says_so() -> None:
    with tf.Session(graph=tf.Graph()) as sess, pytest.raises(RuntimeError, match="graph is empty"):
        sess.run("x:0")


def test_placements_are_printed_where_the_config_asks(capsys: pytest.CaptureFixture[str]) -> None:
    with tf.device("/cpu:1"):
        a = tf.placeholder(tf.float32, [], name="a")
        b = tf.exp(a, name="b")
    config = tf.ConfigProto(device_count={"CPU": 2}, log_device_placement=True)
    with tf.Session(config=config) as sess:
        sess.run(b, {a: 0.0})
    assert "b: (Exp): /job:localhost/replica:0/task:0/device:CPU:1" in capsys.readouterr().out
