"""How steps end: cancelled, late, interrupted, with an error; and that nothing of them is left."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import graphrt as tf
from graphrt.compiler import pipeline
from graphrt.compiler.step_graph import PassRecord
from graphrt.core.resources import VariableState
from graphrt.runtime.codegen import write_segment

SOON = 20.0


def two_cpus() -> Any:
    return tf.ConfigProto(device_count={"CPU": 2})


def in_thread(function: Any) -> tuple[threading.Thread, list[Any]]:
    """A started thread, and what the function gave or raised."""
    made: list[Any] = []

    def work() -> None:
        try:
            made.append(function())
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, made


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


# -- errors ------------------------------------------------------------------------------------------------


def raises_runtime_warning() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            np.float32(1.0) / np.float32(0.0)
        except RuntimeWarning:
            return True
    return False


def test_numpys_floating_point_state_is_as_it_was_after_steps_that_end_well_and_that_fail() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.log(x) / 0.0 + x[1]
    with tf.Session() as sess, warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (2, 2, 2, 1, 1, 1):
            if size == 1:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    sess.run(y, {x: np.zeros(size)})
            else:
                sess.run(y, {x: np.zeros(size)})
            assert raises_runtime_warning()


def test_a_failed_step_leaves_nothing_wrong_for_the_next_of_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same shapes fail or not by their values, in the middle of a plan with buffers."""
    x = tf.placeholder(tf.float32, [4])
    at = tf.placeholder(tf.int32, [2])
    y = tf.reduce_sum(tf.exp(tf.gather(tf.tanh(x * 2.0), at)) + 1.0)
    given = np.arange(4, dtype=np.float32)
    wanted = None
    with tf.Session() as sess:
        for turn in range(12):
            if turn % 3 == 2:
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = 9"):
                    sess.run(y, {x: given, at: [0, 9]})
            else:
                got = sess.run(y, {x: given, at: [1, 3]})
                wanted = got if wanted is None else wanted
                assert got == wanted


def test_the_first_error_of_several_partitions_ends_the_step_and_the_session_goes_on() -> None:
    x = tf.placeholder(tf.int32, [])
    with tf.device("/cpu:1"):
        bad = tf.gather(tf.constant([1, 2]), x)
    with tf.device("/cpu:0"):
        y = bad + tf.gather(tf.constant([5, 6]), x)
    with tf.Session(config=two_cpus()) as sess:
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
                sess.run(y, {x: 7})
            assert sess.run(y, {x: 1}) == 8


def test_a_condition_that_is_no_scalar_is_an_error_that_says_so() -> None:
    p = tf.placeholder(tf.bool)
    y = tf.cond(p, lambda: tf.constant(1.0), lambda: tf.constant(2.0))
    with tf.Session() as sess:
        assert sess.run(y, {p: True}) == 1.0
        for bad in ([True], [True, False], []):
            with pytest.raises(tf.errors.InvalidArgumentError, match="a condition must be a scalar"):
                sess.run(y, {p: np.array(bad, bool)})


# -- cancelling, deadlines ---------------------------------------------------------------------------------


def test_closing_the_session_cancels_what_waits_and_what_computes() -> None:
    queue = tf.FIFOQueue(3, tf.float32)
    waits = queue.dequeue()
    x = tf.placeholder(tf.float32, [None])
    long = x
    for _ in range(3000):
        long = tf.tanh(long)
    sess = tf.Session()
    sess.run(long, {x: [1.0]})
    threads = [in_thread(lambda: sess.run(waits)) for _ in range(3)]
    threads.append(in_thread(lambda: sess.run(long, {x: np.ones(300_000)})))
    wait_for(lambda: len(sess._master.running) == 4)
    sess.close()
    for thread, made in threads:
        thread.join(SOON)
        assert not thread.is_alive()
        assert isinstance(made[0], tf.errors.CancelledError) and "Session has been closed" in str(made[0])


def test_a_step_that_begins_while_the_session_closes_does_not_wait_for_ever() -> None:
    queue = tf.FIFOQueue(3, tf.float32)
    waits = queue.dequeue()
    for _ in range(20):
        sess = tf.Session()
        call = sess.make_callable(waits)
        thread, made = in_thread(call)
        sess.close()
        thread.join(SOON)
        assert not thread.is_alive() and isinstance(made[0], (tf.errors.CancelledError, RuntimeError))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_deadline_ends_a_blocked_step_and_says_what_it_waits_for(devices: int) -> None:
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="work")
    with tf.device(f"/cpu:{devices - 1}"):
        doubled = queue.dequeue(name="next") * 2.0
    with tf.Session(config=two_cpus()) as sess:
        with pytest.raises(
            tf.errors.DeadlineExceededError, match=r"'next' \(QueueDequeueV2\) on 'work' since 0\."
        ) as caught:
            sess.run(doubled, options=tf.RunOptions(timeout_in_ms=100))
        assert "test_steps.py" in str(caught.value)
        # The attempt is gone: the element is there for the next.
        sess.run(queue.enqueue(4.0))
        assert sess.run(queue.size()) == 1 and sess.run(doubled) == 8.0


def test_a_deadline_ends_a_step_that_computes_between_two_kernels() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = x
    for _ in range(4000):
        y = tf.tanh(y)
    with tf.Session() as sess:
        sess.run(y, {x: [1.0]})
        with pytest.raises(tf.errors.DeadlineExceededError, match="still running its kernels"):
            sess.run(y, {x: np.ones(500_000)}, tf.RunOptions(timeout_in_ms=50))
        assert sess.run(y, {x: [0.0]}) == [0.0]


def test_py_func_that_hangs_ends_by_its_deadline() -> None:
    release = threading.Event()
    y = tf.py_func(lambda: (release.wait(SOON), np.float32(1.0))[1], [], tf.float32)
    with tf.Session() as sess:
        with pytest.raises(tf.errors.DeadlineExceededError, match="PyFunc"):
            sess.run(y, options=tf.RunOptions(timeout_in_ms=100))
        release.set()
        assert sess.run(y) == 1.0


def test_a_session_may_be_run_inside_py_func() -> None:
    x = tf.placeholder(tf.float32, [3])
    inner = x * 2.0
    with tf.Session() as sess:
        y = tf.py_func(lambda a: sess.run(inner, {x: a}), [x], tf.float32) + 1.0
        assert sess.run(y, {x: [1, 2, 3]}, tf.RunOptions(timeout_in_ms=20_000)).tolist() == [3.0, 5.0, 7.0]


def test_what_py_func_writes_to_or_keeps_is_not_the_plans_nor_the_callers() -> None:
    kept: list[Any] = []
    x = tf.placeholder(tf.float32, [3])
    y = x * 1.5

    def scribble(a: Any) -> Any:
        a[:] = 7.0
        return a

    fetches = [
        tf.py_func(scribble, [x], tf.float32),
        tf.py_func(scribble, [y], tf.float32),
        y + 0.0,
        tf.py_func(lambda a: (kept.append(a), a)[1], [y], tf.float32),
    ]
    given = np.array([1.0, 2.0, 3.0], np.float32)
    with tf.Session() as sess:
        for turn in range(5):
            got = sess.run(fetches, {x: given + turn})
            np.testing.assert_array_equal(got[2], 1.5 * (given + turn))
    assert given.tolist() == [1.0, 2.0, 3.0]
    for turn, array in enumerate(kept):
        np.testing.assert_array_equal(array, 1.5 * (given + turn))


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("devices", [1, 2])
def test_ctrl_c_interrupts_a_step_that_waits_and_the_process_ends(devices: int) -> None:
    program = textwrap.dedent(f"""
        import graphrt as tf
        queue = tf.FIFOQueue(3, tf.float32, shapes=[[]])
        with tf.device("/cpu:{devices - 1}"):
            waits = queue.dequeue() * 2.0
        sess = tf.Session(config=tf.ConfigProto(device_count={{"CPU": 2}}))
        print("waiting", flush=True)
        try:
            sess.run(waits)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sess.run(queue.enqueue(3.0))
            print(sess.run(waits), flush=True)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=SOON)
    finally:
        child.kill()
    assert rest.split() == ["interrupted", "6.0"] and child.returncode == 0


# -- what is left ------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="Linux")
def test_memory_stays_flat_over_10000_steps_without_the_garbage_collector() -> None:
    x = tf.placeholder(tf.float32, [None, 64])
    v = tf.Variable(np.zeros((64, 64), np.float32), use_resource=True)
    queue = tf.FIFOQueue(10, tf.float32, shapes=[[64]])
    y = tf.nn.relu(tf.matmul(x, v))
    train = tf.train.AdamOptimizer().minimize(tf.reduce_sum(y))
    with tf.device("/cpu:1"):
        elsewhere = tf.reduce_sum(y * 2.0)
    put, take = queue.enqueue(y[0]), queue.dequeue()
    given = np.ones((64, 64), np.float32)
    with tf.Session(config=two_cpus()) as sess:
        sess.run(tf.global_variables_initializer())

        def steps(count: int) -> None:
            for _ in range(count):
                sess.run([y, train], {x: given})
                sess.run(elsewhere, {x: given})
                sess.run(put, {x: given})
                sess.run(take)

        steps(200)
        gc.collect()
        gc.disable()
        try:
            before, objects = resident_bytes(), len(gc.get_objects())
            steps(2500)
            assert len(gc.get_objects()) - objects < 500
            assert resident_bytes() - before < 8 << 20
        finally:
            gc.enable()


def test_a_session_that_is_let_go_without_close_is_collected_with_its_variables() -> None:
    v = tf.Variable(np.ones(1000, np.float32))
    waits = tf.FIFOQueue(3, tf.float32).dequeue()
    with tf.device("/cpu:1"):
        elsewhere = v * 2.0
    left: list[Any] = []
    for _ in range(5):
        sess = tf.Session(config=two_cpus())
        sess.run(tf.global_variables_initializer())
        sess.run(elsewhere)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(waits, options=tf.RunOptions(timeout_in_ms=10))
        left.append(weakref.ref(sess._master.worker))
        left += [weakref.ref(p) for p in sess._prepared.values() for p in p.executable.plans]
        del sess
    gc.collect()
    assert not any(r() for r in left)


def test_intermediate_values_are_let_go_as_the_step_goes_on() -> None:
    """A chain of large values never holds more than a few, also the first time its shapes are seen."""
    import tracemalloc

    x = tf.placeholder(tf.float32, [None])
    y = x
    for _ in range(20):
        y = tf.sqrt(y + 1.0)
    given = np.ones(1 << 20, np.float32)
    with tf.Session() as sess:
        sess.run(y, {x: given[:10]})
        for _ in range(3):
            tracemalloc.start()
            sess.run(y, {x: given})
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 5 * given.nbytes


def test_an_update_does_not_copy_a_variable_whose_snapshot_nobody_uses_any_more() -> None:
    x = tf.placeholder(tf.float32, [None, 50])
    v = tf.get_variable("w", [50, 50], use_resource=True)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.tanh(tf.matmul(x, v))))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        (state,) = [s for s in sess._master.worker.resources.all_of(VariableState) if s.name == "w"]
        memory = state.array.ctypes.data
        for _ in range(5):
            sess.run(train, {x: np.ones((2, 50), np.float32)})
            assert state.array.ctypes.data == memory


class SharedScope(dict):
    """The globals of a plan's segments, which several threads compile in at once."""

    def __setitem__(self, name: str, value: Any) -> None:
        assert name != "segment", "another thread that compiles would take this segment for its own"
        super().__setitem__(name, value)


def test_compiling_a_segment_puts_it_where_no_other_thread_finds_it() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = tf.exp(tf.tanh(x))
    with tf.Session() as sess:
        sess.run(y, {x: [1.0, 2.0]})
        ((plan,),) = [prepared.executable.plans for prepared in sess._prepared.values()]
    layout = dataclasses.replace(plan.layout, scope=SharedScope(plan.layout.scope))
    for traced in (False, True):
        assert callable(write_segment(layout, plan.segments[0].nodes, plan.name, traced=traced).function)


# -- verification ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("0", False), ("", False)])
def test_graphrt_verify_decides_whether_invariants_are_checked(
    monkeypatch: pytest.MonkeyPatch, value: str, is_on: bool
) -> None:
    monkeypatch.setenv("GRAPHRT_VERIFY", value)

    def loses_a_node(step: Any, devices: Any, options: Any) -> Any:
        return step.replace([n for n in step.nodes if n.type != "Tanh"]), PassRecord(
            "loses_a_node", len(step), len(step) - 1
        )

    monkeypatch.setattr(pipeline, "PASSES", [*pipeline.PASSES, loses_a_node])
    x = tf.placeholder(tf.float32, [2])
    y = tf.exp(tf.tanh(x))
    with tf.Session() as sess:
        assert sess._master.options.verify is is_on
        if is_on:
            with pytest.raises(tf.errors.InternalError, match="loses_a_node"):
                sess.run(y, {x: [1, 2]})
