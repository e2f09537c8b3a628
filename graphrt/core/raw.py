"""Every registered op by name: `raw.MatMul(a, b, transpose_b=True)`. Gradients use it to reach other
families."""

from __future__ import annotations

from typing import Any

from graphrt.core.registry import OPS


def __getattr__(name: str) -> Any:
    try:
        return OPS[name]
    except KeyError:
        raise AttributeError(f"graphrt has no op '{name}'") from None


def __dir__() -> list[str]:
    return sorted(OPS)
