"""Share subexpressions: of nodes that compute the same from the same, on one device, one stays.

Two nodes are the same where op, device, inputs, control inputs and attrs are; constants where their bits are.
Never shared: stateful, random and control-flow nodes, those that read a live reference (its value depends on
when), and nodes that are fetched or targets, which keep their names.
Cost: one visit a node; attrs and constants are compared only where the rest is the same.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from graphrt.compiler.deadness import CONTROL_FLOW
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, preserved, sweep

# Constants up to this many bytes are compared by their bytes, up to the next figure by a digest, larger ones
# by identity.
_BY_BYTES = 256
_BY_DIGEST = 1 << 20


def share_subexpressions(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step with equal nodes merged into the first of them."""
    before = len(step)
    if not options.share:
        return step, PassRecord("share_subexpressions", before, before, "off")
    keep = preserved(step)
    first: dict[tuple[Any, ...], Node | dict[Any, Node]] = {}
    instead: dict[Node, Node] = {}
    details: list[tuple[str, str]] = []
    shareable: dict[Any, bool] = {}
    for node in step.nodes:
        if instead:
            node.inputs = [(instead.get(s, s), i) for s, i in node.inputs]
            if node.controls:
                node.controls = list(dict.fromkeys(instead.get(c, c) for c in node.controls))
        op_def = node.op_def
        may = shareable.get(op_def)
        if may is None:
            may = shareable[op_def] = _is_shareable(op_def)
        if not may or node in keep:
            continue
        key = (op_def, node.device, tuple(node.inputs), frozenset(node.controls) if node.controls else None)
        found = first.get(key)
        if found is None:
            # Most keys are met once: their attrs are never looked at.
            first[key] = node
            continue
        if any(s.dtypes[i].is_ref for s, i in node.inputs):
            continue
        if isinstance(found, Node):
            found = first[key] = {_attrs_key(found): found}
        same = found.setdefault(_attrs_key(node), node)
        if same is not node:
            instead[node] = same
            details.append((node.name, f"the same {node.type} as '{same.name}'"))
    if not details:
        return step, PassRecord("share_subexpressions", before, before, "nothing to share")
    # Back edges of loops come later than what takes them.
    for node in step.nodes:
        if node.type in ("Merge", "RefMerge"):
            node.inputs = [(instead.get(s, s), i) for s, i in node.inputs]
    made = sweep(step)
    return made, PassRecord("share_subexpressions", before, len(made), f"{len(details)} nodes shared",
                            details)


def _is_shareable(op_def: Any) -> bool:
    return not (op_def.stateful or op_def.asynchronous or op_def.blocking or op_def.has_ref_input
                or op_def.has_ref_output or op_def.unfoldable and op_def.name != "Const"
                or op_def.name in CONTROL_FLOW or not op_def.outputs)


def _attrs_key(node: Node) -> Any:
    """Equal for nodes whose attrs mean the same."""
    return tuple([(k, _key(node.attrs[k])) for k in sorted(node.attrs) if k[0] != "_"])


def _key(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array_key(value)
    if isinstance(value, float):
        return value.hex()  # -0.0 is not 0.0, NaN is NaN
    if isinstance(value, (list, tuple)):
        return tuple([_key(v) for v in value])
    return value


def _array_key(array: np.ndarray) -> Any:
    if array.dtype == object:
        return "strings", array.shape, tuple(array.ravel())
    if array.nbytes <= _BY_BYTES:
        return array.dtype.str, array.shape, array.tobytes()
    if array.nbytes <= _BY_DIGEST:
        digest = hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8), digest_size=16).digest()
        return array.dtype.str, array.shape, digest
    return id(array)
