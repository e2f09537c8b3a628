"""Partition: one subgraph a device (or a task), with a `_Send` and a `_Recv` at each cut.

A tensor crosses once to a partition however many nodes take it there. A control edge crosses as an empty
float32 tensor, or along with a tensor of the same node that crosses anyway. `_Recv` of what cannot be dead is
marked `_never_dead`. Where both ends keep a value in host memory, `_HostSend` and `_HostRecv` say so.
References do not cross: a plain read of one crosses as its value, sent when all else that the reader waits
for has run.
Cost: one visit a node and edge; nodes are copied where there is more than one partition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.compiler.deadness import LOOPS, SWITCHES, Guard, guarded
from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Partition, PassRecord, StepGraph
from graphrt.core import device_names
from graphrt.core.dtypes import float32
from graphrt.core.errors import InternalError, UnimplementedError, source_line
from graphrt.core.registry import ALL, OPS
from graphrt.core.shapes import TensorShape

_EMPTY = np.zeros(0, np.float32)
_EMPTY_SHAPE = TensorShape.of((0,))


def partition(step: StepGraph, devices: DeviceSet,
              options: CompileOptions) -> tuple[list[Partition], PassRecord]:
    """The partitions of a placed step, in the order in which their first nodes stand in it.

    Raises:
      UnimplementedError: a loop that spans devices.
      InternalError: a reference that crosses: placement keeps its ends together.
    """
    places = {device: _place(device, options.by_task) for device in {n.device for n in step.nodes}}
    kind = "task" if options.by_task else "device"
    if len(set(places.values())) <= 1:
        only = [Partition(place, step) for place in dict.fromkeys(places.values())]
        return only, PassRecord("partition", len(step), len(step), f"one {kind}: nothing is cut")
    cutting = _Cutting(step, devices, options, places)
    made = cutting.run()
    after = sum(len(p.graph) for p in made)
    tensors, controls = cutting.tensors, cutting.controls
    return made, PassRecord("partition", len(step), after,
                            f"{len(made)} {kind}s, {tensors} tensor and {controls} control edges cut",
                            cutting.details)


def _place(device: str, by_task: bool) -> str:
    return str(device_names.parse(device)._replace(type=None, index=None)) if by_task else device


class _Cutting:
    def __init__(self, step: StepGraph, devices: DeviceSet, options: CompileOptions,
                 places: dict[str, str]) -> None:
        self.step, self.devices, self.options, self.place_of = step, devices, options, places
        self.nodes: dict[str, list[Node]] = {place: []
                                             for place in dict.fromkeys(places[n.device] for n in step.nodes)}
        self.copy: dict[Node, Node] = {}
        self.guards: dict[Node, Guard] = guarded(step.nodes)
        self.looped = _inside_loops(step.nodes)
        # (source, output, where to, in host memory, read after) to the `_Recv` there.
        self.received: dict[tuple[Node, int, str, bool, tuple[Node, ...]], Node] = {}
        # What nodes of a partition wait for in place of a node elsewhere.
        self.waited: dict[tuple[Node, str], Node] = {}
        self.live = _live_aliases(step.nodes)
        self.carriers = self._carriers()
        self.tensors = self.controls = 0
        self.details: list[tuple[str, str]] = []

    def run(self) -> list[Partition]:
        back_edges: list[tuple[Node, int, Node, int]] = []
        for node in self.step.nodes:
            place = self.place_of[node.device]
            made = Node(node.name, node.op_def, node.attrs, [], [], node.dtypes, node.shapes, node.device,
                        node.origin, node.location)
            for position, (source, index) in enumerate(node.inputs):
                copied = self.copy.get(source)
                if copied is None:
                    back_edges.append((node, position, source, index))
                    made.inputs.append((made, 0))  # until the loop's end is there
                elif self.place_of[source.device] == place:
                    made.inputs.append((copied, index))
                else:
                    self._check(source, index, node, position)
                    before = self._before_read(node, source, index)
                    made.inputs.append((self._receive(source, index, node.device,
                                                      self._wants_host(node, position), before), 0))
            for source in node.controls:
                made.controls.append(self.copy[source] if self.place_of[source.device] == place
                                     else self._wait(source, node))
            self.copy[node] = made
            self.nodes[place].append(made)
        for node, position, source, index in back_edges:
            if self.place_of[source.device] != self.place_of[node.device]:
                raise self._loop_error(source, node)
            self.copy[node].inputs[position] = (self.copy[source], index)
        return [self._partition(place) for place in self.nodes]

    def _partition(self, place: str) -> Partition:
        step = self.step
        here = [[self.copy[n] for n in nodes if self.place_of[n.device] == place]
                for nodes in (step.args, step.retvals, step.targets)]
        return Partition(place, StepGraph(self.nodes[place], *here, step.library))

    # -- crossing ------------------------------------------------------------------------------------------

    def _before_read(self, node: Node, source: Node, index: int) -> tuple[Node, ...]:
        """What must have run before a variable's live memory is sent to the node: it is read when its
        consumer runs.

        All that the node waits for, where it takes the reference; its control inputs, where it takes an
        Identity of one: weights need not wait for what they are multiplied with.
        """
        if source.dtypes[index].is_ref:
            others = [s for s, i in node.inputs if not s.dtypes[i].is_ref and s.type not in ("Const", "_Arg")]
            return tuple(dict.fromkeys([*node.controls, *others]))
        return tuple(dict.fromkeys(node.controls)) if node.controls and source in self.live else ()

    def _receive(self, source: Node, index: int, to: str, on_host: bool,
                 before: tuple[Node, ...] = ()) -> Node:
        """The `_Recv` of an output at the place of device `to`, sent after the nodes `before`."""
        key = (source, index, self.place_of[to], on_host, before)
        found = self.received.get(key)
        if found is None:
            host_outputs = source.op_def.host_outputs
            from_host = (self._is_accelerator(source.device)
                         and _includes(host_outputs, index, len(source.dtypes)))
            # A Switch is alive where one of its outputs is dead.
            may_be_dead = any(b in self.guards for b in (source, *before)) or source.type in SWITCHES
            here = self.place_of[source.device]
            controls = [self.copy[b] if self.place_of[b.device] == here else self._wait(b, source)
                        for b in before]
            found = self.received[key] = self._pair(source, (self.copy[source], index), source.shapes[index],
                                                    to, from_host, on_host, may_be_dead, controls)
            self.tensors += 1
        return found

    def _wait(self, source: Node, node: Node) -> Node:
        """What `node` waits for in place of `source`, which is elsewhere."""
        if source in self.looped:
            raise self._loop_error(source, node)
        place = self.place_of[node.device]
        found = self.waited.get((source, place))
        if found is not None:
            return found
        carrier = self.carriers.get((source, place))
        if carrier is not None:
            received = self._receive(source, *carrier)
        else:
            signal = Node(self._name(source), OPS["Const"], {"value": _EMPTY, "dtype": float32}, [],
                          [self.copy[source]], [float32], [_EMPTY_SHAPE], source.device, None,
                          source.location)
            self.nodes[self.place_of[source.device]].append(signal)
            received = self._pair(source, (signal, 0), _EMPTY_SHAPE, node.device, False, False,
                                  source in self.guards)
            self.controls += 1
        if source in self.guards:
            # Dead where the source is: a node is by its inputs, a `_Recv` itself has run.
            dtype = received.dtypes[0]
            alive = Node(self._name(source), OPS["Identity"], {"T": dtype}, [(received, 0)], [], [dtype],
                         received.shapes, received.device, None, source.location)
            self.nodes[place].append(alive)
            received = alive
        self.waited[source, place] = received
        return received

    def _pair(self, source: Node, edge: tuple[Node, int], shape: TensorShape, to: str, from_host: bool,
              to_host: bool, may_be_dead: bool, controls: list[Node] | None = None) -> Node:
        """Send `edge` from the device of `source` to device `to`, after `controls`; gives the node that
        receives it."""
        dtype = edge[0].dtypes[edge[1]].base_dtype
        sender = self.devices.by_name.get(source.device)
        if sender is None:
            raise InternalError(source, source.origin,
                                f"'{source.name}' is on {source.device}, which is not among the devices")
        tensor_name = f"edge_{next(self.options.names)}_{source.name}"
        attrs: dict[str, Any] = {"tensor_name": tensor_name.encode(), "send_device": source.device.encode(),
                                 "send_device_incarnation": _signed(sender.incarnation),
                                 "recv_device": to.encode(), "client_terminated": False}
        send = Node(self._name(source), OPS["_HostSend" if from_host else "_Send"], {"T": dtype, **attrs},
                    [edge], controls or [], [], [], source.device, None, source.location)
        received: dict[str, Any] = {"tensor_type": dtype, **attrs}
        if not may_be_dead:
            received["_never_dead"] = True
        recv = Node(self._name(source), OPS["_HostRecv" if to_host else "_Recv"], received, [], [], [dtype],
                    [shape], to, None, source.location)
        self.nodes[self.place_of[source.device]].append(send)
        self.nodes[self.place_of[to]].append(recv)
        is_signal = edge[0].type == "Const" and edge[0].attrs["value"] is _EMPTY
        what = "control edge" if is_signal else f"{dtype.name} {shape}"
        self.details.append((source.name, f"{what} from {source.device} to {to} as '{tensor_name}'"))
        return recv

    def _carriers(self) -> dict[tuple[Node, str], tuple[int, str, bool]]:
        """Of the outputs that cross anyway, the one that says that its node has run: (output, device, in host
        memory)."""
        crossing = {(c, self.place_of[n.device]) for n in self.step.nodes for c in n.controls
                    if self.place_of[c.device] != self.place_of[n.device]}
        found: dict[tuple[Node, str], tuple[int, str, bool]] = {}
        if crossing:
            for node in self.step.nodes:
                place = self.place_of[node.device]
                for position, (source, index) in enumerate(node.inputs):
                    # A Switch's output may be dead where the Switch has run; a reference's reader decides
                    # when it is read.
                    if (source, place) not in crossing or source.type in SWITCHES:
                        continue
                    if not source.dtypes[index].is_ref:
                        found.setdefault((source, place),
                                         (index, node.device, self._wants_host(node, position)))
        return found

    def _check(self, source: Node, index: int, node: Node, position: int) -> None:
        if source in self.looped and source.type not in ("Exit", "RefExit"):
            raise self._loop_error(source, node)
        if source.dtypes[index].is_ref and node.op_def.has_ref_input and node.input_dtypes[position].is_ref:
            raise InternalError(node, node.origin,
                                f"'{node.name}' on {node.device} takes a reference to '{source.name}' on "
                                f"{source.device}: they were not placed together")

    @staticmethod
    def _loop_error(source: Node, node: Node) -> UnimplementedError:
        return UnimplementedError(node, node.origin,
                                  "a while loop spans devices, which graphrt does not do yet: "
                                  f"'{source.name}' is on {source.device}, '{node.name}' on {node.device}.\n "
                                  f" built at {source_line(node.location)}\n  hint     put the loop's ops on "
                                  "one device")

    def _wants_host(self, node: Node, position: int) -> bool:
        return self._is_accelerator(node.device) and _includes(node.op_def.host_inputs, position,
                                                               len(node.inputs))

    def _is_accelerator(self, name: str) -> bool:
        device = self.devices.by_name.get(name)
        return device is not None and device.type != "CPU"

    def _name(self, source: Node) -> str:
        return f"{source.name}{self.options.name_suffix}{next(self.options.names)}"


def _includes(positions: Any, i: int, count: int) -> bool:
    return positions == ALL or i in positions or i - count in positions


def _signed(number: int) -> int:
    """An unsigned 64-bit number as the int64 that the attr is."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _live_aliases(nodes: list[Node]) -> set[Node]:
    """The nodes whose output may be the memory of a ref variable."""
    found: set[Node] = set()
    for node in nodes:
        for position in node.op_def.aliases:
            if position < len(node.inputs):
                source, index = node.inputs[position]
                if source in found or source.dtypes[index].is_ref:
                    found.add(node)
    return found


def _inside_loops(nodes: list[Node]) -> set[Node]:
    """The nodes of while loops: between their Enter and Exit nodes, both included."""
    found: set[Node] = set()
    if any(n.type in LOOPS for n in nodes):
        for node in nodes:
            before = [*(s for s, _ in node.inputs), *node.controls]
            if node.type in LOOPS or any(s in found and s.type not in ("Exit", "RefExit") for s in before):
                found.add(node)
    return found
