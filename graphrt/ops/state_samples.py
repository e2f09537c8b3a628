"""Programs that the samples of ops with state are made of: a variable, updates to it in order, and what it
then holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphrt.core.samples import Program, program


def on_ref(
    value: Any, *updates: Callable[[Any, Any], Any], dtype: str | None = None, why: str = ""
) -> Program:
    """A ref variable of `value`; each `update(tf, reference)` gives what a step fetches, then the variable is
    read."""
    return _on(False, value, updates, dtype, why)


def on_resource(
    value: Any, *updates: Callable[[Any, Any], Any], dtype: str | None = None, why: str = ""
) -> Program:
    """A resource variable of `value`; each `update(tf, handle)` gives what a step fetches, then the variable
    is read."""
    return _on(True, value, updates, dtype, why)


def _on(
    use_resource: bool,
    value: Any,
    updates: tuple[Callable[[Any, Any], Any], ...],
    dtype: str | None,
    why: str,
) -> Program:
    def build(tf: Any) -> list[Any]:
        kind = None if dtype is None else getattr(tf, dtype)
        variable = tf.Variable(value, dtype=kind, use_resource=use_resource)
        memory = variable.handle if use_resource else variable._ref()
        steps: list[Any] = [variable.initializer]
        for update in updates:
            steps += [update(tf, memory), variable]
        return steps

    return program(build, why=why)
