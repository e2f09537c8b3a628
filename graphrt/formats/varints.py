"""Varints: seven bits a byte, lowest first, the top bit set on all but the last."""

from __future__ import annotations

_LONGEST = 10


def encode(value: int) -> bytes:
    """The varint of 0 <= value < 2**64."""
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def decode(source: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, position after it) of the varint at position `at`.

    Raises:
      ValueError: it is cut off, or of more than 64 bits.
    """
    value = shift = 0
    for position in range(at, min(at + _LONGEST, len(source))):
        byte = source[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position + 1
        shift += 7
    raise ValueError(f"no varint at byte {at}")
