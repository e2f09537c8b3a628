"""Runs compiled steps node by node, by the kernels alone: what the compiler's passes are held against.

No plan, no arena, no thread: one node after the other in the given order, each value a fresh array, dead
tensors as DEAD.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.compiler.options import CompileOptions
from graphrt.compiler.pipeline import CompiledStep, compile_step
from graphrt.compiler.step_graph import Node, Partition, Signature, StepGraph
from graphrt.core.constant_value import bound_kernel
from graphrt.core.graph import Graph
from graphrt.core.registry import KernelContext
from graphrt.runtime.devices import Device
from graphrt.runtime.worker_session import WorkerSession

DEAD = object()


class CpuDevice(Device):
    """A CPU device of any task."""


class GpuDevice(Device):
    """A device that calls itself a GPU, has no kernel for Log and for updates by AssignSub, and runs NumPy
    kernels."""

    type = "GPU"

    def supports(self, op_def: Any, dtypes: Any = None) -> bool:
        has_text = any(d.name == "string" for d in dtypes or ())
        return not has_text and op_def.name not in ("Log", "AssignSubVariableOp")


def device(name: str) -> Device:
    """A device of a full or local name: 'cpu:0', '/job:ps/task:1/gpu:0'."""
    from graphrt.core import device_names
    parts = device_names.parse(name if name.startswith("/") else f"/{name}").over(
        device_names.parse("/job:localhost/replica:0/task:0"))
    return (GpuDevice if parts.type == "GPU" else CpuDevice)(str(parts), parts.index or 0)


def devices(*names: str) -> list[Device]:
    return [device(n) for n in names]


def compiled(graph: Graph, fetches: Any = (), targets: Any = (), feeds: Any = (), on: list[Device] | None
             = None, **options: Any) -> CompiledStep:
    """Compile a step of tensors, operations or their names, by default on one CPU."""
    def names(items: Any) -> tuple[str, ...]:
        items = items if isinstance(items, (list, tuple)) else (items,)
        return tuple(i if isinstance(i, str) else i.name for i in items)

    known = on or devices("cpu:0")
    signature = Signature(names(feeds), names(fetches), names(targets))
    return compile_step(graph, signature, known,
                        CompileOptions(options.pop("client_device", known[0].name), verify=True, **options))


def plain_options() -> dict[str, bool]:
    return {"fold": False, "simplify": False, "share": False}


class Interpreter:
    """The state of a worker session and a way to run steps in it.

    Attributes:
      ran: names of the nodes that ran in the last step, in order, those of dead nodes left out.
    """

    def __init__(self, known: list[Device] | None = None) -> None:
        self.devices = known or devices("cpu:0")
        self.session = WorkerSession(self.devices)
        self.ran: list[str] = []

    def run(self, step: CompiledStep | StepGraph | list[Partition], feeds: Any = ()) -> list[Any]:
        """The fetched values; a dead fetch is DEAD."""
        if isinstance(step, CompiledStep):
            step = step.partitions
        graphs = [step] if isinstance(step, StepGraph) else [p.graph for p in step]
        self.ran = []
        fetched: dict[int, Any] = {}
        sent: dict[tuple[Any, ...], Any] = {}
        values: dict[tuple[Node, int], Any] = {}
        dead: set[Node] = set()
        waiting = [list(g.nodes) for g in graphs]
        while any(waiting):
            moved = False
            for nodes in waiting:
                while nodes and self._step(nodes[0], values, dead, list(feeds), fetched, sent):
                    nodes.pop(0)
                    moved = True
            if not moved:
                raise AssertionError("every partition waits: "
                                     f"{[nodes[0].name for nodes in waiting if nodes]}")
        return [fetched[i] for i in range(len(fetched))]

    def _step(self, node: Node, values: Any, dead: set[Node], feeds: list[Any], fetched: dict[int, Any],
              sent: Any) -> bool:
        """Run one node; False where it has to wait."""
        if node.type in ("_Recv", "_HostRecv"):
            key = _key(node)
            if key not in sent:
                return False
            values[node, 0] = sent[key]
            if sent[key] is DEAD and node.attrs.get("_never_dead"):
                raise AssertionError(f"'{node.name}' is marked as never dead and received a dead tensor")
            return True
        inputs = [values[e] for e in node.inputs]
        is_merge = node.type in ("Merge", "RefMerge")
        alive = [i for i, v in enumerate(inputs) if v is not DEAD]
        if any(c in dead for c in node.controls) or (not alive if is_merge else len(alive) < len(inputs)):
            dead.add(node)
            for i in range(len(node.dtypes)):
                values[node, i] = DEAD
            if node.type in ("_Send", "_HostSend"):
                sent[_key(node)] = DEAD
            if node.type == "_Retval":
                fetched[node.attrs["index"]] = DEAD
            return True
        self.ran.append(node.name)
        if node.type in ("_Send", "_HostSend"):
            assert _key(node) not in sent, f"{node.name} sends what was sent"
            sent[_key(node)] = _plain(inputs[0])
            return True
        if node.type == "_Retval":
            fetched[node.attrs["index"]] = np.array(_plain(inputs[0]), copy=True)
            return True
        for i, made in enumerate(self._outputs(node, inputs, alive, feeds)):
            values[node, i] = made
        return True

    def _outputs(self, node: Node, inputs: list[Any], alive: list[int], feeds: list[Any]) -> list[Any]:
        if node.type == "_Arg":
            return [feeds[node.attrs["index"]]]
        if node.type in ("NoOp", "ControlTrigger"):
            return []
        if node.type in ("Switch", "RefSwitch"):
            return [DEAD, inputs[0]] if bool(inputs[1]) else [inputs[0], DEAD]
        if node.type in ("Merge", "RefMerge"):
            assert len(alive) == 1, f"{len(alive)} inputs of '{node.name}' are alive: it is a race"
            return [inputs[alive[0]], np.int32(alive[0])]
        context = KernelContext(node.name, node.type, node.attrs, node.input_dtypes, node.dtypes, node.shapes,
                                np, self.session.devices.get(node.device), self.session, node)
        if node.op_def.has_hoist:
            return [node.op_def.impl.hoist(context)]
        given = [v if wanted.is_ref else _plain(v) for v, wanted in zip(inputs, context.input_dtypes)]
        with np.errstate(all="ignore"):
            kernel = bound_kernel(node.op_def, context)
            made = kernel(*given, None) if node.op_def.writes_out else kernel(*given)
        made = made if isinstance(made, (tuple, list)) else (made,)
        # A kernel may pass on an input's memory; here every value stands alone.
        return [m if d.is_ref or d.is_object else np.array(m, copy=True) for m, d in zip(made, node.dtypes)]


def _key(node: Node) -> tuple[Any, ...]:
    return tuple(node.attrs[a]
                 for a in ("tensor_name", "send_device", "send_device_incarnation", "recv_device"))


def _plain(value: Any) -> Any:
    """What a plain reader of a value gets: a ref variable's memory as it is now."""
    return value.read().copy() if getattr(value, "is_ref", False) else value


def same_bits(a: Any, b: Any) -> bool:
    """True where two arrays are equal bit for bit."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
