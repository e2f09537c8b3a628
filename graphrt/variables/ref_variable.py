"""Ref variables, TF1's own: a node whose output is the variable's memory. Reads see the memory as it is when
they run."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, as_dtype
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.shapes import UNKNOWN, TensorShape, as_shape
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.variables.initial_value import checked_arguments, refuse_control_flow, safe_initial_value
from graphrt.variables.lifting import init_scope
from graphrt.variables.variable import Variable, checked_modes, prepend_scope, strip_scope


class RefVariable(Variable):
    """A ref variable; its arguments are Variable's. Nodes: 'W' (VariableV2), 'W/Assign', 'W/read', and what
    computes the
    initial value: under 'W/Initializer' where a function gives it, else at 'W/initial_value'."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._from_nodes(variable_def, import_scope)
            return
        self._synchronization, self._aggregation, self._trainable = checked_modes(
            synchronization, aggregation, trainable, name
        )
        collections = checked_arguments(initial_value, collections, constraint, self._trainable)
        self._caching_device, self._constraint, self._save_slice_info = caching_device, constraint, None
        wanted = None if dtype is None else as_dtype(dtype).base_dtype
        with init_scope():
            self._build(
                initial_value, validate_shape, name, wanted, None if shape is None else as_shape(shape)
            )
            get_default_graph().add_to_collections(collections, self)

    def _build(
        self,
        initial_value: Any,
        validate_shape: bool,
        name: str | None,
        dtype: DType | None,
        shape: TensorShape | None,
    ) -> None:
        graph = get_default_graph()
        is_function = callable(initial_value)
        with name_scope(name, "Variable", [] if is_function else [initial_value]) as scope:
            if is_function:
                # The initial value stands with the variable, which does not exist yet.
                with graph._attr_scope({"_class": [b"loc:@" + scope.rstrip("/").encode()]}):
                    with name_scope("Initializer"), graph.device(None):
                        self._initial_value = convert_to_tensor(initial_value(), dtype, "initial_value")
                    self._variable = self._node(graph, scope, validate_shape, shape)
            else:
                self._initial_value = convert_to_tensor(initial_value, dtype, "initial_value")
                refuse_control_flow(self._initial_value, scope)
                self._variable = self._node(graph, scope, validate_shape, shape)
            self._name = self._variable.name
            if validate_shape and not self._initial_value.shape.is_fully_defined():
                raise ValueError(
                    f"initial_value must have a shape specified: {self._initial_value}. validate_shape=False "
                    "allows any shape"
                )
            self._initializer_op = raw.Assign(
                self._variable, safe_initial_value(scope, self._initial_value), validate_shape=validate_shape
            ).op
            place = (
                graph.device(self._caching_device)
                if self._caching_device is not None
                else graph.colocate_with(self._variable.op)
            )
            with place:
                self._snapshot = raw.Identity(self._variable, name="read")

    def _node(self, graph: Graph, scope: str, validate_shape: bool, shape: TensorShape | None) -> Tensor:
        value = self._initial_value
        assert value is not None
        if shape is None:
            shape = value.shape if validate_shape else UNKNOWN
        return raw.VariableV2(shape=shape, dtype=value.dtype.base_dtype, name=scope)

    def _from_nodes(self, variable_def: Any, import_scope: str | None) -> None:
        graph = get_default_graph()
        self._variable = graph.as_graph_element(prepend_scope(variable_def.variable_name, import_scope))
        self._name = self._variable.name
        self._snapshot = graph.as_graph_element(prepend_scope(variable_def.snapshot_name, import_scope))
        self._take_common_proto(variable_def, import_scope)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The VariableDef; None where the variable is not under `export_scope`."""
        if export_scope is not None and not self._variable.name.startswith(export_scope):
            return None
        made = self._common_proto(export_scope)
        made.variable_name = strip_scope(self._variable.name, export_scope)
        made.snapshot_name = strip_scope(self._snapshot.name, export_scope)
        return made

    def value(self) -> Tensor:
        return self._snapshot

    def read_value(self) -> Tensor:
        return raw.Identity(self._variable, name="read")

    def is_initialized(self, name: str | None = None) -> Tensor:
        return raw.IsVariableInitialized(self._variable, name=name)

    def _ref(self) -> Tensor:
        return self._variable

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _dense_var_to_tensor(
        self, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
    ) -> Tensor:
        self._checked_dtype(dtype)
        return self._variable if as_ref else self.value()

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """A reference type: float32_ref."""
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:  # type: ignore[override]
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape."""
        self._variable.set_shape(shape)
        self.value().set_shape(shape)

    @property
    def op(self) -> Operation:  # type: ignore[override]
        return self._variable.op

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self._variable.graph

    @property
    def device(self) -> str:  # type: ignore[override]
        return self._variable.device

    # -- updates: each returns the variable's reference after it -------------------------------------------

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Set the variable. Returns its reference after that; the operation with read_value=False."""
        made = raw.Assign(self._variable, value, use_locking=use_locking, name=name)
        return made if read_value else made.op

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        made = raw.AssignAdd(self._variable, delta, use_locking=use_locking, name=name)
        return made if read_value else made.op

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        made = raw.AssignSub(self._variable, delta, use_locking=use_locking, name=name)
        return made if read_value else made.op

    def _scatter(self, how: str, sparse_delta: Any, use_locking: bool, name: str | None) -> Tensor:
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {sparse_delta}")
        return getattr(raw, "Scatter" + how)(
            self._variable, sparse_delta.indices, sparse_delta.values, use_locking=use_locking, name=name
        )

    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Add slices to the rows at their indices. Raises TypeError where they are not IndexedSlices."""
        return self._scatter("Add", sparse_delta, use_locking, name)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Sub", sparse_delta, use_locking, name)

    def scatter_mul(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Mul", sparse_delta, use_locking, name)

    def scatter_div(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Div", sparse_delta, use_locking, name)

    def scatter_min(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Min", sparse_delta, use_locking, name)

    def scatter_max(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Max", sparse_delta, use_locking, name)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return self._scatter("Update", sparse_delta, use_locking, name)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        from graphrt.variables.assignments import batch_scatter_update

        return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        return raw.ScatterNdAdd(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        return raw.ScatterNdSub(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        return raw.ScatterNdUpdate(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_max(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        return raw.ScatterNdMax(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_min(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        return raw.ScatterNdMin(self._variable, indices, updates, use_locking=True, name=name)

    def _strided_slice_assign(
        self, begin: Tensor, end: Tensor, strides: Tensor, value: Any, name: str | None, masks: dict[str, int]
    ) -> Tensor:
        return raw.StridedSliceAssign(self._variable, begin, end, strides, value, name=name, **masks)

    def count_up_to(self, limit: int) -> Tensor:
        """The value before it grows by one; OutOfRangeError once it is `limit`."""
        return raw.CountUpTo(self._variable, limit=limit)

    # `v += x` makes a tensor of v + x, and leaves the variable as it is.
    def __iadd__(self, other: Any) -> Any:
        return self + other  # type: ignore[operator]

    def __isub__(self, other: Any) -> Any:
        return self - other  # type: ignore[operator]

    def __imul__(self, other: Any) -> Any:
        return self * other  # type: ignore[operator]

    def __itruediv__(self, other: Any) -> Any:
        return self / other  # type: ignore[operator]

    def __ipow__(self, other: Any) -> Any:
        return self**other  # type: ignore[operator]
