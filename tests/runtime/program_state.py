"""Instructions with state: variables of both kinds, queues, random numbers, and branches with effects."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtime.program_ops import compare
from tests.runtime.program_writer import Builder, Shape, Type, Writer


def random_numbers(w: Writer) -> None:
    seed = w.seed()
    which = w.c.below(4)
    if which == 0:
        w.emit(
            "random_uniform", lambda b: b.tf.random_uniform([3, 4], seed=seed), [], Type("float32", (3, 4))
        )
    elif which == 1:
        w.emit(
            "random int",
            lambda b: b.tf.random_uniform([4], -5, 20, b.tf.int32, seed=seed),
            [],
            Type("int32", (4,)),
        )
    elif which == 2:
        w.emit("random_normal", lambda b: b.tf.random_normal([4], seed=seed), [], Type("float32", (4,)))
    else:
        i = w.any_of("float32")
        assert i is not None
        w.emit(
            "random like",
            lambda b, x: b.tf.random_uniform(b.tf.shape(x), seed=seed),
            [i],
            Type("float32", w.types[i].shape),
        )


def variable(w: Writer) -> int:
    """The number of a variable: a new one, or one of those there are."""
    if w.variables and w.c.below(3):
        return w.c.below(len(w.variables))
    dtype = ("float32", "int32")[w.c.below(2)]
    is_ref = w.c.below(2) == 0
    shape: Shape = ((3, 4), (4,), ())[w.c.below(3)]
    number = len(w.variables)
    w.variables.append((dtype, shape, is_ref))
    start = (np.arange(int(np.prod(shape, dtype=int))) % 7).reshape(shape).astype(dtype)

    def make(b: Builder) -> Any:
        v = b.tf.Variable(start, name=f"variable_{number}", use_resource=not is_ref)
        b.variables.append(v)
        return b.tf.identity(b.tf.constant(start))

    w.emit(
        f"variable {number} {'ref' if is_ref else 'resource'}",
        make,
        [],
        Type(dtype, shape, 7 if dtype == "float32" else None),
    )
    return number


def read(w: Writer) -> None:
    n = variable(w)
    dtype, shape, _ = w.variables[n]

    def by_value(b: Builder) -> Any:
        v = b.variables[n]
        with b.after_effects(v):
            made = b.tf.add(v.read_value(), b.tf.zeros([], v.dtype.base_dtype))
        b.reader(v, made.op)
        return made

    def by_alias(b: Builder) -> Any:
        """Through an Identity, which of a ref variable is its live memory, and two views of it."""
        v = b.variables[n]
        with b.after_effects(v):
            flat = b.tf.reshape(b.tf.identity(v.read_value()), [-1])
            made = [b.tf.reshape(flat, shape) * 2, flat + 1]
        b.reader(v, *[m.op for m in made])
        return made

    if w.c.below(2):
        size = int(np.prod(shape, dtype=int))
        w.emit(f"views of variable {n}", by_alias, [], Type(dtype, shape), Type(dtype, (size,)))
    else:
        w.emit(f"read variable {n}", by_value, [], Type(dtype, shape))


def updated(b: Builder, n: int, kind: int, value: Any) -> Any:
    """The operation that updates variable n with `value`."""
    v = b.variables[n]
    name = ("assign", "assign_add", "assign_sub")[kind % 3]
    return getattr(b.tf, name)(v, value)


def update(w: Writer) -> None:
    n = variable(w)
    dtype, shape, _ = w.variables[n]
    i = w.pick(lambda t: t.dtype == dtype and t.shape == shape)
    assert i is not None
    kind = w.c.below(3)
    if kind and dtype == "float32":
        i = w.whole(i)

    def make(b: Builder, value: Any) -> Any:
        v = b.variables[n]
        with b.after_effects(v):
            done = updated(b, n, kind, value)
            # What is given on is a copy of now: later updates do not show in it.
            with b.tf.control_dependencies([done]):
                made = b.tf.add(v.read_value(), b.tf.ones([], v.dtype.base_dtype))
        b.effect(v, made.op)
        return made

    w.emit(f"{('assign', 'assign_add', 'assign_sub')[kind]} to variable {n}", make, [i], Type(dtype, shape))


def scatter(w: Writer) -> None:
    n = variable(w)
    dtype, shape, _ = w.variables[n]
    if not shape:
        return
    i = w.pick(lambda t: t.dtype == "int32" and t.shape == (3,))
    assert i is not None
    name = ("scatter_add", "scatter_update", "scatter_sub")[w.c.below(3)]

    def make(b: Builder, indices: Any) -> Any:
        v = b.variables[n]
        with b.after_effects(v):
            at = b.tf.floormod(indices, shape[0])
            # Rows depend on their index alone, so rows that are met twice do not depend on the order.
            rows = b.tf.cast(b.tf.reshape(at, [3] + [1] * (len(shape) - 1)), v.dtype.base_dtype) + b.tf.ones(
                [3, *shape[1:]], v.dtype.base_dtype
            )
            updated = getattr(b.tf, name)(v, at, rows)
            with b.tf.control_dependencies([updated]):
                made = b.tf.add(v.read_value(), b.tf.zeros([], v.dtype.base_dtype))
        b.effect(v, made.op)
        return made

    w.emit(f"{name} to variable {n}", make, [i], Type(dtype, shape))


def queue(w: Writer) -> None:
    i = w.pick(lambda t: t.dtype == "float32" and t.shape in ((4,), (3, 4)))
    assert i is not None
    t = w.types[i]
    many = len(t.shape) == 2
    if not w.queued:
        w.queued.append(1)

        def make_queue(b: Builder, value: Any) -> Any:
            with b.tf.device("/cpu:0"):
                b.queues.append(b.tf.FIFOQueue(10_000, [b.tf.float32], [[4]], name="queue"))
            return b.tf.identity(value)

        w.emit("queue", make_queue, [i], t)
    takes = 1 + w.c.below(2) if many else 1

    def make(b: Builder, value: Any) -> Any:
        queue = b.queues[0]
        with b.after_effects(queue):
            put = queue.enqueue_many([value]) if many else queue.enqueue([value])
            with b.tf.control_dependencies([put]):
                taken = queue.dequeue_many(takes) if takes > 1 else queue.dequeue()
        b.effect(queue, taken.op)
        return taken * 1.5

    w.emit("enqueue, dequeue", make, [i], Type("float32", (takes, 4) if takes > 1 else (4,)))


def cond(w: Writer) -> None:
    """A branch or its opposite over values of one type, with effects and another branch inside."""
    p = w.any_of("bool")
    if p is None:
        compare(w)
        p = w.any_of("bool")
    assert p is not None
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    n = variable(w) if w.c.below(2) and not w.stateless else None
    nested, queued = w.c.below(3) == 2, w.c.below(5) == 4 and bool(w.queued)
    kinds = [w.c.below(4), w.c.below(4)]
    seed = w.seed() if w.c.below(4) == 3 and not w.stateless else None

    def make(b: Builder, pred: Any, x: Any, y: Any) -> Any:
        tf = b.tf
        things = ([b.variables[n]] if n is not None else []) + (b.queues if queued else [])
        before = [o for thing in things for o in b.before.get(thing, [])]
        flag = tf.reduce_any(pred)

        def branch(kind: int, a: Any, c: Any, amount: int, inner: bool) -> Any:
            made = (a + c, a * 2, tf.identity(a), tf.maximum(a, c) - 1)[kind]
            effects = []
            if n is not None and kind != 2:
                v = b.variables[n]
                effects.append(
                    tf.assign_add(v, tf.fill(v.shape.as_list(), tf.cast(amount, v.dtype.base_dtype)))
                )
            if queued and kind == 0:
                put = b.queues[0].enqueue([tf.fill([4], float(amount))])
                with tf.control_dependencies([put]):
                    effects.append(tf.cast(tf.reduce_sum(b.queues[0].dequeue()), t.dtype))
            if seed is not None and kind == 1:
                made = made + tf.cast(tf.floor(4.0 * tf.random_uniform([], seed=seed)), t.dtype)
            if inner:
                made = tf.cond(
                    tf.reduce_sum(tf.cast(made, tf.float32)) > 3.0,
                    lambda: branch(1, made, c, 10, False),
                    lambda: branch(3, c, made, 20, False),
                )
            with tf.control_dependencies(effects):
                return tf.identity(made)

        with tf.control_dependencies(before):
            made = tf.cond(
                flag, lambda: branch(kinds[0], x, y, 1, nested), lambda: branch(kinds[1], y, x, 2, False)
            )
        for thing in things:
            b.effect(thing, made.op)
        return made

    w.emit(
        f"cond {kinds}{' nested' if nested else ''}{f' updates {n}' if n is not None else ''}"
        f"{' queued' if queued else ''}"
        f"{' random' if seed is not None else ''}",
        make,
        [p, i, j],
        t._replace(bound=None),
    )
