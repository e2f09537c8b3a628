"""tf.Variable: what ref and resource variables share, and how `tf.Variable(...)` becomes one of them.

`tf.Variable` is a class to test against and a call to make variables with. The call goes through the open
`variable_creator_scope`s, innermost first, to the default creator, which picks the kind: `use_resource`, else
the variable scope's, else what `enable_resource_variables` set.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphrt.core.default_graph import get_default_graph
from graphrt.core.dtypes import DType
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor, TensorReference


class VariableSynchronization(enum.Enum):
    """When a distributed variable's copies are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How a distributed variable's copies are brought together."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3  # its old name

    def __hash__(self) -> int:
        return hash(self.value)


def checked_modes(
    synchronization: Any, aggregation: Any, trainable: bool | None, name: Any
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    """The three with their defaults: trainable unless it is synchronised on read.

    Raises:
      ValueError: a synchronization or aggregation that does not exist.
    """
    try:
        aggregation = (
            VariableAggregation.NONE
            if aggregation is None
            else VariableAggregation(getattr(aggregation, "value", aggregation))
        )
    except ValueError:
        raise ValueError(f"Invalid variable aggregation mode: {aggregation} for variable: {name}") from None
    try:
        synchronization = (
            VariableSynchronization.AUTO
            if synchronization is None
            else VariableSynchronization(getattr(synchronization, "value", synchronization))
        )
    except ValueError:
        raise ValueError(
            f"Invalid variable synchronization mode: {synchronization} for variable: {name}"
        ) from None
    if trainable is None:
        trainable = synchronization is not VariableSynchronization.ON_READ
    return synchronization, aggregation, trainable


class SaveSliceInfo:
    """Which part of a partitioned variable a variable is: a checkpoint keeps the whole under `full_name`.

    Attributes:
      full_name, full_shape: the whole's.
      var_offset, var_shape: where the part begins, and its shape.
    """

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: list[int] | None = None,
        var_offset: list[int] | None = None,
        var_shape: list[int] | None = None,
        save_slice_info_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if save_slice_info_def is not None:
            full_name = prepend_scope(save_slice_info_def.full_name, import_scope)
            full_shape = list(save_slice_info_def.full_shape)
            var_offset = list(save_slice_info_def.var_offset)
            var_shape = list(save_slice_info_def.var_shape)
        self.full_name, self.full_shape, self.var_offset, self.var_shape = (
            full_name,
            full_shape,
            var_offset,
            var_shape,
        )

    @property
    def spec(self) -> str:
        """As checkpoints write it: '10 20 0,5:0,20' is rows 0 to 5 of a [10, 20] tensor."""
        whole = "".join(f"{d} " for d in self.full_shape or ())
        return whole + ":".join(f"{o},{s}" for o, s in zip(self.var_offset or (), self.var_shape or ()))

    @classmethod
    def from_spec(cls, spec: str) -> SaveSliceInfo:
        """The inverse of `spec`. Raises ValueError where the text is not of that form."""
        if not spec:
            return cls()
        try:
            *whole, part = spec.split(" ")
            pairs = [pair.split(",") for pair in part.split(":")]
            return cls(
                full_shape=[int(d) for d in whole],
                var_offset=[int(o) for o, _ in pairs],
                var_shape=[int(s) for _, s in pairs],
            )
        except ValueError as error:
            raise ValueError(f"{spec!r} is not 'size size … offset,size:offset,size…': {error}") from None

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The SaveSliceInfoDef; None where the whole is not under `export_scope`."""
        if export_scope is not None and not (self.full_name or "").startswith(export_scope):
            return None
        from graphrt.protos import variable_pb2
        return variable_pb2.SaveSliceInfoDef(
            full_name=strip_scope(self.full_name or "", export_scope),
            full_shape=self.full_shape,
            var_offset=self.var_offset,
            var_shape=self.var_shape,
        )


def prepend_scope(name: str, import_scope: str | None) -> str:
    """`name` as it is after an import into `import_scope`."""
    return f"{import_scope.rstrip('/')}/{name}" if import_scope else name


def strip_scope(name: str, export_scope: str | None) -> str:
    """`name` without `export_scope` before it."""
    scope = (export_scope or "").rstrip("/")
    return name.removeprefix(scope + "/") if scope else name


class VariableClass(type):
    """`Variable(...)` itself makes a variable of the kind asked for; its subclasses are made as other classes
    are."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Variable:
            return create_variable(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class Variable(metaclass=VariableClass):
    """A value that outlives steps: initialised once, then read and assigned to.

    Args:
      initial_value: a tensor or what becomes one, or a function without arguments that returns it.
      trainable: listed in trainable_variables(), which optimizers train by default. True by default.
      collections: names of the collections it is listed in; [GraphKeys.GLOBAL_VARIABLES] by default.
      validate_shape: False allows an initial value of unknown shape, and assignments of other shapes.
      caching_device: device name on which reads are cached.
      name: 'Variable' by default, made unique.
      variable_def: a VariableDef of a variable whose nodes exist already; excludes the others but
        import_scope.
      dtype: what initial_value is converted to.
      expected_shape: ignored, as in TensorFlow.
      import_scope: name scope before the names in variable_def.
      constraint: function from the variable to its projected value, applied after an optimizer's update.
      use_resource: True for a resource variable, False for a ref variable.
      synchronization, aggregation: for variables that are distributed.
      shape: its static shape where it is not that of initial_value.
    Raises:
      ValueError: initial_value is missing, has no known shape though validate_shape is True, or stands in
        control flow.
    """

    SaveSliceInfo = SaveSliceInfo
    # NumPy arrays on the left of an operator hand over to ours.
    __array_priority__ = 100
    _in_graph_mode = True

    _name: str
    _trainable: bool
    _synchronization: VariableSynchronization
    _aggregation: VariableAggregation
    _initial_value: Tensor | None
    _initializer_op: Operation
    _constraint: Callable[[Any], Any] | None
    _caching_device: Any
    _save_slice_info: SaveSliceInfo | None

    # What each kind defines.
    dtype: DType
    shape: TensorShape
    op: Operation
    graph: Graph
    device: str

    def value(self) -> Tensor:
        """The variable as a tensor: what ops take where a variable is given."""
        raise NotImplementedError

    def read_value(self) -> Tensor:
        """The value, read here: after the control dependencies and on the device that are open now."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return self._name

    @property
    def _shared_name(self) -> str:
        return self.name.partition(":")[0]

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def initializer(self) -> Operation:
        """The operation that sets the variable to its initial value."""
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor:
        """The tensor that the initializer assigns."""
        return self._initial_value  # type: ignore[return-value]

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        return self._constraint

    def get_shape(self) -> TensorShape:
        return self.shape

    def initialized_value(self) -> Tensor:
        """The value, or the initial value as long as the variable was not initialised."""
        from graphrt.variables.lifting import initialized_value

        return initialized_value(self)

    def eval(self, session: Any = None) -> Any:
        """The value as an array, by the given or the default session."""
        return self._as_graph_element().eval(session=session)

    def load(self, value: Any, session: Any = None) -> None:
        """Set the variable to an array, without adding a node, by the given or the default session."""
        self.initializer.run({self.initializer.inputs[1]: value}, session)

    def _as_graph_element(self) -> Any:
        raise NotImplementedError

    def _set_save_slice_info(self, save_slice_info: SaveSliceInfo | None) -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> SaveSliceInfo | None:
        return self._save_slice_info

    def _checked_dtype(self, dtype: DType | None) -> None:
        if dtype is not None and dtype.base_dtype is not self.dtype.base_dtype:
            raise ValueError(
                f"Incompatible type conversion requested to type '{dtype.name}' for variable '{self.name}' "
                f"of type '{self.dtype.name}': tf.cast(variable, tf.{dtype.name}) converts"
            )

    def ref(self) -> TensorReference:
        """A hashable stand-in; `.deref()` gives the variable back."""
        return TensorReference(self)

    experimental_ref = ref

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Variable:
        """The variable of a VariableDef, whose nodes are in the default graph."""
        return create_variable(variable_def=variable_def, import_scope=import_scope)

    def to_proto(self, export_scope: str | None = None) -> Any:
        raise NotImplementedError

    def _common_proto(self, export_scope: str | None) -> Any:
        from graphrt.protos import variable_pb2
        made = variable_pb2.VariableDef(
            trainable=self._trainable,
            synchronization=self._synchronization.value,
            aggregation=self._aggregation.value,
            initializer_name=strip_scope(self.initializer.name, export_scope),
        )
        if self._initial_value is not None:
            made.initial_value_name = strip_scope(self._initial_value.name, export_scope)
        if self._save_slice_info is not None:
            part = self._save_slice_info.to_proto(export_scope)
            if part is not None:
                made.save_slice_info_def.CopyFrom(part)
        return made

    def _take_common_proto(self, variable_def: Any, import_scope: str | None) -> None:
        graph = get_default_graph()
        element = lambda name: graph.as_graph_element(prepend_scope(name, import_scope))  # noqa: E731
        self._initializer_op = element(variable_def.initializer_name)
        self._initial_value = (
            element(variable_def.initial_value_name) if variable_def.initial_value_name else None
        )
        self._synchronization, self._aggregation, self._trainable = checked_modes(
            variable_def.synchronization,
            variable_def.aggregation,
            variable_def.trainable,
            variable_def.variable_name,
        )
        self._save_slice_info = (
            SaveSliceInfo(save_slice_info_def=variable_def.save_slice_info_def, import_scope=import_scope)
            if variable_def.HasField("save_slice_info_def")
            else None
        )
        self._caching_device = self._constraint = None

    # -- operators: the value's, read outside of the operator's name scope -----------------------------------

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.read_value())

    def __getitem__(self, key: Any) -> Tensor:
        """A slice of the value; its `assign(value)` assigns to that part of the variable."""
        made = self.value()[key]
        picked = made.op
        if picked.type == "StridedSlice":  # a boolean mask has no place to assign to
            masks = {mask: picked.attrs[mask] for mask in _MASKS}
            made.assign = lambda value, name=None: self._strided_slice_assign(
                *picked.inputs[1:4], value, name, masks
            )
        return made

    def _strided_slice_assign(
        self, begin: Tensor, end: Tensor, strides: Tensor, value: Any, name: str | None, masks: dict[str, int]
    ) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_OPERATORS = (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "div",
    "rdiv",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "pow",
    "rpow",
    "matmul",
    "rmatmul",
    "and",
    "rand",
    "or",
    "ror",
    "xor",
    "rxor",
    "lt",
    "le",
    "gt",
    "ge",
    "neg",
    "abs",
    "invert",
)


def _forward(name: str) -> Callable[..., Any]:
    def operator(variable: Variable, *others: Any) -> Any:
        return getattr(Tensor, name)(variable.value(), *others)

    operator.__name__ = name
    return operator


for _operator in _OPERATORS:
    setattr(Variable, f"__{_operator}__", _forward(f"__{_operator}__"))


# -- how tf.Variable(...) makes one --------------------------------------------------------------------------


class _Creators(threading.local):
    """A thread's open variable_creator_scopes, by graph."""

    def __init__(self) -> None:
        self.of: weakref.WeakKeyDictionary[Graph, list[Callable[..., Any]]] = weakref.WeakKeyDictionary()


_creators = _Creators()


@contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """Variables of the default graph are made by `variable_creator(next_creator, **kwargs)` inside: it may
    change the arguments, and calls `next_creator(**kwargs)` for the variable, or returns another."""
    graph = get_default_graph()
    opened = _creators.of.setdefault(graph, [])
    opened.append(variable_creator)
    try:
        yield
    finally:
        opened.pop()


def create_variable(
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
    use_resource: bool | None = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
    shape: Any = None,
) -> Any:
    """What `tf.Variable(...)` calls: the creators, then the class of the kind asked for."""
    creator: Callable[..., Any] = _default_creator
    for outer in _creators.of.get(get_default_graph(), ()):
        creator = _chained(outer, creator)
    return creator(
        initial_value=initial_value,
        trainable=trainable,
        collections=collections,
        validate_shape=validate_shape,
        caching_device=caching_device,
        name=name,
        variable_def=variable_def,
        dtype=dtype,
        expected_shape=expected_shape,
        import_scope=import_scope,
        constraint=constraint,
        use_resource=use_resource,
        synchronization=synchronization,
        aggregation=VariableAggregation.NONE if aggregation is None else aggregation,
        shape=shape,
    )


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


def _default_creator(use_resource: bool | None = None, variable_def: Any = None, **kwargs: Any) -> Any:
    from graphrt.variables.ref_variable import RefVariable
    from graphrt.variables.resource_variable import ResourceVariable
    from graphrt.variables.variable_scope import get_variable_scope

    if variable_def is not None and use_resource is None:
        use_resource = variable_def.is_resource
    if use_resource is None:
        use_resource = get_variable_scope().use_resource
    if use_resource is None:
        use_resource = resource_variables_enabled()
    return (ResourceVariable if use_resource else RefVariable)(variable_def=variable_def, **kwargs)


_use_resource = False


def enable_resource_variables() -> None:
    """Make resource variables where neither the variable nor its scope says which kind."""
    global _use_resource
    _use_resource = True


def disable_resource_variables() -> None:
    """Make ref variables where neither the variable nor its scope says which kind, as at the start."""
    global _use_resource
    _use_resource = False


def resource_variables_enabled() -> bool:
    return _use_resource
