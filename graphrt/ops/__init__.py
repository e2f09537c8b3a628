"""The op classes, a file a family. Importing this package registers them all.

Read `elementwise.py` for how expressions become kernels, then any family; `core/registry.py` says what a
class holds. A new file here is a new family: nothing lists them.
"""

import importlib
import pkgutil


def load_all() -> None:
    """Import every family."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


load_all()
