"""How collections travel in a MetaGraphDef: as messages where their items have them, else as names or
numbers."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from graphrt.core.graph_keys import GraphKeys
from graphrt.variables.variable import Variable, prepend_scope, strip_scope

_log = logging.getLogger("graphrt")
VARIABLE_COLLECTIONS = (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.MODEL_VARIABLES,
    GraphKeys.METRIC_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES,
    GraphKeys.MOVING_AVERAGE_VARIABLES,
    GraphKeys.CONCATENATED_VARIABLES,
    "global_step",
)


class ProtoFunctions(NamedTuple):
    """How a collection's items become messages and come back."""

    proto_type: Any
    to_proto: Callable[..., Any]
    from_proto: Callable[..., Any]


_registered: dict[str, ProtoFunctions] = {}


def register_proto_function(
    collection_name: str, proto_type: Any, to_proto: Callable[..., Any], from_proto: Callable[..., Any]
) -> None:
    """Say how the items of a collection travel: `to_proto(item, export_scope=...)`, `from_proto(message,
    import_scope=...)`."""
    _registered[collection_name] = ProtoFunctions(proto_type, to_proto, from_proto)


def _to_proto(item: Any, export_scope: str | None = None) -> Any:
    return item.to_proto(export_scope=export_scope)


def _class_of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def proto_functions(key: str) -> ProtoFunctions | None:
    """How the collection `key` travels; None where its items are named."""
    if key in _registered:
        return _registered[key]
    if key in VARIABLE_COLLECTIONS:
        from graphrt.protos import variable_pb2

        made = ProtoFunctions(variable_pb2.VariableDef, _to_proto, Variable.from_proto)
    elif key == GraphKeys.SAVERS:
        from graphrt.protos import saver_pb2
        from graphrt.train.saver import Saver

        made = ProtoFunctions(saver_pb2.SaverDef, Saver.to_proto, Saver.from_proto)
    elif key == GraphKeys.COND_CONTEXT:
        from graphrt.control_flow.context import CondContext
        from graphrt.protos import control_flow_pb2

        made = ProtoFunctions(control_flow_pb2.CondContextDef, _to_proto, CondContext.from_proto)
    elif key == GraphKeys.QUEUE_RUNNERS:
        from graphrt.protos import queue_runner_pb2

        kind = _class_of("graphrt.train.queue_runner", "QueueRunner")
        made = ProtoFunctions(queue_runner_pb2.QueueRunnerDef, _to_proto, kind.from_proto)
    else:
        return None
    _registered[key] = made
    return made


def _kind_of(item: Any) -> str:
    if isinstance(item, (str, bytes)):
        return "bytes_list"
    if isinstance(item, int):
        return "int64_list"
    if isinstance(item, float):
        return "float_list"
    return "node_list"


def fill_collection(meta_graph_def: Any, key: Any, items: list[Any], export_scope: str | None) -> None:
    """Write a collection's items into a MetaGraphDef. What cannot travel is left out, with a warning.

    Items are those under `export_scope`, whose name they lose.
    """
    if not isinstance(key, str):
        _log.warning("Only collections with string type keys will be serialized. This key has %s", type(key))
        return
    if not items:
        return
    made = meta_graph_def.collection_def[key]
    try:
        functions = proto_functions(key)
        if functions is not None:
            for item in items:
                message = functions.to_proto(item, export_scope=export_scope)
                if message is not None:
                    made.bytes_list.value.append(message.SerializeToString())
            return
        kind = _kind_of(items[0])
        values = getattr(made, kind).value
        if kind == "node_list":
            names = [item.name for item in items]
            values.extend(strip_scope(n, export_scope) for n in names if n.startswith(export_scope or ""))
        elif kind == "bytes_list":
            values.extend(item.encode() if isinstance(item, str) else item for item in items)
        else:
            values.extend(items)
    except (AttributeError, TypeError, ValueError, ModuleNotFoundError) as error:
        del meta_graph_def.collection_def[key]
        _log.warning(
            "The collection %r is left out of the meta graph: its items have no form there: %s", key, error
        )


def restore_collections(
    meta_graph_def: Any, graph: Any, scope: str, skipped: str | None, predicate: Callable[[str], bool]
) -> None:
    """Add the collections of a MetaGraphDef to `graph`, which has its nodes under `scope`."""
    keys = sorted(meta_graph_def.collection_def, key=lambda k: (k != GraphKeys.TRAINABLE_VARIABLES, k))
    version = meta_graph_def.meta_info_def.tensorflow_version
    variables: dict[bytes, Any] = {}
    for key in keys:
        if key == skipped or not predicate(key):
            continue
        collection = meta_graph_def.collection_def[key]
        kind = collection.WhichOneof("kind")
        if kind is None:
            _log.error("Cannot identify data type for collection %s. Skipping.", key)
            continue
        functions = proto_functions(key) if kind == "bytes_list" else None
        for value in getattr(collection, kind).value:
            if functions is not None:
                graph.add_to_collection(key, _restored(functions, key, value, scope, version, variables))
            elif kind == "node_list":
                graph.add_to_collection(key, graph.as_graph_element(prepend_scope(value, scope)))
            elif kind == "int64_list":
                graph.add_to_collection(key, int(value))
            elif kind == "bytes_list":
                graph.add_to_collection(
                    key, prepend_scope(value.decode(), scope).encode() if scope else value
                )
            else:
                graph.add_to_collection(key, value)


def _restored(
    functions: ProtoFunctions, key: str, value: bytes, scope: str, version: str, variables: dict[bytes, Any]
) -> Any:
    """The item of a message; one object for a variable that is in several collections."""
    is_variable = key in VARIABLE_COLLECTIONS
    if is_variable and value in variables:
        return variables[value]
    message = functions.proto_type()
    message.ParseFromString(value)
    if is_variable and not _has_trainable(version):
        message.trainable = key == GraphKeys.TRAINABLE_VARIABLES
    made = functions.from_proto(message, import_scope=scope)
    if is_variable:
        variables[value] = made
    return made


def _has_trainable(version: str) -> bool:
    """True where VariableDefs say whether they are trainable: from TensorFlow 1.9 on."""
    numbers = version.split(".")[:2]
    return not version or not all(n.isdigit() for n in numbers) or tuple(map(int, numbers)) >= (1, 9)
