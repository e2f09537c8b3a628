"""Samples: what the tests try an op on.

    samples = [sample(normal(4, 10)), sample(empty(0, 7)), sample(normal(3), positive(3), why="…",
    gradient=False)]

A sample is cheap to write down: arrays are drawn when a test asks. For ops with state a sample is a program:
`program(build)`, where `build(tf)` is given graphrt or TensorFlow's compat.v1 and returns a list of steps,
each a fetch or a list of fetches, run in order in one session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphrt.core.dtypes import as_dtype


@dataclass(frozen=True)
class Draw:
    """An array to be drawn: `kind` is normal, uniform, positive, ints, bools or empty."""

    kind: str
    shape: tuple[int, ...]
    dtype: Any = "float32"
    low: float = 0.0
    high: float = 1.0
    scale: float = 1.0

    def __mul__(self, factor: float) -> Draw:
        return Draw(self.kind, self.shape, self.dtype, self.low, self.high, self.scale * factor)

    def of(self, dtype: Any) -> Draw:
        """The same draw in another dtype."""
        return Draw(self.kind, self.shape, dtype, self.low, self.high, self.scale)

    def array(self, seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed, *self.shape])
        if self.kind == "normal":
            made = rng.standard_normal(self.shape)
            if as_dtype(self.dtype).is_complex:
                made = made + 1j * rng.standard_normal(self.shape)
        elif self.kind in ("uniform", "positive"):
            made = rng.uniform(self.low, self.high, self.shape)
        elif self.kind == "ints":
            made = rng.integers(int(self.low), int(self.high), self.shape)
        elif self.kind == "bools":
            return rng.integers(0, 2, self.shape).astype(bool)
        else:
            made = np.zeros(self.shape)
        return np.asarray(made * self.scale if self.scale != 1.0 else made).astype(as_dtype(self.dtype).np)


@dataclass(frozen=True)
class Later:
    """An array that a function computes when a test asks."""

    compute: Callable[[], np.ndarray]

    def array(self, seed: int) -> np.ndarray:
        return self.compute()


def normal(*shape: int, dtype: Any = "float32") -> Draw:
    """Standard normal; complex dtypes get both parts."""
    return Draw("normal", shape, dtype)


def uniform(*shape: int, low: float = -1.0, high: float = 1.0, dtype: Any = "float32") -> Draw:
    return Draw("uniform", shape, dtype, low, high)


def positive(*shape: int, dtype: Any = "float32") -> Draw:
    """Uniform in [0.5, 2): for logarithms, roots and divisors."""
    return Draw("positive", shape, dtype, 0.5, 2.0)


def ints(*shape: int, low: int = 0, high: int = 10, dtype: Any = "int32") -> Draw:
    """Integers in [low, high)."""
    return Draw("ints", shape, dtype, low, high)


def bools(*shape: int) -> Draw:
    return Draw("bools", shape, "bool")


def empty(*shape: int, dtype: Any = "float32") -> Draw:
    """Zeros; meant for shapes with a size of 0."""
    return Draw("empty", shape, dtype)


@dataclass
class Sample:
    """Inputs and attrs of one call.

    Attributes:
      inputs: in signature order: Draws, arrays or Python values; a list for a sequence argument.
      attrs: by name; those that inputs decide are inferred.
      why: what it guards.
      gradient: compare the op's gradient with TensorFlow's and the numeric one (float inputs, where it has
      one).
      numeric: compare it with the numeric gradient too; False at kinks, and where it is TensorFlow's
      convention. rtol, atol: tolerances of values against TensorFlow; None is the dtype's default.
      tensorflow: False where TensorFlow's CPU kernel cannot run it, with the reason in `why`.
      constant_inputs: flat inputs whose value the shape rule needs, fed as constants.
    """

    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    gradient: bool = True
    numeric: bool = True
    rtol: float | None = None
    atol: float | None = None
    tensorflow: bool = True

    def arrays(self) -> list[Any]:
        """The inputs as arrays, the same at every call."""

        def draw(value: Any, i: int) -> Any:
            if isinstance(value, (Draw, Later)):
                return value.array(i)
            if isinstance(value, np.ndarray):
                return value
            from graphrt.core.convert import make_array

            return make_array(value)

        return [
            [draw(v, 100 * i + j) for j, v in enumerate(value)]
            if isinstance(value, list) and any(isinstance(v, (Draw, Later, np.ndarray)) for v in value)
            else draw(value, i)
            for i, value in enumerate(self.inputs)
        ]


def sample(
    *inputs: Any,
    why: str = "",
    gradient: bool = True,
    numeric: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    tensorflow: bool = True,
    **attrs: Any,
) -> Sample:
    return Sample(inputs, attrs, why, gradient, numeric, rtol, atol, tensorflow)


@dataclass
class Program:
    """A sample that is a small program: `build(tf)` returns the steps to run."""

    build: Callable[[Any], list[Any]]
    why: str = ""
    rtol: float | None = None
    tensorflow: bool = True


def program(
    build: Callable[[Any], list[Any]], why: str = "", rtol: float | None = None, tensorflow: bool = True
) -> Program:
    return Program(build, why, rtol, tensorflow)


def text(*items: Any) -> np.ndarray:
    """A string vector."""
    made = np.empty(len(items), dtype=object)
    made[:] = [i.encode() if isinstance(i, str) else i for i in items]
    return made


__all__ = [
    "Draw",
    "Later",
    "Program",
    "Sample",
    "bools",
    "empty",
    "ints",
    "normal",
    "positive",
    "program",
    "sample",
    "text",
    "uniform",
]
