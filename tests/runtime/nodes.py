"""Nodes of a plan made by hand, for tests of its parts."""

from __future__ import annotations

from typing import Any

import graphrt  # noqa: F401  (registers the ops)
from graphrt.compiler.step_graph import Node
from graphrt.core.dtypes import DType, bool_, float32
from graphrt.core.registry import OPS
from graphrt.core.shapes import TensorShape

Value = tuple[Node, int]


def node(
    kind: str,
    name: str,
    inputs: list[Value] = (),
    controls: list[Node] = (),
    dtypes: list[DType] | None = None,  # type: ignore[assignment]
    shape: tuple[int | None, ...] = (4,),
    **attrs: Any,
) -> Node:
    """A node of op `kind`; one float32 output unless `dtypes` says otherwise."""
    made = [float32] if dtypes is None else dtypes
    return Node(
        name,
        OPS[kind],
        {"T": float32, **attrs},
        list(inputs),
        list(controls),
        made,
        [TensorShape.of(shape)] * len(made),
    )


def arg(name: str, dtype: DType = float32, index: int = 0, shape: tuple[int | None, ...] = (4,)) -> Node:
    return node("_Arg", name, dtypes=[dtype], shape=shape, index=index)


def predicate(name: str) -> Node:
    return arg(name, bool_, shape=())


def switch(name: str, data: Value, chosen_by: Value) -> Node:
    return node("Switch", name, [data, chosen_by], dtypes=[float32, float32])


def variable(name: str) -> Node:
    return node("VariableV2", name, dtypes=[float32._as_ref], dtype=float32, container=b"", shared_name=b"")


def update(name: str, ref: Value, value: Value, controls: list[Node] = ()) -> Node:  # type: ignore[assignment]
    return node("AssignAdd", name, [ref, value], controls, dtypes=[float32._as_ref], use_locking=False)


def queue(name: str = "queue") -> Node:
    from graphrt.core.dtypes import resource

    return node("FIFOQueueV2", name, dtypes=[resource], shape=())


def waiting(name: str, handle: Node, inputs: list[Value] = (), controls: list[Node] = ()) -> Node:  # type: ignore[assignment]
    """A node that waits: an enqueue where it has inputs, which then has no output, else a dequeue."""
    if inputs:
        return node(
            "QueueEnqueueV2",
            name,
            [(handle, 0), *inputs],
            controls,
            dtypes=[],
            Tcomponents=[float32] * len(inputs),
            timeout_ms=-1,
        )
    return node("QueueDequeueV2", name, [(handle, 0)], controls, component_types=[float32], timeout_ms=-1)
