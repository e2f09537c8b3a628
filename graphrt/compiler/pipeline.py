"""The passes in their order, and what they make of a step."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from graphrt.compiler.copy_constants import copy_constants
from graphrt.compiler.devices import Device, DeviceSet
from graphrt.compiler.drop_unused_waits import drop_unused_waits
from graphrt.compiler.fold_constants import fold_constants
from graphrt.compiler.graph_def import from_graph_def
from graphrt.compiler.lower import lower_control_flow
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.partition import partition
from graphrt.compiler.place import place
from graphrt.compiler.prune import prune
from graphrt.compiler.remove_dead_branches import remove_dead_branches
from graphrt.compiler.share_subexpressions import share_subexpressions
from graphrt.compiler.simplify_arithmetic import simplify_arithmetic
from graphrt.compiler.step_graph import Partition, PassRecord, Signature, StepGraph
from graphrt.compiler.verify import verify, verify_partitions
from graphrt.core.graph import Graph

Pass = Callable[[StepGraph, DeviceSet, CompileOptions], tuple[StepGraph, PassRecord]]

# Between prune and partition. A removed branch leaves constants where its Merge was, so they are folded
# again.
PASSES: list[Pass] = [
    lower_control_flow,
    place,
    fold_constants,
    remove_dead_branches,
    fold_constants,
    simplify_arithmetic,
    share_subexpressions,
    drop_unused_waits,
    copy_constants,
]


class _CollectorPause:
    """Holds the garbage collector while any thread compiles: a compile makes many objects and little garbage,
    and the collector would walk the whole graph again and again, which doubles its time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiling = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._compiling == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._compiling += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._compiling -= 1
            if self._compiling == 0 and self._was_enabled:
                gc.enable()


collector_pause = _CollectorPause()


@dataclass
class CompiledStep:
    """What the compiler made of one signature.

    Attributes:
      signature: what was asked for.
      partitions: one a device, or one a task (`CompileOptions.by_task`).
      records: what each pass did, in their order.
      step: the placed and optimised step before it was cut.
    """

    signature: Signature
    partitions: list[Partition]
    records: list[PassRecord]
    step: StepGraph


def compile_step(graph: Graph, signature: Signature, devices: Iterable[Device],
                 options: CompileOptions) -> CompiledStep:
    """Compile one signature of a graph.

    Args:
      devices: every device of the session.
      options: the session's; its `pinned` and `names` go on from step to step.
    Raises:
      OpError: the step cannot be built or placed; the message names the op and the user's line.
    """
    known = DeviceSet(devices, options.client_device)
    records: list[PassRecord] = []
    with collector_pause:
        step = _timed(records, prune, graph, signature)
        if options.verify:
            verify(step, "prune")
        is_placed = False
        for each in PASSES:
            step = _timed(records, each, step, known, options)
            is_placed |= each is place
            if options.verify:
                verify(step, each.__name__, known if is_placed else None, is_lowered=True)
        partitions = _cut(step, known, options, records)
    return CompiledStep(signature, partitions, records, step)


def compile_partition(partition_def: Any, devices: Iterable[Device], options: CompileOptions) -> CompiledStep:
    """Compile what a master registered with a worker: nodes of one task, placed, cut again by device.

    Args:
      partition_def: a GraphDef (ours or TensorFlow's), or a Partition or StepGraph of this process.
      devices: the devices of the task.
      options: the worker session's; `client_device` is a device of the task.
    Raises:
      OpError: an op that graphrt does not have, a malformed node, a device that is not there.
    """
    known = DeviceSet(devices, options.client_device)
    records: list[PassRecord] = []
    with collector_pause:
        if isinstance(partition_def, Partition):
            step = partition_def.graph
        elif isinstance(partition_def, StepGraph):
            step = partition_def
        else:
            step = _timed(records, from_graph_def, partition_def)
        step = _timed(records, lower_control_flow, step, known, options)
        if any(n.device not in known.by_name for n in step.nodes):
            step = _timed(records, place, step, known, options)
        if options.verify:
            verify(step, "registration", known, is_lowered=True)
        partitions = _cut(step, known, options, records)
    ends = [tuple(n.name for n in nodes) for nodes in (step.args, step.retvals, step.targets)]
    return CompiledStep(Signature(*ends), partitions, records, step)


def _cut(step: StepGraph, devices: DeviceSet, options: CompileOptions,
         records: list[PassRecord]) -> list[Partition]:
    partitions = _timed(records, partition, step, devices, options)
    if options.verify:
        verify_partitions(partitions, step, "partition")
    return partitions


def _timed(records: list[PassRecord], function: Callable[..., Any], *args: Any) -> Any:
    began = time.perf_counter()
    made, record = function(*args)
    record.seconds = time.perf_counter() - began
    records.append(record)
    return made
