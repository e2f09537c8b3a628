"""MetaGraphDefs: a graph with its collections, saver and what else is needed to go on with it elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from graphrt.core import registry
from graphrt.core.attr_values import attr_to_proto
from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph import Graph
from graphrt.core.graph_def import import_graph_def
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.signature import REQUIRED
from graphrt.formats.atomic_files import write_file
from graphrt.train.saver_collections import fill_collection, restore_collections
from graphrt.variables.variable import strip_scope

# The TensorFlow whose graphs ours are: readers ask by it how to read a MetaGraphDef.
_TENSORFLOW_VERSION = "2.21.0"
_UNBOUND = "$unbound_inputs_"
_SAVER_OPS = ("SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice")


def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """Write a Graph, or a message (GraphDef, MetaGraphDef), to `logdir/name`, as text or in binary.

    Returns:
      The file's path.
    """
    message = (
        graph_or_graph_def.as_graph_def() if isinstance(graph_or_graph_def, Graph) else graph_or_graph_def
    )
    if logdir:
        os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    content = (
        text_format.MessageToString(message).encode()
        if as_text
        else message.SerializeToString(deterministic=True)
    )
    write_file(path, content)
    return path


def create_meta_graph_def(
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: list[str] | None = None,
    graph: Graph | None = None,
    export_scope: str | None = None,
    exclude_nodes: set[str] | None = None,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
) -> Any:
    """The MetaGraphDef of a graph; see export_meta_graph.

    Raises:
      TypeError: an argument is no message of its kind.
    """
    from graphrt.protos import meta_graph_pb2

    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"graph must be of type Graph. Received type: {type(graph)}.")
    for what, given, field in (
        ("meta_info_def", meta_info_def, "tags"),
        ("graph_def", graph_def, "node"),
        ("saver_def", saver_def, "restore_op_name"),
    ):
        if given is not None and not hasattr(given, field):
            raise TypeError(f"{what} must be a message of its kind. Received type: {type(given)}.")
    graph = graph or get_default_graph()
    made = meta_graph_pb2.MetaGraphDef()
    if meta_info_def is not None:
        made.meta_info_def.MergeFromString(meta_info_def.SerializeToString())
    made.meta_info_def.tensorflow_version = _TENSORFLOW_VERSION
    made.meta_info_def.tensorflow_git_version = "graphrt"
    source = graph.as_graph_def(add_shapes=True) if graph_def is None else graph_def
    made.graph_def.MergeFromString(source.SerializeToString())
    if not made.meta_info_def.stripped_op_list.op:
        _fill_op_list(made.meta_info_def.stripped_op_list, made.graph_def)
    if strip_default_attrs:
        _strip_default_attrs(made)
    if saver_def is not None:
        made.saver_def.MergeFromString(saver_def.SerializeToString())
    for key in graph.get_all_collection_keys() if collection_list is None else collection_list:
        items = graph.get_collection(key)
        if clear_extraneous_savers and key == GraphKeys.SAVERS:
            from graphrt.train.saver import Saver

            items = [Saver.from_proto(saver_def)]
        items = [i for i in items if _is_included(i, export_scope, exclude_nodes)]
        fill_collection(made, key, items, export_scope)
    return made


def _is_included(item: Any, export_scope: str | None, exclude_nodes: set[str] | None) -> bool:
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if not isinstance(name, str):
        return True
    if exclude_nodes and (name in exclude_nodes or name.partition(":")[0] in exclude_nodes):
        return False
    return name.startswith(_UNBOUND) or not export_scope or name.startswith(export_scope)


def _fill_op_list(into: Any, graph_def: Any) -> None:
    """The definitions of the ops that nodes and functions use."""
    functions = {f.signature.name: f for f in graph_def.library.function}
    used = {n.op for n in graph_def.node} | {n.op for f in functions.values() for n in f.node_def}
    for name in sorted(used - set(functions)):
        op_def = registry.lookup(name)
        if op_def is not None:
            fill_op_def(into.op.add(), op_def)


def fill_op_def(into: Any, op_def: registry.OpDef) -> None:
    """Write an op's signature into an OpDef message."""
    into.name, into.is_stateful = op_def.name, op_def.stateful
    for args, field in ((op_def.inputs, into.input_arg), (op_def.outputs, into.output_arg)):
        for arg in args:
            made = field.add(name=arg.name, is_ref=arg.is_ref)
            made.number_attr = arg.number_attr
            if arg.list_attr:
                made.type_list_attr = arg.list_attr
            elif arg.dtype is not None:
                made.type = arg.dtype.number
            else:
                made.type_attr = arg.type_attr
    for attr in op_def.attrs.values():
        made = into.attr.add(name=attr.name, type=f"list({attr.kind})" if attr.is_list else attr.kind)
        if attr.default is not REQUIRED:
            made.default_value.CopyFrom(attr_to_proto(attr.default, attr))
        if attr.allowed is not None:
            if attr.kind == "type":
                made.allowed_values.list.type.extend(d.number for d in attr.allowed)
            else:
                made.allowed_values.list.s.extend(attr.allowed)
        if attr.minimum is not None:
            made.has_minimum, made.minimum = True, attr.minimum


def _strip_default_attrs(meta_graph_def: Any) -> None:
    """Remove attrs that have their default, so that older readers need not know them."""
    graph_def = meta_graph_def.graph_def
    functions = {f.signature.name for f in graph_def.library.function}
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    for node in nodes:
        op_def = None if node.op in functions else registry.lookup(node.op)
        if op_def is None:
            continue
        for key, attr in op_def.attrs.items():
            if (
                key in node.attr
                and attr.default is not REQUIRED
                and attr_to_proto(attr.default, attr) == node.attr[key]
            ):
                del node.attr[key]
    meta_graph_def.meta_info_def.stripped_default_attrs = True


def _scope_of(name: str) -> str:
    return name.lstrip("^").partition(":")[0].rpartition("/")[0] + "/"


def _other_savers_nodes(graph_def: Any, saver_def: Any) -> set[str]:
    """The nodes in the name scopes of savers other than `saver_def`'s."""
    scopes = {_scope_of(n.name) for n in graph_def.node if n.op in _SAVER_OPS}
    if saver_def is not None:
        scopes -= {_scope_of(saver_def.save_tensor_name), _scope_of(saver_def.restore_op_name)}
    return {n.name for n in graph_def.node if any(n.name.startswith(s) for s in scopes)}


def _scoped_node(
    node: Any, into: Any, export_scope: str | None, unbound: list[str], clear_devices: bool
) -> None:
    """Copy a node without `export_scope` in its names; inputs from outside it are marked."""
    into.CopyFrom(node)
    for i, source in enumerate(node.input):
        if export_scope and not source.lstrip("^").startswith(export_scope):
            caret = "^" if source.startswith("^") else ""
            into.input[i] = caret + _UNBOUND + source.lstrip("^")
            unbound.append(into.input[i])
        else:
            caret = "^" if source.startswith("^") else ""
            into.input[i] = caret + strip_scope(source.lstrip("^"), export_scope)
    into.name = strip_scope(node.name, export_scope)
    if "_class" in node.attr:
        groups = [s.decode() for s in node.attr["_class"].list.s]
        kept = [g for g in groups if not export_scope or g.partition("@")[2].startswith(export_scope)]
        into.attr["_class"].list.s[:] = [
            f"{g.partition('@')[0]}@{strip_scope(g.partition('@')[2], export_scope)}".encode() for g in kept
        ]
    if node.op in ("Enter", "RefEnter") and "frame_name" in node.attr:
        into.attr["frame_name"].s = strip_scope(node.attr["frame_name"].s.decode(), export_scope).encode()
    if clear_devices:
        into.device = ""


def export_scoped_meta_graph(
    filename: str | None = None,
    graph_def: Any = None,
    graph: Graph | None = None,
    export_scope: str | None = None,
    as_text: bool = False,
    unbound_inputs_col_name: str | None = "unbound_inputs",
    clear_devices: bool = False,
    saver_def: Any = None,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """(the MetaGraphDef, the variables in it by name); see export_meta_graph."""
    from graphrt.protos import graph_pb2

    graph = graph or get_default_graph()
    exclude_nodes: set[str] | None = None
    if export_scope or clear_extraneous_savers or clear_devices:
        source = graph.as_graph_def(add_shapes=True) if graph_def is None else graph_def
        if clear_extraneous_savers:
            exclude_nodes = _other_savers_nodes(source, saver_def)
        unbound: list[str] = []
        graph_def = graph_pb2.GraphDef()
        graph_def.versions.MergeFromString(source.versions.SerializeToString())
        graph_def.library.MergeFromString(source.library.SerializeToString())
        for node in source.node:
            if _is_included(node, export_scope, exclude_nodes):
                _scoped_node(node, graph_def.node.add(), export_scope, unbound, clear_devices)
        if unbound_inputs_col_name:
            graph.clear_collection(unbound_inputs_col_name)
            for name in unbound:
                graph.add_to_collection(unbound_inputs_col_name, name)
    variables = {
        strip_scope(v.name, export_scope): v
        for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, export_scope)
        if _is_included(v, export_scope, exclude_nodes)
    }
    made = create_meta_graph_def(
        graph_def=graph_def,
        graph=graph,
        export_scope=export_scope,
        exclude_nodes=exclude_nodes,
        clear_extraneous_savers=clear_extraneous_savers,
        saver_def=saver_def,
        strip_default_attrs=strip_default_attrs,
        **options,
    )
    if filename:
        write_graph(made, os.path.dirname(filename), os.path.basename(filename), as_text)
        if save_debug_info:
            name = os.path.splitext(filename)[0] + ".debug"
            write_graph(
                _debug_info(made, graph, export_scope), os.path.dirname(name), os.path.basename(name), as_text
            )
    return made, variables


def _debug_info(meta_graph_def: Any, graph: Graph, export_scope: str | None) -> Any:
    """The GraphDebugInfo: which line of the program built each node."""
    from graphrt.protos import graph_debug_info_pb2

    made = graph_debug_info_pb2.GraphDebugInfo()
    numbers: dict[str, int] = {}
    for node in meta_graph_def.graph_def.node:
        name = f"{export_scope.rstrip('/')}/{node.name}" if export_scope else node.name
        file, line = graph.get_operation_by_name(name).location
        if file not in numbers:
            numbers[file] = len(made.files)
            made.files.append(file)
        made.traces[name + "@"].file_line_cols.add(file_index=numbers[file], line=line)
    return made


def read_meta_graph_file(filename: str) -> Any:
    """The MetaGraphDef of a file, in binary or text.

    Raises:
      OSError: the file does not exist, or is no MetaGraphDef.
    """
    from graphrt.protos import meta_graph_pb2

    try:
        with open(filename, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise OSError(f"File does not exist. Received: {filename}.") from None
    made = meta_graph_pb2.MetaGraphDef()
    try:
        made.ParseFromString(content)
        return made
    except DecodeError:
        pass  # it may be text
    made.Clear()
    try:
        text_format.Merge(content, made)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise OSError(f"Cannot parse file {filename}: {error}.") from None
    return made


def import_scoped_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    graph: Graph | None = None,
    import_scope: str | None = None,
    input_map: dict[str, Any] | None = None,
    unbound_inputs_col_name: str | None = "unbound_inputs",
    restore_collections_predicate: Callable[[str], bool] = lambda key: True,
    return_elements: list[str] | None = None,
) -> tuple[dict[str, Any], list[Any] | None]:
    """Add a MetaGraphDef's nodes and collections to a graph.

    Args:
      meta_graph_or_file: the message, of graphrt or TensorFlow, or the name of its file.
      input_map: tensors for the inputs that come from outside of it.
      restore_collections_predicate: which collections to restore, by name.
      return_elements: names of operations and tensors to return.
    Returns:
      (its variables by name, the elements).
    Raises:
      ValueError: inputs from outside are not in `input_map`.
    """
    if isinstance(meta_graph_or_file, (str, bytes, os.PathLike)):
        message = read_meta_graph_file(os.fsdecode(meta_graph_or_file))
    else:
        message = meta_graph_or_file
    if unbound_inputs_col_name and unbound_inputs_col_name in message.collection_def:
        collection = message.collection_def[unbound_inputs_col_name]
        needed = sorted(
            v.decode() if isinstance(v, bytes) else v
            for v in getattr(collection, collection.WhichOneof("kind")).value
        )
        if needed and needed != sorted(input_map or ()):
            missing = [n for n in needed if n not in (input_map or ())]
            raise ValueError(
                f"Graph contains unbound inputs: {','.join(missing)}. Must provide these inputs through "
                "input_map."
            )
    graph = graph or get_default_graph()
    with graph.as_default():
        graph_def = message.graph_def
        if clear_devices:
            graph_def = type(graph_def)()
            graph_def.CopyFrom(message.graph_def)
            for node in graph_def.node:
                node.device = ""
        scope = (
            graph.unique_name(import_scope or "", mark_as_used=False)
            if import_scope or graph.get_name_scope()
            else ""
        )
        elements = import_graph_def(graph_def, input_map, return_elements, import_scope or scope)
        restore_collections(message, graph, scope, unbound_inputs_col_name, restore_collections_predicate)
        variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, re.escape(scope) if scope else None)
    return {strip_scope(v.name, scope): v for v in variables}, elements
