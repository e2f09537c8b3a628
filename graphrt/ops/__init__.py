"""The op classes, a file a family. Importing this package registers them all.

Read `elementwise.py` for how expressions become kernels, then any family; `core/registry.py` says what a class holds.
"""

import importlib

_FAMILIES = ("constants", "math_unary", "math_binary")


def load_all() -> None:
    """Import every family."""
    for family in _FAMILIES:
        importlib.import_module(f"graphrt.ops.{family}")


load_all()
