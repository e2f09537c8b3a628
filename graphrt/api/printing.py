"""tf.Print and tf.print: tensors shown while a step runs."""

from __future__ import annotations

import logging
import os
import pprint
import sys
from typing import Any

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt import nest
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor, is_tensor
from graphrt.core.dtypes import string
from graphrt.core.operation import Operation
from graphrt.core.tensor import SparseTensor, Tensor

__all__ = ["Print", "print"]


def Print(  # noqa: N802
    input_: Any,
    data: Any,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`input_`; when it runs it prints `message` and the tensors `data` to standard error.

    Args:
      first_n: print only that many times; always where None.
      summarize: how many elements of each tensor; 3 where None.
    """
    return raw.Print(input_, list(data), message=message, first_n=first_n, summarize=summarize, name=name)


def _stream_name(stream: Any) -> str:
    if isinstance(stream, str) and stream.startswith("file://"):
        return stream
    named = {
        sys.stdout: "stdout",
        sys.stderr: "stderr",
        logging.INFO: "log(info)",
        logging.info: "log(info)",
        logging.WARNING: "log(warning)",
        logging.warning: "log(warning)",
        logging.ERROR: "log(error)",
        logging.error: "log(error)",
    }
    found = named.get(stream)
    if found is None:
        raise ValueError(
            f"Unsupported output stream, logging level, or file: {stream!r}. sys.stdout, sys.stderr, "
            "logging.INFO, logging.WARNING, logging.ERROR and 'file://path' are there."
        )
    return found


def print(*inputs: Any, **kwargs: Any) -> Operation:
    """An operation that prints `inputs` when it runs: tensors, and Python values or structures of both.

    Args:
      output_stream: sys.stderr (default), sys.stdout, a logging level, or 'file://path'.
      summarize: how many items of each dimension's begin and end are shown (3); all where negative.
      sep, end: between the inputs, and behind them.
      name: of the operation.
    """
    stream = _stream_name(kwargs.pop("output_stream", sys.stderr))
    name, summarize = kwargs.pop("name", None), kwargs.pop("summarize", 3)
    sep, end = kwargs.pop("sep", " "), kwargs.pop("end", os.linesep)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {sorted(kwargs)}")
    first = inputs[0] if len(inputs) == 1 else None
    if isinstance(first, Tensor) and first.shape.rank == 0 and first.dtype.base_dtype is string:
        line = first
    else:
        line = _formatted(inputs, sep, summarize, f"{name}_format" if name else None)
    return raw.PrintV2(line, output_stream=stream, end=end, name=name)


def _formatted(inputs: tuple[Any, ...], sep: str, summarize: int, name: str | None) -> Tensor:
    plain = " ".join(str(x) for x in nest.flatten(list(inputs)) if not is_tensor(x))
    placeholder = "{}"
    while placeholder in plain:
        placeholder = f"{{{placeholder[1:-1]}#}}"
    tensors: list[Any] = []

    def place(value: Any) -> Any:
        if isinstance(value, SparseTensor):
            tensors.extend([value.indices, value.values, value.dense_shape])
            return f"SparseTensor(indices={placeholder}, values={placeholder}, shape={placeholder})"
        if is_tensor(value):
            tensors.append(convert_to_tensor(value))
            return placeholder
        return value

    parts = []
    for given in inputs:
        if isinstance(given, str):
            parts.append(given)
        else:
            placed = nest.pack_sequence_as(given, [place(v) for v in nest.flatten(given)])
            parts.append(placed if isinstance(placed, str) else pprint.pformat(placed))
    template = sep.join(parts).replace(f"'{placeholder}'", placeholder)
    return raw.StringFormat(
        tensors, template=template, placeholder=placeholder, summarize=summarize, name=name
    )
