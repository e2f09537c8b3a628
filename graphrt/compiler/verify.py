"""The invariants that hold after each pass; tests and GRAPHRT_VERIFY=1 check them.

A broken one is graphrt's fault, never the program's: InternalError names the pass, the node and what is
wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.lower import is_functional
from graphrt.compiler.step_graph import Node, Partition, StepGraph, is_back_edge
from graphrt.core.errors import InternalError

_SENDS = frozenset(("_Send", "_HostSend"))
_RECEIVES = frozenset(("_Recv", "_HostRecv"))


def verify(step: StepGraph, after: str, devices: DeviceSet | None = None, is_lowered: bool = False) -> None:
    """Check a step.

    Args:
      after: the pass that made it.
      devices: where every node must be on one of these; None before placement.
      is_lowered: functional control flow must be gone.
    Raises:
      InternalError: an invariant is broken.
    """
    _check_structure(step, after)
    for i, node in enumerate(step.args):
        _must(node.type == "_Arg" and node.attrs["index"] == i, after, node, f"is not feed {i}")
    for i, node in enumerate(step.retvals):
        _must(node.type == "_Retval" and node.attrs["index"] == i, after, node, f"is not fetch {i}")
    _check_reach(step, after, [*step.retvals, *step.targets])
    for node in step.nodes:
        if is_lowered:
            _must(not is_functional(node, step.library), after, node, "was not lowered")
        if devices is not None:
            _must(node.device in devices.by_name, after, node,
                  f"is on '{node.device}', which is not a device")
            for i, (source, index) in enumerate(node.inputs):
                if source.dtypes[index].is_ref and node.input_dtypes[i].is_ref:
                    _must(source.device == node.device, after, node,
                          f"takes a reference from {source.device}")


def verify_partitions(partitions: list[Partition], step: StepGraph, after: str) -> None:
    """Check the partitions of a step: each is whole, every `_Recv` has its `_Send`, and nothing of the step
    is lost."""
    names: set[str] = set()
    sent: dict[bytes, Node] = {}
    received: dict[bytes, Node] = {}
    for part in partitions:
        _check_structure(part.graph, after)
        ends = [n for n in part.graph.nodes if n.type in _SENDS]
        _check_reach(part.graph, after, [*part.graph.retvals, *part.graph.targets, *ends])
        for node in part.graph.nodes:
            _must(node.device.startswith(part.device), after, node, f"is in the partition of {part.device}")
            _must(node.name not in names, after, node, "has the name of a node in another partition")
            names.add(node.name)
            ends_here = sent if node.type in _SENDS else received if node.type in _RECEIVES else None
            if ends_here is not None:
                key = node.attrs["tensor_name"]
                _must(key not in ends_here, after, node, f"repeats the tensor name {key!r}")
                ends_here[key] = node
    for key, send in sent.items():
        recv = received.get(key)
        if recv is not None:
            same = all(send.attrs[a] == recv.attrs[a]
                       for a in ("send_device", "recv_device", "send_device_incarnation"))
            _must(same and send.attrs["T"] is recv.attrs["tensor_type"], after, recv,
                  f"does not match '{send.name}'")
    own = {n.attrs["tensor_name"] for n in step.nodes if n.type in _SENDS | _RECEIVES}
    for key in (sent.keys() ^ received.keys()) - own:
        _must(False, after, sent.get(key) or received[key], "has no counterpart")
    kept = sum(n.name in names for n in step.nodes)
    if kept != len(step.nodes):
        raise InternalError(None, None,
                            f"after {after}: {len(step.nodes) - kept} nodes of the step are in no partition")


def _check_structure(step: StepGraph, after: str) -> None:
    seen: set[Node] = set()
    names: set[str] = set()
    everything = set(step.nodes)
    for node in step.nodes:
        _must(node.name not in names, after, node, "has the name of another node")
        names.add(node.name)
        _must(node.type == node.op_def.name, after, node, f"has the definition of {node.op_def.name}")
        wanted = node.input_dtypes
        _must(len(wanted) == len(node.inputs), after, node,
              f"has {len(node.inputs)} inputs, not {len(wanted)}")
        made = node.op_def.types(node.op_def.outputs, node.attrs)
        _must([d.base_dtype for d in made] == [d.base_dtype for d in node.dtypes], after, node,
              f"has outputs {node.dtypes}, not {made}")
        _must(len(node.shapes) == len(node.dtypes), after, node,
              f"has {len(node.shapes)} shapes for {len(node.dtypes)} outputs")
        for (source, index), dtype in zip(node.inputs, wanted):
            _must(source in everything, after, node, f"takes '{source.name}', which is not in the graph")
            _must(source in seen or is_back_edge(source, node), after, node,
                  f"stands before its input '{source.name}'")
            _must(index < len(source.dtypes), after, node, f"takes output {index} of '{source.name}'")
            given = source.dtypes[index]
            _must(given.base_dtype is dtype.base_dtype, after, node,
                  f"takes {given.name} '{source.name}' as {dtype.name}")
            _must(given.is_ref or not dtype.is_ref, after, node,
                  f"takes '{source.name}', which is no reference, as one")
        for control in node.controls:
            _must(control in everything, after, node,
                  f"waits for '{control.name}', which is not in the graph")
            _must(control in seen, after, node, f"stands before '{control.name}', which it waits for")
        _must(len(set(node.controls)) == len(node.controls), after, node, "waits for a node twice")
        seen.add(node)
    for role, nodes in (("feed", step.args), ("fetch", step.retvals), ("target", step.targets)):
        for node in nodes:
            _must(node in everything, after, node, f"is a {role} and not in the graph")


def _check_reach(step: StepGraph, after: str, ends: Iterable[Node]) -> None:
    reached: set[Node] = set(step.args)
    frontier = list(ends)
    while frontier:
        node = frontier.pop()
        if node not in reached:
            reached.add(node)
            frontier += [s for s, _ in node.inputs]
            frontier += node.controls
    for node in step.nodes:
        _must(node in reached, after, node, "is needed by no fetch and no target")


def _must(holds: bool, after: str, node: Node, what: str) -> None:
    if not holds:
        raise InternalError(node, node.origin, f"after {after}: '{node.name}' ({node.type}) {what}")
