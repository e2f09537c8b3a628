"""Timeline: the step statistics of a traced step as a Chrome trace (chrome://tracing, ui.perfetto.dev).

    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    session.run(train, feeds, options, metadata)
    Path("step.json").write_text(Timeline(metadata.step_stats).generate_chrome_trace_format())

A device is a process of the trace. Its kernels lie in lanes in which nothing overlaps, and flows follow the tensors from
the kernel that made them to those that took them, also across devices.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphrt.core.dtypes import as_dtype

# What `partition` puts behind a name for the _Recv on the other side: TensorFlow's, and graphrt's.
_RECV_SUFFIX = re.compile(r"(/_\d+|_S\d+)$")
_LABEL = re.compile(r"(.*) = (.*)\((.*)\)", re.DOTALL)
# Flows hang on the slice that encloses their time, so they leave just before its end.
_INSIDE_US = 1e-3


@dataclass(frozen=True)
class Output:
    """A tensor that a kernel made."""

    slot: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    allocator: str

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}], {self.size:,} bytes"


@dataclass(eq=False)
class Event:
    """A kernel that ran: times in microseconds, `start` since the epoch."""

    device: str
    name: str
    op: str
    inputs: list[str]
    start: float
    duration: float
    outputs: list[Output]
    pid: int = 0
    lane: int = 0
    last_use: float = field(default=0.0, init=False)

    @property
    def end(self) -> float:
        return self.start + self.duration


class Timeline:
    """The events of a StepStats message, ready to be drawn.

    Args:
      step_stats: StepStats (ours or TensorFlow's), `RunMetadata.step_stats`.
      graph: not needed; TensorFlow's signature has it.

    Attributes:
      events: every kernel, in the order of their starts.
    """

    def __init__(self, step_stats: Any, graph: Any = None) -> None:
        self._devices: dict[str, list[Event]] = {}
        for device in step_stats.dev_stats:
            events = self._devices.setdefault(device.device, [])
            events += (_event(device.device, node) for node in device.node_stats)
        for pid, events in enumerate(self._devices.values(), 1):
            events.sort(key=lambda e: (e.start, -e.duration))
            for event, lane in zip(events, _lanes((e.start, e.end) for e in events)):
                event.pid, event.lane = pid, lane
        self.events = sorted((e for events in self._devices.values() for e in events), key=lambda e: e.start)
        self._edges = list(self._find_edges())
        for event in self.events:
            event.last_use = event.end
        for maker, taker in self._edges:
            maker.last_use = max(maker.last_use, taker.end)

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False,
                                     op_time: str = "schedule") -> str:
        """The trace as JSON.

        Args:
          show_dataflow: draw an arrow from each kernel to those that took its outputs.
          show_memory: add a process a device with the lifetimes of tensors, and counters of their bytes. An output that
            shares its input's memory counts as if it did not.
          op_time: 'schedule', the time that each kernel took in its caller; the other values of TensorFlow read the
            streams of its GPU tracer, which graphrt does not have.
        Returns:
          JSON of the Trace Event Format.
        Raises:
          ValueError: another op_time.
        """
        if op_time != "schedule":
            raise ValueError(f"op_time is {op_time!r}, but only 'schedule' is recorded here")
        trace: list[dict[str, Any]] = []
        for pid, device in enumerate(self._devices, 1):
            trace += _process(pid, f"{device} Compute")
        trace += map(_slice, self.events)
        if show_dataflow:
            for number, (maker, taker) in enumerate(self._edges):
                trace += _flow(number, maker, taker)
        if show_memory:
            for number, (device, events) in enumerate(self._devices.items(), 1):
                trace += _memory(len(self._devices) + number, device, events)
        return json.dumps({"traceEvents": trace, "displayTimeUnit": "ns"}, indent=1)

    def _find_edges(self) -> Iterator[tuple[Event, Event]]:
        """(maker, taker) of every tensor that a kernel took."""
        made = _Made(self.events)
        for taker in self.events:
            for name in dict.fromkeys(taker.inputs):
                maker = made.find(name, taker)
                if maker is not None:
                    yield maker, taker


class _Made:
    """Who made a tensor: looked up by name, device and time, for a node runs many times in a loop."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._runs: dict[str, list[Event]] = {}
        for event in events:
            self._runs.setdefault(event.name, []).append(event)
        for runs in self._runs.values():
            runs.sort(key=lambda e: e.end)

    def find(self, tensor: str, taker: Event) -> Event | None:
        name = tensor.removeprefix("^").partition(":")[0]
        if name not in self._runs:
            name = _RECV_SUFFIX.sub("", name)  # it came through a _Recv, which is not among the kernels
        runs = self._runs.get(name, [])
        before = runs[:bisect.bisect_right(runs, taker.start + _INSIDE_US, key=lambda e: e.end)]
        own = [e for e in before if e.device == taker.device]
        return (own or before or [None])[-1]


# -- reading -------------------------------------------------------------------------------------------------


def _event(device: str, node: Any) -> Event:
    label = _LABEL.match(node.timeline_label)
    if label is not None:
        op, inputs = label[2], [i for i in label[3].split(", ") if i]
    else:  # TensorFlow writes 'name:op' for what its GPU tracer saw, and RecvTensor for transfers
        op, inputs = node.node_name.partition(":")[2] or node.node_name, []
    if node.all_start_nanos:
        start, duration = node.all_start_nanos / 1e3, node.all_end_rel_nanos / 1e3
    else:
        start, duration = float(node.all_start_micros), float(node.all_end_rel_micros)
    return Event(device, node.node_name, op, inputs, start, duration, [_output(o) for o in node.output])


def _output(output: Any) -> Output:
    described = output.tensor_description
    allocation, shape = described.allocation_description, tuple(d.size for d in described.shape.dim)
    dtype = as_dtype(described.dtype) if described.dtype else None
    size = allocation.requested_bytes or allocation.allocated_bytes
    if not size and dtype is not None and not dtype.is_object:
        size = dtype.size
        for d in shape:
            size *= d
    return Output(output.slot, dtype.name if dtype else "unknown", shape, size, allocation.allocator_name or "unknown")


def _lanes(spans: Iterable[tuple[float, float]]) -> Iterator[int]:
    """For (start, end) in the order of starts: the first lane in which nothing is under way."""
    free_from: list[float] = []
    for start, end in spans:
        lane = next((i for i, time in enumerate(free_from) if time <= start), len(free_from))
        free_from[lane:lane + 1] = [end]
        yield lane


# -- writing -------------------------------------------------------------------------------------------------


def _process(pid: int, name: str) -> list[dict[str, Any]]:
    return [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
            {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}]


def _slice(event: Event) -> dict[str, Any]:
    args = {"name": event.name, "op": event.op, **{f"input{i}": name for i, name in enumerate(event.inputs)},
            **{f"output{o.slot}": str(o) for o in event.outputs}}
    return {"ph": "X", "cat": "Op", "name": event.op, "pid": event.pid, "tid": event.lane, "ts": event.start,
            "dur": event.duration, "args": args}


def _flow(number: int, maker: Event, taker: Event) -> list[dict[str, Any]]:
    shared = {"name": maker.name, "cat": "DataFlow", "id": number}
    leaves = max(maker.start, maker.end - _INSIDE_US)
    return [{"ph": "s", **shared, "ts": leaves, "pid": maker.pid, "tid": maker.lane},
            {"ph": "f", "bp": "e", **shared, "ts": taker.start, "pid": taker.pid, "tid": taker.lane}]


def _memory(pid: int, device: str, events: list[Event]) -> Iterator[dict[str, Any]]:
    """Lifetimes of the tensors that a device made, from the end of their kernel to that of their last taker."""
    yield from _process(pid, f"{device} Tensors")
    tensors = sorted(((e.end, e.last_use, e, o) for e in events for o in e.outputs), key=lambda t: t[:2])
    changes: list[tuple[float, int, str]] = []
    for (start, end, event, output), lane in zip(tensors, _lanes(t[:2] for t in tensors)):
        yield {"ph": "X", "cat": "Tensor", "name": f"{event.name}:{output.slot}", "pid": pid, "tid": lane, "ts": start,
               "dur": end - start, "args": {"tensor": str(output), "allocator": output.allocator}}
        changes += [(start, output.size, output.allocator), (end, -output.size, output.allocator)]
    live = {allocator: 0 for _, _, allocator in changes}
    for time, size, allocator in sorted(changes, key=lambda c: (c[0], -c[1])):
        live[allocator] += size
        yield {"ph": "C", "cat": "Memory", "name": allocator, "pid": pid, "ts": time, "args": {"bytes": live[allocator]}}
