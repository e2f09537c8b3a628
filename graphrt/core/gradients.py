"""Reverse-mode differentiation: `gradients(ys, xs)` adds the nodes that compute d(sum of ys)/dx for each x.

Nodes between xs and ys are visited from ys backwards, each once all gradients of its outputs are there (a
count of pending consumers); gradients that meet are added up by one AddN. An op's class has its gradient;
`RegisterGradient` names others for gradient_override_map. Control-flow ops bring a context that builds zeros
and gates where a branch was not taken (control_flow/).
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphrt.core import raw
from graphrt.core.convert import convert_n_to_tensor_or_indexed_slices, convert_to_tensor_or_indexed_slices
from graphrt.core.default_graph import colocate_with, get_default_graph, name_scope
from graphrt.core.errors import source_line
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import IndexedSlices, Tensor

_registered: dict[str, Callable[..., Any] | None] = {}


class RegisterGradient:
    """Decorator: the function `(op, *grads)` is the gradient of an op type, or of a name in
    gradient_override_map."""

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._op_type in _registered:
            raise KeyError(f"Registering two gradient with name '{self._op_type}'!")
        _registered[self._op_type] = function
        return function


def no_gradient(op_type: str) -> None:
    """Say that ops of the type have no gradient: what is before them gets none through them."""
    _registered[op_type] = None


not_differentiable = NotDifferentiable = NoGradient = no_gradient


class AggregationMethod:
    """How gradients that meet are added: one AddN (ADD_N, the default), or pairwise as they come."""

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


class UnconnectedGradients:
    NONE = "none"
    ZERO = "zero"


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:
    """Nodes for the gradient of the sum of `ys` with respect to each of `xs`.

    Args:
      ys: tensor or list: what is differentiated.
      xs: tensor, variable or list: by what.
      grad_ys: gradients of `ys` to begin with (ones where None), in the shapes of `ys`.
      colocate_gradients_with_ops: each gradient on the device of its op.
      gate_gradients: an op's input gradients wait for each other.
      aggregation_method: see AggregationMethod.
      stop_gradients: tensors taken as constants.
      unconnected_gradients: 'none' gives None for an x on which no y depends, 'zero' zeros.
    Returns:
      A Tensor, IndexedSlices or None for each of `xs`.
    Raises:
      LookupError: an op in between has no gradient; with its name, type and the user's line.
      TypeError: a y or x whose dtype cannot be differentiated.
    """
    ys_list = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    xs_list = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    stops = (
        []
        if stop_gradients is None
        else (list(stop_gradients) if isinstance(stop_gradients, (list, tuple)) else [stop_gradients])
    )
    grads_in = (
        [None] * len(ys_list)
        if grad_ys is None
        else (list(grad_ys) if isinstance(grad_ys, (list, tuple)) else [grad_ys])
    )
    if len(grads_in) != len(ys_list):
        raise ValueError(f"grad_ys has {len(grads_in)} items for {len(ys_list)} ys")
    zero_unconnected = (
        getattr(unconnected_gradients, "value", unconnected_gradients) == UnconnectedGradients.ZERO
    )
    flat_inputs = [v for v in [*ys_list, *xs_list, *stops, *grads_in] if v is not None]
    with name_scope(name, "gradients", [t for t in map(_peek_tensor, flat_inputs) if t is not None]) as scope:
        ys_tensors = convert_n_to_tensor_or_indexed_slices(ys_list, name="y")
        # A resource variable is differentiated through its handle: every read of it counts.
        xs_tensors = [x.handle if _is_resource_variable(x) else _x_tensor(x) for x in xs_list]
        stop_tensors = [x.handle if _is_resource_variable(x) else _x_tensor(x) for x in stops]
        walk = _Walk(
            get_default_graph(),
            ys_tensors,
            xs_tensors,
            stop_tensors,
            aggregation_method or 0,
            colocate_gradients_with_ops,
            gate_gradients,
            scope,
        )
        found = walk.run(_initial_gradients(ys_tensors, grads_in, colocate_gradients_with_ops))
        if zero_unconnected:
            found = [
                raw.ZerosLike(x if x.dtype.name != "resource" else given.value()) if g is None else g
                for g, x, given in zip(found, xs_tensors, xs_list)
            ]
        return found


def _peek_tensor(value: Any) -> Any:
    return value if isinstance(value, Tensor) else getattr(value, "op", None) and value


def _is_resource_variable(x: Any) -> bool:
    handle = getattr(x, "handle", None)
    return not isinstance(x, Tensor) and isinstance(handle, Tensor) and handle.dtype.name == "resource"


def _x_tensor(x: Any) -> Any:
    """The tensor that reads of `x` come from: a ref variable's own reference."""
    if isinstance(x, (Tensor, IndexedSlices)):
        return x
    reference = getattr(x, "_ref", None)
    return reference() if callable(reference) else convert_to_tensor_or_indexed_slices(x, name="x")


def _initial_gradients(ys: list[Any], grad_ys: list[Any], colocate: bool) -> list[Any]:
    made = []
    for i, (y, grad) in enumerate(zip(ys, grad_ys)):
        if not (
            y.dtype.is_floating
            or y.dtype.is_complex
            or y.dtype.is_integer
            or y.dtype.name in ("variant", "resource")
        ):
            raise TypeError(
                f"cannot differentiate '{y.name}' of dtype {y.dtype.name}: only floating and complex "
                "tensors can be"
            )
        if grad is None:
            if y.dtype.is_complex:
                raise TypeError(
                    f"Gradients of complex tensors ({y}) must set grad_ys (y.dtype = {y.dtype.name})"
                )
            with _maybe_colocate(y.op, colocate):
                ones = raw.Fill(_shape_of(y), _one(y.dtype.base_dtype), name=f"grad_ys_{i}")
                if y.shape.sizes is not None:
                    ones.set_shape(y.shape)
                made.append(ones)
            continue
        grad = convert_to_tensor_or_indexed_slices(grad, dtype=y.dtype.base_dtype, name=f"grad_y_{i}")
        if not grad.shape.is_compatible_with(y.shape):
            raise ValueError(f"grad_ys[{i}] has shape {grad.shape}, ys[{i}] {y.shape}")
        made.append(raw.Identity(grad, name=f"grad_ys_{i}") if isinstance(grad, Tensor) else grad)
    return made


def _one(dtype: Any) -> Any:
    import numpy as np

    return raw.Const(value=np.ones((), dtype.np), dtype=dtype, name="grad_ys_0/Const")


def _shape_of(y: Any) -> Any:
    tensor = y.values if isinstance(y, IndexedSlices) else y
    if tensor.shape.is_fully_defined():
        import numpy as np

        return raw.Const(value=np.array(tensor.shape.sizes, np.int32), dtype="int32", name="Shape")
    return raw.Shape(tensor, name="Shape")


@contextmanager
def _maybe_colocate(op: Operation, colocate: bool) -> Iterator[None]:
    if colocate:
        with colocate_with(op, ignore_existing=True):
            yield
    else:
        yield


class _Walk:
    """One call of `gradients`: which operations lie between, and what has arrived at their outputs."""

    def __init__(
        self,
        graph: Graph,
        ys: list[Any],
        xs: list[Any],
        stops: list[Any],
        aggregation: int,
        colocate: bool,
        gate: bool,
        scope: str,
    ) -> None:
        self.graph, self.ys, self.xs = graph, ys, xs
        self.aggregation, self.colocate, self.gate, self.scope = aggregation, colocate, gate, scope
        self.stop_tensors = set(stops)
        self.xs_set = set(xs)
        self.received: dict[Tensor, list[Any]] = {}
        # In a function's body: what a captured tensor's placeholder stands for, and back.
        self.captured = _captures(ys, self.xs_set)
        self.captures: dict[Tensor, list[Tensor]] = {}
        for inner, outer in self.captured.items():
            self.captures.setdefault(outer, []).append(inner)
        self.ys = [self._outside(y) if isinstance(y, Tensor) else y for y in ys]
        self.between = self._between()
        self.loops: Any = None
        if any(op._control_flow_context is not None or op.type in ("Exit", "RefExit") for op in self.between):
            # The control-flow package registers itself here; core does not import it.
            self.loops = control_flow_state(self.between, ys, xs) if control_flow_state else None
        self.pending = self._count_pending()

    def _between(self) -> set[Operation]:
        """Operations on a path from an x to a y."""
        reached: set[Operation] = set()
        frontier = [x.op for x in self.xs]
        stop_ops = {s.op for s in self.stop_tensors}
        while frontier:
            op = frontier.pop()
            if op in reached:
                continue
            reached.add(op)
            if op in stop_ops and op not in {x.op for x in self.xs}:
                continue
            outputs = list(op.outputs)
            while outputs:
                out = outputs.pop()
                if out in self.stop_tensors:
                    continue
                if _differentiable(out):
                    frontier += [c for c in out._consumers if c not in reached]
                    outputs += self.captures.get(out, ())
        needed: set[Operation] = set()
        frontier = [y.op for y in self.ys]
        xs_ops = {x.op for x in self.xs}
        while frontier:
            op = frontier.pop()
            if op in needed or op not in reached:
                continue
            needed.add(op)
            # Beyond an x only other xs matter; their paths come through `reached` all the same.
            frontier += [t.op for t in self._inputs(op) if t not in self.stop_tensors]
        self._xs_ops = xs_ops
        return needed

    def _inputs(self, op: Operation) -> list[Tensor]:
        """The inputs of `op`; in place of a captured tensor's placeholder that tensor."""
        if not self.captured:
            return op.inputs
        return [self._outside(t) for t in op.inputs]

    def _outside(self, tensor: Tensor) -> Tensor:
        while tensor in self.captured:
            tensor = self.captured[tensor]
        return tensor

    def _count_pending(self) -> dict[Operation, int]:
        """For each operation between, how many of its consumers between will hand it gradients."""
        pending = dict.fromkeys(self.between, 0)
        for op in self.between:
            for tensor in self._inputs(op):
                if tensor.op in pending and tensor not in self.stop_tensors:
                    pending[tensor.op] += 1
        if self.loops is not None:
            self.loops.process_unused_loop_exits(pending, self.between)
        return pending

    def run(self, initial: list[Any]) -> list[Any]:
        for y, grad in zip(self.ys, initial):
            self.received.setdefault(_key(y), []).append(grad)
        ready = deque(dict.fromkeys(op for op in (y.op for y in self.ys) if self.pending.get(op) == 0))
        # Deterministic: among ys none of which waits for another, in the order given; then as operations
        # become ready.
        queued = set(ready)
        if self.loops is not None:
            for op in self.loops.ready_exits(self):
                if op not in queued:
                    queued.add(op)
                    ready.append(op)
        self.final: dict[Tensor, Any] = {}
        while ready:
            op = ready.popleft()
            with _maybe_colocate(op, self.colocate):
                if self.loops is not None:
                    self.loops.enter_grad(op)
                out_grads = [self._aggregate(t) for t in op.outputs]
                for tensor, grad in zip(op.outputs, out_grads):
                    if tensor in self.xs_set:
                        self.final[tensor] = grad
                in_grads = self._op_gradients(op, out_grads)
                if self.loops is not None:
                    self.loops.exit_grad(op)
            inputs = self._inputs(op)
            for position, (tensor, grad) in enumerate(zip(inputs, in_grads)):
                if tensor.op not in self.pending or tensor in self.stop_tensors:
                    continue
                if grad is not None:
                    if (
                        isinstance(grad, Tensor)
                        and tensor.dtype.name != "resource"
                        and not op.type.endswith("Switch")
                    ):
                        _merge_shape(op, position, tensor, grad)
                    self.received.setdefault(tensor, []).append(grad)
            for tensor in inputs:
                if tensor.op in self.pending and tensor not in self.stop_tensors:
                    self.pending[tensor.op] -= 1
                    if self.pending[tensor.op] == 0 and tensor.op not in queued:
                        queued.add(tensor.op)
                        ready.append(tensor.op)
            if self.loops is not None:
                for more in self.loops.after(op, self):
                    if more not in queued:
                        queued.add(more)
                        ready.append(more)
        if self.loops is not None:
            self.loops.post_processing()
        return [self._final(x) for x in self.xs]

    def _final(self, x: Any) -> Any:
        if x in self.final:
            return self.final[x]
        return self._aggregate(x) if x in self.received else None

    def _op_gradients(self, op: Operation, out_grads: list[Any]) -> list[Any]:
        if not op.inputs or all(g is None for g in out_grads):
            return [None] * len(op.inputs)
        sources = [t.op for t in self._inputs(op)]
        if op in self._xs_ops and not any(source in self.between for source in sources):
            return [None] * len(op.inputs)
        if not any(source in self.pending for source in sources):
            return [None] * len(op.inputs)
        function = gradient_function(op)
        if function is None:
            return [None] * len(op.inputs)
        accepts_none = (
            getattr(op.op_def.impl, "grad_accepts_none", False) or op._gradient_override is not None
        )
        if not accepts_none:
            out_grads = [
                self._zeros(t) if g is None and _differentiable(t) else g
                for t, g in zip(op.outputs, out_grads)
            ]
        with name_scope(op.name + "_grad"):
            try:
                made = function(op, *out_grads)
            except Exception as error:
                if hasattr(error, "add_note"):
                    error.add_note(
                        f"in the gradient of '{op.name}' ({op.type}), built at {source_line(op.location)}"
                    )
                raise
            made = list(made) if isinstance(made, (list, tuple)) else [made]
            if len(made) != len(op.inputs):
                raise ValueError(
                    f"the gradient of {op.type} ('{op.name}') gives {len(made)} gradients for "
                    f"{len(op.inputs)} inputs"
                )
            if self.gate and sum(g is not None for g in made) > 1:
                made = _gated(made)
        return made

    def _zeros(self, tensor: Tensor) -> Tensor:
        if self.loops is not None:
            made = self.loops.zeros_like(tensor)
            if made is not NotImplemented:
                return made
        return zeros_for(tensor)

    def _aggregate(self, tensor: Any) -> Any:
        grads = self.received.get(_key(tensor))
        if not grads:
            return None
        if len(grads) == 1:
            return grads[0]
        made = sum_gradients(grads, self.aggregation, self.scope)
        self.received[_key(tensor)] = [made]
        return made


def _captures(ys: list[Any], xs: set[Any]) -> dict[Tensor, Tensor]:
    """Placeholder to the tensor that it stands for, of the bodies that `ys` are in; a placeholder among `xs`
    stands for itself."""
    found: dict[Tensor, Tensor] = {}
    graph = ys[0].graph if ys else None
    while graph is not None and graph.building_function:
        found.update(
            (inner, outer) for outer, inner in getattr(graph, "captures", {}).items() if inner not in xs
        )
        graph = getattr(graph, "outer_graph", None)
    return found


def _key(tensor: Any) -> Any:
    return tensor.values if isinstance(tensor, IndexedSlices) else tensor


def zeros_for(tensor: Tensor) -> Tensor:
    """Zeros in the shape of a tensor of the forward pass; of a resource's value for a resource."""
    if tensor.dtype.name == "resource":
        dtype, shape = tensor.handle if tensor.handle is not None else (None, TensorShape(None))
        if dtype is None:
            raise ValueError(f"the value behind '{tensor.name}' is of unknown dtype: it has no zeros")
        import numpy as np

        return raw.Fill(raw.VariableShape(tensor), raw.Const(value=np.zeros((), dtype.np), dtype=dtype))
    return raw.ZerosLike(tensor, name="zeros_like")


def gradient_function(op: Operation) -> Callable[..., Any] | None:
    """The gradient of an operation: its override, its registered one, or its class's; None where it has none
    by nature.

    Raises:
      LookupError: nobody defined one.
    """
    if op._gradient_override is not None:
        if op._gradient_override not in _registered:
            raise LookupError(
                f"no gradient is registered under '{op._gradient_override}', which gradient_override_map "
                "names for "
                f"'{op.name}' ({op.type})"
            )
        return _registered[op._gradient_override]
    named = op.attrs.get("_gradient_op_type")
    if named is not None:
        return _registered[named.decode()]
    if op.type in _registered:
        return _registered[op.type]
    if op.op_def.gradient is not None:
        return op.op_def.gradient
    if op.type in op.graph.functions and "PartitionedCall" in _registered:
        return _registered["PartitionedCall"]  # a call by name
    if getattr(op.op_def.impl, "not_differentiable", False):
        return None
    raise LookupError(
        f"No gradient defined for operation '{op.name}' (op type: {op.type}), built at "
        f"{source_line(op.location)}. "
        "tf.stop_gradient, or @tf.RegisterGradient for a gradient of your own, would work"
    )


get_gradient_function = gradient_function


def _differentiable(tensor: Tensor) -> bool:
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype.name in ("resource", "variant")


def _merge_shape(op: Operation, position: int, tensor: Tensor, grad: Tensor) -> None:
    try:
        grad.set_shape(tensor.shape)
    except ValueError:
        raise ValueError(
            "Incompatible shapes between op input and calculated input gradient. Forward operation: "
            f"{op.name} "
            f"({op.type}). Input index: {position}. Original input shape: {tensor.shape}. "
            "Calculated input gradient "
            f"shape: {grad.shape}"
        ) from None


def _gated(grads: list[Any]) -> list[Any]:
    """The gradients, each available only when all are."""
    flat = [g for g in grads if g is not None]
    ops = [t.op for g in flat for t in ((g.values, g.indices) if isinstance(g, IndexedSlices) else (g,))]
    with get_default_graph().control_dependencies(ops):
        gate = raw.NoOp(name="tuple/group_deps")

    def wait(tensor: Tensor) -> Tensor:
        with get_default_graph().control_dependencies([gate]), colocate_with(tensor):
            return raw.Identity(tensor, name="tuple/control_dependency")

    return [
        None
        if g is None
        else IndexedSlices(wait(g.values), g.indices, g.dense_shape)
        if isinstance(g, IndexedSlices)
        else wait(g)
        for g in grads
    ]


def sum_gradients(grads: Sequence[Any], aggregation: int = 0, scope: str = "") -> Any:
    """The sum of gradients that meet: AddN of dense ones; sparse ones are put one after the other."""
    if all(isinstance(g, Tensor) for g in grads):
        if aggregation in (AggregationMethod.EXPERIMENTAL_TREE, AggregationMethod.EXPERIMENTAL_ACCUMULATE_N):
            made = grads[0]
            for more in grads[1:]:
                made = raw.AddN([made, more])
            return made
        with colocate_with(grads[0], ignore_existing=True):
            return raw.AddN(
                list(grads), name=(scope + "AddN") if scope and not scope.endswith("/") else "AddN"
            )
    if all(isinstance(g, IndexedSlices) for g in grads):
        indices = [g.indices for g in grads]
        if len({i.dtype for i in indices}) > 1:
            indices = [raw.Cast(i, DstT="int64") for i in indices]
        return IndexedSlices(
            raw.ConcatV2([g.values for g in grads], 0, name="concat"),
            raw.ConcatV2(indices, 0, name="concat"),
            grads[0].dense_shape,
        )
    dense = [densify(g) for g in grads]
    return raw.AddN(dense)


def densify(grad: Any) -> Tensor:
    """A dense gradient; IndexedSlices are scattered into their dense shape."""
    if isinstance(grad, Tensor):
        return grad
    from graphrt.core.convert import convert_to_tensor

    known = grad.shape.num_elements()
    if known is not None and known >= 100_000_000:
        warnings.warn(
            f"Converting sparse IndexedSlices to a dense Tensor with {known} elements. This may consume a "
            "large amount "
            "of memory.",
            stacklevel=2,
        )
    return convert_to_tensor(grad)


# control_flow/gradient_state.py sets this: (operations between, ys, xs) -> its state for one call of
# gradients.
control_flow_state: Callable[..., Any] | None = None


def set_control_flow_state(make: Callable[..., Any]) -> None:
    global control_flow_state
    control_flow_state = make


def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Tensor]:
    """The Hessian of each y with respect to each x: shape x.shape + x.shape. One gradient node set a row."""
    xs_list = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    options = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
    }
    made = []
    for grad, x in zip(gradients(ys, xs_list, name=name, **options), xs_list):  # type: ignore[arg-type]
        n = x.shape.num_elements()
        if n is None:
            raise ValueError(f"hessians: the shape of '{x.name}' must be known, not {x.shape}")
        flat = raw.Reshape(grad, [-1])
        rows = [
            gradients(raw.StridedSlice(flat, [i], [i + 1], [1], shrink_axis_mask=1), x, **options)[0]  # type: ignore[arg-type]
            for i in range(n)
        ]
        made.append(raw.Reshape(raw.Pack(rows, axis=0), x.shape.as_list() * 2))
    return made
