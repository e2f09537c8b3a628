"""Timeline: the step statistics of a traced step as a Chrome trace (chrome://tracing, ui.perfetto.dev).

    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    session.run(train, feeds, options, metadata)
    Path("step.json").write_text(Timeline(metadata.step_stats).generate_chrome_trace_format())

A device is a process of the trace. Its kernels lie in lanes in which nothing overlaps, and flows follow the
tensors from the kernel that made them to those that took them, also across devices.
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
_DAY_NS = 24 * 3600 * 10**9


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
    """A kernel that ran: times in nanoseconds, `start` since the epoch."""

    device: str
    name: str
    op: str
    inputs: list[str]
    start: int
    duration: int
    outputs: list[Output]
    pid: int = 0
    lane: int = 0
    last_use: int = field(default=0, init=False)

    @property
    def end(self) -> int:
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
        found = (e for events in self._devices.values() for e in events)
        self.events: list[Event] = sorted(found, key=lambda e: e.start)
        self._edges = list(self._find_edges())
        # Viewers read times as doubles, which since the epoch are right to a quarter of a microsecond only.
        self._origin = self.events[0].start // _DAY_NS * _DAY_NS if self.events else 0
        for event in self.events:
            event.last_use = event.end
        for maker, taker in self._edges:
            maker.last_use = max(maker.last_use, taker.end)

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False,
                                     op_time: str = "schedule") -> str:
        """The trace as JSON.

        Args:
          show_dataflow: draw an arrow from each kernel to those that took its outputs.
          show_memory: add a process a device with the lifetimes of tensors, and counters of their bytes. An
            output that shares its input's memory counts as if it did not.
          op_time: 'schedule', the time that each kernel took in its caller; the other values of TensorFlow
            read the streams of its GPU tracer, which graphrt does not have.
        Returns:
          JSON of the Trace Event Format. Times are microseconds since the day began (UTC), so that traces of
          several steps can be joined.
        Raises:
          ValueError: another op_time.
        """
        if op_time != "schedule":
            raise ValueError(f"op_time is {op_time!r}, but only 'schedule' is recorded here")
        trace: list[dict[str, Any]] = []
        for pid, device in enumerate(self._devices, 1):
            trace += _process(pid, f"{device} Compute")
        trace += (_slice(event, self._origin) for event in self.events)
        if show_dataflow:
            for number, (maker, taker) in enumerate(self._edges):
                trace += _flow(number, maker, taker, self._origin)
        if show_memory:
            for number, (device, events) in enumerate(self._devices.items(), 1):
                trace += _memory(len(self._devices) + number, device, events, self._origin)
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
        for event in events:  # in the order of their starts
            self._runs.setdefault(event.name, []).append(event)

    def find(self, tensor: str, taker: Event) -> Event | None:
        name = tensor.removeprefix("^").partition(":")[0]
        if name not in self._runs:
            name = _RECV_SUFFIX.sub("", name)  # it came through a _Recv, which is not among the kernels
        runs = self._runs.get(name, [])
        begun = [e for e in runs[:bisect.bisect_right(runs, taker.start, key=lambda e: e.start)]
                 if e is not taker]
        # TensorFlow's kernels end after they gave their outputs away, so one that has only begun will do.
        own = [e for e in begun if e.device == taker.device] or begun
        ended = [e for e in own if e.end <= taker.start] or own
        return ended[-1] if ended else None


# -- reading -------------------------------------------------------------------------------------------------


def _event(device: str, node: Any) -> Event:
    label = _LABEL.match(node.timeline_label)
    if label is not None:
        op, inputs = label[2], [i for i in label[3].split(", ") if i]
    else:  # TensorFlow writes 'name:op' for what its GPU tracer saw, and RecvTensor for transfers
        op, inputs = node.node_name.partition(":")[2] or node.node_name, []
    if node.all_start_nanos:
        start, duration = node.all_start_nanos, node.all_end_rel_nanos
    else:
        start, duration = node.all_start_micros * 1000, node.all_end_rel_micros * 1000
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
    return Output(output.slot, dtype.name if dtype else "unknown", shape, size,
                  allocation.allocator_name or "unknown")


def _lanes(spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """For (start, end) in the order of starts: the first lane in which nothing is under way."""
    free_from: list[int] = []
    for start, end in spans:
        lane = next((i for i, time in enumerate(free_from) if time <= start), len(free_from))
        free_from[lane:lane + 1] = [end]
        yield lane


# -- writing -------------------------------------------------------------------------------------------------


def _process(pid: int, name: str) -> list[dict[str, Any]]:
    return [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
            {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}]


def _slice(event: Event, origin: int) -> dict[str, Any]:
    args = {"name": event.name, "op": event.op, **{f"input{i}": name for i, name in enumerate(event.inputs)},
            **{f"output{o.slot}": str(o) for o in event.outputs}}
    return {"ph": "X", "cat": "Op", "name": event.op, "pid": event.pid, "tid": event.lane,
            "ts": (event.start - origin) / 1e3, "dur": event.duration / 1e3, "args": args}


def _flow(number: int, maker: Event, taker: Event, origin: int) -> list[dict[str, Any]]:
    """An arrow. It hangs on the slices that enclose its ends, so it leaves just before the maker's end."""
    shared = {"name": maker.name, "cat": "DataFlow", "id": number}
    leaves = max(maker.start, min(maker.end - 1, taker.start))
    return [{"ph": "s", **shared, "ts": (leaves - origin) / 1e3, "pid": maker.pid, "tid": maker.lane},
            {"ph": "f", "bp": "e", **shared, "ts": (taker.start - origin) / 1e3, "pid": taker.pid,
             "tid": taker.lane}]


def _memory(pid: int, device: str, events: list[Event], origin: int) -> Iterator[dict[str, Any]]:
    """Lifetimes of a device's tensors: from the end of the kernel that made one to that of its last taker."""
    yield from _process(pid, f"{device} Tensors")
    tensors = sorted(((e.end, e.last_use, e, o) for e in events for o in e.outputs), key=lambda t: t[:2])
    changes: list[tuple[int, int, str]] = []
    for (start, end, event, output), lane in zip(tensors, _lanes(t[:2] for t in tensors)):
        yield {"ph": "X", "cat": "Tensor", "name": f"{event.name}:{output.slot}", "pid": pid, "tid": lane,
               "ts": (start - origin) / 1e3, "dur": (end - start) / 1e3,
               "args": {"tensor": str(output), "allocator": output.allocator}}
        changes += [(start, output.size, output.allocator), (end, -output.size, output.allocator)]
    live = {allocator: 0 for _, _, allocator in changes}
    for time, size, allocator in sorted(changes, key=lambda c: (c[0], -c[1])):
        live[allocator] += size
        yield {"ph": "C", "cat": "Memory", "name": allocator, "pid": pid, "ts": (time - origin) / 1e3,
               "args": {"bytes": live[allocator]}}
