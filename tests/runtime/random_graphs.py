"""Random programs for the engine's properties: the same program can be built on any assignment of devices.

`program` decides one from bytes, where 0 is always the plainest choice, so that fewer and smaller bytes are
plainer programs; `Program.build` makes it a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.runtime import program_ops as ops
from tests.runtime import program_state as state
from tests.runtime.program_writer import BATCH, Choices, Program, Step, Type, Writer

GENERATORS: list[Callable[[Writer], Any]] = [
    ops.unary,
    ops.binary,
    ops.view,
    ops.constant,
    ops.reduce,
    ops.matmul,
    ops.join,
    state.cond,
    state.read,
    state.update,
    ops.select,
    ops.compare,
    ops.gather,
    ops.like,
    ops.cast,
    ops.unary,
    ops.binary,
    ops.view,
    state.scatter,
    state.random_numbers,
    state.queue,
    state.cond,
    state.update,
    ops.unstack,
    ops.split,
    ops.mask,
    ops.logical,
    ops.cumsum,
    ops.argmax,
    ops.waits,
]
STATEFUL = (state.read, state.update, state.scatter, state.random_numbers, state.queue)


def program(source: bytes, stateless: bool = False) -> Program:
    """The program that these bytes decide; a `stateless` one has no variables, queues and random numbers."""
    w = Writer(Choices(source), stateless)
    w.emit(
        "placeholder", lambda b: b.tf.placeholder(b.tf.float32, [None, 4]), [], Type("float32", (BATCH, 4))
    )
    w.emit("placeholder", lambda b: b.tf.placeholder(b.tf.int32, [3]), [], Type("int32", (3,)))
    w.emit("placeholder", lambda b: b.tf.placeholder(b.tf.float32, [3, 4]), [], Type("float32", (3, 4)))
    size = 3 + w.c.below(14)
    for _ in range(size):
        generator = GENERATORS[w.c.below(len(GENERATORS))]
        if not (stateless and generator in STATEFUL):
            generator(w)
    made = w.program
    batches = [3, 1, 5] if made.needs_a_batch else [3, 1, 5, 0]
    for _ in range(1 + w.c.below(2)):
        fetches = sorted({len(w.types) - 1 - w.c.below(len(w.types)) for _ in range(1 + w.c.below(4))})
        feeds = [0, 1, 2]
        if w.c.below(4) == 3:
            fed = w.c.below(len(w.types))
            if fed not in feeds and fed not in w.effects:
                feeds.append(fed)
        for _ in range(1 + w.c.below(2)):
            batch = batches[w.c.below(len(batches))]
            made.steps += [Step(fetches, feeds, batch)] * 3
    return made


def shrunk(source: bytes, fails: Callable[[bytes], bool], seconds: float = 20.0) -> bytes:
    """Fewer bytes that still fail, found by leaving out parts for a while."""
    until = time.monotonic() + seconds
    size = len(source) // 2
    while size and time.monotonic() < until:
        at = 0
        while at < len(source) and time.monotonic() < until:
            shorter = source[:at] + source[at + size :]
            if fails(shorter):
                source = shorter
            else:
                at += size
        size //= 2
    return source


def feed_value(t: Type, batch: int, salt: int) -> np.ndarray:
    """An array of type `t`."""
    shape = tuple(batch if d == BATCH else d for d in t.shape)
    random = np.random.default_rng([salt, len(shape), batch])
    if t.dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if t.dtype == "int32":
        return random.integers(-9, 9, shape).astype(np.int32)
    return random.integers(-9, 9, shape).astype(np.float32)
