"""FunctionDefinition: a function of the library, the body of If, Case, While, PartitionedCall and of calls by
name.

A body is a Graph whose `inputs` are placeholder-like nodes. Builders of functions make definitions from
graphs that they traced; `import_library` makes them from FunctionDef messages, whose graphs are built when
they are first asked for, so that a library may hold functions with ops that a program never reaches.
`add_to_library` writes them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from graphrt.core import registry
from graphrt.core.attr_values import FunctionRef, attr_from_proto, attr_to_proto
from graphrt.core.dtypes import BY_NUMBER, DType, variant
from graphrt.core.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.registry import OpDef
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.signature import Arg, Signature
from graphrt.core.tensor import Tensor

__all__ = ["FunctionDefinition", "FunctionRef", "add_to_library", "call_op_def", "import_library"]

INPUT_TYPES = frozenset(("Placeholder", "PlaceholderV2", "_Arg", "_DeviceArg"))


class _Body:
    """What a definition's graph holds: built by its maker, or lazily from a FunctionDef."""

    __slots__ = ("graph", "inputs", "outputs", "control_outputs")

    def __init__(self, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor],
                 control_outputs: Sequence[Operation]) -> None:
        self.graph, self.inputs, self.outputs = graph, list(inputs), list(outputs)
        self.control_outputs = list(control_outputs)


class FunctionDefinition:
    """A function: a graph with inputs and outputs.

    Args:
      name: its name in the library.
      graph: the body; nodes that no output needs and that are stateful run too.
      inputs: the arguments: outputs of Placeholder or `_Arg` nodes of `graph`, captured values last.
      outputs: the results.
      control_outputs: operations that a call has run when it is done, beside the stateful ones.
      attrs: the function's own attrs.
      argument_names, result_names: as in its FunctionDef; made from the tensors' names where they are not
        given.
    """

    def __init__(self, name: str, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor],
                 control_outputs: Sequence[Operation] = (), attrs: dict[str, Any] | None = None,
                 argument_names: Sequence[str] | None = None,
                 result_names: Sequence[str] | None = None) -> None:
        self.name = name
        self.attrs: dict[str, Any] = dict(attrs or {})
        self._body: _Body | None = _Body(graph, inputs, outputs, control_outputs)
        self._build: Callable[[], _Body] | None = None
        self._lock = threading.RLock()
        self.argument_types: list[DType] = [t.dtype.base_dtype for t in inputs]
        self.result_types: list[DType] = [t.dtype.base_dtype for t in outputs]
        taken = {_normal(n) for n in graph._operations} - {_normal(t.op.name) for t in inputs}
        self.argument_names = list(argument_names or _unique_names([t.op.name for t in inputs], taken))
        self.result_names = list(result_names or _unique_names([t.op.name for t in outputs], set()))
        self._stateful: bool | None = None
        self._op_def: OpDef | None = None
        # Its FunctionDef as bytes, where it came from one.
        self._source: bytes | None = None

    @classmethod
    def _lazy(cls, name: str, attrs: dict[str, Any], arguments: list[tuple[str, DType]],
              results: list[tuple[str, DType]], is_stateful: bool | None,
              build: Callable[[], _Body]) -> FunctionDefinition:
        """A definition whose body `build()` makes when it is first asked for."""
        made = cls.__new__(cls)
        made.name, made.attrs, made._body, made._build = name, attrs, None, build
        made._lock, made._stateful, made._op_def = threading.RLock(), is_stateful, None
        made._source = None
        made.argument_names, made.argument_types = [n for n, _ in arguments], [d for _, d in arguments]
        made.result_names, made.result_types = [n for n, _ in results], [d for _, d in results]
        return made

    @property
    def body(self) -> _Body:
        """The graph and its ends; built now where the definition came from a FunctionDef."""
        if self._body is None:
            with self._lock:
                if self._body is None:
                    assert self._build is not None
                    self._body = self._build()
        return self._body

    graph: Graph = property(lambda self: self.body.graph)  # type: ignore[assignment]
    inputs: list[Tensor] = property(lambda self: self.body.inputs)  # type: ignore[assignment]
    outputs: list[Tensor] = property(lambda self: self.body.outputs)  # type: ignore[assignment]
    control_outputs: list[Operation] = property(lambda self: self.body.control_outputs)  # type: ignore[assignment]

    @property
    def output_shapes(self) -> list[TensorShape]:
        return [t.shape for t in self.outputs]

    @property
    def is_stateful(self) -> bool:
        """True where a call has effects, or may differ between two calls with the same arguments."""
        if self._stateful is None:
            self._stateful = any(op.op_def.stateful and op.type not in INPUT_TYPES for op
                                 in self.graph.get_operations())
        return self._stateful

    def __repr__(self) -> str:
        args = ", ".join(f"{n}: {d.name}" for n, d in zip(self.argument_names, self.argument_types))
        return f"<function {self.name}({args}) -> ({', '.join(d.name for d in self.result_types)})>"


def call_op_def(function: FunctionDefinition) -> OpDef:
    """The OpDef of a node whose type is the function's name, as Defun calls are."""
    if function._op_def is None:
        arguments = [Arg(n, d) for n, d in zip(function.argument_names, function.argument_types)]
        results = [Arg(n, d) for n, d in zip(function.result_names, function.result_types)]
        function._op_def = OpDef(Signature(function.name, arguments, results), _Call(function))
    return function._op_def


class _Call:
    """The facts of a call by name. It has no kernel: the compiler puts the body in its place."""

    def __init__(self, function: FunctionDefinition) -> None:
        self.function = function
        self.stateful = function.is_stateful
        self.unfoldable = True

    def shape(self, s: Any, *inputs: Any) -> list[TensorShape]:
        return self.function.output_shapes


def _normal(name: str) -> str:
    """`name` as an argument may be called: lower case, digits and '_', a letter first."""
    made = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return made if made[:1].isalpha() else "arg_" + made.lstrip("_")


def _unique_names(names: Iterable[str], taken: set[str]) -> list[str]:
    made: list[str] = []
    for name in names:
        base = candidate = _normal(name)
        n = 0
        while candidate in taken:
            n += 1
            candidate = f"{base}_{n}"
        taken.add(candidate)
        made.append(candidate)
    return made


# -- writing -----------------------------------------------------------------------------------------------


def add_to_library(function: FunctionDefinition, library: Any) -> None:
    """Append the FunctionDef of `function` to a FunctionDefLibrary message."""
    from graphrt.core.graph_def import fill_node
    made = library.function.add()
    signature = made.signature
    signature.name = function.name
    signature.is_stateful = function.is_stateful
    arguments = {t.op: name for t, name in zip(function.inputs, function.argument_names)}
    for i, (tensor, name) in enumerate(zip(function.inputs, function.argument_names)):
        argument = signature.input_arg.add(name=name, type=tensor.dtype.base_dtype.number)
        if tensor.handle is not None:
            dtype, shape = tensor.handle
            argument.handle_data.add(dtype=dtype.number, shape=shape.as_proto())
        if tensor.shape.sizes is not None:
            made.arg_attr[i].attr["_output_shapes"].CopyFrom(attr_to_proto([tensor.shape]))
    for op in function.graph.get_operations():
        if op in arguments:
            continue
        inputs = [_input_text(t, arguments) for t in op.inputs]
        controls = [f"^{arguments.get(c, c.name)}" for c in op.control_inputs]
        fill_node(made.node_def.add(), op.name, op.type, inputs + controls, op.device, op.attrs, op.op_def)
    for tensor, name in zip(function.outputs, function.result_names):
        signature.output_arg.add(name=name, type=tensor.dtype.base_dtype.number)
        made.ret[name] = _input_text(tensor, arguments)
    for op, name in zip(function.control_outputs, _unique_names([o.name for o in function.control_outputs],
                                                                set())):
        signature.control_output.append(name)
        made.control_ret[name] = op.name
    for key, value in function.attrs.items():
        made.attr[key].CopyFrom(attr_to_proto(value))


def _input_text(tensor: Tensor, arguments: dict[Operation, str]) -> str:
    """A tensor as a FunctionDef names it: an argument, or 'node:output argument:index within it'."""
    op = tensor.op
    if op in arguments:
        return arguments[op]
    index = tensor.value_index
    for argument, n in zip(op.op_def.outputs, op.op_def.counts(op.op_def.outputs, op.attrs)):
        if index < n:
            return f"{op.name}:{argument.name}:{index}"
        index -= n
    raise AssertionError(f"'{op.name}' has no output {tensor.value_index}")


# -- reading -----------------------------------------------------------------------------------------------


def import_library(library: Any, graph: Graph) -> dict[str, str]:
    """Add the functions of a FunctionDefLibrary to `graph`.

    A function that `graph` has already, the same and under the same name, is left as it is. One whose name
    another function has there gets a new name, and so do those that call it.

    Returns:
      Old name to new name.
    """
    renamed = _new_names(library.function, graph.functions)
    for proto in library.function:
        name = renamed.get(proto.signature.name, proto.signature.name)
        if name not in graph.functions:
            graph.functions[name] = from_proto(_with_names(proto, renamed), graph.functions)
    return renamed


def _new_names(protos: Iterable[Any], present: dict[str, FunctionDefinition]) -> dict[str, str]:
    known = {p.signature.name: p for p in protos if p.signature.name in present}
    other = {name for name, proto in known.items() if not _is_same(present[name], proto)}
    if not other:
        return {}
    calls = {p.signature.name: set(_called(p)) for p in protos}
    while True:
        # What is the same by its text is another function where it calls another one.
        more = {n for n in calls if n in present and n not in other and calls[n] & other}
        if not more:
            break
        other |= more
    taken = {*present, *calls}
    made: dict[str, str] = {}
    for name in sorted(other):
        n = 1
        while f"{name}_{n}" in taken:
            n += 1
        made[name] = f"{name}_{n}"
        taken.add(made[name])
    return made


def _is_same(function: FunctionDefinition, proto: Any) -> bool:
    from graphrt.protos import function_pb2
    given = proto.SerializeToString(deterministic=True)
    if function._source == given:
        return True
    written = function_pb2.FunctionDefLibrary()
    add_to_library(function, written)
    return written.function[0].SerializeToString(deterministic=True) == given


def _called(proto: Any) -> Iterator[str]:
    """The names of functions that the nodes of a FunctionDef may run."""
    for node in proto.node_def:
        yield node.op
        for value in node.attr.values():
            if value.WhichOneof("value") == "func":
                yield value.func.name
            for ref in value.list.func:
                yield ref.name


def _with_names(proto: Any, renamed: dict[str, str]) -> Any:
    """`proto` under its new name, with the new names of what it runs."""
    if not renamed:
        return proto
    made = type(proto).FromString(proto.SerializeToString())
    made.signature.name = renamed.get(made.signature.name, made.signature.name)
    for node in made.node_def:
        node.op = renamed.get(node.op, node.op)
        for value in node.attr.values():
            if value.WhichOneof("value") == "func":
                value.func.name = renamed.get(value.func.name, value.func.name)
            elif value.WhichOneof("value") == "list":
                for ref in value.list.func:
                    ref.name = renamed.get(ref.name, ref.name)
    return made


def with_new_names(value: Any, renamed: dict[str, str]) -> Any:
    """An attr's value with the new names of functions in it."""
    if isinstance(value, FunctionRef):
        return FunctionRef(renamed.get(value.name, value.name), value.attrs)
    return [with_new_names(v, renamed) for v in value] if isinstance(value, list) else value


def from_proto(proto: Any, library: dict[str, Any]) -> FunctionDefinition:
    """The definition of a FunctionDef; functions that it calls are looked up in `library` when its body is
    built.

    A function whose argument types are left to its caller's attrs is taken, and is an UnimplementedError
    where it is called.
    """
    signature = proto.signature
    ends: list[list[tuple[str, DType]]] = [[], []]
    is_generic = False
    for end, arguments in zip(ends, (signature.input_arg, signature.output_arg)):
        for argument in arguments:
            is_generic |= bool(argument.type_attr or argument.number_attr or argument.type_list_attr)
            end.append((argument.name, BY_NUMBER.get(argument.type, variant).base_dtype))
    attrs = {k: attr_from_proto(v) for k, v in proto.attr.items()}

    def build() -> _Body:
        if is_generic:
            raise UnimplementedError(None, None, f"function '{signature.name}' leaves the types of its "
                                                 "arguments to attrs of its caller; graphrt takes functions "
                                                 "with concrete types")
        return _build_body(proto, ends[0], library)

    # The flag is a promise of the writer's: where it is unset, the body says.
    is_stateful = True if signature.is_stateful else None
    made = FunctionDefinition._lazy(signature.name, attrs, ends[0], ends[1], is_stateful, build)
    made._source = proto.SerializeToString(deterministic=True)
    return made


def _build_body(proto: Any, arguments: list[tuple[str, DType]], library: dict[str, Any]) -> _Body:
    from graphrt.core.graph_def import import_graph_def
    from graphrt.protos import graph_pb2
    graph = Graph()
    graph.building_function = True
    graph.functions = library
    inputs: dict[str, Tensor] = {}
    for i, (name, dtype) in enumerate(arguments):
        inputs[name] = _argument(graph, proto, i, name, dtype)
    made = graph_pb2.GraphDef()
    offsets = {node.name: _output_offsets(node, library) for node in proto.node_def}
    used: dict[str, Any] = {}

    def flat(text: str) -> str:
        """A FunctionDef's input as a GraphDef's: 'node:output argument:index' counts over all outputs
        there."""
        if text.startswith("^"):
            if text[1:] in inputs:
                used[text] = inputs[text[1:]].op
            return text
        name, _, rest = text.partition(":")
        if name in inputs:
            used[name] = inputs[name]
            return name
        if name not in offsets:
            raise InvalidArgumentError(None, None, f"function '{proto.signature.name}' takes '{text}', which "
                                                   "it does not have")
        argument, _, index = rest.partition(":")
        if argument not in offsets[name]:
            raise InvalidArgumentError(None, None, f"function '{proto.signature.name}': '{name}' has no "
                                                   f"output '{argument}' (it has {', '.join(offsets[name])})")
        return f"{name}:{offsets[name][argument] + int(index or 0)}"

    for node in proto.node_def:
        copied = made.node.add()
        copied.ParseFromString(node.SerializeToString())
        del copied.input[:]
        copied.input.extend(flat(text) for text in node.input)
    # An argument that is returned is an input of no node.
    input_map = dict(used)
    outputs = [flat(proto.ret[result.name]) for result in proto.signature.output_arg]
    controls = [proto.control_ret[name] for name in proto.signature.control_output]
    with graph.as_default():
        import_graph_def(made, input_map=input_map, name="")
    found = [inputs[o] if o in inputs else graph.get_tensor_by_name(o) for o in outputs]
    done = [inputs[c].op if c in inputs else graph.get_operation_by_name(c) for c in controls]
    return _Body(graph, list(inputs.values()), found, done)


def _argument(graph: Graph, proto: Any, i: int, name: str, dtype: DType) -> Tensor:
    shape = UNKNOWN
    if i in proto.arg_attr and "_output_shapes" in proto.arg_attr[i].attr:
        shape = (attr_from_proto(proto.arg_attr[i].attr["_output_shapes"]) or [UNKNOWN])[0]
    placeholder = registry.OPS["Placeholder"]
    tensor = graph.create_node(placeholder, [], {"dtype": dtype, "shape": shape}, name + "/").outputs[0]
    handle_data = proto.signature.input_arg[i].handle_data
    if len(handle_data):
        tensor.handle = (BY_NUMBER[handle_data[0].dtype], TensorShape(handle_data[0].shape))
    return tensor


def _output_offsets(node: Any, library: dict[str, Any]) -> dict[str, int]:
    """The flat index at which each output argument of a node begins."""
    from graphrt.core.graph_def import node_attrs
    op_def = registry.lookup(node.op)
    if op_def is None and node.op in library:
        op_def = call_op_def(library[node.op])
    if op_def is None:
        raise NotFoundError(None, None, f"Op type '{node.op}' of node '{node.name}' in a function is not "
                                        "registered in graphrt, and no function of the library is called "
                                        "that")
    offsets, at = {}, 0
    for argument, n in zip(op_def.outputs, op_def.counts(op_def.outputs, node_attrs(node, op_def))):
        offsets[argument.name] = at
        at += n
    return offsets

