"""Plan: a registered partition, ready to run.

Building it orders and cuts the nodes, binds kernels and constants once, and compiles each segment. A segment
runs unplanned the first time a shape signature is seen; from the second on, with an arena (buffers by
liveness) made for that signature. A plan owns no buffers, so any number of threads and masters run it at
once.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.compiler.step_graph import Node, Partition
from graphrt.core import resources
from graphrt.core.constant_value import bound_kernel, run_kernel
from graphrt.core.errors import UnimplementedError, describe
from graphrt.core.registry import KernelContext
from graphrt.core.shapes import TensorShape
from graphrt.runtime import specialize
from graphrt.runtime.arena import RECYCLED_FROM, ArenaPool, plan_buffers
from graphrt.runtime.codegen import (
    DEAD,
    PASSED_THROUGH,
    Layout,
    SegmentCode,
    Special,
    base_scope,
    write_segment,
)
from graphrt.runtime.device_binding import bind_for_accelerator
from graphrt.runtime.float_errors import loud, quiet
from graphrt.runtime.guards import MERGES, SWITCHES, output_guards
from graphrt.runtime.live_views import viewing
from graphrt.runtime.ownership import FORWARDING, Ownership, Value
from graphrt.runtime.schedule import cut, order, read_variables, waits
from graphrt.runtime.worker_session import WorkerSession

_plan_numbers = itertools.count(1)
# A plan seen with more shape signatures than this stays unplanned for new ones.
_MOST_SIGNATURES = 32
# Elements of a value that a shape signature makes constant.
_MOST_FOLDED = 1 << 16
_LOOPS = frozenset(("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration"))


class Segment:
    """Straight-line code between waits.

    Attributes:
      nodes: in order; awaits: waiting nodes whose outputs it takes; after: segments (by index) that come
      before it.
      dynamic: inputs whose shape a step decides, in order.
    """

    __slots__ = ("index", "nodes", "awaits", "after", "dynamic", "code", "special", "seen", "traced")

    def __init__(self, index: int, nodes: list[Node], awaits: list[Node], after: list[int]) -> None:
        self.index, self.nodes, self.awaits, self.after = index, nodes, awaits, after
        self.dynamic: list[Value] = []
        self.code: SegmentCode = None  # type: ignore[assignment]
        self.special: dict[tuple[Any, ...], tuple[SegmentCode, ArenaPool]] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self.traced: SegmentCode | None = None


class Plan:
    """A partition bound to a worker session.

    Args:
      is_alone: the step has no other partition: where nothing waits, it is one function from feeds to
      fetches.

    Attributes:
      device: the Device that it runs on.
      segments: see Segment; one, for a partition in which nothing waits.
      is_immediate: one segment and nothing that waits: running it is one call.
    """

    def __init__(self, partition: Partition, session: WorkerSession, is_alone: bool = True) -> None:
        self.name = f"{next(_plan_numbers)} {partition.device}"
        self.partition = partition
        self.session = session
        self.device = session.devices[partition.device]
        self._lock = threading.Lock()
        nodes = order(partition.graph.nodes)
        looped = next((n for n in nodes if n.type in _LOOPS), None)
        if looped is not None:
            raise describe(
                UnimplementedError(None, None, "while loops are not supported yet"), looped, partition.device
            )
        self.nodes = nodes
        self.hoisted: dict[Node, Any] = {}
        self.contexts: dict[Node, KernelContext] = {}
        scope = base_scope()
        number = {n: i for i, n in enumerate(nodes)}
        guards, of_output = output_guards(nodes)
        self._bind(nodes, number, scope, guards)
        pieces = cut(nodes)
        self.waiting = [n for n in nodes if waits(n)]
        self.is_immediate = is_alone and len(pieces) <= 1 and not self.waiting
        self.segments = [Segment(i, p.nodes, p.awaits, p.after) for i, p in enumerate(pieces)]
        if not self.segments:
            self.segments = [Segment(0, [], [], [])]
        args, retvals = partition.graph.args, partition.graph.retvals
        self.args = [n for n in args if n in number]
        self.retvals = [n for n in retvals if n in number]
        self.arg_count = max((n.attrs["index"] for n in self.args), default=-1) + 1
        self.retval_count = max((n.attrs["index"] for n in self.retvals), default=-1) + 1
        self.ownership = Ownership(nodes, set(self.hoisted))
        self.layout = Layout(
            number,
            {},
            guards,
            of_output,
            scope,
            set(self.hoisted),
            self.is_immediate,
            self._copied(),
            self.arg_count,
            self.retval_count,
        )
        if not self.is_immediate:
            self._assign_slots()
        for node in self.retvals:
            scope[f"n{number[node]}"] = node
        if self.waiting or any(n.type in ("_Send", "_HostSend") for n in nodes):
            from graphrt.runtime.starters import bind_starters

            bind_starters(self, scope, number)
        for segment in self.segments:
            self._find_dynamic(segment)
            segment.code = write_segment(self.layout, segment.nodes, self.name)
        self.slot_count = len(self.layout.slots)
        self._reshapes = resources.reshapes

    # -- building
    # ----------------------------------------------------------------------------------------------

    def _bind(self, nodes: list[Node], number: dict[Node, int], scope: dict[str, Any], guards: Any) -> None:
        """Hoist what is the same in every step, bind every kernel."""
        device, session = self.device, self.session
        live = {
            n
            for n, variables in read_variables(nodes).items()
            if any(v.type != "VarHandleOp" for v in variables)
        }
        for node in nodes:
            op_def = node.op_def
            if node.type in ("_Arg", "_Retval", "NoOp") or node.type in SWITCHES or node.type in MERGES:
                continue
            context = self.contexts[node] = KernelContext(
                node.name,
                node.type,
                node.attrs,
                node.input_dtypes,
                node.dtypes,
                node.shapes,
                device.xp,
                device,
                session,
                node,
            )
            try:
                if op_def.has_hoist:
                    # A ref variable's node gives its state, which reads go through; a constant its array.
                    self.hoisted[node] = scope[f"c{number[node]}"] = op_def.impl.hoist(context)
                elif (
                    not waits(node)
                    and node.type not in PASSED_THROUGH
                    and node.type not in ("_Send", "_HostSend")
                ):
                    kernel = bound_kernel(op_def, context)
                    scope[f"k{number[node]}"] = viewing(kernel) if node in live and op_def.aliases else kernel
            except Exception as error:
                raise describe(error, node, self.partition.device) from error
        if not device.is_host:
            bind_for_accelerator(self, number, scope)

    def _copied(self) -> set[int]:
        """The fetches that are copies: something else holds, or may change, their memory."""
        copied: set[int] = set()
        roots: set[Value] = set()
        for node in self.retvals:
            edge = node.inputs[0]
            is_ref = edge[0].dtypes[edge[1]].is_ref
            root = self.ownership.root(edge)
            if is_ref or not self.ownership.is_fresh(edge) or root in roots:
                copied.add(node.attrs["index"])
            roots.add(root)
        for node in self.nodes:
            if node.op_def.keeps_inputs and node.type != "_Retval":
                for edge in node.inputs:
                    root = self.ownership.root(edge)
                    copied.update(
                        r.attrs["index"] for r in self.retvals if self.ownership.root(r.inputs[0]) == root
                    )
        return copied

    def _assign_slots(self) -> None:
        """Places in `r` for feeds, awaited values, and values that another segment takes."""
        slots = self.layout.slots
        segment_of = {n: s.index for s in self.segments for n in s.nodes}

        def need(value: Value) -> None:
            if value not in slots:
                slots[value] = len(slots)

        for node in self.args:
            need((node, 0))
        for node in self.waiting:
            for i in range(max(1, len(node.dtypes))):
                need((node, i))
        for node in self.nodes:
            if node in self.hoisted:
                continue
            here = segment_of[node]
            for edge in node.inputs:
                source = edge[0]
                if source not in self.hoisted and segment_of[source] != here:
                    need(edge)
            guards = [self.layout.guards[node]]
            if node.type in MERGES:
                guards += [self.layout.output_guards.get(e, self.layout.guards[e[0]]) for e in node.inputs]
            for guard in guards:
                for literal in guard:
                    if (
                        literal.node is None
                        or literal.node in self.hoisted
                        or segment_of[literal.node] == here
                    ):
                        continue
                    need((literal.node, -1 if literal.kind == "merge" else literal.index))

    def _find_dynamic(self, segment: Segment) -> None:
        if self.is_immediate:
            segment.dynamic = [(n, 0) for n in self.args if not n.shapes[0].is_fully_defined()]
            return
        inside = set(segment.nodes)
        found: dict[Value, None] = {}
        for node in segment.nodes:
            for edge in node.inputs:
                if (
                    edge[0] not in inside
                    and edge[0] not in self.hoisted
                    or waits(edge[0])
                    or edge[0].type == "_Arg"
                ):
                    if not edge[0].dtypes[edge[1]].is_object and not edge[0].dtypes[edge[1]].is_ref:
                        found[edge] = None
        segment.dynamic = list(found)

    # -- running
    # -----------------------------------------------------------------------------------------------

    def run_immediate(self, step: Any, feeds: Any) -> tuple[Any, ...]:
        """The fetches of a step of one call. `feeds` are arrays by argument index.

        Raises:
          OpError: of the node that failed, described.
        """
        segment = self.segments[0]
        key = tuple([feeds[n.attrs["index"]].shape for n, _ in segment.dynamic]) if segment.dynamic else ()
        return self._call(segment, step, None, key, feeds)

    def run_segment(self, segment: Segment, step: Any, r: list[Any]) -> None:
        """Run one segment of a step over the values in `r`."""
        slots = self.layout.slots
        key: tuple[Any, ...] | None
        try:
            key = tuple([r[slots[v]].shape for v in segment.dynamic])
        except AttributeError:
            key = None  # a dead value among them: this run stays unplanned
        self._call(segment, step, r, key, ())

    def _call(self, segment: Segment, step: Any, r: Any, key: tuple[Any, ...] | None, feeds: Any) -> Any:
        if step.is_traced:
            return self._guarded(self._traced(segment), step, r, None, feeds)
        if self._reshapes != resources.reshapes:
            self._forget_shapes()
        special = segment.special.get(key) if key is not None else None
        if special is None:
            if key is None or not self._worth_planning(segment, key):
                return self._guarded(segment.code, step, r, None, feeds)
            special = self._specialize(segment, key)
        code, pool = special
        if not pool.plan.views:
            return self._guarded(code, step, r, None, feeds)
        arena = pool.take()
        made = self._guarded(code, step, r, arena, feeds)
        # The arena of a failed run is dropped: the exception has passed this line by.
        pool.give_back(arena)
        return made

    def _guarded(self, code: SegmentCode, step: Any, r: Any, arena: Any, feeds: Any) -> Any:
        before = quiet()
        try:
            return code.function(step, r, arena, *feeds)
        except Exception as error:
            if step.error is not None:
                raise step.error from error  # a kernel met what the step's end had taken away
            raise self._described(error, code) from error
        finally:
            loud(before)

    def _described(self, error: Exception, code: SegmentCode) -> Exception:
        """The error with the node whose line of generated code raised it."""
        trace = error.__traceback__
        node = None
        while trace is not None:
            if trace.tb_frame.f_code is code.function.__code__:
                node = code.nodes_by_line.get(trace.tb_lineno)
            trace = trace.tb_next
        blamed = getattr(error, "blamed", None)
        return describe(error, blamed or node, self.partition.device)

    def _traced(self, segment: Segment) -> SegmentCode:
        if segment.traced is None:
            segment.traced = write_segment(self.layout, segment.nodes, self.name + " traced", traced=True)
        return segment.traced

    # -- specialising
    # ------------------------------------------------------------------------------------------

    def _worth_planning(self, segment: Segment, key: tuple[Any, ...]) -> bool:
        """True from the second sighting of a shape signature on."""
        if key in segment.seen:
            return True
        if len(segment.seen) < _MOST_SIGNATURES:
            segment.seen.add(key)
        return False

    def _specialize(self, segment: Segment, key: tuple[Any, ...]) -> tuple[SegmentCode, ArenaPool]:
        with self._lock:
            made = segment.special.get(key)
            if made is None:
                made = segment.special[key] = self._plan_segment(segment, key)
            return made

    def _forget_shapes(self) -> None:
        """A variable has another shape than the segments were planned for."""
        with self._lock:
            self._reshapes = resources.reshapes
            for segment in self.segments:
                segment.special, segment.seen = {}, set()

    def _plan_segment(self, segment: Segment, key: tuple[Any, ...]) -> tuple[SegmentCode, ArenaPool]:
        given = {v: TensorShape.of(tuple(shape)) for v, shape in zip(segment.dynamic, key)}
        for node in self.args:
            given.setdefault((node, 0), node.shapes[0])
        inside = set(segment.nodes)
        # Constants and variables of other segments are known here too.
        nodes = [n for n in self.nodes if n in inside or n in self.hoisted]
        found, values = specialize.infer(nodes, given, self.hoisted)
        shapes: dict[Value, tuple[int, ...] | None] = {
            v: s.sizes if s.is_fully_defined() else None for v, s in found.items()
        }  # type: ignore[misc]
        special = Special()
        escaping = self._escaping(segment)
        self._fold_by_shape(segment, special, found, values, escaping)
        ownership = (
            Ownership(self.nodes, set(self.hoisted), special.elided) if special.elided else self.ownership
        )
        ready = {
            n
            for n in segment.nodes
            if n.op_def.writes_out
            and n not in self.hoisted
            and self.device.is_host
            and n not in special.skipped
            and n not in special.elided
        }
        special.buffers = plan_buffers(segment.nodes, shapes, escaping, ownership, ready)
        for node in ready:
            shape = shapes.get((node, 0))
            if (
                (node, 0) in special.buffers.of_value
                or shape is None
                or len(node.dtypes) != 1
                or node.dtypes[0].is_object
            ):
                continue
            if not node.op_def.aliases and math.prod(shape) * node.dtypes[0].np.itemsize >= RECYCLED_FROM:
                special.fresh[node, 0] = (shape, node.dtypes[0].np)
        return write_segment(self.layout, segment.nodes, self.name, special), ArenaPool(special.buffers)

    def _fold_by_shape(
        self,
        segment: Segment,
        special: Special,
        shapes: dict[Value, TensorShape],
        values: dict[Value, np.ndarray],
        escaping: set[Value],
    ) -> None:
        """Find the nodes that this signature's shapes make constant, and those that they make pass their
        input on."""
        if not self.device.is_host:
            return
        escaped = {self.ownership.root(v) for v in escaping}
        constants = dict(values)
        constants.update(((n, 0), v) for n, v in self.hoisted.items() if isinstance(v, np.ndarray))
        for node in segment.nodes:
            if (
                node in self.hoisted
                or node.op_def.stateful
                or not node.dtypes
                or node.type in FORWARDING
                or node.type == "_Arg"
            ):
                continue
            outputs = [(node, i) for i in range(len(node.dtypes))]
            if any(
                v in self.layout.slots or self.ownership.root(v) in escaped or self._is_fetched(v)
                for v in outputs
            ):
                # What leaves the segment is made anew: its holder may change it.
                if specialize.changes_nothing(node, shapes, values) and 0 in node.op_def.aliases:
                    special.elided.add(node)
                continue
            if all(v in constants for v in outputs) or self._fold(node, outputs, shapes, constants):
                special.skipped.add(node)
                special.known.update((v, constants[v]) for v in outputs)
            elif specialize.changes_nothing(node, shapes, values):
                if 0 in node.op_def.aliases or self.ownership.is_fresh(node.inputs[0]):
                    special.elided.add(node)

    def _fold(
        self,
        node: Node,
        outputs: list[Value],
        shapes: dict[Value, TensorShape],
        constants: dict[Value, np.ndarray],
    ) -> bool:
        """Add a node's outputs to `constants` where its inputs are, and it is small and has no state."""
        if (
            node.op_def.unfoldable
            or waits(node)
            or not all(e in constants for e in node.inputs)
            or node not in self.contexts
        ):
            return False
        if not all((n := shapes[v].num_elements()) is not None and n <= _MOST_FOLDED for v in outputs):
            return False
        try:
            made = run_kernel(node.op_def, self.contexts[node], [constants[e] for e in node.inputs])
        except Exception:  # the step itself reports it
            return False
        constants.update((v, np.asarray(m)) for v, m in zip(outputs, made))
        return True

    def _is_fetched(self, value: Value) -> bool:
        root = self.ownership.root(value)
        return any(self.ownership.root(r.inputs[0]) == root for r in self.retvals)

    def _escaping(self, segment: Segment) -> set[Value]:
        """Values whose memory someone may hold after the segment, or after the nodes that take them."""
        escaping: set[Value] = set()
        for node in segment.nodes:
            if node.op_def.keeps_inputs or waits(node) or node.type in ("_Retval", "_Send", "_HostSend"):
                if node.type == "_Retval" and node.attrs["index"] in self.layout.copied:
                    continue
                escaping.update(node.inputs)
            for i in range(len(node.dtypes)):
                if (node, i) in self.layout.slots:
                    escaping.add((node, i))
        # Guards look at predicates long after the last node that takes them.
        guards = [*self.layout.guards.values(), *self.layout.output_guards.values()]
        escaping.update((lit.node, lit.index) for guard in guards for lit in guard if lit.kind == "pred")
        return escaping

    # -- looking
    # -----------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The Python of its segments, as the next step of the last shape signature runs it."""
        parts = []
        for segment in self.segments:
            code = next(reversed(segment.special.values()))[0] if segment.special else segment.code
            parts.append(f"# segment {segment.index}\n{code.source}")
        return "\n".join(parts)


Starter = Callable[..., None]
__all__ = ["DEAD", "Plan", "Segment"]
