"""Values that wait for operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import colocate_with, control_dependencies, name_scope
from graphrt.core.tensor import IndexedSlices


def with_dependencies(dependencies: Iterable[Any], output_tensor: Any, name: str | None = None) -> Any:
    """`output_tensor` (a tensor, variable or IndexedSlices), available only after `dependencies` have run."""
    waited = list(dependencies)
    with (
        name_scope(name, "control_dependency", [*waited, output_tensor]) as scope,
        colocate_with(output_tensor),
        control_dependencies(waited),
    ):
        if isinstance(output_tensor, IndexedSlices):
            return IndexedSlices(
                raw.Identity(output_tensor.values, name=scope),
                output_tensor.indices,
                output_tensor.dense_shape,
            )
        value = convert_to_tensor(output_tensor, as_ref=True)
        return (raw.RefIdentity if value.dtype.is_ref else raw.Identity)(value, name=scope)
