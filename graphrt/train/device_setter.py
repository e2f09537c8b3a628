"""replica_device_setter: a device function that puts variables on parameter servers and the rest on a
worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.cluster.cluster_spec import ClusterSpec
from graphrt.core.device_names import DeviceSpec
from graphrt.core.dtypes import string

STANDARD_PS_OPS = (
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator",
    "DecisionTreeResource",
)


class RoundRobinStrategy:
    """Task 0, 1, 2, … and again: what `replica_device_setter` does by default."""

    def __init__(self, num_tasks: int) -> None:
        self._num_tasks, self._next = num_tasks, 0

    def __call__(self, op: Any) -> int:
        task = self._next
        self._next = (task + 1) % self._num_tasks
        return task


class GreedyLoadBalancingStrategy:
    """The task that has the least load so far.

    Args:
      num_tasks: parameter server tasks.
      load_fn: the load of an operation, as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._loads: list[float] = [0.0] * num_tasks

    def __call__(self, op: Any) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op: Any) -> int:
    """The bytes of a variable.

    Raises:
      ValueError: the operation has several outputs, or its shape is not known.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op.name} must have a single output, and has {len(op.outputs)}")
    # Where a device function asks, a variable's shape is its attr's: its output's is not inferred yet.
    shape = op.attrs["shape"] if "shape" in op.attrs else op.outputs[0].shape
    if not shape.is_fully_defined():
        raise ValueError(
            f"Op {op.name} must have a fully defined shape: its bytes are not known from {shape}"
        )
    dtype = op.outputs[0].dtype if "dtype" not in op.attrs else op.attrs["dtype"].base_dtype
    # A string's bytes are not known: a pointer's stand for them.
    return (shape.num_elements() or 0) * (8 if dtype is string else dtype.size)


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Any = None,
    ps_strategy: Callable[[Any], int] | None = None,
) -> Callable[[Any], str] | None:
    """A function for `tf.device`: operations of `ps_ops` (variables) go to parameter servers, the others to
    `worker_device`.

    Args:
      ps_tasks: how many parameter servers there are; `cluster` says it where it is given.
      merge_devices: fill in what an operation leaves open; False leaves an operation alone that names any
      device.
      cluster: a ClusterSpec, or what makes one.
      ps_strategy: the task index of an operation; round robin where None.
    Returns:
      The function; None where there is no parameter server.
    Raises:
      TypeError: `cluster` or `ps_strategy` is of another kind.
    """
    if cluster is not None:
        job = DeviceSpec.from_string(ps_device).job
        tasks = ClusterSpec(cluster).as_dict().get(job)
        if tasks is None:
            return None
        ps_tasks = len(tasks)
    if ps_tasks == 0:
        return None
    strategy = RoundRobinStrategy(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError("ps_strategy must be callable")
    chosen = STANDARD_PS_OPS if ps_ops is None else tuple(ps_ops)

    def device(op: Any) -> str:
        if not merge_devices and op.device:
            return op.device
        current = DeviceSpec.from_string(op.device or "")
        if ps_device and op.type in chosen:
            place = DeviceSpec.from_string(ps_device)
            if place.job and (not current.job or current.job == place.job):
                place = place.replace(task=strategy(op))
        else:
            place = DeviceSpec.from_string(worker_device or "")
        return place.make_merged_spec(current).to_string()

    return device


__all__ = ["GreedyLoadBalancingStrategy", "RoundRobinStrategy", "byte_size_load_fn", "replica_device_setter"]
