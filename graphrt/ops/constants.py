"""Const, and the nodes that stand for feeds and arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, program, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor


@op("Const() -> output: dtype", value="tensor", dtype="type")
class Const:
    """The value of the attr `value`."""

    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return TensorShape.of(s.attrs["value"].shape)

    def hoist(self, k: KernelContext) -> Any:
        value = k.attrs["value"]
        return value if k.xp is np else k.device.from_host(value)

    def compute(self, k: KernelContext) -> Any:
        return self.hoist(k)

    samples = [
        program(
            lambda tf: [
                tf.constant([[1.0, 2.0]]),
                tf.constant(["a", "bc"]),
                tf.constant(3, tf.int64),
                tf.constant(7.0, shape=[2, 2]),
                tf.constant(True),
            ]
        )
    ]


@op("Placeholder() -> output: dtype", dtype="type", shape="shape = unknown")
class Placeholder:
    """A tensor that must be fed."""

    unfoldable = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs["shape"]

    def compute(self, k: KernelContext) -> Any:
        raise InvalidArgumentError(
            None,
            None,
            f"You must feed a value for placeholder tensor '{k.name}' with dtype "
            f"{k.output_dtypes[0].name}"
            + _and_shape(k.attrs["shape"])
            + f": session.run(..., feed_dict={{'{k.name}:0': value}})",
        )

    samples = [
        program(
            lambda tf: [tf.shape(tf.placeholder_with_default([1.0, 2.0], [None]))],
            why="its value is a feed's",
        )
    ]


def _and_shape(shape: TensorShape) -> str:
    return "" if shape.sizes is None else f" and shape {shape}"


@op("PlaceholderV2() -> output: dtype", dtype="type", shape="shape")
class PlaceholderV2:
    """A tensor that must be fed; older GraphDefs have it."""

    unfoldable = True
    shape = type(Placeholder.impl).shape
    compute = type(Placeholder.impl).compute
    samples = [program(lambda tf: [tf.placeholder_with_default(1.0, [])], why="its value is a feed's")]


@op("PlaceholderWithDefault(input: dtype) -> output: dtype", dtype="type", shape="shape")
class PlaceholderWithDefault:
    """`input`, unless the output is fed."""

    aliases = (0,)
    unfoldable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        # What is fed may have any shape that the attr allows.
        return s.attrs["shape"]

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy

    samples = [sample(normal(2, 3), shape=[None, 3])]


@op("_Arg() -> output: T", T="type", index="int >= 0")
class Arg_:
    """Argument `index` of a function's body, or feed `index` of a step."""

    stateful = True

    def shape(self, s: ShapeContext) -> TensorShape:
        return s.attrs.get("_shape", UNKNOWN)

    samples = [
        program(lambda tf: [tf.placeholder_with_default([1.0], None) + 1.0], why="steps pass feeds by it")
    ]


@op("_Retval(input: T)", T="type", index="int >= 0")
class Retval_:
    """Result `index` of a function's body, or fetch `index` of a step."""

    stateful = True
    samples = [program(lambda tf: [tf.constant(1.0)], why="steps return fetches by it")]
