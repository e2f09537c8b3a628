"""Which files ops may touch: GRAPHRT_FILE_ROOTS confines those of this process to folders.

A server runs what its clients send. With GRAPHRT_FILE_ROOTS set to one or more folders (separated as PATH
is), ops that read or write files refuse every path outside of them; links are followed before the path is
judged. Every op that opens a file passes its path through `confined`."""

from __future__ import annotations

import os

from graphrt.core.errors import PermissionDeniedError

ENVIRONMENT = "GRAPHRT_FILE_ROOTS"


def roots() -> list[str]:
    """The folders that ops are confined to; none means that they are not."""
    given = os.environ.get(ENVIRONMENT, "")
    return [os.path.realpath(os.path.expanduser(r)) for r in given.split(os.pathsep) if r]


def confined(path: str) -> str:
    """`path`, where ops may touch it.

    Raises:
      PermissionDeniedError: it is in none of the folders.
    """
    allowed = roots()
    if allowed:
        real = os.path.realpath(os.path.expanduser(path))
        if not any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in allowed):
            raise PermissionDeniedError(
                None,
                None,
                f"ops of this process may not touch '{path}': {ENVIRONMENT} confines them to "
                + ", ".join(allowed),
            )
    return path
