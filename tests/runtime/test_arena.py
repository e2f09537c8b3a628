"""Buffers: two values that live at once never share one, and memory that is held is never handed out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.compiler.step_graph import Node
from graphrt.core.dtypes import float32, float64
from graphrt.runtime.arena import RECYCLED_FROM, ArenaPool, BufferPlan, RecyclingPool, plan_buffers
from graphrt.runtime.ownership import Ownership
from tests.runtime.nodes import Value, arg, node, predicate, switch
from tests.runtime.program_writer import Choices


def random_program(c: Choices) -> tuple[list[Node], set[Value]]:
    """A straight line of kernels, views, branches that join, and what escapes."""
    x, p = arg("x"), predicate("p")
    nodes: list[Node] = [x, p]
    values: list[Value] = [(x, 0)]
    shapes: tuple[tuple[int, ...], ...] = ((4,), (4,), (40,), (2, 2))
    for number in range(3 + c.below(16)):
        pick = lambda: values[-1 - c.below(min(len(values), 5))]  # noqa: E731
        kind, shape = c.below(10), shapes[c.below(4)]
        if kind <= 1:
            made = node("Neg", f"neg{number}", [pick()], shape=shape)
        elif kind <= 3:
            made = node("AddV2", f"add{number}", [pick(), pick()], shape=shape)
        elif kind == 4:
            made = node("Reshape", f"view{number}", [pick(), (x, 0)], shape=shape)
        elif kind == 5:
            made = node("Identity", f"identity{number}", [pick()], shape=shape)
        elif kind >= 8:
            made = node(
                "MatMul", f"product{number}", [pick(), pick()], shape=shape
            )  # may not write over its inputs
        elif kind == 6:
            made = switch(f"switch{number}", pick(), (p, 0))
            values.append((made, 1))
        else:
            made = node(
                "Merge", f"merge{number}", [pick(), pick()], dtypes=[float32, float32], shape=shape, N=2
            )
        nodes.append(made)
        values.append((made, 0))
    escaping = {values[c.below(len(values))] for _ in range(c.below(4))}
    return nodes, escaping


@settings(max_examples=400)
@given(st.binary(min_size=20, max_size=160))
def test_a_buffer_holds_what_its_reader_expects(source: bytes) -> None:
    """Runs the line on a memory that knows which value each slot holds."""
    nodes, escaping = random_program(Choices(source))
    ownership = Ownership(nodes, set())
    shapes: dict[Value, Any] = {(n, i): n.shapes[i].sizes for n in nodes for i in range(len(n.dtypes))}
    ready = {n for n in nodes if n.op_def.writes_out}
    plan = plan_buffers(nodes, shapes, escaping, ownership, ready)
    # A value is (the node that made its memory); views hold what their source holds.
    slot_holds: dict[int, Value] = {}
    memory: dict[Value, list[tuple[int, Value]]] = {}  # what a value is made of: (slot, who wrote it)
    for n in nodes:
        for edge in n.inputs:
            for slot, writer in memory.get(edge, ()):
                assert slot_holds[slot] == writer, (
                    f"{n} reads {edge}, whose buffer {slot_holds[slot]} has overwritten"
                )
        value = (n, 0)
        if value in plan.of_value:
            slot, shape, dtype = plan.views[plan.of_value[value]]
            assert np.prod(shape) * dtype.itemsize <= plan.sizes[slot]
            for position, edge in enumerate(n.inputs):
                if any(slot == s for s, _ in memory.get(edge, ())):
                    assert position in n.op_def.overwrites or edge in [
                        n.inputs[o] for o in n.op_def.overwrites
                    ]
            assert ownership.root(value) not in {ownership.root(v) for v in escaping}
            slot_holds[slot] = value
            memory[value] = [(slot, value)]
        else:
            # Views, and branches that join, may be any of their inputs.
            passes = n.op_def.aliases or n.type in ("Switch", "Merge")
            held = (
                [
                    m
                    for edge in (n.inputs[:1] if n.type != "Merge" else n.inputs)
                    for m in memory.get(edge, ())
                ]
                if passes
                else []
            )
            for i in range(len(n.dtypes)):
                memory[n, i] = held
    for value in escaping:
        assert not memory.get(value), "what escapes is not in the arena"


def test_chains_use_two_buffers_or_fewer_and_do_not_hold_each_value() -> None:
    x = arg("x")
    nodes = [x]
    for i in range(50):
        nodes.append(node("AddV2", f"add{i}", [(nodes[-1], 0), (x, 0)]))
    plan = plan_buffers(
        nodes, {(n, 0): (4,) for n in nodes}, {(nodes[-1], 0)}, Ownership(nodes, set()), set(nodes[1:])
    )
    assert len(plan.of_value) == 49 and len(plan.sizes) <= 2


def test_buffers_are_aligned_of_their_shape_and_empty_ones_are_fine() -> None:
    plan = BufferPlan(
        [64, 4096, 64],
        [(0, (3, 5), np.dtype(np.float32)), (1, (0, 4), np.dtype(np.float64)), (2, (), np.dtype(np.int32))],
    )
    first, empty, scalar = ArenaPool(plan).take()
    assert first.shape == (3, 5) and first.ctypes.data % 64 == 0
    assert empty.shape == (0, 4) and empty.dtype == np.float64 and scalar.shape == ()


def test_an_arena_that_was_not_given_back_is_not_handed_out_again() -> None:
    pool = ArenaPool(BufferPlan([64], [(0, (4,), float32.np)]))
    one, two = pool.take(), pool.take()
    assert not np.shares_memory(one[0], two[0])
    pool.give_back(two)
    assert np.shares_memory(pool.take()[0], two[0])


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_held_view_of_a_recycled_block_is_never_overwritten(turns: list[int]) -> None:
    pool = RecyclingPool(limit=8 * RECYCLED_FROM)
    held: list[tuple[np.ndarray, int]] = []
    for number, turn in enumerate(turns):
        if turn >= 6 and held:
            held.pop(turn % len(held))
            continue
        size = (RECYCLED_FROM >> 2) * (1 + turn % 3)
        made = pool.empty((size,), float32.np)
        made[:] = number
        # What is held is the array, or only a view of its view.
        held.append((made if turn % 2 else made[5:].reshape(-1)[::2], number))
        for array, value in held:
            assert (array == value).all()


def test_blocks_are_used_again_once_nobody_holds_them() -> None:
    pool = RecyclingPool()
    made = pool.empty((RECYCLED_FROM,), np.dtype(np.uint8))
    address = made.ctypes.data
    other = pool.empty((RECYCLED_FROM,), np.dtype(np.uint8))
    assert other.ctypes.data != address
    del made
    again = pool.empty((RECYCLED_FROM // 8,), float64.np)
    assert again.ctypes.data == address


def test_threads_that_take_from_one_pool_get_memory_of_their_own() -> None:
    pool, failures = RecyclingPool(), []

    def work(number: int) -> None:
        for turn in range(200):
            made = pool.empty((RECYCLED_FROM,), np.dtype(np.uint8))
            made[::4096] = number
            if not (made[::4096] == number).all():
                failures.append((number, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
