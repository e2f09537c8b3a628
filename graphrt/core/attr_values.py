"""Attr values between their Python forms and AttrValue messages.

Python forms: bytes, int, float, bool, DType, TensorShape, ndarray (tensor), FunctionRef (func), and lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphrt.core.dtypes import BY_NUMBER, DType
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.shapes import TensorShape
from graphrt.core.signature import Attr
from graphrt.core.tensor_proto import shape_proto, to_array, to_proto


@dataclass(frozen=True)
class FunctionRef:
    """A func attr: the name of a function in the library, and attrs for it."""

    name: str
    attrs: dict[str, Any] = field(default_factory=dict, compare=False)


def attr_to_proto(value: Any, declared: Attr | None = None) -> Any:
    """The AttrValue of a Python form; `declared` says the kind of an empty list."""
    from graphrt.protos import attr_value_pb2

    made = attr_value_pb2.AttrValue()
    if isinstance(value, (list, tuple)):
        made.list.SetInParent()
        for item in value:
            _set(made.list, item, True)
    else:
        _set(made, value, False)
    return made


def _set(into: Any, value: Any, is_list: bool) -> None:
    def put(field_name: str, item: Any) -> None:
        if is_list:
            getattr(into, field_name).append(item)
        else:
            setattr(into, field_name, item)

    if isinstance(value, (bool, np.bool_)):
        put("b", bool(value))
    elif isinstance(value, (int, np.integer)):
        put("i", int(value))
    elif isinstance(value, (float, np.floating)):
        put("f", float(value))
    elif isinstance(value, bytes):
        put("s", value)
    elif isinstance(value, str):
        put("s", value.encode())
    elif isinstance(value, DType):
        put("type", value.number)
    elif isinstance(value, TensorShape):
        (into.shape.add() if is_list else into.shape).CopyFrom(shape_proto(value))
        if not is_list:
            into.shape.SetInParent()
    elif isinstance(value, np.ndarray):
        (into.tensor.add() if is_list else into.tensor).CopyFrom(to_proto(value))
    elif isinstance(value, FunctionRef):
        target = into.func.add() if is_list else into.func
        target.name = value.name
        for key, item in value.attrs.items():
            target.attr[key].CopyFrom(attr_to_proto(item))
    else:
        raise TypeError(f"no AttrValue can hold {value!r}")


def attr_from_proto(proto: Any, declared: Attr | None = None) -> Any:
    """The Python form of an AttrValue (ours or TensorFlow's).

    Raises:
      InvalidArgumentError: it is empty, a placeholder, or of an unknown dtype.
    """
    kind = proto.WhichOneof("value")
    if kind == "list":
        lists = proto.list
        for name in ("s", "i", "f", "b", "type", "shape", "tensor", "func"):
            items = getattr(lists, name)
            if len(items):
                return [_get(name, i) for i in items]
        return []
    if kind is None or kind == "placeholder":
        raise InvalidArgumentError(
            None, None, f"an attr{f' {declared.name!r}' if declared else ''} has no value"
        )
    return _get(kind, getattr(proto, kind))


def _get(kind: str, item: Any) -> Any:
    if kind == "type":
        dtype = BY_NUMBER.get(item)
        if dtype is None:
            raise InvalidArgumentError(None, None, f"an attr has the unknown dtype {item}")
        return dtype
    if kind == "shape":
        return TensorShape(item)
    if kind == "tensor":
        return to_array(item)
    if kind == "func":
        return FunctionRef(item.name, {k: attr_from_proto(v) for k, v in item.attr.items()})
    return item
