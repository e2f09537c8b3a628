"""tf.cond and tf.switch_case as one node: If or Case, each branch a function. The compiler lowers them to
Switch and Merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphrt.core import nest, raw
from graphrt.core.apply import build
from graphrt.core.attr_values import FunctionRef
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.dtypes import int64
from graphrt.core.gradients import RegisterGradient
from graphrt.core.operation import Operation
from graphrt.core.registry import OPS
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.functions.func_graph import FuncGraph
from graphrt.functions.gradients import Forward, branch_gradients
from graphrt.ops.control_flow import common_shape

_COND_ROLES = ("true_fn", "false_fn")


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None) -> Any:
    """tf.cond with functions: see control_flow/cond.py. Functions may return None, alone or in a structure,
    too.

    Raises:
      TypeError: `pred` is a Python bool, or the functions return other structures or dtypes.
      ValueError: the functions return other numbers of values.
    """
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool", pred)
    with name_scope(name or "cond") as scope:
        pred = convert_to_tensor(pred)
        if pred.shape.rank != 0:
            pred = raw.Squeeze(pred)
        graphs = [
            _traced(scope, each, role, function, pred)
            for each, role, function in zip(("true", "false"), _COND_ROLES, (true_fn, false_fn))
        ]
        return _build("If", pred, graphs, "tf.cond", _COND_ROLES, scope)


def indexed_case(
    branch_index: Tensor, functions: Sequence[Callable[[], Any]], name: str = "indexed_case"
) -> Any:
    """What function number `branch_index` returns; the last one's where there is no such number."""
    with name_scope(name) as scope:
        roles = tuple(f"branches[{i}]" for i in range(len(functions)))
        graphs = [
            _traced(scope, f"branch{i}", f"branch {i}", function, branch_index)
            for i, function in enumerate(functions)
        ]
        return _build("Case", branch_index, graphs, "tf.switch_case", roles, scope)


def _traced(scope: str, label: str, role: str, function: Callable[[], Any], decider: Tensor) -> FuncGraph:
    graph = FuncGraph(scope + label, role)
    graph.trace(function, operation_value=decider)
    return graph


def _build(
    kind: str,
    decider: Tensor,
    graphs: Sequence[FuncGraph],
    function_name: str,
    roles: tuple[str, ...],
    name: str | None,
) -> Any:
    """The node over traced branches, and an Identity of each of its outputs, in the branches' structure."""
    _match_indices(graphs, function_name)
    _check_same_outputs(graphs, function_name, roles)
    inputs = _match_inputs(graphs)
    definitions = [graph.define() for graph in graphs]
    attrs: dict[str, Any] = {
        "Tout": definitions[0].result_types,
        "output_shapes": _common_shapes(graphs),
        "_lower_using_switch_merge": True,
    }
    refs = [FunctionRef(d.name) for d in definitions]
    if kind == "If":
        attrs["then_branch"], attrs["else_branch"] = refs
    else:
        attrs["branches"] = refs
    if not any(d.is_stateful for d in definitions):
        kind = "Stateless" + kind
    waited = dict.fromkeys(op for graph in graphs for op in graph.control_captures)
    with control_dependencies(list(waited)):
        op = build(OPS[kind], (decider, inputs), attrs, name)
    # Its outputs are fetched through their Identities: only the branch's nodes that a fetch needs run then.
    op.graph.prevent_fetching(op)
    _set_handles(op, graphs)
    outputs = [_identity(t) for t in op.outputs]
    rest = iter(outputs)
    structure = graphs[0].structured_outputs
    leaves = [
        None if leaf is None else next(rest) for leaf in nest.flatten(structure, expand_composites=True)
    ]
    return nest.pack_sequence_as(structure, leaves, expand_composites=True)


def _identity(tensor: Tensor) -> Tensor:
    made = raw.Identity(tensor)
    made.handle = tensor.handle
    return made


def _match_indices(graphs: Sequence[FuncGraph], function_name: str) -> None:
    """IndexedSlices meet IndexedSlices only, with indices of one dtype."""
    flat = [nest.flatten(g.structured_outputs) for g in graphs]
    if len({len(f) for f in flat}) > 1:
        return  # reported by the check of the structures
    changed = False
    for i, leaves in enumerate(zip(*flat)):
        kinds = {isinstance(leaf, IndexedSlices) for leaf in leaves}
        if kinds == {False}:
            continue
        if len(kinds) > 1:
            raise TypeError(
                f"Cannot reconcile {function_name} {i}-th outputs:\n  branches returned: {leaves}"
            )
        if len({leaf.indices.dtype for leaf in leaves}) > 1:
            changed = True
            for graph, branch, leaf in zip(graphs, flat, leaves):
                if leaf.indices.dtype is not int64:
                    with graph.as_default():
                        branch[i] = IndexedSlices(
                            leaf.values, raw.Cast(leaf.indices, DstT=int64), leaf.dense_shape
                        )
    if changed:
        for graph, branch in zip(graphs, flat):
            graph.set_outputs(nest.pack_sequence_as(graph.structured_outputs, branch))


def _check_same_outputs(graphs: Sequence[FuncGraph], function_name: str, roles: tuple[str, ...]) -> None:
    first = graphs[0]
    for graph, role in zip(graphs[1:], roles[1:]):
        differ = (
            f"{roles[0]} and {role} arguments to {function_name} must have the same number, type, and "
            "overall structure of "
            f"return values.\n\n{roles[0]} output: {first.structured_outputs}\n{role} output: "
            f"{graph.structured_outputs}\n\nError details:\n"
        )
        try:
            nest.assert_same_structure(
                first.structured_outputs, graph.structured_outputs, expand_composites=True
            )
        except (TypeError, ValueError) as error:
            raise TypeError(f"{differ}{error}") from None
        if len(first.outputs) != len(graph.outputs):
            raise ValueError(
                f"Lengths of branch outputs of {function_name.removeprefix('tf.')} must match.\n{roles[0]} "
                f"returns {len(first.outputs)} tensors, {role} {len(graph.outputs)}."
            )
        for ours, theirs in zip(first.outputs, graph.outputs):
            if ours.dtype.base_dtype is not theirs.dtype.base_dtype:
                raise TypeError(f"{differ}{ours} and {theirs} have different types")


def _match_inputs(graphs: Sequence[FuncGraph]) -> list[Tensor]:
    """What any branch captured, which all now take in that order."""
    captured = list(dict.fromkeys(t for graph in graphs for t in graph.captures))
    for graph in graphs:
        graph.captures = {
            t: graph.captures[t] if t in graph.captures else graph.placeholder_for(t) for t in captured
        }
        graph.inputs = list(graph.captures.values())
    return captured


def _common_shapes(graphs: Sequence[FuncGraph]) -> list[Any]:
    made = []
    for tensors in zip(*[g.outputs for g in graphs]):
        shape = tensors[0].shape
        for other in tensors[1:]:
            shape = common_shape(shape, other.shape)
        made.append(shape)
    return made


def _set_handles(op: Operation, graphs: Sequence[FuncGraph]) -> None:
    """A resource that comes out refers to what it refers to in all branches."""
    for tensor, *inner in zip(op.outputs, *[g.outputs for g in graphs]):
        handles = [t.handle for t in inner]
        if all(h is not None for h in handles) and len({h[0] for h in handles}) == 1:
            shape = handles[0][1]
            for _, other in handles[1:]:
                shape = common_shape(shape, other)
            tensor.handle = (handles[0][0], shape)


# -- gradients -----------------------------------------------------------------------------------------------


@RegisterGradient("If")
@RegisterGradient("StatelessIf")
def if_gradient(op: Operation, *grads: Any) -> list[Any]:
    """The gradient of an If: an If of its branches' gradients."""
    return _gradient(op, [op.attrs["then_branch"].name, op.attrs["else_branch"].name], grads, "If", "tf.cond")


@RegisterGradient("Case")
@RegisterGradient("StatelessCase")
def case_gradient(op: Operation, *grads: Any) -> list[Any]:
    """The gradient of a Case: a Case of its branches' gradients."""
    return _gradient(op, [ref.name for ref in op.attrs["branches"]], grads, "Case", "tf.switch_case")


def _gradient(
    op: Operation, functions: list[str], grads: Sequence[Any], kind: str, function_name: str
) -> list[Any]:
    forward = Forward(op, [op.graph.functions[name] for name in functions], 1)
    graphs = branch_gradients(forward, grads)
    roles = tuple(f"the gradient of {name}" for name in functions)
    if not graphs[0].outputs:
        return [None] * len(op.inputs)
    return [None, *_build(kind, op.inputs[0], graphs, function_name, roles, None)]
