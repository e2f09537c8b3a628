"""CRC-32C, as every file format here uses it, and its masked form.

google-crc32c computes it (4 GB/s with the processor's instructions). A checksum that is stored beside the
bytes it covers is masked, so that the checksum of bytes that hold checksums stays a good one.
"""

from __future__ import annotations

import google_crc32c
import numpy as np

_IS_PYTHON = google_crc32c.implementation == "python"
_MASK = 0xA282EAD8


def crc32c(piece: bytes | bytearray | memoryview | np.ndarray, crc: int = 0) -> int:
    """The CRC-32C of bytes whose predecessors have the checksum `crc`."""
    if not isinstance(piece, bytes):
        # The library's C part takes arrays without a copy, but no other buffers; its Python part only bytes.
        piece = bytes(piece) if _IS_PYTHON else np.frombuffer(piece, np.uint8)
    return google_crc32c.extend(crc, piece)


def masked(crc: int) -> int:
    """A checksum as files store it."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def unmasked(stored: int) -> int:
    """The checksum that `masked` made `stored` of."""
    turned = (stored - _MASK) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF


def masked_crc32c(piece: bytes | bytearray | memoryview | np.ndarray) -> int:
    return masked(crc32c(piece))
