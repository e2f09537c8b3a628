"""The signature grammar: TensorFlow's op definitions, as one readable line.

    "MatMul(a: T, b: T) -> product: T"          inputs and outputs, in order
    "Pack(values: N*T) -> output: T"            N tensors of one type
    "IdentityN(input: list(T)) -> output: list(T)"   tensors of several types
    "Assign(ref: Ref(T), value: T) -> output_ref: Ref(T)"

Attrs are keyword arguments of `op`, in the grammar of TensorFlow's documentation: "bool = False",
"int >= 1", "list(int) = [1,1,1,1]", "string in {SAME,VALID}", "type in {int32,int64} = int32", or a tuple of
DTypes for a type attr that allows those. A name that stands in the signature and is not declared is a type
attr (as T), an int >= 1 (as N in N*T) or a list(type) >= 0.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphrt.core.dtypes import BY_NAME, DType, as_dtype
from graphrt.core.shapes import TensorShape

REQUIRED = object()
_CALL = re.compile(r"^\s*(\w+)\s*\((.*?)\)\s*(?:->\s*(.*?))?\s*$", re.S)
_ATTR = re.compile(
    r"^(?P<list>list\()?(?P<kind>\w+)\)?\s*(?:in\s*\{(?P<allowed>[^}]*)\})?"
    r"\s*(?:>=\s*(?P<minimum>-?\d+))?\s*(?:=\s*(?P<default>.*))?$",
    re.S,
)


@dataclass(slots=True)
class Arg:
    """An input or output: one tensor of `dtype` or of the type attr `type_attr`; `number_attr` of them; or
    one for each type in the list attr `list_attr`."""

    name: str
    dtype: DType | None = None
    type_attr: str = ""
    number_attr: str = ""
    list_attr: str = ""
    is_ref: bool = False

    @property
    def is_sequence(self) -> bool:
        return bool(self.number_attr or self.list_attr)


@dataclass(slots=True)
class Attr:
    """A declared attr: `kind` is type, int, float, bool, string, shape, tensor or func."""

    name: str
    kind: str
    is_list: bool = False
    allowed: tuple[Any, ...] | None = None
    minimum: int | None = None
    default: Any = REQUIRED


@dataclass(slots=True)
class Signature:
    name: str
    inputs: list[Arg]
    outputs: list[Arg]
    attrs: dict[str, Attr] = field(default_factory=dict)


def parse_signature(text: str, attrs: dict[str, Any]) -> Signature:
    """The Signature of a line and its attr declarations.

    Raises:
      ValueError: the text is not of the grammar, with the part that is not.
    """
    match = _CALL.match(text)
    if match is None:
        raise ValueError(f"op signature {text!r} is not NAME(input: type, ...) -> output: type, ...")
    name, inputs, outputs = match[1], match[2], match[3] or ""
    made = Signature(name, [], [])
    for attr_name, declared in attrs.items():
        made.attrs[attr_name] = parse_attr(attr_name, declared)
    for text_, into in ((inputs, made.inputs), (outputs, made.outputs)):
        for part in filter(None, (p.strip() for p in text_.split(","))):
            arg_name, _, type_text = part.partition(":")
            into.append(_parse_arg(name, arg_name.strip(), type_text.strip(), made.attrs))
    return made


def _parse_arg(op_name: str, name: str, text: str, attrs: dict[str, Attr]) -> Arg:
    arg = Arg(name)
    if text.startswith("Ref("):
        arg.is_ref, text = True, text[4:-1]
    if "*" in text:
        arg.number_attr, text = (p.strip() for p in text.split("*"))
        if arg.number_attr not in attrs:
            attrs[arg.number_attr] = Attr(arg.number_attr, "int", minimum=1)
    if text.startswith("list("):
        arg.list_attr = text[5:-1]
        if arg.list_attr not in attrs:
            attrs[arg.list_attr] = Attr(arg.list_attr, "type", is_list=True, minimum=0)
    elif text in BY_NAME and text not in attrs:
        arg.dtype = BY_NAME[text]
    elif re.fullmatch(r"\w+", text):
        declared = attrs.get(text)
        if declared is not None and declared.is_list:
            arg.list_attr = text
        else:
            arg.type_attr = text
            if declared is None:
                attrs[text] = Attr(text, "type")
    else:
        raise ValueError(f"op {op_name}: {name}: {text!r} is not a type")
    return arg


def parse_attr(name: str, declared: Any) -> Attr:
    """The Attr of a declaration: a string of the grammar, or a tuple of the DTypes that a type attr
    allows."""
    if isinstance(declared, Attr):
        return declared
    if isinstance(declared, (tuple, list)):
        return Attr(name, "type", allowed=tuple(declared))
    match = _ATTR.match(declared.strip())
    if match is None:
        raise ValueError(f"attr {name}: {declared!r} is not of the attr grammar")
    kind, is_list = match["kind"], bool(match["list"])
    allowed = None
    if match["allowed"] is not None:
        words = [w.strip() for w in match["allowed"].split(",")]
        allowed = tuple(BY_NAME[w] for w in words) if kind == "type" else tuple(w.encode() for w in words)
    minimum = int(match["minimum"]) if match["minimum"] is not None else None
    default = (
        REQUIRED if match["default"] is None else _parse_default(kind, is_list, match["default"].strip())
    )
    return Attr(name, kind, is_list, allowed, minimum, default)


def _parse_default(kind: str, is_list: bool, text: str) -> Any:
    if is_list:
        inner = text.strip()[1:-1].strip()
        return [_parse_default(kind, False, part.strip()) for part in inner.split(",")] if inner else []
    if kind == "type":
        return BY_NAME[text]
    if kind == "shape":
        return TensorShape(None if text in ("unknown", "?", "<unknown>") else ast.literal_eval(text))
    if kind == "string":
        return ast.literal_eval(text).encode()
    if kind == "float":
        return float(text)
    if kind == "bool":
        return text == "True"
    if kind == "int":
        return int(text)
    raise ValueError(f"an attr of kind {kind} cannot have a default here: {text!r}")


def check_attr(attr: Attr, value: Any, op_name: str) -> Any:
    """`value` in the form that attrs of this kind have (bytes, int, float, bool, DType, TensorShape,
    ndarray, ...).

    Raises:
      TypeError, ValueError: it is not of the kind, or not allowed; with the op, the attr and what is.
    """
    try:
        if attr.is_list:
            if not isinstance(value, (list, tuple)):
                raise TypeError("not a list")
            made: Any = [_convert(attr.kind, v) for v in value]
            if attr.minimum is not None and len(made) < attr.minimum:
                raise ValueError(f"needs at least {attr.minimum} items, not {len(made)}")
            items = made
        else:
            made = _convert(attr.kind, value)
            if attr.minimum is not None and made < attr.minimum:
                raise ValueError(f"must be at least {attr.minimum}")
            items = (made,)
    except (TypeError, ValueError, AttributeError) as error:
        kind = f"list({attr.kind})" if attr.is_list else attr.kind
        raise type(error)(f"{op_name}: attr '{attr.name}' ({kind}) cannot be {value!r}: {error}") from None
    if attr.allowed is not None:
        for item in items:
            if (item.base_dtype if attr.kind == "type" else item) not in attr.allowed:
                names = ", ".join(a.name if isinstance(a, DType) else a.decode() for a in attr.allowed)
                shown = item.name if isinstance(item, DType) else item.decode(errors="replace")
                what = TypeError if attr.kind == "type" else ValueError
                raise what(f"{op_name}: '{attr.name}' cannot be {shown}: it takes {names}")
    return made


def _convert(kind: str, value: Any) -> Any:
    if kind == "type":
        return as_dtype(value).base_dtype
    if kind == "int":
        if isinstance(value, float):
            raise TypeError("a float is not an int")
        return int(value)
    if kind == "bool":
        if not isinstance(value, (bool, int)) and type(value).__name__ not in ("bool", "bool_"):
            raise TypeError("not a bool")
        return bool(value)
    if kind == "float":
        return float(np.float32(value))  # what the wire keeps of it
    if kind == "string":
        if isinstance(value, str):
            return value.encode()
        if not isinstance(value, bytes):
            raise TypeError("not a string")
        return value
    if kind == "shape":
        return TensorShape(value)
    return value  # tensor: an ndarray; func: a FunctionRef
