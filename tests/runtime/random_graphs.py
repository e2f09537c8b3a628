"""Random programs for the engine's properties: the same program can be built on any assignment of devices.

`program(choices)` decides a program from bytes (0 is always the plainest choice, so that shrinking bytes shrinks programs);
`Program.build` makes it a graph. Values have a static type: dtype, shape (where 'B' is the batch size, unknown to the graph)
and, for floats, a bound if they are whole numbers. Sums and products of whole numbers are exact in any order, so what
adds many of them up only ever meets those, and "equal" can mean every bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

BATCH = "B"
Shape = tuple[Any, ...]
_EXACT = 1 << 20


class Type(NamedTuple):
    """`bound`: floats are whole numbers up to it; None where they are not."""

    dtype: str
    shape: Shape
    bound: int | None = None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Choices:
    """Decisions out of bytes; 0 once they are used up."""

    def __init__(self, source: bytes) -> None:
        self._source, self._at = source, 0

    def below(self, n: int) -> int:
        if self._at >= len(self._source):
            return 0
        self._at += 1
        return self._source[self._at - 1] % n

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._source)


class Instruction(NamedTuple):
    """`make(builder, *inputs)` builds the nodes of one or more values, on device number `device` of the assignment."""

    text: str
    make: Callable[..., Any]
    inputs: list[int]
    types: list[Type]
    device: int


class Step(NamedTuple):
    """One `Session.run`: values to fetch, inner values to feed, the batch size."""

    fetches: list[int]
    feeds: list[int]
    batch: int


@dataclass
class Program:
    instructions: list[Instruction] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    needs_a_batch: bool = False

    def __repr__(self) -> str:
        lines, at = [], 0
        for made in self.instructions:
            names = ", ".join(f"v{at + i}" for i in range(len(made.types)))
            at += len(made.types)
            args = ", ".join(f"v{i}" for i in made.inputs)
            lines.append(
                f"  {names} = {made.text}({args})  # {', '.join(map(str, made.types))} on device {made.device}"
            )
        return "\n".join(["Program:", *lines, *(f"  {s}" for s in self.steps)])

    def build(self, tf: Any, devices: list[str]) -> list[Any]:
        """Its tensors by number, in the default graph."""
        tf.set_random_seed(17)
        builder = Builder(tf)
        values: list[Any] = []
        for made in self.instructions:
            with tf.device(devices[made.device % len(devices)]):
                outputs = made.make(builder, *[values[i] for i in made.inputs])
            values += list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return values


class Builder:
    """What instructions share while a graph is built: variables, queues, and what the next effect on each waits for."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.variables: list[Any] = []
        self.queues: list[Any] = []
        self.before: dict[Any, list[Any]] = {}

    def after_effects(self, thing: Any) -> Any:
        return self.tf.control_dependencies(self.before.get(thing, []))

    def effect(self, thing: Any, *operations: Any) -> None:
        self.before[thing] = list(operations)

    def reader(self, thing: Any, *operations: Any) -> None:
        self.before.setdefault(thing, []).extend(operations)


# -- deciding a program ------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, choices: Choices, stateless: bool) -> None:
        self.c, self.program, self.stateless = choices, Program(), stateless
        self.types = self.program.types
        self.variables: list[tuple[str, Shape, bool]] = []  # dtype, shape, is_ref
        self.queued: list[int] = []
        # Values that effects come with. What waits for one and takes it too waits for nothing where it is fed.
        self.effects: set[int] = set()
        self.seeds = 0

    def emit(self, text: str, make: Callable[..., Any], inputs: list[int], *types: Type) -> int:
        """The number of the first new value."""
        first = len(self.types)
        if text.startswith(_EFFECTS):
            self.effects.update(range(first, first + len(types)))
        self.program.instructions.append(Instruction(text, make, inputs, list(types), self.c.below(4)))
        self.types.extend(types)
        return first

    def pick(self, fits: Callable[[Type], bool]) -> int | None:
        found = [i for i, t in enumerate(self.types) if fits(t)]
        return found[-1 - self.c.below(len(found))] if found else None

    def any_of(self, *dtypes: str) -> int | None:
        return self.pick(lambda t: t.dtype in dtypes)

    def whole(self, i: int) -> int:
        """A value of small whole numbers in place of value i."""
        t = self.types[i]
        if t.dtype != "float32" or t.bound is not None and t.bound <= 64:
            return i
        return self.emit(
            "whole",
            lambda b, x: b.tf.floor(b.tf.minimum(b.tf.maximum(x, -16.0), 16.0)),
            [i],
            t._replace(bound=16),
        )

    def seed(self) -> int:
        self.seeds += 1
        return self.seeds


def program(source: bytes, stateless: bool = False) -> Program:
    """The program that these bytes decide; without variables, queues and random numbers where it is to be `stateless`."""
    w = _Writer(Choices(source), stateless)
    w.emit(
        "placeholder", lambda b: b.tf.placeholder(b.tf.float32, [None, 4]), [], Type("float32", (BATCH, 4))
    )
    w.emit("placeholder", lambda b: b.tf.placeholder(b.tf.int32, [3]), [], Type("int32", (3,)))
    w.emit("placeholder", lambda b: b.tf.placeholder(b.tf.float32, [3, 4]), [], Type("float32", (3, 4)))
    size = 3 + w.c.below(14)
    for _ in range(size):
        generator = _GENERATORS[w.c.below(len(_GENERATORS))]
        if not (stateless and generator in _STATEFUL):
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


# -- what a program may hold --------------------------------------------------------------------------------

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


def _unary(w: _Writer) -> None:
    i = w.any_of("float32")
    assert i is not None
    text, make, bound = _UNARY_FLOAT[w.c.below(len(_UNARY_FLOAT))]
    t = w.types[i]
    w.emit(text, make, [i], t._replace(bound=bound(t.bound)))


def _added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None or a + b > _EXACT else a + b


def _larger(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _times(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None or a * b > _EXACT else a * b


_BINARY: list[tuple[str, Callable[..., Any], Callable[[Any, Any], Any], bool]] = [
    ("add", lambda b, x, y: x + y, _added, True),
    ("sub", lambda b, x, y: x - y, _added, True),
    ("mul", lambda b, x, y: x * y, _times, True),
    ("maximum", lambda b, x, y: b.tf.maximum(x, y), _larger, True),
    ("minimum", lambda b, x, y: b.tf.minimum(x, y), _larger, True),
    ("div", lambda b, x, y: x / (b.tf.abs(y) + 1.0), lambda m, n: None, False),
    ("squared_difference", lambda b, x, y: b.tf.squared_difference(x, y), lambda m, n: None, False),
]


def _broadcasts(a: Shape, b: Shape) -> Shape | None:
    """The shape of both together, where it is the same for every batch size."""
    made: list[Any] = []
    for i in range(max(len(a), len(b))):
        x = a[-1 - i] if i < len(a) else 1
        y = b[-1 - i] if i < len(b) else 1
        if x != y and 1 not in (x, y):
            return None
        made.append(y if x == 1 else x)
    return tuple(made[::-1])


def _binary(w: _Writer) -> None:
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and _broadcasts(t.shape, o.shape) is not None)
    assert j is not None
    text, make, bound, for_integers = _BINARY[w.c.below(len(_BINARY))]
    o = w.types[j]
    shape = _broadcasts(t.shape, o.shape)
    assert shape is not None
    if t.dtype == "int32":
        if for_integers:
            w.emit(text, make, [i, j], Type("int32", shape))
    else:
        w.emit(text, make, [i, j], Type("float32", shape, bound(t.bound, o.bound)))


def _compare(w: _Writer) -> None:
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    name = ("less", "greater_equal", "equal", "not_equal")[w.c.below(4)]
    w.emit(name, lambda b, x, y: getattr(b.tf, name)(x, y), [i, j], Type("bool", t.shape))


def _logical(w: _Writer) -> None:
    i = w.any_of("bool")
    if i is None:
        return _compare(w)
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == "bool" and o.shape == t.shape)
    assert j is not None
    which = w.c.below(3)
    if which == 2:
        w.emit("logical_not", lambda b, x: b.tf.logical_not(x), [i], t)
    else:
        name = ("logical_and", "logical_or")[which]
        w.emit(name, lambda b, x, y: getattr(b.tf, name)(x, y), [i, j], t)


def _cast(w: _Writer) -> None:
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


def _select(w: _Writer) -> None:
    i = w.any_of("bool")
    if i is None:
        return _compare(w)
    t = w.types[i]
    j = w.pick(lambda o: o.dtype != "bool" and o.shape == t.shape)
    if j is None:
        return
    k = w.pick(lambda o: o.dtype == w.types[j].dtype and o.shape == t.shape)
    assert k is not None
    bound = _larger(w.types[j].bound, w.types[k].bound)
    w.emit("where", lambda b, c, x, y: b.tf.where(c, x, y), [i, j, k], w.types[j]._replace(bound=bound))


def _matmul(w: _Writer) -> None:
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


def _reduce(w: _Writer) -> None:
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


def _argmax(w: _Writer) -> None:
    i = w.pick(lambda t: t.dtype == "float32" and bool(t.shape) and t.shape[-1] not in (BATCH, 0))
    if i is not None:
        w.emit(
            "argmax",
            lambda b, x: b.tf.argmax(x, -1, output_type=b.tf.int32),
            [i],
            Type("int32", w.types[i].shape[:-1]),
        )


def _view(w: _Writer) -> None:
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


def _join(w: _Writer) -> None:
    i = w.any_of("float32", "int32", "bool")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    bound = _larger(t.bound, w.types[j].bound)
    if w.c.below(2) and t.shape and t.shape[-1] != BATCH:
        w.emit(
            "concat",
            lambda b, x, y: b.tf.concat([x, y], -1),
            [i, j],
            Type(t.dtype, (*t.shape[:-1], 2 * t.shape[-1]), bound),
        )
    else:
        w.emit("stack", lambda b, x, y: b.tf.stack([x, y]), [i, j], Type(t.dtype, (2, *t.shape), bound))


def _unstack(w: _Writer) -> None:
    i = w.pick(lambda t: bool(t.shape) and t.shape[0] in (2, 3, 4))
    if i is not None:
        t = w.types[i]
        part = t._replace(shape=t.shape[1:])
        w.emit("unstack", lambda b, x: b.tf.unstack(x), [i], *[part] * t.shape[0])


def _split(w: _Writer) -> None:
    i = w.pick(lambda t: bool(t.shape) and t.shape[-1] in (2, 4, 6, 8))
    if i is not None:
        t = w.types[i]
        part = t._replace(shape=(*t.shape[:-1], t.shape[-1] // 2))
        w.emit("split", lambda b, x: b.tf.split(x, 2, -1), [i], part, part)


def _gather(w: _Writer) -> None:
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


def _like(w: _Writer) -> None:
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


def _constant(w: _Writer) -> None:
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


def _mask(w: _Writer) -> None:
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


def _cumsum(w: _Writer) -> None:
    i = w.pick(lambda t: t.dtype in ("float32", "int32") and bool(t.shape))
    assert i is not None
    i = w.whole(i)
    w.emit("cumsum", lambda b, x: b.tf.cumsum(x), [i], w.types[i]._replace(bound=1 << 12))


def _waits(w: _Writer) -> None:
    i, j = w.any_of("float32", "int32", "bool"), w.any_of("float32", "int32", "bool")
    assert i is not None and j is not None

    def make(b: Builder, x: Any, y: Any) -> Any:
        with b.tf.control_dependencies([y]):
            return b.tf.identity(x)

    w.emit("identity after", make, [i, j], w.types[i])


# -- state --------------------------------------------------------------------------------------------------


def _random(w: _Writer) -> None:
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


def _variable(w: _Writer) -> int:
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


def _read(w: _Writer) -> None:
    n = _variable(w)
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


def _updated(b: Builder, n: int, kind: int, value: Any) -> Any:
    """The operation that updates variable n with `value`."""
    v = b.variables[n]
    name = ("assign", "assign_add", "assign_sub")[kind % 3]
    return getattr(b.tf, name)(v, value)


def _update(w: _Writer) -> None:
    n = _variable(w)
    dtype, shape, _ = w.variables[n]
    i = w.pick(lambda t: t.dtype == dtype and t.shape == shape)
    assert i is not None
    kind = w.c.below(3)
    if kind and dtype == "float32":
        i = w.whole(i)

    def make(b: Builder, value: Any) -> Any:
        v = b.variables[n]
        with b.after_effects(v):
            updated = _updated(b, n, kind, value)
            # What is given on is a copy of now: later updates do not show in it.
            with b.tf.control_dependencies([updated]):
                made = b.tf.add(v.read_value(), b.tf.ones([], v.dtype.base_dtype))
        b.effect(v, made.op)
        return made

    w.emit(f"{('assign', 'assign_add', 'assign_sub')[kind]} to variable {n}", make, [i], Type(dtype, shape))


def _scatter(w: _Writer) -> None:
    n = _variable(w)
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


def _queue(w: _Writer) -> None:
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


def _cond(w: _Writer) -> None:
    """A branch or its opposite over values of one type, with effects and another branch inside."""
    p = w.any_of("bool")
    if p is None:
        _compare(w)
        p = w.any_of("bool")
    assert p is not None
    i = w.any_of("float32", "int32")
    assert i is not None
    t = w.types[i]
    j = w.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    assert j is not None
    n = _variable(w) if w.c.below(2) and not w.stateless else None
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
        f"cond {kinds}{' nested' if nested else ''}{f' updates {n}' if n is not None else ''}{' queued' if queued else ''}"
        f"{' random' if seed is not None else ''}",
        make,
        [p, i, j],
        t._replace(bound=None),
    )


_GENERATORS: list[Callable[[_Writer], Any]] = [
    _unary,
    _binary,
    _view,
    _constant,
    _reduce,
    _matmul,
    _join,
    _cond,
    _read,
    _update,
    _select,
    _compare,
    _gather,
    _like,
    _cast,
    _unary,
    _binary,
    _view,
    _scatter,
    _random,
    _queue,
    _cond,
    _update,
    _unstack,
    _split,
    _mask,
    _logical,
    _cumsum,
    _argmax,
    _waits,
]
# The first words of instructions that come with effects.
_EFFECTS = ("views of", "read", "assign", "scatter", "enqueue", "cond")
_STATEFUL = (_read, _update, _scatter, _random, _queue)
