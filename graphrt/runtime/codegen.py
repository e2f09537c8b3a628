"""Writes the Python that a segment is: one line a node, kernels and constants bound as globals, guards as
`if` blocks.

    def segment(step, r, a, A0, A1):
        b0, b1, b2, = a
        t3 = k3(A0, c1, b0)
        t5 = k5(t3, v4.live(), b1)
        g0 = t7
        if g0:
            t8 = k8(t5, None)
        return t5.copy(), t9

A0 is feed 0, c a constant, v a variable, b a buffer of the arena (None where nothing is planned), r the
values that cross segments. One line is one node, so a traceback's line number says which node failed, at no
cost while nothing does. `graphrt explain --plan` prints this text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from graphrt.compiler.step_graph import Node
from graphrt.core.errors import InvalidArgumentError
from graphrt.runtime.arena import POOL, BufferPlan
from graphrt.runtime.guards import ALWAYS, IMPOSSIBLE, MERGES, SWITCHES, Guard
from graphrt.runtime.ownership import Value
from graphrt.runtime.schedule import waits

PASSED_THROUGH = frozenset(
    ("Identity", "StopGradient", "PreventGradient", "PlaceholderWithDefault", "Snapshot", "IdentityN")
)
_NOTHING = frozenset(("NoOp", "ControlTrigger"))
# Nodes between two looks at the cancel flag; this many bytes of a node's output count as another node, as
# many nodes as the last figure does an output of unknown size.
_POLL_EVERY = 32
_POLL_BYTES = 1 << 18
_POLL_UNKNOWN = 8
# Values from this size on are let go after their last use; smaller ones when the segment returns.
_RELEASED_FROM = 4096
_TEMPORARY = re.compile(r"\bt\d+(?:_\d+)?\b")


class Dead:
    """The value of a tensor behind an untaken branch, where it travels."""

    def __repr__(self) -> str:
        return "<dead tensor>"


DEAD = Dead()


@dataclass
class SegmentCode:
    """A compiled segment: `function(step, r, a, *feeds)`; `nodes_by_line` maps its lines to nodes."""

    function: Callable[..., Any]
    source: str
    nodes_by_line: dict[int, Node]


@dataclass
class Layout:
    """What the segments of a plan share.

    Attributes:
      number: node to its number in names.
      slots: values that cross segments, to their place in `r`.
      guards, output_guards: of nodes, and of outputs where they differ.
      scope: the globals of the generated code: kernels, constants, starters.
      is_single: the plan is one segment: feeds are parameters and fetches are returned.
      copied: fetches (by index) whose memory something else shares.
    """

    number: dict[Node, int]
    slots: dict[Value, int]
    guards: dict[Node, Guard]
    output_guards: dict[Value, Guard]
    scope: dict[str, Any]
    hoisted: set[Node]
    is_single: bool
    copied: set[int] = field(default_factory=set)
    arg_count: int = 0
    retval_count: int = 0


@dataclass
class Special:
    """What the shapes of one signature decide.

    Attributes:
      buffers: the arena's plan.
      fresh: values that leave the segment and are large: their arrays come from the recycling pool.
      known: values that shapes alone decide, held as constants; skipped: nodes that compute only such.
      elided: nodes whose output is their first input.
    """

    buffers: BufferPlan = field(default_factory=BufferPlan)
    fresh: dict[Value, tuple[tuple[int, ...], np.dtype]] = field(default_factory=dict)
    known: dict[Value, np.ndarray] = field(default_factory=dict)
    skipped: set[Node] = field(default_factory=set)
    elided: set[Node] = field(default_factory=set)


class _Writer:
    def __init__(self, layout: Layout, nodes: list[Node], special: Special, traced: bool) -> None:
        self.layout, self.nodes, self.special, self.traced = layout, nodes, special, traced
        self.lines: list[tuple[str, str, Node | None]] = []  # (guard variable, text, node)
        self.released: set[str] = set()
        self.guard_names: dict[Guard, str] = {ALWAYS: ""}
        self.names: dict[Value, str] = {v: f"v{layout.number[v[0]]}_{v[1]}" for v in special.known}

    # -- expressions -----------------------------------------------------------------------------------------

    def value(self, edge: Value) -> str:
        """The expression of a value: a ref variable's is its state, not its array."""
        name = self.names.get(edge)
        if name is not None:
            return name
        node, index = edge
        n = self.layout.number[node]
        if node in self.layout.hoisted:
            return f"c{n}"
        if node.type == "_Arg" and self.layout.is_single:
            return f"A{node.attrs['index']}"
        return f"r[{self.layout.slots[edge]}]"

    def plain(self, edge: Value) -> str:
        """The expression of a value as an array: a reference is read here."""
        node, index = edge
        text = self.value(edge)
        return f"{text}.live()" if node.dtypes[index].is_ref else text

    def argument(self, node: Node, position: int, wants_ref: bool) -> str:
        return self.value(node.inputs[position]) if wants_ref else self.plain(node.inputs[position])

    def arguments(self, node: Node) -> list[str]:
        if not node.op_def.has_ref_input:
            return [self.plain(e) for e in node.inputs]
        return [self.argument(node, i, d.is_ref) for i, d in enumerate(node.input_dtypes)]

    def guard(self, guard: Guard) -> str:
        """The variable of a guard, computed at its first use; '' where the guard is always alive."""
        name = self.guard_names.get(guard)
        if name is not None:
            return name
        name = self.guard_names[guard] = f"g{len(self.guard_names)}"
        if guard is IMPOSSIBLE or any(literal.kind == "never" for literal in guard):
            self.lines.append(("", f"{name} = False", None))
            return name
        terms = []
        for literal in sorted(
            guard, key=lambda item: (self.layout.number[item.node], item.index, item.positive)
        ):
            if literal.kind == "recv":
                terms.append(f"{self.value((literal.node, 0))} is not DEAD")
            elif literal.kind == "merge":
                terms.append(self.value((literal.node, -1)))
            else:
                text = self.plain((literal.node, literal.index))
                if literal.node.shapes[literal.index].rank != 0:
                    text = f"scalar({text}, '{literal.node.name}')"
                terms.append(text if literal.positive else f"not {text}")
        self.lines.append(("", f"{name} = " + " and ".join(terms), None))
        return name

    # -- statements ------------------------------------------------------------------------------------------

    def write(self) -> None:
        returned: dict[int, str] = {}
        since_poll = 0
        for node in self.nodes:
            if node in self.layout.hoisted or node.type == "_Arg":
                continue
            guard = self.layout.guards[node]
            if node.type in MERGES:
                self.merge(node)
            elif node.type in SWITCHES:
                data = self.value(node.inputs[0])
                for i in (0, 1):
                    self.names[node, i] = data
                    self.keep(node, i, self.layout.output_guards.get((node, i), guard))
            elif node.type == "_Retval":
                self.retval(node, guard, returned)
            elif node.type in _NOTHING or node in self.special.skipped:
                continue
            elif node in self.special.elided:
                self.names[node, 0] = self.plain(node.inputs[0])
                self.keep(node, 0, guard)
            elif node.type in PASSED_THROUGH and not node.dtypes[0].is_ref and not waits(node):
                name = self.guard(guard)
                for i, edge in enumerate(node.inputs):
                    text = self.value(edge)
                    if edge[0].dtypes[edge[1]].is_ref:
                        # The live alias is taken when the Identity runs.
                        text = f"t{self.layout.number[node]}" + (f"_{i}" if len(node.dtypes) > 1 else "")
                        self.lines.append((name, f"{text} = {self.value(edge)}.live()", node))
                    self.names[node, i] = text
                    self.keep(node, i, guard)
            elif waits(node) or node.type in ("_Send", "_HostSend"):
                self.starter(node, guard)
            else:
                self.call(node, guard)
                since_poll += self.weight(node)
                if since_poll >= _POLL_EVERY:
                    since_poll = 0
                    self.lines.append(("", "if step.is_cancelled: step.raise_cancelled()", node))
        if self.layout.is_single:
            values = [returned.get(i, "None") for i in range(self.layout.retval_count)]
            self.lines.append(("", f"return ({', '.join(values)}{',' if values else ''})", None))

    def weight(self, node: Node) -> int:
        """What the node counts between two looks at the cancel flag."""
        if not node.dtypes:
            return 1
        buffer = self.special.buffers.of_value.get((node, 0))
        if buffer is not None:
            _, shape, dtype = self.special.buffers.views[buffer]
        elif (node, 0) in self.special.fresh:
            shape, dtype = self.special.fresh[node, 0]
        elif node.shapes[0].is_fully_defined() and not node.dtypes[0].is_object:
            shape, dtype = node.shapes[0].sizes, node.dtypes[0].np
        else:
            return _POLL_UNKNOWN
        return 1 + math.prod(shape) * dtype.itemsize // _POLL_BYTES

    def call(self, node: Node, guard: Guard) -> None:
        n = self.layout.number[node]
        args = self.arguments(node)
        if node.op_def.writes_out:
            args.append(self.out(node))
        count = len(node.dtypes)
        call = f"k{n}({', '.join(args)})"
        if count == 0:
            text = call
        elif count == 1:
            self.names[node, 0] = f"t{n}"
            # A kernel of a sequence returns one, also of one tensor.
            text = f"t{n}{',' if node.op_def.outputs[0].is_sequence else ''} = {call}"
        else:
            names = [f"t{n}_{i}" for i in range(count)]
            for i, name in enumerate(names):
                self.names[node, i] = name
            text = f"{', '.join(names)} = {call}"
        name = self.guard(guard)
        self.released.update(self.names[node, i] for i in range(count) if self.is_released(node, i))
        if self.traced:
            self.lines.append((name, "x = clock()", node))
        self.lines.append((name, text, node))
        if self.traced:
            shown = (
                f"t{n}"
                if count == 1
                else f"({', '.join(f't{n}_{i}' for i in range(count))}{',' if count else ''})"
            )
            self.lines.append((name, f"step.trace(n{n}, x, clock(), {shown})", node))
        for i in range(count):
            self.keep(node, i, guard)

    def out(self, node: Node) -> str:
        buffer = self.special.buffers.of_value.get((node, 0))
        if buffer is not None:
            return f"b{buffer}"
        if (node, 0) in self.special.fresh:
            n = self.layout.number[node]
            return f"e{n}()"
        return "None"

    def is_released(self, node: Node, index: int) -> bool:
        """True for what is worth letting go after its last use: memory that is not the arena's, and
        snapshots, without which an update need not copy its variable."""
        if (node, index) in self.special.buffers.of_value or node.dtypes[index].is_ref:
            return False
        n = node.shapes[index].num_elements()
        return n is None or n * node.dtypes[index].size >= _RELEASED_FROM or node.type == "ReadVariableOp"

    def keep(self, node: Node, index: int, guard: Guard) -> None:
        """Store a value that another segment takes."""
        slot = self.layout.slots.get((node, index))
        if slot is not None and node.type != "_Arg":
            name = self.guard(guard)
            text = self.names[node, index]
            if text != f"r[{slot}]":
                self.lines.append((name, f"r[{slot}] = {text}", node))

    def merge(self, node: Node) -> None:
        n = self.layout.number[node]
        guard = self.layout.guards[node]
        own = next((literal for literal in guard if literal.kind == "merge" and literal.node is node), None)
        outer = guard - {own} if own is not None else guard
        index_type = "zero_d"
        sources = [self.layout.output_guards.get(e, self.layout.guards[e[0]]) for e in node.inputs]
        conditions = [self.guard(g) for g in sources]
        outer_name = self.guard(outer)
        values = [self.value(e) for e in node.inputs]
        if not node.dtypes[0].is_ref:
            values = [self.plain(e) for e in node.inputs]
        text = ""
        for i, (condition, value) in enumerate(zip(conditions, values)):
            if condition == "":
                text += f"({value}, {index_type}[{i}])"
                break
            if i == len(conditions) - 1 and own is None:
                text += f"({value}, {index_type}[{i}])"
                break
            text += f"({value}, {index_type}[{i}]) if {condition} else "
        else:
            text += "(None, None)"
        self.names[node, 0], self.names[node, 1] = f"t{n}", f"t{n}_1"
        self.lines.append((outer_name, f"t{n}, t{n}_1 = {text}", node))
        if own is not None:
            # Alive where an input was.
            self.names[node, -1] = f"m{n}"
            alive = " or ".join(c or "True" for c in conditions)
            self.lines.append((outer_name, f"m{n} = {alive}", node))
            slot = self.layout.slots.get((node, -1))
            if slot is not None:
                self.lines.append((outer_name, f"r[{slot}] = m{n}", node))
        for i in (0, 1):
            self.keep(node, i, guard)

    def retval(self, node: Node, guard: Guard, returned: dict[int, str]) -> None:
        index = node.attrs["index"]
        edge = node.inputs[0]
        text = self.plain(edge)
        dtype = edge[0].dtypes[edge[1]]
        if index in self.layout.copied:
            text = f"copy({text})" if dtype.base_dtype.name not in ("resource", "variant") else text
        elif not dtype.is_object and (edge[0].shapes[edge[1]].rank not in (0, 1) or edge[0].op_def.aliases):
            text = f"whole({text})"
        name = self.guard(guard)
        if name:
            self.lines.append(("", f"if not {name}: dead_fetch(n{self.layout.number[node]})", node))
        if self.layout.is_single:
            # Copies are made where the fetch stands: a later update must not be seen.
            if index in self.layout.copied:
                self.lines.append(("", f"f{index} = {text}", node))
                text = f"f{index}"
            returned[index] = text
        else:
            self.lines.append(("", f"step_run_fetch(r, {index}, {text})", node))

    def starter(self, node: Node, guard: Guard) -> None:
        n = self.layout.number[node]
        name = self.guard(guard)
        args = ", ".join(["step", "r", *self.arguments(node)])
        self.lines.append((name, f"s{n}({args})", node))
        if name:
            self.lines.append((f"not {name}", f"d{n}(step, r)", node))
        for i in range(len(node.dtypes)):
            self.names.pop((node, i), None)

    # -- text ------------------------------------------------------------------------------------------------

    def text(self) -> tuple[str, dict[int, Node]]:
        params = [f"A{i}" for i in range(self.layout.arg_count)] if self.layout.is_single else []
        lines = [f"def segment({', '.join(['step', 'r', 'a', *params])}):"]
        if self.special.buffers.views:
            used = "".join(f"b{i}, " for i in range(len(self.special.buffers.views)))
            lines.append(f"    {used.rstrip()} = a")
        by_line: dict[int, Node] = {}
        open_guard = ""
        last = {
            name: i
            for i, (_, text, _) in enumerate(self.lines)
            for name in _TEMPORARY.findall(text)
            if name in self.released
        }
        ending: dict[int, str] = {}
        for name, i in last.items():
            if not self.lines[i][1].startswith("return"):
                ending[i] = ending.get(i, "") + f"; {name} = None"
        for i, (guard, text, node) in enumerate(self.lines):
            text += ending.get(i, "")
            if guard != open_guard:
                open_guard = guard
                if guard:
                    lines.append(f"    if {guard}:")
            lines.append(("        " if guard else "    ") + text)
            if node is not None:
                by_line[len(lines)] = node
        if len(lines) == 1:
            lines.append("    pass")
        return "\n".join(lines) + "\n", by_line


def write_segment(
    layout: Layout, nodes: list[Node], name: str, special: Special | None = None, traced: bool = False
) -> SegmentCode:
    """Compile one segment; for one shape signature where `special` is given.

    Args:
      traced: time every kernel.
    """
    special = special if special is not None else Special()
    writer = _Writer(layout, nodes, special, traced)
    writer.write()
    source, by_line = writer.text()
    scope = layout.scope
    if traced:
        scope.update({f"n{n}": node for node, n in layout.number.items()})
    # Kernels are the same whatever the shapes; what a signature fixes is its code's own.
    own: dict[str, Any] = dict(scope) if special.fresh or special.known else scope
    for (node, _), (shape, dtype) in special.fresh.items():
        own[f"e{layout.number[node]}"] = POOL.allocator(shape, dtype)
    for (node, index), value in special.known.items():
        own[f"v{layout.number[node]}_{index}"] = value
    made: dict[str, Any] = {}
    exec(compile(source, f"<plan {name}>", "exec"), own, made)
    return SegmentCode(made["segment"], source, by_line)


def _dead_fetch(node: Node) -> None:
    source, index = node.inputs[0]
    raise InvalidArgumentError(
        None,
        None,
        f"Retval[{node.attrs['index']}] does not have value: the fetched tensor "
        f"'{source.name}:{index}' is behind a branch that was not taken. Fetch the "
        "result of tf.cond instead",
    )


def _copy(value: Any) -> Any:
    return value.copy()


def _whole(value: Any) -> Any:
    """A fetched array is contiguous, writable, and does not keep a larger one alive."""
    flags = value.flags
    if not (flags.c_contiguous and flags.writeable) or getattr(value.base, "nbytes", 0) > 2 * value.nbytes:
        return value.copy()
    return value


def _scalar(value: Any, name: str) -> Any:
    if value.ndim:
        raise InvalidArgumentError(
            None,
            None,
            f"a condition must be a scalar, and '{name}' is of shape {list(value.shape)}: "
            "tf.reduce_all or tf.reduce_any makes it one",
        )
    return value


def base_scope() -> dict[str, Any]:
    """The names that every generated segment knows."""
    zero_d = [np.array(i, np.int32) for i in range(64)]
    return {
        "DEAD": DEAD,
        "dead_fetch": _dead_fetch,
        "copy": _copy,
        "whole": _whole,
        "scalar": _scalar,
        "zero_d": zero_d,
        "clock": perf_counter_ns,
        "step_run_fetch": _store_fetch,
    }


def _store_fetch(r: list[Any], index: int, value: Any) -> None:
    # The last item of `r` is the list of fetches.
    r[-1][index] = value
