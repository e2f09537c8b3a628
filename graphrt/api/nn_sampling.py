"""Of tf.nn: candidate samplers, and the losses that train on a sample of the classes: nce_loss,
sampled_softmax_loss."""

from __future__ import annotations

from typing import Any

from graphrt.api import array_api, math_api
from graphrt.api.nn_cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
)
from graphrt.api.nn_embedding import embedding_lookup
from graphrt.api.random_api import get_seed
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import int32, int64
from graphrt.core.tensor import Tensor
from graphrt.variables.partitioned_variable import PartitionedVariable

__all__ = [
    "all_candidate_sampler",
    "compute_accidental_hits",
    "fixed_unigram_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "nce_loss",
    "sampled_softmax_loss",
    "uniform_candidate_sampler",
]

Candidates = tuple[Tensor, Tensor, Tensor]


def _sampler(op: Any, true_classes: Any, seed: int | None, name: str | None, **attrs: Any) -> Candidates:
    seed1, seed2 = get_seed(seed)
    return tuple(op(true_classes, seed=seed1 or 0, seed2=seed2 or 0, name=name, **attrs))


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Classes drawn uniformly from [0, range_max).

    Args:
      true_classes: int64 tensor [batch, num_true].
      num_sampled: how many classes to draw.
      unique: all of them different.
    Returns:
      (sampled_candidates int64 [num_sampled], true_expected_count float32 [batch, num_true],
      sampled_expected_count float32 [num_sampled]): how often each class is expected in such a sample.
    """
    return _sampler(
        raw.UniformCandidateSampler,
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Classes drawn log-uniformly (by Zipf's law) from [0, range_max): for classes in order of falling
    frequency.

    Arguments and returns: see uniform_candidate_sampler.
    """
    return _sampler(
        raw.LogUniformCandidateSampler,
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Classes drawn as often as they were true classes in earlier steps of the session.

    Arguments and returns: see uniform_candidate_sampler.
    """
    if range_max > 2147483647:
        raise ValueError(f"Value of range_max:{range_max} is too large to handle")
    return _sampler(
        raw.LearnedUnigramCandidateSampler,
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Classes drawn by given weights.

    Args:
      vocab_file: a file whose lines end in ',weight'.
      unigrams: the weights, where there is no file.
      distortion: the power that weights are raised to.
      num_reserved_ids: how many classes of weight 0 come first.
      num_shards, shard: keep only the classes of one shard.
    Others and returns: see uniform_candidate_sampler.
    """
    return _sampler(
        raw.FixedUnigramCandidateSampler,
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
        vocab_file=vocab_file,
        distortion=distortion,
        num_reserved_ids=num_reserved_ids,
        num_shards=num_shards,
        shard=shard,
        unigrams=unigrams,
    )


def all_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Each class in [0, num_sampled) once: turns a sampled loss into the whole one."""
    return _sampler(
        raw.AllCandidateSampler,
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
    )


def compute_accidental_hits(
    true_classes: Any,
    sampled_candidates: Any,
    num_true: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Where sampled candidates are true classes.

    Returns:
      (indices int32: rows of true_classes, ids int64: places among the candidates, weights float32: -3.4e38).
    """
    seed1, seed2 = get_seed(seed)
    return tuple(
        raw.ComputeAccidentalHits(
            true_classes, sampled_candidates, num_true=num_true, seed=seed1 or 0, seed2=seed2 or 0, name=name
        )
    )


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Candidates | None = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """Noise-contrastive estimation: tell true classes from sampled ones, each by its own sigmoid.

    Args:
      weights: table [num_classes, dim], or a list of its parts.
      biases: [num_classes].
      labels: int64 [batch, num_true], the true classes.
      inputs: [batch, dim].
      num_sampled: how many classes stand for all others.
      sampled_values: a sampler's values; log_uniform_candidate_sampler's by default.
      remove_accidental_hits: leave out sampled classes that are true ones.
      partition_strategy: see embedding_lookup.
    Returns:
      The loss of each example, [batch].
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
        None,
    )
    return _sum_rows(sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses"))


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Candidates | None = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:
    """The softmax cross entropy over the true classes and a sample of the others: for training with many
    classes.

    Arguments and returns: see nce_loss.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
        seed,
    )
    targets = array_api.stop_gradient(targets, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)


def _sum_rows(x: Tensor) -> Tensor:
    """The sum of each row: by a product with ones, which is faster than a sum."""
    columns = array_api.shape(x)[1]
    ones = array_api.ones(array_api.stack([columns, 1]), x.dtype)
    return array_api.reshape(math_api.matmul(x, ones), [-1])


def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    remove_accidental_hits: bool,
    strategy: str,
    name: str | None,
    seed: int | None,
) -> tuple[Tensor, Tensor]:
    """(logits, labels) [batch, num_true + num_sampled] of the true classes, then of the sampled ones."""
    tables = list(weights) if isinstance(weights, (list, PartitionedVariable)) else [weights]
    with name_scope(name, "compute_sampled_logits", [*tables, biases, inputs, labels]):
        inputs = inputs if hasattr(inputs, "dtype") else convert_to_tensor(inputs)
        labels = labels if hasattr(labels, "dtype") else convert_to_tensor(labels, dtype=int64)
        if labels.dtype.base_dtype is not int64:
            labels = math_api.cast(labels, int64)
        flat = array_api.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(
                labels,
                num_true=num_true,
                num_sampled=num_sampled,
                unique=True,
                range_max=num_classes,
                seed=seed,
            )
        sampled, true_expected, sampled_expected = (array_api.stop_gradient(s) for s in sampled_values)
        sampled = math_api.cast(sampled, int64)
        # One look-up for both kinds.
        ids = array_api.concat([flat, sampled], 0)
        true_w, sampled_w = _rows_of(tables, ids, flat, inputs, strategy)
        sampled_logits = math_api.matmul(inputs, sampled_w, transpose_b=True)
        true_b, sampled_b = _biases_of(biases, ids, flat, inputs, strategy)
        dim = array_api.shape(true_w)[1:2]
        per_true = array_api.concat([[-1, num_true], dim], 0)
        products = math_api.multiply(array_api.expand_dims(inputs, 1), array_api.reshape(true_w, per_true))
        products = array_api.reshape(products, array_api.concat([[-1], dim], 0))
        true_logits = array_api.reshape(_sum_rows(products), [-1, num_true])
        true_logits += array_api.reshape(true_b, [-1, num_true])
        sampled_logits += sampled_b
        if remove_accidental_hits:
            sampled_logits += _hits(labels, sampled, num_true, num_sampled, sampled_logits.dtype)
        true_logits -= math_api.log(true_expected)
        sampled_logits -= math_api.log(sampled_expected)
        logits = array_api.concat([true_logits, sampled_logits], 1)
        targets = array_api.concat(
            [array_api.ones_like(true_logits) / num_true, array_api.zeros_like(sampled_logits)], 1
        )
        return logits, targets


def _rows_of(
    tables: list[Any], ids: Tensor, flat: Tensor, inputs: Any, strategy: str
) -> tuple[Tensor, Tensor]:
    """The weights of the true classes and of the sampled ones."""
    rows = embedding_lookup(tables, ids, partition_strategy=strategy)
    if rows.dtype.base_dtype is not inputs.dtype.base_dtype:
        rows = math_api.cast(rows, inputs.dtype)
    true_w = array_api.slice(rows, [0, 0], array_api.stack([array_api.shape(flat)[0], -1]))
    return true_w, array_api.slice(rows, array_api.stack([array_api.shape(flat)[0], 0]), [-1, -1])


def _biases_of(biases: Any, ids: Tensor, flat: Tensor, inputs: Any, strategy: str) -> tuple[Tensor, Tensor]:
    """The biases of the true classes and of the sampled ones."""
    found = embedding_lookup(biases, ids, partition_strategy=strategy)
    if found.dtype.base_dtype is not inputs.dtype.base_dtype:
        found = math_api.cast(found, inputs.dtype)
    true_b = array_api.slice(found, [0], array_api.shape(flat))
    return true_b, array_api.slice(found, array_api.shape(flat), [-1])


def _hits(labels: Tensor, sampled: Tensor, num_true: int, num_sampled: int, dtype: Any) -> Tensor:
    """What takes sampled classes that are true ones out of the sum: -3.4e38 at their logits, 0 elsewhere."""
    rows, places, weights = compute_accidental_hits(labels, sampled, num_true=num_true)
    rows = array_api.reshape(rows, [-1, 1])
    places = array_api.reshape(math_api.cast(places, int32), [-1, 1])
    indices = array_api.concat([rows, places], 1, "sparse_indices")
    shape = array_api.concat([array_api.shape(labels)[:1], array_api.expand_dims(num_sampled, 0)], 0)
    if weights.dtype.base_dtype is not dtype.base_dtype:
        weights = math_api.cast(weights, dtype)
    return raw.SparseToDense(indices, shape, weights, 0.0, validate_indices=False)
