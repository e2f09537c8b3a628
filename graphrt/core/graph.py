"""Graph: nodes under unique names, built under scopes (name, device, control dependencies, colocation).

Scopes are a thread's own, so several threads may build one graph; a lock guards names and insertion.
Functional bodies are subclasses that override `capture` (an input of another graph becomes an argument).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from graphrt.core import device_names
from graphrt.core.default_graph import default_graphs
from graphrt.core.errors import source_line
from graphrt.core.operation import Operation, user_location
from graphrt.core.registry import OpDef, ShapeContext
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import IndexedSlices, SparseTensor, Tensor

_VALID_OP_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$")
_VALID_SCOPE_NAME = re.compile(r"^[A-Za-z0-9_.\\/>-]*$")


class _Scopes(threading.local):
    """The scopes that a thread has open in one graph."""

    def __init__(self) -> None:
        self.name = ""
        self.devices: list[Any] = []
        self.colocation: list[Operation] = []
        self.controllers: list[_Controller] = []
        self.control_flow: Any = None
        self.container = ""
        self.attrs: dict[str, Any] = {}
        self.gradient_overrides: dict[str, str] = {}
        self.seen_devices: dict[tuple[Any, ...], str] = {}


class _Controller:
    """One control_dependencies scope: its inputs, and the ops made under it (which already wait for them)."""

    def __init__(self, inputs: list[Operation]) -> None:
        self.inputs = inputs
        self.made: set[Operation] = set()


class Graph:
    """A dataflow graph: operations and the tensors between them.

    Attributes:
      seed: the graph-level random seed, or None.
      functions: name to FunctionDefinition (core/function_def.py), the library.
      building_function: True for a function's body.
    """

    building_function = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._operations: dict[str, Operation] = {}
        self._names_in_use: dict[str, int] = {}
        self._collections: dict[Any, list[Any]] = {}
        self._scopes = _Scopes()
        self._finalized_at: tuple[str, int] | None = None
        self.seed: int | None = None
        self.functions: dict[str, Any] = {}
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation] = set()
        # Counts edits of nodes that exist (a new input, device or attr): what sessions compiled is stale
        # then.
        self._edits = 0

    # -- nodes ---------------------------------------------------------------------------------------------

    def create_node(
        self,
        op_def: OpDef,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        name: str | None = None,
        output_types: list[Any] | None = None,
        shapes: list[TensorShape] | None = None,
        device: str | None = None,
        control_inputs: Iterable[Operation] = (),
    ) -> Operation:
        """Add a node whose inputs and attrs are complete and checked: what `apply_op` and imports end in.

        Args:
          name: requested name; 'scope/' with a slash at its end is taken as it is, as TensorFlow does.
          output_types, shapes: given by imports; otherwise from the signature and the shape rule.
          device: given by imports, merged with the open device scopes.
        Raises:
          ValueError: shapes do not fit; the message has the op and the user's line.
          RuntimeError: the graph is finalized.
        """
        scopes = self._scopes
        inputs = [t if t.op.graph is self else self.capture(t) for t in inputs]
        controls = list(control_inputs)
        if scopes.controllers:
            controls += self._control_inputs(inputs)
        context = scopes.control_flow
        if context is not None:
            # Its name is taken first: what the context builds for it stands under that.
            name = name if name and name[-1] == "/" else self.unique_name(name or op_def.name) + "/"
            inputs, controls = context.admit(op_def, inputs, controls, name)
        if output_types is None:
            output_types = op_def.types(op_def.outputs, attrs)
        location = user_location(2)
        with self._lock:
            if self._finalized_at is not None:
                raise RuntimeError(
                    f"Graph is finalized and cannot be modified: {op_def.name} '{name or op_def.name}' was "
                    "added at "
                    f"{source_line(location)}; finalize() was called at {source_line(self._finalized_at)}"
                )
            if name and name[-1] == "/":
                unique = name[:-1]
            else:
                unique = self.unique_name(name or op_def.name)
            if not _VALID_OP_NAME.match(unique):
                raise ValueError(
                    f"'{unique}' is not a valid node name: letters, digits, '_', '.', '-', '/', '>'"
                )
            op = Operation(
                self, unique, op_def, inputs, controls, attrs, output_types, device or "", location
            )
            self._place_and_colocate(op, scopes)
            if scopes.attrs:
                for key, value in scopes.attrs.items():
                    attrs.setdefault(key, value)
            if scopes.gradient_overrides and op_def.name in scopes.gradient_overrides:
                op._gradient_override = scopes.gradient_overrides[op_def.name]
            if shapes is None:
                shapes = self._infer_shapes(op)
            for tensor, shape in zip(op.outputs, shapes):
                tensor._shape = shape
            for tensor in inputs:
                tensor._consumers.append(op)
            op._id = len(self._operations) + 1
            self._operations[unique] = op
        for controller in scopes.controllers:
            controller.made.add(op)
        if context is not None:
            op._control_flow_context = context
            context.added(op)
        return op

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this graph that stands for one of another graph; plain graphs have none."""
        raise ValueError(
            f"Tensor '{tensor.name}' is of another graph than the op that uses it: build both under the same "
            "`with graph.as_default():`"
        )

    def _infer_shapes(self, op: Operation) -> list[TensorShape]:
        op_def = op.op_def
        if op_def.shape_rule is None:
            return [UNKNOWN] * len(op.outputs)
        context = ShapeContext(op_def, op.attrs, op.inputs)
        try:
            shapes = op_def.infer_shapes(context, [t._shape for t in op.inputs], len(op.outputs))
        except ValueError as error:
            lines = [
                f"{op.type}: {error}",
                f"  op       '{op.name}' ({op.type})",
                f"  built at {source_line(op.location)}",
            ]
            if getattr(error, "hint", ""):
                lines.append(f"  hint     {error.hint}")  # type: ignore[attr-defined]
            raise ValueError("\n".join(lines)) from None
        for i, handle in context.handles.items():
            op.outputs[i].handle = handle
        return shapes

    def _control_inputs(self, inputs: list[Tensor]) -> list[Operation]:
        made_by = {t.op for t in inputs}
        found: list[Operation] = []
        for controller in self._scopes.controllers:
            # An input made under the scope waits for it already.
            if not made_by.isdisjoint(controller.made):
                continue
            found += [c for c in controller.inputs if c not in made_by and c not in found]
        return found

    def _place_and_colocate(self, op: Operation, scopes: _Scopes) -> None:
        if scopes.devices:
            if any(callable(d) for d in scopes.devices):
                for device in reversed(scopes.devices):
                    if device is None:
                        break
                    if callable(device):
                        asked = device(op)
                        if asked is None:
                            continue
                        # A function's answer stands whole; a string fills what is still open.
                        op._device = device_names.canonical_name(asked)
                    else:
                        op._device = str(device_names.parse(op._device).over(device))
            else:
                key = (op._device, *scopes.devices)
                made = scopes.seen_devices.get(key)
                if made is None:
                    name = device_names.parse(op._device)
                    for device in reversed(scopes.devices):
                        if device is None:
                            break
                        name = name.over(device)
                    made = scopes.seen_devices[key] = str(name)
                op._device = made
        if scopes.colocation:
            groups: set[bytes] = set()
            is_placed = False
            for other in reversed(scopes.colocation):
                groups.update(other.colocation_groups())
                if other.device and not is_placed:
                    op._device, is_placed = other.device, True
            op.attrs["_class"] = sorted(groups)

    def _version_changed(self, op: Operation) -> None:
        self._edits += 1

    @property
    def version(self) -> int:
        return len(self._operations) + self._edits

    @property
    def _last_id(self) -> int:
        return len(self._operations)

    # -- names ---------------------------------------------------------------------------------------------

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` under the open name scope, with _1, _2, … where it is taken. Names differ by more than
        case."""
        with self._lock:
            if self._scopes.name:
                name = f"{self._scopes.name}/{name}"
            key = name.lower()
            i = self._names_in_use.get(key, 0)
            if mark_as_used:
                self._names_in_use[key] = i + 1
            if i == 0:
                return name
            base = key
            while key in self._names_in_use:
                key = f"{base}_{i}"
                i += 1
            if mark_as_used:
                self._names_in_use[key] = 1
            return f"{name}_{i - 1}"

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Put `name/` before the names of what is built inside. None or '' leaves all scopes; 'x/' re-enters
        x."""
        scopes = self._scopes
        if name:
            if scopes.name:
                if not _VALID_SCOPE_NAME.match(name):
                    raise ValueError(
                        f"'{name}' is not a valid scope name: letters, digits, '_', '.', '-', '/', '>'"
                    )
            elif not _VALID_OP_NAME.match(name):
                raise ValueError(f"'{name}' is not a valid scope name: it begins with a letter, digit or '.'")
        old = scopes.name
        if not name:
            scopes.name = ""
        elif name[-1] == "/":
            scopes.name = name[:-1]
        else:
            scopes.name = self.unique_name(name)
        try:
            yield scopes.name + "/" if scopes.name else ""
        finally:
            scopes.name = old

    def get_name_scope(self) -> str:
        return self._scopes.name

    # -- scopes --------------------------------------------------------------------------------------------

    @contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Place what is built inside: a name (whole or in part), a DeviceSpec, a function of the operation,
        or None, which ignores the outer scopes."""
        device = device_name_or_function
        if device is not None and not callable(device):
            device = device_names.parse(device_names.canonical_name(device))
        stack = self._scopes.devices
        stack.append(device)
        try:
            yield
        finally:
            stack.pop()

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Put what is built inside on the device of `op`; None lifts the open colocations."""
        if op is None and not ignore_existing:
            raise ValueError("colocate_with(None) needs ignore_existing=True")
        scopes = self._scopes
        old, old_devices = scopes.colocation, scopes.devices
        scopes.colocation = [] if ignore_existing else list(old)
        scopes.devices = []
        if op is not None:
            scopes.colocation.append(op._handle.op if hasattr(op, "_handle") else self._as_operation(op))
        try:
            yield
        finally:
            scopes.colocation, scopes.devices = old, old_devices

    @contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        """What is built inside runs after `control_inputs`; None lifts the open dependencies and control
        flow."""
        scopes = self._scopes
        old, old_context = scopes.controllers, scopes.control_flow
        if control_inputs is None:
            scopes.controllers, scopes.control_flow = [], None
        else:
            inputs: list[Operation] = []
            for given in control_inputs:
                op = self._as_operation(given)
                if op.graph is not self:
                    continue  # a captured value: the call of the function waits for it
                if op not in inputs:
                    inputs.append(op)
            scopes.controllers = [*old, _Controller(inputs)]
        try:
            yield
        finally:
            scopes.controllers, scopes.control_flow = old, old_context

    @contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Put the resources (variables, queues) that are built inside into the container of this name."""
        scopes = self._scopes
        old, scopes.container = scopes.container, container_name
        try:
            yield container_name
        finally:
            scopes.container = old

    @contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Ops of the types that are keys take the gradient registered under the value."""
        scopes = self._scopes
        old, scopes.gradient_overrides = (
            scopes.gradient_overrides,
            {**scopes.gradient_overrides, **op_type_map},
        )
        try:
            yield
        finally:
            scopes.gradient_overrides = old

    @contextmanager
    def _attr_scope(self, attr_map: dict[str, Any]) -> Iterator[None]:
        scopes = self._scopes
        old = scopes.attrs
        scopes.attrs = {k: v for k, v in {**old, **attr_map}.items() if v is not None}
        try:
            yield
        finally:
            scopes.attrs = old

    @property
    def control_flow_context(self) -> Any:
        """The cond or while context that nodes are built in now, or None."""
        return self._scopes.control_flow

    @control_flow_context.setter
    def control_flow_context(self, context: Any) -> None:
        self._scopes.control_flow = context

    def _get_control_flow_context(self) -> Any:
        return self._scopes.control_flow

    def _set_control_flow_context(self, context: Any) -> None:
        self._scopes.control_flow = context

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make this the default graph of the thread inside the block."""
        with default_graphs.pushed(self):
            yield self

    # -- look-ups ------------------------------------------------------------------------------------------

    def get_operations(self) -> list[Operation]:
        return list(self._operations.values())

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation called `name`. Raises KeyError with near names, TypeError where it is not a
        string."""
        return self.as_graph_element(name, allow_tensor=False)

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor called 'op:index'. Raises KeyError, ValueError or TypeError, each with what would do."""
        return self.as_graph_element(name, allow_operation=False)

    def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any:
        """The Tensor or Operation of this graph that `obj` is, names, or converts to (a variable to its
        value).

        Raises:
          TypeError: `obj` can be none of the kinds allowed.
          ValueError: it is of another graph, or is a malformed name.
          KeyError: there is none of that name.
        """
        if isinstance(obj, (Tensor, Operation)):
            if obj.graph is not self:
                kind = "Tensor" if isinstance(obj, Tensor) else "Operation"
                raise ValueError(f"{kind} {obj} is not an element of this graph.")
            if (
                isinstance(obj, Tensor)
                and not allow_tensor
                or isinstance(obj, Operation)
                and not allow_operation
            ):
                raise TypeError(f"{obj!r} is not the kind of graph element that is wanted here")
            return obj
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            return self.as_graph_element(convert(), allow_tensor, allow_operation)
        wanted = " or ".join(w for w, a in (("Tensor", allow_tensor), ("Operation", allow_operation)) if a)
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {wanted}.")

    def _element_by_name(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        op_name, colon, index = name.partition(":")
        if colon and allow_tensor:
            if not index.isdigit():
                raise ValueError(
                    f"The name {name!r} looks like a tensor's but is not 'op_name:output_index'."
                )
            op = self._operations.get(op_name)
            if op is None:
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, "
                    f"does not exist in the graph.{self._near(op_name)}"
                )
            if int(index) >= len(op.outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, "
                    f"exists but only has {len(op.outputs)} outputs."
                )
            return op.outputs[int(index)]
        if colon:
            raise ValueError(f"The name {name!r} appears to refer to a Tensor, not an Operation.")
        if not allow_operation:
            known = (
                " It is an operation's: its first output is " + repr(name + ":0")
                if name in self._operations
                else ""
            )
            raise ValueError(f"The name {name!r} is not a tensor's: those are 'op_name:output_index'.{known}")
        if name not in self._operations:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.{self._near(name)}")
        return self._operations[name]

    def _near(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, list(self._operations), n=3)
        return f" Near it: {', '.join(map(repr, near))}." if near else ""

    def _as_operation(self, given: Any) -> Operation:
        if isinstance(given, Operation):
            return given
        if isinstance(given, (Tensor, IndexedSlices, SparseTensor)) or hasattr(given, "_handle"):
            return given.op  # of a resource variable: its handle's, or the update that it stands after
        element = self.as_graph_element(given)
        return element if isinstance(element, Operation) else element.op

    # -- feeding, finalizing -------------------------------------------------------------------------------

    def prevent_feeding(self, tensor: Tensor) -> None:
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Operation) -> None:
        self._unfetchable.add(op)

    def is_fetchable(self, element: Any) -> bool:
        return (element.op if isinstance(element, Tensor) else element) not in self._unfetchable

    def finalize(self) -> None:
        """No node may be added from now on: an attempt raises RuntimeError that names both lines."""
        self._finalized_at = user_location()

    @property
    def finalized(self) -> bool:
        return self._finalized_at is not None

    def _unsafe_unfinalize(self) -> None:
        self._finalized_at = None

    # -- collections ---------------------------------------------------------------------------------------

    def add_to_collection(self, name: Any, value: Any) -> None:
        with self._lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Add `value` to each of the collections, once each; `names` may be one name."""
        for name in dict.fromkeys((names,) if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """The collection itself: changing the list changes the graph."""
        with self._lock:
            return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """A copy of the collection; with `scope`, those whose name `re.match`es it."""
        found = list(self._collections.get(name, ()))
        if scope is None:
            return found
        pattern = re.compile(scope)
        return [item for item in found if hasattr(item, "name") and pattern.match(item.name)]

    def get_all_collection_keys(self) -> list[Any]:
        return [k for k in self._collections if isinstance(k, str)]

    @property
    def collections(self) -> list[Any]:
        return list(self._collections)

    def clear_collection(self, name: Any) -> None:
        with self._lock:
            self._collections.pop(name, None)

    # -- GraphDef ------------------------------------------------------------------------------------------

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> Any:
        """The GraphDef of this graph: nodes made since `from_version` (an earlier `version`), or all."""
        from graphrt.core.graph_def import graph_def

        return graph_def(self, from_version, add_shapes)

    @property
    def graph_def_versions(self) -> Any:
        return self.as_graph_def().versions

    def create_op(
        self,
        op_type: str,
        inputs: list[Tensor],
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: dict[str, Any] | None = None,
        op_def: Any = None,
        **_: Any,
    ) -> Operation:
        """TF1's way to add a node by type: attrs are values (or AttrValue messages)."""
        from graphrt.core.apply import create_op

        return create_op(self, op_type, inputs, dtypes, name, attrs or {})

    def switch_to_thread_local(self) -> None:
        """Scopes are a thread's own here already."""
