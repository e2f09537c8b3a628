"""Gradients through nodes that run functions: calls, If and Case.

The gradient of a body is a function of its own, built by `gradients` over the body. It captures what it needs
of the forward pass: arguments of the call are at hand, results too; any other value becomes a further output
of the forward node, whose functions are defined anew with it (in a branch that does not have the value a
FakeParam stands for it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphrt.core import nest, raw
from graphrt.core.apply import build
from graphrt.core.attr_values import FunctionRef
from graphrt.core.default_graph import get_default_graph
from graphrt.core.dtypes import int32, int64
from graphrt.core.function_def import FunctionDefinition, call_op_def
from graphrt.core.gradients import RegisterGradient, gradients, zeros_for
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OPS
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.functions.func_graph import FuncGraph, define
from graphrt.ops.control_flow import slices_of


class Forward:
    """A node that runs one of several functions, while its gradient is built.

    Args:
      op: the node; `offset` of its inputs come before the functions' arguments.
      definitions: its functions.
    """

    def __init__(self, op: Operation, definitions: list[FunctionDefinition], offset: int) -> None:
        self.op, self.definitions, self.offset = op, definitions, offset
        self.outputs = [list(d.outputs) for d in definitions]
        self.added: list[Tensor] = []

    def outside(self, branch: int, tensor: Tensor) -> Tensor | None:
        """The tensor of the node's graph that holds the value of `tensor`, which is one of body number
        `branch`; None where that needs no more than a constant."""
        definition = self.definitions[branch]
        for i, argument in enumerate(definition.inputs):
            if argument is tensor:
                return self.op.inputs[self.offset + i]
        for i, output in enumerate(self.outputs[branch]):
            if output is tensor:
                return self.op.outputs[i]
        if tensor.op.type == "Const":
            return None
        if tensor.dtype.base_dtype.name == "resource":
            if tensor.op.type == "Identity":
                return self.outside(branch, tensor.op.inputs[0])
            raise ValueError(
                f"the gradient of '{self.op.name}' ({self.op.type}) needs the resource '{tensor.name}', "
                f"which its function '{definition.name}' makes: resources come in as arguments"
            )
        return self._add_output(branch, tensor)

    def _add_output(self, branch: int, tensor: Tensor) -> Tensor:
        for i, (definition, outputs) in enumerate(zip(self.definitions, self.outputs)):
            if i == branch:
                outputs.append(tensor)
            else:
                with definition.graph.as_default():
                    outputs.append(raw.FakeParam(dtype=tensor.dtype.base_dtype, shape=tensor.shape))
        made = Tensor(self.op, len(self.op.outputs), tensor.dtype.base_dtype)
        made._shape = tensor.shape
        self.op.outputs.append(made)
        self.added.append(made)
        return made

    def commit(self) -> None:
        """Have the node run functions with the outputs that were added."""
        if not self.added:
            return
        op = self.op
        library = op.graph.functions
        made = [
            define(
                library,
                f"{d.name}_rewritten",
                d.graph,
                d.inputs,
                outputs,
                control_outputs=d.control_outputs,
                attrs=d.attrs,
                argument_names=d.argument_names,
            )
            for d, outputs in zip(self.definitions, self.outputs)
        ]
        refs = [FunctionRef(d.name) for d in made]
        if op.type in ("If", "StatelessIf"):
            op.attrs["then_branch"], op.attrs["else_branch"] = refs
        elif op.type in ("Case", "StatelessCase"):
            op.attrs["branches"] = refs
        elif op.type in ("PartitionedCall", "StatefulPartitionedCall"):
            op.attrs["f"] = refs[0]
        else:
            op.op_def = call_op_def(made[0])
            op.type = op.op_def.name
        if "Tout" in op.attrs:
            op.attrs["Tout"] = [t.dtype.base_dtype for t in op.outputs]
        if op.attrs.get("output_shapes"):
            op.attrs["output_shapes"] = [*op.attrs["output_shapes"], *[t.shape for t in self.added]]
        op.graph._version_changed(op)


class GradientGraph(FuncGraph):
    """The gradient of body number `branch` of `forward`."""

    def __init__(self, forward: Forward, branch: int) -> None:
        definition = forward.definitions[branch]
        super().__init__(f"{definition.name}_grad", f"the gradient of {definition.name}")
        self.forward, self.branch = forward, branch
        self.forward_graph: Graph = definition.graph
        self._constants: dict[Tensor, Tensor] = {}

    def capture(self, tensor: Tensor) -> Tensor:
        if tensor.op.graph is not self.forward_graph:
            return super().capture(tensor)
        made = self._constants.get(tensor)
        if made is not None:
            return made
        outside = self.forward.outside(self.branch, tensor)
        if outside is not None:
            return super().capture(outside)
        with (
            self.as_default(),
            self.name_scope(None),
            self.control_dependencies(None),
            self.colocate_with(None, ignore_existing=True),
        ):
            made = self._constants[tensor] = raw.Const(value=tensor.op.attrs["value"], dtype=tensor.dtype)
        return made

    def is_around(self, graph: Graph) -> bool:
        at: Any = self
        while at is not None:
            if at is graph or isinstance(at, GradientGraph) and at.forward_graph is graph:
                return True
            at = getattr(at, "outer_graph", None)
        return False

    def differentiate(self, grads: Sequence[Any]) -> list[Any]:
        """The gradient of each argument of the body, given those of its outputs (None where nobody asked)."""
        pairs = [
            (y, g)
            for y, g in zip(self.forward.outputs[self.branch], grads)
            if g is not None and _has_gradient(y)
        ]
        xs = self.forward.definitions[self.branch].inputs
        if not pairs:
            return [None] * len(xs)
        with self.as_default():
            return gradients([y for y, _ in pairs], xs, grad_ys=[g for _, g in pairs])


def _has_gradient(tensor: Tensor) -> bool:
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype.name in ("resource", "variant")


def branch_gradients(forward: Forward, grads: Sequence[Any]) -> list[GradientGraph]:
    """The gradient functions of the branches of `forward`, with outputs of the same kinds, one structure a
    branch's argument."""
    graphs = [GradientGraph(forward, i) for i in range(len(forward.definitions))]
    found = [graph.differentiate(grads) for graph in graphs]
    for i, gradients_of_one in enumerate(zip(*found)):
        if all(g is None for g in gradients_of_one):
            continue
        matched = list(gradients_of_one)
        for branch, graph in enumerate(graphs):
            if matched[branch] is None:
                with graph.as_default():
                    matched[branch] = zeros_for(forward.definitions[branch].inputs[i])
        for branch, grad in enumerate(_of_one_kind(graphs, matched)):
            found[branch][i] = grad
    for graph, made in zip(graphs, found):
        graph.set_outputs(made)
    forward.commit()
    return graphs


def _of_one_kind(graphs: list[GradientGraph], grads: list[Any]) -> list[Any]:
    """All dense, or all IndexedSlices with indices of one dtype."""
    if not any(isinstance(g, IndexedSlices) for g in grads):
        return grads
    made = []
    for graph, grad in zip(graphs, grads):
        with graph.as_default():
            made.append(grad if isinstance(grad, IndexedSlices) else slices_of(grad))
    has_shape = all(s.dense_shape is not None for s in made)
    index_type = int64 if any(s.indices.dtype is int64 for s in made) else int32
    shape_type = int64 if any(has_shape and s.dense_shape.dtype is int64 for s in made) else int32
    for i, (graph, slices) in enumerate(zip(graphs, made)):
        with graph.as_default():
            made[i] = IndexedSlices(
                slices.values,
                _cast(slices.indices, index_type),
                _cast(slices.dense_shape, shape_type) if has_shape else None,
            )
    return made


def _cast(tensor: Tensor, dtype: Any) -> Tensor:
    return tensor if tensor.dtype is dtype else raw.Cast(tensor, DstT=dtype)


@RegisterGradient("PartitionedCall")
@RegisterGradient("StatefulPartitionedCall")
def call_gradient(op: Operation, *grads: Any) -> list[Any]:
    """The gradient of a call, by name or by PartitionedCall: a call of the gradient function."""
    name = op.attrs["f"].name if "f" in op.attrs else op.type
    forward = Forward(op, [op.graph.functions[name]], 0)
    (graph,) = branch_gradients(forward, grads)
    definition = graph.define()
    kind = "StatefulPartitionedCall" if definition.is_stateful else "PartitionedCall"
    with get_default_graph().control_dependencies(graph.control_captures):
        call = build(
            OPS[kind],
            (list(graph.captures),),
            {"Tout": definition.result_types, "f": FunctionRef(definition.name)},
            None,
        )
    for inner, outer in zip(graph.outputs, call.outputs):
        outer.set_shape(inner.shape)
        outer.handle = inner.handle
    rest = iter(call.outputs)
    leaves = [
        None if leaf is None else next(rest)
        for leaf in nest.flatten(graph.structured_outputs, expand_composites=True)
    ]
    return nest.pack_sequence_as(graph.structured_outputs, leaves, expand_composites=True)


__all__ = ["Forward", "GradientGraph", "branch_gradients", "call_gradient"]
