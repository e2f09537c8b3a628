"""Kernels on a device with memory of its own: host arguments and results are copied where a kernel wants
them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.compiler.step_graph import Node
from graphrt.runtime.devices import host_arguments


def bind_for_accelerator(plan: Any, number: dict[Node, int], scope: dict[str, Any]) -> None:
    """Wrap the kernels of a plan so that each gets its inputs in the memory that it reads, and values of
    both memories can be told apart by where they are."""
    device = plan.device
    for node in plan.nodes:
        key = f"k{number[node]}"
        kernel = scope.get(key)
        if kernel is None:
            continue
        scope[key] = _placed(kernel, node, device)


def _placed(kernel: Callable[..., Any], node: Node, device: Any) -> Callable[..., Any]:
    op_def = node.op_def
    count = len(node.inputs)
    host_in = set(host_arguments(op_def.host_inputs, op_def, count))
    wants_host = [
        i in host_in or node.input_dtypes[i].is_object or node.input_dtypes[i].is_ref for i in range(count)
    ]
    to_host, from_host = device.to_host, device.from_host

    def placed(*inputs: Any) -> Any:
        moved = [to_host(x) if w else from_host(x) for x, w in zip(inputs, wants_host)]
        # What follows the inputs is `out`.
        return kernel(*moved, *inputs[count:])

    return placed
