"""The nodes that save and restore variables, as TensorFlow's Saver builds them.

Each thing that is saved is a SaveableObject: a list of SaveSpecs (a tensor, its name in the checkpoint,
which part of a larger tensor it is), and `restore`, which builds the assignment from restored tensors.
Objects other than variables join a Saver by a SaveableObject in the collection `saveable_objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graphrt.control_flow.dependencies import with_dependencies
from graphrt.core import raw
from graphrt.core.convert import constant_tensor, convert_to_tensor
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.device_names import canonical_name, parse
from graphrt.core.dtypes import DType
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor
from graphrt.variables.lifting import group
from graphrt.variables.partitioned_variable import PartitionedVariable
from graphrt.variables.resource_variable import BaseResourceVariable
from graphrt.variables.variable import Variable

_REF_VARIABLES = ("Variable", "VariableV2", "AutoReloadVariable")
_VARIABLES = (*_REF_VARIABLES, "VarHandleOp", "ReadVariableOp")
V1, V2 = 1, 2


class SaveSpec:
    """A tensor of a checkpoint.

    Args:
      tensor: a tensor, or a function that builds one; then dtype and device must be given.
      slice_spec: '' or which part of which whole it is, as '10 4 0,5:0,4'.
      name: its name in the checkpoint.
      dtype: the dtype it is restored in.
    """

    def __init__(
        self, tensor: Any, slice_spec: str, name: str, dtype: DType | None = None, device: str | None = None
    ) -> None:
        self._tensor, self.slice_spec, self.name = tensor, slice_spec, name
        if callable(tensor):
            if dtype is None or device is None:
                raise AssertionError(
                    "When passing a callable `tensor` to a SaveSpec, an explicit dtype and device must "
                    "be provided."
                )
            self.dtype, self.device = dtype, device
        else:
            self.dtype = tensor.dtype if dtype is None else dtype
            self.device = tensor.device if device is None else device

    @property
    def tensor(self) -> Any:
        return self._tensor() if callable(self._tensor) else self._tensor


class SaveableObject:
    """Something that a Saver saves.

    Args:
      op: what is saved; each is saved once.
      specs: its SaveSpecs.
      name: its name in the checkpoint.
    """

    def __init__(self, op: Any, specs: list[SaveSpec], name: str) -> None:
        self.op, self.specs, self.name = op, specs, name

    @property
    def device(self) -> str:
        return self.specs[0].device

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        """Build the operation that takes over the restored tensors, reshaped where shapes are given."""
        raise NotImplementedError("Calling an abstract method.")


class ReferenceVariableSaveable(SaveableObject):
    """A ref variable, by its reference."""

    def __init__(self, var: Any, slice_spec: str, name: str) -> None:
        super().__init__(var, [SaveSpec(var, slice_spec, name, dtype=var.dtype)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = raw.Reshape(value, _as_sizes(restored_shapes[0]))
        is_checked = restored_shapes is None and self.op.get_shape().is_fully_defined()
        return raw.Assign(self.op, value, validate_shape=is_checked)


class ResourceVariableSaveable(SaveableObject):
    """A resource variable, or a read of it."""

    def __init__(self, var: Any, slice_spec: str, name: str) -> None:
        self._device, self._shape = var.device, var.shape
        if isinstance(var, Tensor):
            self.handle_op = var.op.inputs[0]
            tensor: Any = var
        else:
            self.handle_op = var.handle
            tensor = _reader(var)
        super().__init__(var, [SaveSpec(tensor, slice_spec, name, dtype=var.dtype, device=var.device)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = raw.Reshape(value, _as_sizes(restored_shapes[0]))
        with get_default_graph().device(self._device):
            value = raw.Identity(value)
            if not self._shape.is_compatible_with(value.shape):
                raise ValueError(
                    f"Received incompatible tensor with shape {value.shape} when attempting to restore "
                    "variable with "
                    f"shape {self._shape} and name {self.name}."
                )
            return raw.AssignVariableOp(self.handle_op, value)


def _reader(variable: Any) -> Callable[[], Tensor]:
    def read() -> Tensor:
        graph = get_default_graph()
        with graph.device(variable.device):
            with name_scope("Read"):
                raw.DisableCopyOnRead(variable.handle)
                value = variable._read()
            value = raw.Identity(value)
            with graph.device("/device:CPU:0"):
                return raw.Identity(value)

    return read


def _as_sizes(shape: Any) -> Any:
    return shape if isinstance(shape, Tensor) else shape.as_list()


def all_saveable_objects(scope: str | None = None) -> list[Any]:
    """What a Saver saves where it is not told: global variables and the SaveableObjects of their
    collection."""
    graph = get_default_graph()
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope) + graph.get_collection(
        GraphKeys.SAVEABLE_OBJECTS, scope
    )


def _flat(values: Any) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple, set)):
            yield from _flat(value)
        else:
            yield value


def names_to_saveables(var_list: Any) -> dict[str, Any]:
    """By the name in the checkpoint: the variables, lists of parts and SaveableObjects of a list.

    Raises:
      TypeError: something of it cannot be saved.
      ValueError: two have one name.
    """
    if not isinstance(var_list, (list, tuple, set)):
        raise TypeError(f"Variables to save should be passed in a dict or a list. Got {var_list}")
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if name in found:
            raise ValueError(f"At least two variables have the same name: {name}")
        found[name] = value

    for var in sorted(_flat(var_list), key=lambda v: v.name):
        if isinstance(var, SaveableObject):
            found[var.name] = var
        elif isinstance(var, PartitionedVariable):
            put(var.name, var)
        elif isinstance(var, Variable) and var._get_save_slice_info() is not None:
            name = var._get_save_slice_info().full_name
            if not isinstance(found.setdefault(name, []), list):
                raise ValueError(f"Mixing slices and non-slices with the same name: {name}")
            found[name].append(var)
        elif _others(var) is not None:
            found.update(names_to_saveables([make() for make in _others(var).values()]))  # type: ignore[union-attr]
        else:
            tensor = _variable_tensor(var)
            if tensor.op.type not in _VARIABLES:
                raise TypeError(f"Variable to save is not a Variable: {var}")
            put((tensor.op.inputs[0] if tensor.op.type == "ReadVariableOp" else tensor).op.name, tensor)
    return found


def _others(value: Any) -> dict[str, Callable[..., Any]] | None:
    """The makers of the SaveableObjects of a table, iterator or other object with a state; None of a
    variable."""
    gather = getattr(value, "_gather_saveables_for_checkpoint", None)
    return None if gather is None or isinstance(value, Variable) else gather()


def _variable_tensor(var: Any) -> Tensor:
    if isinstance(var, BaseResourceVariable):
        return var._graph_element
    return convert_to_tensor(var, as_ref=True)


def _saveables_of(value: Any, name: str) -> Iterable[SaveableObject]:
    if not isinstance(name, str):
        raise TypeError(
            "names_to_saveables must be a dict mapping string names to trackable operations. Name is not a "
            f"string: {name}"
        )
    if isinstance(value, SaveableObject):
        yield value
    elif isinstance(value, (list, tuple, PartitionedVariable)):
        full_name = None
        for part in value:
            if isinstance(part, SaveableObject):
                yield part
                continue
            if not isinstance(part, Variable):
                raise ValueError(f"Slices must all be Variables: {part}")
            info = part._get_save_slice_info()
            if info is None:
                raise ValueError(f"Slices must all be slices: {part}")
            if full_name is not None and full_name != info.full_name:
                raise ValueError(f"Slices must all be from the same tensor: {full_name} != {info.full_name}")
            full_name = info.full_name
            kind = ReferenceVariableSaveable if part.op.type in _REF_VARIABLES else ResourceVariableSaveable
            yield kind(part, info.spec, name)
    elif _others(value) is not None:
        for make in _others(value).values():  # type: ignore[union-attr]
            made = make(name)
            yield from _saveables_of(made, made.name)
    else:
        tensor = _variable_tensor(value)
        if tensor.op.type not in _VARIABLES:
            raise TypeError(
                "names_to_saveables must be a dict mapping string names to Tensors/Variables. Not a "
                f"variable: {tensor}"
            )
        yield (ReferenceVariableSaveable if tensor.op.type in _REF_VARIABLES else ResourceVariableSaveable)(
            tensor, "", name
        )


def saveable_objects(by_name: dict[str, Any]) -> list[SaveableObject]:
    """The SaveableObjects of variables by name, in the names' order. Raises ValueError where one comes
    twice."""
    made: list[SaveableObject] = []
    seen: set[int] = set()
    for name in sorted(by_name):
        for saveable in _saveables_of(by_name[name], name):
            if saveable.op is not None and id(saveable.op) in seen:
                raise ValueError(f"The same saveable will be restored with two names: {saveable.name}")
            seen.add(id(saveable.op))
            made.append(saveable)
    return made


def on_cpu(device: str) -> str:
    """`device` with CPU:0 in place of what it names: strings and files stay in host memory."""
    return str(parse("/device:CPU:0").over(parse(device)))


class BaseSaverBuilder:
    """Builds a Saver's nodes; subclasses may build other ones for the parts."""

    SaveSpec = SaveSpec
    SaveableObject = SaveableObject
    VariableSaveable = ReferenceVariableSaveable
    ResourceVariableSaveable = ResourceVariableSaveable

    def __init__(self, write_version: int = V2) -> None:
        self._write_version = write_version

    def save_op(self, filename_tensor: Tensor, saveables: list[SaveableObject]) -> Operation:
        """The operation that writes all of `saveables`."""
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names, slices = [s.name for s in specs], [s.slice_spec for s in specs]
        tensors = [s.tensor for s in specs]
        if self._write_version == V2:
            return raw.SaveV2(filename_tensor, names, slices, tensors)
        if self._write_version != V1:
            raise RuntimeError(f"Unexpected write_version: {self._write_version}")
        return raw.SaveSlices(filename_tensor, names, slices, tensors, name="save")

    def restore_op(
        self, filename_tensor: Tensor, saveable: SaveableObject, preferred_shard: int
    ) -> list[Tensor]:
        """The tensors of one of them, read from the checkpoint."""
        return [
            raw.RestoreV2(filename_tensor, [s.name], [s.slice_spec], dtypes=[s.dtype.base_dtype])[0]
            for s in saveable.specs
        ]

    def bulk_restore(
        self,
        filename_tensor: Tensor,
        saveables: list[SaveableObject],
        preferred_shard: int,
        restore_sequentially: bool,
    ) -> list[Tensor]:
        """The tensors of all of them, in order."""
        made: list[Tensor] = []
        for saveable in saveables:
            with get_default_graph().device(on_cpu(saveable.device) if saveable.device else None):
                made += self.restore_op(filename_tensor, saveable, preferred_shard)
        return made

    def sharded_filename(self, filename_tensor: Tensor, shard: int, num_shards: Tensor) -> Tensor:
        return raw.ShardedFilename(filename_tensor, shard, num_shards)

    def build(
        self,
        names_to_saveables: Any,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str | None = "model",
    ) -> Any:
        """Add the nodes, and return the SaverDef that names them."""
        return self._build_internal(
            names_to_saveables,
            reshape,
            sharded,
            max_to_keep,
            keep_checkpoint_every_n_hours,
            name,
            restore_sequentially,
            filename,
        )

    def _build_internal(
        self,
        variables: Any,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str | None = "model",
    ) -> Any:
        from graphrt.protos import saver_pb2

        by_name = variables if isinstance(variables, dict) else names_to_saveables(variables)
        saveables = saveable_objects(by_name)
        with name_scope(name, "save", [s.op for s in saveables]):
            default = raw.PlaceholderWithDefault(filename or "model", shape=(), name="filename")
            # Called 'Const' since the days when it was one.
            filename_tensor = raw.PlaceholderWithDefault(default, shape=(), name="Const")
            if sharded:
                per_device = self._by_device(saveables)
                save_tensor = self._sharded_save(filename_tensor, per_device)
                restore = self._sharded_restore(filename_tensor, per_device, restore_sequentially, reshape)
            else:
                save_tensor = self._save(filename_tensor, saveables)
                restore = self._restore(filename_tensor, saveables, restore_sequentially, reshape)
        _add_partitioned_values()
        return saver_pb2.SaverDef(
            filename_tensor_name=filename_tensor.name,
            save_tensor_name=save_tensor.name,
            restore_op_name=restore.name,
            max_to_keep=max_to_keep or 0,
            sharded=sharded,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            version=self._write_version,
        )

    def _by_device(self, saveables: list[SaveableObject]) -> list[tuple[str, list[SaveableObject]]]:
        found: dict[str, list[SaveableObject]] = {}
        for saveable in saveables:
            devices = {canonical_name(spec.device) for spec in saveable.specs}
            if len(devices) != 1:
                raise ValueError(
                    f"All tensors of a saveable object must be on the same device: {saveable.name}"
                )
            found.setdefault(devices.pop(), []).append(saveable)
        return sorted(found.items())

    def _save(self, filename_tensor: Tensor, saveables: list[SaveableObject]) -> Tensor:
        return with_dependencies([self.save_op(filename_tensor, saveables)], filename_tensor)

    def _sharded_save(
        self, filename_tensor: Tensor, per_device: list[tuple[str, list[SaveableObject]]]
    ) -> Tensor:
        graph = get_default_graph()
        is_merged = self._write_version == V2
        base = filename_tensor
        if is_merged:
            # Shards are written into a folder of their own beside the checkpoint, and merged into it.
            with graph.device("/device:CPU:*"):
                in_bucket = raw.StaticRegexFullMatch(filename_tensor, pattern="^s3://.*")
                suffix = raw.Select(in_bucket, constant_tensor(".part"), constant_tensor("_temp/part"))
                base = raw.StringJoin([filename_tensor, suffix])
        count = constant_tensor(len(per_device), name="num_shards")
        saves, prefixes = [], []
        for shard, (device, saveables) in enumerate(per_device):
            with graph.device(on_cpu(device) if is_merged else device):
                prefix = self.sharded_filename(base, shard, count)
                prefixes.append(prefix)
                saves.append(self._save(prefix, saveables))
        with graph.control_dependencies([s.op for s in saves]):
            if not is_merged:
                return raw.ShardedFilespec(filename_tensor, count)
            with graph.device(on_cpu(per_device[-1][0])):
                together = raw.Pack(prefixes, axis=0, name="MergeV2Checkpoints/checkpoint_prefixes")
                merge = raw.MergeV2Checkpoints(together, filename_tensor, delete_old_dirs=True)
                with graph.control_dependencies([merge]):
                    return raw.Identity(filename_tensor)

    def _restore(
        self,
        filename_tensor: Tensor,
        saveables: list[SaveableObject],
        restore_sequentially: bool,
        reshape: bool,
        preferred_shard: int = -1,
        name: str = "restore_all",
    ) -> Operation:
        tensors = self.bulk_restore(filename_tensor, saveables, preferred_shard, restore_sequentially)
        assigned, at = [], 0
        for saveable in saveables:
            shapes = None
            if reshape:
                shapes = []
                for tensor in (spec.tensor for spec in saveable.specs):
                    known = tensor.get_shape()
                    shapes.append(known if known.is_fully_defined() else raw.Shape(tensor))
            count = len(saveable.specs)
            assigned.append(saveable.restore(tensors[at : at + count], shapes))
            at += count
        return group(*assigned, name=name)

    def _sharded_restore(
        self,
        filename_tensor: Tensor,
        per_device: list[tuple[str, list[SaveableObject]]],
        restore_sequentially: bool,
        reshape: bool,
    ) -> Operation:
        restores = []
        for shard, (device, saveables) in enumerate(per_device):
            with get_default_graph().device(device):
                restores.append(
                    self._restore(
                        filename_tensor, saveables, restore_sequentially, reshape, shard, "restore_shard"
                    )
                )
        return group(*restores, name="restore_all")


class BulkSaverBuilder(BaseSaverBuilder):
    """Reads all tensors by one node."""

    def bulk_restore(
        self,
        filename_tensor: Tensor,
        saveables: list[SaveableObject],
        preferred_shard: int,
        restore_sequentially: bool,
    ) -> list[Tensor]:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names, slices = [s.name for s in specs], [s.slice_spec for s in specs]
        with get_default_graph().device("cpu:0"):
            return raw.RestoreV2(filename_tensor, names, slices, dtypes=[s.dtype.base_dtype for s in specs])


def _add_partitioned_values() -> None:
    """Give partitioned variables of collections their value's node, which an import of the graph looks
    for."""
    graph = get_default_graph()
    for key in graph.get_all_collection_keys():
        for element in graph.get_collection(key):
            if isinstance(element, PartitionedVariable):
                try:
                    graph.get_operation_by_name(element.name)
                except KeyError:
                    element.as_tensor()
