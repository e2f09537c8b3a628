"""Savers: which checkpoints are kept and listed, what restores, and what is said where something does not."""

import os
import time

import numpy as np
import pytest

import graphrt as tf
from graphrt.core.errors import DataLossError, InvalidArgumentError, NotFoundError


@pytest.fixture
def session():
    with tf.Session() as session:
        yield session


def _counter():
    step = tf.Variable(0, name="step", dtype=tf.int64)
    return step, step.assign_add(1).op


def test_the_last_checkpoints_are_kept_and_listed(session, tmp_path):
    step, add = _counter()
    saver = tf.train.Saver(max_to_keep=2)
    session.run(step.initializer)
    made = []
    for _ in range(4):
        session.run(add)
        made.append(saver.save(session, str(tmp_path / "model"), global_step=step))
    assert made == [str(tmp_path / f"model-{i}") for i in range(1, 5)]
    assert saver.last_checkpoints == made[2:]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint"] + [
        f"model-{i}.{kind}" for i in (3, 4) for kind in ("data-00000-of-00001", "index", "meta")
    ]
    state = tf.train.get_checkpoint_state(tmp_path)
    assert state.model_checkpoint_path == made[3] == tf.train.latest_checkpoint(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == made[2:]
    # Another saver goes on where this one was.
    other = tf.train.Saver(max_to_keep=2)
    other.recover_last_checkpoints([*made, str(tmp_path / "none")])
    assert other.last_checkpoints == made[2:]
    other.save(session, str(tmp_path / "model"), global_step=100)
    assert not tf.train.checkpoint_exists(made[2]) and tf.train.checkpoint_exists(made[3])
    assert len(tf.train.get_checkpoint_mtimes(made)) == 1


def test_some_checkpoints_are_kept_for_ever(session, tmp_path, monkeypatch):
    step, _ = _counter()
    session.run(step.initializer)
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    saver = tf.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=2)
    for hour in range(6):
        now = 1e9 + hour * 3600 + 1
        saver.save(session, str(tmp_path / "m"), global_step=hour, write_meta_graph=False)
    kept = sorted(n for n in os.listdir(tmp_path) if n.endswith(".index"))
    assert kept == ["m-2.index", "m-4.index", "m-5.index"]


def test_names_of_steps_and_state_files(session, tmp_path):
    step, _ = _counter()
    session.run(step.initializer)
    saver = tf.train.Saver(pad_step_number=True, save_relative_paths=True, max_to_keep=0)
    prefix = saver.save(
        session, str(tmp_path / "m"), global_step="step:0", latest_filename="state", write_meta_graph=False
    )
    assert os.path.basename(prefix) == "m-00000000"
    assert (tmp_path / "state").read_text().startswith('model_checkpoint_path: "m-00000000"')
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in os.listdir(tmp_path):
        if name != "moved":
            os.rename(tmp_path / name, moved / name)
    assert tf.train.latest_checkpoint(moved, "state") == str(moved / "m-00000000")
    with pytest.raises(ValueError, match="'latest_filename' collides with 'save_path'"):
        saver.save(session, str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="must not contain path components"):
        saver.save(session, str(tmp_path / "m"), latest_filename="a/b")
    with pytest.raises(TypeError, match="'sess' must be a Session"):
        saver.save("session", str(tmp_path / "m"))


def test_without_state_a_checkpoint_is_not_listed(session, tmp_path):
    step, _ = _counter()
    session.run(step.initializer)
    prefix = tf.train.Saver().save(session, str(tmp_path / "m"), write_state=False)
    assert tf.train.latest_checkpoint(str(tmp_path)) is None and tf.train.checkpoint_exists(prefix)
    assert tf.train.get_checkpoint_state(str(tmp_path)) is None
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file"):
        tf.train.list_variables(str(tmp_path))


def test_a_damaged_state_file_is_ignored_and_one_of_a_lost_checkpoint_too(tmp_path, caplog):
    (tmp_path / "checkpoint").write_text("what is this")
    assert tf.train.latest_checkpoint(str(tmp_path)) is None and "Checkpoint ignored" in caplog.text
    tf.train.update_checkpoint_state(str(tmp_path), str(tmp_path / "gone"))
    assert tf.train.latest_checkpoint(str(tmp_path)) is None and "Couldn't match files" in caplog.text
    with pytest.raises(RuntimeError, match="conflicts with path used for checkpoint state"):
        tf.train.update_checkpoint_state(str(tmp_path), str(tmp_path / "checkpoint"))


def test_states_of_relative_folders_have_relative_paths():
    made = tf.train.generate_checkpoint_state_proto("dir", "dir/m-2", ["dir/m-1"], [1.0, 2.0], 1.5)
    assert made.model_checkpoint_path == "m-2"
    assert list(made.all_model_checkpoint_paths) == ["m-1", "m-2"] and made.last_preserved_timestamp == 1.5
    with pytest.raises(ValueError, match="must match checkpoint paths"):
        tf.train.generate_checkpoint_state_proto("dir", "dir/m-2", ["dir/m-1"], [1.0])


def test_saving_over_a_checkpoint_replaces_it(session, tmp_path):
    step, add = _counter()
    saver = tf.train.Saver()
    session.run(step.initializer)
    for wanted in range(3):
        prefix = saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
        assert tf.train.load_variable(prefix, "step") == wanted
        session.run(add)
        index = os.stat(prefix + ".index")
        assert index.st_size > 0 and len([n for n in os.listdir(tmp_path) if ".data-" in n]) in (1, 2)
    saver.restore(session, prefix)
    assert session.run(step) == 2


def test_a_folder_that_is_missing(session, tmp_path):
    """TensorFlow refuses it only where it cannot be made: SaveV2 makes it."""
    step, _ = _counter()
    session.run(step.initializer)
    prefix = tf.train.Saver().save(session, str(tmp_path / "new" / "folder" / "m"))
    assert tf.train.checkpoint_exists(prefix)


def test_what_does_not_fit_is_explained(session, tmp_path):
    tf.Variable([1.0, 2.0], name="w")
    session.run(tf.global_variables_initializer())
    prefix = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as other:
        tf.Variable([1.0], name="missing")
        with pytest.raises(
            NotFoundError,
            match="(?s)a Variable name or other graph key that is missing.*Key missing not found",
        ):
            tf.train.Saver().restore(other, prefix)
    with tf.Graph().as_default(), tf.Session() as other:
        tf.Variable([1.0, 2.0, 3.0], name="w")
        with pytest.raises(InvalidArgumentError, match="a mismatch between the current graph and the graph"):
            tf.train.Saver().restore(other, prefix)
    with tf.Graph().as_default(), tf.Session() as other:
        tf.Variable([1, 2], name="w")
        with pytest.raises(
            InvalidArgumentError, match="expected dtype int32 does not equal original dtype float32"
        ):
            tf.train.Saver().restore(other, prefix)
    with tf.Graph().as_default(), tf.Session() as other:
        w = tf.Variable([[1.0], [2.0]], name="w")
        tf.train.Saver(reshape=True).restore(other, prefix)
        assert other.run(w).tolist() == [[1.0], [2.0]]
    saver = tf.train.Saver()
    for bad in (None, str(tmp_path / "none")):
        with pytest.raises(ValueError, match="save_path"):
            saver.restore(session, bad)
    with open(prefix + ".data-00000-of-00001", "r+b") as file:
        file.write(b"\xff")
    with pytest.raises(DataLossError, match=r"'w' \(float32 \[2\]\) at byte 0 of"):
        saver.restore(session, prefix)


def test_what_cannot_be_saved_is_refused():
    with pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()
    empty = tf.train.Saver(allow_empty=True)
    v = tf.Variable(1.0, name="v")
    with tf.Session() as session:
        assert empty.save(session, "x", write_meta_graph=False) is None
        empty.restore(session, "x")
    with pytest.raises(TypeError, match="passed in a dict or a list"):
        tf.train.Saver("v")
    with pytest.raises(TypeError, match="Not a variable"):
        tf.train.Saver({"c": tf.constant(1.0)})
    with pytest.raises(TypeError, match="Name is not a string"):
        tf.train.Saver({1: v})
    with pytest.raises(ValueError, match="will be restored with two names"):
        tf.train.Saver({"a": v, "b": v})
    with pytest.raises(ValueError, match="At least two variables have the same name"):
        tf.train.Saver([v, v])
    with pytest.raises(ValueError, match="build cannot be deferred"):
        tf.train.Saver([v], defer_build=True)
    deferred = tf.train.Saver(defer_build=True)
    with tf.Session() as session, pytest.raises(RuntimeError, match="`build\\(\\)` should be called"):
        deferred.save(session, "x")
    deferred.build()
    assert tf.get_default_graph().get_operation_by_name(deferred.saver_def.restore_op_name)


def test_a_saver_of_its_saver_def_saves_the_same(session, tmp_path):
    v = tf.Variable([3.0], name="v")
    first = tf.train.Saver()
    again = tf.train.Saver.from_proto(first.to_proto())
    session.run(v.initializer)
    prefix = again.save(session, str(tmp_path / "m"))
    session.run(v.assign([4.0]))
    first.restore(session, prefix)
    assert session.run(v).tolist() == [3.0]
    assert first.to_proto(export_scope="elsewhere") is None
    assert first.to_proto(export_scope="save").restore_op_name == "restore_all"
    with pytest.raises(ValueError, match="must specify the restore_op_name"):
        tf.train.Saver(saver_def=tf.train.SaverDef(save_tensor_name="x"))


def test_a_part_of_a_graph_travels_with_its_inputs_mapped(tmp_path):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2], name="x")
        with tf.name_scope("part"):
            v = tf.Variable([2.0, 3.0], name="v")
            tf.multiply(x, v, name="y")
        path = str(tmp_path / "part.meta")
        tf.train.export_meta_graph(path, export_scope="part", as_text=True, save_debug_info=True)
    assert (tmp_path / "part.debug").exists()
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(ValueError, match=r"unbound inputs: \$unbound_inputs_x"):
            tf.train.import_meta_graph(path)
        tf.train.import_meta_graph(
            path, import_scope="new", input_map={"$unbound_inputs_x": tf.constant([5.0, 7.0])}
        )
        session.run(tf.global_variables_initializer())
        assert session.run("new/y:0").tolist() == [10.0, 21.0]
    with pytest.raises(OSError, match="does not exist"):
        tf.train.import_meta_graph(str(tmp_path / "none"))
    (tmp_path / "bad").write_bytes(b"\xff\xfe not a message")
    with pytest.raises(OSError, match="Cannot parse"):
        tf.train.import_meta_graph(str(tmp_path / "bad"))


def test_write_graph_writes_what_import_reads(tmp_path):
    tf.constant(1, name="c")
    path = tf.train.write_graph(tf.get_default_graph(), str(tmp_path / "logs"), "g.pb", as_text=False)
    text = tf.train.write_graph(tf.get_default_graph().as_graph_def(), str(tmp_path), "g.pbtxt")
    assert tf.GraphDef.FromString(open(path, "rb").read()).node[0].name == "c"
    assert 'name: "c"' in open(text).read()


def test_the_default_saver_is_one(session):
    from graphrt.train.saver import _get_saver_or_default

    tf.Variable(1.0)
    saver = _get_saver_or_default()
    assert _get_saver_or_default() is saver is tf.get_collection(tf.GraphKeys.SAVERS)[0]
    assert saver.saver_def.sharded
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with pytest.raises(RuntimeError, match="More than one item in collection savers"):
        _get_saver_or_default()


def test_a_reader_tells_what_there_is(session, tmp_path):
    tf.Variable([[1, 2]], name="a", dtype=tf.int64)
    tf.Variable(b"text", name="b")
    session.run(tf.global_variables_initializer())
    reader = tf.train.NewCheckpointReader(tf.train.Saver().save(session, str(tmp_path / "m")))
    assert reader.get_variable_to_shape_map() == {"a": [1, 2], "b": []}
    assert reader.get_variable_to_dtype_map() == {"a": tf.int64, "b": tf.string}
    assert reader.has_tensor("a") and not reader.has_tensor("c")
    assert reader.get_tensor("b") == b"text" and reader.get_tensor(b"a").tolist() == [[1, 2]]
    assert reader.debug_string() == b"a (INT64) [1, 2]\nb (STRING) []\n"
    with pytest.raises(NotFoundError, match="Key c not found in checkpoint"):
        reader.get_tensor("c")
    with pytest.raises(NotFoundError, match="Failed to find any matching files"):
        tf.train.load_checkpoint(str(tmp_path / "none"))


def test_warm_start_takes_what_matches(session, tmp_path):
    with tf.variable_scope("old"):
        tf.get_variable("w", initializer=[1.0, 2.0])
    tf.get_variable("same", initializer=[5.0])
    session.run(tf.global_variables_initializer())
    prefix = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as other:
        w = tf.get_variable("w", shape=[2])
        same = tf.get_variable("same", shape=[1])
        tf.train.warm_start(prefix, var_name_to_prev_var_name={"w": "old/w"})
        other.run(tf.global_variables_initializer())
        assert other.run([w, same])[0].tolist() == [1.0, 2.0] and other.run(same).tolist() == [5.0]
        with pytest.raises(ValueError, match="no variable matches"):
            tf.train.warm_start(prefix, "nothing")
        with pytest.raises(ValueError, match="is not found in"):
            tf.train.warm_start(prefix, "w")
        with pytest.raises(ValueError, match="doesn't match with shape"):
            tf.train.init_from_checkpoint(prefix, {"same": w})


def test_new_checkpoints_are_iterated(session, tmp_path):
    step, _ = _counter()
    session.run(step.initializer)
    saver = tf.train.Saver()
    saver.save(session, str(tmp_path / "m"), global_step=1)
    found = tf.train.checkpoints_iterator(str(tmp_path), timeout=0)
    assert next(found) == str(tmp_path / "m-1")
    saver.save(session, str(tmp_path / "m"), global_step=2)
    assert next(found) == str(tmp_path / "m-2")
    assert list(found) == []


def test_a_step_trains_while_another_thread_saves(session, tmp_path):
    """Checkpoints taken during training are whole, and each of a single moment or a mixture of neighbours."""
    import threading

    v = tf.Variable(np.zeros(100_000), use_resource=True)
    add = v.assign_add(np.ones(100_000)).op
    saver = tf.train.Saver(max_to_keep=0)
    session.run(v.initializer)
    is_over = threading.Event()

    def train():
        while not is_over.is_set():
            session.run(add)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for i in range(5):
            saver.save(session, str(tmp_path / "m"), global_step=i, write_meta_graph=False)
    finally:
        is_over.set()
        thread.join(30)
    for i in range(5):
        value = tf.train.load_variable(str(tmp_path / f"m-{i}"), v.op.name)
        assert (value == value[0]).all()  # a resource variable is read at one moment
