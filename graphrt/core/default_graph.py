"""The default graph of a thread, and the functions that act on it.

Nodes go to the innermost `with graph.as_default()` of the thread, else to one global graph.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphrt.core.graph import Graph


class _DefaultGraphs(threading.local):
    """A thread's stack of default graphs, over one global graph."""

    def __init__(self) -> None:
        self.stack: list[Graph] = []

    @contextmanager
    def pushed(self, graph: Graph) -> Iterator[None]:
        self.stack.append(graph)
        try:
            yield
        finally:
            if self.stack and self.stack[-1] is graph:
                self.stack.pop()
            else:
                raise RuntimeError("default graphs were left in another order than they were entered")


default_graphs = _DefaultGraphs()
_global_graph: Graph | None = None
_global_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The graph that nodes go to: the innermost `as_default` of this thread, else the global one."""
    global _global_graph
    stack = default_graphs.stack
    if stack:
        return stack[-1]
    if _global_graph is None:
        with _global_lock:
            if _global_graph is None:
                from graphrt.core.graph import Graph

                _global_graph = Graph()
    return _global_graph


def reset_default_graph() -> None:
    """Start over with an empty global graph. Not inside `with graph.as_default()`."""
    global _global_graph
    if default_graphs.stack:
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs: leave `with graph.as_default()` "
            "first"
        )
    _global_graph = None


def has_default_graph() -> bool:
    return bool(default_graphs.stack) or _global_graph is not None


# -- the functions of the public namespace that act on the default graph ------------------------------------


def device(device_name_or_function: Any):
    return get_default_graph().device(device_name_or_function)


def container(container_name: str):
    return get_default_graph().container(container_name)


def control_dependencies(control_inputs: Any):
    return get_default_graph().control_dependencies(control_inputs)


def colocate_with(op: Any, ignore_existing: bool = False):
    return get_default_graph().colocate_with(op, ignore_existing)


class name_scope:
    """Put a name before what is built inside: `with tf.name_scope("layer") as scope:`.

    Args:
      name: the scope's name; None takes `default_name` (and needs `values` or nothing).
      default_name: used where `name` is None.
      values: tensors that must be of one graph; that graph is the default inside.
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name_scope: name must be a string, not {type(name).__name__}")
        self._name = default_name if name is None else name
        self._has_default = default_name is not None
        self._values = values
        self._stack: list[Any] = []
        if self._name is None and values is not None and default_name is None:
            raise ValueError("At least one of name (None) and default_name (None) must be provided.")

    @property
    def name(self) -> str | None:
        return self._name

    def __enter__(self) -> str:
        graph = get_default_graph()
        entered: list[Any] = []
        if self._values is not None:
            own = graph_of(self._values)
            if own is not None and own is not graph and not graph.building_function:
                scope = own.as_default()
                scope.__enter__()
                entered.append(scope)
                graph = own
        scope = graph.name_scope(self._name)
        made = scope.__enter__()
        entered.append(scope)
        self._stack.append(entered)
        return made

    def __exit__(self, *error: Any) -> None:
        for scope in reversed(self._stack.pop()):
            scope.__exit__(None, None, None)


def graph_of(values: Iterable[Any]) -> Graph | None:
    """The graph of the tensors and operations among `values`, or None. Raises ValueError where they are of
    several."""
    found: Graph | None = None
    for value in values:
        graph = getattr(value, "graph", None)
        if hasattr(graph, "create_node"):
            if found is None:
                found = graph
            elif graph is not found and not (graph.building_function or found.building_function):
                raise ValueError(f"{value} must be from the same graph as the other inputs")
    return found


def add_to_collection(name: Any, value: Any) -> None:
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    return get_default_graph().get_collection_ref(key)


def op_scope(values: Any, name: str | None, default_name: str | None = None) -> name_scope:
    return name_scope(name, default_name, values)

