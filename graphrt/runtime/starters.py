"""Starters: what generated code calls for nodes that send, receive, wait or block.

`s5(step, r, *inputs)` begins node 5; its outputs arrive later through `run.arrived`. `d5(step, r)` is its
counterpart on an untaken branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.compiler.step_graph import Node
from graphrt.core.constant_value import bound_kernel
from graphrt.core.errors import OpError, describe
from graphrt.runtime.codegen import DEAD
from graphrt.runtime.elastic_threads import elastic_threads
from graphrt.runtime.rendezvous import make_key
from graphrt.runtime.schedule import read_variables


def bind_starters(plan: Any, scope: dict[str, Any], number: dict[Node, int]) -> None:
    """Bind `s<n>` and `d<n>` for every node of the plan that sends, receives, waits or blocks."""
    reads = read_variables(plan.nodes)
    for node in plan.nodes:
        n = number[node]
        if node.type in ("_Send", "_HostSend"):
            is_live = any(v.type != "VarHandleOp" for v in reads.get(node, ()))
            scope[f"s{n}"], scope[f"d{n}"] = _send(node, plan.device, is_live)
        elif node in plan.waiting:
            slots = [plan.layout.slots[node, i] for i in range(len(node.dtypes))]
            scope[f"d{n}"] = _dead(node, slots)
            if node.type in ("_Recv", "_HostRecv"):
                scope[f"s{n}"] = _recv(node, plan.device, slots[0])
            elif node.op_def.blocking:
                scope[f"s{n}"] = _blocking(node, plan, slots)
            else:
                scope[f"s{n}"] = _asynchronous(node, plan, slots)


def node_key(node: Node) -> str:
    """The rendezvous key of a `_Send` or `_Recv` node."""
    attrs = node.attrs
    text = [attrs[a].decode() for a in ("send_device", "recv_device", "tensor_name")]
    return make_key(text[0], attrs["send_device_incarnation"], text[1], text[2])


def _send(node: Node, device: Any, is_live: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    key = node_key(node)
    # The live memory of a ref variable changes under the receiver: it gets the value of now. Other memories'
    # is a copy.
    is_copied = is_live and device.is_host
    to_host = device.to_host

    def send(step: Any, r: Any, value: Any) -> None:
        step.rendezvous.send(key, value.copy() if is_copied else to_host(value), False)

    def send_dead(step: Any, r: Any) -> None:
        step.rendezvous.send(key, None, True)

    return send, send_dead


def _recv(node: Node, device: Any, slot: int) -> Callable[..., None]:
    key = node_key(node)
    from_host = device.from_host if node.type == "_Recv" else lambda x: x

    def recv(step: Any, r: Any) -> None:
        run = r[-2]

        def done(value: Any, is_dead: bool, error: OpError | None) -> None:
            if error is not None:
                step.fail(error)
                return
            r[slot] = DEAD if is_dead else from_host(value)
            run.arrived(node)

        run.started(node)
        step.rendezvous.recv(key, done)

    return recv


def _dead(node: Node, slots: list[int]) -> Callable[..., None]:
    def dead(step: Any, r: Any) -> None:
        for slot in slots:
            r[slot] = DEAD
        r[-2].arrived(node)

    return dead


def _finish(node: Node, plan: Any, slots: list[int], step: Any, r: Any) -> Callable[[Any], None]:
    """`done(outputs or error)` of a waiting node."""
    def done(made: Any) -> None:
        if isinstance(made, BaseException):
            step.fail(describe(made, node, plan.partition.device))
            return
        values = made if isinstance(made, (tuple, list)) else (made,)
        for slot, value in zip(slots, values):
            r[slot] = value
        r[-2].arrived(node)

    return done


def _asynchronous(node: Node, plan: Any, slots: list[int]) -> Callable[..., None]:
    start = node.op_def.impl.start
    context = plan.contexts[node]

    def begin(step: Any, r: Any, *inputs: Any) -> None:
        r[-2].started(node)
        start(context, step, _finish(node, plan, slots, step, r), *inputs)

    return begin


def _blocking(node: Node, plan: Any, slots: list[int]) -> Callable[..., None]:
    kernel = bound_kernel(node.op_def, plan.contexts[node])
    extra = (None,) if node.op_def.writes_out else ()

    def begin(step: Any, r: Any, *inputs: Any) -> None:
        done = _finish(node, plan, slots, step, r)

        def work() -> None:
            try:
                made = kernel(*inputs, *extra)
            except BaseException as error:  # the step reports whatever user code raised
                done(error)
            else:
                done(() if made is None and not slots else made)

        r[-2].started(node)
        elastic_threads.submit(work)

    return begin
