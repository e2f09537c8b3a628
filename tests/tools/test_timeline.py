"""Timeline: the Chrome trace of a step's statistics, beside TensorFlow's."""

import json

import numpy as np
import pytest

import graphrt as tf
from graphrt.client.timeline import Timeline
from graphrt.protos import step_stats_pb2

CPU0, CPU1 = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"
BASE = 1_700_000_000_000_000  # microseconds since the epoch


def stats(*nodes, message=step_stats_pb2.StepStats):
    """StepStats of (device, label, start us, duration us[, shape])."""
    made = message()
    devices = {}
    for device, label, start, duration, *shape in nodes:
        entry = devices.get(device)
        if entry is None:
            entry = devices[device] = made.dev_stats.add(device=device)
        node = entry.node_stats.add(
            node_name=label.partition(" = ")[0], timeline_label=label,
            all_start_micros=BASE + start, all_start_nanos=(BASE + start) * 1000,
            op_end_rel_micros=duration, op_end_rel_nanos=duration * 1000,
            all_end_rel_micros=duration, all_end_rel_nanos=duration * 1000)
        if shape:
            described = node.output.add(slot=0).tensor_description
            described.dtype = 1
            for size in shape[0]:
                described.shape.dim.add(size=size)
            described.allocation_description.allocator_name = "cpu"
            described.allocation_description.requested_bytes = 4 * int(np.prod(shape[0]))
    return made


CHAIN = (
    (CPU0, "x = Const()", 10, 5, (10, 10)),
    (CPU0, "y = MatMul(x, x)", 20, 30, (10, 10)),
    (CPU1, "z = Tanh(y/_7)", 60, 10, (10, 10)),
    (CPU0, "w = Sum(x, z/_9)", 80, 15, ()),
)


def events(text, phase):
    return [e for e in json.loads(text)["traceEvents"] if e["ph"] == phase]


def processes(text):
    return {e["pid"]: e["args"]["name"] for e in events(text, "M") if e["name"] == "process_name"}


def slices(text):
    """(process, op, node, inputs, microseconds since the first, duration), of the kernels."""
    names, found = processes(text), [e for e in events(text, "X") if e["cat"] == "Op"]
    first = min(e["ts"] for e in found)
    return sorted((names[e["pid"]], e["name"], e["args"]["name"],
                   [v for k, v in sorted(e["args"].items()) if k.startswith("input")],
                   round(e["ts"] - first, 3), round(e["dur"], 3)) for e in found)


def flows(text):
    """(maker, taker) of every arrow: the kernels whose slices its ends lie on."""
    kernels = [e for e in events(text, "X") if e["cat"] == "Op"]

    def on(end):
        return next(k["args"]["name"] for k in kernels if (k["pid"], k["tid"]) == (end["pid"], end["tid"])
                    and k["ts"] <= end["ts"] <= k["ts"] + k["dur"])

    starts = {e["id"]: on(e) for e in events(text, "s")}
    return sorted((starts[e["id"]], on(e)) for e in events(text, "t") + events(text, "f"))


def test_every_kernel_is_a_slice_on_its_device():
    text = Timeline(stats(*CHAIN)).generate_chrome_trace_format()
    assert slices(text) == [
        (f"{CPU0} Compute", "Const", "x", [], 0, 5),
        (f"{CPU0} Compute", "MatMul", "y", ["x", "x"], 10, 30),
        (f"{CPU0} Compute", "Sum", "w", ["x", "z/_9"], 70, 15),
        (f"{CPU1} Compute", "Tanh", "z", ["y/_7"], 50, 10)]


def test_arrows_follow_the_tensors_also_across_devices():
    text = Timeline(stats(*CHAIN)).generate_chrome_trace_format()
    assert flows(text) == [("x", "w"), ("x", "y"), ("y", "z"), ("z", "w")]
    assert flows(Timeline(stats(*CHAIN)).generate_chrome_trace_format(show_dataflow=False)) == []


def test_a_node_that_runs_again_feeds_what_ran_after_it():
    loop = [(CPU0, label, at, 1) for i in range(3) for label, at in
            (("a = Add(n)", 10 * i), ("n = NextIteration(a)", 10 * i + 5))]
    found = sorted((maker.name, maker.start // 1000 - BASE, taker.name, taker.start // 1000 - BASE)
                   for maker, taker in Timeline(stats(*loop))._edges)
    assert found == [("a", 0, "n", 5), ("a", 10, "n", 15), ("a", 20, "n", 25),
                     ("n", 5, "a", 10), ("n", 15, "a", 20)]


def test_kernels_at_the_same_time_lie_in_different_lanes():
    together = [(CPU0, f"n{i} = NoOp()", start, 10) for i, start in enumerate((0, 5, 9, 10, 30))]
    text = Timeline(stats(*together)).generate_chrome_trace_format()
    lane = {e["args"]["name"]: e["tid"] for e in events(text, "X")}
    assert lane == {"n0": 0, "n1": 1, "n2": 2, "n3": 0, "n4": 0}


def test_memory_counts_a_tensor_from_its_kernel_to_its_last_taker():
    text = Timeline(stats(*CHAIN)).generate_chrome_trace_format(show_memory=True)
    names = processes(text)
    tensors = [e for e in events(text, "X") if e["cat"] == "Tensor"]
    assert {(names[e["pid"]], e["name"], round(e["dur"])) for e in tensors} == {
        (f"{CPU0} Tensors", "x:0", 80), (f"{CPU0} Tensors", "y:0", 20), (f"{CPU1} Tensors", "z:0", 25),
        (f"{CPU0} Tensors", "w:0", 0)}
    counted = [e["args"]["bytes"] for e in events(text, "C") if names[e["pid"]].startswith(CPU0)]
    assert max(counted) == 800 and counted[-1] == 0


def test_times_are_right_to_the_nanosecond():
    message = stats((CPU0, "x = Const()", 10, 5))
    node = message.dev_stats[0].node_stats[0]
    node.all_start_nanos, node.all_end_rel_nanos = 1_700_000_000_123_456_789, 987
    slice_, = events(Timeline(message).generate_chrome_trace_format(), "X")
    assert round(slice_["ts"] * 1000) % 10**9 == 123_456_789 and slice_["dur"] == 0.987


def test_statistics_without_nanoseconds_are_read():
    message = stats(*CHAIN)
    for device in message.dev_stats:
        for node in device.node_stats:
            node.ClearField("all_start_nanos")
            node.ClearField("all_end_rel_nanos")
    assert (slices(Timeline(message).generate_chrome_trace_format())
            == slices(Timeline(stats(*CHAIN)).generate_chrome_trace_format()))


def test_nothing_traced_is_an_empty_trace():
    text = Timeline(step_stats_pb2.StepStats()).generate_chrome_trace_format()
    assert json.loads(text)["traceEvents"] == []


def test_other_times_than_those_recorded_are_refused():
    with pytest.raises(ValueError, match="op_time is 'gpu', but only 'schedule' is recorded"):
        Timeline(step_stats_pb2.StepStats()).generate_chrome_trace_format(op_time="gpu")


def test_a_traced_session_gives_every_kernel_and_the_edges_between_its_devices():
    with tf.device("/cpu:1"):
        a = tf.placeholder(tf.float32, [None, 4], name="a")
        b = tf.matmul(a, tf.ones([4, 4]), name="b")
    with tf.device("/cpu:0"):
        c = tf.tanh(b, name="c")
        d = tf.reduce_sum(c, name="d")
    metadata = tf.RunMetadata()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(d, {a: np.ones((3, 4))}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
    text = Timeline(metadata.step_stats).generate_chrome_trace_format()
    assert {(p, name) for p, _, name, *_ in slices(text)} == {
        (f"{CPU1} Compute", "b"), (f"{CPU0} Compute", "c"), (f"{CPU0} Compute", "d")}
    assert flows(text) == [("b", "c"), ("c", "d")]


def test_slices_and_arrows_are_tensorflows(tf):
    from tensorflow.core.framework import step_stats_pb2 as theirs
    from tensorflow.python.client import timeline
    message = stats(*CHAIN, message=theirs.StepStats)
    expected = timeline.Timeline(message).generate_chrome_trace_format()
    ours = Timeline(message).generate_chrome_trace_format()
    assert slices(ours) == slices(expected)
    # TensorFlow leaves out the arrows within a lane.
    lanes = {e["args"]["name"]: (e["pid"], e["tid"]) for e in events(ours, "X")}
    between = [(maker, taker) for maker, taker in flows(ours) if lanes[maker] != lanes[taker]]
    assert flows(expected) == between == [("y", "z"), ("z", "w")]


def test_a_trace_of_tensorflow_is_read(tf):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.reduce_sum(tf.tanh(x, name="t") * 2.0, name="y")
        metadata = v1.RunMetadata()
        session.run(y, {x: np.ones((2, 3))}, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata)
    text = Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
    assert {"t", "y"} <= {name for _, _, name, *_ in slices(text)}
    assert ("t", "mul") in flows(text) or ("mul", "y") in flows(text)
