"""Errors as they cross the wire: TensorFlow's clients find the failing node in a message by `[[{{node x}}]]`,
and so do ours."""

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
    made = from_code(error.error_code, text)
    made._node_def, made._op = (op.node_def, op) if op is not None else (_Named(found[1]), None)
    return made


class _Named:
    """A node of which only the name is known here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<node '{self.name}'>"


def from_body(code: int, message: str) -> OpError | None:
    """The error that a response carries in its body; None where it carries none."""
    return from_code(code, message) if code else None


def at_task(error: OpError, task: str, address: str) -> OpError:
    """The error with the task that it came from, where its text does not say so."""
    if task in error.message or isinstance(error, CancelledError):
        return error
    made = from_code(error.error_code, f"{error.message}\n  task     {task} at {address}")
    made._node_def, made._op = error.node_def, error.op
    return made
