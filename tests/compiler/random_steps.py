"""Random graphs for the compiler: arithmetic with special values, views, shapes, branches, variables, several
devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphrt.core import raw
from graphrt.core.graph import Graph

SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, float("nan"), float("inf"), float("-inf"), 1e-40, 3.4e38)
_UNARY = ("Neg", "Identity", "StopGradient", "Abs", "Exp", "Square", "Relu", "Sqrt", "Sign")
_BINARY = ("AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum")
_KINDS = ("unary", "binary", "special", "constant", "transpose", "reshape", "cast", "shape", "sum", "join",
          "branch", "const_branch", "control", "variable", "twice")


@dataclass
class Program:
    """A drawn graph, the tensors to fetch and feed, the values of the feeds, and an initialiser."""

    graph: Graph
    fetches: list[Any]
    targets: list[Any]
    feeds: list[Any]
    values: list[Any]
    init: Any


@st.composite
def programs(draw: Any, devices: tuple[str, ...] = ("",), size: int = 14) -> Program:
    """A random program whose nodes ask for one of `devices`."""
    graph = Graph()
    builder = _Builder(draw, graph, devices)
    with graph.as_default():
        return builder.build(draw(st.integers(1, size)))


class _Builder:
    def __init__(self, draw: Any, graph: Graph, devices: tuple[str, ...]) -> None:
        self.draw, self.graph, self.devices = draw, graph, devices

    def build(self, size: int) -> Program:
        x = raw.Placeholder(dtype="float32", shape=[None, 3], name="x")
        z = raw.Placeholder(dtype="float32", shape=[2, 3], name="z")
        self.pred = raw.Placeholder(dtype="bool", shape=[], name="p")
        self.tensors = [x, z]
        self.sizes = {x: (2, 3), z: (2, 3)}  # what a step makes of them
        self.effects: list[Any] = []
        self.handle = raw.VarHandleOp(dtype="float32", shape=[2, 3], shared_name="v", name="v")
        init = raw.AssignVariableOp(self.handle,
                                    raw.Const(value=np.ones((2, 3), np.float32), dtype="float32"),
                                    name="init")
        self.last_write: Any = None
        for _ in range(size):
            kind = self.draw(st.sampled_from(_KINDS))
            with self.graph.device(self.draw(st.sampled_from(self.devices)) or None):
                made = getattr(self, "_" + kind)()
            if made is not None:
                tensor, sizes = made
                self.tensors.append(tensor)
                self.sizes[tensor] = sizes
        fetches = self.draw(st.lists(st.sampled_from(self.tensors), min_size=1, max_size=3, unique=True))
        some = st.lists(st.sampled_from(self.effects or [None]), max_size=2, unique=True)
        targets = self.draw(some) if self.effects else []
        special = st.sampled_from(SPECIAL)
        values = [np.array(self.draw(st.lists(special, min_size=6, max_size=6)), np.float32).reshape(2, 3)
                  for _ in range(2)]
        return Program(self.graph, fetches, targets, [x, z, self.pred],
                       [*values, np.array(self.draw(st.booleans()))], init)

    def _pick(self) -> Any:
        return self.draw(st.sampled_from(self.tensors))

    def _unary(self) -> Any:
        x = self._pick()
        return getattr(raw, self.draw(st.sampled_from(_UNARY)))(x), self.sizes[x]

    def _scalar(self) -> Any:
        return raw.Const(value=np.array(self.draw(st.sampled_from(SPECIAL)), np.float32), dtype="float32")

    def _binary(self) -> Any:
        x = self._pick()
        same = [t for t in self.tensors if self.sizes[t] in (self.sizes[x], ())]
        op = getattr(raw, self.draw(st.sampled_from(_BINARY)))
        return op(x, self.draw(st.sampled_from(same))), self.sizes[x]

    def _special(self) -> Any:
        x, c = self._pick(), self._scalar()
        pair = (x, c) if self.draw(st.booleans()) else (c, x)
        return getattr(raw, self.draw(st.sampled_from(_BINARY)))(*pair), self.sizes[x]

    def _constant(self) -> Any:
        value = np.full((2, 3), self.draw(st.sampled_from(SPECIAL)), np.float32)
        return raw.Const(value=value, dtype="float32"), (2, 3)

    def _twice(self) -> Any:
        x, op = self._pick(), getattr(raw, self.draw(st.sampled_from(_UNARY)))
        made = op(op(x)) if self.draw(st.booleans()) else raw.AddN([op(x), op(x)])
        return made, self.sizes[x]

    def _ints(self, *values: int) -> Any:
        return raw.Const(value=np.array(values, np.int32), dtype="int32")

    def _transpose(self) -> Any:
        x = self._pick()
        order = self.draw(st.permutations(range(len(self.sizes[x]))))
        return raw.Transpose(x, self._ints(*order)), tuple(self.sizes[x][d] for d in order)

    def _reshape(self) -> Any:
        x = self._pick()
        if np.prod(self.sizes[x]) != 6:
            return None
        shape = self.draw(st.sampled_from([(-1, 3), (2, 3), (6,), (-1,), (3, 2)]))
        return raw.Reshape(x, self._ints(*shape)), np.empty(6).reshape(shape).shape

    def _cast(self) -> Any:
        x = self._pick()
        through = self.draw(st.sampled_from(["float64", "float16", "float32"]))
        there = raw.Cast(x, SrcT="float32", DstT=through)
        return raw.Cast(there, SrcT=through, DstT="float32"), self.sizes[x]

    def _shape(self) -> Any:
        x = self._pick()
        kind = self.draw(st.sampled_from(["Shape", "Size", "Rank"]))
        made = getattr(raw, kind)(x)
        return raw.Cast(made, SrcT="int32", DstT="float32"), (len(self.sizes[x]),) if kind == "Shape" else ()

    def _sum(self) -> Any:
        x = self._pick()
        sizes = self.sizes[x]
        axes = self.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True)) if sizes else []
        kind, keep = self.draw(st.sampled_from(["Sum", "Max", "Prod"])), self.draw(st.booleans())
        made = getattr(raw, kind)(x, self._ints(*axes), keep_dims=keep)
        return made, np.empty(sizes).sum(tuple(axes), keepdims=keep).shape

    def _join(self) -> Any:
        x = self._pick()
        if not self.sizes[x] or np.prod(self.sizes[x]) > 50:
            return None
        n = self.draw(st.integers(2, 3))
        axis = raw.Const(value=np.array(0, np.int32), dtype="int32")
        return raw.ConcatV2([x] * n, axis), (self.sizes[x][0] * n, *self.sizes[x][1:])

    def _branch(self, predicate: Any = None) -> Any:
        """A conditional of one or two ops, perhaps with one that only waits for its branch."""
        x = self._pick()
        false, true = raw.Switch(x, self.pred if predicate is None else predicate)
        ends = []
        for side in (false, true):
            with self.graph.device(self.draw(st.sampled_from(self.devices)) or None):
                end = getattr(raw, self.draw(st.sampled_from(_UNARY)))(side)
                if self.draw(st.booleans()):
                    pivot = raw.Identity(side)
                    with self.graph.control_dependencies([pivot]):
                        c = self._scalar()
                    end = raw.Mul(end, c)
                elif self.draw(st.booleans()):
                    end = raw.AddV2(end, raw.Cast(raw.Size(side), SrcT="int32", DstT="float32"))
                ends.append(end)
        return raw.Merge(ends)[0], self.sizes[x]

    def _const_branch(self) -> Any:
        return self._branch(raw.Identity(raw.Const(value=np.array(self.draw(st.booleans())), dtype="bool")))

    def _control(self) -> Any:
        waited = self._pick()
        with self.graph.control_dependencies([waited]):
            effect = raw.NoOp()
        self.effects.append(effect)
        with self.graph.control_dependencies([effect] if self.draw(st.booleans()) else [waited]):
            x = self._pick()
            return (raw.Identity(x), self.sizes[x]) if self.draw(st.booleans()) else (self._scalar(), ())

    def _variable(self) -> Any:
        """A read, or an update that waits for what touched the variable before."""
        before = [self.last_write] if self.last_write is not None else []
        with self.graph.control_dependencies(before):
            read = raw.ReadVariableOp(self.handle, dtype="float32")
        read.set_shape([2, 3])
        if self.draw(st.booleans()):
            with self.graph.control_dependencies([*before, read]):
                half = raw.Const(value=np.full((2, 3), 0.5, np.float32), dtype="float32")
                self.last_write = raw.AssignAddVariableOp(self.handle, half)
            self.effects.append(self.last_write)
        return read, (2, 3)
