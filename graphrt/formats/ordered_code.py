"""Ordered code: numbers and strings as bytes that compare as they do. Slices of tensors are keyed by it.

A key is 0, the tensor's name, the number of dimensions, and (start, length) of each; -1 is the length of a
dimension that is taken whole. Keys of slices begin with byte 0, which no tensor's name does.
"""

from __future__ import annotations

from graphrt.formats.slices import TensorSlice

# What the first two bytes of a signed number are xor-ed with, by its length: unary of the length from the top
# bit.
_HEADERS = [0, 0x8000, 0xC000, 0xE000, 0xF000, 0xF800, 0xFC00, 0xFE00, 0xFF00, 0xFF80, 0xFFC0]


def encode_number(value: int) -> bytes:
    """A number >= 0: the count of its bytes, then those, highest first."""
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def encode_string(text: bytes) -> bytes:
    """Bytes 0 and 255 are escaped; 0 1 ends the string."""
    out = bytearray()
    for byte in text:
        out += b"\x00\xff" if byte == 0 else b"\xff\x00" if byte == 255 else bytes([byte])
    return bytes(out) + b"\x00\x01"


def encode_signed(value: int) -> bytes:
    """A number of 64 bits: its length in unary, its sign and its bits share one to ten bytes."""
    size = (~value if value < 0 else value).bit_length() // 7 + 1
    whole = bytearray(value.to_bytes(10, "big", signed=True)[-size:])
    whole[0] ^= _HEADERS[size] >> 8
    if size > 1:
        whole[1] ^= _HEADERS[size] & 0xFF
    return bytes(whole)


def slice_key(name: str, part: TensorSlice) -> bytes:
    """The key of a slice of the tensor `name`."""
    return (
        encode_number(0)
        + encode_string(name.encode())
        + encode_number(len(part.starts))
        + b"".join(encode_signed(s) + encode_signed(n) for s, n in zip(part.starts, part.lengths))
    )
