"""Tensors as readable text: StringFormat, Print and PrintV2."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType, string
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.file_access import confined
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, normal, program, sample, text
from graphrt.core.shapes import SCALAR, TensorShape
from graphrt.ops.strings import scalar_text

_ESCAPES = {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord('"'): '\\"',
    ord("'"): "\\'",
    ord("\\"): "\\\\",
}


def _escaped(item: bytes) -> str:
    return "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in item)


def _shortest(value: Any, digits: int, more: int, kind: Any) -> str:
    """%g with `digits` significant digits, or with `more` where those do not give the value back."""
    made = f"%.{digits}g" % value
    return made if kind(float(made)) == kind(value) or value != value else f"%.{more}g" % value


def writer(dtype: DType, quotes: bool) -> Callable[[Any], str]:
    """A function that writes one element (a Python value) as TensorFlow does."""
    if dtype is string:
        if quotes:
            return lambda v: f'"{_escaped(v)}"'
        return lambda v: v.decode("utf-8", "backslashreplace")
    if dtype.is_bool:
        return lambda v: "1" if v else "0"
    if dtype.name == "float64":
        return lambda v: _shortest(v, 15, 17, float)
    if dtype.is_floating:
        with np.errstate(over="ignore"):
            return lambda v: _shortest(v, 6, 9, np.float32)
    return str if dtype.is_integer or dtype.is_quantized else lambda v: "?"


def _elements(array: Any, dtype: DType) -> list[Any]:
    flat = array.reshape(-1)
    return (flat.astype(np.float64) if dtype.is_floating else flat).tolist()


def summary(array: Any, dtype: DType, summarize: int) -> str:
    """`array` in nested brackets; of each dimension the first and last `summarize` items, all where that is
    negative."""
    items = _elements(array, dtype)
    ends = len(items) if summarize < 0 else min(summarize, len(items))
    write, shape = writer(dtype, quotes=True), array.shape
    rank = len(shape)

    def part(axis: int, first: int) -> str:
        if axis == rank:
            return write(items[first])
        stride = math.prod(shape[axis + 1 :])
        size = shape[axis]
        gap = " " if axis == rank - 1 else "\n" * (rank - axis - 1) + " " * (axis + 1)
        shown = [part(axis + 1, first + i * stride) for i in range(min(ends, size))]
        dots = size > 2 * ends
        tail = [part(axis + 1, first + i * stride) for i in range(max(ends, size - ends), size)]
        # TensorFlow puts the gap before the dots also where nothing stands before them.
        middle = gap + "..." if dots else ""
        return "[" + gap.join(shown) + middle + "".join(gap + t for t in tail) + "]"

    return part(0, 0)


def flat_summary(array: Any, dtype: DType, summarize: int) -> str:
    """`array` in nested brackets without the outermost pair: its first `summarize` elements, then dots."""
    items = _elements(array, dtype)
    limit = len(items) if summarize < 0 else min(summarize, len(items))
    write, shape = writer(dtype, quotes=False), array.shape
    made: list[str] = []
    at = 0

    def part(axis: int) -> None:
        nonlocal at
        for i in range(shape[axis]):
            if at >= limit:
                if axis == len(shape) - 1 and axis:
                    made.append("...")
                return
            if axis == len(shape) - 1:
                made.append((" " if i else "") + write(items[at]))
                at += 1
            else:
                made.append("[")
                part(axis + 1)
                made.append("]")

    if shape:
        part(0)
    else:
        made += [write(i) for i in items[:limit]]
    return "".join(made) + ("..." if len(items) > limit else "")


@op(
    "StringFormat(inputs: list(T)) -> output: string",
    T="list(type) >= 0",
    template="string = '%s'",
    placeholder="string = '%s'",
    summarize="int = 3",
)
class StringFormat:
    """`template` with each `placeholder` replaced by one of `inputs`, in order."""

    cpu_only = True

    def shape(self, s: ShapeContext, inputs: list[TensorShape]) -> TensorShape:
        parts = s.attrs["template"].split(s.attrs["placeholder"])
        if len(parts) != len(inputs) + 1:
            raise ValueError(
                f"num placeholders in template and num inputs must match: {len(parts) - 1} vs. {len(inputs)}"
            )
        return SCALAR

    def compute(self, k: KernelContext, *inputs: Any) -> Any:
        first, *rest = k.attrs["template"].split(k.attrs["placeholder"])
        made = [first]
        for array, dtype, part in zip(inputs, k.input_dtypes, rest):
            made += [summary(array, dtype, k.attrs["summarize"]).encode(), part]
        return scalar_text(b"".join(made))

    samples = [
        sample(
            [
                np.array(
                    [0.1, 1 / 3, 1e10, 1e-10, 123456.789, 1234567, np.nan, -np.inf, -0.0, 1e6], np.float32
                )
            ],
            summarize=-1,
        ),
        sample([np.array([0.1, 1 / 3, 1e10, 123456789.123, 1e17])]),
        sample([np.arange(60).reshape(3, 4, 5)], summarize=1),
        sample(
            [np.array(5), text("a b", "it's\n"), np.array([True, False])],
            template="x {} y {} z {}",
            placeholder="{}",
        ),
        sample([np.arange(7)]),
        sample([np.arange(6)], summarize=0),
        sample([empty(0, 3)]),
        sample([empty(3, 0)]),
        sample(
            [normal(2, dtype="float16"), np.array([1, 255], np.uint8), text("x").reshape(())],
            template="%s%s%s",
        ),
    ]


_printing = threading.Lock()


@op(
    "Print(input: T, data: list(U)) -> output: T",
    U="list(type) >= 0",
    message="string = ''",
    first_n="int = -1",
    summarize="int = 3",
)
class Print:
    """`input`; prints `message` and the first elements of `data` to standard error, the first `first_n`
    times."""

    stateful = True
    cpu_only = True
    aliases = (0,)

    def shape(self, s: ShapeContext, input: TensorShape, data: list[TensorShape]) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        message, first_n, summarize = (
            k.attrs["message"].decode("utf-8", "backslashreplace"),
            k.attrs["first_n"],
            k.attrs["summarize"],
        )
        dtypes, printed = k.input_dtypes[1:], [0]

        def show(input: Any, *data: Any) -> Any:
            with _printing:
                if first_n < 0 or printed[0] < first_n:
                    printed[0] += 1
                    parts = "".join(f"[{flat_summary(d, t, summarize)}]" for d, t in zip(data, dtypes))
                    print(message + parts, file=sys.stderr, flush=True)
            return input

        return show

    def gradient(self, op: Any, *dy: Any) -> list[Any]:
        return [dy[0]] + [None] * (len(op.inputs) - 1)

    samples = [
        program(
            lambda tf: [
                tf.Print(
                    tf.constant([1.0, 2.0]),
                    [tf.constant([[1, 2], [3, 4]]), tf.constant("x")],
                    message="values: ",
                )
            ]
        )
    ]


@op("PrintV2(input: string)", output_stream="string = 'stderr'", end="string = '\\n'")
class PrintV2:
    """Prints a string to `output_stream`: stdout, stderr, log(info), log(warning), log(error) or a
    file://path."""

    stateful = True
    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> None:
        input.with_rank(0)

    def compute(self, k: KernelContext, input: Any) -> tuple[()]:
        line = input.item().decode("utf-8", "backslashreplace") + k.attrs["end"].decode(
            "utf-8", "backslashreplace"
        )
        stream = k.attrs["output_stream"].decode()
        with _printing:
            if stream.startswith("file://"):
                with open(confined(stream.removeprefix("file://")), "a", encoding="utf-8") as file:
                    file.write(line)
            elif stream in ("stdout", "stderr"):
                print(line, end="", file=getattr(sys, stream), flush=True)
            elif stream in ("log(info)", "log(warning)", "log(error)"):
                import logging

                level = getattr(logging, stream[4:-1].upper())
                logging.getLogger("graphrt").log(level, "%s", line.rstrip("\n"))
            else:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Unknown output stream: {stream}: stdout, stderr, log(info), log(warning), "
                    "log(error) and file://path are there",
                )
        return ()

    samples = [program(lambda tf: [tf.raw_ops.PrintV2(input="shown", output_stream="stderr")])]
