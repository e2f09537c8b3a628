"""Fold constants: what has the same value in every step is computed now, by the kernels that would compute it
then.

A node whose inputs are all constants becomes a Const of its name, with their control inputs beside its own:
so it is dead where it was, and waits for what it waited for. Shape, Size and Rank of a static shape become
constants too. Stateful, random, blocking and control-flow ops stay, and so do results that are large, or that
are large and made from little (the zeros of an initialiser cost more to keep than to make).
Cost: one visit a node, and the kernels of what is folded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.compiler.deadness import CONTROL_FLOW, SWITCHES, guarded
from graphrt.compiler.options import CompileOptions
from graphrt.compiler.shapes import Handles, infer_node
from graphrt.compiler.step_graph import Node, Passed, PassRecord, StepGraph, sweep
from graphrt.core.constant_value import run_kernel
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import OPS, KernelContext
from graphrt.core.shapes import TensorShape

# A result may be this many bytes larger than the inputs that it is made from.
_GROWTH = 256 << 10
_OF_SHAPE = frozenset(("Shape", "ShapeN", "Size", "Rank"))


def fold_constants(step: StepGraph, devices: Any, options: CompileOptions) -> Passed:
    """The step with constant expressions replaced by their values."""
    before = len(step)
    if not options.fold:
        return step, PassRecord("fold_constants", before, before, "off")
    folding = _Folding(step, options)
    folded = folding.run()
    made = sweep(folded) if folding.details else step
    return made, PassRecord("fold_constants", before, len(made), f"{len(folding.details)} nodes folded",
                            folding.details)


class _Folding:
    def __init__(self, step: StepGraph, options: CompileOptions) -> None:
        self.step, self.options = step, options
        self.details: list[tuple[str, str]] = []
        self.folded: set[Node] = set()
        # An output of a node with several: the Const that takes its place.
        self.moved: dict[tuple[Node, int], tuple[Node, int]] = {}
        self.handles: Handles = {}
        self.guards: dict[Node, Any] | None = None
        self.effects: dict[Node, bool] | None = None

    def run(self) -> StepGraph:
        ready: list[Node] = []
        moved, folded = self.moved, self.folded
        for node in self.step.nodes:
            inputs = node.inputs
            if inputs:
                if moved:
                    node.inputs = inputs = [moved.get(e, e) for e in inputs]
                is_constant = True
                for source, _ in inputs:
                    if source.type != "Const":
                        is_constant = False
                        break
                if is_constant:
                    self._fold(node, ready)
                elif node.type in _OF_SHAPE:
                    self._fold_shape(node, ready)
                elif folded and any(s in folded for s, _ in inputs):
                    if not all(s.is_fully_defined() for s in node.shapes):
                        self._refine(node)
            ready.append(node)
        return self.step.replace(ready)

    # -- values --------------------------------------------------------------------------------------------

    def _fold(self, node: Node, ready: list[Node]) -> None:
        if not self._is_foldable(node):
            return
        values = [source.attrs["value"] for source, _ in node.inputs]
        if not all(s.is_fully_defined() for s in node.shapes):
            self._refine(node)
        size_in = sum(_size(v) for v in values)
        limit = min(self.options.max_folded_bytes, size_in + _GROWTH)
        known = [_static_size(s, d) for s, d in zip(node.shapes, node.dtypes)]
        if any(n is not None and n > limit for n in known):
            return
        context = KernelContext(node.name, node.type, node.attrs, node.input_dtypes, node.dtypes, node.shapes,
                                node=node)
        try:
            with np.errstate(all="ignore"):
                made = run_kernel(node.op_def, context, values)
        except Exception:
            return  # the step raises it, with the node's name and line, if it comes to that node
        arrays = [_owned(np.asarray(m, d.np)) for m, d in zip(made, node.dtypes)]
        if sum(_size(a) for a in arrays) > limit:
            return
        self._become(node, arrays, [s for s, _ in node.inputs], ready)

    @staticmethod
    def _is_foldable(node: Node) -> bool:
        op_def = node.op_def
        if op_def.stateful or op_def.asynchronous or op_def.blocking:
            return False
        if op_def.unfoldable or op_def.has_ref_input:
            return False
        if node.type in CONTROL_FLOW or not node.dtypes:
            return False
        if any(d.is_ref or d.is_object and d.name != "string" for d in node.dtypes):
            return False
        return hasattr(op_def.impl, "compute") or hasattr(op_def.impl, "bind")

    def _become(self, node: Node, arrays: list[np.ndarray], sources: list[Node], ready: list[Node]) -> None:
        """Make the node a Const of its value; one that has several outputs leaves a Const for each before
        itself."""
        controls = dict.fromkeys(node.controls)
        for source in sources:
            controls.update(dict.fromkeys(source.controls))
        self.details.append((node.name, f"{node.type} is {_described(arrays)}"))
        if len(arrays) == 1:
            _set_const(node, arrays[0], list(controls))
            self.folded.add(node)
            return
        for i, array in enumerate(arrays):
            made = Node(f"{node.name}/folded_{i}", node.op_def, {}, [], [], [], [], node.device, None,
                        node.location)
            made.dtypes = [node.dtypes[i]]
            _set_const(made, array, list(controls))
            self.moved[node, i] = (made, 0)
            self.folded.add(made)
            ready.append(made)

    # -- shapes --------------------------------------------------------------------------------------------

    def _fold_shape(self, node: Node, ready: list[Node]) -> None:
        arrays = []
        for i, (source, index) in enumerate(node.inputs):
            shape = source.shapes[index]
            if node.type == "Rank":
                if shape.rank is None:
                    return
                arrays.append(np.array(shape.rank, np.int32))
                continue
            if not shape.is_fully_defined():
                return
            dtype = node.dtypes[i]
            arrays.append(np.array(shape.num_elements() if node.type == "Size" else shape.sizes, dtype.np))
        sources = dict.fromkeys(s for s, _ in node.inputs)
        if node.type == "ShapeN" and len(arrays) != len(node.dtypes):
            return
        if any(s.type in SWITCHES for s in sources):
            return  # the Switch itself is alive where the output is dead
        # The value is known, but the node still is dead where its input is, and runs after its input's
        # effects.
        node.controls = list(dict.fromkeys([*node.controls, *(s for s in sources if self._matters(s))]))
        self._become(node, arrays, [], ready)

    def _matters(self, source: Node) -> bool:
        if self.guards is None:
            self.guards = guarded(self.step.nodes)
            self.effects = _behind_effects(self.step.nodes)
        assert self.effects is not None
        return source in self.guards or self.effects.get(source, False)

    def _refine(self, node: Node) -> None:
        """Shapes that follow from what was folded into the node's inputs."""
        old = node.shapes
        try:
            infer_node(node, self.handles)
            node.shapes = [known.merge_with(new) for known, new in zip(old, node.shapes)]
        except (InvalidArgumentError, ValueError):
            node.shapes = old  # the step reports what does not fit, if it comes to that node


def _behind_effects(nodes: list[Node]) -> dict[Node, bool]:
    """Nodes that a stateful node runs for; feeds and handles aside."""
    found: dict[Node, bool] = {}
    for node in nodes:
        found[node] = (node.op_def.stateful and node.type not in ("_Arg", "VarHandleOp")
                       or any(found.get(s, False) for s, _ in node.inputs)
                       or any(found.get(c, False) for c in node.controls))
    return found


def _set_const(node: Node, value: np.ndarray, controls: list[Node]) -> None:
    node.op_def, node.type = OPS["Const"], "Const"
    node.attrs = {"value": value, "dtype": node.dtypes[0].base_dtype}
    node.inputs = []
    # A constant that waits for nothing is there from the start: waiting for it is no wait.
    node.controls = [c for c in controls if c.type != "Const" or c.controls]
    node.shapes = [TensorShape.of(value.shape)]


def _owned(array: np.ndarray) -> np.ndarray:
    """The array without a larger one behind it."""
    behind = getattr(array.base, "nbytes", 0)
    return array.copy() if behind > array.nbytes else array


def _size(array: np.ndarray) -> int:
    if array.dtype != object:
        return array.nbytes
    return array.nbytes + sum(len(item) for item in array.ravel())


def _static_size(shape: TensorShape, dtype: Any) -> int | None:
    n = shape.num_elements()
    return None if n is None else n * dtype.size


def _described(arrays: list[np.ndarray]) -> str:
    if len(arrays) == 1 and arrays[0].size <= 8 and arrays[0].dtype != object:
        return np.array2string(arrays[0], separator=", ", max_line_width=200).replace("\n", "")
    return ", ".join(f"{a.dtype.name if a.dtype != object else 'string'} {list(a.shape)}" for a in arrays)


