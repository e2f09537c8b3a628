"""Control-flow contexts: while one is entered, what is built belongs to a branch.

`Graph.create_node` asks the open context to `admit` a node's inputs before it is made, and tells it of the
node when it is (`added`). A CondContext puts a Switch in front of every tensor from outside, and has what
takes no tensor wait for its pivot.
"""

from __future__ import annotations

from typing import Any

from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OpDef
from graphrt.core.tensor import Tensor
from graphrt.ops.control_flow import switch_colocated


class ControlFlowContext:
    """What conditionals and loops have in common.

    Attributes:
      name: unique in the graph.
      outer_context: the context in which this one was made, or None.
    """

    is_cond = False
    is_while = False

    def __init__(self, name: str, graph: Graph | None = None) -> None:
        self.graph = graph if graph is not None else get_default_graph()
        self.name = name
        self.outer_context: ControlFlowContext | None = self.graph.control_flow_context
        self.nested_contexts: list[ControlFlowContext] = []
        if self.outer_context is not None:
            self.outer_context.nested_contexts.append(self)
        # Tensors that may be taken here as they are, and what stands here for tensors from outside.
        self._values: set[Tensor] = set()
        self._external_values: dict[Tensor, Tensor] = {}
        self._entered: list[ControlFlowContext | None] = []

    def __enter__(self) -> ControlFlowContext:
        self._entered.append(self.graph.control_flow_context)
        self.graph.control_flow_context = self
        return self

    def __exit__(self, *error: Any) -> None:
        self.graph.control_flow_context = self._entered.pop()

    def Enter(self) -> None:  # noqa: N802  TF1's names, which programs call
        self.__enter__()

    def Exit(self) -> None:  # noqa: N802
        self.__exit__()

    def admit(
        self, op_def: OpDef, inputs: list[Tensor], control_inputs: list[Operation], name: str
    ) -> tuple[list[Tensor], list[Operation]]:
        """The inputs and control inputs that a node to be called `name` has here."""
        raise NotImplementedError

    def added(self, op: Operation) -> None:
        """`op` was made here: its outputs are known here, and in the contexts around."""
        context: ControlFlowContext | None = self
        while context is not None:
            context._values.update(op.outputs)
            context = context.outer_context
        self.graph.prevent_fetching(op)

    def add_value(self, tensor: Tensor) -> Tensor:
        """The tensor that stands here for `tensor`."""
        raise NotImplementedError

    def while_context(self) -> ControlFlowContext | None:
        """The innermost loop that this is in, or None."""
        if self.is_while:
            return self
        return self.outer_context.while_context() if self.outer_context is not None else None

    def contains(self, op: Operation) -> bool:
        """True where `op` was made here, or in a context within."""
        context = op._control_flow_context
        while context is not None and context is not self:
            context = context.outer_context
        return context is self

    def __str__(self) -> str:
        return self.name


class CondContext(ControlFlowContext):
    """One branch of a conditional.

    Attributes:
      pred: the predicate; pivot: a bool that is alive where the branch is taken; branch: 1 for true, 0 for
        false.
    """

    is_cond = True

    def __init__(
        self, pred: Tensor, pivot: Tensor, branch: int, name: str = "cond_text", unique: bool = True
    ) -> None:
        graph = pred.graph
        super().__init__(graph.unique_name(name) if unique else name, graph)
        self.pred, self.pivot, self.branch = pred, pivot, branch
        self._values |= {pred, pivot}
        self._external_values[pred] = pred
        pivot.op._control_flow_context = self

    def admit(
        self, op_def: OpDef, inputs: list[Tensor], control_inputs: list[Operation], name: str
    ) -> tuple[list[Tensor], list[Operation]]:
        waits_for_pivot = op_def.name in self.graph.functions or op_def.name == "SymbolicGradient"
        if inputs:
            with self.graph.name_scope(name):
                inputs = [self.add_value(t) for t in inputs]
        elif not any(self.contains(c) for c in control_inputs):
            waits_for_pivot = True
        if waits_for_pivot and self.pivot.op not in control_inputs:
            control_inputs = [*control_inputs, self.pivot.op]
        return inputs, control_inputs

    def add_value(self, tensor: Tensor) -> Tensor:
        if tensor in self._values:
            return self._external_values.get(tensor, tensor)
        self._values.add(tensor)
        value = tensor
        if self.outer_context is not None:
            value = self.outer_context.add_value(tensor)
            self._values.add(value)
            self._external_values[value] = value
        with self.graph.control_dependencies(None):
            value = switch_colocated(value, self.pred)[self.branch]
        value.op._control_flow_context = self
        self.added(value.op)
        self._external_values[tensor] = value
        return value

    def output(self, tensor: Tensor) -> Tensor:
        """What the branch gives where its function returned `tensor`, maybe one from outside."""
        if tensor in self._values:
            return self._external_values.get(tensor, tensor)
        self._values.add(tensor)
        value = tensor
        if self.outer_context is not None:
            value = self.outer_context.add_value(tensor)
            self._values.add(value)
            self._external_values[value] = value
        value = switch_colocated(value, self.pred)[self.branch]
        self._external_values[tensor] = value
        return value

    # -- in a MetaGraphDef ---------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The CondContextDef; None where the context is not under `export_scope`."""
        from graphrt.protos import control_flow_pb2

        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        made = control_flow_pb2.CondContextDef(
            context_name=_stripped(self.name, export_scope),
            pred_name=_stripped(self.pred.name, export_scope),
            pivot_name=_stripped(self.pivot.name, export_scope),
            branch=self.branch,
        )
        made.values_def.values.extend(sorted(_stripped(t.name, export_scope) for t in self._values))
        for outside, inside in self._external_values.items():
            made.values_def.external_values[_stripped(outside.name, export_scope)] = _stripped(
                inside.name, export_scope
            )
        for nested in self.nested_contexts:
            made.nested_contexts.add().cond_ctxt.CopyFrom(nested.to_proto(export_scope))  # type: ignore[attr-defined]
        return made

    @staticmethod
    def from_proto(context_def: Any, import_scope: str | None = None) -> CondContext:
        """The context of a CondContextDef, over the nodes of the default graph that it names."""
        graph = get_default_graph()

        def tensor(name: str) -> Tensor:
            return graph.get_tensor_by_name(_prefixed(name, import_scope))

        context = CondContext(
            tensor(context_def.pred_name),
            tensor(context_def.pivot_name),
            context_def.branch,
            _prefixed(context_def.context_name, import_scope),
            unique=False,
        )
        values = context_def.values_def
        context._values = {tensor(name) for name in values.values}
        context._external_values = {tensor(k): tensor(v) for k, v in values.external_values.items()}
        for value in context._values - set(context._external_values):
            value.op._control_flow_context = context
        with context:
            for nested in context_def.nested_contexts:
                if nested.WhichOneof("ctxt") != "cond_ctxt":
                    raise NotImplementedError(f"a while loop inside '{context.name}' cannot be imported yet")
                CondContext.from_proto(nested.cond_ctxt, import_scope)
        return context


def _stripped(name: str, scope: str | None) -> str:
    if not scope:
        return name
    prefix = scope.rstrip("/") + "/"
    return name[len(prefix) :] if name.startswith(prefix) else name


def _prefixed(name: str, scope: str | None) -> str:
    return f"{scope.rstrip('/')}/{name}" if scope else name
