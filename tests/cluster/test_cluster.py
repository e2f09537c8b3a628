"""Steps over several tasks, on a network within this process and over gRPC."""

import threading

import numpy as np
import pytest

import graphrt as tf
from graphrt.core import errors


@pytest.fixture(params=["in-process", "grpc"])
def protocol(request):
    return request.param


def model():
    with tf.device("/job:ps/task:0"):
        w = tf.Variable(np.full((4, 3), 0.1, np.float32), name="w")
        b = tf.get_variable("b", initializer=np.zeros(3, np.float32), use_resource=True)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        y = tf.matmul(x, w) + b
        loss = tf.reduce_mean(tf.square(y - 1.0))
    return x, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def losses(target, steps=10):
    with tf.Graph().as_default():
        x, loss, train = model() if target else _local_model()
        value = np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            return [session.run([loss, train], {x: value})[0] for _ in range(steps)]


def _local_model():
    w = tf.Variable(np.full((4, 3), 0.1, np.float32), name="w")
    b = tf.get_variable("b", initializer=np.zeros(3, np.float32), use_resource=True)
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - 1.0))
    return x, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_a_model_split_over_two_tasks_trains_as_in_one_process(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    expected = losses("")
    for task in (("worker", 0), ("ps", 0)):
        assert np.allclose(losses(servers[task].target), expected, rtol=1e-5)
        tf.Session.reset(servers[task].target)


def test_variables_are_shared_by_sessions_unless_isolated(in_process):
    target = in_process(worker=1)["worker", 0].target
    v = tf.Variable(1.0, name="v")
    with tf.Session(target) as first:
        first.run(v.initializer)
        first.run(tf.assign_add(v, 5.0))
    with tf.Session(target) as second:
        assert second.run(v) == 6.0
    with tf.Session(target, config=tf.ConfigProto(isolate_session_state=True)) as alone:
        with pytest.raises(errors.FailedPreconditionError, match="v"):
            alone.run(v)
    tf.Session.reset(target)
    with tf.Session(target) as third, pytest.raises(errors.FailedPreconditionError):
        third.run(v)


def test_reset_clears_only_the_containers_that_it_names(in_process):
    servers = in_process(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        with tf.container("mine"):
            kept = tf.Variable(1.0, name="kept")
        dropped = tf.Variable(2.0, name="dropped")
    target = servers["worker", 0].target
    with tf.Session(target) as session:
        session.run([kept.initializer, dropped.initializer])
    tf.Session.reset(target, ["localhost"])
    with tf.Session(target) as session:
        assert session.run(kept) == 1.0
        with pytest.raises(errors.FailedPreconditionError):
            session.run(dropped)


def test_an_untaken_branch_elsewhere_is_dead_here(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(3.0)
    choose = tf.placeholder(tf.bool, [])
    with tf.device("/job:worker/task:0"):
        y = tf.cond(choose, lambda: v * 2.0, lambda: tf.constant(-1.0))
    with tf.Session(servers["worker", 0].target) as session:
        session.run(v.initializer)
        assert session.run(y, {choose: True}) == 6.0 and session.run(y, {choose: False}) == -1.0


def test_big_tensors_and_strings_cross(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        big = tf.range(1_500_000, dtype=tf.int64)
        text = tf.constant([b"a\x00", b"", "é".encode()])
    with tf.device("/job:worker/task:0"):
        total, joined = tf.reduce_sum(big), tf.strings.join([text, text])
        with tf.device("/job:ps/task:0"):
            back = tf.reduce_max(tf.identity(big) + 1)
    with tf.Session(servers["worker", 0].target) as session:
        for _ in range(2):
            made = session.run([total, joined, back, big])
            assert made[0] == 1_500_000 * 1_499_999 // 2 and made[1].tolist() == [
                b"a\x00a\x00",
                b"",
                "éé".encode(),
            ]
            assert made[2] == 1_500_000 and np.array_equal(made[3], np.arange(1_500_000))
            made[3][0] = 7  # a fetched array is the caller's


def test_a_step_contacts_only_the_tasks_that_it_needs(in_process, addresses):
    cluster = addresses(ps=1, worker=2)
    with tf.train.Server(cluster, "ps", 0), tf.train.Server(cluster, "worker", 0) as worker:
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(4.0)
        with tf.Session(worker.target) as session:  # worker 1 does not exist
            session.run(v.initializer)
            assert session.run(v * 2.0) == 8.0


def test_a_task_that_is_needed_and_down_is_unavailable_by_name_and_address(addresses):
    cluster = addresses(worker=2)
    with tf.device("/job:worker/task:1"):
        y = tf.constant(1.0) + tf.Variable(1.0)
    with tf.train.Server(cluster, "worker", 0) as server:
        with tf.Session(server.target, config=tf.ConfigProto(operation_timeout_in_ms=300)) as session:
            with pytest.raises(errors.UnavailableError) as caught:
                session.run(y)
    assert (
        "/job:worker/replica:0/task:1" in caught.value.message
        and cluster["worker"][1] in caught.value.message
    )


def test_an_error_of_another_task_has_its_class_place_and_line(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        x = tf.placeholder_with_default(np.ones((2, 3), np.float32), [None, None])
        bad = tf.matmul(x, x, name="bad")
    with tf.device("/job:worker/task:0"):
        y = bad + 1.0
    with tf.Session(servers["worker", 0].target) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(y)
    error = caught.value
    assert error.op is bad.op
    for part in ("'bad' (MatMul)", "/job:ps/replica:0/task:0", "test_cluster.py", "inner sizes"):
        assert part in error.message, part
    assert "{{node" not in error.message


def test_a_deadline_says_what_is_awaited_and_from_whom(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]], name="empty")
        taken = queue.dequeue(name="taken")
    with tf.device("/job:worker/task:0"):
        y = taken + 1.0
    with tf.Session(servers["worker", 0].target) as session:
        with pytest.raises(errors.DeadlineExceededError) as caught:
            session.run(y, options=tf.RunOptions(timeout_in_ms=200))
        assert "/job:ps/replica:0/task:0" in caught.value.message and "taken" in caught.value.message
        # The step is over there too: the queue serves the next one.
        session.run(queue.enqueue(2.0))
        assert session.run(y) == 3.0


def test_closing_a_session_ends_its_steps_everywhere(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        taken = tf.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue()
    with tf.device("/job:worker/task:0"):
        y = taken + 1.0
    session = tf.Session(servers["worker", 0].target)
    session.run(tf.constant(0))
    seen = []

    def wait():
        try:
            session.run(y)
        except errors.OpError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    ps = servers["ps", 0].worker
    until(lambda: any(e.running is not None for e in ps.steps.entries.values()))
    session.close()
    thread.join(20)
    assert isinstance(seen[0], errors.CancelledError)
    until(lambda: not ps.sessions and not any(e.running for e in ps.steps.entries.values()))


def until(holds, within=20.0):
    """Wait for what another thread does."""
    turn = threading.Event()
    for _ in range(int(within / 0.01)):
        if holds():
            return
        turn.wait(0.01)
    raise AssertionError("it did not come to hold in time")


def test_nothing_is_left_of_1000_sessions(in_process):
    servers = in_process(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    with tf.device("/job:worker/task:0"):
        y = v + 1.0
    target = servers["worker", 0].target
    with tf.Session(target) as session:
        session.run(v.initializer)
    before = threading.active_count()
    for _ in range(1000):
        with tf.Session(target) as session:
            assert session.run(y) == 2.0
    for server in servers.values():
        assert not server.worker.sessions and not server.worker.steps.entries and not server.master.sessions
    assert threading.active_count() <= before + 2


def test_partial_runs_callables_and_traces_over_two_tasks(in_process, protocol):
    servers = in_process(protocol=protocol, ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(9.0)
        shifted = v + 1.0
    with tf.device("/job:worker/task:0"):
        a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        c = a + shifted
        d = c * b
    with tf.Session(servers["worker", 0].target) as session:
        session.run(v.initializer)
        handle = session.partial_run_setup([c, d], [a, b])
        assert (
            session.partial_run(handle, c, {a: 2.0}) == 12.0
            and session.partial_run(handle, d, {b: 3.0}) == 36.0
        )
        assert session.make_callable(d, [a, b])(1.0, 2.0) == 22.0
        metadata = tf.RunMetadata()
        session.run(
            d,
            {a: 1.0, b: 1.0},
            options=tf.RunOptions(trace_level=3, output_partition_graphs=True),
            run_metadata=metadata,
        )
        assert {s.device for s in metadata.step_stats.dev_stats} == {
            f"/job:{j}/replica:0/task:0/device:CPU:0" for j in ("ps", "worker")
        }
        assert len(metadata.partition_graphs) == 2


def test_a_server_is_what_its_arguments_say(addresses):
    cluster = addresses(ps=1, worker=2)
    with pytest.raises(ValueError, match="job_name"):
        tf.train.Server(cluster)
    with pytest.raises(ValueError, match="task_index"):
        tf.train.Server(cluster, "worker")
    with pytest.raises(ValueError, match="index 5"):
        tf.train.Server(cluster, "worker", 5)
    with pytest.raises(TypeError, match="server_or_cluster_def"):
        tf.train.Server(3)
    server = tf.train.Server(cluster, "worker", 1, start=False)
    assert server.target == f"grpc://{cluster['worker'][1]}" and server.server_def.task_index == 1
    with pytest.raises(errors.UnavailableError, match="cannot listen"):
        tf.train.Server(cluster, "worker", 1)
    server.start()
    with tf.Session(server.target) as session:
        assert session.run(tf.constant(1) + 1) == 2
    again = server.server_def
    server.stop()
    server.join()
    with tf.train.Server(again) as made:
        assert made.target == server.target
    with pytest.raises(RuntimeError, match="stopped"):
        server.start()


def test_create_local_server_and_its_devices():
    with tf.train.Server.create_local_server(config=tf.ConfigProto(device_count={"CPU": 2})) as server:
        with tf.Session(server.target) as session:
            assert [d.name for d in session.list_devices()] == [
                f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)
            ]
            with tf.device("/cpu:1"):
                y = tf.constant(2.0) * 2.0
            assert session.run(y) == 4.0


def test_device_filters_hide_tasks(in_process):
    servers = in_process(ps=1, worker=2)
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with tf.Session(servers["worker", 0].target, config=config) as session:
        names = {d.name for d in session.list_devices()}
    assert names == {f"/job:{j}/replica:0/task:0/device:CPU:0" for j in ("ps", "worker")}
