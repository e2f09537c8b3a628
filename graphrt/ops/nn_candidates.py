"""Candidate samplers: a few classes to stand for all the others in a loss, and how often each would be drawn.

They draw from TensorFlow's streams, one word after the other, so with the same seeds the candidates are
TensorFlow's. Cost: about 2 us a draw.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError, NotFoundError
from graphrt.core.file_access import confined
from graphrt.core.philox import GuardedPhilox, Stream, fill_words
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import program, sample
from graphrt.core.shapes import TensorShape, unknown

_WORDS_PER_CANDIDATE = 2048  # what a run reserves, however many it draws


class _Words:
    """One number after the other from a place in a stream, as TensorFlow's SimplePhilox reads it."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._left, self._blocks = stream, iter(()), 16

    def word(self) -> int:
        for word in self._left:
            return word
        words = np.empty(4 * self._blocks, np.uint32)
        fill_words(self._stream, words)
        self._stream, self._blocks = self._stream.skip(self._blocks), min(4 * self._blocks, 4096)
        self._left = iter(words.tolist())
        return self.word()

    def below(self, n: int, bits: int) -> int:
        """A whole number in [0, n) from one word (`bits` 32) or two (64): values that would skew it are drawn
        again."""
        if n & (n - 1) == 0:
            return self._bits(bits) & (n - 1)
        first = (2**bits - 1) % n + 1
        while (drawn := self._bits(bits)) < first:
            pass
        return drawn % n

    def _bits(self, bits: int) -> int:
        low = self.word()
        return low if bits == 32 else self.word() << 32 | low

    def double(self) -> float:
        """In [0, 1), of 52 random bits."""
        high, low = self.word(), self.word()
        return ((high & 0xFFFFF) << 32 | low) * 2.0**-52

    def float(self) -> float:
        """In [0, 1), of 23 random bits."""
        return (self.word() & 0x7FFFFF) * 2.0**-23


class _Sampler:
    """A distribution over [0, range): `draw(words)` gives a value, `probability(values)` each value's, as
    float32."""

    def __init__(self, range_max: int) -> None:
        self.range_max = range_max

    def draw(self, words: _Words) -> int:
        raise NotImplementedError

    def probability(self, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def batch(self, words: _Words, count: int, unique: bool) -> tuple[list[int], int]:
        """`count` values, all different where `unique`, and how many draws they took."""
        if not unique:
            return [self.draw(words) for _ in range(count)], count
        drawn: dict[int, None] = {}
        tries = 0
        while len(drawn) < count:
            tries += 1
            drawn[self.draw(words)] = None
        return list(drawn), tries

    def saw(self, true_classes: np.ndarray) -> None:
        """Learn from the classes of a batch."""


class _Uniform(_Sampler):
    def draw(self, words: _Words) -> int:
        return words.below(self.range_max, 64)

    def probability(self, values: np.ndarray) -> np.ndarray:
        return np.full(values.shape, 1.0 / self.range_max, np.float32)


class _LogUniform(_Sampler):
    """P(k) = log((k + 2) / (k + 1)) / log(range + 1): near Zipf's law, for classes sorted by falling
    frequency."""

    def __init__(self, range_max: int) -> None:
        super().__init__(range_max)
        self.log_range = math.log1p(range_max)

    def draw(self, words: _Words) -> int:
        # The product may round to log_range, and the value to range_max.
        return (int(math.exp(words.double() * self.log_range)) - 1) % self.range_max

    def probability(self, values: np.ndarray) -> np.ndarray:
        k = values.astype(np.float64)
        return (np.log((k + 2.0) / (k + 1.0)) / self.log_range).astype(np.float32)


class _Learned(_Sampler):
    """Each class as often as it was seen among the true classes, counting one more for each."""

    def __init__(self, range_max: int) -> None:
        super().__init__(range_max)
        self.weights = np.ones(range_max, np.int64)
        self.sums: np.ndarray | None = None

    def draw(self, words: _Words) -> int:
        if self.sums is None:
            self.sums = np.cumsum(self.weights)
        return int(np.searchsorted(self.sums, words.below(int(self.sums[-1]), 32), side="right"))

    def probability(self, values: np.ndarray) -> np.ndarray:
        return self.weights[values].astype(np.float32) / np.float32(self.weights.sum())

    def saw(self, true_classes: np.ndarray) -> None:
        np.add.at(self.weights, true_classes.ravel(), 1)
        self.sums = None


class _Fixed(_Sampler):
    """Classes of given weights, by the alias method: each place has a class and an alternative for the rest
    of its share."""

    def __init__(self, weights: np.ndarray) -> None:
        super().__init__(weights.size)
        self.weights = weights
        # Summed in float32, one after the other, as TensorFlow does.
        self.total = np.cumsum(weights, dtype=np.float32)[-1]
        self.shares, self.alternatives = _alias_table(weights)

    def draw(self, words: _Words) -> int:
        r = words.float()
        place = words.below(self.range_max, 32)
        return place if r < self.shares[place] else self.alternatives[place]

    def probability(self, values: np.ndarray) -> np.ndarray:
        return self.weights[values] / self.total


def _alias_table(weights: np.ndarray) -> tuple[list[float], list[int]]:
    n = weights.size
    total = float(np.cumsum(weights, dtype=np.float64)[-1])
    shares = [float(w) * n / total for w in weights]
    alternatives = list(range(n))
    low = [i for i, p in enumerate(shares) if p < 1.0]
    high = [i for i, p in enumerate(shares) if p >= 1.0]
    while low and high:
        poor, rich = low.pop(), high.pop()
        alternatives[poor] = rich
        shares[rich] -= 1.0 - shares[poor]
        (low if shares[rich] < 1.0 else high).append(rich)
    for i in (*low, *high):  # what rounding left over
        shares[i] = 1.0
    return np.array(shares, np.float32).tolist(), alternatives


class _All(_Sampler):
    """Every class once."""

    def batch(self, words: _Words, count: int, unique: bool) -> tuple[list[int], int]:
        return list(range(count)), count

    def probability(self, values: np.ndarray) -> np.ndarray:
        return np.full(values.shape, 1.0 / self.range_max, np.float32)


class _Node:
    """What a sampler's node keeps between steps."""

    def __init__(self, k: KernelContext, sampler: _Sampler) -> None:
        self.generator = GuardedPhilox(k.attrs["seed"], k.attrs["seed2"])
        self.sampler, self.lock = sampler, threading.Lock()


class _CandidateSampler:
    """Base of the sampler ops: `sampler(attrs)` makes the distribution."""

    stateful = True
    host_inputs = host_outputs = ALL
    cpu_only = True
    sampler: Callable[..., _Sampler]

    def shape(self, s: ShapeContext, true_classes: TensorShape) -> list[TensorShape]:
        sampled = TensorShape.of((s.attrs["num_sampled"],))
        return [sampled, true_classes.with_rank(2).merge_with([None, s.attrs["num_true"]]), sampled]

    def compute(self, k: KernelContext, true_classes: np.ndarray) -> tuple[Any, ...]:
        attrs = k.attrs
        if true_classes.ndim != 2:
            raise InvalidArgumentError(
                None, None, f"true_classes must be a matrix, and its shape is {list(true_classes.shape)}"
            )
        if true_classes.shape[1] != attrs["num_true"]:
            raise InvalidArgumentError(
                None,
                None,
                f"true_classes must have num_true columns, expected: {true_classes.shape[1]} "
                f"was: {attrs['num_true']}",
            )
        node = k.state(lambda: _Node(k, self.sampler(attrs)))
        count, sampler = attrs["num_sampled"], node.sampler
        if attrs["unique"] and count > sampler.range_max:
            raise InvalidArgumentError(
                None,
                None,
                f"Sampler's range is too small: {count} different candidates of {sampler.range_max}",
            )
        outside = true_classes[(true_classes < 0) | (true_classes >= sampler.range_max)]
        if outside.size:
            raise InvalidArgumentError(
                None, None, f"`true_candidate` out of range [0, {sampler.range_max}), received {outside[0]}"
            )
        with node.lock:
            words = _Words(node.generator.reserve(count * _WORDS_PER_CANDIDATE // 4))
            drawn, tries = sampler.batch(words, count, attrs["unique"])
            sampled = np.array(drawn, np.int64)
            expected = [
                _expected_count(sampler.probability(v), count, tries) for v in (true_classes, sampled)
            ]
            sampler.saw(true_classes)
        return sampled, *expected


def _expected_count(probability: np.ndarray, count: int, tries: int) -> np.ndarray:
    """How often a class is expected in the sample: with unique candidates, the chance that one of `tries`
    draws is it."""
    if tries == count:
        return probability * np.float32(count)
    return -np.expm1(np.float32(tries) * np.log1p(-probability))


def _draws(name: str, **attrs: Any) -> Any:
    """A program that draws three times from the sampler `name`: seeded, so that TensorFlow draws the same."""

    def build(tf: Any) -> list[Any]:
        made = getattr(tf.raw_ops, name)(
            true_classes=tf.constant([[1, 2], [3, 4]], tf.int64), num_true=2, seed=3, seed2=4, **attrs
        )
        return [list(made)] * 3

    return program(build, rtol=1e-5)


_COMMON = dict(num_true="int >= 1", num_sampled="int >= 1", unique="bool")
_SEEDS = dict(seed="int = 0", seed2="int = 0")
_OUTPUTS = (
    "(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float"
)


@op("LogUniformCandidateSampler" + _OUTPUTS, **_COMMON, range_max="int >= 1", **_SEEDS)
class LogUniformCandidateSampler(_CandidateSampler):
    """Candidates of an approximately log-uniform (Zipfian) distribution, and the expected counts of them and
    the true classes."""

    def sampler(self, attrs: dict[str, Any]) -> _Sampler:
        return _LogUniform(attrs["range_max"])

    samples = [
        _draws("LogUniformCandidateSampler", num_sampled=7, unique=unique, range_max=1000)
        for unique in (True, False)
    ]


@op("UniformCandidateSampler" + _OUTPUTS, **_COMMON, range_max="int >= 1", **_SEEDS)
class UniformCandidateSampler(_CandidateSampler):
    """Candidates of a uniform distribution, and the expected counts of them and the true classes."""

    def sampler(self, attrs: dict[str, Any]) -> _Sampler:
        return _Uniform(attrs["range_max"])

    samples = [
        _draws("UniformCandidateSampler", num_sampled=7, unique=unique, range_max=n)
        for unique in (True, False)
        for n in (16, 21)
    ]


class _LearnedUnigram(_CandidateSampler):
    def sampler(self, attrs: dict[str, Any]) -> _Sampler:
        return _Learned(attrs["range_max"])


@op("LearnedUnigramCandidateSampler" + _OUTPUTS, **_COMMON, range_max="int >= 1", **_SEEDS)
class LearnedUnigramCandidateSampler(_LearnedUnigram):
    """Candidates as frequent as the true classes seen so far, and the expected counts of them and the true
    classes."""

    samples = [
        _draws("LearnedUnigramCandidateSampler", num_sampled=7, unique=unique, range_max=21)
        for unique in (True, False)
    ]


@op("ThreadUnsafeUnigramCandidateSampler" + _OUTPUTS, **_COMMON, range_max="int >= 1", **_SEEDS)
class ThreadUnsafeUnigramCandidateSampler(_LearnedUnigram):
    """LearnedUnigramCandidateSampler, by TensorFlow's name for the one without a lock."""

    samples = [_draws("ThreadUnsafeUnigramCandidateSampler", num_sampled=7, unique=False, range_max=21)]


@op("AllCandidateSampler" + _OUTPUTS, **_COMMON, **_SEEDS)
class AllCandidateSampler(_CandidateSampler):
    """Every class in [0, num_sampled) once: for tests of losses on candidates."""

    def sampler(self, attrs: dict[str, Any]) -> _Sampler:
        return _All(attrs["num_sampled"])

    samples = [_draws("AllCandidateSampler", num_sampled=7, unique=True)]


@op(
    "FixedUnigramCandidateSampler" + _OUTPUTS,
    **_COMMON,
    range_max="int >= 1",
    vocab_file="string = ''",
    distortion="float = 1.0",
    num_reserved_ids="int = 0",
    num_shards="int >= 1 = 1",
    shard="int >= 0 = 0",
    unigrams="list(float) = []",
    **_SEEDS,
)
class FixedUnigramCandidateSampler(_CandidateSampler):
    """Candidates of the distribution in `unigrams` or `vocab_file`, and the expected counts of them and the
    true classes.

    Each weight is raised to `distortion`. The first `num_reserved_ids` classes have weight 0. Of the
    classes, those of one shard of several are kept.
    """

    def sampler(self, attrs: dict[str, Any]) -> _Sampler:
        path, unigrams = attrs["vocab_file"].decode(), attrs["unigrams"]
        if bool(path) == bool(unigrams):
            raise InvalidArgumentError(
                None,
                None,
                "Must only provide one of vocab_file and unigrams."
                if path
                else "Must provide either vocab_file or unigrams.",
            )
        weights = _weights(_vocabulary(path) if path else unigrams, attrs)
        if weights.size != attrs["range_max"]:
            raise InvalidArgumentError(
                None, None, f"range is {attrs['range_max']} must be equal to weights size  {weights.size}"
            )
        return _Fixed(weights)

    samples = [
        _draws(
            "FixedUnigramCandidateSampler",
            num_sampled=4,
            unique=unique,
            range_max=6,
            unigrams=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        )
        for unique in (True, False)
    ]
    samples += [
        _draws(
            "FixedUnigramCandidateSampler",
            num_sampled=4,
            unique=True,
            range_max=8,
            num_reserved_ids=2,
            distortion=0.5,
            unigrams=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        )
    ]


def _weights(listed: list[float], attrs: dict[str, Any]) -> np.ndarray:
    """The weights of this shard's classes: reserved ones first, then those listed."""
    shards, shard, distortion = attrs["num_shards"], attrs["shard"], np.float32(attrs["distortion"])
    weights = [np.float32(0)] * len(range(shard, attrs["num_reserved_ids"], shards))
    # TensorFlow numbers what is listed from how many weights there are, which with shards is not the class.
    weights += [
        np.power(np.float32(w), distortion) for i, w in enumerate(listed, len(weights)) if i % shards == shard
    ]
    return np.array(weights, np.float32)


def _vocabulary(path: str) -> list[float]:
    """The last column of a file of comma-separated lines."""
    try:
        with open(confined(path), encoding="utf-8") as file:
            return [float(line.rstrip("\n").rpartition(",")[2]) for line in file if line.strip()]
    except FileNotFoundError:
        raise NotFoundError(None, None, f"vocab_file {path!r} does not exist") from None
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"vocab_file {path!r}: {error}: each line ends in a weight"
        ) from None


@op(
    "ComputeAccidentalHits(true_classes: int64, sampled_candidates: int64) -> indices: int32, ids: int64, "
    "weights: float",
    num_true="int",
    **_SEEDS,
)
class ComputeAccidentalHits:
    """Where sampled candidates are true classes: row, place among the candidates, and the weight to add
    (-3.4e38)."""

    host_inputs = host_outputs = ALL
    cpu_only = True

    def shape(
        self, s: ShapeContext, true_classes: TensorShape, sampled_candidates: TensorShape
    ) -> list[TensorShape]:
        true_classes.with_rank(2).merge_with([None, s.attrs["num_true"]])
        sampled_candidates.with_rank(1)
        return [unknown(1)] * 3

    def compute(
        self, k: KernelContext, true_classes: np.ndarray, sampled_candidates: np.ndarray
    ) -> tuple[Any, ...]:
        if true_classes.ndim != 2 or true_classes.shape[1] != k.attrs["num_true"]:
            raise InvalidArgumentError(
                None,
                None,
                "true_candidates must be a batch_size * num_true matrix: num_true is "
                f"{k.attrs['num_true']} and the shape {list(true_classes.shape)}",
            )
        # A candidate that was drawn twice counts at its last place.
        places = {c: i for i, c in enumerate(sampled_candidates.tolist())}
        hits = [
            (row, places[c])
            for row, classes in enumerate(true_classes.tolist())
            for c in classes
            if c in places
        ]
        found = np.array(hits, np.int64).reshape(-1, 2)
        return found[:, 0].astype(np.int32), found[:, 1].copy(), np.full(len(hits), np.finfo(np.float32).min)

    samples = [
        sample(np.array([[1, 2], [3, 4], [2, 2]], np.int64), np.array([2, 1, 7, 2], np.int64), num_true=2),
        sample(np.array([[5]], np.int64), np.array([2, 1], np.int64), num_true=1, why="no hits"),
    ]
