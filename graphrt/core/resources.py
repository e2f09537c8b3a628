"""Resources: what outlives a step. Containers hold them by (container, name); a resource tensor is the
object itself.

`VariableState` is the memory of a ref or resource variable. A snapshot (`read`) is the array itself: an
update writes in place only while nobody else holds that array, and copies it first otherwise
(copy-on-write), so a reader never sees a torn value and an update never waits for readers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from graphrt.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

# How often a variable has got another shape than it had, in this process: plans made before that look again.
reshapes = 0


def _references(state: Any) -> int:
    return sys.getrefcount(state.array)


def _count_reshape() -> None:
    global reshapes
    reshapes += 1


class Resource:
    """Base of what containers hold. `close` is called when its container is cleared."""

    name = ""

    def close(self) -> None:
        """Release what the resource holds; waiters end with an error."""


class VariableState(Resource):
    """The memory of one variable.

    Attributes:
      array: its value, an array that owns its memory; None before the first assignment.
      lock: held while the array is read out or updated, never while a step waits.
    """

    __slots__ = ("array", "lock", "name", "dtype", "shape", "is_ref", "maker")

    def __init__(self, name: str, dtype: Any, shape: Any, is_ref: bool, maker: str = "") -> None:
        self.name, self.dtype, self.shape, self.is_ref, self.maker = name, dtype, shape, is_ref, maker
        self.array: Any = None
        self.lock = threading.RLock()

    def read(self) -> Any:
        """The value: a snapshot of a resource variable, the live memory of a ref variable.

        Raises:
          FailedPreconditionError: it was not initialised.
        """
        with self.lock:
            array = self.array
        if array is None:
            raise self.uninitialized()
        return array

    def live(self) -> Any:
        """The memory itself, as a reference is read: no snapshot, no lock.

        Raises:
          FailedPreconditionError: it was not initialised.
        """
        array = self.array
        if array is None:
            raise self.uninitialized()
        return array

    def uninitialized(self) -> FailedPreconditionError:
        return FailedPreconditionError(
            None,
            None,
            f"Attempting to use uninitialized value {self.name}: run its initializer "
            "(tf.global_variables_initializer()) in this session first",
        )

    def writable(self) -> Any:
        """The array to update in place; call with `lock` held. A resource variable's array that someone else
        holds is copied first."""
        if self.array is None:
            raise self.uninitialized()
        if not self.is_ref and _references(self) > _ALONE:
            self.array = self.array.copy()
        return self.array

    def assign(self, value: Any, xp: Any) -> None:
        """Take over the value of `value` (copied, since the caller's array is not the variable's)."""
        with self.lock:
            if (
                self.array is not None
                and self.array.shape == value.shape
                and self.array.dtype == value.dtype
                and (self.is_ref or _references(self) <= _ALONE)
            ):
                self.array[...] = value
            else:
                if (
                    not self.shape.is_compatible_with(value.shape)
                    or self.array is not None
                    and self.array.shape != value.shape
                ):
                    _count_reshape()
                # A fresh array that owns its memory: views of it count as references.
                self.array = xp.array(value, dtype=self.dtype.np, copy=True, order="C")

    def close(self) -> None:
        self.array = None


def _count_alone() -> int:
    state = VariableState("", None, None, False)
    state.array = bytearray(1)
    return _references(state)


# What `_references` says of an array that only its variable holds: it differs between Python versions.
_ALONE = _count_alone()


class Containers:
    """The resources of a worker, by container and name. `isolated` sessions have one of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, dict[tuple[str, str], Resource]] = {}

    def lookup_or_create(self, container: str, name: str, kind: type, make: Callable[[], Resource]) -> Any:
        """The resource of `kind` called `name` in `container` ('' is 'localhost'), made by `make()` if there
        is none."""
        with self._lock:
            held = self._held.setdefault(container or "localhost", {})
            found = held.get((kind.__name__, name))
            if found is None:
                found = held[kind.__name__, name] = make()
            return found

    def lookup(self, container: str, name: str, kind: type) -> Any:
        """The resource, or NotFoundError that names what there is."""
        with self._lock:
            held = self._held.get(container or "localhost", {})
            found = held.get((kind.__name__, name))
            if found is None:
                there = ", ".join(sorted(n for k, n in held if k == kind.__name__)[:8]) or "none"
                raise NotFoundError(
                    None,
                    None,
                    f"no {kind.__name__} '{name}' in container '{container or 'localhost'}' (there: {there})",
                )
            return found

    def remove(self, container: str, name: str, kind: type) -> bool:
        with self._lock:
            found = self._held.get(container or "localhost", {}).pop((kind.__name__, name), None)
        if found is not None:
            found.close()
        return found is not None

    def clear(self, names: list[str] | None = None) -> None:
        """Close and drop everything in the containers `names`; in all where None."""
        with self._lock:
            chosen = list(self._held) if not names else names
            dropped = [r for c in chosen for r in self._held.pop(c, {}).values()]
        for resource in dropped:
            resource.close()

    def all_of(self, kind: type) -> list[Any]:
        with self._lock:
            return [r for held in self._held.values() for r in held.values() if isinstance(r, kind)]


def check_same_variable(state: VariableState, dtype: Any, shape: Any, maker: str) -> None:
    """Raise InvalidArgumentError where an existing variable is not of `dtype` and `shape`."""
    if state.dtype is not dtype or not state.shape.is_compatible_with(shape):
        raise InvalidArgumentError(
            None,
            None,
            f"variable '{state.name}' exists as {state.dtype.name} {state.shape}"
            + (f", made by {state.maker}" if state.maker else "")
            + f"; {maker or 'this graph'} asks for {dtype.name} {shape}. Session.reset(target) clears the "
            "containers of a server; tf.container(...) or another name keeps both",
        )
