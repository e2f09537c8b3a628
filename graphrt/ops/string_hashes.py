"""Hashes of byte strings whose values are part of the interface: hash buckets must not change between
programs.

`fingerprint64` is FarmHash's Fingerprint64, `murmur64` MurmurHash64A with TensorFlow's seed, `siphash`
SipHash-2-4.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import Any

import numpy as np

from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import sample, text
from graphrt.core.shapes import TensorShape

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _rotate(value: int, by: int) -> int:
    """`value` rotated to the right."""
    return (value >> by | value << 64 - by) & _MASK


def _word(data: bytes, at: int) -> int:
    return unpack_from("<Q", data, at)[0]


def _mix(value: int) -> int:
    return value ^ value >> 47


def _hash_two(u: int, v: int, multiplier: int) -> int:
    a = _mix((u ^ v) * multiplier & _MASK)
    b = _mix((v ^ a) * multiplier & _MASK)
    return b * multiplier & _MASK


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Two words of state from 32 bytes and two seeds."""
    w, x, y, z = unpack_from("<4Q", data, at)
    a = a + w & _MASK
    b = _rotate(b + a + z & _MASK, 21)
    c = a
    a = a + x + y & _MASK
    b = b + _rotate(a, 44) & _MASK
    return a + z & _MASK, b + c & _MASK


def _fingerprint_short(data: bytes, n: int) -> int:
    """Up to 16 bytes."""
    multiplier = _K2 + n * 2 & _MASK
    if n >= 8:
        a, b = _word(data, 0) + _K2 & _MASK, _word(data, n - 8)
        c = _rotate(b, 37) * multiplier + a & _MASK
        d = (_rotate(a, 25) + b) * multiplier & _MASK
        return _hash_two(c, d, multiplier)
    if n >= 4:
        first, last = unpack_from("<I", data)[0], unpack_from("<I", data, n - 4)[0]
        return _hash_two(n + (first << 3) & _MASK, last, multiplier)
    if n > 0:
        y, z = data[0] + (data[n >> 1] << 8), n + (data[n - 1] << 2)
        return _mix(y * _K2 & _MASK ^ z * _K0 & _MASK) * _K2 & _MASK
    return _K2


def _fingerprint_middle(data: bytes, n: int) -> int:
    """17 to 64 bytes."""
    multiplier = _K2 + n * 2 & _MASK
    a = _word(data, 0) * (_K1 if n <= 32 else _K2) & _MASK
    b, c, d = _word(data, 8), _word(data, n - 8) * multiplier & _MASK, _word(data, n - 16) * _K2 & _MASK
    y = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    z = _hash_two(y, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, multiplier)
    if n <= 32:
        return z
    e, f = _word(data, 16) * multiplier & _MASK, _word(data, 24)
    g = (y + _word(data, n - 32)) * multiplier & _MASK
    h = (z + _word(data, n - 24)) * multiplier & _MASK
    return _hash_two(
        _rotate(e + f & _MASK, 43) + _rotate(g, 30) + h & _MASK,
        e + _rotate(f + a & _MASK, 18) + g & _MASK,
        multiplier,
    )


def _fingerprint_block(
    data: bytes,
    at: int,
    x: int,
    y: int,
    z: int,
    v: tuple[int, int],
    w: tuple[int, int],
    multiplier: int,
    weight: int,
) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:
    """The state after 64 more bytes."""
    x = _rotate(x + y + v[0] + _word(data, at + 8) & _MASK, 37) * multiplier & _MASK
    y = _rotate(y + v[1] + _word(data, at + 48) & _MASK, 42) * multiplier & _MASK
    x ^= w[1] * weight & _MASK
    y = y + v[0] * weight + _word(data, at + 40) & _MASK
    z = _rotate(z + w[0] & _MASK, 33) * multiplier & _MASK
    v = _weak(data, at, v[1] * multiplier & _MASK, x + w[0] & _MASK)
    w = _weak(data, at + 32, z + w[1] & _MASK, y + _word(data, at + 16) & _MASK)
    return z, y, x, v, w


def fingerprint64(data: bytes) -> int:
    """FarmHash's Fingerprint64 of `data`, which is the same on every machine and in every version."""
    n = len(data)
    if n <= 16:
        return _fingerprint_short(data, n)
    if n <= 64:
        return _fingerprint_middle(data, n)
    x, y = 81, 81 * _K1 + 113 & _MASK
    z = _mix(y * _K2 + 113 & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(data, 0) & _MASK
    for at in range(0, (n - 1) // 64 * 64, 64):
        x, y, z, v, w = _fingerprint_block(data, at, x, y, z, v, w, _K1, 1)
    # The last 64 bytes, which may overlap those before, with constants of their own.
    multiplier = _K1 + ((z & 0xFF) << 1) & _MASK
    w = (w[0] + (n - 1 & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    x, y, z, v, w = _fingerprint_block(data, n - 64, x, y, z, v, w, multiplier, 9)
    return _hash_two(
        _hash_two(v[0], w[0], multiplier) + _mix(y) * _K0 + z & _MASK,
        _hash_two(v[1], w[1], multiplier) + x & _MASK,
        multiplier,
    )


def murmur64(data: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """MurmurHash64A of `data`."""
    m, n = 0xC6A4A7935BD1E995, len(data)
    h = seed ^ n * m & _MASK
    whole = n // 8 * 8
    for (k,) in (unpack_from("<Q", data, at) for at in range(0, whole, 8)):
        k = k * m & _MASK
        k = (k ^ k >> 47) * m & _MASK
        h = (h ^ k) * m & _MASK
    if n > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & _MASK
    h = _mix(h) * m & _MASK
    return _mix(h)


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 of `data` under two 64-bit keys."""
    k0, k1 = (k & _MASK for k in key)
    v0, v1, v2, v3 = (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )
    n = len(data)
    tail = data[n // 8 * 8 :].ljust(7, b"\0") + bytes([n & 0xFF])
    words = [*unpack_from(f"<{n // 8}Q", data), *unpack_from("<Q", tail)]

    # To the left by 13, 16, 21 and 17 is to the right by the rest of 64.
    def rounds(count: int, state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        v0, v1, v2, v3 = state
        for _ in range(count):
            v0 = v0 + v1 & _MASK
            v1 = _rotate(v1, 51) ^ v0
            v0 = _rotate(v0, 32)
            v2 = v2 + v3 & _MASK
            v3 = _rotate(v3, 48) ^ v2
            v0 = v0 + v3 & _MASK
            v3 = _rotate(v3, 43) ^ v0
            v2 = v2 + v1 & _MASK
            v1 = _rotate(v1, 47) ^ v2
            v2 = _rotate(v2, 32)
        return v0, v1, v2, v3

    state = (v0, v1, v2, v3)
    for word in words:
        v0, v1, v2, v3 = rounds(2, (*state[:3], state[3] ^ word))
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = rounds(4, (state[0], state[1], state[2] ^ 0xFF, state[3]))
    return v0 ^ v1 ^ v2 ^ v3


class _ToBucket:
    """What the StringToHashBucket ops share: a hash modulo the number of buckets."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        buckets, hashed = k.attrs["num_buckets"], self.hash_of(k.attrs)

        def to_buckets(input: Any) -> Any:
            made = np.empty(input.shape, np.int64)
            made.reshape(-1)[:] = [hashed(item) % buckets for item in input.reshape(-1).tolist()]
            return made

        return to_buckets

    def hash_of(self, attrs: dict[str, Any]) -> Callable[[bytes], int]:
        raise NotImplementedError


_WORDS = text(
    "",
    "a",
    "ab",
    "abc",
    "abcdefg",
    "abcdefgh",
    "0123456789abcdef",
    "x" * 17,
    "0123456789" * 4,
    "y" * 64,
    "z" * 65,
    "0123456789" * 13,
    "w" * 128,
    "w" * 129,
)


@op("StringToHashBucketFast(input: string) -> output: int64", num_buckets="int >= 1")
class StringToHashBucketFast(_ToBucket):
    """For each string a bucket in [0, num_buckets), by its Fingerprint64."""

    def hash_of(self, attrs: dict[str, Any]) -> Callable[[bytes], int]:
        return fingerprint64

    samples = [sample(_WORDS, num_buckets=2**62), sample(text("a").reshape(()), num_buckets=7)]


@op("StringToHashBucket(string_tensor: string) -> output: int64", num_buckets="int >= 1")
class StringToHashBucket(_ToBucket):
    """For each string a bucket in [0, num_buckets), by MurmurHash64A; older programs have it."""

    def hash_of(self, attrs: dict[str, Any]) -> Callable[[bytes], int]:
        return murmur64

    samples = [sample(_WORDS, num_buckets=2**62), sample(text("a", "b").reshape(2, 1), num_buckets=10)]


@op("StringToHashBucketStrong(input: string) -> output: int64", num_buckets="int >= 1", key="list(int)")
class StringToHashBucketStrong(_ToBucket):
    """For each string a bucket in [0, num_buckets), by SipHash under `key`: hard to make collide on
    purpose."""

    def hash_of(self, attrs: dict[str, Any]) -> Callable[[bytes], int]:
        key = attrs["key"]
        if len(key) != 2:
            raise ValueError(f"key {key} must be two integers")
        return lambda data: siphash(data, (key[0], key[1]))

    samples = [
        sample(_WORDS, num_buckets=2**62, key=[1, 2]),
        sample(text("a"), num_buckets=10, key=[2**60, -5]),
    ]
