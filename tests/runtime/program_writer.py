"""What random programs are made of: values with a static type, instructions, steps.

Types are a dtype, a shape (where 'B' is the batch size, unknown to the graph) and, for floats, a bound if
they are whole numbers. Sums and products of whole numbers are exact in any order, so what adds many of them
up only ever meets those, and "equal" can mean every bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BATCH = "B"
Shape = tuple[Any, ...]
EXACT = 1 << 20
# The first words of instructions that come with effects.
EFFECTS = ("views of", "read", "assign", "scatter", "enqueue", "cond")


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
    """`make(builder, *inputs)` builds the nodes of one or more values, on number `device` of the devices."""

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
                f"  {names} = {made.text}({args})  # {', '.join(map(str, made.types))} on {made.device}"
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
    """What instructions share while a graph is built: variables, queues, what the next effects wait for."""

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


class Writer:
    """A program while it is decided: what its instructions pick from."""

    def __init__(self, choices: Choices, stateless: bool) -> None:
        self.c, self.program, self.stateless = choices, Program(), stateless
        self.types = self.program.types
        self.variables: list[tuple[str, Shape, bool]] = []  # dtype, shape, is_ref
        self.queued: list[int] = []
        # Values that effects come with. What takes one and waits for it does not wait where it is fed.
        self.effects: set[int] = set()
        self.seeds = 0

    def emit(self, text: str, make: Callable[..., Any], inputs: list[int], *types: Type) -> int:
        """The number of the first new value."""
        first = len(self.types)
        if text.startswith(EFFECTS):
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
