"""Resource variables: a handle, and reads that are snapshots: a later update does not show in an earlier
read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, as_dtype
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.shapes import TensorShape, as_shape
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.variables.initial_value import checked_arguments, refuse_control_flow, safe_initial_value
from graphrt.variables.lifting import init_scope
from graphrt.variables.variable import Variable, checked_modes, prepend_scope, strip_scope


class BaseResourceVariable(Variable):
    """What a resource variable, and one as it is after an update, do."""

    _handle: Tensor
    _shape: TensorShape
    _dtype: DType
    _graph_element: Tensor
    _cached_value: Tensor | None = None
    _validate_shape = True

    @property
    def handle(self) -> Tensor:
        """The resource tensor that names the variable's memory."""
        return self._handle

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self._dtype

    @property
    def shape(self) -> TensorShape:  # type: ignore[override]
        return self._shape

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape."""
        self._shape = self._shape.merge_with(shape)

    @property
    def op(self) -> Operation:  # type: ignore[override]
        return self._handle.op

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self._handle.graph

    @property
    def device(self) -> str:  # type: ignore[override]
        return self._handle.device

    @property
    def create(self) -> Operation:
        """The operation that initialises the variable."""
        return self._initializer_op

    def value(self) -> Tensor:
        if self._cached_value is not None:
            return self._cached_value
        with get_default_graph().colocate_with(None, ignore_existing=True):
            return self._read()

    def _read(self) -> Tensor:
        if self._caching_device is None:
            return raw.ReadVariableOp(self._handle, dtype=self._dtype)
        graph = get_default_graph()
        with graph.colocate_with(None, ignore_existing=True), graph.device(self._caching_device):
            return raw.ReadVariableOp(self._handle, dtype=self._dtype)

    def read_value(self) -> Tensor:
        with name_scope("Read"):
            value = self._read()
        return raw.Identity(value)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The rows at `indices`, without reading the rest."""
        with name_scope("Gather" if name is None else name) as scope:
            return raw.ResourceGather(self._handle, indices, dtype=self._dtype, name=scope)

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        with name_scope("GatherNd" if name is None else name) as scope:
            value = raw.ResourceGatherNd(self._handle, indices, dtype=self._dtype, name=scope)
        return raw.Identity(value)

    def is_initialized(self, name: str | None = None) -> Tensor:
        return raw.VarIsInitializedOp(self._handle, name=name)

    def _as_graph_element(self) -> Tensor:
        return self._graph_element

    def _dense_var_to_tensor(
        self, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
    ) -> Tensor:
        self._checked_dtype(dtype)
        return self._handle if as_ref else self.value()

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The VariableDef; None where the variable is not under `export_scope`."""
        if export_scope is not None and not self._handle.name.startswith(export_scope):
            return None
        made = self._common_proto(export_scope)
        made.is_resource = True
        made.variable_name = strip_scope(self._handle.name, export_scope)
        made.snapshot_name = strip_scope(
            (self._graph_element if self._cached_value is None else self._cached_value).name, export_scope
        )
        return made

    # -- updates: each returns the variable as it is after it; the operation with read_value=False ----------

    @contextmanager
    def _open(self) -> Iterator[None]:
        """The graph of the variable, after what must come before its updates."""
        with self._handle.graph.as_default() if not get_default_graph().building_function else ExitStack():
            if self._cached_value is None:
                yield
            else:
                with get_default_graph().control_dependencies([self._cached_value]):
                    yield

    def _after(self, op: Operation) -> UnreadVariable:
        return UnreadVariable(self._handle, self._dtype, self._shape, op)

    # TensorFlow's name, which programs and optimizers of others use.
    _lazy_read = _after

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Set the variable. Returns it as it is after that; the operation with read_value=False.

        Raises:
          ValueError: the value's shape cannot be the variable's.
        """
        with self._handle.graph.as_default() if not get_default_graph().building_function else ExitStack():
            tensor = convert_to_tensor(value, self._dtype)
            if not self._shape.is_compatible_with(tensor.shape):
                raise ValueError(
                    f"Cannot assign value to variable ' {self.name}': Shape mismatch.The variable shape "
                    f"{self._shape}, and the assigned value shape {tensor.shape} are incompatible."
                )
            op = raw.AssignVariableOp(
                self._handle,
                tensor,
                name=name,
                validate_shape=self._validate_shape and self._shape.is_fully_defined(),
            )
            return self._after(op) if read_value else op

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        with self._open():
            op = raw.AssignAddVariableOp(self._handle, convert_to_tensor(delta, self._dtype), name=name)
        return self._after(op) if read_value else op

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        with self._open():
            op = raw.AssignSubVariableOp(self._handle, convert_to_tensor(delta, self._dtype), name=name)
        return self._after(op) if read_value else op

    def _scatter(self, how: str, sparse_delta: Any, name: str | None) -> UnreadVariable:
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(
                f"Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: {sparse_delta}"
            )
        return self._scatter_rows(how, sparse_delta.indices, sparse_delta.values, name)

    def _scatter_rows(self, how: str, indices: Any, updates: Any, name: str | None) -> UnreadVariable:
        return self._after(
            getattr(raw, "ResourceScatter" + how)(
                self._handle, indices, convert_to_tensor(updates, self._dtype), name=name
            )
        )

    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Add slices to the rows at their indices. Raises TypeError where they are not IndexedSlices."""
        return self._scatter("Add", sparse_delta, name)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Sub", sparse_delta, name)

    def scatter_mul(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Mul", sparse_delta, name)

    def scatter_div(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Div", sparse_delta, name)

    def scatter_min(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Min", sparse_delta, name)

    def scatter_max(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Max", sparse_delta, name)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        return self._scatter("Update", sparse_delta, name)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        from graphrt.variables.assignments import batch_scatter_update

        return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> UnreadVariable:
        return self._scatter_rows("NdAdd", indices, updates, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> UnreadVariable:
        return self._scatter_rows("NdSub", indices, updates, name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> UnreadVariable:
        return self._scatter_rows("NdUpdate", indices, updates, name)

    def scatter_nd_max(self, indices: Any, updates: Any, name: str | None = None) -> UnreadVariable:
        return self._scatter_rows("NdMax", indices, updates, name)

    def scatter_nd_min(self, indices: Any, updates: Any, name: str | None = None) -> UnreadVariable:
        return self._scatter_rows("NdMin", indices, updates, name)

    def _strided_slice_assign(
        self, begin: Tensor, end: Tensor, strides: Tensor, value: Any, name: str | None, masks: dict[str, int]
    ) -> UnreadVariable:
        with self._open():
            return self._after(
                raw.ResourceStridedSliceAssign(
                    self._handle,
                    begin,
                    end,
                    strides,
                    convert_to_tensor(value, self._dtype),
                    name=name,
                    **masks,
                )
            )

    def count_up_to(self, limit: int) -> Tensor:
        """The value before it grows by one; OutOfRangeError once it is `limit`."""
        return raw.ResourceCountUpTo(self._handle, limit=limit, T=self._dtype)

    def __bool__(self) -> bool:
        raise TypeError(
            f"using the variable '{self.name}' as a Python bool is not allowed: its value is known only in a "
            "step. Use tf.cond for control flow, `is not None` to test for presence"
        )

    def _no_assignment(self, other: Any) -> Any:
        raise RuntimeError(
            f"`variable += value` and the like are not supported ('{self.name}'). Use "
            "`variable.assign_add(value)` or `variable.assign(variable * value)` to modify the variable, or "
            "`out = variable + value` to get a new tensor."
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _no_assignment


class ResourceVariable(BaseResourceVariable):
    """A resource variable; its arguments are Variable's. Nodes: 'W' (VarHandleOp),
    'W/IsInitialized/VarIsInitializedOp', 'W/Assign', 'W/Read/ReadVariableOp', and the initial value under
    'W/Initializer'."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        dtype: Any = None,
        variable_def: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
        expected_shape: Any = None,
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
        self._validate_shape = validate_shape
        wanted = None if dtype is None else as_dtype(dtype).base_dtype
        with init_scope():
            self._build(initial_value, name, wanted, None if shape is None else as_shape(shape))
            get_default_graph().add_to_collections(collections, self)

    def _build(
        self, initial_value: Any, name: str | None, dtype: DType | None, shape: TensorShape | None
    ) -> None:
        graph = get_default_graph()
        with name_scope(name, "Variable", [] if callable(initial_value) else [initial_value]) as scope:
            own_name = scope.rstrip("/")
            with graph._attr_scope({"_class": [b"loc:@" + own_name.encode()]}):
                with name_scope("Initializer"), graph.device(None):
                    value = convert_to_tensor(
                        initial_value() if callable(initial_value) else initial_value, dtype, "initial_value"
                    )
                if shape is not None and not value.shape.is_compatible_with(shape):
                    raise ValueError(
                        f"In this `tf.Variable` creation, the initial value's shape ({value.shape}) is not "
                        f"compatible with the explicitly supplied `shape` argument ({shape})."
                    )
                self._shape = value.shape if shape is None else shape
                self._dtype = value.dtype.base_dtype
                self._handle = raw.VarHandleOp(
                    shape=self._shape, dtype=self._dtype, shared_name=own_name, debug_name=scope, name=scope
                )
            self._name = self._handle.name
            self._initial_value = value
            refuse_control_flow(value, scope)
            with name_scope("IsInitialized"):
                self._is_initialized_op = raw.VarIsInitializedOp(self._handle)
            with (
                name_scope("Assign") as assign_name,
                graph.colocate_with(None, ignore_existing=True),
                graph.device(self._handle.device),
            ):
                self._initializer_op = raw.AssignVariableOp(
                    self._handle, safe_initial_value(scope, value), name=assign_name
                )
            with name_scope("Read"):
                with graph.device(self._handle.device):
                    self._graph_element = raw.ReadVariableOp(self._handle, dtype=self._dtype)
                if self._caching_device is not None:
                    with graph.colocate_with(None, ignore_existing=True), graph.device(self._caching_device):
                        self._cached_value = raw.Identity(self._graph_element)

    def _from_nodes(self, variable_def: Any, import_scope: str | None) -> None:
        if not variable_def.is_resource:
            raise ValueError(
                f"the VariableDef of '{variable_def.variable_name}' is a ref variable's: a resource variable "
                "cannot be made of its nodes"
            )
        graph = get_default_graph()
        self._handle = graph.as_graph_element(
            prepend_scope(variable_def.variable_name, import_scope), allow_operation=False
        )
        self._name = self._handle.name
        self._shape, self._dtype = self._handle.op.attrs["shape"], self._handle.op.attrs["dtype"]
        if variable_def.snapshot_name:
            snapshot = graph.as_graph_element(prepend_scope(variable_def.snapshot_name, import_scope))
            self._cached_value = snapshot if snapshot.op.type != "ReadVariableOp" else None
            while snapshot.op.type != "ReadVariableOp":
                snapshot = snapshot.op.inputs[0]
            self._graph_element = snapshot
        else:
            self._graph_element = graph.get_tensor_by_name(self._handle.op.name + "/Read/ReadVariableOp:0")
        self._take_common_proto(variable_def, import_scope)


class UnreadVariable(BaseResourceVariable):
    """A resource variable as it is after the update `parent_op`: reads of it wait for that, and so do further
    updates."""

    def __init__(self, handle: Tensor, dtype: DType, shape: TensorShape, parent_op: Operation) -> None:
        self._handle, self._dtype, self._shape, self._parent_op = handle, dtype, shape, parent_op
        self._caching_device = self._constraint = self._save_slice_info = self._initial_value = None
        self._synchronization, self._aggregation, self._trainable = checked_modes(None, None, None, None)
        with parent_op.graph.control_dependencies([parent_op]):
            self._graph_element = raw.ReadVariableOp(handle, dtype=dtype)

    @property
    def name(self) -> str:
        return self._parent_op.name

    @property
    def op(self) -> Operation:  # type: ignore[override]
        """The update."""
        return self._parent_op

    def value(self) -> Tensor:
        return self._read()

    def read_value(self) -> Tensor:
        return self._read()

    def _read(self) -> Tensor:
        with self._parent_op.graph.control_dependencies([self._parent_op]):
            return raw.ReadVariableOp(self._handle, dtype=self._dtype)


def _waits_for_parent(method_name: str) -> Any:
    update = getattr(BaseResourceVariable, method_name)

    def method(self: UnreadVariable, *args: Any, **kwargs: Any) -> Any:
        with self._parent_op.graph.control_dependencies([self._parent_op]):
            return update(self, *args, **kwargs)

    method.__name__, method.__doc__ = method_name, update.__doc__
    return method


for _method in (
    "assign",
    "assign_add",
    "assign_sub",
    "_scatter_rows",
    "batch_scatter_update",
    "_strided_slice_assign",
):
    setattr(UnreadVariable, _method, _waits_for_parent(_method))


def is_resource_variable(variable: Any) -> bool:
    return isinstance(variable, BaseResourceVariable)
