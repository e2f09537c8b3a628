"""Python values to tensors.

`convert_to_tensor` takes tensors, anything with `_dense_var_to_tensor` (variables), IndexedSlices, NumPy
arrays, numbers, strings, and nested lists of them (with tensors among the items: a Pack).
`register_tensor_conversion_function` adds kinds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import registry
from graphrt.core.default_graph import get_default_graph, name_scope
from graphrt.core.dtypes import DType, as_dtype, bool_, of_array, string
from graphrt.core.shapes import Dimension, TensorShape
from graphrt.core.tensor import IndexedSlices, Tensor

Converter = Callable[..., Any]
_converters: list[tuple[int, Any, Converter]] = []


def register_tensor_conversion_function(
    base_type: Any, conversion_func: Converter, priority: int = 100
) -> None:
    """`conversion_func(value, dtype, name, as_ref)` makes tensors of instances of `base_type` (a type or a
    tuple). Lower priorities are asked first; it may return NotImplemented."""
    _converters.append((priority, base_type, conversion_func))
    _converters.sort(key=lambda c: c[0])


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
    as_ref: bool = False,
) -> Tensor:
    """A Tensor of `value`.

    Args:
      dtype: the dtype it must have; a tensor of another raises ValueError.
      preferred_dtype, dtype_hint: the dtype it gets where `value` can take it and `dtype` is None.
      as_ref: a ref variable gives its reference.
    Raises:
      TypeError: no tensor can be made of it.
      ValueError: a tensor of another dtype than `dtype`.
    """
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    if isinstance(value, Tensor):
        if wanted is not None and value.dtype.base_dtype is not wanted:
            raise ValueError(
                f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype "
                f"{value.dtype.base_dtype.name}: {value!r}. tf.cast(x, tf.{wanted.name}) "
                "converts it"
            )
        return value
    to_tensor = getattr(value, "_dense_var_to_tensor", None)
    if to_tensor is not None:
        made = to_tensor(dtype=wanted, name=name, as_ref=as_ref)
        if made is not NotImplemented:
            return made
    for _, kind, converter in _converters:
        if isinstance(value, kind):
            made = converter(value, dtype=wanted, name=name, as_ref=as_ref)
            if made is not NotImplemented:
                return made
    if isinstance(value, IndexedSlices):
        return _densify(value, wanted, name)
    if isinstance(value, (list, tuple)) and _has_tensor(value):
        hint = as_dtype(preferred_dtype) if preferred_dtype is not None else None
        return _pack(value, wanted or hint, name)
    hint = preferred_dtype if preferred_dtype is not None else dtype_hint
    if wanted is None and hint is not None:
        try:
            return constant_tensor(value, as_dtype(hint).base_dtype, name=name)
        except (TypeError, ValueError):
            pass  # a preference only: the value's own dtype decides
    return constant_tensor(value, wanted, name=name)


def convert_n_to_tensor_or_indexed_slices(
    values: Any, dtype: Any = None, name: str | None = None
) -> list[Any]:
    return [
        convert_to_tensor_or_indexed_slices(v, dtype, None if name is None else f"{name}_{i}")
        for i, v in enumerate(values)
    ]


def convert_to_tensor_or_indexed_slices(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    return (
        value if value is None or isinstance(value, IndexedSlices) else convert_to_tensor(value, dtype, name)
    )


def convert_to_tensor_or_sparse_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    from graphrt.core.tensor import SparseTensor

    return value if isinstance(value, SparseTensor) else convert_to_tensor(value, dtype, name)


def is_tensor(value: Any) -> bool:
    """True for Tensors, SparseTensors, IndexedSlices and variables."""
    from graphrt.core.tensor import SparseTensor

    return isinstance(value, (Tensor, SparseTensor, IndexedSlices)) or hasattr(value, "_dense_var_to_tensor")


def peek_dtype(value: Any) -> DType | None:
    """The dtype that a value brings with it (a tensor, a variable, an array); None for Python numbers and
    lists."""
    if isinstance(value, Tensor):
        return value.dtype.base_dtype
    if isinstance(value, (np.ndarray, np.generic)):
        return None if value.dtype.kind in "SUO" else of_array(value)
    if isinstance(value, (list, tuple)):
        return next((d for d in map(peek_dtype, value) if d is not None), None)
    if hasattr(value, "_dense_var_to_tensor") or isinstance(value, IndexedSlices):
        return value.dtype.base_dtype
    return None


def constant_tensor(
    value: Any,
    dtype: DType | None = None,
    shape: Any = None,
    name: str | None = None,
    verify_shape: bool = False,
) -> Tensor:
    """A Const node of `value`."""
    array = make_array(value, dtype, shape, verify_shape)
    kind = dtype if dtype is not None else of_array(array)
    return registry.OPS["Const"](value=array, dtype=kind, name=name or "Const")


def make_array(
    value: Any, dtype: DType | None = None, shape: Any = None, verify_shape: bool = False
) -> np.ndarray:
    """`value` as a NumPy array of `dtype`, as TensorFlow makes constants: Python floats are float32, ints
    int32 (int64 where they do not fit), text bytes. `shape` reshapes it, or fills with its only (or last)
    element.

    Raises:
      TypeError: the value cannot be of `dtype` (a float for an int dtype, None, a ragged list).
      ValueError: more elements than `shape` holds.
    """
    array = _infer(value) if dtype is None else _coerce(value, dtype)
    if shape is None:
        return array
    sizes = tuple(int(d) for d in TensorShape(shape).as_list())
    n = int(np.prod(sizes, dtype=np.int64))
    if array.shape == sizes:
        return array
    if verify_shape:
        raise TypeError(f"Expected Tensor's shape: {sizes}, got {array.shape}.")
    if array.size == n:
        return array.reshape(sizes)
    if array.size > n:
        raise ValueError(f"Too many elements provided. Needed at most {n}, but received {array.size}")
    if array.size == 0:
        raise ValueError(f"no elements were given for shape {sizes}")
    filled = np.empty(n, array.dtype)
    filled[: array.size] = array.ravel()
    filled[array.size :] = array.ravel()[-1]
    return filled.reshape(sizes)


def _plain(value: Any) -> Any:
    """`value` without Dimensions and TensorShapes, which stand for their sizes."""
    if isinstance(value, TensorShape):
        if not value.is_fully_defined():
            raise ValueError(f"Cannot convert a partially known TensorShape {value} to a Tensor")
        return list(value.sizes)  # type: ignore[arg-type]
    if isinstance(value, Dimension):
        if value.value is None:
            raise ValueError("Cannot convert an unknown Dimension to a Tensor")
        return value.value
    if isinstance(value, DType):
        return value.number
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _infer(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return _text(value) if value.dtype.kind in "SUO" else np.ascontiguousarray(value).reshape(value.shape)
    if isinstance(value, np.generic):
        return _text(np.asarray(value)) if value.dtype.kind in "SU" else np.asarray(value)
    kind = value.__class__
    if kind is float:
        return np.asarray(value, np.float32)
    if kind is bool:
        return np.asarray(value)
    if kind is int:
        return _ints(np.asarray(value), value)
    if value is None:
        raise ValueError("None values not supported.")
    was_shape = isinstance(value, (TensorShape, Dimension))
    value = _plain(value)
    if hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
        return _infer(np.asarray(value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = np.array(value)
    except Exception as error:
        raise _unusable(value, error) from None
    holds_numpy = _first_leaf(value).__class__.__module__.startswith(("numpy", "ml_dtypes"))
    if array.dtype.kind in "SUO":
        return _text(np.array(value, dtype=object) if array.dtype.kind in "SU" else array)
    if holds_numpy:
        return array
    if array.dtype == np.float64:
        return array.astype(np.int32 if was_shape else np.float32)  # a shape of rank 0 is an empty list
    if array.dtype.kind in "iu":
        if was_shape and array.size and array.max() > 2**31 - 1:
            return array.astype(np.int64)
        return _ints(array, value)
    return array


def _first_leaf(value: Any) -> Any:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def _ints(array: np.ndarray, value: Any) -> np.ndarray:
    if array.dtype.kind == "O" or (array.size and (array.max() > 2**31 - 1 or array.min() < -(2**31))):
        if array.dtype.kind == "O" or array.dtype == np.uint64:
            raise ValueError(f"{value!r} does not fit in int64: name a dtype")
        return array.astype(np.int64)
    return array.astype(np.int32)


def _unusable(value: Any, error: Exception) -> Exception:
    shown = repr(value)
    return TypeError(f"cannot make a tensor of {shown[:200] + ('…' if len(shown) > 200 else '')}: {error}")


def _text(array: np.ndarray) -> np.ndarray:
    """An object array of bytes."""
    made = np.empty(array.shape, dtype=object)
    flat, source = made.reshape(-1), array.reshape(-1)
    for i in range(source.size):
        item = source[i]
        if isinstance(item, str):
            item = item.encode()
        elif not isinstance(item, bytes):
            raise TypeError(
                f"cannot make a tensor of {item!r} ({type(item).__name__}): not a number, not text"
            )
        flat[i] = bytes(item)
    return made


def _coerce(value: Any, dtype: DType) -> np.ndarray:
    if dtype is string:
        return _text(np.array(_plain(value), dtype=object) if not isinstance(value, np.ndarray) else value)
    if dtype.is_object:
        raise TypeError(f"cannot make a {dtype.name} tensor of {value!r}")
    if value is None:
        raise ValueError("None values not supported.")
    value = _plain(value)
    if isinstance(value, (np.ndarray, np.generic)):
        source = np.asarray(value)
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                source = np.array(value)
        except Exception as error:
            raise _unusable(value, error) from None
    kind = source.dtype.kind
    if source.dtype == dtype.np:
        return np.ascontiguousarray(source).reshape(source.shape)
    if source.size == 0 and not isinstance(value, (np.ndarray, np.generic)):
        return source.astype(dtype.np)
    if kind in "SUO":
        if (
            kind == "O"
            and source.size
            and dtype.is_integer
            and all(isinstance(v, int) for v in source.ravel())
        ):
            raise ValueError(f"{value!r} does not fit in {dtype.name}")
        raise TypeError(
            f"Expected {dtype.name}, but got {_shown(value)} of type '{type(_first_leaf(value)).__name__}'."
        )
    is_python = not isinstance(value, (np.ndarray, np.generic))
    if dtype is bool_ and kind != "b":
        raise TypeError(
            f"Expected bool, but got {_shown(value)} of type '{type(_first_leaf(value)).__name__}'."
        )
    if kind == "b" and is_python:
        raise TypeError(f"Expected {dtype.name}, but got {_shown(value)} of type 'bool'.")
    if dtype.is_integer or dtype.is_quantized:
        if kind in "fc" and is_python:
            raise TypeError(f"Expected {dtype.name}, but got {_shown(value)} of type 'float'.")
        if (
            kind in "iu"
            and source.size
            and is_python
            and (source.max() > dtype.max or source.min() < dtype.min)
        ):
            raise ValueError(f"{_shown(value)} does not fit in {dtype.name} ({dtype.min} to {dtype.max})")
    if kind == "c" and not dtype.is_complex:
        raise TypeError(f"Expected {dtype.name}, but got {_shown(value)} of type 'complex'.")
    with np.errstate(over="ignore"):
        return source.astype(dtype.np)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else text[:120] + "…"


def _has_tensor(value: Any) -> bool:
    return any(is_tensor(v) or isinstance(v, (list, tuple)) and _has_tensor(v) for v in value)


def _pack(value: Any, dtype: DType | None, name: str | None) -> Tensor:
    """A Pack of a list with tensors in it; what is no tensor becomes a constant named by its place."""
    dtype = dtype or peek_dtype(value)
    with name_scope(name or "packed") as scope:
        items = []
        for i, item in enumerate(value):
            if isinstance(item, (list, tuple)) and not _has_tensor(item):
                # TensorFlow opens a scope to look for tensors in it, which takes the name.
                get_default_graph().unique_name(str(i))
            items.append(item if isinstance(item, Tensor) else convert_to_tensor(item, dtype, name=str(i)))
        return registry.OPS["Pack"](items, axis=0, name=scope)


def _densify(value: IndexedSlices, dtype: DType | None, name: str | None) -> Tensor:
    """The dense tensor of IndexedSlices: slices at one index add up."""
    if dtype is not None and value.dtype.base_dtype is not dtype:
        raise ValueError(f"IndexedSlices of {value.dtype.name} cannot be taken as {dtype.name}")
    if value.dense_shape is None:
        raise ValueError(f"Tensor conversion requested for IndexedSlices without dense_shape: {value}")
    n = value.dense_shape[0]
    flat = registry.OPS["UnsortedSegmentSum"](value.values, value.indices, n, name=name)
    known = value.shape
    if known.sizes is not None:
        flat.set_shape(known)
    return flat
