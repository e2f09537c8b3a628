"""Python functions as nodes: PyFunc calls a function that this process registered under a token."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import DType, of_array, string
from graphrt.core.errors import (
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    UnimplementedError,
    UnknownError,
)
from graphrt.core.graph import Graph
from graphrt.core.registry import ALL, KernelContext, op
from graphrt.core.samples import program

_numbers = itertools.count()
_lock = threading.Lock()
# The graphs that call a function keep it alive.
_functions: weakref.WeakValueDictionary[bytes, _Registered] = weakref.WeakValueDictionary()


class _Registered:
    """A function that may be called by its token for as long as a graph holds this."""

    __slots__ = ("function", "__weakref__")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def register(function: Callable[..., Any], graph: Graph) -> bytes:
    """A token by which PyFunc nodes of `graph` call `function`."""
    made = _Registered(function)
    token = b"pyfunc_%d" % next(_numbers)
    with _lock:
        _functions[token] = made
        graph.__dict__.setdefault("_python_functions", []).append(made)
    return token


def _bind(k: KernelContext) -> Callable[..., Any]:
    token, dtypes = k.attrs["token"], k.output_dtypes
    with _lock:
        registered = _functions.get(token)
    if registered is None:
        raise InvalidArgumentError(
            None,
            None,
            f"{k.type} '{k.name}': no Python function is registered as '{token.decode()}' in this "
            "process: a graph with py_func runs where it was built",
        )
    function = registered.function
    is_text = [d is string for d in k.input_dtypes]

    def call(*inputs: Any) -> Any:
        try:
            returned = function(*[_given(value, text) for value, text in zip(inputs, is_text)])
        except OpError:
            raise
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(None, None, _message(error)) from error
        except StopIteration as error:
            raise OutOfRangeError(None, None, _message(error)) from error
        except NotImplementedError as error:
            raise UnimplementedError(None, None, _message(error)) from error
        except Exception as error:
            raise UnknownError(None, None, _message(error)) from error
        values = (
            list(returned)
            if isinstance(returned, (list, tuple)) and not _is_one_array(returned, dtypes)
            else []
            if returned is None and not dtypes
            else [returned]
        )
        if len(values) != len(dtypes):
            raise InvalidArgumentError(
                None,
                None,
                f"{token.decode()} returns {len(values)} values, but expects to see {len(dtypes)} values.",
            )
        return tuple([_taken(token, i, value, dtype) for i, (value, dtype) in enumerate(zip(values, dtypes))])

    return call


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _is_one_array(returned: Any, dtypes: list[DType]) -> bool:
    """True where a returned list is the one output."""
    return isinstance(returned, list) and len(dtypes) == 1 and len(returned) != 1


def _given(value: Any, is_text: bool) -> Any:
    """What the function gets: an array of its own, a NumPy scalar or bytes for rank 0."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array[()]
    return array.copy()


def _taken(token: bytes, i: int, value: Any, dtype: DType) -> Any:
    """Output `i` as an array of `dtype`."""
    if dtype is string:
        array = np.asarray(value)
        made = np.empty(array.shape, object)
        for at, item in np.ndenumerate(array):
            made[at] = item.encode() if isinstance(item, str) else bytes(item)
        return made
    try:
        array = np.array(value, order="C")
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"{i}-th value returned by {token.decode()} is no array: {error}"
        ) from None
    if array.dtype != dtype.np:
        # Python numbers and what NumPy makes of them have no width of their own.
        is_python = not isinstance(value, (np.ndarray, np.generic)) and array.dtype.kind == dtype.np.kind
        if not is_python:
            shown = of_array(array).name if array.dtype.kind not in "OSU" else "string"
            raise InvalidArgumentError(
                None, None, f"{i}-th value returned by {token.decode()} is {shown}, but expects {dtype.name}"
            )
        array = array.astype(dtype.np)
    return array


def _doubled(tf: Any) -> list[Any]:
    x = tf.placeholder_with_default([1.0, 2.0], [None])
    return [
        tf.py_func(lambda a: a * 2, [x], tf.float32),
        tf.py_func(lambda a: (a.sum(), a + 1), [x], [tf.float32, tf.float32]),
        tf.py_func(lambda: "text", [], tf.string),
    ]


def _stateless(tf: Any) -> list[Any]:
    x = tf.placeholder_with_default([1.0, 2.0], [None])
    return [tf.py_func(lambda a: a * 2, [x], tf.float32, stateful=False)]


@op(
    "PyFunc(input: list(Tin)) -> output: list(Tout)",
    token="string",
    Tin="list(type) >= 0",
    Tout="list(type) >= 0",
)
class PyFunc:
    """What the Python function registered as `token` returns for `input`, as NumPy arrays. It runs on a
    thread of its own."""

    stateful = True
    blocking = True
    host_inputs = ALL
    host_outputs = ALL
    cpu_only = True
    not_differentiable = True
    samples = [program(_doubled)]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        return _bind(k)


@op(
    "PyFuncStateless(input: list(Tin)) -> output: list(Tout)",
    token="string",
    Tin="list(type) >= 0",
    Tout="list(type) >= 0",
)
class PyFuncStateless:
    """A PyFunc of a function that gives the same for the same input."""

    blocking = True
    unfoldable = True
    host_inputs = ALL
    host_outputs = ALL
    cpu_only = True
    not_differentiable = True
    samples = [program(_stateless)]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        return _bind(k)
