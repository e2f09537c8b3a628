"""Simulated GPUs: NumPy kernels behind a memory of their own.

A device array is a `SimArray`; mixing one with a host array in any NumPy call raises, as a real GPU would
fault, so wrong placement and missing copies show on a machine without a GPU. Results are NumPy's, bit for
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.runtime.devices import AcceleratorDevice


class SimArray(np.ndarray):
    """An array in a simulated GPU's memory."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        plain = [_enter(x, ufunc.__name__) for x in inputs]
        if out is not None:
            named["out"] = tuple(_enter(x, ufunc.__name__) for x in out)
        named = {k: _enter(v, ufunc.__name__) if isinstance(v, np.ndarray) else v for k, v in named.items()}
        made = getattr(ufunc, method)(*plain, **named)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return _leave(made)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = _deep(args, func.__name__)
        named = _deep(kwargs, func.__name__)
        made = func(*plain, **named)
        out = kwargs.get("out")
        return out if out is not None else _leave(made)


def _enter(x: Any, name: str) -> Any:
    if isinstance(x, SimArray):
        return x.view(np.ndarray)
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError(
            f"{name}: a host array of shape {x.shape} met a device array: it was not copied to the device"
        )
    return x


def _deep(value: Any, name: str) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_deep(v, name) for v in value]) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {k: _deep(v, name) for k, v in value.items()}
    return _enter(value, name)


def _leave(made: Any) -> Any:
    if isinstance(made, np.ndarray):
        return made.view(SimArray)
    if isinstance(made, (tuple, list)):
        return type(made)([_leave(m) for m in made]) if type(made) in (tuple, list) else made
    return made


def _on_device(function: Any, name: str) -> Any:
    """A NumPy function whose arrays are the device's."""

    def on_device(*args: Any, out: Any = None, **named: Any) -> Any:
        plain = _strict(named, name)
        if out is not None:
            plain["out"] = out.view(np.ndarray)
        made = function(*_strict(args, name), **plain)
        return out if out is not None else _leave(made)

    return on_device


class SimUfunc:
    """A ufunc of a simulated GPU, with its methods."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc, self.nin, self.nout = ufunc, ufunc.nin, ufunc.nout
        name = ufunc.__name__
        self.reduce, self.accumulate, self.reduceat, self.outer, self.at = (
            _on_device(getattr(ufunc, m), f"{name}.{m}")
            for m in ("reduce", "accumulate", "reduceat", "outer", "at")
        )
        self._call = _on_device(ufunc, name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) > self.nin:
            # A positional output.
            return self._call(*args[: self.nin], out=args[self.nin], **named)
        return self._call(*args, **named)


class SimModule:
    """The array module of a simulated GPU: NumPy's functions, results in device memory, host arrays
    refused."""

    is_simulated = True

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if isinstance(function, np.ufunc):
            made: Any = SimUfunc(function)
        elif callable(function) and not isinstance(function, type):
            made = _on_device(function, name)
        else:
            made = function
        setattr(self, name, made)
        return made

    def asarray(self, value: Any, dtype: Any = None, **named: Any) -> Any:
        return np.asarray(value, dtype, **named).view(SimArray)

    def array(self, value: Any, dtype: Any = None, **named: Any) -> Any:
        return np.array(value, dtype, **named).view(SimArray)


def _strict(value: Any, name: str) -> Any:
    if isinstance(value, SimArray):
        return value.view(np.ndarray)
    if isinstance(value, np.ndarray) and value.ndim and not value.dtype.hasobject:
        raise TypeError(
            f"{name}: a host array of shape {value.shape} was given to a device kernel: it was not copied "
            "there"
        )
    if type(value) in (list, tuple):
        return type(value)([_strict(v, name) for v in value])
    if type(value) is dict:
        return {k: _strict(v, name) for k, v in value.items()}
    return value


XP = SimModule()


class SimulatedGpu(AcceleratorDevice):
    """GPU:i of GRAPHRT_SIM_GPUS."""

    def __init__(self, name: str, index: int) -> None:
        super().__init__(name, index, 1 << 30)
        self.xp = XP
        self.description = "simulated"

    def from_host(self, array: Any) -> Any:
        if (
            isinstance(array, SimArray)
            or not isinstance(array, (np.ndarray, np.generic))
            or array.dtype.hasobject
        ):
            return array
        return np.array(array).view(SimArray)

    def to_host(self, array: Any) -> Any:
        return np.array(array).view(np.ndarray) if isinstance(array, SimArray) else array
