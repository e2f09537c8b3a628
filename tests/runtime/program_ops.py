"""Instructions without state: arithmetic, comparisons, reductions, views, and what joins and picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.runtime.program_writer import BATCH, EXACT, Builder, Shape, Type, Writer

_UNARY_FLOAT: list[tuple[str, Callable[..., Any], Callable[[int | None], int | None]]] = [
    ("neg", lambda b, x: -x, lambda m: m),
    ("abs", lambda b, x: b.tf.abs(x), lambda m: m),
    ("relu", lambda b, x: b.tf.nn.relu(x), lambda m: m),
    ("square", lambda b, x: b.tf.square(x), lambda m: None if m is None or m > 1000 else m * m),
    ("tanh", lambda b, x: b.tf.tanh(x), lambda m: None),
    ("exp", lambda b, x: b.tf.exp(b.tf.minimum(x, 3.0)), lambda m: None),
    ("sqrt", lambda b, x: b.tf.sqrt(b.tf.abs(x)), lambda m: None),
    ("sigmoid", lambda b, x: b.tf.sigmoid(x), lambda m: None),
    ("floor", lambda b, x: b.tf.floor(x), lambda m: m),
    ("times 1", lambda b, x: x * 1.0, lambda m: m),
    ("minus 0", lambda b, x: x - 0.0, lambda m: m),
    ("log1p", lambda b, x: b.tf.log1p(b.tf.abs(x)), lambda m: None),
]


def unary(w: Writer) -> None:
    i = w.any_of("float32")
    assert i is not None
    text, make, bound = _UNARY_FLOAT[w.c.below(len(_UNARY_FLOAT))]
    t = w.types[i]
    w.emit(text, make, [i], t._replace(bound=bound(t.bound)))


def added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None or a + b > EXACT else a + b


def larger(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def times(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None or a * b > EXACT else a * b


_BINARY: list[tuple[str, Callable[..., Any], Callable[[Any, Any], Any], bool]] = [
    ("add", lambda b, x, y: x + y, added, True),
    ("sub", lambda b, x, y: x - y, added, True),
    ("mul", lambda b, x, y: x * y, times, True),
    ("maximum", lambda b, x, y: b.tf.maximum(x, y), larger, True),
    ("minimum", lambda b, x, y: b.tf.minimum(x, y), larger, True),
    ("div", lambda b, x, y: x / (b.tf.abs(y) + 1.0), lambda m, n: None, False),
    ("squared_difference", lambda b, x, y: b.tf.squared_difference(x, y), lambda m, n: None, False),
]


def broadcasts(a: Shape, b: Shape) -> Shape | None:
    """The shape of both together, where it is the same for every batch size."""
    made: list[Any] = []
    for i in range(max(len(a), len(b))):
        x = a[-1 - i] if i < len(a) else 1
        y = b[-1 - i] if i < len(b) else 1
        if x != y and 1 not in (x, y):
            return None
        made.append(y if x == 1 else x)
    return tuple(made[::-1])


def binary(w: Writer) -> None:
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and broadcasts(t.shape, o.shape) is not None)
    assert j is not None
    text, make, bound, for_integers = _BINARY[w.c.below(len(_BINARY))]
    o = w.types[j]
    shape = broadcasts(t.shape, o.shape)
    assert shape is not None
    if t.dtype == "int32":
        if for_integers:
            w.emit(text, make, [i, j], Type("int32", shape))
    else:
        w.emit(text, make, [i, j], Type("float32", shape, bound(t.bound, o.bound)))


def compare(w: Writer) -> None:
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    name = ("less", "greater_equal", "equal", "not_equal")[w.c.below(4)]
    w.emit(name, lambda b, x, y: getattr(b.tf, name)(x, y), [i, j], Type("bool", t.shape))


def logical(w: Writer) -> None:
    i = w.any_of("bool")
    if i is None:
        return compare(w)
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == "bool" and o.shape == t.shape)
    assert j is not None
    which = w.c.below(3)
    if which == 2:
        w.emit("logical_not", lambda b, x: b.tf.logical_not(x), [i], t)
    else:
        name = ("logical_and", "logical_or")[which]
        w.emit(name, lambda b, x, y: getattr(b.tf, name)(x, y), [i, j], t)


def cast(w: Writer) -> None:
    i = w.any_of("float32", "int32", "bool")
    assert i is not None
    t = w.types[i]
    if t.dtype == "float32":
        w.emit(
            "to int",
            lambda b, x: b.tf.cast(b.tf.minimum(b.tf.maximum(x, -99.0), 99.0), b.tf.int32),
            [i],
            Type("int32", t.shape),
        )
    elif t.dtype == "int32":
        w.emit(
            "to float",
            lambda b, x: b.tf.cast(b.tf.floormod(x, 32), b.tf.float32),
            [i],
            Type("float32", t.shape, 32),
        )
    elif w.c.below(2):
        w.emit("to int", lambda b, x: b.tf.cast(x, b.tf.int32), [i], Type("int32", t.shape))
    else:
        w.emit("to float", lambda b, x: b.tf.cast(x, b.tf.float32), [i], Type("float32", t.shape, 1))


def select(w: Writer) -> None:
    i = w.any_of("bool")
    if i is None:
        return compare(w)
    t = w.types[i]
    j = w.pick(lambda o: o.dtype != "bool" and o.shape == t.shape)
    if j is None:
        return
    k = w.pick(lambda o: o.dtype == w.types[j].dtype and o.shape == t.shape)
    assert k is not None
    bound = larger(w.types[j].bound, w.types[k].bound)
    w.emit("where", lambda b, c, x, y: b.tf.where(c, x, y), [i, j, k], w.types[j]._replace(bound=bound))


def matmul(w: Writer) -> None:
    i = w.pick(lambda t: t.dtype == "float32" and len(t.shape) == 2)
    assert i is not None
    inner = w.types[i].shape[1]
    turned = w.c.below(2) == 1
    j = w.pick(lambda t: t.dtype == "float32" and len(t.shape) == 2 and t.shape[1 if turned else 0] == inner)
    if j is None:
        shape = (2, inner) if turned else (inner, 2)
        if inner == BATCH:
            return
        value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) % 5
        j = w.emit("constant", lambda b: b.tf.constant(value), [], Type("float32", shape, 5))
    i, j = w.whole(i), w.whole(j)
    outer = w.types[j].shape[0 if turned else 1]
    w.emit(
        f"matmul{'ᵀ' if turned else ''}",
        lambda b, x, y: b.tf.matmul(x, y, transpose_b=turned),
        [i, j],
        Type("float32", (w.types[i].shape[0], outer), 1 << 15),
    )


def reduce(w: Writer) -> None:
    i = w.any_of("float32", "int32", "bool")
    assert i is not None
    t = w.types[i]
    if not t.shape:
        return
    names = {
        "float32": ("reduce_sum", "reduce_max", "reduce_mean", "reduce_min"),
        "int32": ("reduce_sum", "reduce_max"),
        "bool": ("reduce_any", "reduce_all"),
    }[t.dtype]
    name = names[w.c.below(len(names))]
    axes = [list(range(len(t.shape))), [0], [len(t.shape) - 1], []][w.c.below(4)]
    keep = w.c.below(2) == 1
    if name in ("reduce_max", "reduce_min", "reduce_mean"):
        w.program.needs_a_batch = True
    i = w.whole(i)
    shape = tuple(1 if at in axes else d for at, d in enumerate(t.shape) if keep or at not in axes)
    bound = (
        w.types[i].bound
        if name in ("reduce_max", "reduce_min")
        else 1 << 15
        if name == "reduce_sum"
        else None
    )
    w.emit(
        f"{name}{axes}{'+' if keep else ''}",
        lambda b, x: getattr(b.tf, name)(x, axes, keepdims=keep),
        [i],
        Type(t.dtype, shape, bound if t.dtype == "float32" else None),
    )


def argmax(w: Writer) -> None:
    i = w.pick(lambda t: t.dtype == "float32" and bool(t.shape) and t.shape[-1] not in (BATCH, 0))
    if i is not None:
        w.emit(
            "argmax",
            lambda b, x: b.tf.argmax(x, -1, output_type=b.tf.int32),
            [i],
            Type("int32", w.types[i].shape[:-1]),
        )


def view(w: Writer) -> None:
    i = w.any_of("float32", "int32", "bool")
    assert i is not None
    t = w.types[i]
    rank = len(t.shape)
    which = w.c.below(11)
    if which == 0 and rank >= 2:
        order = list(range(rank))[::-1]
        w.emit("transpose", lambda b, x: b.tf.transpose(x, order), [i], t._replace(shape=t.shape[::-1]))
    elif which == 1:
        w.emit("expand_dims", lambda b, x: b.tf.expand_dims(x, 0), [i], t._replace(shape=(1, *t.shape)))
    elif which == 2 and 1 in t.shape:
        at = t.shape.index(1)
        w.emit(
            "squeeze",
            lambda b, x: b.tf.squeeze(x, [at]),
            [i],
            t._replace(shape=t.shape[:at] + t.shape[at + 1 :]),
        )
    elif which == 3 and BATCH not in t.shape:
        size = int(np.prod(t.shape, dtype=int))
        shape = ((size,), (1, size), (size, 1), (2, size // 2) if size % 2 == 0 else (size,))[w.c.below(4)]
        w.emit(f"reshape{list(shape)}", lambda b, x: b.tf.reshape(x, shape), [i], t._replace(shape=shape))
    elif which == 4 and rank and t.shape[-1] not in (BATCH, 0, 1):
        n = t.shape[-1]
        w.emit("[..., 1:]", lambda b, x: x[..., 1:], [i], t._replace(shape=(*t.shape[:-1], n - 1)))
    elif which == 5 and rank:
        w.emit("[::-1]", lambda b, x: x[::-1], [i], t)
    elif which == 6 and rank and t.shape[-1] not in (BATCH, 0):
        n = t.shape[-1]
        w.emit("[..., ::2]", lambda b, x: x[..., ::2], [i], t._replace(shape=(*t.shape[:-1], (n + 1) // 2)))
    elif which == 7 and rank and t.shape[0] not in (BATCH, 0):
        w.emit("[0]", lambda b, x: x[0], [i], t._replace(shape=t.shape[1:]))
    elif which == 8:
        w.emit("identity", lambda b, x: b.tf.identity(x), [i], t)
    elif which == 9 and rank == 2:
        # The shape is known when it runs.
        w.emit(
            "reshape to its shape", lambda b, x: b.tf.reshape(b.tf.reshape(x, [-1]), b.tf.shape(x)), [i], t
        )
    else:
        w.emit("[None]", lambda b, x: x[None], [i], t._replace(shape=(1, *t.shape)))


def join(w: Writer) -> None:
    i = w.any_of("float32", "int32", "bool")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    bound = larger(t.bound, w.types[j].bound)
    if w.c.below(2) and t.shape and t.shape[-1] != BATCH:
        w.emit(
            "concat",
            lambda b, x, y: b.tf.concat([x, y], -1),
            [i, j],
            Type(t.dtype, (*t.shape[:-1], 2 * t.shape[-1]), bound),
        )
    else:
        w.emit("stack", lambda b, x, y: b.tf.stack([x, y]), [i, j], Type(t.dtype, (2, *t.shape), bound))


def unstack(w: Writer) -> None:
    i = w.pick(lambda t: bool(t.shape) and t.shape[0] in (2, 3, 4))
    if i is not None:
        t = w.types[i]
        part = t._replace(shape=t.shape[1:])
        w.emit("unstack", lambda b, x: b.tf.unstack(x), [i], *[part] * t.shape[0])


def split(w: Writer) -> None:
    i = w.pick(lambda t: bool(t.shape) and t.shape[-1] in (2, 4, 6, 8))
    if i is not None:
        t = w.types[i]
        part = t._replace(shape=(*t.shape[:-1], t.shape[-1] // 2))
        w.emit("split", lambda b, x: b.tf.split(x, 2, -1), [i], part, part)


def gather(w: Writer) -> None:
    i = w.pick(lambda t: bool(t.shape) and t.shape[0] not in (BATCH, 0))
    j = w.any_of("int32")
    if i is None or j is None:
        return
    t, n = w.types[i], w.types[i].shape[0]
    if len(t.shape) + len(w.types[j].shape) > 5:
        return
    w.emit(
        "gather",
        lambda b, x, at: b.tf.gather(x, b.tf.floormod(at, n)),
        [i, j],
        t._replace(shape=(*w.types[j].shape, *t.shape[1:])),
    )


def like(w: Writer) -> None:
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    which = w.c.below(6)
    if which == 0:
        w.emit(
            "zeros_like",
            lambda b, x: b.tf.zeros_like(x),
            [i],
            t._replace(bound=0 if t.dtype == "float32" else None),
        )
    elif which == 1:
        w.emit("fill", lambda b, x: b.tf.fill(b.tf.shape(x), 2.0), [i], Type("float32", t.shape, 2))
    elif which == 2:
        w.emit("shape", lambda b, x: b.tf.shape(x), [i], Type("int32", (len(t.shape),)))
    elif which == 3:
        w.emit("size", lambda b, x: b.tf.size(x), [i], Type("int32", ()))
    elif which == 4 and t.shape and t.shape[-1] != BATCH:
        w.emit(
            "tile",
            lambda b, x: b.tf.tile(x, [1] * (len(t.shape) - 1) + [2]),
            [i],
            t._replace(shape=(*t.shape[:-1], 2 * t.shape[-1])),
        )
    elif t.shape and t.shape[-1] != BATCH:
        w.emit(
            "pad",
            lambda b, x: b.tf.pad(x, [[0, 0]] * (len(t.shape) - 1) + [[1, 0]]),
            [i],
            t._replace(shape=(*t.shape[:-1], t.shape[-1] + 1)),
        )


def constant(w: Writer) -> None:
    which = w.c.below(3)
    shape: Shape = ((4,), (), (3, 4))[w.c.below(3)]
    size = int(np.prod(shape, dtype=int))
    if which == 2:
        flags = (np.arange(size) % 2 == w.c.below(2)).reshape(shape)
        w.emit("constant", lambda b: b.tf.constant(flags), [], Type("bool", shape))
    else:
        dtype = ("float32", "int32")[which]
        value = (np.arange(size) - w.c.below(4)).astype(dtype).reshape(shape)
        w.emit(
            f"constant {value.tolist()}",
            lambda b: b.tf.constant(value),
            [],
            Type(dtype, shape, 16 if which == 0 else None),
        )


def mask(w: Writer) -> None:
    """A shape that data decide, summed at once."""
    i = w.pick(lambda t: t.dtype == "float32" and bool(t.shape))
    assert i is not None
    i = w.whole(i)
    w.emit(
        "masked sum",
        lambda b, x: b.tf.reduce_sum(b.tf.boolean_mask(b.tf.abs(x) * 2.0, x > 0.0) + 1.0),
        [i],
        Type("float32", (), 1 << 15),
    )


def cumsum(w: Writer) -> None:
    i = w.pick(lambda t: t.dtype in ("float32", "int32") and bool(t.shape))
    assert i is not None
    i = w.whole(i)
    w.emit("cumsum", lambda b, x: b.tf.cumsum(x), [i], w.types[i]._replace(bound=1 << 12))


def waits(w: Writer) -> None:
    i, j = w.any_of("float32", "int32", "bool"), w.any_of("float32", "int32", "bool")
    assert i is not None and j is not None

    def make(b: Builder, x: Any, y: Any) -> Any:
        with b.tf.control_dependencies([y]):
            return b.tf.identity(x)

    w.emit("identity after", make, [i, j], w.types[i])
