"""Fetches: any nesting of lists, tuples, namedtuples and dicts of what a graph element can be had of.

`plan_fetches` finds the tensors and operations to ask for, each once, and how to build the result from their
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor


class SparseTensorValue(NamedTuple):
    """The value of a SparseTensor: NumPy arrays."""

    indices: Any
    values: Any
    dense_shape: Any


class IndexedSlicesValue(NamedTuple):
    """The value of IndexedSlices: NumPy arrays (`dense_shape` may be None)."""

    values: Any
    indices: Any
    dense_shape: Any


Build = Callable[[list[Any]], Any]


class Fetches:
    """Unique tensors and operations, and the result's form.

    Attributes:
      tensors: to fetch, in order; operations: to run.
      build: from the values of `tensors` to the result.
    """

    def __init__(self, graph: Graph, structure: Any) -> None:
        self._graph = graph
        self.tensors: list[Tensor] = []
        self.operations: list[Operation] = []
        self._index: dict[Any, int] = {}
        self.build: Build = self._plan(structure)

    def _tensor(self, tensor: Tensor) -> int:
        if not self._graph.is_fetchable(tensor):
            raise ValueError(f"Tensor '{tensor.name}' may not be fetched.")
        index = self._index.get(tensor)
        if index is None:
            index = self._index[tensor] = len(self.tensors)
            self.tensors.append(tensor)
        return index

    def _plan(self, fetch: Any) -> Build:
        if fetch is None:
            raise TypeError(
                'Argument `fetch` = None has invalid type "NoneType": it is a tensor, an operation, a name, '
                "or a "
                "nesting of them. Cannot be None"
            )
        if isinstance(fetch, (Tensor, Operation, str, bytes)):
            return self._leaf(fetch)
        if isinstance(fetch, (list, tuple)):
            parts = [self._plan(f) for f in fetch]
            make = (
                type(fetch)._make
                if hasattr(fetch, "_make")
                else type(fetch)
                if type(fetch) in (list, tuple)
                else list
            )
            return lambda values: make([p(values) for p in parts])
        if isinstance(fetch, Mapping):
            named = {k: self._plan(f) for k, f in fetch.items()}
            kind = type(fetch) if type(fetch) is not dict else dict
            return lambda values: kind((k, p(values)) for k, p in named.items())
        if isinstance(fetch, SparseTensor):
            parts = [self._leaf(t) for t in (fetch.indices, fetch.values, fetch.dense_shape)]
            return lambda values: SparseTensorValue(*[p(values) for p in parts])
        if isinstance(fetch, IndexedSlices):
            sources = [t for t in (fetch.values, fetch.indices, fetch.dense_shape) if t is not None]
            parts = [self._leaf(t) for t in sources]
            missing = [None] * (3 - len(sources))
            return lambda values: IndexedSlicesValue(*[p(values) for p in parts], *missing)
        fields = getattr(type(fetch), "__attrs_attrs__", None)
        if fields is not None:
            parts = [self._plan(getattr(fetch, f.name)) for f in fields]
            attrs_class = type(fetch)
            return lambda values: attrs_class(*[p(values) for p in parts])
        return self._leaf(fetch)

    def _leaf(self, fetch: Any) -> Build:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch).__name__}, must be a string or "
                "Tensor. "
                f"({error})"
            ) from None
        except (KeyError, ValueError) as error:
            reason = error.args[0] if error.args else error
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({reason})"
            ) from None
        if isinstance(element, Operation):
            if not self._graph.is_fetchable(element):
                raise ValueError(f"Operation '{element.name}' may not be fetched.")
            if element not in self.operations:
                self.operations.append(element)
            return lambda values: None
        index = self._tensor(element)
        return lambda values: values[index]


def as_fetched(value: Any) -> Any:
    """A fetched value as users get it: a scalar of rank 0, bytes for a scalar string, else the array."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    return value
