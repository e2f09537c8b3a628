"""Errors as they cross the wire: TensorFlow's clients find the failing node in a message by `[[{{node x}}]]`, and so do ours."""

from __future__ import annotations

import re
from typing import Any

from graphrt.core.errors import CancelledError, OpError, describe, from_code

_NODE = re.compile(r"\s*\[\[\{\{node ([^\} ]*)\}\}\]\]")


def node_name(error: OpError) -> str:
    """The name of the node that an error is about; '' where it has none."""
    node = error.node_def if error.node_def is not None else error.op
    return getattr(node, "name", "") or ""


def to_wire(error: BaseException) -> OpError:
    """The error with its node's name in the text."""
    known = error if isinstance(error, OpError) else describe(error)
    name = node_name(known)
    if not name or f"{{{{node {name}}}}}" in known.message:
        return known
    return from_code(known.error_code, f"{known.message}\n\t [[{{{{node {name}}}}}]]")


def from_wire(error: OpError, find: Any = None) -> OpError:
    """The error with its node, where `find(name)` knows the Operation that the text names."""
    found = _NODE.search(error.message)
    if found is None:
        return error
    op = find(found[1]) if find is not None else None
    text = _NODE.sub("", error.message)
    kind = type(error)
    if kind is OpError:
        return OpError(op.node_def if op is not None else _Named(found[1]), op, text, error.error_code)
    return kind(op.node_def if op is not None else _Named(found[1]), op, text)


class _Named:
    """A node of which only the name is known here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<node '{self.name}'>"


def body_status(error: OpError) -> tuple[int, str]:
    """(status_code, status_error_message) of a response that carries its error in its body."""
    return error.error_code, error.message


def from_body(code: int, message: str) -> OpError | None:
    return from_code(code, message) if code else None


def at_task(error: OpError, task: str, address: str) -> OpError:
    """The error with the task that it came from, where its text does not say so."""
    if task in error.message or isinstance(error, CancelledError):
        return error
    return type(error)(error.node_def, error.op, f"{error.message}\n  task     {task} at {address}") if type(error) is not OpError \
        else OpError(error.node_def, error.op, f"{error.message}\n  task     {task} at {address}", error.error_code)
