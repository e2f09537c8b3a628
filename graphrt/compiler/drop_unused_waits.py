"""Drop unused waits: what runs only because something else waits for it, and does nothing, is not run.

Gradients that are gated (`gate_gradients`) wait for each other, also for those that nobody asked for: the
labels' of a cross entropy, say. A node that is without effect, cannot fail on purpose, and whose outputs
nobody takes, is removed; whoever waited for it waits for its inputs, so the order of everything that remains
is as it was.
Cost: one visit a node and edge, from the last to the first.
"""

from __future__ import annotations

from graphrt.compiler.deadness import SWITCHES
from graphrt.compiler.devices import DeviceSet
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph

# Beside elementwise ops: no effect, and no error that a program would wait for.
_HARMLESS = frozenset(("LogSoftmax", "Softmax", "Reshape", "ExpandDims", "Squeeze", "Identity", "Transpose",
                       "Tile", "Sum", "Mean", "MatMul", "Shape", "Size", "Rank", "Fill", "ZerosLike",
                       "OnesLike", "Cast", "BroadcastGradientArgs", "Select", "SelectV2", "StopGradient",
                       "ReluGrad", "BiasAddGrad", "Conv2DBackpropInput", "Conv2DBackpropFilter",
                       "MaxPoolGrad", "AvgPoolGrad"))


def drop_unused_waits(step: StepGraph, devices: DeviceSet, options: CompileOptions) -> Passed:
    """Remove nodes without effect that are only waited for."""
    before = len(step.nodes)
    keep = {*step.targets, *step.retvals, *step.args}
    takers: dict[Node, int] = dict.fromkeys(step.nodes, 0)
    waiters: dict[Node, list[Node]] = {}
    for node in step.nodes:
        for source, _ in node.inputs:
            takers[source] += 1
        for control in node.controls:
            waiters.setdefault(control, []).append(node)
    dropped: set[Node] = set()
    if options.simplify:
        for node in reversed(step.nodes):
            if takers[node] or node in keep or node not in waiters or not _is_harmless(node):
                continue
            if any(s.type in SWITCHES for s, _ in node.inputs):
                # Who waits for the node is dead where the Switch's output is; the Switch itself is alive.
                continue
            dropped.add(node)
            sources = list(dict.fromkeys([*(s for s, _ in node.inputs), *node.controls]))
            for waiter in waiters.pop(node):
                waiter.controls = [c for c in waiter.controls if c is not node]
                for source in sources:
                    if source not in waiter.controls and source is not waiter:
                        waiter.controls.append(source)
                        waiters.setdefault(source, []).append(waiter)
            for source, _ in node.inputs:
                takers[source] -= 1
            for control in node.controls:
                if node in waiters.get(control, ()):
                    waiters[control].remove(node)
    kept = [n for n in step.nodes if n not in dropped]
    details = [(n.name, f"{n.type}: only waited for") for n in step.nodes if n in dropped]
    record = PassRecord("drop_unused_waits", before, len(kept),
                        f"dropped {len(dropped)} nodes that were only waited for", details)
    return step.replace(kept), record


def _is_harmless(node: Node) -> bool:
    op_def = node.op_def
    if op_def.stateful or op_def.asynchronous or op_def.blocking or any(d.is_ref for d in node.dtypes):
        return False
    return getattr(op_def.impl, "elementwise", False) or node.type in _HARMLESS
