"""FuncGraph: the body of a function while it is traced. What it uses from outside is captured: it becomes an
argument."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphrt.core import nest, raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph
from graphrt.core.function_def import FunctionDefinition
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OpDef
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor


class FuncGraph(Graph):
    """A graph whose nodes may use tensors of the graphs around it.

    Args:
      name: what the function is to be called; `define` makes it unique in the library.
      role: what messages call it, as 'true_fn'.
      outer_graph: the graph that it is built in; the default graph where None.

    Attributes:
      inputs: arguments, then a placeholder for each captured tensor.
      captures: captured tensor (of a graph around) to its placeholder, in order.
      control_captures: operations of graphs around that something in the body waits for: a call waits for
        them.
      outputs: the results, flat.
      structured_outputs: what the traced Python function returned, variables read and operations replaced.
    """

    building_function = True

    def __init__(self, name: str, role: str = "", outer_graph: Graph | None = None) -> None:
        super().__init__()
        self.name, self.role = name, role or name
        self.outer_graph: Graph = outer_graph if outer_graph is not None else get_default_graph()
        # One library and one set of collections for a program, whatever is built where.
        self.functions = self.outer_graph.functions
        self._collections = self.outer_graph._collections
        self.seed = self.outer_graph.seed
        self.inputs: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.control_captures: list[Operation] = []
        self.outputs: list[Tensor] = []
        self.structured_outputs: Any = None

    # -- captures ------------------------------------------------------------------------------------------

    def create_node(
        self, op_def: OpDef, inputs: list[Tensor], attrs: dict[str, Any], *args: Any, **named: Any
    ) -> Operation:
        if op_def.has_ref_input:
            for tensor, wanted in zip(inputs, op_def.types(op_def.inputs, attrs)):
                if wanted.is_ref and tensor.op.graph is not self:
                    raise TypeError(
                        f"{op_def.name} updates the ref variable '{tensor.op.name}' from inside of a "
                        f"function ({self.role}), "
                        "where only its value can be had. A resource variable (use_resource=True) can be "
                        "updated there"
                    )
        return super().create_node(op_def, inputs, attrs, *args, **named)

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this body that stands for one of a graph around.

        Raises:
          ValueError: the tensor is of another function, which is not around this one.
        """
        if tensor.op.graph is self:
            return tensor
        made = self.captures.get(tensor)
        if made is None:
            self._check_reachable(tensor)
            made = self.captures[tensor] = self.placeholder_for(tensor)
            self.inputs.append(made)
        return made

    def placeholder_for(self, tensor: Tensor) -> Tensor:
        """A placeholder like `tensor` that belongs to no scope of this graph."""
        with (
            self.as_default(),
            self.name_scope(None),
            self.control_dependencies(None),
            self.colocate_with(None, ignore_existing=True),
        ):
            made = raw.Placeholder(dtype=tensor.dtype.base_dtype, shape=tensor.shape, name=_flat_name(tensor))
        made.handle = tensor.handle
        return made

    def is_around(self, graph: Graph) -> bool:
        """True where `graph` is this one, or one that this is built in."""
        at: Graph | None = self
        while at is not None:
            if at is graph:
                return True
            at = getattr(at, "outer_graph", None)
        return False

    def _check_reachable(self, tensor: Tensor) -> None:
        graph = tensor.op.graph
        if self.is_around(graph):
            return
        if isinstance(graph, FuncGraph):
            raise ValueError(
                f"Tensor {tensor.name} in {graph.role} is accessed from {self.role}. A function's tensors "
                "are its own: return what others need"
            )
        raise ValueError(f"Tensor '{tensor.name}' is of another graph than {self.role} is built in")

    # -- scopes --------------------------------------------------------------------------------------------

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        around = get_default_graph()
        scopes = self._scopes
        old = scopes.devices, scopes.colocation, scopes.container
        if around is not self:
            # Device functions and colocations reach into bodies; device names do not: the call's fill what a
            # body leaves open.
            outer = around._scopes
            scopes.devices = list(outer.devices) if any(callable(d) for d in outer.devices) else []
            scopes.colocation, scopes.container = list(outer.colocation), outer.container
        try:
            with super().as_default():
                yield self
        finally:
            scopes.devices, scopes.colocation, scopes.container = old

    @contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        given = None if control_inputs is None else list(control_inputs)
        for item in given or ():
            op = self._as_operation(item)
            if op.graph is not self and op not in self.control_captures:
                self.control_captures.append(op)
        with super().control_dependencies(given):
            yield

    def _as_operation(self, given: Any) -> Operation:
        # A variable of a graph around may be colocated with, and waited for.
        element = getattr(given, "_as_graph_element", None)
        return super()._as_operation(element() if element is not None else given)

    # -- tracing -------------------------------------------------------------------------------------------

    def trace(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any] = (),
        operation_value: Tensor | None = None,
    ) -> None:
        """Build the body: call `function` and take what it returns as the outputs.

        Args:
          arguments: what it is called with: tensors of this graph, or anything else.
          operation_value: a tensor of a graph around; once an operation that `function` returned has run, its
            value stands for it.
        Raises:
          TypeError: something that it returned is no tensor.
        """
        with self.as_default():
            returned = function(*arguments)

            def tensor_of(leaf: Any) -> Any:
                if leaf is None or isinstance(leaf, (IndexedSlices, SparseTensor)):
                    return leaf
                if isinstance(leaf, Operation):
                    if operation_value is None:
                        raise TypeError(
                            f"{self.role} returned the operation '{leaf.name}': a function returns tensors"
                        )
                    with self.control_dependencies([leaf]):
                        return raw.Identity(self.capture(operation_value))
                try:
                    made = convert_to_tensor(leaf)
                except (TypeError, ValueError) as error:
                    raise TypeError(
                        f"{self.role} must return tensors, or None; it returned {leaf!r}: {error}"
                    ) from None
                return self.capture(made)

            self.structured_outputs = nest.map_structure(tensor_of, returned)
        self.set_outputs(self.structured_outputs)

    def set_outputs(self, structure: Any) -> None:
        """Make the tensors of `structure` the outputs; None in it stands for no output."""
        self.structured_outputs = structure
        leaves = nest.flatten(structure, expand_composites=True)
        self.outputs = [self.capture(t) for t in leaves if t is not None]

    def define(self) -> FunctionDefinition:
        """Add the function to the program's library, under a name that no other has."""
        definition = define(self.functions, self.name, self, self.inputs, self.outputs)
        self.name = definition.name
        return definition


_defining = threading.Lock()


def define(
    library: dict[str, Any],
    name: str,
    graph: Graph,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    **options: Any,
) -> FunctionDefinition:
    """Add a function to `library` as 'name_n', with a number that makes it unique. `options` are
    FunctionDefinition's."""
    flat = name.replace("/", "_")
    with _defining:
        n = len(library)
        while f"{flat}_{n}" in library:
            n += 1
        made = library[f"{flat}_{n}"] = FunctionDefinition(f"{flat}_{n}", graph, inputs, outputs, **options)
    return made


def _flat_name(tensor: Tensor) -> str:
    made = tensor.op.name.replace("/", "_").lstrip("_")
    return f"{made}_{tensor.value_index}" if tensor.value_index else made or "captured"
