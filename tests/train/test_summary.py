"""Summaries: nodes and values beside TensorFlow's, writers, and files that TensorFlow reads."""

import gc
import glob
import io
import os
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest

import graphrt
from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.ops.summary_ops import pixels_of, png
from graphrt.protos import event_pb2, summary_pb2
from tests.same_graph import assert_same_nodes, built_by_both

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def all_kinds(tf):
    """A summary of each kind, and all merged."""
    rng = np.random.default_rng(3)
    with tf.name_scope("tower"):
        tf.summary.scalar("loss", tf.constant(1.5))
        tf.summary.scalar("a b:c", tf.constant(2), family="fam")
    tf.summary.histogram("h", rng.standard_normal((50, 3)).astype(np.float32) * 100)
    tf.summary.image("im", tf.constant(rng.standard_normal((2, 4, 5, 3)), tf.float32))
    tf.summary.audio("au", rng.uniform(-1, 1, (2, 20, 2)).astype(np.float32), 16000, max_outputs=1)
    tf.summary.text("words", tf.constant(["some", "*text*"]))
    tf.summary.tensor_summary(
        "t", tf.constant([[1, 2]]), summary_description="what it is", display_name="shown"
    )
    tf.summary.scalar("other", tf.constant(3.0), collections=["mine"])
    return [tf.summary.merge_all(), tf.summary.merge_all("mine"), tf.summary.merge_all("none")]


def test_the_nodes_are_tensorflows(tf):
    assert_same_nodes(tf, all_kinds)


def _values(module, graph, fetches):
    with module.Session(graph=graph) as session:
        return [summary_pb2.Summary.FromString(v) for v in session.run([f for f in fetches if f is not None])]


def test_the_values_are_tensorflows(tf):
    (ours, mine), (theirs, wanted) = built_by_both(tf, all_kinds)
    assert mine[2] is None
    for a, b in zip(_values(graphrt, ours, mine), _values(tf.compat.v1, theirs, wanted)):
        for value in b.value:
            if value.HasField("image"):
                decoded = tf.io.decode_png(value.image.encoded_image_string).numpy()
                got = next(v for v in a.value if v.tag == value.tag)
                np.testing.assert_array_equal(
                    tf.io.decode_png(got.image.encoded_image_string).numpy(), decoded
                )
                got.image.encoded_image_string = value.image.encoded_image_string
        assert a == b


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "float16"])
def test_pixels_are_tensorflows(tf, channels, dtype):
    rng = np.random.default_rng(channels)
    images = rng.standard_normal((4, 5, 7, channels))
    images[1] = abs(images[1])
    images[2] = 0
    if dtype == "uint8":
        images = rng.integers(0, 256, images.shape)
    else:
        images[3, 1, 2, 0], images[3, 2, 2, channels - 1] = np.nan, np.inf
    images = images.astype(dtype)
    bad_color = np.array([9, 8, 7, 6], np.uint8)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = tf.raw_ops.ImageSummary(
            tag="x", tensor=images, max_images=4, bad_color=tf.make_tensor_proto(bad_color)
        )
        theirs = summary_pb2.Summary.FromString(session.run(made))
    for image, value in zip(images, theirs.value):
        wanted = tf.io.decode_png(value.image.encoded_image_string).numpy()
        ours = image if dtype == "uint8" else pixels_of(image, bad_color)
        np.testing.assert_array_equal(ours, wanted)
        np.testing.assert_array_equal(tf.io.decode_png(png(ours)).numpy(), wanted)


def test_histograms_of_many_values_are_tensorflows(tf):
    rng = np.random.default_rng(9)
    cases = [
        rng.standard_normal(100_001) * 10.0 ** rng.integers(-15, 25, 100_001),
        np.zeros(10),
        np.array([1e308, -1e308, 1e-13, -1e-13, 0.0]),
        np.array([]),
    ]
    for values in cases:
        with graphrt.Graph().as_default(), graphrt.Session() as session:
            ours = session.run(graphrt.summary.histogram("h", values))
        theirs = tf.raw_ops.HistogramSummary(tag="h", values=values).numpy()
        assert summary_pb2.Summary.FromString(ours) == summary_pb2.Summary.FromString(theirs)


def test_bad_values_are_named():
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        with pytest.raises(InvalidArgumentError, match="Nan in summary histogram for: h"):
            session.run(graphrt.summary.histogram("h", [1.0, np.nan]))
        same = graphrt.summary.scalar("x", 1.0)
        with pytest.raises(InvalidArgumentError, match="Duplicate tag x found in summary inputs"):
            session.run(graphrt.summary.merge([same, same]))
        with pytest.raises(InvalidArgumentError, match="must be 4-D with last dim 1, 3, or 4"):
            session.run(graphrt.summary.image("i", np.zeros((1, 2, 2, 2), np.float32)))
    with pytest.raises(ValueError, match="to have dtype string"):
        graphrt.summary.text("t", graphrt.constant(1.0))


def test_a_description_comes_out_of_its_node():
    op = graphrt.raw_ops.TensorSummary(tensor=[1.0], description='{"typeHint": "scalar"}').op
    assert graphrt.summary.get_summary_description(op.node_def).type_hint == "scalar"
    with pytest.raises(ValueError, match="Can't get_summary_description on Const"):
        graphrt.summary.get_summary_description(graphrt.constant(1).op.node_def)


# -- writers
# ----------------------------------------------------------------------------------------------------


def _events(folder):
    paths = sorted(glob.glob(os.path.join(str(folder), "events.out.tfevents.*")))
    return [event for path in paths for event in graphrt.train.summary_iterator(path)]


def _summary(tag, value):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])


def test_everything_a_writer_takes_is_read_by_tensorflow(tf, tmp_path):
    graph = graphrt.Graph()
    with graph.as_default():
        variable = graphrt.Variable([1.0], name="w")
        fetched = graphrt.summary.scalar("x", graphrt.reduce_sum(variable))
        with graphrt.Session() as session:
            session.run(variable.initializer)
            metadata = graphrt.RunMetadata()
            serialized = session.run(
                fetched, options=graphrt.RunOptions(trace_level=3), run_metadata=metadata
            )
    with graphrt.summary.FileWriter(tmp_path / "logs", graph) as writer:
        writer.add_summary(serialized, 1)
        writer.add_summary(_summary("y", 2.0), np.int64(2))
        writer.add_session_log(event_pb2.SessionLog(status=event_pb2.SessionLog.START), 3)
        writer.add_run_metadata(metadata, "step 4", 4)
        writer.add_event(event_pb2.Event(wall_time=5.0, step=5, file_version="mine"))
        with pytest.raises(ValueError, match="already used"):
            writer.add_run_metadata(metadata, "step 4")
        assert writer.get_logdir() == str(tmp_path / "logs")
    ours = _events(tmp_path / "logs")
    (path,) = glob.glob(str(tmp_path / "logs" / "*"))
    theirs = list(tf.compat.v1.train.summary_iterator(path))
    assert [e.SerializeToString(deterministic=True) for e in ours] == [
        e.SerializeToString(deterministic=True) for e in theirs
    ]
    kinds = [e.WhichOneof("what") for e in theirs]
    assert kinds == [
        "file_version",
        "graph_def",
        "meta_graph_def",
        "summary",
        "summary",
        "session_log",
        "tagged_run_metadata",
        "file_version",
    ]
    shown = tf.compat.v1.GraphDef.FromString(theirs[1].graph_def)
    assert {n.name for n in shown.node} == {o.name for o in graph.get_operations()}
    assert "variables" in tf.compat.v1.MetaGraphDef.FromString(theirs[2].meta_graph_def).collection_def
    assert [e.step for e in theirs[3:]] == [1, 2, 3, 4, 5]


def test_metadata_of_a_tag_is_written_once(tmp_path):
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        made = session.run(graphrt.summary.text("t", graphrt.constant("x")))
    with graphrt.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_summary(made, 0)
        writer.add_summary(made, 1)
    first, second = [e.summary.value[0] for e in _events(tmp_path)[1:]]
    assert first.metadata.plugin_data.plugin_name == "text" and not second.HasField("metadata")


def test_flushed_events_are_in_the_file_and_a_closed_writer_takes_none(tmp_path):
    writer = graphrt.summary.FileWriter(str(tmp_path), max_queue=2, filename_suffix=".s")
    for step in range(20):
        writer.add_summary(_summary("x", step), step)
    writer.flush()
    assert [e.step for e in _events(tmp_path)[1:]] == list(range(20))
    writer.close()
    writer.close()
    writer.flush()
    writer.add_summary(_summary("x", 20), 20)
    assert len(_events(tmp_path)) == 21
    writer.reopen()
    writer.add_summary(_summary("x", 21), 21)
    writer.close()
    assert len(glob.glob(str(tmp_path / "*.s"))) == 2 and [e.step for e in _events(tmp_path)][-1] == 21


def test_a_disk_that_fails_raises_at_the_next_call(tmp_path, monkeypatch):
    writer = graphrt.summary.FileWriter(str(tmp_path), max_queue=1)

    def fail(event):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._background._file, "write", fail)
    with pytest.raises(OSError, match="No space left"):
        for step in range(100):
            writer.add_summary(_summary("x", 1.0), step)
        writer.flush()
    with pytest.raises(OSError, match="No space left"):
        writer.close()


def test_a_folder_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(graphrt.OpError):
        graphrt.summary.FileWriter(str(tmp_path / "file" / "logs"))
    with pytest.raises(NotFoundError):
        list(graphrt.train.summary_iterator(str(tmp_path / "none")))


def test_the_cache_has_one_writer_a_folder(tmp_path):
    cache = graphrt.summary.FileWriterCache
    graphrt.constant(1, name="here")
    a, b = cache.get(str(tmp_path / "a")), cache.get(str(tmp_path / "b"))
    assert cache.get(str(tmp_path / "a")) is a and a is not b
    cache.clear()
    assert b"here" in _events(tmp_path / "a")[1].graph_def
    assert cache.get(str(tmp_path / "a")) is not a
    cache.clear()


def test_writers_of_a_session_share_their_file(tmp_path):
    graphrt.constant(1)
    with graphrt.Session() as session:
        first = graphrt.summary.FileWriter(str(tmp_path), session=session)
        second = graphrt.summary.FileWriter(str(tmp_path), session=session)
        first.add_summary(_summary("x", 1.0), 1)
        first.close()
        second.add_summary(_summary("x", 2.0), 2)
        second.close()
    assert len(os.listdir(tmp_path)) == 1
    assert [e.step for e in _events(tmp_path)[1:]] == [1, 2]


def test_events_from_several_threads_all_arrive(tmp_path):
    with graphrt.summary.FileWriter(str(tmp_path), max_queue=3) as writer:

        def add(first):
            for step in range(first, first + 50):
                writer.add_summary(_summary("x", step), step)

        threads = [threading.Thread(target=add, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(e.step for e in _events(tmp_path)[1:]) == sorted(
        s for i in range(4) for s in range(100 * i, 100 * i + 50)
    )


def test_a_writer_that_nobody_closed_is_written_when_the_process_ends(tmp_path):
    program = (
        "import sys, graphrt as tf\n"
        "writer = tf.summary.FileWriter(sys.argv[1])\n"
        "for step in range(100):\n"
        "    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag='x', simple_value=1.0)]), step)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True, timeout=120)
    assert [e.step for e in _events(tmp_path)[1:]] == list(range(100))


def test_a_forgotten_writer_does_not_keep_its_file_open(tmp_path):
    writer = graphrt.summary.FileWriter(str(tmp_path))
    writer.add_summary(_summary("x", 1.0), 1)
    thread = writer._background._thread
    del writer
    gc.collect()
    thread.join(30)
    assert not thread.is_alive() and [e.step for e in _events(tmp_path)[1:]] == [1]


def test_png_files_are_whole():
    made = png(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    stream = io.BytesIO(made[8:])
    kinds = []
    while head := stream.read(8):
        content = stream.read(int.from_bytes(head[:4], "big"))
        kinds.append(head[4:])
        assert zlib.crc32(head[4:] + content) == int.from_bytes(stream.read(4), "big")
    assert made[:8] == b"\x89PNG\r\n\x1a\n" and kinds == [b"IHDR", b"IDAT", b"IEND"]
