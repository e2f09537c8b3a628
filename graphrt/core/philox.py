"""Philox4x32-10 streams as TensorFlow's random ops use them: keys, counters, blocks of words, and op state.

A **stream** is a key (64 bits) and a counter (128 bits). The block at a counter is four 32-bit words; the
next block is at the counter plus one. An op's seeds start its stream: the key is `seed`, the counter `seed2 *
2**64`. Each run of a kernel reserves 256 blocks for each output element, used or not, and the next run goes
on behind them (`GuardedPhilox`); a stateless op draws from a `Stream` of its own. What becomes of the words
is in distributions.py.

Cost: 12,800 blocks (51,200 words) take 310 us with NumPy, 48 us with the compiled function of philox_jit.py
(numba), which loads in the background once a process has drawn 16 million words; the bits are the same. Up to
16 words are drawn with Python's integers, 5 us a block, where NumPy's calls would cost 50 us. Scratch arrays
belong to the thread that draws and stay below 2 MB.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

BLOCKS_PER_OUTPUT = 256  # what a run reserves for each output element
CHUNK = 1 << 14  # blocks worked on at once: its arrays stay in the second-level cache
_FEW = 4  # blocks up to which Python's integers are faster than arrays
_LOAD_S = 30.0  # how long an interpreter that ends waits for the compiler
_COMPILE_AFTER = 1 << 22  # blocks that a process draws with NumPy before it pays for the compiler

_M0, _M1, _W0, _W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
_LOW, _ALL64, _ALL128 = 2**32 - 1, 2**64 - 1, 2**128 - 1
HALF = np.uint64(32)
_U0, _U1 = np.uint64(_M0), np.uint64(_M1)


class Stream(NamedTuple):
    """A place in a Philox stream: key < 2**64, counter < 2**128. A value: drawing does not move it."""

    key: int
    counter: int

    @classmethod
    def of_seeds(cls, seed: int, seed2: int) -> Stream:
        """Where the kernel of an op with these attrs starts."""
        return cls(seed & _ALL64, (seed2 & _ALL64) << 64)

    @classmethod
    def of_stateless_seed(cls, seed: Sequence[int] | np.ndarray) -> Stream:
        """The stream of a stateless op: the seeds scrambled by one block, so neither needs to be strong."""
        first, second = (int(s) & _ALL64 for s in seed)
        a, b, c, d = block(0x02461E29_3EC8F720, second << 64 | first)
        return cls(b << 32 | a, (d << 32 | c) << 64)

    @classmethod
    def of_key_counter(cls, key: np.ndarray, counter: np.ndarray) -> Stream:
        """The stream of a stateless V2 op: uint64 key [1] and counter [2], low half first."""
        low, high = (int(c) for c in counter[:2])
        return cls(int(key[0]), high << 64 | low)

    def skip(self, blocks: int) -> Stream:
        """The place `blocks` blocks further."""
        return Stream(self.key, (self.counter + blocks) & _ALL128)

    def reserve(self, blocks: int) -> Stream:
        """This place: what GuardedPhilox.reserve gives, for an op without state."""
        return self


class GuardedPhilox:
    """The state of one random op: where its next run starts. Safe from any thread.

    Args:
      seed, seed2: the op's attrs, any 64-bit ints. Both 0: seeds from the operating system.
    """

    __slots__ = ("_stream", "_lock")

    def __init__(self, seed: int, seed2: int) -> None:
        if seed == 0 and seed2 == 0:
            drawn = os.urandom(16)
            seed, seed2 = int.from_bytes(drawn[:8], "little"), int.from_bytes(drawn[8:], "little")
        self._stream = Stream.of_seeds(seed, seed2)
        self._lock = threading.Lock()

    def reserve(self, blocks: int) -> Stream:
        """The next place, with `blocks` blocks that no other call gets."""
        with self._lock:
            stream = self._stream
            self._stream = stream.skip(blocks)
        return stream


def block(key: int, counter: int) -> tuple[int, int, int, int]:
    """The four words of one block."""
    a, b, c, d = counter & _LOW, counter >> 32 & _LOW, counter >> 64 & _LOW, counter >> 96
    k0, k1 = key & _LOW, key >> 32
    for _ in range(10):
        p0, p1 = a * _M0, c * _M1
        a, b, c, d = p1 >> 32 ^ b ^ k0, p1 & _LOW, p0 >> 32 ^ d ^ k1, p0 & _LOW
        k0, k1 = k0 + _W0 & _LOW, k1 + _W1 & _LOW
    return a, b, c, d


class Scratch(threading.local):
    """Arrays of this thread, by name, grown to the largest size asked for."""

    def __init__(self) -> None:
        self.held: dict[str, np.ndarray] = {}

    def take(self, name: str, size: int, dtype: Any) -> np.ndarray:
        """`size` elements of `dtype`, with anything in them, until the next `take` of the same name."""
        size *= np.dtype(dtype).itemsize
        held = self.held.get(name)
        if held is None or held.size < size:
            held = self.held[name] = np.empty(1 << (size - 1).bit_length() if size else 0, np.uint8)
        return held[:size].view(dtype)


class Compiled:
    """The functions of philox_jit, once they are there."""

    def __init__(self) -> None:
        self.fill: Callable[..., None] | None = None
        self.swap: Callable[..., None] | None = None
        self.drawn = 0
        self._begun = False

    def count(self, blocks: int) -> None:
        """Note a draw made without them; begin to load them when these have become many."""
        self.drawn += blocks
        if self.drawn >= _COMPILE_AFTER and not self._begun:
            self._begun = True
            loader = threading.Thread(target=self.load, name="graphrt-philox-compile", daemon=True)
            loader.start()
            atexit.register(loader.join, _LOAD_S)  # the interpreter must not go while LLVM works in it

    def load(self) -> bool:
        """Import the compiled functions. False where numba is not installed or cannot compile here."""
        self._begun = True
        try:
            from graphrt.core import philox_jit
        except ImportError:
            return False
        except Exception as error:  # numba's own errors share no base with anything here
            warnings.warn("numba could not compile the random number generator, which stays on NumPy (same "
                          f"values, slower): {error}", RuntimeWarning, stacklevel=2)
            return False
        self.swap, self.fill = philox_jit.swap, philox_jit.fill
        return True


scratch = Scratch()
compiled = Compiled()
_iota = np.empty(0, np.uint64)


def _counting(size: int) -> np.ndarray:
    global _iota
    iota = _iota
    if iota.size < size:
        _iota = iota = np.arange(CHUNK, dtype=np.uint64)
    return iota[:size]


def fill_words(stream: Stream, words: np.ndarray, stride: int = 1, keep: int = _LOW, ones: int = 0) -> None:
    """Write `(word & keep) | ones` of the blocks at counter, counter + stride, ... into `words`.

    Args:
      words: uint32, contiguous, a multiple of four elements.
    """
    key, counter, at, blocks = stream.key, stream.counter, 0, words.size // 4
    if blocks <= _FEW and compiled.fill is None:
        for i in range(blocks):
            words[4 * i : 4 * i + 4] = [w & keep | ones for w in block(key, (counter + i * stride) & _ALL128)]
        return
    while at < blocks:
        c0 = counter & _LOW
        run = min(blocks - at, -(-(2**32 - c0) // stride))  # up to where the lowest word wraps
        part = words[4 * at : 4 * (at + run)]
        if compiled.fill is not None:
            upper = (counter >> 32 & _LOW, counter >> 64 & _LOW, counter >> 96)
            compiled.fill(part, c0, stride, *upper, key & _LOW, key >> 32, keep, ones)
        else:
            compiled.count(run)
            for start in range(0, run, CHUNK):
                n = min(CHUNK, run - start)
                lowest = scratch.take("t", n, np.uint64)
                np.multiply(_counting(n), np.uint64(stride), out=lowest)
                lowest += np.uint64(c0 + start * stride)
                _fill_chunk(key, lowest, counter >> 32, part[4 * start : 4 * (start + n)])
            if keep != _LOW:
                part &= np.uint32(keep)
            if ones:
                part |= np.uint32(ones)
        at += run
        counter = counter + run * stride & _ALL128


def _fill_chunk(key: int, lowest: np.ndarray, upper: int, words: np.ndarray) -> None:
    """The blocks at counters `upper * 2**32 + lowest`; `lowest` (uint64, below 2**32) is overwritten.

    A block's state is two uint64: x = (word 0, word 1) and y = (word 2, word 3), the first one high. A round
    is x, y = low(y's high half * M1, x's low half up), likewise: the products need no masks. In the first two
    rounds one of them is still the same for every block, a plain int.
    """
    k0, k1 = key & _LOW, key >> 32
    b, c, d = upper & _LOW, upper >> 32 & _LOW, upper >> 64
    p1 = c * _M1
    x1 = ((p1 >> 32) ^ b ^ k0) << 32 | p1 & _LOW
    t, n = lowest, lowest.size
    x, y, p = (scratch.take(name, n, np.uint64) for name in "xyp")
    np.multiply(t, _U0, out=t)
    np.bitwise_xor(t, np.uint64((d ^ k1) << 32), out=y)

    k0, k1 = k0 + _W0 & _LOW, k1 + _W1 & _LOW
    np.right_shift(y, HALF, out=p)
    np.multiply(p, _U1, out=p)
    np.bitwise_xor(p, np.uint64((x1 & _LOW ^ k0) << 32), out=x)
    np.left_shift(y, HALF, out=y)
    np.bitwise_xor(y, np.uint64((x1 >> 32) * _M0 ^ k1 << 32), out=y)
    _rounds(x, y, t, p, k0, k1, 8)
    _interleave(x, y, words)


def _rounds(x: np.ndarray, y: np.ndarray, t: np.ndarray, p: np.ndarray, k0: int, k1: int, count: int) -> None:
    """`count` more rounds in place, after one that used the key (k0, k1); t and p are scratch."""
    for _ in range(count):
        k0, k1 = k0 + _W0 & _LOW, k1 + _W1 & _LOW
        np.right_shift(x, HALF, out=t)
        np.multiply(t, _U0, out=t)
        np.right_shift(y, HALF, out=p)
        np.multiply(p, _U1, out=p)
        np.left_shift(x, HALF, out=x)
        np.bitwise_xor(x, p, out=x)
        np.bitwise_xor(x, np.uint64(k0 << 32), out=x)
        np.left_shift(y, HALF, out=y)
        np.bitwise_xor(y, t, out=y)
        np.bitwise_xor(y, np.uint64(k1 << 32), out=y)


def _interleave(x: np.ndarray, y: np.ndarray, words: np.ndarray) -> None:
    high = 1 if sys.byteorder == "little" else 0
    for i, pair in enumerate((x, y)):
        halves = pair.view(np.uint32)
        words[2 * i :: 4] = halves[high::2]
        words[2 * i + 1 :: 4] = halves[1 - high :: 2]


def words_at(stream: Stream, blocks: np.ndarray) -> np.ndarray:
    """The words, a fresh [n, 4], of the blocks `blocks` (uint64 [n], any order) after the stream's place."""
    words = np.empty((blocks.size, 4), np.uint32)
    low, high = stream.counter & _ALL64, stream.counter >> 64
    counters = blocks + np.uint64(low)
    carried = counters < blocks
    for sense, upper in ((False, high), (True, (high + 1) & _ALL64)):
        chosen = np.flatnonzero(carried == sense)
        if chosen.size:
            words[chosen] = _words_of(stream.key, counters[chosen], upper)
    return words


def _words_of(key: int, counters: np.ndarray, upper: int) -> np.ndarray:
    k0, k1 = key & _LOW, key >> 32
    p1 = (upper & _LOW) * _M1
    t = (counters & np.uint64(_LOW)) * _U0
    x = counters & np.uint64(_LOW << 32)  # word 1 is c1, moved up; the first round drops c0 here
    x ^= np.uint64(p1 ^ k0 << 32)
    y = t ^ np.uint64((upper >> 32 ^ k1) << 32)
    _rounds(x, y, t, np.empty_like(t), k0, k1, 9)
    words = np.empty((counters.size, 4), np.uint32)
    _interleave(x, y, words.reshape(-1))
    return words
