"""Arguments that TF1 knows by two names."""

from __future__ import annotations

from typing import Any


def renamed(name: str, value: Any, old_name: str, old_value: Any) -> Any:
    """The value of an argument that has an older name: whichever of the two was given, or None.

    Raises:
      ValueError: both were.
    """
    if old_value is None:
        return value
    if value is not None:
        raise ValueError(
            f"Cannot specify both '{old_name}' and '{name}': they are one argument, and '{name}' is its "
            "newer name"
        )
    return old_value
