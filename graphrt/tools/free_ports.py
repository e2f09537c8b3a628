"""Ports for a cluster that is about to start on this machine."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_FIRST_EPHEMERAL = 32768
_LOWEST = 10240
_TAKEN = (errno.EADDRINUSE, errno.EACCES)
_TRIES = 1000


def free_ports(count: int) -> list[int]:
    """`count` different ports of the loopback address on which nothing listens.

    They lie below the range from which the system takes ports for outgoing connections, so that one that is
    free now is not lost to a connection before its server has started.

    Raises:
      OSError: not so many could be found.
    """
    above, chance = max(_first_ephemeral(), _LOWEST + 2 * _TRIES), random.SystemRandom()
    found: list[int] = []
    for _ in range(count + _TRIES):
        if len(found) == count:
            return found
        port = chance.randrange(_LOWEST, above)
        if port not in found and _is_free(port):
            found.append(port)
    raise OSError(f"found only {len(found)} of {count} free ports from {_LOWEST} to {above} at {LOOPBACK}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            return False
    return True


def _first_ephemeral() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux
        return _USUAL_FIRST_EPHEMERAL
