"""ClusterSpec in all its forms, TF_CONFIG, and replica_device_setter."""

import pytest

import graphrt as tf
from graphrt.cluster.cluster_spec import read_tf_config
from graphrt.core.errors import InvalidArgumentError
from graphrt.train.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn

DENSE = {"ps": ["a:1", "b:2"], "worker": ["c:3"]}
SPARSE = {"worker": {1: "d:4", 3: "e:5"}}


@pytest.mark.parametrize("given", [DENSE, SPARSE, {"local": "x:1"}, {b"ps": (b"a:1",)}, {}])
def test_every_form_goes_through_cluster_def_and_back(given):
    spec = tf.train.ClusterSpec(given)
    again = tf.train.ClusterSpec(spec.as_cluster_def())
    assert again == spec and tf.train.ClusterSpec(spec) == spec and hash(again) == hash(spec)
    assert tf.train.ClusterSpec(spec.as_dict()) == spec


def test_look_ups():
    spec = tf.train.ClusterSpec(SPARSE)
    assert spec.as_dict() == SPARSE and spec.jobs == ["worker"] and spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [1, 3] and spec.task_address("worker", 3) == "e:5"
    assert spec.job_tasks("worker") == [None, "d:4", None, "e:5"]
    assert tf.train.ClusterSpec(DENSE).as_dict() == DENSE and not tf.train.ClusterSpec({})
    assert spec != tf.train.ClusterSpec(DENSE)


def test_bad_input_says_what_would_do():
    with pytest.raises(TypeError, match="dictionary"):
        tf.train.ClusterSpec(["a:1"])
    with pytest.raises(TypeError, match="index of a task"):
        tf.train.ClusterSpec({"ps": {"0": "a:1"}})
    with pytest.raises(TypeError, match="address of /job:ps/task:0"):
        tf.train.ClusterSpec({"ps": [1]})
    spec = tf.train.ClusterSpec(DENSE)
    with pytest.raises(ValueError, match="No such job"):
        spec.num_tasks("chief")
    with pytest.raises(ValueError, match="No task with index 2"):
        spec.task_address("ps", 2)


def test_tf_config():
    found = read_tf_config(
        '{"cluster": {"ps": ["a:1"], "worker": {"2": "b:1"}}, "task": {"type": "worker", "index": "2"}}'
    )
    assert found.cluster.as_dict() == {"ps": ["a:1"], "worker": {2: "b:1"}} and (found.job, found.index) == (
        "worker",
        2,
    )
    assert read_tf_config("") is None
    with pytest.raises(InvalidArgumentError, match="TF_CONFIG"):
        read_tf_config("{nonsense")


@pytest.mark.parametrize("merge", [True, False])
def test_replica_device_setter_places_as_tensorflow_does(tf, merge):
    import graphrt

    def devices(lib, spec):
        with lib.Graph().as_default() as graph:
            with lib.device(
                lib.train.replica_device_setter(
                    cluster=spec, worker_device="/job:worker/task:1", merge_devices=merge
                )
            ):
                lib.Variable([1.0, 2.0], name="a")
                lib.get_variable("b", [3], use_resource=True)
                with lib.device("/cpu:0"):
                    lib.Variable(1.0, name="c")
                with lib.device("/job:other"):
                    lib.constant(1.0, name="d")
            return {
                op.name: op.device
                for op in graph.get_operations()
                if op.name in ("a", "b", "c", "d", "a/Assign", "b/Assign")
            }

    assert devices(graphrt, DENSE) == devices(tf.compat.v1, DENSE)


def test_greedy_balancing_counts_bytes():
    strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
    setter = tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)
    with tf.device(setter):
        made = [tf.Variable(tf.zeros([n]), name=f"v{n}") for n in (100, 10, 20, 30, 50)]
    assert [v.op.device for v in made] == [f"/job:ps/task:{i}" for i in (0, 1, 1, 1, 1)]
    assert tf.train.replica_device_setter(ps_tasks=0) is None
    with pytest.raises(TypeError, match="callable"):
        tf.train.replica_device_setter(ps_tasks=1, ps_strategy=3)
