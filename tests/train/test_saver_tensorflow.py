"""Savers beside TensorFlow's: the nodes; and checkpoints and meta graphs that either takes from the other."""

import contextlib
import os

import numpy as np
import pytest

import graphrt
from tests.same_graph import _IGNORED, _as_tensorflow_1, _nodes, assert_same_nodes, built_by_both

RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
SAVERS = {
    "plain": {},
    "sharded": {"sharded": True},
    "reshape": {"reshape": True},
    "named": {"name": "x", "max_to_keep": 3, "filename": "given"},
    "V1": {"write_version": 1},
    "V1 sharded": {"write_version": 1, "sharded": True},
}


def _variables(tf, use_resource, is_partitioned, on_servers):
    with tf.variable_scope("m", use_resource=use_resource):
        with tf.device("/job:ps/task:0/cpu:0" if on_servers else None):
            w = tf.get_variable("w", [4, 3], initializer=tf.zeros_initializer())
        with tf.device("/job:ps/task:1/cpu:0" if on_servers else None):
            tf.get_variable("b", [3], initializer=tf.ones_initializer(), dtype=tf.float64)
        if is_partitioned:
            tf.get_variable(
                "p", [10, 2], partitioner=tf.fixed_size_partitioner(3), initializer=tf.zeros_initializer()
            )
    return w


@RESOURCE
@pytest.mark.parametrize("options", SAVERS)
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("on_servers", [False, True], ids=["here", "on servers"])
def test_the_nodes_and_names_are_tensorflows(tf, options, use_resource, is_partitioned, on_servers):
    made = []

    def build(tf):
        w = _variables(tf, use_resource, is_partitioned, on_servers)
        savers = [tf.train.Saver(**SAVERS[options]), tf.train.Saver({"other name": w})]
        made.append([s.as_saver_def().SerializeToString() for s in savers])

    assert_same_nodes(tf, build)
    assert made[0] == made[1]


def _model(tf, use_resource):
    """Adam slots, a partitioned variable, and one of each remarkable dtype."""
    with tf.variable_scope("m", use_resource=use_resource):
        w = tf.get_variable("w", [4, 3], initializer=tf.random_normal_initializer(seed=3))
        parts = tf.get_variable(
            "p",
            [10, 2],
            partitioner=tf.fixed_size_partitioner(3),
            initializer=tf.random_normal_initializer(seed=4),
        )
        for name, value, dtype in (
            ("int64", np.arange(5), tf.int64),
            ("bool", [True, False], tf.bool),
            ("text", [b"x", b"yy\0"], tf.string),
            ("bfloat16", [1.5, 2.5], tf.bfloat16),
            ("complex", [1 + 2j], tf.complex64),
        ):
            tf.get_variable(name, initializer=tf.constant(value, dtype), trainable=False)
    x = tf.constant(np.ones((2, 4), np.float32))
    product, whole = tf.matmul(x, w), tf.convert_to_tensor(parts)
    loss = tf.reduce_sum(product * product) + tf.reduce_sum(whole * whole)
    train = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())
    tf.add_to_collection("train_op", train)
    tf.add_to_collection("measured", loss)
    tf.add_to_collection("numbers", 7)
    tf.add_to_collection("words", "word")
    tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x)
    return train


@contextlib.contextmanager
def _program(tf, module):
    graph = module.Graph()
    with graph.as_default(), contextlib.ExitStack() as stack:
        if module is not graphrt:
            stack.enter_context(_as_tensorflow_1(tf.compat.v1))
        with module.Session(graph=graph) as session:
            yield session


def _saved(module, variables):
    """Format V1 has no bfloat16."""
    return [v for v in variables if v.dtype.base_dtype.name != "bfloat16"]


def _equal(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and (
        a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    )


@RESOURCE
@pytest.mark.parametrize("options", ["plain", "sharded", "V1"])
@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_either_restores_what_the_other_saved(tf, tmp_path, options, use_resource, writer):
    modules = {"ours": graphrt, "theirs": tf.compat.v1}
    module, other = modules[writer], modules["theirs" if writer == "ours" else "ours"]
    is_v1 = options == "V1"

    def saver(module):
        return module.train.Saver(
            _saved(module, module.global_variables()) if is_v1 else None, **SAVERS[options]
        )

    with _program(tf, module) as session:
        train = _model(module, use_resource)
        saver_ = saver(module)
        session.run(module.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        variables = module.global_variables()
        values = {v.name: session.run(v) for v in (_saved(module, variables) if is_v1 else variables)}
        prefix = saver_.save(session, str(tmp_path / "model"), global_step=module.train.get_global_step())
        loss = session.run(module.get_collection("measured")[0])
    assert prefix == str(tmp_path / "model-3") or is_v1

    with _program(tf, other) as session:
        _model(other, use_resource)
        saver(other).restore(session, other.train.latest_checkpoint(str(tmp_path)))
        for variable in other.global_variables():
            if variable.name in values:
                assert _equal(session.run(variable), values[variable.name]), variable.name

    listed = graphrt.train.list_variables(prefix)
    assert listed == tf.train.list_variables(prefix)
    for name, _ in [] if is_v1 else listed:  # TensorFlow cannot load all dtypes and slices of format V1
        assert _equal(graphrt.train.load_variable(prefix, name), tf.train.load_variable(prefix, name)), name

    with _program(tf, other) as session:
        imported = other.train.import_meta_graph(prefix + ".meta", clear_devices=True)
        imported.restore(session, prefix)
        assert other.get_collection("numbers") == [7] and len(other.get_collection("cond_context")) == 2
        assert other.get_collection("words") in (["word"], [b"word"])
        assert len(other.trainable_variables()) == 4 and len(other.global_variables()) == len(variables)
        assert session.run(other.get_collection("measured")[0]) == pytest.approx(loss, rel=1e-5)
        if not is_v1:
            session.run(other.get_collection("train_op")[0])
            assert session.run(other.train.get_global_step()) == 4

    with _program(tf, other) as session:
        scoped = other.train.import_meta_graph(prefix + ".meta", import_scope="imported")
        scoped.restore(session, prefix)
        assert other.trainable_variables()[0].name == "imported/m/w:0"
        assert _equal(
            session.run("imported/m/w:0" if not use_resource else other.trainable_variables()[0]),
            values["m/w:0"],
        )


@RESOURCE
def test_meta_graphs_are_tensorflows(tf, use_resource):
    def build(tf):
        _model(tf, use_resource)
        tf.train.Saver()
        saver = tf.train.Saver(max_to_keep=2)
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        return [
            saver.export_meta_graph(),
            saver.export_meta_graph(clear_extraneous_savers=True, clear_devices=True),
            tf.train.export_meta_graph(
                export_scope="m", collection_list=["trainable_variables", "variables"]
            ),
            tf.train.export_meta_graph(strip_default_attrs=True),
        ]

    (_, ours), (_, theirs) = built_by_both(tf, build)
    kind = tf.compat.v1.MetaGraphDef
    for a, b in zip(ours, theirs):
        a = kind.FromString(a.SerializeToString())
        mine, wanted = [
            {n.name: (list(n.input), n.device, sorted(set(n.attr) - set(_IGNORED))) for n in m.graph_def.node}
            for m in (a, b)
        ]
        # Control inputs come in another order.
        assert {n: (sorted(i), *rest) for n, (i, *rest) in mine.items()} == {
            n: (sorted(i), *rest) for n, (i, *rest) in wanted.items()
        }
        assert a.saver_def == b.saver_def
        assert set(a.collection_def) == set(b.collection_def)
        for key in a.collection_def:
            if key != "cond_context":  # a set of values, in any order
                assert a.collection_def[key] == b.collection_def[key], key
        assert {o.name for o in a.meta_info_def.stripped_op_list.op} == {
            o.name for o in b.meta_info_def.stripped_op_list.op
        }


def test_a_checkpoint_of_objects_is_restored_by_names(tf, tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.compat.v1.variable_scope("layer", use_resource=True):
            variable = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
        checkpoint = tf.compat.v1.train.Checkpoint(kernel=variable)
        session.run(variable.initializer)
        prefix = checkpoint.save(str(tmp_path / "objects"), session=session)
    with graphrt.Session() as session:
        with graphrt.variable_scope("layer"):
            variable = graphrt.get_variable("w", shape=[2])
        saver = graphrt.train.Saver()
        saver.restore(session, prefix)
        saver.restore(session, prefix)
        assert session.run(variable).tolist() == [1.0, 2.0]
        graphrt.get_variable("missing", shape=[2])
        with pytest.raises(
            graphrt.errors.NotFoundError, match="has no variables called missing; it has layer/w"
        ):
            graphrt.train.Saver().restore(session, prefix)


def test_init_from_checkpoint_builds_tensorflows_nodes(tf, tmp_path):
    with graphrt.Graph().as_default(), graphrt.Session() as session:
        with graphrt.variable_scope("old"):
            graphrt.get_variable("a", initializer=[1.0, 2.0])
            graphrt.get_variable("p", initializer=np.arange(6.0).reshape(6, 1))
        session.run(graphrt.global_variables_initializer())
        prefix = graphrt.train.Saver().save(session, str(tmp_path / "model"))

    def build(tf):
        with tf.variable_scope("new"):
            a = tf.get_variable("a", shape=[2])
            tf.get_variable("p", shape=[6, 1], dtype=tf.float64, partitioner=tf.fixed_size_partitioner(2))
        with tf.variable_scope("res", use_resource=True):
            r = tf.get_variable("a", shape=[2])
        tf.train.init_from_checkpoint(prefix, {"old/": "new/"})
        tf.train.init_from_checkpoint(str(tmp_path), {"old/a": r})
        return a, r

    (ours, result), (theirs, _) = built_by_both(tf, build)
    a, b = _nodes(tf, ours), _nodes(tf, theirs)
    assert set(a) == set(b)
    for name in a:
        assert a[name] == b[name], name
    with ours.as_default(), graphrt.Session() as session:
        session.run(graphrt.global_variables_initializer())
        assert [session.run(v).tolist() for v in result] == [[1.0, 2.0]] * 2
        parts = [session.run(v) for v in graphrt.global_variables() if "/p/" in v.name]
        np.testing.assert_array_equal(np.concatenate(parts), np.arange(6.0).reshape(6, 1))
    assert os.path.exists(prefix + ".index")
