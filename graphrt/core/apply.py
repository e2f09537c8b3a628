"""apply_op: the one function that makes nodes from Python values.

It converts inputs to tensors, infers the attrs that types and counts decide, fills and checks the others, and
hands over to `Graph.create_node`. Every op's call, `raw_ops` and every public function end here.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from graphrt.core import registry
from graphrt.core.convert import constant_tensor, convert_to_tensor, make_array, peek_dtype
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, of_array
from graphrt.core.errors import source_line
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation, user_location
from graphrt.core.registry import OpDef
from graphrt.core.signature import REQUIRED, Arg, check_attr
from graphrt.core.tensor import Tensor


def apply_op(op_def: OpDef, args: tuple[Any, ...], named: dict[str, Any], name: str | None) -> Any:
    """Build a node of `op_def`.

    Args:
      args: inputs in signature order; a list for a sequence argument.
      named: further inputs and attrs by name.
    Returns:
      Its Tensor; a list of Tensors where the output is a sequence or there are several (a list within the
      list for a sequence among several); the Operation where it has no output.
    Raises:
      TypeError, ValueError: an input or attr that does not fit, with the op and the user's line.
    """
    op = build(op_def, args, named, name)
    if op_def.single_output:
        return op.outputs[0]
    if not op_def.outputs:
        return op
    if len(op_def.outputs) == 1:
        return list(op.outputs)
    grouped: list[Any] = []
    at = 0
    for arg, n in zip(op_def.outputs, op_def.counts(op_def.outputs, op.attrs)):
        grouped.append(list(op.outputs[at : at + n]) if arg.is_sequence else op.outputs[at])
        at += n
    return grouped


def build(op_def: OpDef, args: tuple[Any, ...], named: dict[str, Any], name: str | None) -> Operation:
    """`apply_op`, returning the Operation."""
    values = list(args)
    if len(values) < len(op_def.inputs):
        try:
            values += [named.pop(a.name) for a in op_def.inputs[len(values) :]]
        except KeyError as missing:
            raise TypeError(
                f"{op_def.name}: input {missing} is missing: it takes "
                f"{', '.join(a.name for a in op_def.inputs)}"
            ) from None
    elif len(values) > len(op_def.inputs):
        raise TypeError(
            f"{op_def.name} takes {len(op_def.inputs)} inputs, not {len(values)}; attrs go by name"
        )
    graph = get_default_graph()
    given = [t for t in values if t.__class__ is Tensor]
    if given and given[0].op.graph is not graph and not graph.building_function:
        # Inputs of another graph than the default one take the node to their graph, as in TF1.
        with given[0].op.graph.as_default():
            return _build(given[0].op.graph, op_def, values, named, name)
    return _build(graph, op_def, values, named, name)


def _build(
    graph: Graph, op_def: OpDef, values: list[Any], named: dict[str, Any], name: str | None
) -> Operation:
    attrs: dict[str, Any] = {}
    declared = op_def.attrs
    for key, value in named.items():
        attr = declared.get(key)
        if attr is None:
            if key[0] == "_":
                attrs[key] = value
                continue
            raise TypeError(
                f"{op_def.name} has no input or attr '{key}': inputs {[a.name for a in op_def.inputs]}, "
                "attrs "
                f"{list(declared)}"
            )
        if value is None:
            if attr.default is not REQUIRED:
                value = attr.default
            elif attr.kind not in ("shape",):
                continue  # inferred from the inputs, or reported as missing below
        attrs[key] = check_attr(attr, value, op_def.name)
    if any(_needs_conversion(v) for v in values):
        # Constants made from Python values stand under the node's own name scope, as in TensorFlow.
        scope_name = name or op_def.name
        with name_scope(scope_name) as scope:
            flat = _convert_inputs(op_def, values, attrs)
        name = scope
    else:
        flat = _convert_inputs(op_def, values, attrs)
    for key, attr in declared.items():
        if key not in attrs:
            if attr.default is REQUIRED:
                raise TypeError(f"{op_def.name}: attr '{key}' ({attr.kind}) is missing")
            attrs[key] = attr.default
    if attrs.get("container") == b"" and op_def.stateful:
        attrs["container"] = graph._scopes.container.encode()
    if op_def.has_ref_input:
        # What updates a ref variable stands with it.
        with ExitStack() as stack:
            for arg, tensor in zip(op_def.flat_input_args(op_def.counts(op_def.inputs, attrs)), flat):
                if arg.is_ref:
                    stack.enter_context(graph.colocate_with(tensor.op))
            return graph.create_node(op_def, flat, attrs, name or op_def.name.lstrip("_"))
    return graph.create_node(op_def, flat, attrs, name or op_def.name.lstrip("_"))


def _needs_conversion(value: Any) -> bool:
    if value.__class__ is Tensor:
        return False
    if isinstance(value, (list, tuple)):
        return not value or any(_needs_conversion(v) for v in value)
    return not isinstance(value, Tensor)


def _convert_inputs(op_def: OpDef, values: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    """The flat input tensors; the attrs that they decide are added to `attrs`."""
    flat: list[Tensor] = []
    for arg, value in zip(op_def.inputs, values):
        if arg.is_sequence:
            if not isinstance(value, (list, tuple)):
                raise TypeError(f"{op_def.name}: '{arg.name}' takes a list of tensors, not {value!r}")
            flat += _convert_sequence(op_def, arg, list(value), values, attrs)
            continue
        wanted = arg.dtype if arg.dtype is not None else attrs.get(arg.type_attr)
        if value.__class__ is not Tensor:
            hint = None
            if wanted is None:
                hint = _dtype_of_siblings(op_def, arg.type_attr, values)
                if hint is None:
                    hint = _preferred(op_def, arg, value)
            value = _to_tensor(op_def, arg, value, wanted, hint)
        _check_type(op_def, arg, value, wanted, attrs)
        flat.append(value)
    return flat


def _convert_sequence(
    op_def: OpDef, arg: Arg, items: list[Any], values: list[Any], attrs: dict[str, Any]
) -> list[Tensor]:
    if arg.number_attr:
        if arg.number_attr in attrs and attrs[arg.number_attr] != len(items):
            raise ValueError(
                f"{op_def.name}: '{arg.name}' has {len(items)} tensors, as many as "
                f"'{arg.number_attr}' or other lists: {attrs[arg.number_attr]}"
            )
        attrs[arg.number_attr] = check_attr(op_def.attrs[arg.number_attr], len(items), op_def.name)
        wanted = arg.dtype if arg.dtype is not None else attrs.get(arg.type_attr)
        if wanted is None:
            found = {peek_dtype(v) for v in items} - {None}
            hint = next(iter(found)) if len(found) == 1 else _dtype_of_siblings(op_def, arg.type_attr, values)
            if hint is None:
                hint = next((peek_dtype(v) for v in items if peek_dtype(v) is not None), None)
        else:
            hint = None
        made = [_to_tensor(op_def, arg, v, wanted, hint, i) for i, v in enumerate(items)]
        for tensor in made:
            _check_type(op_def, arg, tensor, wanted, attrs)
            wanted = arg.dtype if arg.dtype is not None else attrs.get(arg.type_attr)
        return made
    types = attrs.get(arg.list_attr)
    if types is not None and len(types) != len(items):
        raise ValueError(f"{op_def.name}: '{arg.name}' has {len(items)} tensors for {len(types)} types")
    made = [
        _to_tensor(op_def, arg, v, types[i] if types is not None else None, None, i)
        for i, v in enumerate(items)
    ]
    for i, tensor in enumerate(made):
        if types is not None and tensor.dtype.base_dtype is not types[i]:
            raise TypeError(
                f"{op_def.name}: '{arg.name}'[{i}] is {tensor.dtype.base_dtype.name}, not {types[i].name}"
            )
    attrs[arg.list_attr] = check_attr(
        op_def.attrs[arg.list_attr], [t.dtype.base_dtype for t in made], op_def.name
    )
    return made


def _to_tensor(
    op_def: OpDef, arg: Arg, value: Any, wanted: DType | None, hint: DType | None, place: int | None = None
) -> Tensor:
    if value.__class__ is Tensor:
        return value
    name = arg.name if place is None else f"{arg.name}_{place}"  # as TensorFlow names the constants of a list
    try:
        return convert_to_tensor(value, dtype=wanted, name=name, preferred_dtype=hint, as_ref=arg.is_ref)
    except (TypeError, ValueError) as error:
        want = f" as {wanted.name}" if wanted is not None else ""
        raise type(error)(
            f"{op_def.name}: input '{arg.name}'{want}: {error}\n  built at {source_line(user_location())}"
        ) from None


def _check_type(op_def: OpDef, arg: Arg, tensor: Tensor, wanted: DType | None, attrs: dict[str, Any]) -> None:
    base = tensor.dtype.base_dtype
    if wanted is not None:
        if base is not wanted:
            raise TypeError(_mismatch(op_def, arg, tensor, wanted))
    elif arg.type_attr:
        attrs[arg.type_attr] = check_attr(op_def.attrs[arg.type_attr], base, op_def.name)
    if arg.is_ref and not tensor.dtype.is_ref:
        raise TypeError(
            f"{op_def.name}: '{arg.name}' takes a ref variable, and '{tensor.name}' is a plain "
            f"{base.name} tensor: pass a tf.Variable made with use_resource=False"
        )


def _mismatch(op_def: OpDef, arg: Arg, tensor: Tensor, wanted: DType) -> str:
    same = [a.name for a in op_def.inputs if a.type_attr and a.type_attr == arg.type_attr and a is not arg]
    why = f" as '{same[0]}' has" if same else ""
    return (
        f"{op_def.name}: input '{arg.name}' is {tensor.dtype.base_dtype.name} ('{tensor.name}'), not "
        f"{wanted.name}{why}"
        f"\n  built at {source_line(user_location())}\n  hint     tf.cast(x, tf.{wanted.name})"
    )


def _dtype_of_siblings(op_def: OpDef, type_attr: str, values: list[Any]) -> DType | None:
    """The dtype of a tensor among the inputs that share `type_attr`."""
    if not type_attr:
        return None
    for arg, value in zip(op_def.inputs, values):
        if arg.type_attr == type_attr:
            for item in value if arg.is_sequence and isinstance(value, (list, tuple)) else (value,):
                found = peek_dtype(item)
                if found is not None:
                    return found
    return None


def _preferred(op_def: OpDef, arg: Arg, value: Any) -> DType | None:
    """What a Python value becomes where nothing else decides: the attr's default, unless the attr lists what
    it allows and the dtype that the value would have anyhow is among that."""
    attr = op_def.attrs.get(arg.type_attr)
    if attr is None or attr.default is REQUIRED:
        return None
    if attr.allowed:
        own = peek_dtype(value)
        if own is None:
            try:
                own = of_array(make_array(value))
            except (TypeError, ValueError):
                pass  # a Python value with no dtype of its own: the default decides
        if own in attr.allowed:
            return None
        if own is not None and peek_dtype(value) is None:
            # TensorFlow has made a constant of it by now, as of [] for a shape; seeds count nodes, so it is
            # made here too.
            constant_tensor(value, name=arg.name)
    return attr.default


def create_op(
    graph: Graph, op_type: str, inputs: list[Tensor], dtypes: Any, name: str | None, attrs: dict[str, Any]
) -> Operation:
    """A node by type name with converted inputs; attrs may be AttrValue messages. See Graph.create_op."""
    from graphrt.core import graph_def

    op_def = registry.lookup(op_type)
    if op_def is None:
        raise ValueError(f"Op type {op_type!r} is not registered in graphrt")
    plain = {k: graph_def.attr_from_proto(v) if hasattr(v, "WhichOneof") else v for k, v in attrs.items()}
    grouped: list[Any] = []
    rest = list(inputs)
    for arg in op_def.inputs:
        if arg.is_sequence:
            n = (
                plain.get(arg.number_attr)
                if arg.number_attr
                else len(plain[arg.list_attr])
                if arg.list_attr in plain
                else None
            )
            n = len(rest) if n is None else n
            grouped.append(rest[:n])
            rest = rest[n:]
        else:
            grouped.append(rest.pop(0))
    with graph.as_default():
        return build(op_def, tuple(grouped), plain, name)
