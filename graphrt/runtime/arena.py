"""Arenas: the buffers of a segment, planned by liveness.

`plan_buffers` gives each value that may live in one an offset-free slot of a size, reused once its alias
class is dead in the order of the segment. `ArenaPool` hands a whole set of buffers to one run at a time.
`RecyclingPool` makes the arrays that leave a plan: a block is free again when nobody refers to it, so large
results do not touch fresh pages.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphrt.compiler.step_graph import Node
from graphrt.runtime.ownership import Ownership, Value

POISON = os.environ.get("GRAPHRT_POISON") == "1"
_MAX_IDLE_BYTES = 1 << 30
# From this size on, a result's pages cost more than its arithmetic.
RECYCLED_FROM = 1 << 18


@dataclass
class BufferPlan:
    """Slots of an arena: `sizes` in bytes; `views` says, for each buffer of the code, its slot, shape and
    dtype."""

    sizes: list[int] = field(default_factory=list)
    views: list[tuple[int, tuple[int, ...], np.dtype]] = field(default_factory=list)
    of_value: dict[Value, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)


def plan_buffers(
    nodes: list[Node],
    shapes: dict[Value, tuple[int, ...] | None],
    escaping: set[Value],
    ownership: Ownership,
    ready: set[Node],
) -> BufferPlan:
    """Slots for the outputs of `nodes` (in order) that are of known shape, fresh and do not escape.

    Args:
      shapes: of each value; None where it is not determined by the segment's inputs.
      escaping: values that outlive the segment.
      ready: nodes whose kernel takes `out`.
    """
    plan = BufferPlan()
    escaped = {ownership.root(v) for v in escaping}
    last_use: dict[Value, int] = {}
    for i, node in enumerate(nodes):
        for edge in node.inputs:
            last_use[ownership.root(edge)] = i
        for index in range(len(node.dtypes)):
            last_use.setdefault(ownership.root((node, index)), i)
            last_use[ownership.root((node, index))] = max(last_use[ownership.root((node, index))], i)
    free: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    slot_of_root: dict[Value, int] = {}
    for i, node in enumerate(nodes):
        # A slot is free after the node that uses it last, not at it: its kernel may write `out` before it
        # has read.
        for slot in ending.pop(i - 1, ()):
            free.setdefault(plan.sizes[slot], []).append(slot)
        if node not in ready or len(node.dtypes) != 1:
            continue
        value: Value = (node, 0)
        root = ownership.root(value)
        shape = shapes.get(value)
        if (
            shape is None
            or root in escaped
            or not ownership.is_fresh(value)
            or root != value
            or node.dtypes[0].is_object
        ):
            continue
        dtype = node.dtypes[0].np
        nbytes = _rounded(math.prod(shape) * dtype.itemsize)
        slot = _in_place(node, i, shape, shapes, ownership, slot_of_root, last_use)
        if slot is None:
            pool = free.get(nbytes)
            if pool:
                slot = pool.pop()
            else:
                slot = len(plan.sizes)
                plan.sizes.append(nbytes)
        else:
            # The input's slot lives on as the output's.
            for slots in ending.values():
                if slot in slots:
                    slots.remove(slot)
                    break
        slot_of_root[root] = slot
        ending.setdefault(last_use[root], []).append(slot)
        plan.of_value[value] = len(plan.views)
        plan.views.append((slot, shape, dtype))
    return plan


def _rounded(nbytes: int) -> int:
    """Sizes are rounded up so that similar ones share slots: to 64 bytes, above 4 KB to an eighth of a power
    of two."""
    if nbytes <= 4096:
        return max(64, -(-nbytes // 64) * 64)
    step = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


def _in_place(
    node: Node,
    i: int,
    shape: tuple[int, ...],
    shapes: dict[Value, Any],
    ownership: Ownership,
    slot_of_root: dict[Value, int],
    last_use: dict[Value, int],
) -> int | None:
    for position in node.op_def.overwrites:
        if position >= len(node.inputs):
            continue
        edge = node.inputs[position]
        root = ownership.root(edge)
        slot = slot_of_root.get(root)
        if slot is None or last_use[root] != i or root != edge or shapes.get(edge) != shape:
            continue
        if edge[0].dtypes[edge[1]].np != node.dtypes[0].np:
            continue
        # Another input that shares the memory under another view must not be overwritten.
        others = [
            e for p, e in enumerate(node.inputs) if p != position and ownership.root(e) == root and e != edge
        ]
        if not others:
            return slot
    return None


class ArenaPool:
    """Arenas of one BufferPlan: each run takes one, and gives it back when it ended well."""

    def __init__(self, plan: BufferPlan) -> None:
        self.plan = plan
        self._idle: list[list[np.ndarray]] = []
        self._most = max(1, min(16, _MAX_IDLE_BYTES // max(plan.total_bytes, 1)))

    def take(self) -> list[np.ndarray]:
        try:
            return self._idle.pop()
        except IndexError:
            slots = [np.empty(n + 64, np.uint8) for n in self.plan.sizes]
            aligned = [s[(-s.ctypes.data) % 64 :] for s in slots]
            made = []
            for slot, shape, dtype in self.plan.views:
                nbytes = math.prod(shape) * dtype.itemsize
                made.append(aligned[slot][:nbytes].view(dtype).reshape(shape))
            return made

    def give_back(self, arena: list[np.ndarray]) -> None:
        if POISON:
            for buffer in arena:
                buffer.reshape(-1).view(np.uint8).fill(0xFF)
        if len(self._idle) < self._most:
            self._idle.append(arena)


def _spare_references(block: list[Any]) -> int:
    return sys.getrefcount(block[0])


_IDLE = _spare_references([np.empty(1, np.uint8)])


class RecyclingPool:
    """Blocks for large arrays that leave a plan. A block whose views are all gone is handed out again.

    Bounded: at most `limit` bytes are kept; beyond it arrays are made as usual.
    """

    def __init__(self, limit: int = 1 << 30) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, list[list[np.ndarray]]] = {}
        self._held = 0
        self._limit = limit

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised array that is the caller's."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < RECYCLED_FROM:
            return np.empty(shape, dtype)
        size = _rounded(nbytes)
        with self._lock:
            blocks = self._blocks.setdefault(size, [])
            for block in blocks:
                if _spare_references(block) <= _IDLE:
                    return block[0][:nbytes].view(dtype).reshape(shape)
            made = np.empty(size, np.uint8)
            if self._held + size <= self._limit:
                self._held += size
                blocks.append([made])
            return made[:nbytes].view(dtype).reshape(shape)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
        return lambda: self.empty(shape, dtype)

    def unlock(self) -> None:
        """A forked child has no thread that could give the lock back."""
        self._lock = threading.Lock()


POOL = RecyclingPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.unlock)
