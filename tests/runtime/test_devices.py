"""Devices with memory of their own: kernels get arrays where they read, and refuse what is elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphrt as tf
from graphrt.core.registry import ALL, OPS
from graphrt.runtime.devices import host_arguments, make_devices
from graphrt.runtime.sim_gpu import XP, SimArray, SimulatedGpu

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)
GPU = SimulatedGpu("/job:localhost/replica:0/task:0/device:GPU:0", 0)
ON_GPU = GPU.from_host(HOST)


@pytest.mark.parametrize(
    "call",
    [
        lambda: XP.add(ON_GPU, HOST),
        lambda: XP.matmul(ON_GPU, HOST.T),
        lambda: XP.concatenate([ON_GPU, HOST]),
        lambda: XP.sum(HOST),
        lambda: XP.add.reduce(HOST),
        lambda: ON_GPU + HOST,
        lambda: HOST * ON_GPU,
        lambda: np.concatenate([HOST, ON_GPU]),
        lambda: XP.where(ON_GPU > 1, HOST, ON_GPU),
        lambda: XP.add(ON_GPU, ON_GPU, out=None) + HOST,
        lambda: XP.einsum("ij,ij", ON_GPU, HOST),
    ],
)
def test_a_simulated_gpu_refuses_host_arrays(call: Any) -> None:
    with pytest.raises(TypeError, match="host array"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, a: xp.add(a, a),
        lambda xp, a: xp.add(a, 1.0),
        lambda xp, a: a.sum(0),
        lambda xp, a: xp.exp(a) * 2.0,
        lambda xp, a: xp.add.reduce(a, axis=1),
        lambda xp, a: xp.concatenate([a, a]),
        lambda xp, a: a[1:, ::-1].copy(),
        lambda xp, a: xp.split(a, 3, 1)[1],
        lambda xp, a: xp.subtract(a, a.max(-1, keepdims=True)),
        lambda xp, a: xp.zeros_like(a),
        lambda xp, a: xp.where(a > 2, a, 0),
        lambda xp, a: xp.transpose(a),
    ],
)
def test_a_simulated_gpu_gives_numpys_bits_in_its_own_memory(call: Any) -> None:
    made = call(XP, ON_GPU)
    assert isinstance(made, SimArray)
    wanted = call(np, HOST)
    assert GPU.to_host(made).tobytes() == wanted.tobytes() and made.dtype == wanted.dtype


def test_copies_between_memories_share_nothing() -> None:
    back = GPU.to_host(ON_GPU)
    inside = ON_GPU.view(np.ndarray)
    assert (
        not np.shares_memory(inside, HOST) and not np.shares_memory(back, inside) and type(back) is np.ndarray
    )


@pytest.mark.parametrize(
    ("fact", "count", "places"), [((), 3, ()), ((0, -1), 3, (0, 2)), (ALL, 3, (0, 1, 2)), ((-1,), 1, (0,))]
)
def test_facts_name_positions_from_either_end(fact: Any, count: int, places: tuple[int, ...]) -> None:
    assert host_arguments(fact, OPS["Neg"], count) == places


def test_devices_are_made_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "3")
    assert [d.name[-5:] for d in make_devices(cpus=2)] == ["CPU:0", "CPU:1", "GPU:0", "GPU:1", "GPU:2"]
    assert [d.name[-5:] for d in make_devices(gpus=1)] == ["CPU:0", "GPU:0"]
    assert len({d.incarnation for d in make_devices()}) == 4


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GRAPHRT_SIM_GPUS", "2")


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_on_a_gpu_is_read_updated_and_fetched(two_gpus: None, resource: bool) -> None:
    with tf.device("/gpu:0"):
        v = tf.Variable([[1.0, 2.0]], use_resource=resource)
        doubled = v * 2.0
    with tf.device("/gpu:1"):
        elsewhere = tf.identity(v) + doubled
    with tf.device("/cpu:0"):
        at_home = v.read_value() + elsewhere
    with tf.control_dependencies([at_home]):
        grown = tf.assign_add(v, [[1.0, 1.0]])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(4):
            base = np.array([[1.0, 2.0]], np.float32) + i
            got, _ = sess.run([at_home, grown])
            np.testing.assert_array_equal(got, 4 * base)
            assert type(got) is np.ndarray


def test_a_read_of_a_reference_on_another_device_comes_after_what_its_reader_waits_for(
    two_gpus: None,
) -> None:
    with tf.device("/gpu:0"):
        v = tf.Variable([1.0, 2.0], use_resource=False)
        grown = tf.assign_add(v, [10.0, 10.0])
    with tf.device("/cpu:0"), tf.control_dependencies([grown]):
        late = tf.identity(v)
    with tf.device("/gpu:1"):
        through_data = tf.add(v._ref(), tf.reduce_sum(grown) * 0.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(1, 5):
            for got in sess.run([late, through_data]):
                np.testing.assert_array_equal(got, np.array([1.0, 2.0], np.float32) + 10 * i)
