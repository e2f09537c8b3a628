"""tf.py_func: a Python function as a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.ops.script import register


def py_func(
    func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:  # noqa: N803
    """What `func` returns for the values of `inp`, called in each step, on a thread of its own.

    Args:
      func: takes NumPy arrays (NumPy scalars, or bytes for text, where the rank is 0) and returns arrays or
        numbers: one, or a list or tuple of them.
      inp: list of tensors.
      Tout: the dtype of the result, or a list of the results' dtypes.
      stateful: False where `func` always gives the same for the same input: nodes that are equal may run
        once.
    Returns:
      A tensor, or a list of them where `Tout` is a list; the operation where `Tout` is empty. Their shapes
      are unknown.
    """
    is_list = isinstance(Tout, (list, tuple))
    types = list(Tout) if is_list else [Tout]
    graph = get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph  # type: ignore[attr-defined]
    token = register(func, graph)
    with name_scope(name, "PyFunc" if stateful else "PyFuncStateless", list(inp)) as scope:
        kind = raw.PyFunc if stateful else raw.PyFuncStateless
        made = kind(list(inp), token=token, Tout=types, name=scope)
        if not types:
            return get_default_graph().get_operation_by_name(scope.rstrip("/"))
        return made if is_list else made[0]


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,
    stateful: bool = True,  # noqa: N803
    name: str | None = None,
) -> Any:
    """py_func by its newer name."""
    if func is None or inp is None or Tout is None:
        raise TypeError("numpy_function needs func, inp and Tout")
    return py_func(func, inp, Tout, stateful, name)
